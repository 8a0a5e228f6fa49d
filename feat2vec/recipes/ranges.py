"""What `feat2vec tune` may change, and what it goes by."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from feat2vec.errors import UserError, listed, suggest
from feat2vec.evaluation.options import Measurement, measurement_conflicts, no_metric
from feat2vec.schema.document import Document, KeyPath, dotted, shown
from feat2vec.schema.extractor_options import Many, Text
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.schema.validation import Findings, Problem, Spec


class Range(Spec):
    """The values that a key of the schema may have: between two numbers, or one of several."""

    log: Annotated[tuple[float, ...], Many] | None = None
    uniform: Annotated[tuple[float, ...], Many] | None = None
    integer: Annotated[tuple[int, ...], Many] | None = None
    choice: Annotated[tuple[Any, ...], Many] | None = None

    def kinds(self) -> list[str]:
        """Which of them are given; a range that is right has one."""
        return [kind for kind in type(self).model_fields if getattr(self, kind) is not None]

    def ends(self) -> tuple[Any, ...]:
        """The lowest and the highest value, or each of several."""
        ends: tuple[Any, ...] = getattr(self, self.kinds()[0])
        return ends


class Measure(Measurement):
    """The number that a trial is judged by."""

    task: Literal["rank", "nearest", "predict"]
    metric: Text
    data: Text = "validation"


class Tune(Spec):
    """Keys of the schema and the values to try; a trial is judged by `measure`, or else by its validation loss."""

    ranges: Annotated[dict[Text, Range], Field(min_length=1)]
    measure: Measure | None = None
    seed: Annotated[int, Field(ge=0)] = 0


def tune_conflicts(tune: Tune, findings: Findings) -> Iterator[Problem]:
    """What is wrong although each key is right by itself."""
    measure = tune.measure
    if measure is not None and findings.sound("tune", "measure"):
        path: KeyPath = ("tune", "measure")
        yield from measurement_conflicts(path, measure)
        if problem := no_metric(measure.metric, measure.task):
            yield (*path, "metric"), f"{measure.metric!r} {problem}"
        if measure.data != "validation":
            yield (*path, "data"), f"is {measure.data!r}, but tuning measures on `validation` alone; remove it"
    for key, tried_range in tune.ranges.items():
        path = ("tune", "ranges", key)
        if not findings.sound(*path):
            continue
        yield from _range_conflicts(path, tried_range)
        keys_above = [other_key for other_key in tune.ranges if key.startswith(f"{other_key}.")]
        if keys_above:
            yield path, f"is a part of {keys_above[0]!r}, which has a range too; remove one of them"
        if measure is None and findings.sound("tune", "measure") and key.split(".")[0] in ("noise", "objective"):
            remedy = "give a `measure`, such as {task: rank, target: GROUP, metric: mpr}"
            yield path, f"changes what the validation loss means, so that trials cannot be compared by it; {remedy}"


def _range_conflicts(path: KeyPath, tried_range: Range) -> Iterator[Problem]:
    kinds = tried_range.kinds()
    if len(kinds) != 1:
        yield path, f"expected one of {', '.join(Range.model_fields)}, received {' and '.join(kinds) or 'none'}"
        return
    kind_path, ends = (*path, kinds[0]), tried_range.ends()
    if kinds == ["choice"]:
        texts = [json.dumps(value) for value in ends]
        if len(ends) < 2:
            yield kind_path, f"expected two values or more, received {len(ends)}"
        if len(set(texts)) < len(texts):
            yield kind_path, "holds a value twice; keep one"
    elif len(ends) != 2:
        yield kind_path, f"expected the lowest and the highest number, received {len(ends)} of them"
    elif ends[0] >= ends[1]:
        yield kind_path, f"the lowest, {shown(ends[0])}, must be less than the highest, {shown(ends[1])}"
    elif kinds == ["log"] and ends[0] <= 0:
        yield kind_path, f"a logarithmic range begins above 0, received {shown(ends[0])}; use `uniform`"


def unfit(tune: Tune, source: Document, schema: Schema, settings: Sequence[str]) -> Iterator[Problem]:
    """What does not fit the schema, which `source` and `settings` make."""
    for key, tried_range in tune.ranges.items():
        messages: set[str] = set()
        for value in tried_range.ends():
            setting = f"{key}={json.dumps(value)}"
            try:
                read_schema(source, settings=[*settings, setting])
            except UserError as error:
                for problem in error.problems:
                    message = problem.removeprefix(f"--set {setting}: ")
                    message = message.removeprefix(f"{dotted(tuple(key.split('.')))}: ")
                    if message not in messages:
                        yield ("tune", "ranges", key), f"with {shown(value)}: {message}"
                    messages.add(message)
    if tune.measure is not None:
        yield from _unfit_measure(tune.measure, schema)


def _unfit_measure(measure: Measure, schema: Schema) -> Iterator[Problem]:
    path = ("tune", "measure")
    groups = schema.groups
    for key, names in (("target", [measure.target]), ("given", measure.given or ())):
        for name in names:
            if name is not None and name not in groups:
                suggestion = suggest(name, groups) or f"; the groups are {listed(groups)}"
                yield (*path, key), f"there is no group {name!r}{suggestion}"
    if measure.task == "predict":
        metrics = schema.objective.metrics
        if measure.metric not in metrics:
            known = f"; it has {', '.join(metrics)}" if metrics else ", which predicts nothing"
            yield (*path, "metric"), f"{measure.metric!r} is not for the objective {schema.objective.type}{known}"
