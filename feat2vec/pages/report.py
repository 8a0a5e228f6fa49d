"""`report`: one page about a run: its losses and metrics, the shape of its space, and neighbours of some keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path

import numpy as np

from feat2vec.errors import UserError, listed
from feat2vec.evaluation import prediction
from feat2vec.evaluation.beside import better_of, evaluate_beside, table_rows
from feat2vec.evaluation.bounds import bounds_of_vectors, labelled_vectors, say_nothing
from feat2vec.evaluation.label_bounds import label_bounds_of_vectors
from feat2vec.evaluation.level_bounds import level_bounds
from feat2vec.evaluation.norms_and_isotropy import SHARES, counts_of, isotropy, levels, norms
from feat2vec.evaluation.stability import stability
from feat2vec.evaluation.weakness import stored_worths
from feat2vec.pages import charts
from feat2vec.pages.bound_parts import class_parts, level_parts, plain
from feat2vec.pages.completions import completion_facts, completion_parts
from feat2vec.pages.latent import latent_facts, latent_parts
from feat2vec.space.geometry import candidates, is_keyed
from feat2vec.space.groups_and_levels import groups_once, others_with_table
from feat2vec.space.run_vectors import vectors_of_group
from feat2vec.training.run_folder import TrainedRun
from feat2vec.writing import file_place, write_text
from feat2vec.writing.files import JsonObject

FREQUENT_KEYS, RARE_KEYS = 5, 3  # of each group, whose neighbours are shown
NEIGHBOURS = 5  # of each of these keys
BOUND_CASES = ((1, 1), (5, 1), (5, None))  # negatives, and classes that a row is told from
DRAWS = 50_000

Facts = JsonObject  # what the page says, as `--json` prints it


def report(
    run: TrainedRun,
    out: str | Path,
    data: object = None,
    label: str | None = None,
    other_run: TrainedRun | None = None,
    *,
    beside: Sequence[str] = (),
    train: object = None,
    force: bool = False,
    say: Callable[[str], None] = say_nothing,
) -> Facts:
    """Write a page of HTML about a run, whole or not at all.

    Args:
        run: The run.
        out: The file.
        data: Rows to measure the run on: its target, or the ranks of its lookup groups, unless they are for `label`.
        label: A column of `data`, for whose classes the losses of linear classifiers and their bounds are computed.
        other_run: A run of the same schema with another seed: the page says how many nearest neighbours both share.
        beside: Baselines that are measured on `data` too, such as "popularity" and "tfidf".
        train: The rows that the run was trained on, which most baselines learn from.
        force: Replace the file if it is there.
        say: What is told, in a line, which of the long computations begins.

    Returns:
        What the page says.

    Raises:
        UserError: The file cannot be written there, or an argument does not fit the run.

    """
    out = Path(out)
    if label is not None and data is None:
        raise UserError("--label: is a column of --data; name the rows too")
    if beside and data is None:
        raise UserError("--beside: is measured on --data; name rows that training has not seen")
    file_place(out, force=force)
    facts = facts_of(run, data, label, other_run, say)
    if beside:
        facts["beside"] = evaluate_beside(run, data, names=beside, train=train)
    elif data is not None and label is None and run.schema.target is None:
        facts["ranked"] = evaluate_beside(run, data)
    write_text(out, page(facts), force=force)
    return facts


def facts_of(
    run: TrainedRun,
    data: object = None,
    label: str | None = None,
    other_run: TrainedRun | None = None,
    say: Callable[[str], None] = say_nothing,
) -> Facts:
    """What the page says, as plain data."""
    facts: Facts = {
        "name": run.schema.name,
        "objective": run.schema.objective.type,
        "seed": run.manifest["seed"],
        "time": run.schema.training.time,
        "metrics": dict(run.metrics),
        "history": run.history,
        "groups": {name: _group_facts(run, name) for name in groups_once(run.schema) if run.schema.model.pairs},
    }
    if run.schema.model.pairs:
        facts["latent"] = latent_facts(run)
    completion = completion_facts(run)
    if completion:
        facts["completion"] = completion
    if worths := stored_worths(run):
        facts["held_out"] = [asdict(worth) for worth in worths]
    if data is not None and run.schema.target is not None:
        facts["evaluation"] = prediction.predict(run, data)
    if label is not None:
        say(f"{label}: the vectors of the rows")
        vectors, labels, without_label = labelled_vectors(run.model, run.fitted, data, label)
        bounds = bounds_of_vectors(vectors, labels, label, without_label, BOUND_CASES, DRAWS, say)
        facts["bounds"] = plain(list(dict.fromkeys(bounds)))  # each once
        say(f"{label}: the best linear classifier, the lemmas' bounds and a linear probe")
        negatives = run.schema.noise.negatives
        facts["label"] = plain(label_bounds_of_vectors(vectors, labels, label, negatives, DRAWS))
    if len(run.schema.model.levels) > 1:
        facts["levels"] = plain(level_bounds(run, data))
    if other_run is not None:
        overlaps = {}
        for name in groups_once(run.schema):
            if is_keyed(run.model, name) and name in other_run.schema.groups:
                overlaps[name] = stability(run, other_run, name)._asdict()
        if not overlaps:
            raise UserError(
                f"--other: {other_run.folder} has no lookup group of this run; name a run of the same schema"
            )
        facts["stability"] = {"seeds": [run.manifest["seed"], other_run.manifest["seed"]], "groups": overlaps}
    return facts


def _group_facts(run: TrainedRun, name: str) -> Facts:
    """A group's diagnostics."""
    model, encoder = run.model, run.fitted
    vectors = candidates(model, encoder, name).tables[0]
    count = len(counts_of(model, encoder, name))
    return {
        "values": count,
        "without_vector": int(vectors_of_group(run, name).without_vector.sum()),
        "also_of": others_with_table(run.schema, name),
        "parameters": model.params()[model.groups.index(name)],
        "norms": [record._asdict() for record in norms(model, encoder, name)],
        "isotropy": isotropy(vectors)._asdict() if (vectors != 0).any(axis=1).sum() > 1 else None,
        "levels": [record._asdict() for record in levels(model, name, count)],
        "neighbours": list(_neighbours(run, name)),
    }


def _neighbours(run: TrainedRun, name: str) -> Iterator[Facts]:
    """The nearest values of the most frequent keys and of some of the rarest."""
    vectors = vectors_of_group(run, name)
    keys = vectors.index_to_key
    order = np.argsort(-counts_of(run.model, run.fitted, name), kind="stable")  # [keys] by descending count
    order = order[~vectors.without_vector[order]]
    for how_often, key_numbers in (("often", order[:FREQUENT_KEYS]), ("rare", order[FREQUENT_KEYS:][-RARE_KEYS:])):
        for i in key_numbers:
            key = keys[i]
            hits = vectors.search([key], topn=NEIGHBOURS)
            neighbours = [{"key": hit.key, "score": hit.score, "count": hit.count} for hit in hits]
            yield {"key": key, "count": vectors.get_vecattr(key, "count"), "place": how_often, "near": neighbours}


# --- the page -------------------------------------------------------------------------------------------------------


def page(facts: JsonObject) -> str:
    """The facts as HTML."""
    parts = [*_training(facts)]
    if "held_out" in facts:
        parts += _held_out(facts["held_out"], facts["metrics"].get("weak"))
    if "evaluation" in facts:
        parts += ["<h2>On the rows given</h2>", _pairs("evaluation", facts["evaluation"])]
    if "ranked" in facts:
        parts += ["<h2>On the rows given</h2>", charts.table("ranked", *table_rows(facts["ranked"]))]
    if "completion" in facts:
        parts += completion_parts(facts["completion"], facts["time"])
    if "beside" in facts:
        parts += _beside(facts["beside"])
    if "bounds" in facts:
        parts += class_parts(facts["bounds"], facts["label"])
    if facts["groups"]:  # a model without pairs has no vectors
        parts += _space(facts["groups"])
        parts += latent_parts(facts["latent"])
    if "levels" in facts:
        parts += level_parts(facts["levels"])
    if "stability" in facts:
        parts += _stability(facts["stability"])
    for name, group in facts["groups"].items():
        parts += _group_parts(name, group)
    return charts.page(f"{facts['name']}: {facts['objective']}", parts)


def _training(facts: JsonObject) -> list[str]:
    history = facts["history"]
    losses = list(dict.fromkeys(key for row in history for key in row if key.endswith("loss")))
    series = {key: [(row["epoch"], row[key]) for row in history if key in row] for key in losses}
    columns = list(dict.fromkeys(key for row in history for key in row))
    epochs = [[charts.number(row.get(key), 6) for key in columns] for row in history]
    return [
        "<h2>Training</h2>", charts.lines("loss by epoch", series, "epoch"),
        _pairs("metrics", {**facts["metrics"], "seed": facts["seed"]}),
        f"<details><summary>Epochs</summary>{charts.table('history', columns, epochs)}</details>",
        *_later_answers(facts["time"], facts["metrics"]),
    ]  # fmt: skip


def _later_answers(time: str | None, metrics: Facts) -> list[str]:
    """How sure predictions of later rows are beside others, in a sentence; nothing if no last rows were held out."""
    if time is None or "temperature_later" not in metrics:
        return []
    later, of_any_time = metrics["temperature_later"], metrics["temperature"]
    return [
        charts.note(
            f"By {time}, the last rows were held out, too: in rows of a time that training has not seen, scores count "
            f"{later:.3g} times, in others {of_any_time:.3g} times. The less they count, the less sure predictions are."
        )
    ]


def _held_out(worths: list[Facts], weak: str | None) -> list[str]:
    """What the run reached on the rows that its training held out, beside popularity or a constant."""
    columns = ["target", "metric", "n", "value", "baseline", "baseline_value"]
    note = "None of them is worse than its baseline." if weak is None else f"Weak: {weak}."
    rows = [[worth[column] for column in columns] for worth in worths]
    return [
        "<h2>On the rows that training held out</h2>",
        charts.table("held-out rows", columns, rows),
        charts.note(note),
    ]


def _beside(measured: Facts) -> list[str]:
    """The run and its baselines, and a sentence for each that is better."""
    heads, rows = table_rows(measured)
    sentences = better_of(measured) or ["None of them is better than the run."]
    return [
        "<h2>Beside other methods, on the rows given</h2>",
        charts.table("beside", heads, rows),
        *(charts.note(f"{sentence}.".replace("..", ".")) for sentence in sentences),
    ]


def _space(groups: JsonObject) -> list[str]:
    rows = []
    level_rows = []
    for name, group in groups.items():
        evenness = group["isotropy"] or {"partition": None, "mean_cosine": None}
        rows.append((name, group["values"], group["parameters"], *evenness.values()))
        for size in group["levels"]:
            level = "shared" if size["level"] == 0 else str(size["level"])
            level_rows.append((name, level, size["rank"] or None, size["values"], size["parameters"]))
    note = (
        "Isotropy, of vectors of level 1: min Z(c) / max Z(c) with Z(c) = sum of exp(c . v) over the unit eigenvectors "
        "c of V'V and their opposites (1 is even), and the mean cosine of all pairs (0 is even)."
    )
    return [
        "<h2>The space</h2>",
        charts.note(note),
        charts.table("isotropy", ["group", "values", "weights", "partition ratio", "mean cosine"], rows),
        "<h3>Levels</h3>",
        charts.table("levels", ["group", "level", "rank", "values", "weights"], level_rows),
    ]


def _stability(shared: JsonObject) -> list[str]:
    seeds = shared["seeds"]
    rows = []
    for name, overlap in shared["groups"].items():
        rows.append((name, overlap["overlap"], overlap["topn"], overlap["asked"], overlap["common"]))
    note = f"Mean Jaccard overlap of nearest neighbours in this run (seed {seeds[0]}) and another (seed {seeds[1]})."
    columns = ["group", "overlap", "neighbours", "keys asked", "keys in both"]
    return ["<h2>Stability</h2>", charts.note(note), charts.table("stability", columns, rows)]


def _group_parts(name: str, group: JsonObject) -> list[str]:
    median, band, rows = [], [], []
    for norm_bin in group["norms"]:
        low, high, quantiles = norm_bin["low"], norm_bin["high"], norm_bin["quantiles"]
        middle_count = (low * high) ** 0.5
        median.append((middle_count, quantiles[SHARES.index(0.5)]))
        band.append((middle_count, quantiles[0], quantiles[-1]))
        rows.append((f"{low:,}" if low == high else f"{low:,} to {high:,}", norm_bin["values"], *quantiles))
    neighbour_rows = []
    for value in group["neighbours"]:
        nearest = ", ".join(f"{hit['key']} ({hit['score']:.3f})" for hit in value["near"])
        neighbour_rows.append((value["key"], value["count"], nearest))
    also_of, without_vector = group["also_of"], group["without_vector"]
    return [
        f"<h2>{escape(name)}</h2>",
        *([charts.note(f"{without_vector:,} of {group['values']:,} values have no vector.")] if without_vector else []),
        *([charts.note(f"These are also the vectors of {listed(also_of)}.")] if also_of else []),
        charts.lines(f"norms of {name} by count", {"median; 5 to 95 %": median}, "count (log)", x_log=True, band=band),
        charts.table(f"norms of {name}", ["count", "values", *(f"{share:.0%}" for share in SHARES)], rows),
        "<h3>Neighbours</h3>",
        charts.table(f"neighbours in {name}", ["value", "count", "nearest"], neighbour_rows),
    ]


def _pairs(title: str, facts: JsonObject) -> str:
    return charts.table(title, ["what", title], [(key, charts.number(value, 6)) for key, value in facts.items()])


__all__ = ["facts_of", "page", "report"]
