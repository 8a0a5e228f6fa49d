"""The folder of `feat2vec tune`: its lock, its study in Optuna's database, what both are made of, the best recipe."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import yaml

from feat2vec.errors import FailedError, UserError
from feat2vec.evaluation.options import LOWER
from feat2vec.recipes.ranges import Range, Tune
from feat2vec.recipes.recipe import Recipe
from feat2vec.recipes.rows import digests
from feat2vec.schema.options import Schema
from feat2vec.schema.yaml_edit import edited
from feat2vec.schema.yaml_text import parse_document
from feat2vec.training.fingerprints import differences
from feat2vec.writing import (
    LOCK_FILES,
    is_signed,
    locked,
    mark_folder,
    read_mark,
    refuse_backslash,
    refuse_bad_folder,
    refuse_links_inside,
    remove_inside,
    remove_leftovers,
    why_unmarked,
    write_text,
)

if TYPE_CHECKING:
    from typing import TypeGuard

    import optuna

StudyInputs = dict[str, object]  # what trials have to share to be compared

KIND = "tuning"
BEST = "best.yaml"
NAMES = ("study.db", "study.db-journal", BEST)  # what the folder holds, by name
FOLDERS = ("data", "trial")  # that it holds, whose files are recorded or marked
PATIENCE = 3  # times that a trial may be killed before another one takes its place


class Pruning(NamedTuple):
    """When a trial that is worse than the others' median may be stopped."""

    startup: int = 5  # trials that come to their end before any is pruned
    warmup: int = 3  # tenths of a trial in which it is too early to judge it


PRUNING = Pruning()


def require_optuna() -> None:
    """Optuna, which is an extra, without its chatter."""
    try:
        import optuna
    except ImportError:
        raise UserError("tuning needs Optuna: pip install 'feat2vec[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def is_lower_better(tune: Tune) -> bool:
    """Whether a lower number is a better one."""
    return tune.measure is None or tune.measure.metric in LOWER


def study_inputs(
    recipe: Recipe, tune: Tune, schema: Schema, sources: Mapping[str, str], rows: int | None
) -> StudyInputs:
    """What trials have to share to be compared."""
    facts_of_recipe = recipe.model_dump(mode="json", include={"rows", "split"})
    facts_of_recipe |= {
        "corpus": None if recipe.corpus is None else recipe.corpus.study_facts(),
        "schema": yaml.safe_load(schema.resolved()),
        "tune": tune.model_dump(mode="json", exclude_none=True),
    }
    inputs: StudyInputs = json.loads(json.dumps({**facts_of_recipe, "data": digests(sources), "--rows": rows}))
    return inputs


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """The folder, which no other process tunes in; a kill frees it."""
    folder = refuse_bad_folder(folder)
    refuse_backslash(folder)
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        mark_folder(folder, KIND, [*NAMES, *LOCK_FILES])
    mark = read_mark(folder)
    if mark is None or mark.kind != KIND:
        why = why_unmarked(folder) if mark is None else f"is of the kind {mark.kind!r}"
        raise UserError(f"{folder}: is no folder of `feat2vec tune`: it {why}; --out names another one")
    for name in (*NAMES, *FOLDERS):
        refuse_links_inside(folder, name)
    if (folder / BEST).exists() and not is_signed(folder / BEST):
        raise UserError(f"{folder / BEST}: was changed after `feat2vec tune` wrote it; move it elsewhere")
    with locked(folder, "another `feat2vec tune`"):
        yield


@contextmanager
def opened_study(
    folder: Path, tune: Tune, inputs: StudyInputs, pruning: Pruning, *, force: bool
) -> Iterator[optuna.Study]:
    """The folder's study, new or as it was left: a trial that was running has failed, and does not count."""
    path = folder / "study.db"
    if force:
        for name in (*FOLDERS, *NAMES):
            remove_inside(folder, name)
    remove_inside(folder, "trial")
    remove_leftovers(folder)
    import optuna

    with _storage_errors(path):
        # The path goes to SQLite itself: a URL would end at a `?`, and Optuna fills in what is in braces. SQLite takes
        # a path that begins with `file:` for a URI.
        database = path.absolute()
        options = {"creator": lambda: sqlite3.connect(database, timeout=30, check_same_thread=False)}
        try:
            storage = optuna.storages.RDBStorage(f"sqlite:///{path.name}", engine_kwargs=options)
        except RuntimeError:  # of another version of Optuna
            raise UserError(f"{path}: {UNREADABLE}") from None
    directions = optuna.study.StudyDirection
    direction = directions.MINIMIZE if is_lower_better(tune) else directions.MAXIMIZE
    try:
        with _storage_errors(path):
            with _damage_named(path):
                study = optuna.create_study(
                    study_name="tune",
                    storage=storage,
                    load_if_exists=True,
                    direction=direction,
                    pruner=optuna.pruners.MedianPruner(n_startup_trials=pruning.startup, n_warmup_steps=pruning.warmup),
                )
                trials, made_of = study.get_trials(deepcopy=False), study.user_attrs.get("made of")
            if study.directions != [direction] or (made_of is None and trials):
                raise UserError(f"{path}: {UNREADABLE}")
            _refuse_other_study(study, folder, inputs)
            refuse_altered_trials(path, tune, ended_trials(study))
            for trial in trials_in(study, "RUNNING"):
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            for _ in trials_in(study, "WAITING"):  # the recipe's own values, which `next_trial` gives again
                study.tell(study.ask(), state=optuna.trial.TrialState.FAIL)
            yield study
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _refuse_other_study(study: optuna.Study, folder: Path, inputs: StudyInputs) -> None:
    """Note what a new study is made of; one that is gone on with has to be made of the same."""
    before = study.user_attrs.get("made of")
    if before is None:
        remove_inside(folder, "data")
        study.set_user_attr("made of", inputs)
    elif not isinstance(before, dict):
        raise UserError(f"{folder / 'study.db'}: {UNREADABLE}")
    elif changed := list(differences(before, inputs)):
        more = [f"  and {len(changed) - 3} more"] if len(changed) > 3 else []
        lines = [f"  {line}" for line in changed[:3]]
        remedy = "start anew with --force, or name another --out"
        raise UserError(f"{folder}: holds a study of another recipe or other data:", *lines, *more, remedy)


UNREADABLE = "is no study that can be read; --force starts anew"
UNWRITABLE = (  # what SQLite says of a disk, and not of the database
    "attempt to write a readonly database",
    "database is locked",
    "database or disk is full",
    "disk I/O error",
    "unable to open database file",
)


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    """What SQLite says of a study's database, in words: a full disk is no damage, and the study is kept."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import DatabaseError

    try:
        yield
    except (DatabaseError, StorageInternalError) as error:
        reason = str(getattr(error if isinstance(error, DatabaseError) else error.__cause__, "orig", None))
        if reason in UNWRITABLE:
            remedy = "make room, or see that it can be written to; the trials that ended are kept"
            raise FailedError(f"{path}: {reason}; {remedy}: the same command goes on") from None
        raise UserError(f"{path}: {UNREADABLE}") from None


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """What Optuna and SQLAlchemy raise of rows that they did not write: a missing one, no JSON, no word of a list."""
    try:
        yield
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError, RecursionError, RuntimeError):
        raise UserError(f"{path}: {UNREADABLE}") from None


# --- the trials -----------------------------------------------------------------------------------------------------


def trials_in(study: optuna.Study, *states: str) -> list[optuna.trial.FrozenTrial]:
    """The trials whose state is one of these, in their order."""
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name in states]


def ended_trials(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """The trials that count."""
    return trials_in(study, "COMPLETE", "PRUNED")


def is_complete(trial: optuna.trial.FrozenTrial) -> bool:
    """Whether a trial has come to its end, and has a value."""
    return trial.state.name == "COMPLETE"


def next_trial(study: optuna.Study, tune: Tune, index: int, first_values: Mapping[str, object] | None) -> optuna.Trial:
    """The trial after `index` ended ones. Its draws depend on nothing but these; the first trial has `first_values`.

    A trial that was killed is therefore drawn again as it was, until it has been killed PATIENCE times, as by a lack of
    memory.
    """
    import optuna

    killed = sum(trial.user_attrs.get("number") == index + 1 for trial in trials_in(study, "FAIL"))
    seed = np.random.SeedSequence((tune.seed, index, killed // PATIENCE)).generate_state(1)[0]
    study.sampler = optuna.samplers.TPESampler(seed=int(seed))
    if index == 0 and first_values is not None and killed < PATIENCE and not trials_in(study, "WAITING"):
        study.enqueue_trial(dict(first_values), user_attrs={"own": True})
    trial = study.ask()
    trial.set_user_attr("number", index + 1)
    return trial


def schema_values(tune: Tune, schema: Schema) -> dict[str, object] | None:
    """The values of the tuned keys in the schema, as Optuna has them; None if one of them is outside of its range."""
    data: dict[str, object] = schema.model_dump(mode="json")
    values: dict[str, object] = {}
    for key, tried_range in tune.ranges.items():
        value: object = data
        for word in key.split("."):
            value = value.get(word) if isinstance(value, dict) else None
        if tried_range.choice is not None:
            same_choices = [
                json.dumps(choice) for choice in tried_range.choice if type(choice) is type(value) and choice == value
            ]
            if not same_choices:
                return None
            values[key] = same_choices[0]
        elif value is None or not tried_range.ends()[0] <= value <= tried_range.ends()[1]:
            return None
        else:
            values[key] = value
    return values


def suggested_value(trial: optuna.Trial, key: str, tried_range: Range, *, exact: bool) -> object:
    """A value of a range; numbers have the few digits that a person would give them."""
    if tried_range.choice is not None:
        suggested: Any = trial.suggest_categorical(key, [json.dumps(value) for value in tried_range.choice])
    elif tried_range.integer is not None:
        suggested = trial.suggest_int(key, *tried_range.ends())
    else:
        suggested = trial.suggest_float(key, *tried_range.ends(), log=tried_range.log is not None)
    return _value_of(suggested, tried_range, exact=exact)


def _value_of(suggested: Any, tried_range: Range, *, exact: bool) -> Any:
    """The value that Optuna's value stands for."""
    if tried_range.choice is not None:
        return json.loads(suggested)
    low, high = tried_range.ends()
    if tried_range.integer is not None or exact:
        return suggested
    return min(max(float(f"{suggested:.3g}"), low), high)


def refuse_altered_trials(path: Path, tune: Tune, trials: Sequence[optuna.trial.FrozenTrial]) -> None:
    """Raise `UserError` for an ended trial that this study cannot have written: the best one becomes a recipe.

    Args:
        path: The database, for the message.
        tune: The ranges of the recipe.
        trials: The trials that count, in their order.

    """
    for number, trial in enumerate(trials, start=1):
        problem = _problem_of_facts(trial, number) or _problem_of_values(trial, tune)
        if problem:
            raise UserError(f"{path}: was altered (trial {number}: {problem}); --force starts anew")


def _problem_of_facts(trial: optuna.trial.FrozenTrial, number: int) -> str | None:
    facts = trial.user_attrs
    seconds, stopped = facts.get("seconds"), facts.get("stopped")
    if facts.get("number") != number or isinstance(facts["number"], bool):
        return f"its number is no {number}"
    if not _is_finite(seconds) or not 0 <= seconds < 2**63:
        return "its seconds are no number"
    if is_complete(trial):
        if stopped is not None or len(trial.values or ()) != 1 or not _is_finite(trial.value):
            return "its result is no number"
    elif not isinstance(stopped, str):
        return "it was stopped without a reason"
    return None


def _problem_of_values(trial: optuna.trial.FrozenTrial, tune: Tune) -> str | None:
    """What shows that a trial's values are not those that Optuna chose from the ranges."""
    values, exact = trial.user_attrs.get("values"), trial.user_attrs.get("own", False)
    if not isinstance(values, dict) or list(values) != list(tune.ranges) or set(trial.params) != set(values):
        return "its values are not those of the recipe's ranges"
    for key, tried_range in tune.ranges.items():
        suggested = trial.params[key]
        if trial.distributions[key] != _distribution(tried_range) or not _is_suggestion(suggested, tried_range):
            return f"its {key} is outside of the range"
        if json.dumps(values[key]) != json.dumps(_value_of(suggested, tried_range, exact=bool(exact))):
            return f"its {key} is not what was suggested"
    return None


def _distribution(tried_range: Range) -> optuna.distributions.BaseDistribution:
    """What a trial says of a range."""
    from optuna import distributions

    if tried_range.choice is not None:
        return distributions.CategoricalDistribution([json.dumps(value) for value in tried_range.choice])
    if tried_range.integer is not None:
        return distributions.IntDistribution(low=tried_range.integer[0], high=tried_range.integer[1])
    low, high = tried_range.ends()
    return distributions.FloatDistribution(low, high, log=tried_range.log is not None)


def _is_suggestion(suggested: object, tried_range: Range) -> bool:
    """Whether this is a value that Optuna suggests for a range."""
    if tried_range.choice is not None:
        return suggested in [json.dumps(value) for value in tried_range.choice]
    low, high = tried_range.ends()
    is_right_type = isinstance(suggested, int) if tried_range.integer is not None else True
    return is_right_type and _is_finite(suggested) and low <= suggested <= high


def _is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf


@dataclass(frozen=True)
class BestRecipe:
    """A recipe's text, what stands in it instead of the name of a schema, and where the best recipe is written.

    Of a schema alone it is the schema's text, and the best schema.
    """

    text: str
    below: Mapping[str, str] | None
    settings: Sequence[str]
    path: Path
    keys_above: tuple[str, ...] = ("schema",)  # of the schema in the text

    def write(self, head: str, values: Mapping[str, object]) -> None:
        """Write it whole, with the settings of the command line and the values of a trial."""
        set_values: dict[str, Any] = {}
        for setting in self.settings:
            key, _, value = setting.partition("=")
            set_values[key] = parse_document(f"_: {value}").data["_"]
        values_by_path = {(*self.keys_above, *key.split(".")): value for key, value in {**set_values, **values}.items()}
        write_text(self.path, head + edited(self.text, values_by_path, self.below), force=True)
