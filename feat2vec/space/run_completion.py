"""Opening what completes the rows of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from feat2vec.errors import UserError
from feat2vec.space.calibration import GroupCalibration, read_completion
from feat2vec.space.completer import Completer, check_completed_group, groups_beside
from feat2vec.space.neighbours import NEIGHBOURS_FILE, KeptRows, read_kept_rows
from feat2vec.training.run_folder import TrainedRun


def completion_of_run(run: TrainedRun) -> Mapping[str, GroupCalibration]:
    """The numbers that a run has stored by group; a model in training has none."""
    return {} if run.in_training is not None else read_completion(run.folder, run.manifest)


def kept_rows_of_run(run: TrainedRun) -> KeptRows | None:
    """The training rows that a run has kept; a model in training has none."""
    return None if run.in_training is not None else read_kept_rows(run.folder, run.manifest, run.fitted)


def completer_of_run(run: TrainedRun, group: str, given: Sequence[str] | None = None) -> Completer:
    """What gives the probabilities of a group's candidates.

    Args:
        run: The run.
        group: The group that is hidden.
        given: The groups that it is found by; by default all that share no column with it.

    Returns:
        The completer.

    Raises:
        UserError: There is no such group, it has no candidate, or the run predicts a target.

    """
    check_completed_group(run.schema, group)
    names = groups_beside(run.schema, group) if given is None else list(given)
    model = run.model_for_rows([*names, group])
    calibration, kept_rows = completion_of_run(run).get(group), kept_rows_of_run(run)
    completer = Completer(run.fitted, model, group, calibration, names, kept_rows=kept_rows)
    if not len(completer.hidden):
        raise UserError(f"the group {group!r} has no value to choose: no key is as frequent as `min_count` asks")
    return completer


def given_of_row(run: TrainedRun, row: Mapping[str, object], group: str) -> list[str] | None:
    """The groups that a row says something of, where reading the others would take TensorFlow; None is the default.

    Args:
        run: The run.
        row: Columns and values.
        group: The group that is hidden.

    Returns:
        The groups beside it that have a value, None if there is none.

    """
    check_completed_group(run.schema, group)
    has_kept_rows = run.in_training is None and (run.folder / NEIGHBOURS_FILE).exists()
    if run.reads_lookups() or has_kept_rows:  # the nearest rows are those by all groups, whatever else a table holds
        return None
    known = {column for column, value in row.items() if value is not None}
    beside = groups_beside(run.schema, group)
    return [name for name in beside if known & set(run.schema.groups[name].columns)] or None
