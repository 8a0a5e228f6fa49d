"""A table to numbers: fit an encoder on the training rows, and encode these or any other rows with it.

A row becomes one value id a group, -1 where the group is missing. A value is one of the group's distinct entries.

`fit` and `Encoder.encode` take the same three steps:

1. The table is read once, in stages. Every group stages what it needs on disk (`read_stages`).
2. Every group's distinct entries are numbered (`number_group`). For training rows its codec is fitted before.
3. The groups' value ids are put side by side in rows.npy (`write_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from feat2vec.arrays import Array, Integers
from feat2vec.encode.arrays_on_disk import ROWS_PER_PIECE
from feat2vec.encode.codecs import Codec, CodecFit, Entries, LevelColumn, Tally, codec_fit
from feat2vec.encode.columns import check_columns, columns_of, present_groups
from feat2vec.encode.encoded_rows import (
    Encoded,
    EncoderParts,
    ValuesInFiles,
    open_encoded,
    read_encoder,
    with_keys_in_files,
    write_encoder,
)
from feat2vec.encode.group_fits import fit_groups, owner_place
from feat2vec.encode.stage_reading import RecordedReader, StageReader, StageRecorder, read_stages
from feat2vec.encode.targets import TargetFiles
from feat2vec.encode.value_tables import (
    GroupEntries,
    StagedEntries,
    Values,
    number_group,
    open_values,
    write_rows,
)
from feat2vec.encode.vocabulary import FIRST, Counts, Vocabulary
from feat2vec.encode.workspace import DEFAULT_SIZES, MEMORY, PieceSizes, Workspace, new_workspace
from feat2vec.errors import UserError, listed
from feat2vec.schema.options import Group, Schema
from feat2vec.schema.reading import read_schema
from feat2vec.table.table import STAGE_BYTES, Stage, Table, open_table, stages
from feat2vec.writing import folder_place, new_folder

__all__ = ["Encoded", "Encoder", "fit"]


@dataclass(frozen=True)
class Encoder:
    """A schema fitted to a table: a codec and the training values of each group. `fit` makes one.

    Args:
        schema: The schema.
        codecs: The codec of each group, which turns values into entries and back.
        values: The distinct entries of each group in the training rows, with their counts.
        classes: The classes of a softmax target; None for other targets.

    Example:
        >>> encoder = feat2vec.fit(schema, films).encoder
        >>> encoder.save("films-encoder")
        >>> encoder = feat2vec.Encoder.load("films-encoder")
        >>> encoded = encoder.encode(films.head(4))
        >>> encoded.rows.shape
        (4, 3)
        >>> encoder.decode("director", encoded.values["director"].entries)
        [['Ozu'], ['Tati'], ['Varda']]

    """

    schema: Schema
    codecs: Mapping[str, Codec]
    values: Mapping[str, Values]
    classes: Vocabulary | None = None

    def only(self, groups: Sequence[str]) -> Encoder:
        """The same encoder for a subset of its groups.

        Args:
            groups: The names of the groups to keep.

        Returns:
            An encoder of these groups.

        Raises:
            KeyError: The encoder has no group of that name.

        """
        schema = self.schema.model_copy(update={"groups": self.schema.groups_of(groups)})
        codecs = {name: self.codecs[name] for name in groups}
        if isinstance(self.values, ValuesInFiles):
            values: Mapping[str, Values] = self.values.only(groups)
        else:
            values = {name: self.values[name] for name in groups}
        return replace(self, schema=schema, codecs=codecs, values=values)

    def entries(self, source: object) -> Iterator[dict[str, Entries]]:
        """The entries of any rows, in batches; a group whose columns are all absent is missing in every row.

        Args:
            source: The rows: a file, a folder, a frame or anything else that `open_table` takes.

        Returns:
            An iterator over the batches, each as the entries of every group.

        Raises:
            UserError: If the table has none of the groups' columns, or values that cannot be encoded.

        """
        for _, entries in self.staged(source):
            yield entries

    def staged(
        self, source: object, more_columns: Sequence[str] = (), max_bytes: int = STAGE_BYTES
    ) -> Iterator[tuple[Stage, dict[str, Entries]]]:
        """`entries`, with the stages that they come from; these hold `more_columns` as well.

        Args:
            source: The rows: a file, a folder, a frame or anything else that `open_table` takes.
            more_columns: Columns of the table that the stages hold in addition to those of the groups.
            max_bytes: The size of a stage, about.

        Returns:
            An iterator over pairs of a stage and the entries of every group in it.

        Raises:
            UserError: If the table has none of the groups' columns, or values that cannot be encoded.

        """
        table = open_table(source)
        groups = present_groups(self.schema, table)
        for stage in stages(table, columns_of(groups.values(), more_columns, table), max_bytes):
            entries: dict[str, Entries] = {}
            for name, codec in self.codecs.items():
                if name in groups:
                    entries[name] = codec.encode(stage, groups[name])
                else:
                    entries[name] = _missing_entries(codec, stage.rows)
            yield stage, entries

    def encode(
        self,
        source: object,
        out: str | Path | None = None,
        memory: str = MEMORY,
        *,
        sizes: PieceSizes = DEFAULT_SIZES,
    ) -> Encoded:
        """Encode rows into a folder; training values keep their ids.

        A softmax target whose classes are not known, as that of a head, has its classes numbered here.

        Args:
            source: The rows: a file, a folder, a frame or anything else that `open_table` takes.
            out: The folder, which must be new; None for one that is removed with the encoded rows.
            memory: What encoding may hold, about; DuckDB has half of it, and spills into the folder.
            sizes: How much of the table is in memory at once.

        Returns:
            The encoded rows.

        Raises:
            UserError: If the table has none of the groups' columns, or values that cannot be encoded.

        """
        table = open_table(source)
        groups = present_groups(self.schema, table)
        with new_workspace(out, memory, sizes) as workspace:
            target_files = TargetFiles(self.schema, table, workspace, self.classes)
            staged = {
                name: StagedEntries(workspace, f"g{i}", codec, self.schema.groups[name])
                for i, (name, codec) in enumerate(self.codecs.items())
            }
            columns = columns_of(groups.values(), target_files.columns, table)
            stage_readers: list[StageReader] = [target_files, *(staged[name] for name in groups)]
            rows = read_stages(workspace.bounded(stages(table, columns, workspace.sizes.stage_bytes)), stage_readers)
            target_files.finish()
            value_ids = []  # of each group, in pieces
            for name, codec in self.codecs.items():
                if name not in groups:
                    staged[name].tally.missing = rows
                entries, width = staged[name].take(), staged[name].width
                group_entries = GroupEntries(
                    name, self.schema.groups[name], codec, entries, width, training_values=self.values[name]
                )
                value_ids.append(number_group(workspace, group_entries, rows))
            write_rows(workspace, value_ids, rows)
        encoder = replace(self, classes=target_files.classes)
        folder = workspace.folder if out is None else Path(out)
        known = {name: len(values.entries) for name, values in self.values.items()}
        tallies = {name: entries.tally for name, entries in staged.items()}
        return open_encoded(encoder, folder, known, tallies, is_temporary=out is None)

    def decode(self, group: str, entries: Array) -> list[Any]:
        """What entries of a group stand for.

        Args:
            group: The name of the group.
            entries: Entries of the group, [rows, width].

        Returns:
            For each entry its keys, or its numbers.

        Raises:
            KeyError: The encoder has no group of that name.

        """
        return self.codecs[group].decode(np.asarray(entries))

    def key_counts(self, group: str, entry_counts: Integers | None = None) -> Counts:
        """How often each key of a group occurs in its own column; a vocabulary that is shared counts all columns.

        Args:
            group: The name of a group of keys.
            entry_counts: How often each of the group's entries occurs, [values]; by default in the training rows.

        Returns:
            The counts in the order of the keys, [keys].

        Raises:
            KeyError: The encoder has no group of that name.

        """
        codec = self.codecs[group]
        assert codec.vocabulary is not None
        if entry_counts is None and len(self.schema.sharing(group)) == 1:
            return codec.vocabulary.counts  # the values stay in their file
        values = self.values[group]
        if entry_counts is None:
            entry_counts = values.counts
        counts = np.zeros(len(codec.vocabulary))
        for start in range(0, len(values.entries), ROWS_PER_PIECE):
            piece = slice(start, start + ROWS_PER_PIECE)
            entries = np.asarray(values.entries[piece])
            ids = entries[:, : entries.shape[1] // 2] if getattr(codec, "weighted", False) else entries
            repeated = np.repeat(np.asarray(entry_counts[piece], np.float64), ids.shape[1])
            counts += np.bincount(ids.ravel(), repeated, len(counts))
        return counts[FIRST:].astype(np.int64)

    def save(self, folder: str | Path) -> None:
        """Write the encoder as Parquet and JSON, whole or not at all; the folder must be new.

        Args:
            folder: The new folder.

        Raises:
            UserError: If the folder exists already.

        """
        with new_folder(folder_place(folder, None)) as partial:
            self.write(partial)

    def write(self, folder: Path) -> None:
        """Write the encoder's files into a folder that exists.

        Args:
            folder: The folder.

        """
        write_encoder(EncoderParts(self.schema, self.codecs, self.values, self.classes), folder)

    @classmethod
    def load(cls, folder: str | Path) -> Encoder:
        """Read an encoder; nothing in its folder is executed.

        Args:
            folder: The folder that `save` wrote.

        Returns:
            The encoder.

        Raises:
            UserError: If its files are damaged, altered, or do not belong together.

        """
        parts = read_encoder(Path(folder))
        return cls(parts.schema, parts.codecs, parts.values, parts.classes)


def fit(
    schema: Schema | str | Path | Mapping[str, object],
    source: object,
    out: str | Path | None = None,
    memory: str = MEMORY,
    *,
    sizes: PieceSizes = DEFAULT_SIZES,
    steps: Path | None = None,
) -> Encoded:
    """Fit an encoder to the training rows and encode them into a folder.

    Args:
        schema: A schema, the path of its YAML, or its content.
        source: The rows: a file, a folder, a frame or anything else that `open_table` takes.
        out: The folder, which must be new; None for one that is removed with the encoded rows.
        memory: What encoding may hold, about; DuckDB has half of it, and spills into the folder.
        sizes: How much of the table is in memory at once.
        steps: A folder in which finished steps are kept, if they are. If it has some, those of the same schema and
            table that a killed process has left, the fit goes on with them.

    Returns:
        The encoded rows; their `encoder` encodes other rows.

    Raises:
        UserError: If the table lacks a column, has a value that cannot be encoded, or if a group has no value.

    Example:
        >>> encoded = feat2vec.fit(schema, films)
        >>> print(encoded.summary())
        60 rows
        director: 3 values, 3 keys
        genre: 2 values, 2 keys
        year: 30 values

    """
    schema = schema if isinstance(schema, Schema) else read_schema(schema)
    table = open_table(source)
    check_columns(schema, table)
    with new_workspace(out, memory, sizes, steps, len(schema.groups)) as workspace:
        target_files = TargetFiles(schema, table, workspace, None)
        level_columns = {
            name: LevelColumn(column, schema.model.levels) for name, column in schema.model.level_source.columns.items()
        }
        codec_fits = {
            name: codec_fit(workspace, f"g{i}", group, level_columns.get(name))
            for i, (name, group) in enumerate(schema.groups.items())
        }
        for name, codec_fit_of_group in codec_fits.items():
            if schema.owner(name) != name:
                codec_fit_of_group.share(codec_fits[schema.owner(name)])
        more_columns = (*target_files.columns, *(column.name for column in level_columns.values()))
        columns = columns_of(schema.groups.values(), more_columns)
        with workspace.less_in_database():
            rows = _read_training_stages(workspace, schema, table, columns, target_files, codec_fits)
        target_files.finish()
        fitted, problems = fit_groups(workspace, schema, codec_fits, rows)
        if fitted:
            write_rows(workspace, [group.value_ids for group in fitted.values()], rows)
        for name, group in fitted.items():
            if group.tally.missing == rows:
                problems[name] = [_no_value(name, schema.groups[name])]
        if problems:
            in_order = dict.fromkeys(problem for name in schema.groups for problem in problems.get(name, ()))
            raise UserError(*(f"{table.name}: {problem}" for problem in in_order))
        for codec_fit_of_group in codec_fits.values():
            codec_fit_of_group.release()
        codecs = with_keys_in_files({name: group.codec for name, group in fitted.items()}, workspace.folder)
    folder = workspace.folder if out is None else Path(out)
    values = {name: open_values(folder, name) for name in schema.groups}
    encoder = Encoder(schema, codecs, values, target_files.classes)
    known = {name: len(values[name].entries) for name in values}
    tallies = {name: group.tally for name, group in fitted.items()}
    return open_encoded(encoder, folder, known, tallies, is_temporary=out is None)


# --- the steps of fit and encode ------------------------------------------------------------------------------------
def _read_training_stages(
    workspace: Workspace,
    schema: Schema,
    table: Table,
    columns: Sequence[str],
    target_files: TargetFiles,
    codec_fits: Mapping[str, CodecFit],
) -> int:
    """Give every stage of the table to every reader, those after the finished ones; return the number of rows."""
    readers: list[RecordedReader] = [target_files, *codec_fits.values()]
    steps = workspace.steps
    if steps is None:
        return read_stages(workspace.bounded(stages(table, columns, workspace.sizes.stage_bytes)), readers)
    target_files.restore(steps.facts_of_reader(0))
    for place, (name, codec_fit_of_group) in enumerate(codec_fits.items(), 1):
        is_fitted = steps.fitted_group(owner_place(schema, name)) is not None
        codec_fit_of_group.restore(steps.facts_of_reader(place), is_fitted=is_fitted)
    if steps.are_all_read:
        return steps.rows
    rest = stages(table, columns, workspace.sizes.stage_bytes, start=steps.start)
    rows = read_stages(workspace.bounded(rest), readers, StageRecorder(steps, readers))
    steps.note_all_read()
    return rows


def _no_value(name: str, group: Group) -> str:
    """The problem of a group that is missing in every row."""
    max_share = getattr(group.extractor, "max_share", 1.0)
    remedy = "remove it" if max_share == 1 else f"remove it, or raise max_share ({max_share:g} now)"
    return f"the group {name!r} has no value in any row (column {listed(group.columns)}); {remedy}"


def _missing_entries(codec: Codec, rows: int) -> Entries:
    """The entries of a group that is missing in every row."""
    no_entries = np.zeros((0, codec.training_width), codec.dtype)
    return Entries(np.zeros(rows, np.bool_), no_entries, Tally(missing=rows))
