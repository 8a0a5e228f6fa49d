"""`tune`: trainings of a recipe with values from its ranges, judged on the validation part; the best as a recipe.

A trial's values follow from the seed, its number and the trials that ended before it: a study that was killed goes on
as if it had not been. Trials see no part but train and validation.
"""

from __future__ import annotations

import json
import logging
import math
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from feat2vec.errors import FailedError, UserError
from feat2vec.evaluation.tasks import evaluate
from feat2vec.recipes.output import PrintLines, Results, print_nothing
from feat2vec.recipes.ranges import Measure, Range, Tune
from feat2vec.recipes.reading import read_recipe, schema_document
from feat2vec.recipes.rows import learning_parts, sources_of
from feat2vec.recipes.tuning.study import (
    BEST,
    PRUNING,
    BestRecipe,
    Pruning,
    alone,
    ended,
    is_lower,
    is_whole,
    next_trial,
    opened_study,
    own_values,
    require_optuna,
    suggested,
    what_made,
)
from feat2vec.run import train
from feat2vec.schema.document import Document
from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import read_document
from feat2vec.table.table import Table, open_table
from feat2vec.terminal import printable
from feat2vec.training.run_folder import TrainedRun
from feat2vec.writing import refuse_inputs_inside, remove_inside

if TYPE_CHECKING:
    import optuna

TENTHS = 10  # a trial is measured so many times while it trains


def tune(
    path: str | Path,
    trials: int,
    out: str | Path | None = None,
    data: Sequence[str] = (),
    *,
    settings: Sequence[str] = (),
    rows: int | None = None,
    force: bool = False,
    quiet: bool = False,
    print_lines: PrintLines = print,
    pruning: Pruning = PRUNING,
) -> Results:
    """Try values from a recipe's `tune.ranges` until `trials` trials have ended, and write the best as a recipe.

    The folder `out`, by default runs/NAME-tune, holds `study.db` (Optuna's), `data/` and `best.yaml`. Called again it
    goes on with the study, if recipe and rows are the same; `force` starts anew. `data`, `settings` and `rows` are as
    for `run_recipe`.
    """
    require_optuna()
    path = Path(path)
    recipe, schema = read_recipe(path, settings)
    if recipe.tune is None:
        example = "tune: {ranges: {training.optimizer.learning_rate: {log: [0.01, 1]}}}"
        raise UserError(f"{path}: says nothing of what to tune; add it, such as `{example}`")
    for setting in settings:
        key = setting.split("=")[0]
        if any(
            f"{key}.".startswith(f"{tuned_key}.") or f"{tuned_key}.".startswith(f"{key}.")
            for tuned_key in recipe.tune.ranges
        ):
            raise UserError(f"--set {setting}: is what the recipe tunes; remove one of the two")
    sources = sources_of(recipe, data)
    out = Path("runs", f"{recipe.name}-tune") if out is None else Path(out)
    source = schema_document(read_document(path), recipe)
    files = [file for table in sources.values() for file in open_table(table).files]
    refuse_inputs_inside([out], files)
    if force:
        refuse_inputs_inside([out], [path, Path(source.name)])
    made_of = what_made(recipe, recipe.tune, schema, sources, rows)
    with alone(out), opened_study(out, recipe.tune, made_of, pruning, force=force) as study:
        below = {"schema": Path(source.name).read_text(encoding="utf-8-sig")} if source.name != str(path) else None
        best = BestRecipe(path.read_text(encoding="utf-8-sig"), below, settings, out / BEST)
        tables = learning_parts(recipe, sources, out / "data", rows)
        own_setting_values = own_values(recipe.tune, schema)
        work = _Trials(
            study,
            recipe.tune,
            source,
            settings,
            own_setting_values,
            tables,
            out,
            best,
            print_nothing if quiet else print_lines,
        )
        with _without_retracing_warnings():
            work.until(trials)
        options = [word for tuned_key in data for word in ("--data", tuned_key)]
        command = shlex.join(["feat2vec", "run", str(best.path), *options, "--out", f"{out}-run"])
        if schema.plugins:
            command = f"PYTHONPATH={shlex.quote(str(path.parent))} {command}"
        return work.results(recipe.name, command)


@contextmanager
def _without_retracing_warnings() -> Iterator[None]:
    """TensorFlow warns of a step that is traced again and again, which each trial has to."""
    logger, said = logging.getLogger("tensorflow"), "triggered tf.function retracing"

    def drop(record: logging.LogRecord) -> bool:
        return said not in str(record.msg)

    logger.addFilter(drop)
    try:
        yield
    finally:
        logger.removeFilter(drop)


class _Pruned(Exception):  # noqa: N818
    """A trial that is worse than most were by then."""


@dataclass
class _Trials:
    """A study, and what its trials need."""

    study: optuna.Study
    tune: Tune
    source: Document
    settings: Sequence[str]
    own: Mapping[str, Any] | None
    tables: Mapping[str, Table]
    folder: Path
    best: BestRecipe
    print_lines: PrintLines

    @property
    def metric(self) -> str:
        return "validation loss" if self.tune.measure is None else self.tune.measure.metric

    def until(self, trials: int) -> None:
        """Trials until so many have ended."""
        if self.own is None:
            self.print_lines("the recipe's own values are not all within the ranges, so that they are not tried")
        heads = "  ".join(f"{_heading(key, self.tune.ranges):6}" for key in self.tune.ranges)
        self.print_lines(f"trial  {self.metric:>16}  seconds  {heads}".rstrip())
        for trial in ended(self.study):
            self.print_lines(self._line(trial))
        while (before := len(ended(self.study))) < trials:
            self._run_trial(before)
            self.print_lines(self._line(ended(self.study)[-1]))
            self._write()

    def results(self, name: str, command: str) -> Results:
        """What has come of it."""
        ended_trials = ended(self.study)
        if not any(map(is_whole, ended_trials)):
            raise FailedError(f"{self.folder}: no trial of {len(ended_trials)} came to its end; give other ranges")
        self._write()
        best = self.study.best_trial
        self.print_lines(f"\nthe best: trial {self._numbers(best)}")
        path = printable(str(self.best.path))
        self.print_lines(f"{path}: the recipe with its values; measure it on rows that chose nothing:")
        self.print_lines(f"  {printable(command)}")
        return {
            "name": name,
            "folder": str(self.folder),
            "measure": self.metric,
            "better": "lower" if is_lower(self.tune) else "higher",
            "best": _facts(best),
            "trials": [_facts(trial) for trial in ended_trials],
            "recipe": str(self.best.path),
            "next": command,
        }

    def _run_trial(self, index: int) -> None:
        """The trial that follows on so many."""
        import optuna

        trial = next_trial(self.study, self.tune, index, self.own)
        is_own = trial.user_attrs.get("own", False)
        values = {
            key: suggested(trial, key, tried_range, exact=is_own) for key, tried_range in self.tune.ranges.items()
        }
        trial.set_user_attr("values", values)
        began = time.perf_counter()
        value, stopped = None, None
        earlier_trial = next(
            (ended_trial for ended_trial in ended(self.study) if ended_trial.user_attrs["values"] == values), None
        )
        if earlier_trial is not None:  # it would end as it did
            value, stopped = (
                earlier_trial.value if is_whole(earlier_trial) else None,
                earlier_trial.user_attrs["stopped"],
            )
        else:
            try:
                value = self._value(trial, values)
            except (_Pruned, FailedError) as error:  # to Optuna, one that has diverged is the worst of the pruned
                stopped = str(error).splitlines()[0]
        trial.set_user_attr("stopped", stopped)
        trial.set_user_attr("seconds", round(time.perf_counter() - began, 1))
        states = optuna.trial.TrialState
        self.study.tell(trial, value, states.PRUNED if value is None else states.COMPLETE)

    def _value(self, trial: optuna.Trial, values: Mapping[str, Any]) -> float:
        """Train and measure."""
        settings = [*self.settings, *(f"{key}={json.dumps(value)}" for key, value in values.items())]
        try:
            schema = read_schema(self.source, settings=settings)
        except UserError as error:  # values that are right by themselves
            raise FailedError(*error.problems) from None
        keras.utils.clear_session()
        folder, validation = self.folder / "trial", self.tables["validation"]
        watch = _Watch(trial, self.tune.measure, validation, schema.training.epochs)
        try:
            run = train(schema, self.tables["train"], folder / "run", validation, quiet=True, callbacks=[watch])
            if self.tune.measure is not None:
                return measured(run, validation, self.tune.measure)
            return _finite("validation loss", run.history[run.metrics["kept_epoch"] - 1]["val_loss"])
        finally:
            remove_inside(self.folder, "trial")

    def _line(self, trial: optuna.trial.FrozenTrial) -> str:
        facts, heads = trial.user_attrs, [_heading(key, self.tune.ranges) for key in self.tune.ranges]
        pairs = zip(facts["values"].values(), heads, strict=True)
        cells = "  ".join(f"{_shown(value):{max(len(head), 6)}}" for value, head in pairs)
        said = facts.get("stopped") or ("the recipe's own values" if facts.get("own") else "")
        value = "-" if facts.get("stopped") else f"{trial.value:.4g}"
        return f"{facts['number']:5}  {value:>16}  {facts['seconds']:7.1f}  {cells}  {said}".rstrip()

    def _numbers(self, best: optuna.trial.FrozenTrial) -> str:
        """The best one's number and value, beside that of the recipe's own values."""
        own_trial = next(
            (
                ended_trial
                for ended_trial in ended(self.study)
                if ended_trial.user_attrs.get("own") and is_whole(ended_trial)
            ),
            None,
        )
        comparison = "" if own_trial is None else f"; {own_trial.value:.4g} with the recipe's own values"
        return f"{best.user_attrs['number']}, {self.metric} {best.value:.4g} on validation{comparison}"

    def _write(self) -> None:
        """The recipe with the best values so far."""
        if any(map(is_whole, ended(self.study))):
            best = self.study.best_trial
            head = f"# The best of {len(ended(self.study))} trials of `feat2vec tune`: trial {self._numbers(best)}.\n"
            self.best.write(head, best.user_attrs["values"])


class _Watch(keras.callbacks.Callback):
    """Measures a trial while it trains, at each tenth of it, and stops it where it is worse than most were there.

    It is judged by what the trial is judged by in the end, as the loss of other values need not mean the same.
    """

    def __init__(self, trial: optuna.Trial, measure: Measure | None, validation: Table, epochs: int) -> None:
        super().__init__()
        self.trial, self.measure, self.validation, self.epochs = trial, measure, validation, epochs
        self.tenth = 0

    @cached_property
    def run(self) -> TrainedRun:
        """The model, as it is whenever it is looked at."""
        return TrainedRun.of_model(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        tenth = (epoch + 1) * TENTHS // self.epochs
        if tenth == self.tenth or epoch + 1 == self.epochs or self.model.stop_training:
            return
        self.tenth = tenth
        if self.measure is None:
            value = _finite("validation loss", float((logs or {})["val_loss"]))
        else:
            value = measured(self.run, self.validation, self.measure)
        self.trial.report(value, tenth)
        if self.trial.should_prune():
            raise _Pruned(f"pruned after epoch {epoch + 1}, at {value:.4g}")


def measured(run: TrainedRun, data: Table, measure: Measure) -> float:
    """The number that a run is judged by."""
    facts = evaluate(
        run,
        data,
        measure.task,
        target=measure.target,
        given=measure.given,
        similarity=measure.similarity,
        level=measure.level,
    )
    return _finite(measure.metric, facts.get(measure.metric))


def _finite(name: str, value: object) -> float:
    if isinstance(value, Mapping):
        raise UserError(f"tune.measure: {name} is a number for each of {', '.join(value)}; take one column")
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise FailedError(f"the {name} is {value}")
    return float(value)


def _heading(key: str, keys: Mapping[str, Range]) -> str:
    """The last word of a key, or all of it if another one ends alike."""
    last = key.rsplit(".", 1)[-1]
    return last if sum(other_key.rsplit(".", 1)[-1] == last for other_key in keys) == 1 else key


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def _facts(trial: optuna.trial.FrozenTrial) -> Results:
    """What `--json` says of a trial."""
    facts = {"trial": trial.user_attrs["number"], **{key: trial.user_attrs.get(key) for key in ("stopped", "seconds")}}
    return {**facts, "value": None if facts["stopped"] else trial.value, "values": trial.user_attrs["values"]}
