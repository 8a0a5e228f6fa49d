"""Rows as queries for a target group: what they are found by, and their true candidates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Array, Integers
from feat2vec.encode.codecs import Entries, ItemsCodec, parse_items
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.vocabulary import FIRST, PADDING, UNSEEN
from feat2vec.errors import UserError, listed, suggest
from feat2vec.space.completer import groups_beside, has_groups_beside
from feat2vec.space.geometry import blocks, dense, is_keyed
from feat2vec.table.keys import UNLIMITED
from feat2vec.table.table import Stage, Table, open_table
from feat2vec.training.run_folder import TrainedRun

ROWS_AT_ONCE = 8192  # rows whose vectors are made at a time


class RowQueries(NamedTuple):
    """Rows and their true candidates of the target group.

    Attributes:
        entries: The rows' entries [rows, width] of each group that they are found by.
        rows: The row of each query [queries], in ascending order, counted from the first of `entries`.
        true_candidates: The true candidate of each query [queries].
        unseen: How many true values training has not seen.

    """

    entries: Mapping[str, Array]
    rows: Integers
    true_candidates: Integers
    unseen: int


def given_groups(encoder: Encoder, target: str, given: Sequence[str] | None) -> list[str]:
    """The groups that a target is found by: `given`, or all that share no column with it if it is None."""
    names = list(encoder.codecs)
    problems = []
    for option, group_names in (("--target", [target]), ("--given", given or [])):
        for name in group_names:
            if name not in names:
                remedy = suggest(name, names) or f"; the groups are {listed(names)}"
                problems.append(f"{option}: there is no group {name!r}{remedy}")
    if given is not None and target in given:
        problems.append(f"--given: {target!r} is the target, which it would give away; remove it")
    if problems:
        raise UserError(*problems)
    if given is None:
        if not has_groups_beside(encoder.schema, target):
            raise UserError(f"--given: no group is left beside the target {target!r} that shares no column with it")
        return groups_beside(encoder.schema, target)
    if not given:
        raise UserError(f"--given: no group is left beside the target {target!r}")
    return list(dict.fromkeys(given))


def table_for(encoder: Encoder, target: str, given: Sequence[str], data: object) -> Table:
    """Open the table; it must have the target's columns, and at least one column to find the target by."""
    table = open_table(data)
    for column in encoder.schema.groups[target].columns:
        if column not in table.columns:
            remedy = suggest(column, table.columns) or f"; the columns are {listed(table.columns)}"
            raise UserError(f"{table.name}: has no column {column!r}, which the target {target!r} needs{remedy}")
    given_columns = [column for name in given for column in encoder.schema.groups[name].columns]
    if not set(given_columns) & set(table.columns):
        raise UserError(
            f"{table.name}: has none of the columns {listed(given_columns)}, to find {target!r} by; "
            f"it has {listed(table.columns)}"
        )
    return table


def entry_batches(
    run: TrainedRun, data: object, groups: Sequence[str], rows_at_once: int = ROWS_AT_ONCE
) -> Iterator[Mapping[str, Array]]:
    """The rows' entries [rows, width] of groups, in batches that an extractor can take."""
    for batch in run.fitted.entries(data):
        entries = {name: dense(batch[name]) for name in groups}
        for block in blocks(len(entries[groups[0]]), rows_at_once):
            yield {name: group_entries[block] for name, group_entries in entries.items()}


def query_batches(
    run: TrainedRun, data: object, target: str, given: Sequence[str], rows_at_once: int = ROWS_AT_ONCE
) -> Iterator[RowQueries]:
    """Rows with their true candidates, in batches that an extractor can take."""
    for stage, stage_entries in run.fitted.staged(data):
        entries = {name: dense(stage_entries[name]) for name in given}
        rows, true_candidates, unseen = _true_candidates(run, target, stage, stage_entries[target])
        for block in blocks(stage.rows, rows_at_once):
            queries = slice(*np.searchsorted(rows, [block.start, block.stop]))
            yield RowQueries(
                {name: group_entries[block] for name, group_entries in entries.items()},
                rows[queries] - block.start,
                true_candidates[queries],
                unseen,
            )
            unseen = 0  # the first block has told it


def _true_candidates(
    run: TrainedRun, target: str, stage: Stage, target_entries: Entries
) -> tuple[Integers, Integers, int]:
    """(Row and candidate of each query, how many true values training has not seen)."""
    codec = run.fitted.codecs[target]
    if isinstance(codec, ItemsCodec) and is_keyed(run.model_for_rows([target]), target):
        return _true_keys(run.fitted, target, codec, stage)
    return _true_entries(run.fitted, target, target_entries)


def _true_keys(encoder: Encoder, target: str, codec: ItemsCodec, stage: Stage) -> tuple[Integers, Integers, int]:
    """True candidates of a group whose candidates are keys.

    A key that a row holds twice is one query. True keys of a bag are all that a row holds: `max_items` bounds only what
    a model sees of them.
    """
    group = encoder.schema.groups[target]
    unbounded = group.model_copy(update={"extractor": group.extractor.model_copy(update={"max_items": UNLIMITED})})
    items = parse_items(stage, unbounded, codec.edges, codec.kind)
    ids = codec.vocabulary.ids(items.keys)[items.codes]  # [items]
    rows = np.repeat(np.arange(stage.rows), items.lengths)  # [items]
    queries = np.unique(np.stack([rows, ids - FIRST], axis=1)[ids >= FIRST], axis=0)  # [queries, 2]
    return queries[:, 0], queries[:, 1], int(np.count_nonzero(ids == UNSEEN))


def _true_entries(encoder: Encoder, target: str, target_entries: Entries) -> tuple[Integers, Integers, int]:
    """True candidates of a group whose candidates are the entries of the training rows."""
    candidate_entries = encoder.values[target].entries
    candidate_of = {candidate_entries[i].tobytes(): i for i in range(len(candidate_entries))}
    entries = dense(target_entries)  # [rows, width]
    present = ~np.isnan(entries[:, 0]) if entries.dtype == np.float32 else (entries > PADDING).any(axis=1)
    candidates = np.array([candidate_of.get(entry.tobytes(), -1) for entry in entries])  # [rows]
    rows = np.flatnonzero(present & (candidates >= 0))
    return rows, candidates[rows], int((present & (candidates < 0)).sum())
