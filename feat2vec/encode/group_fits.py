"""Fitting the groups of the training rows: their codecs are finished, and their distinct entries numbered.

Where finished steps are kept, a group is recorded once its codec and its numbers are on disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass

import numpy as np

from feat2vec.arrays import Ints
from feat2vec.encode.arrays_on_disk import ArrayFile, file_name, open_array, write_parquet
from feat2vec.encode.codecs import Codec, CodecFit, Entries, Tally, codec_from_facts
from feat2vec.encode.finished_steps import StepRecord, link_or_copy
from feat2vec.encode.value_tables import GroupEntries, ids_of_sorted_entries, number_group
from feat2vec.encode.vocabulary import read_vocabulary
from feat2vec.encode.workspace import Workspace
from feat2vec.errors import UserError
from feat2vec.schema.options import Schema
from feat2vec.writing.files import JsonObject

WORK_AT_ONCE = 10_000_000  # staged numbers of a group that is fitted beside others


@dataclass(frozen=True)
class FittedGroup:
    """A group's codec and, once `value_ids` are read, what its policies did and its values on disk."""

    codec: Codec
    tally: Tally
    value_ids: Iterator[Ints]  # of each row, in pieces


def fit_groups(
    workspace: Workspace, schema: Schema, codec_fits: Mapping[str, CodecFit], rows: int
) -> tuple[dict[str, FittedGroup], dict[str, Sequence[str]]]:
    """Finish the codecs and number their entries: the groups that can be fitted, and others' problems.

    Groups of few numbers are fitted at once, in threads; larger ones one by one, as each may need what memory there is.
    """

    def fit_sharing(names: Sequence[str], *, is_large: bool = False) -> Mapping[str, FittedGroup] | UserError:
        """Fit groups that share a codec, the first of which owns it."""
        fitted_groups = {}
        if workspace.steps is not None:
            try:
                facts = _fit_kept_groups(workspace, schema, {name: codec_fits[name] for name in names}, rows, is_large)
            except UserError as error:
                return error
            return {name: _kept_group(workspace, schema, name, codec_fits[name], facts, rows) for name in names}
        for name in names:
            try:
                codec = codec_fits[name].finish()
            except UserError as error:
                return error
            tally = Tally()
            entries = _added_up(codec_fits[name].entries(), tally)
            group_entries = GroupEntries(
                name, schema.groups[name], codec, entries, codec.training_width, is_shared=len(names) > 1
            )
            fitted_groups[name] = FittedGroup(codec, tally, number_group(workspace, group_entries, rows))
        return fitted_groups

    sharing = [[owner, *(name for name in schema.sharing(owner) if name != owner)] for owner in schema.owners]
    work = {tuple(names): sum(codec_fits[name].work for name in names) for names in sharing}
    small = [names for names in sharing if work[tuple(names)] <= WORK_AT_ONCE]
    small.sort(key=lambda names: work[tuple(names)])  # the large sorts last
    large = [names for names in sharing if names not in small]
    results: dict[str, Mapping[str, FittedGroup] | UserError] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for names, fitted_or_error in zip(small, pool.map(fit_sharing, small), strict=True):
            results.update(dict.fromkeys(names, fitted_or_error))
    for names in large:
        workspace.return_free_memory()
        results.update(dict.fromkeys(names, fit_sharing(names, is_large=True)))
    fitted: dict[str, FittedGroup] = {}
    problems: dict[str, Sequence[str]] = {}
    for name in schema.groups:
        result = results[name]
        if isinstance(result, UserError):
            problems[name] = result.problems
        else:
            fitted[name] = result[name]
    return fitted, problems


def _fit_kept_groups(
    workspace: Workspace, schema: Schema, codec_fits: Mapping[str, CodecFit], rows: int, is_large: bool
) -> JsonObject:
    """Fit groups that share a codec, the first of which owns it, and record them; those of a killed process are read.

    Args:
        workspace: The folder of finished steps.
        schema: The schema.
        codec_fits: The fits of the groups.
        rows: How many rows the table has.
        is_large: Whether they are fitted alone, as they may have many keys.

    Returns:
        Their facts: of each group what its fit and its numbering have left, and the tally.

    """
    steps, owner = workspace.steps, next(iter(codec_fits))
    assert steps is not None
    place = owner_place(schema, owner)
    facts = steps.fitted_group(place)
    vocabulary_path = steps.folder / f"vocabulary{place}.parquet"
    if facts is not None:
        keys = read_vocabulary(vocabulary_path) if vocabulary_path.exists() else None
        of_owner = codec_from_facts(schema.groups[owner], facts["codec"], keys)
        for name, codec_fit_of_group in codec_fits.items():
            codec = of_owner if name == owner else of_owner.of_columns(schema.groups[name].columns)
            codec_fit_of_group.restore_fitted(codec, facts["groups"][name]["fit"])
        return facts
    with workspace.less_in_database() if is_large else nullcontext():
        codecs = {name: codec_fits[name].finish() for name in codec_fits}
        facts, files = {"codec": codecs[owner].facts(), "groups": {}}, []
        if (vocabulary := codecs[owner].vocabulary) is not None:
            write_parquet(vocabulary.table(schema.model.levels), vocabulary_path)
            files.append(vocabulary_path)
        fit_records = {name: codec_fits[name].record_fitted() for name in codecs}
    for name, codec in codecs.items():
        tally, group_place, fit_record = Tally(), list(schema.groups).index(name), fit_records[name]
        of_group = {"fit": fit_record.facts, "tally": None, "numbered": None}
        entries = _added_up(codec_fits[name].entries(), tally)
        group_entries = GroupEntries(name, schema.groups[name], codec, entries, codec.training_width)
        files += fit_record.files
        if not group_entries.is_single_id:
            numbered = _number_kept_group(workspace, group_entries, rows, f"g{group_place}")
            of_group |= {"tally": asdict(tally), "numbered": numbered.facts}
            files += numbered.files
        facts["groups"][name] = of_group
    steps.record_group(place, StepRecord(facts, files))
    for codec_fit_of_group in codec_fits.values():
        codec_fit_of_group.release()
    return facts


def _kept_group(
    workspace: Workspace, schema: Schema, name: str, codec_fit_of_group: CodecFit, facts: JsonObject, rows: int
) -> FittedGroup:
    """A group of which finished steps are kept."""
    codec, of_group = codec_fit_of_group.finish(), facts["groups"][name]
    if of_group["numbered"] is not None:
        return FittedGroup(codec, Tally(**of_group["tally"]), _take_kept_group(workspace, name, of_group["numbered"]))
    tally, is_shared = Tally(), len(facts["groups"]) > 1
    entries = _added_up(codec_fit_of_group.entries(), tally)
    group_entries = GroupEntries(name, schema.groups[name], codec, entries, codec.training_width, is_shared=is_shared)
    return FittedGroup(codec, tally, number_group(workspace, group_entries, rows))


def owner_place(schema: Schema, name: str) -> str:
    """The place of the group that owns a group's codec, as text."""
    return str(list(schema.groups).index(schema.owner(name)))


def _number_kept_group(workspace: Workspace, group: GroupEntries, rows: int, name: str) -> StepRecord:
    """Sort and number a group's entries into files that a process goes on with if this one is killed.

    Args:
        workspace: The folder of finished steps, and DuckDB.
        group: The group's entries, which are the training rows'.
        rows: How many rows the table has.
        name: The beginning of the names of the files.

    Returns:
        The names of the files, for `_take_kept_group`.

    """
    paths = {part: workspace.staging / f"{name}_{part}.npy" for part in ("values", "counts", "value_ids")}
    values_file = ArrayFile(paths["values"], group.codec.dtype, group.width)
    counts_file = ArrayFile(paths["counts"], np.int64)
    ids = ids_of_sorted_entries(workspace, group, rows, values_file, counts_file, paths["value_ids"])
    ids.flush()
    values_file.close()
    counts_file.close()
    return StepRecord({part: path.name for part, path in paths.items()}, list(paths.values()))


def _take_kept_group(workspace: Workspace, group: str, facts: JsonObject) -> Iterator[Ints]:
    """The value id of each row, in pieces, of a group that is numbered; its values get their place.

    Args:
        workspace: The folder of the encoded rows, and that of finished steps.
        group: The name of the group.
        facts: Those of `_number_kept_group`.

    """
    for part in ("values", "counts"):
        link_or_copy(workspace.staging / facts[part], workspace.folder / part / f"{file_name(group)}.npy")
    ids, rows_per_piece = open_array(workspace.staging / facts["value_ids"]), workspace.sizes.rows_per_piece
    return (ids[start : start + rows_per_piece] for start in range(0, len(ids), rows_per_piece))


def _added_up(batches: Iterator[Entries], tally: Tally) -> Iterator[Entries]:
    """The batches; their tallies are added to `tally`."""
    for entries in batches:
        tally.add(entries.tally)
        yield entries
