"""`tune`: trainings of a recipe with values from its ranges, judged on the validation part; the best as a recipe.

A trial's values follow from the seed, its number and the trials that ended before it: a study that was killed goes on
as if it had not been. Trials see no part but train and validation.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import keras

from feat2vec.errors import FailedError, UserError
from feat2vec.recipes.ranges import Range, Tune
from feat2vec.recipes.rows import learning_parts
from feat2vec.recipes.running import PrintLines, Results, print_nothing
from feat2vec.recipes.tuning.plan import Plan, plan_of_recipe, plan_of_schema
from feat2vec.recipes.tuning.pruning import PrunedError, PruningCallback, finite, measured
from feat2vec.recipes.tuning.study import (
    PRUNING,
    Pruning,
    ended_trials,
    is_complete,
    is_lower_better,
    locked_folder,
    next_trial,
    opened_study,
    require_optuna,
    schema_values,
    study_inputs,
    suggested_value,
)
from feat2vec.run import train
from feat2vec.schema.reading import read_schema
from feat2vec.table.table import Table, open_table
from feat2vec.terminal import printable, shortened
from feat2vec.writing import refuse_inputs_inside, remove_inside

if TYPE_CHECKING:
    import optuna


# What is said before the command that uses the best recipe or schema.
NEXT = {"recipe": "measure it on rows that chose nothing", "schema": "train it on all rows"}


class StudyOptions(NamedTuple):
    """How a study is run.

    Attributes:
        settings: Such as "training.epochs=5"; they replace what the schema says.
        rows: For a first try: no part has more rows.
        force: Start anew if the study is there.
        quiet: Print nothing.
        print_lines: What prints.
        pruning: When a trial is stopped.

    """

    settings: Sequence[str] = ()
    rows: int | None = None
    force: bool = False
    quiet: bool = False
    print_lines: PrintLines = print
    pruning: Pruning = PRUNING


DEFAULT_OPTIONS = StudyOptions()


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
    plan, folder = plan_of_recipe(Path(path), None if out is None else Path(out), data, settings)
    options = StudyOptions(settings, rows, force=force, quiet=quiet, print_lines=print_lines, pruning=pruning)
    return _run_plan(plan, folder, trials, options)


def tune_schema(
    path: str | Path,
    trials: int,
    data: Sequence[str],
    out: str | Path | None = None,
    *,
    target: str | None = None,
    group: str | None = None,
    options: StudyOptions = DEFAULT_OPTIONS,
) -> Results:
    """`tune` for a schema without a recipe: ranges around its own values, judged on a part that is split off.

    The first trial is the schema itself. Trials are judged by the mean reciprocal rank of `group`, or of all lookup
    groups, or by the loss of the target. `best.yaml` is the best schema.
    """
    require_optuna()
    folder = None if out is None else Path(out)
    plan, folder = plan_of_schema(Path(path), folder, data, options.settings, target, group)
    return _run_plan(plan, folder, trials, options)


def _run_plan(plan: Plan, out: Path, trials: int, options: StudyOptions) -> Results:
    _refuse_inputs(out, plan.sources, plan.files, force=options.force)
    inputs = study_inputs(plan.recipe, plan.tune, plan.schema, plan.sources, options.rows)
    with locked_folder(out), opened_study(out, plan.tune, inputs, options.pruning, force=options.force) as study:
        tables = learning_parts(plan.recipe, plan.sources, out / "data", options.rows)
        first_values = schema_values(plan.tune, plan.schema)
        print_lines = print_nothing if options.quiet else options.print_lines
        trial_runner = _Trials(study, plan, options.settings, first_values, tables, out, print_lines)
        trial_runner.run_until(trials)
        return trial_runner.results()


def _refuse_inputs(out: Path, sources: Mapping[str, str], recipe_files: Sequence[Path], *, force: bool) -> None:
    """Raise if tables are in the folder of the study; with `force`, which replaces it, also if the recipe is."""
    files = [file for table in sources.values() for file in open_table(table).files]
    refuse_inputs_inside([out], files)
    if force:
        refuse_inputs_inside([out], recipe_files)


@dataclass
class _Trials:
    """Runs the trials of a study."""

    study: optuna.Study
    plan: Plan
    settings: Sequence[str]
    first_values: Mapping[str, object] | None  # the recipe's or the schema's own
    tables: Mapping[str, Table]
    folder: Path
    print_lines: PrintLines

    @property
    def tune(self) -> Tune:
        return self.plan.tune

    @property
    def metric(self) -> str:
        measure = self.tune.measure
        if measure is None:
            return "validation loss"
        is_mean = measure.task == "rank" and measure.target is None
        return f"mean {measure.metric}" if is_mean else measure.metric

    @property
    def _own_values(self) -> str:
        return f"the {self.plan.kind}'s own values"

    def run_until(self, trials: int) -> None:
        """Run trials until so many have ended."""
        if self.first_values is None:
            self.print_lines(f"{self._own_values} are not all within the ranges, so that they are not tried")
        heads = "  ".join(f"{_heading(key, self.tune.ranges):6}" for key in self.tune.ranges)
        self.print_lines(f"trial  {self.metric:>16}  seconds  {heads}".rstrip())
        for trial in ended_trials(self.study):
            self.print_lines(self._line(trial))
        while (before := len(ended_trials(self.study))) < trials:
            self._run_trial(before)
            self.print_lines(self._line(ended_trials(self.study)[-1]))
            self._write()

    def results(self) -> Results:
        """The best trial and all others; prints the best, and the command that runs it."""
        trials = ended_trials(self.study)
        if not any(map(is_complete, trials)):
            raise FailedError(f"{self.folder}: no trial of {len(trials)} came to its end; give other ranges")
        self._write()
        best = self.study.best_trial
        self.print_lines(f"\nthe best: trial {self._number_and_value(best)}")
        first_trial = self._own_trial()
        is_better = first_trial is None or best.value != first_trial.value
        if not is_better:
            self.print_lines(f"no trial beat the {self.plan.kind} itself")
        path, command = printable(str(self.plan.best.path)), self.plan.command
        self.print_lines(f"{path}: the {self.plan.kind} with its values; {NEXT[self.plan.kind]}:")
        self.print_lines(f"  {printable(command)}")
        return {
            "name": self.plan.recipe.name,
            "folder": str(self.folder),
            "measure": self.metric,
            "better": "lower" if is_lower_better(self.tune) else "higher",
            "best": _trial_results(best),
            "beats_own_values": is_better,
            "trials": [_trial_results(trial) for trial in trials],
            self.plan.kind: str(self.plan.best.path),
            "next": command,
        }

    def _run_trial(self, index: int) -> None:
        """Run the trial after `index` ended ones."""
        import optuna

        trial = next_trial(self.study, self.tune, index, self.first_values)
        is_own = trial.user_attrs.get("own", False)
        values = {
            key: suggested_value(trial, key, tried_range, exact=is_own) for key, tried_range in self.tune.ranges.items()
        }
        trial.set_user_attr("values", values)
        began = time.perf_counter()
        value: float | None = None
        stopped: str | None = None
        earlier_trial = self._trial_of(values)
        if earlier_trial is not None:  # a trial of the same values would end as it did
            value = earlier_trial.value if is_complete(earlier_trial) else None
            stopped = earlier_trial.user_attrs["stopped"]
        else:
            try:
                value = self._value(trial, values)
            except (PrunedError, FailedError) as error:  # to Optuna, one that has diverged is the worst of the pruned
                stopped = str(error).splitlines()[0]
        trial.set_user_attr("stopped", stopped)
        trial.set_user_attr("seconds", round(time.perf_counter() - began, 1))
        states = optuna.trial.TrialState
        self.study.tell(trial, value, states.PRUNED if value is None else states.COMPLETE)

    def _trial_of(self, values: Mapping[str, object]) -> optuna.trial.FrozenTrial | None:
        """The first ended trial of the same values."""
        for ended_trial in ended_trials(self.study):
            if ended_trial.user_attrs["values"] == values:
                return ended_trial
        return None

    def _value(self, trial: optuna.Trial, values: Mapping[str, object]) -> float:
        """Train and measure."""
        settings = [*self.settings, *(f"{key}={json.dumps(value)}" for key, value in values.items())]
        try:
            schema = read_schema(self.plan.source, settings=settings)
        except UserError as error:  # values that are right by themselves
            raise FailedError(*error.problems) from None
        keras.utils.clear_session()
        folder, validation = self.folder / "trial", self.tables["validation"]
        callback = PruningCallback(trial, self.tune.measure, validation, schema.training.epochs)
        try:
            run = train(schema, self.tables["train"], folder / "run", validation, quiet=True, callbacks=[callback])
            if self.tune.measure is not None:
                return measured(run, validation, self.tune.measure)
            return finite("validation loss", run.history[run.metrics["kept_epoch"] - 1]["val_loss"])
        finally:
            remove_inside(self.folder, "trial")

    def _line(self, trial: optuna.trial.FrozenTrial) -> str:
        facts, heads = trial.user_attrs, [_heading(key, self.tune.ranges) for key in self.tune.ranges]
        cells = "  ".join(
            f"{_value_text(value, tried_range):{max(len(head), 6)}}"
            for value, tried_range, head in zip(facts["values"].values(), self.tune.ranges.values(), heads, strict=True)
        )
        remark = facts.get("stopped") or (self._own_values if facts.get("own") else "")
        value = "-" if facts.get("stopped") else f"{trial.value:.4g}"
        return printable(f"{facts['number']:5}  {value:>16}  {facts['seconds']:7.1f}  {cells}  {remark}".rstrip())

    def _own_trial(self) -> optuna.trial.FrozenTrial | None:
        """The trial of the own values, if it came to its end."""
        own_trials = (trial for trial in ended_trials(self.study) if trial.user_attrs.get("own") and is_complete(trial))
        return next(own_trials, None)

    def _number_and_value(self, best: optuna.trial.FrozenTrial) -> str:
        """The best one's number and value, beside that of the own values."""
        own_trial = self._own_trial()
        comparison = "" if own_trial is None else f"; {own_trial.value:.4g} with {self._own_values}"
        return f"{best.user_attrs['number']}, {self.metric} {best.value:.4g} on validation{comparison}"

    def _write(self) -> None:
        """The recipe with the best values so far."""
        if any(map(is_complete, ended_trials(self.study))):
            best = self.study.best_trial
            count = len(ended_trials(self.study))
            comment = f"# The best of {count} trials of `feat2vec tune`: trial {self._number_and_value(best)}.\n"
            self.plan.best.write(comment, best.user_attrs["values"])


def _heading(key: str, keys: Mapping[str, Range]) -> str:
    """The last word of a key, or all of it if another one ends alike."""
    last = key.rsplit(".", 1)[-1]
    return last if sum(other_key.rsplit(".", 1)[-1] == last for other_key in keys) == 1 else key


def _value_text(value: object, tried_range: Range) -> str:
    """A value in a line of the table; of a mapping, what differs among those that are tried."""
    if isinstance(value, dict):
        choices = tried_range.choice or ()
        different = [key for key in value if any(choice.get(key) != value[key] for choice in choices)]
        return shortened(" ".join(f"{key} {_value_text(value[key], tried_range)}" for key in different), 40)
    return f"{value:g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def _trial_results(trial: optuna.trial.FrozenTrial) -> Results:
    """What `--json` says of a trial."""
    facts = trial.user_attrs
    stopped = facts.get("stopped")
    return {
        "trial": facts["number"],
        "stopped": stopped,
        "seconds": facts.get("seconds"),
        "value": None if stopped else trial.value,
        "values": facts["values"],
    }
