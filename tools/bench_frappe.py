"""Frappe: factorization machines, RaFM and DiFacto on the same rows, each with several seeds.

python tools/bench_frappe.py TRAIN.parquet VALIDATION.parquet TEST.parquet [--apps APPS.parquet] [--seeds 3]
    [--only protocol best levels texts] [--peers] > frappe.json
python tools/bench_frappe.py TRAIN.parquet VALIDATION.parquet TEST.parquet --only --peers > frappe.json

protocol: the RaFM authors' training (Adam 1e-3, batches of 256, L2 5e-6 on whole tables). best: the schemas
frappe.yaml and frappe_large.yaml, FM and DiFacto trained as they are. levels: each level's submodel of frappe.yaml,
beside an FM of that rank trained alone with the level's own dropout. texts: frappe_texts.yaml (all that an app's page
says, added up with its id), against its ids alone (the same schema without the page) and frappe.yaml, on the test rows
of apps with at most three positive training rows; new_apps: the same with training rows in which such apps are new
(`with_new_apps`). Every model stops early by the validation rows and is measured on the test rows. Numbers are means
over the seeds, with the spread (largest less smallest) beside them.

--peers: `feat2vec train` with frappe.yaml and frappe_large.yaml, and xLearn (pip install xlearn, which is built with
CMake and a C++ compiler), in turn. `seconds` are those of the whole command, from start to exit; `training_cpu_seconds`
those of training alone; `seconds_to_0.1123` those from the start of the command to the end of the first epoch with that
log loss of the validation rows, none if there is no such epoch. Ours is the validation loss, which is a little above
the log loss as zeros are learnt as a probability (`zero_as`). xLearn reads the rows in its own format, which is written
before, and takes no seed. Its settings are the best of some forty on the validation rows; with a second thread it is
less exact, and each time different.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from peers.timed_command import FEAT2VEC, OURS, TimedCommand, first_epoch_within, is_installed, timed

import feat2vec
from feat2vec.evaluation.metrics import auc, log_loss
from feat2vec.schema.yaml_text import read_document

SCHEMAS = Path(__file__).parents[1] / "schemas"
XLEARN = Path(__file__).parent / "peers" / "xlearn_frappe.py"
XLEARN_SETTINGS = {
    "xlearn_fm_128": "--dim 128 --epochs 8 --rate 0.25 --l2 0.003 --scale 1.2 --threads 1",
    "xlearn_fm_256": "--dim 256 --epochs 5 --rate 0.25 --l2 0.002 --scale 1.3 --threads 1",
}
XLEARN_EPOCH = r"\[ +\d+% +\] +(\d+) "  # share of the epochs, epoch, log losses, seconds
GIVEN_LOG_LOSS = 0.1123  # of the validation rows
SECONDS_TO = f"seconds_to_{GIVEN_LOG_LOSS}"
RARE = 3  # positive training rows of an app, at most
AGAIN = 0.3  # of the rows of rare apps, added once more as rows of new apps
PAGE = ("category", "downloads", "language", "developer", "description")
NUMBERS = ("price", "rating")
PROTOCOL: dict[str, Any] = {
    "batch_size": 256, "optimizer": {"type": "adam", "learning_rate": 0.001, "decay": "none"}, "l2": 5e-6,
    "l2_over": "tables", "interaction_dropout": 0.0, "averaging": 0.0,
}  # fmt: skip
RANKS = [32, 64, 128, 256]
SIZES: dict[str, dict[str, Any]] = {
    "fm_128": {"dim": 128},
    "fm_256": {"dim": 256},
    "difacto": {"ranks": [64, 256], "level_sharing": "truncate"},
}


def schema(name: str, model: Mapping[str, Any] | None = None, training: Mapping[str, Any] | None = None) -> Any:
    """A schema of ours with another model and other training."""
    data: Any = read_document(SCHEMAS / f"{name}.yaml").data
    if model is not None:
        kept = {key: data["model"][key] for key in ("bias", "scale")}
        data = {**data, "model": {**kept, **model}}
    return {**data, "training": {**data["training"], **(training or {})}}


def with_apps(path: str, apps: pa.Table) -> pa.Table:
    """The rows with what is known of their app."""
    rows = pq.read_table(path)
    rows = rows.set_column(rows.column_names.index("item"), "item", rows["item"].cast(pa.string()))
    joined = rows.append_column("row", pa.array(range(len(rows)))).join(apps, "item").sort_by("row")
    return joined.drop_columns(["row"])


def known_of_apps(path: str) -> pa.Table:
    """What each app's page says; nothing where the page is not known."""
    apps = pq.read_table(path)
    known = {"item": apps["item"].cast(pa.string())}
    for name in (*PAGE, *NUMBERS):
        column = apps[name].cast(pa.string())
        known[f"app_{name}"] = pc.if_else(pc.equal(column, "unknown"), pa.scalar(None, pa.string()), column)
    for name in NUMBERS:  # "Free", "$2.99", "CHF 3.00", "4.5"
        text = pc.replace_substring(known[f"app_{name}"], "Free", "0")
        found = pc.struct_field(pc.extract_regex(text, r"(?P<number>\d+(?:[.,]\d+)?)"), "number")
        known[f"app_{name}"] = pc.replace_substring(found, ",", ".").cast(pa.float64())
    return pa.table(known)


def positives(train: pa.Table, rows: pa.Table) -> Any:
    """The positive training rows of each row's app."""
    apps = train["item"].to_numpy(zero_copy_only=False)
    names, counts = np.unique(apps[train["used"].to_numpy() > 0], return_counts=True)
    known = dict(zip(names, counts.tolist(), strict=True))
    return np.array([known.get(app, 0) for app in rows["item"].to_numpy(zero_copy_only=False)])


def with_new_apps(train: pa.Table, seed: int = 0) -> pa.Table:
    """Training rows that say what an app is that nobody has used yet.

    A negative row is a draw, so rows of an app without a use tell nothing of it but that it is new: they are left out,
    and its id will be unseen. What that means is learnt from rows of rare apps, some of them once more as new apps'.
    """
    used = positives(train, train)
    again = (used > 0) & (used <= RARE) & (np.random.default_rng(seed).random(len(used)) < AGAIN)
    new = train.filter(pa.array(again))
    names = pa.array([f"new {i}" for i in range(len(new))])  # each rarer than the min_count of frappe_texts.yaml
    new = new.set_column(new.column_names.index("item"), "item", names)
    return pa.concat_tables([train.filter(pa.array(used > 0)), new])


def trained(given: Any, train: Any, validation: Any, seed: int) -> feat2vec.Run:
    """A run of one seed."""
    return feat2vec.train(given, train, validation=validation, settings=[f"training.seed={seed}"], quiet=True)


def measured(run: feat2vec.Run, test: Any, label: Any, slices: Mapping[str, Any]) -> dict[str, float]:
    """What is true of a run on test rows, and on slices of them."""
    scores = run.predict(test)["score"].astype(np.float64)
    best = run.history[run.metrics["kept_epoch"] - 1]
    facts = {
        "log_loss": log_loss(scores, label), "auc": float(auc(scores, label) or 0),
        "validation_log_loss": best["val_loss"], "parameters": run.metrics["parameters"],
        "seconds_an_epoch": statistics.median(row["seconds"] for row in run.history), "epochs": run.metrics["epochs"],
    }  # fmt: skip
    levels = run.schema.model.levels
    for level, rank in enumerate(levels.ranks if levels.submodels > 1 else (), 1):
        facts[f"rank_{rank}_log_loss"] = log_loss(run.predict(test, level)["score"].astype(np.float64), label)
    for name, some in slices.items():
        facts |= {f"{name}_n": int(some.sum()), f"{name}_auc": float(auc(scores[some], label[some]) or 0)}
        facts[f"{name}_log_loss"] = log_loss(scores[some], label[some])
    print(run.schema.name, run.schema.model, facts, file=sys.stderr)  # the whole takes an hour
    return facts


def several(given: Any, tables: Sequence[Any], seeds: int, slices: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Means over the seeds, and spreads."""
    train, validation, test = tables
    label = labels(test) if isinstance(test, str) else test["used"].to_numpy()
    runs = [measured(trained(given, train, validation, seed), test, label, slices or {}) for seed in range(seeds)]
    return means(runs)


def means(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of each number and its spread; none where a run has none."""
    facts: dict[str, Any] = {}
    for key in runs[0]:
        values = [run[key] for run in runs]
        if None in values:
            facts[key] = None
            continue
        facts[key] = float(f"{statistics.mean(values):.6g}")
        if max(values) > min(values):
            facts[f"{key}_spread"] = float(f"{max(values) - min(values):.2g}")
    return facts


def our_command(name: str, tables: Sequence[str], seed: int) -> dict[str, Any]:
    """A schema of ours, trained by the command line."""
    train, validation, test = tables
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "run")
        words = ["train", str(SCHEMAS / f"{name}.yaml"), "--data", train, "--validation", validation, "--out", out]
        command = timed([*FEAT2VEC, *words, "--set", f"training.seed={seed}"], OURS)
        run = feat2vec.load(out)
        facts = measured(run, test, labels(test), {})
        losses = [row["val_loss"] for row in run.history]
    return {**facts, **command.facts(), SECONDS_TO: seconds_to(command, losses)}


def xlearn_command(settings: str, tables: Sequence[str]) -> dict[str, Any]:
    """A factorization machine of xLearn's, trained by `peers/xlearn_frappe.py`."""
    label = labels(tables[2])
    with tempfile.TemporaryDirectory() as folder:
        train, validation, test = write_for_xlearn(tables, Path(folder))
        model, scores = f"{folder}/model", f"{folder}/scores.txt"
        script = [sys.executable, str(XLEARN)]
        command = timed([*script, "train", train, validation, model, *settings.split()], XLEARN_EPOCH)
        subprocess.run([*script, "predict", model, test, scores], check=True, stdout=subprocess.DEVNULL)
        score = np.loadtxt(scores)
    losses = xlearn_losses(command)
    facts = {"log_loss": log_loss(score, label), "auc": auc(score, label), "validation_log_loss": losses[-1]}
    return {**facts, "epochs": len(losses), **command.facts(), SECONDS_TO: seconds_to(command, losses)}


def seconds_to(command: TimedCommand, losses: Sequence[float]) -> float | None:
    """Seconds from the start of a command to the end of the first epoch with the given log loss, if there is one."""
    epoch = first_epoch_within(losses, GIVEN_LOG_LOSS)
    return None if epoch is None else round(command.epoch_ends[epoch].seconds, 2)


def xlearn_losses(command: TimedCommand) -> list[float]:
    """The log loss of the validation rows after each epoch: the last but one of a line's columns."""
    return [float(line.text.split()[-2]) for line in command.epoch_ends.values()]


def labels(path: str) -> Any:
    """The labels of a table's rows."""
    return pq.read_table(path, columns=["used"])["used"].to_numpy()


def write_for_xlearn(tables: Sequence[str], folder: Path) -> list[str]:
    """Write tables as texts in xLearn's format; the first has the training rows, whose values are the features."""
    columns = [group["column"] for group in schema("frappe")["groups"].values()]
    train = pq.read_table(tables[0], columns=columns)
    pairs = ((column, value) for column in columns for value in train[column].unique().to_pylist())
    features = {pair: i for i, pair in enumerate(pairs, 1)}
    texts = [folder / f"{i}.txt" for i in range(len(tables))]
    for text, path in zip(texts, tables, strict=True):
        text.write_text("".join(xlearn_lines(pq.read_table(path), columns, features)))
    return [str(text) for text in texts]


def xlearn_lines(rows: pa.Table, columns: Sequence[str], features: Mapping[tuple[str, Any], int]) -> Iterator[str]:
    """A line for each row: the label, and a 1 for each value that is a feature."""
    feature_lists = zip(
        *([features.get((column, value)) for value in rows[column].to_pylist()] for column in columns), strict=True
    )
    for label, row in zip(rows["used"].to_pylist(), feature_lists, strict=True):
        yield " ".join([str(int(label > 0)), *(f"{feature}:1" for feature in row if feature is not None)]) + "\n"


def side_by_side(tables: Sequence[str], seeds: int) -> dict[str, Any]:
    """Our schemas and xLearn, in turn for each seed: means and spreads."""
    peers = XLEARN_SETTINGS if is_installed("xlearn", "xlearn") else {}
    runs: dict[str, list[dict[str, Any]]] = {}
    for seed in range(seeds):
        for name in ("frappe", "frappe_large"):
            runs.setdefault(name, []).append(our_command(name, tables, seed))
        for name, settings in peers.items():
            runs.setdefault(name, []).append(xlearn_command(settings, tables))
            print(name, runs[name][-1], file=sys.stderr)
    return {name: means(sides) for name, sides in runs.items()}


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("validation")
    parser.add_argument("test")
    parser.add_argument("--apps")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=["protocol", "best", "levels", "texts"])
    parser.add_argument("--peers", action="store_true", help="Measure our schemas beside xLearn, too.")
    options = parser.parse_args()
    tables = (options.train, options.validation, options.test)
    result: dict[str, Any] = {}
    if "protocol" in options.only:
        sizes = {"rafm": {"ranks": RANKS}, "fm_256": SIZES["fm_256"]}
        result["protocol"] = {
            name: several(schema("frappe", size, PROTOCOL), tables, options.seeds) for name, size in sizes.items()
        }
    if "best" in options.only:
        schemas = {"frappe": schema("frappe"), "frappe_large": schema("frappe_large")}
        schemas |= {name: schema("frappe", size) for name, size in SIZES.items()}
        result["best"] = {name: several(given, tables, options.seeds) for name, given in schemas.items()}
    if "levels" in options.only:
        ranks, training = schema("frappe")["model"]["ranks"], schema("frappe")["training"]
        found = {"rafm": result.get("best", {}).get("frappe") or several(schema("frappe"), tables, options.seeds)}
        for rank in ranks[:-1]:
            odds = training["interaction_dropout"] / (1 - training["interaction_dropout"]) * rank / ranks[-1]
            own = schema("frappe", {"dim": rank}, {"interaction_dropout": odds / (1 + odds)})
            found[f"fm_{rank}"] = several(own, tables, options.seeds)
        result["levels"] = found
    if options.peers:
        result["peers"] = side_by_side(tables, options.seeds)
    if "texts" in options.only and options.apps:
        apps = known_of_apps(options.apps)
        train, validation, test = (with_apps(path, apps) for path in tables)
        used = positives(train, test)
        slices = {
            "rare_apps": used <= RARE,
            "never_used_apps": used == 0,
            "used_rare_apps": (used > 0) & (used <= RARE),
        }
        whole, new = (train, validation, test), (with_new_apps(train), validation, test)
        both = schema("frappe_texts")
        alone = {key: value for key, value in both["model"].items() if key != "together"}
        ids = {**both, "model": alone, "groups": {name: both["groups"][name] for name in schema("frappe")["groups"]}}
        result["texts"] = {
            name: several(given, rows, options.seeds, slices)
            for name, given, rows in (
                ("frappe", schema("frappe"), whole), ("ids", ids, whole), ("ids_and_texts", both, whole),
                ("new_apps_ids", ids, new), ("new_apps_ids_and_texts", both, new),
            )
        }  # fmt: skip
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
