"""The tasks `rank` and `nearest`: how well a row's groups find its value of another group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from feat2vec.arrays import Array, Floats, Integers
from feat2vec.encode.codecs import ItemsCodec, NumbersCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.errors import UserError
from feat2vec.evaluation.metrics import SCORES_IN_MEMORY, ScoresOfRows, rank_scores, summary_of_ranks
from feat2vec.evaluation.queries import (
    ROWS_AT_ONCE,
    entry_batches,
    given_groups,
    query_batches,
    table_for,
)
from feat2vec.space.completer import Completer, rows_with_known
from feat2vec.space.geometry import blocks, candidates, extract, is_keyed, similarities
from feat2vec.space.run_completion import completion_of_run, kept_rows_of_run
from feat2vec.space.search_options import RankSimilarity, VectorSimilarity
from feat2vec.table.table import Table
from feat2vec.training.run_folder import TrainedRun
from feat2vec.writing.files import JsonObject

NUMBER_KINDS = ("number", "float", "float32", "numeral")  # kinds of vocabularies whose keys are numbers


def rank(
    run: TrainedRun,
    data: object,
    target: str,
    given: Sequence[str] | None = None,
    similarity: RankSimilarity | None = None,
    scores_in_memory: int = SCORES_IN_MEMORY,
    rows_at_once: int = ROWS_AT_ONCE,
) -> JsonObject:
    """Rank each row's true values of `target` among all that training has seen, by what `given` says of them.

    A query is a row and one distinct true value, also one beyond `max_items`; the row's other true values are left out
    of its ranking.

    Args:
        run: The run.
        data: Rows that training has not seen.
        target: The group whose values are ranked.
        given: The groups to find them by; all others if it is None.
        similarity: "probability", as `complete` gives it, or "cosine" or "dot" of vectors; by default what the run was
            trained for: the probability, or the cosine if it predicts a target.
        scores_in_memory: How many scores may be in memory at a time.
        rows_at_once: How many rows go through the extractors at a time.

    Returns:
        The options, how many queries and candidates there were, and `summary_of_ranks`.

    Raises:
        UserError: A group is unknown, or the table lacks its columns.

    """
    given = given_groups(run.fitted, target, given)
    if similarity is None:
        similarity = "probability" if run.schema.objective.completes_rows else "cosine"
    if similarity == "probability":
        total, scores_of_batch = _by_probability(run, target, given)
    else:
        total, scores_of_batch = _by_vectors(run, target, given, similarity)
    facts = ranked(run, data, target, given, total, scores_of_batch, scores_in_memory, rows_at_once)
    return {"task": "rank", "target": target, "given": facts.pop("given"), "similarity": similarity, **facts}


ScoresOfBatch: TypeAlias = Callable[[Mapping[str, Array]], ScoresOfRows]


def _by_probability(run: TrainedRun, target: str, given: Sequence[str]) -> tuple[int, ScoresOfBatch]:
    """The number of candidates, and what ranks them by their probability in rows."""
    model, calibration = run.model_for_rows([*given, target]), completion_of_run(run).get(target)
    kept_rows = kept_rows_of_run(run)
    completer = Completer(run.fitted, model, target, calibration, given, most_numbers=None, kept_rows=kept_rows)

    def scores_of_batch(entries: Mapping[str, Array]) -> ScoresOfRows:
        queries = completer.queries(entries)
        return lambda rows: completer.scores(queries.take(rows))

    return len(completer.hidden), scores_of_batch


def _by_vectors(
    run: TrainedRun, target: str, given: Sequence[str], similarity: VectorSimilarity
) -> tuple[int, ScoresOfBatch]:
    """The number of candidates, and what ranks them by the similarity of their vectors with those of rows."""
    model = run.model_for_rows([*given, target])
    target_candidates = candidates(model, run.fitted, target)

    def scores_of_batch(entries: Mapping[str, Array]) -> ScoresOfRows:
        queries = extract(model, entries)
        return lambda rows: similarities(queries.take(rows), target_candidates, similarity)

    return target_candidates.sizes()[0], scores_of_batch


def ranked(
    run: TrainedRun,
    data: object,
    target: str,
    given: Sequence[str] | None,
    total: int,
    scores_of_batch: ScoresOfBatch,
    scores_in_memory: int = SCORES_IN_MEMORY,
    rows_at_once: int = ROWS_AT_ONCE,
) -> JsonObject:
    """What `rank` says, by any scores.

    Args:
        run: The run whose candidates are ranked.
        data: Rows.
        target: The group whose values are ranked.
        given: The groups to find them by; all others if it is None.
        total: The number of candidates.
        scores_of_batch: Given the entries of a batch of rows, returns a function from rows of that batch to their
            scores [rows, total].
        scores_in_memory: How many scores may be in memory at a time.
        rows_at_once: How many rows are in a batch.

    Returns:
        Counts and the summary of ranks.

    """
    encoder = run.fitted
    given = given_groups(encoder, target, given)
    table = table_for(encoder, target, given, data)
    ranks: list[Floats] = [np.zeros(0)]
    unseen = empty = 0
    for batch in query_batches(run, table, target, given, rows_at_once):
        findable = rows_with_known(encoder, batch.entries, given)[batch.rows]  # [queries]
        unseen += batch.unseen
        empty += int((~findable).sum())
        scores_of = scores_of_batch(batch.entries)
        rows, true_candidates = batch.rows[findable], batch.true_candidates[findable]
        ranks.append(rank_scores(scores_of, total, rows, true_candidates, scores_in_memory))
    all_ranks = np.concatenate(ranks)
    counts = {"n": len(all_ranks), "skipped_unseen": unseen, "skipped_empty": empty, "candidates": total}
    return {"given": list(given), **counts, **summary_of_ranks(all_ranks, total)}


def candidate_counts(run: TrainedRun, target: str) -> Floats:
    """How often training has seen each candidate of a group, [candidates]."""
    has_keys = is_keyed(run.vector_source, target)
    counts = run.fitted.key_counts(target) if has_keys else run.fitted.values[target].counts
    return np.asarray(counts, np.float64)


def nearest(
    run: TrainedRun,
    data: object,
    target: str,
    given: Sequence[str] | None = None,
    similarity: VectorSimilarity = "cosine",
    scores_in_memory: int = SCORES_IN_MEMORY,
) -> JsonObject:
    """Read a number off the value of `target` that is nearest to `given`, and compare it with the row's own number.

    Args:
        run: The run.
        data: Rows that training has not seen.
        target: A group of numbers.
        given: The groups to find it by; all others if it is None.
        similarity: "cosine" or "dot".
        scores_in_memory: How many scores may be in memory at a time.

    Returns:
        The options, counts, and the mean squared error of each column.

    Raises:
        UserError: A group is unknown or holds no numbers, or the table lacks its columns.

    """
    encoder = run.fitted
    given = given_groups(encoder, target, given)
    table = table_for(encoder, target, given, data)
    target_numbers = _numbers_of_group(encoder, target)
    errors, missing, empty = _nearest_errors(run, table, target, given, target_numbers, similarity, scores_in_memory)
    column_errors = [float(error) for error in errors.mean(axis=0)] if len(errors) else [None] * errors.shape[1]
    columns = encoder.schema.groups[target].columns
    return {
        "task": "nearest",
        "target": target,
        "given": list(given),
        "similarity": similarity,
        "n": len(errors),
        "skipped_missing": missing,
        "skipped_empty": empty,
        "candidates": len(target_numbers.of_candidates),
        "mse": column_errors[0] if len(column_errors) == 1 else dict(zip(columns, column_errors, strict=True)),
    }


class _NearestErrors(NamedTuple):
    """How far the nearest values' numbers are from the rows' own, and how many rows were left out."""

    squared: Array  # [rows, columns]
    missing: int  # rows without a number of their own
    empty: int  # rows with nothing to find it by


def _nearest_errors(
    run: TrainedRun,
    table: Table,
    target: str,
    given: Sequence[str],
    target_numbers: _Numbers,
    similarity: VectorSimilarity,
    scores_in_memory: int,
) -> _NearestErrors:
    encoder, model = run.fitted, run.model_for_rows([*given, target])
    target_candidates = candidates(model, encoder, target)
    rows_per_block = max(scores_in_memory // max(len(target_numbers.of_candidates), 1), 1)
    squared_errors = [np.zeros((0, target_numbers.of_candidates.shape[1]))]  # of each block [rows, columns]
    missing = empty = 0
    for entries in entry_batches(run, table, [*given, target]):
        true_numbers = target_numbers.of_entries(entries[target])  # [rows, columns]
        present = ~np.isnan(true_numbers).any(axis=1)
        findable = rows_with_known(encoder, entries, given)
        missing += int((~present).sum())
        empty += int((present & ~findable).sum())
        rows = np.flatnonzero(present & findable)
        queries = extract(model, {name: entries[name] for name in given})
        for block in blocks(len(rows), rows_per_block):
            best = similarities(queries.take(rows[block]), target_candidates, similarity).argmax(axis=1)
            squared_errors.append(np.square(target_numbers.of_candidates[best] - true_numbers[rows[block]]))
    return _NearestErrors(np.concatenate(squared_errors), missing, empty)


class _Numbers(NamedTuple):
    """The numbers of a group's candidates [candidates, columns], and a function from entries to theirs."""

    of_candidates: Array
    of_entries: Callable[[Array], Array]


def _numbers_of_group(encoder: Encoder, target: str) -> _Numbers:
    codec = encoder.codecs[target]
    vocabulary = codec.vocabulary if isinstance(codec, ItemsCodec) else None
    if vocabulary is not None and vocabulary.kind in NUMBER_KINDS and codec.width == 1:
        keys = np.array([float(key) for key in vocabulary.keys.to_pylist()])[:, None]  # [keys, 1]
        number_of_id = np.concatenate([[[np.nan]], [[np.nan]], keys])  # padding and unseen have none

        def of_ids(entries: Integers) -> Array:
            return number_of_id[entries[:, 0]]

        return _Numbers(keys, of_ids)
    if not isinstance(codec, NumbersCodec):
        extractor = encoder.schema.groups[target].extractor.type
        raise UserError(f"--target: the group {target!r} holds no numbers ({extractor}); use `extractor: numeric`")
    return _Numbers(codec.numbers(encoder.values[target].entries), codec.numbers)
