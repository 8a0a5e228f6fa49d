"""`report`: one page about a run: how it learnt, what its space looks like, and what stands near what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from feat2vec.errors import UserError
from feat2vec.evaluation import tasks as evaluate
from feat2vec.evaluation.diagnose import SHARES, class_bounds, counts_of, isotropy, levels, norms, stability
from feat2vec.pages import charts
from feat2vec.space.geometry import candidates, is_keyed
from feat2vec.space.run_vectors import vectors_of_group
from feat2vec.training.run_folder import TrainedRun
from feat2vec.writing import file_place, write_text

OFTEN, RARE, NEAR = 5, 3, 5  # keys, and neighbours of each, that are shown
BOUNDS = ((1, 1), (5, 1), (5, None))  # negatives, and classes that a row is told from
DRAWS = 50_000


def report(
    run: TrainedRun,
    out: str | Path,
    data: object = None,
    label: str | None = None,
    other: TrainedRun | None = None,
    *,
    force: bool = False,
) -> dict[str, Any]:
    """Write a page of HTML about a run, whole or not at all, and return what it says.

    `data` are rows to measure a supervised run on; with their column `label`, the bound of Proposition 3.3 is computed.
    `other` is a run of the same schema with another seed: how many nearest neighbours the two share.
    """
    out = Path(out)
    if label is not None and data is None:
        raise UserError("--label: is a column of --data; name the rows too")
    file_place(out, force=force)
    facts = facts_of(run, data, label, other)
    write_text(out, page(facts), force=force)
    return facts


def facts_of(
    run: TrainedRun, data: object = None, label: str | None = None, other: TrainedRun | None = None
) -> dict[str, Any]:
    """What the page says, as plain data."""
    facts: dict[str, Any] = {
        "name": run.schema.name,
        "objective": run.schema.objective.type,
        "seed": run.manifest["seed"],
        "metrics": dict(run.metrics),
        "history": run.history,
        "groups": {name: _group(run, name) for name in run.schema.groups},
    }
    if data is not None and run.schema.target is not None:
        facts["evaluation"] = evaluate.predict(run, data)
    if label is not None:
        found = class_bounds(run.model, run.fitted, data, label, BOUNDS, DRAWS)
        facts["bounds"] = [{**one._asdict(), "bound": one.bound._asdict()} for one in dict.fromkeys(found)]
    if other is not None:
        keyed = [name for name in run.schema.groups if is_keyed(run.model, name)]
        shared = {name: stability(run, other, name)._asdict() for name in keyed if name in other.schema.groups}
        if not shared:
            raise UserError(f"--other: {other.folder} has no lookup group of this run; name a run of the same schema")
        facts["stability"] = {"seeds": [run.manifest["seed"], other.manifest["seed"]], "groups": shared}
    return facts


def _group(run: TrainedRun, name: str) -> dict[str, Any]:
    """A group's diagnostics."""
    model, encoder = run.model, run.fitted
    vectors = candidates(model, encoder, name).tables[0]
    count = len(counts_of(model, encoder, name))
    return {
        "values": count,
        "parameters": model.params()[model.groups.index(name)],
        "norms": [one._asdict() for one in norms(model, encoder, name)],
        "isotropy": isotropy(vectors)._asdict() if (vectors != 0).any(axis=1).sum() > 1 else None,
        "levels": [one._asdict() for one in levels(model, name, count)],
        "neighbours": list(_neighbours(run, name)),
    }


def _neighbours(run: TrainedRun, name: str) -> Iterator[dict[str, Any]]:
    """What stands near the most frequent values and near some of the rarest."""
    vectors = vectors_of_group(run, name)
    every, order = vectors.index_to_key, np.argsort(-counts_of(run.model, run.fitted, name), kind="stable")
    for place, some in (("often", order[:OFTEN]), ("rare", order[OFTEN:][-RARE:])):
        for i in some:
            key = every[i]
            hits = vectors.search([key], topn=NEAR)
            near = [{"key": hit.key, "score": hit.score, "count": hit.count} for hit in hits]
            yield {"key": key, "count": vectors.get_vecattr(key, "count"), "place": place, "near": near}


# --- the page -------------------------------------------------------------------------------------------------------


def page(facts: Mapping[str, Any]) -> str:
    """The facts as HTML."""
    parts = [*_training(facts)]
    if "evaluation" in facts:
        parts += ["<h2>On the rows given</h2>", _pairs("evaluation", facts["evaluation"])]
    if "bounds" in facts:
        parts += _bounds(facts["bounds"])
    parts += _space(facts["groups"])
    if "stability" in facts:
        parts += _stability(facts["stability"])
    for name, group in facts["groups"].items():
        parts += _group_parts(name, group)
    return charts.page(f"{facts['name']}: {facts['objective']}", parts)


def _training(facts: Mapping[str, Any]) -> list[str]:
    history = facts["history"]
    losses = list(dict.fromkeys(key for row in history for key in row if key.endswith("loss")))
    series = {key: [(row["epoch"], row[key]) for row in history if key in row] for key in losses}
    columns = list(dict.fromkeys(key for row in history for key in row))
    epochs = [[charts.number(row.get(key), 6) for key in columns] for row in history]
    return [
        "<h2>Training</h2>", charts.lines("loss by epoch", series, "epoch"),
        _pairs("metrics", {**facts["metrics"], "seed": facts["seed"]}),
        f"<details><summary>Epochs</summary>{charts.table('history', columns, epochs)}</details>",
    ]  # fmt: skip


def _bounds(bounds: list[dict[str, Any]]) -> list[str]:
    one = bounds[0]
    said = f"{one['rows']:,} rows of {one['classes']:,} classes of {one['label']}; {one['without_label']:,} had none."
    note = (
        "A classifier whose weights are the classes' mean vectors tells a row's class from k others with the loss "
        "L_mu, which is at most k / (1 - tau) (L_un - tau log(N + 1)): L_un is the contrastive loss with N negatives, "
        "tau = C^-N the chance that all of them are of the row's class, classes being equally likely "
        "(Proposition 3.3)."
    )
    columns = ["N", "k", "L_un", "tau", "bound", "L_mu, measured", "exact"]
    shown = ("contrastive", "tau", "bound", "mean_classifier")
    rows = [
        (x["negatives"], x["k"], *(x["bound"][key] for key in shown), "yes" if x["bound"]["exact"] else "drawn")
        for x in bounds
    ]
    return ["<h2>What the vectors say of classes</h2>", _note(f"{said} {note}"), charts.table("bound", columns, rows)]


def _space(groups: Mapping[str, Any]) -> list[str]:
    measures = {name: one["isotropy"] or {"partition": None, "mean_cosine": None} for name, one in groups.items()}
    rows = [(name, one["values"], one["parameters"], *measures[name].values()) for name, one in groups.items()]
    sizes = [
        (name, "shared" if x["level"] == 0 else str(x["level"]), x["rank"] or None, x["values"], x["parameters"])
        for name, one in groups.items() for x in one["levels"]
    ]  # fmt: skip
    note = (
        "Isotropy, of vectors of level 1: min Z(c) / max Z(c) with Z(c) = sum of exp(c . v) over the unit eigenvectors "
        "c of V'V and their opposites (1 is even), and the mean cosine of all pairs (0 is even)."
    )
    return [
        "<h2>The space</h2>", _note(note),
        charts.table("isotropy", ["group", "values", "weights", "partition ratio", "mean cosine"], rows),
        "<h3>Levels</h3>", charts.table("levels", ["group", "level", "rank", "values", "weights"], sizes),
    ]  # fmt: skip


def _stability(shared: Mapping[str, Any]) -> list[str]:
    seeds = shared["seeds"]
    rows = [(name, x["overlap"], x["topn"], x["asked"], x["common"]) for name, x in shared["groups"].items()]
    note = f"Mean Jaccard overlap of nearest neighbours in this run (seed {seeds[0]}) and another (seed {seeds[1]})."
    columns = ["group", "overlap", "neighbours", "keys asked", "keys in both"]
    return ["<h2>Stability</h2>", _note(note), charts.table("stability", columns, rows)]


def _group_parts(name: str, group: Mapping[str, Any]) -> list[str]:
    bins = group["norms"]
    middle = SHARES.index(0.5)
    at = [(x["low"] * x["high"]) ** 0.5 for x in bins]
    median = [(x, one["quantiles"][middle]) for x, one in zip(at, bins, strict=True)]
    band = [(x, one["quantiles"][0], one["quantiles"][-1]) for x, one in zip(at, bins, strict=True)]
    rows = [
        (f"{x['low']:,}" if x["low"] == x["high"] else f"{x['low']:,} to {x['high']:,}", x["values"], *x["quantiles"])
        for x in bins
    ]
    near = [
        (x["key"], x["count"], ", ".join(f"{hit['key']} ({hit['score']:.3f})" for hit in x["near"]))
        for x in group["neighbours"]
    ]
    return [
        f"<h2>{escape(name)}</h2>",
        charts.lines(f"norms of {name} by count", {"median; 5 to 95 %": median}, "count (log)", x_log=True, band=band),
        charts.table(f"norms of {name}", ["count", "values", *(f"{share:.0%}" for share in SHARES)], rows),
        "<h3>Neighbours</h3>", charts.table(f"neighbours in {name}", ["value", "count", "nearest"], near),
    ]  # fmt: skip


def _pairs(title: str, facts: Mapping[str, Any]) -> str:
    return charts.table(title, ["what", title], [(key, charts.number(value, 6)) for key, value in facts.items()])


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


__all__ = ["facts_of", "page", "report"]
