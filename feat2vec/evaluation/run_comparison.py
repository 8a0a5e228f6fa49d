"""`compare`: two runs side by side: settings, metrics, and how many nearest neighbours they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Bools, Float32s, Integers
from feat2vec.errors import UserError, listed, naming_arguments
from feat2vec.evaluation.beside import evaluate_beside, task_of
from feat2vec.evaluation.options import METRICS
from feat2vec.schema.options import Schema
from feat2vec.space.geometry import candidates, is_keyed, keys_of
from feat2vec.terminal import printable, shortened
from feat2vec.training.run_folder import TrainedRun
from feat2vec.writing.files import JsonObject

MOST_KEYS = 1_000  # common keys of a group, the most frequent, among which neighbours are sought
NEIGHBOURS = 10
LEAST_LENGTH = 1e-30  # a vector of zeros stays one
ABSENT = "-"  # a setting that a run does not have


class CommonKeys(NamedTuple):
    """The most frequent keys that both runs have."""

    places: Integers  # of each key in the first run [keys]
    other_places: Integers  # in the other run [keys]
    common: int  # how many keys both have in all


def compare(run: TrainedRun, other_run: TrainedRun, data: object = None) -> JsonObject:
    """Compare two runs.

    Args:
        run: A run.
        other_run: Another run, with some groups of the same names.
        data: Rows that neither has seen, to measure both on.

    Returns:
        `settings`, those that differ among those that one of the schemas gives, each with both values; `groups`, the
        names of those that only the first run has, and only the other one; `metrics`, each with both values, those on
        `data` included; and `neighbours`, for each lookup group of both the mean share of the ten nearest neighbours of
        a key that both runs have in common, by cosine, among the 1,000 most frequent common keys.

    Raises:
        UserError: Something is wrong with the rows, or the runs predict different columns.

    Example:
        >>> facts = feat2vec.compare(run, run)
        >>> facts["settings"], facts["neighbours"]["director"]["overlap"]
        ({}, 1.0)

    """
    with naming_arguments():
        return compare_runs(run, other_run, data)


def compare_runs(run: TrainedRun, other_run: TrainedRun, data: object = None) -> JsonObject:
    """`compare`, whose messages name the options of the command."""
    neighbours = {}
    have_vectors = run.schema.model.pairs and other_run.schema.model.pairs
    for name in run.schema.groups if have_vectors else ():
        if name in other_run.schema.groups:
            overlap = _overlap(run, other_run, name)
            if overlap is not None:
                neighbours[name] = overlap
    metrics = _side_by_side(run.metrics, other_run.metrics)
    measured = {} if data is None else _measured(run, other_run, data)
    return {
        "runs": [str(run.folder), str(other_run.folder)],
        "settings": _differing_settings(run.schema, other_run.schema),
        "groups": [
            [name for name in schema.groups if name not in other_schema.groups]
            for schema, other_schema in ((run.schema, other_run.schema), (other_run.schema, run.schema))
        ],
        "metrics": metrics,
        "measured": measured,
        "neighbours": neighbours,
    }


def _differing_settings(schema: Schema, other_schema: Schema) -> dict[str, list[object]]:
    """Settings that differ, without defaults that neither schema gives, and without groups that only one has."""
    common = [name for name in schema.groups if name in other_schema.groups]
    settings, other_settings = (
        dict(_flat(part.model_dump(mode="json", exclude={"groups", "name"})))
        | {
            f"groups.{name}.{key}": value
            for name in common
            for key, value in _flat(part.groups[name].model_dump(mode="json"))
        }
        for part in (schema, other_schema)
    )
    given = dict.fromkeys(key for part in (schema, other_schema) for key in _given(part))
    keys = [key for key in dict.fromkeys([*settings, *other_settings]) if key in given]
    pairs = {key: [settings.get(key, ABSENT), other_settings.get(key, ABSENT)] for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _given(schema: Schema) -> Iterator[str]:
    """The settings that a schema gives itself; those that have only defaults are not among them."""
    for name, group in schema.groups.items():
        for key, _ in _flat(group.model_dump(mode="json", exclude_unset=True)):
            yield f"groups.{name}.{key}"
    for key, _ in _flat(schema.model_dump(mode="json", exclude={"groups"}, exclude_unset=True)):
        yield key


def _flat(settings: Mapping[str, object], path: str = "") -> Iterator[tuple[str, object]]:
    """The keys of nested mappings with dots between them, and their values."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _side_by_side(metrics: Mapping[str, object], other_metrics: Mapping[str, object]) -> dict[str, list[object]]:
    """Both values of each metric, None where a run has none."""
    return {name: [metrics.get(name), other_metrics.get(name)] for name in dict.fromkeys([*metrics, *other_metrics])}


def _measured(run: TrainedRun, other_run: TrainedRun, data: object) -> JsonObject:
    """The metrics of both on rows: of each common lookup group, or of the target."""
    task = task_of(run)
    if task != task_of(other_run) or run.schema.target != other_run.schema.target:
        targets = [repr(part.schema.target or "nothing") for part in (run, other_run)]
        raise UserError(f"--data: the runs predict {targets[0]} and {targets[1]}, which cannot be compared on rows")
    parts = []
    for part in (run, other_run):
        facts = evaluate_beside(part, data, task)
        parts.append(facts["groups"] if "groups" in facts else {str(run.schema.target): facts})
    measured: JsonObject = {}
    for target in parts[0]:
        if target in parts[1]:
            pair = [
                {metric: part[target][metric] for metric in METRICS[task] if metric in part[target]} for part in parts
            ]
            measured[target] = _side_by_side(*pair)
    return measured


# --- neighbours -----------------------------------------------------------------------------------------------------


def _overlap(run: TrainedRun, other_run: TrainedRun, group: str) -> JsonObject | None:
    """The mean share of common neighbours; None for a group without keys, or with too few common ones."""
    if not (is_keyed(run.vector_source, group) and is_keyed(other_run.vector_source, group)):
        return None
    common_keys = _common_keys(run, other_run, group)
    keys = len(common_keys.places)
    topn = min(NEIGHBOURS, keys - 1)
    if topn < 1:
        return None
    is_near = _is_near(run, group, common_keys.places, topn)
    is_near_in_other = _is_near(other_run, group, common_keys.other_places, topn)
    shared = np.count_nonzero(is_near & is_near_in_other, axis=1)  # [keys]
    overlap = float(shared.mean() / topn)
    return {"overlap": round(overlap, 4), "topn": topn, "keys": keys, "common": common_keys.common}


def _common_keys(run: TrainedRun, other_run: TrainedRun, group: str) -> CommonKeys:
    keys, other_keys = (_keys(part, group) for part in (run, other_run))
    other_place: Integers = pc.fill_null(pc.index_in(keys, value_set=other_keys), -1).to_numpy()  # [keys]
    places = np.flatnonzero(other_place >= 0)  # in the order of ids, the most frequent first
    return CommonKeys(places[:MOST_KEYS], other_place[places[:MOST_KEYS]], len(places))


def _keys(run: TrainedRun, group: str) -> pa.StringArray:
    keys = keys_of(run.fitted, group)
    assert keys is not None
    return keys


def _is_near(run: TrainedRun, group: str, places: Integers, topn: int) -> Bools:
    """Which keys are among the nearest of each, by cosine in level 1, without the key itself: [keys, keys]."""
    vectors: Float32s = candidates(run.model_for_rows([group]), run.fitted, group).tables[0][places]
    unit_vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), LEAST_LENGTH)
    cosines = unit_vectors @ unit_vectors.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = np.argpartition(-cosines, topn - 1, axis=1)[:, :topn]
    is_near = np.zeros(cosines.shape, np.bool_)
    np.put_along_axis(is_near, nearest, True, axis=1)
    return is_near


# --- as text --------------------------------------------------------------------------------------------------------


def comparison_lines(facts: JsonObject) -> Iterator[str]:
    """What `compare` returns, as lines."""
    yield from _columns("settings that differ", facts["runs"], facts["settings"])
    for run, names in zip(facts["runs"], facts["groups"], strict=True):
        if names:
            yield printable(f"groups only in {run}: {listed(names)}")
    if any(facts["groups"]):
        yield ""
    yield from _columns("metrics", facts["runs"], facts["metrics"])
    for target, metrics in facts["measured"].items():
        yield from _columns(f"{target}, on the rows given", facts["runs"], metrics)
    for group, overlap in facts["neighbours"].items():
        yield printable(
            f"{group}: {overlap['overlap']:.1%} of the {overlap['topn']} nearest are common "
            f"({overlap['keys']:,} of {overlap['common']:,} common keys)"
        )


def _columns(title: str, runs: list[str], pairs: Mapping[str, list[object]]) -> Iterator[str]:
    cells = [[title, *runs], *([key, *map(_text, pair)] for key, pair in pairs.items())]
    if not pairs:
        cells = [[title, "none"]]
    shown = [[shortened(printable(cell), 40) for cell in row] for row in cells]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]))]
    for row in shown:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    yield ""


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


__all__ = ["compare", "compare_runs", "comparison_lines"]
