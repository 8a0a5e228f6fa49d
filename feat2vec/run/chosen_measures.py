"""What measures the model of each training before its run gets its name: completions, and the comparison with peers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feat2vec.training.chosen_model import Additions, ChosenModel, OnChosen


def chosen_functions() -> tuple[OnChosen, ...]:
    """What measures the model of each training on rows that it was not trained on, before its run gets its name.

    The calibration of completions and the comparison with peers, whose sentence is the metric `weak`, belong here. See
    `training.chosen_model`.

    Returns:
        The functions, in the order in which they are called.

    """
    return (_measure_chosen,)


def _measure_chosen(chosen: ChosenModel) -> Additions:
    """Calibrate what completes rows, and compare the chosen model with popularity or a constant, on held-out rows."""
    from feat2vec.evaluation.weakness import measured_weakness, ranked_groups, worth_of_fitted
    from feat2vec.space.completion_calibration import files_of_completion, fitted_groups, rows_to_keep, with_vectors
    from feat2vec.space.neighbours import NEIGHBOURS_FILE, KeptRows, kept_rows_bytes
    from feat2vec.training.chosen_model import Additions

    schema, learnt, kept_rows, files = chosen.run.schema, chosen.learnt, None, {}
    if schema.objective.completes_rows and schema.training.neighbours:
        fitted_to, kept = rows_to_keep(learnt, schema.training.neighbours)
        kept_rows = with_vectors(KeptRows(learnt.encoder, learnt.rows[fitted_to]), chosen.run.model_for_rows())
        files[NEIGHBOURS_FILE] = kept_rows_bytes(learnt.rows[kept])
    run, held_out, counts = chosen.run, chosen.held_out, chosen.counts
    ranked, completion, worths = ranked_groups(run), {}, {}
    for fitted in fitted_groups(run, held_out, counts, kept_rows, chosen.later):
        completion[fitted.group] = fitted.calibration
        if fitted.group in ranked:
            worths[fitted.group] = worth_of_fitted(run, held_out, counts, kept_rows, fitted)
    facts = measured_weakness(run, held_out, chosen.training_rows, counts, completion, kept_rows, worths)
    return Additions(facts.metrics, {**files_of_completion(completion), **files, **facts.files}, facts.lines)
