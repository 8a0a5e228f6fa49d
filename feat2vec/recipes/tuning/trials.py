"""`tune`: trainings of a recipe with values from its ranges, judged on the validation part; the best as a recipe.

A trial's values follow from the seed, its number and the trials that ended before it: a study that was killed goes on
as if it had not been. Trials see no part but train and validation.
"""

from __future__ import annotations

import json
import logging
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import keras

from feat2vec.errors import FailedError, UserError
from feat2vec.recipes.ranges import Range, Tune
from feat2vec.recipes.reading import read_recipe, schema_document
from feat2vec.recipes.recipe import Recipe
from feat2vec.recipes.rows import learning_parts, sources_of
from feat2vec.recipes.running import PrintLines, Results, print_nothing
from feat2vec.recipes.tuning.pruning import PrunedError, PruningCallback, finite, measured
from feat2vec.recipes.tuning.study import (
    BEST,
    PRUNING,
    BestRecipe,
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
from feat2vec.schema.document import Document
from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import read_document
from feat2vec.table.table import Table, open_table
from feat2vec.terminal import printable
from feat2vec.writing import refuse_inputs_inside, remove_inside

if TYPE_CHECKING:
    import optuna


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
    tuning = _checked_tune(path, recipe, settings)
    sources = sources_of(recipe, data)
    out = Path("runs", f"{recipe.name}-tune") if out is None else Path(out)
    source = schema_document(read_document(path), recipe)
    _refuse_inputs(out, sources, [path, Path(source.name)], force=force)
    inputs = study_inputs(recipe, tuning, schema, sources, rows)
    with locked_folder(out), opened_study(out, tuning, inputs, pruning, force=force) as study:
        best = _best_recipe(path, source, settings, out)
        tables = learning_parts(recipe, sources, out / "data", rows)
        first_values = schema_values(tuning, schema)
        if quiet:
            print_lines = print_nothing
        trial_runner = _Trials(study, tuning, source, settings, first_values, tables, out, best, print_lines)
        with _without_retracing_warnings():
            trial_runner.run_until(trials)
        module_folder = path.parent if schema.plugins else None
        return trial_runner.results(recipe.name, _command_of_run(best.path, data, f"{out}-run", module_folder))


def _best_recipe(path: Path, source: Document, settings: Sequence[str], out: Path) -> BestRecipe:
    """The recipe at `path` with the best values; its schema may be a file of its own, `source`."""
    below = {"schema": Path(source.name).read_text(encoding="utf-8-sig")} if source.name != str(path) else None
    return BestRecipe(path.read_text(encoding="utf-8-sig"), below, settings, out / BEST)


def _command_of_run(recipe: Path, data: Sequence[str], out: str, module_folder: Path | None) -> str:
    """The command that runs the best recipe; plugins are imported from `module_folder`, if there are any."""
    options = [word for source in data for word in ("--data", source)]
    command = shlex.join(["feat2vec", "run", str(recipe), *options, "--out", out])
    return command if module_folder is None else f"PYTHONPATH={shlex.quote(str(module_folder))} {command}"


def _checked_tune(path: Path, recipe: Recipe, settings: Sequence[str]) -> Tune:
    """What the recipe says of tuning; the settings have nothing that is tuned."""
    if recipe.tune is None:
        example = "tune: {ranges: {training.optimizer.learning_rate: {log: [0.01, 1]}}}"
        raise UserError(f"{path}: says nothing of what to tune; add it, such as `{example}`")
    _refuse_settings_of_tuned_keys(recipe.tune, settings)
    return recipe.tune


def _refuse_inputs(out: Path, sources: Mapping[str, str], recipe_files: Sequence[Path], *, force: bool) -> None:
    """Raise if tables are in the folder of the study; with `force`, which replaces it, also if the recipe is."""
    files = [file for table in sources.values() for file in open_table(table).files]
    refuse_inputs_inside([out], files)
    if force:
        refuse_inputs_inside([out], recipe_files)


def _refuse_settings_of_tuned_keys(tune: Tune, settings: Sequence[str]) -> None:
    """Raise for a setting of a tuned key, or of a key above or below one."""
    for setting in settings:
        key = setting.split("=")[0]
        for tuned_key in tune.ranges:
            if f"{key}.".startswith(f"{tuned_key}.") or f"{tuned_key}.".startswith(f"{key}."):
                raise UserError(f"--set {setting}: is what the recipe tunes; remove one of the two")


@contextmanager
def _without_retracing_warnings() -> Iterator[None]:
    """TensorFlow warns of a step that is traced again and again, which each trial has to."""
    logger = logging.getLogger("tensorflow")

    def drop(record: logging.LogRecord) -> bool:
        return "triggered tf.function retracing" not in str(record.msg)

    logger.addFilter(drop)
    try:
        yield
    finally:
        logger.removeFilter(drop)


@dataclass
class _Trials:
    """Runs the trials of a study."""

    study: optuna.Study
    tune: Tune
    source: Document
    settings: Sequence[str]
    first_values: Mapping[str, object] | None  # the recipe's own
    tables: Mapping[str, Table]
    folder: Path
    best: BestRecipe
    print_lines: PrintLines

    @property
    def metric(self) -> str:
        return "validation loss" if self.tune.measure is None else self.tune.measure.metric

    def run_until(self, trials: int) -> None:
        """Run trials until so many have ended."""
        if self.first_values is None:
            self.print_lines("the recipe's own values are not all within the ranges, so that they are not tried")
        heads = "  ".join(f"{_heading(key, self.tune.ranges):6}" for key in self.tune.ranges)
        self.print_lines(f"trial  {self.metric:>16}  seconds  {heads}".rstrip())
        for trial in ended_trials(self.study):
            self.print_lines(self._line(trial))
        while (before := len(ended_trials(self.study))) < trials:
            self._run_trial(before)
            self.print_lines(self._line(ended_trials(self.study)[-1]))
            self._write()

    def results(self, name: str, command: str) -> Results:
        """The best trial and all others; prints the best, and the command that runs it."""
        trials = ended_trials(self.study)
        if not any(map(is_complete, trials)):
            raise FailedError(f"{self.folder}: no trial of {len(trials)} came to its end; give other ranges")
        self._write()
        best = self.study.best_trial
        self.print_lines(f"\nthe best: trial {self._number_and_value(best)}")
        path = printable(str(self.best.path))
        self.print_lines(f"{path}: the recipe with its values; measure it on rows that chose nothing:")
        self.print_lines(f"  {printable(command)}")
        return {
            "name": name,
            "folder": str(self.folder),
            "measure": self.metric,
            "better": "lower" if is_lower_better(self.tune) else "higher",
            "best": _trial_results(best),
            "trials": [_trial_results(trial) for trial in trials],
            "recipe": str(self.best.path),
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
            schema = read_schema(self.source, settings=settings)
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
        pairs = zip(facts["values"].values(), heads, strict=True)
        cells = "  ".join(f"{_value_text(value):{max(len(head), 6)}}" for value, head in pairs)
        remark = facts.get("stopped") or ("the recipe's own values" if facts.get("own") else "")
        value = "-" if facts.get("stopped") else f"{trial.value:.4g}"
        return printable(f"{facts['number']:5}  {value:>16}  {facts['seconds']:7.1f}  {cells}  {remark}".rstrip())

    def _number_and_value(self, best: optuna.trial.FrozenTrial) -> str:
        """The best one's number and value, beside that of the recipe's own values."""
        own_trial = next(
            (
                ended_trial
                for ended_trial in ended_trials(self.study)
                if ended_trial.user_attrs.get("own") and is_complete(ended_trial)
            ),
            None,
        )
        comparison = "" if own_trial is None else f"; {own_trial.value:.4g} with the recipe's own values"
        return f"{best.user_attrs['number']}, {self.metric} {best.value:.4g} on validation{comparison}"

    def _write(self) -> None:
        """The recipe with the best values so far."""
        if any(map(is_complete, ended_trials(self.study))):
            best = self.study.best_trial
            count = len(ended_trials(self.study))
            comment = f"# The best of {count} trials of `feat2vec tune`: trial {self._number_and_value(best)}.\n"
            self.best.write(comment, best.user_attrs["values"])


def _heading(key: str, keys: Mapping[str, Range]) -> str:
    """The last word of a key, or all of it if another one ends alike."""
    last = key.rsplit(".", 1)[-1]
    return last if sum(other_key.rsplit(".", 1)[-1] == last for other_key in keys) == 1 else key


def _value_text(value: object) -> str:
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
