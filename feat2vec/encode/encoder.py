"""A table to numbers: fit an encoder on the training rows, and encode these or any other rows with it.

A row becomes one value id a group, -1 where the group is missing. A value is one of the group's distinct entries.
"""

from __future__ import annotations

import json
import os
import re
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from feat2vec.encode.codecs import Codec, Entries, Tally, check_entries, codec_from_facts
from feat2vec.encode.entry_tables import Array, Values, file_name, open_array, open_values, read_values, write_values
from feat2vec.encode.fitting import CodecFit, codec_fit
from feat2vec.encode.targets import Beside
from feat2vec.encode.value_ids import EntryFiles, interleave, number_group
from feat2vec.encode.vocabulary import Vocabulary, read_parquet, read_vocabulary, write_parquet
from feat2vec.errors import UserError, in_a_line, listed, suggest
from feat2vec.schema.options import Group, Schema
from feat2vec.schema.reading import read_schema, schema_of
from feat2vec.schema.yaml_text import read_text
from feat2vec.table.database import connect
from feat2vec.table.sources.csv import DELIMITERS
from feat2vec.table.stages import STAGE_BYTES, Stage, stages
from feat2vec.table.table import Table, open_table
from feat2vec.terminal import printable
from feat2vec.writing import discard_temporary, folder_place, new_folder, scratch_folder
from feat2vec.writing.json_files import read_json

FORMAT = 1
MEMORY = "1GB"
MEMORY_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) *(?:[KMGT]i?B|B|bytes?)", re.IGNORECASE | re.ASCII)
STAGING = ".staging"  # the folder, below the one that is written, of what encoding spills
MOST_TOLD = 20  # groups of a summary
MOST_SUGGESTED = 20  # columns that are not there, for which similar names are looked for


@dataclass(frozen=True, repr=False)
class Encoded:
    """Rows as value ids, in a folder; `values` hold what the ids stand for.

    The values of rows other than the training rows begin with the training values, of which there are `known`; the
    new ones follow and count nothing.
    """

    encoder: Encoder
    folder: Path
    rows: Array  # int32 [rows, groups], -1 where a group is missing
    values: Mapping[str, Values]
    known: Mapping[str, int]
    tallies: Mapping[str, Tally]
    target: Array | None = None  # float32 [rows], or int32 classes
    weight: Array | None = None  # float32 [rows]

    def __len__(self) -> int:
        """Rows."""
        return len(self.rows)

    def names(self) -> pa.Table | None:
        """The rows' names, from the schema's `id` column."""
        path = self.folder / "names.parquet"
        return read_parquet(path) if path.exists() else None

    def summary(self) -> str:
        """What was encoded, and what the policies did: a line for each group; of many groups for the first ones."""
        names = list(self.tallies)
        lines = [f"{len(self):,} rows", *(f"{printable(name)}: {self._counted([name])}" for name in names[:MOST_TOLD])]
        if rest := names[MOST_TOLD:]:
            lines.append(f"and {len(rest):,} more groups: {self._counted(rest)}")
        return "\n".join(lines)

    def _counted(self, groups: Sequence[str]) -> str:
        """What the groups hold together, and how often each policy was applied to them."""
        values = sum(len(self.values[name].entries) for name in groups)
        vocabularies = [self.encoder.codecs[name].vocabulary for name in groups]
        keys = [len(vocabulary.keys) for vocabulary in vocabularies if vocabulary is not None]
        applied: Counter[str] = Counter()
        for name in groups:
            applied.update(asdict(self.tallies[name]))
        counts = [f"{values:,} values", *([f"{sum(keys):,} keys"] if keys else [])]
        return ", ".join([*counts, *(f"{number:,} {word}" for word, number in applied.items() if number)])


@dataclass(frozen=True)
class Encoder:
    """A schema fitted to a table: a codec and the training values of each group."""

    schema: Schema
    codecs: Mapping[str, Codec]
    values: Mapping[str, Values]
    classes: Vocabulary | None = None  # of a softmax target

    def only(self, groups: Sequence[str]) -> Encoder:
        """The same encoder for some of its groups."""
        schema = self.schema.model_copy(update={"groups": {name: self.schema.groups[name] for name in groups}})
        codecs = {name: self.codecs[name] for name in groups}
        return replace(self, schema=schema, codecs=codecs, values={name: self.values[name] for name in groups})

    def entries(self, source: object) -> Iterator[dict[str, Entries]]:
        """The entries of any rows, in batches; a group whose columns are all absent is missing in every row."""
        return (entries for _, entries in self.staged(source))

    def staged(
        self, source: object, beside: Sequence[str] = (), max_bytes: int = STAGE_BYTES
    ) -> Iterator[tuple[Stage, dict[str, Entries]]]:
        """`entries`, with the stages that they come from; these hold the columns `beside` as well."""
        table = open_table(source)
        groups = self._given(table)
        for stage in stages(table, _columns(groups.values(), list(beside), among=table), max_bytes):
            absent = np.zeros(stage.rows, np.bool_)
            yield (
                stage,
                {
                    name: codec.encode(stage, groups[name])
                    if name in groups
                    else Entries(absent, np.zeros((0, codec.stored), codec.dtype), Tally(missing=stage.rows))
                    for name, codec in self.codecs.items()
                },
            )

    def encode(self, source: object, out: str | Path | None = None, memory: str = MEMORY) -> Encoded:
        """Encode rows into a folder (a temporary one if none is given), with the training values' ids.

        A softmax target whose classes are not known, as that of a head, has its classes numbered here.
        """
        table = open_table(source)
        groups = self._given(table)
        known = {name: len(values.entries) for name, values in self.values.items()}
        with _workspace(out, memory) as (folder, connection):
            side = Beside(self.schema, table, folder, self.classes, connection if self.classes is None else None)
            parts = {
                name: EntryFiles(folder / STAGING, f"g{i}", codec, self.schema.groups[name])
                for i, (name, codec) in enumerate(self.codecs.items())
            }
            columns = _columns(groups.values(), side.columns, among=table)
            rows = _stage_all(stages(table, columns), [side, *(parts[name] for name in groups)])
            side.finish()
            pieces = []
            for name in self.codecs:
                codec, part, values = self.codecs[name], parts[name], self.values[name]
                if name not in groups:
                    part.tally.missing = rows
                spec = self.schema.groups[name].extractor
                pieces.append(number_group(connection, folder, name, codec, spec, part.width, part.read, rows, values))
            interleave(folder, pieces, rows)
        tallies = {name: part.tally for name, part in parts.items()}
        encoder = replace(self, classes=side.classes)
        return _opened(encoder, folder if out is None else Path(out), known, tallies, temporary=out is None)

    def decode(self, group: str, entries: Array) -> list[Any]:
        """What entries of a group stand for."""
        return self.codecs[group].decode(np.asarray(entries))

    def save(self, folder: str | Path) -> None:
        """Write the encoder as Parquet and JSON, whole or not at all; the folder must be new."""
        with new_folder(folder_place(folder, None)) as partial:
            self.write(partial)

    def write(self, folder: Path) -> None:
        """Write the encoder's files into a folder that is there."""
        (folder / "schema.yaml").write_text(self.schema.resolved(), encoding="utf-8")
        ranks = self.schema.model.levels.ranks
        for name, codec in self.codecs.items():
            if codec.vocabulary is not None:
                write_parquet(codec.vocabulary.table(ranks), folder / "vocabulary" / f"{file_name(name)}.parquet")
            write_values(self.values[name], folder / "values" / f"{file_name(name)}.parquet")
        if self.classes is not None:
            write_parquet(self.classes.table((1,)), folder / "classes.parquet")
        facts = {
            "format": FORMAT,
            "groups": {name: codec.facts() for name, codec in self.codecs.items()},
            "classes": None if self.classes is None else self.classes.kind,
        }
        (folder / "encoder.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> Encoder:
        """Read an encoder; nothing in its folder is executed.

        Raises:
            UserError: If its files are damaged, altered, or do not belong together.

        """
        folder = Path(folder)
        try:
            facts = read_json(folder / "encoder.json")
            if facts["format"] != FORMAT:
                shown = repr(facts["format"])[:20]
                raise UserError(f"{folder}: was written in format {shown}; this feat2vec reads {FORMAT}")
            schema = schema_of(read_text(folder / "schema.yaml"), str(folder / "schema.yaml"))
            if list(schema.groups) != list(facts["groups"]):
                raise ValueError("schema.yaml has other groups than encoder.json")
            if schema.objective.has_classes != (facts["classes"] is not None):
                raise ValueError("schema.yaml has another objective than encoder.json")
            codecs, values = {}, {}
            for name, group in schema.groups.items():
                file, table = f"{file_name(name)}.parquet", None
                if group.extractor.encoding in ("items", "tokens"):
                    table = read_vocabulary(folder / "vocabulary" / file)
                codecs[name] = codec_from_facts(group, facts["groups"][name], table)
                values[name] = read_values(folder / "values" / file, codecs[name].dtype, codecs[name].stored)
                check_entries(codecs[name], values[name].entries)
            classes = None
            if facts["classes"] is not None:
                classes = Vocabulary.from_table(read_vocabulary(folder / "classes.parquet"), 0, facts["classes"])
        except (OSError, KeyError, TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            raise UserError(f"{folder}: holds no encoder that can be read ({in_a_line(error)})") from None
        return cls(schema, codecs, values, classes)

    def _given(self, table: Table) -> dict[str, Group]:
        """The groups that the table has columns of; a column that it lacks is missing in every row."""
        groups = {
            name: group for name, group in self.schema.groups.items() if any(c in table.columns for c in group.columns)
        }
        for name, group in groups.items():
            weights = getattr(group.extractor, "weights", None)
            if weights is not None and weights not in table.columns:
                raise UserError(f"{table.name}: has no column {weights!r}, the weights of {name!r}")
        if not groups:
            wanted = listed(_columns(self.schema.groups.values()))
            raise UserError(f"{table.name}: has none of the columns {wanted}; received {listed(table.columns)}")
        return groups


def fit(
    schema: Schema | str | Path | Mapping[str, Any], source: object, out: str | Path | None = None, memory: str = MEMORY
) -> Encoded:
    """Fit an encoder to the training rows and encode them into a folder (a temporary one if none is given).

    `memory` bounds what DuckDB holds at a time; beyond it, it spills into the folder.

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
    with _workspace(out, memory) as (folder, connection):
        side = Beside(schema, table, folder, None, connection)
        fits = {
            name: codec_fit(connection, folder / STAGING, f"g{i}", group)
            for i, (name, group) in enumerate(schema.groups.items())
        }
        rows = _stage_all(stages(table, _columns(schema.groups.values(), side.columns)), [side, *fits.values()])
        side.finish()
        tallies: dict[str, Tally] = {}
        codecs: dict[str, Codec] = {}
        problems: dict[str, Sequence[str]] = {}
        pieces: dict[str, Iterator[Array]] = {}

        def finish(name: str) -> None:
            try:
                codecs[name] = fits[name].finish()
            except UserError as error:
                problems[name] = error.problems
                return
            tallies[name] = Tally()
            pieces[name] = number_group(
                connection,
                folder,
                name,
                codecs[name],
                schema.groups[name].extractor,
                codecs[name].stored,
                lambda: _tallied(fits[name], tallies[name]),
                rows,
                None,
            )

        with ThreadPoolExecutor(os.cpu_count()) as pool:  # the large sorts last
            list(pool.map(finish, sorted(fits, key=lambda name: fits[name].work)))
        if pieces:  # else none could be fitted
            interleave(folder, [pieces[name] for name in schema.groups if name in pieces], rows)
        for name, tally in tallies.items():
            if tally.missing == rows:
                columns = listed(schema.groups[name].columns)
                share = getattr(schema.groups[name].extractor, "max_share", 1.0)
                remedy = "remove it" if share == 1 else f"remove it, or raise max_share ({share:g} now)"
                problems[name] = (f"the group {name!r} has no value in any row (column {columns}); {remedy}",)
        if problems:
            in_order = dict.fromkeys(problem for name in schema.groups for problem in problems.get(name, ()))
            raise UserError(*(f"{table.name}: {problem}" for problem in in_order))
    folder = folder if out is None else Path(out)
    values = {name: open_values(folder, name) for name in schema.groups}
    encoder = Encoder(schema, {name: codecs[name] for name in schema.groups}, values, side.classes)
    known = {name: len(values[name].entries) for name in values}
    return _opened(encoder, folder, known, tallies, temporary=out is None)


def check_columns(schema: Schema, table: Table) -> None:
    """Every column that the schema names is in the table."""
    problems: list[str] = []
    if not table.typed and len(table.columns) == 1 and len(schema.columns()) > 1:
        (only,) = table.columns
        raise UserError(f"{table.name}: has one column, {only[:60]!r}; {DELIMITERS}")
    positive = schema.objective.implicit_group is not None  # a table without a target is all positive
    for column, path in schema.columns().items():
        if column not in table.columns and not (positive and column == schema.target):
            near = suggest(column, table.columns) if len(problems) < MOST_SUGGESTED else ""
            near = near or f"; the columns are {listed(table.columns)}"
            problems.append(f"{table.name}: has no column {column!r}, which {'.'.join(map(str, path))} names{near}")
    if problems:
        raise UserError(*problems)


# --- the steps of fit and encode ------------------------------------------------------------------------------------


def _stage_all(shown_stages: Iterator[Stage], fits: Sequence[CodecFit | EntryFiles | Beside]) -> int:
    """Show every stage to every fit; what the first bad row of each is, is reported together."""
    problems: dict[int, UserError] = {}
    rows = 0

    def show(i: int, stage: Stage, before: Future[None] | None) -> None:
        if before is not None:
            before.result()  # it began earlier, so this waits for it but never for good
        try:
            if i not in problems:
                fits[i].stage(stage)
        except UserError as error:
            problems[i] = error

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        last: list[Future[None] | None] = [None] * len(fits)
        for stage in shown_stages:  # two are worked on while the next one is read
            waiting = last
            last = [pool.submit(show, i, stage, before) for i, before in enumerate(last)]
            rows += stage.rows
            _await(waiting)
        _await(last)
    if problems:
        every = (problem for i in sorted(problems) for problem in problems[i].problems)
        raise UserError(*dict.fromkeys(every))  # fits of one column have the same
    return rows


def _await(futures: Sequence[Future[None] | None]) -> None:
    for future in futures:
        if future is not None:
            future.result()


def _tallied(fit: CodecFit, tally: Tally) -> Iterator[Entries]:
    for entries in fit.entries():
        tally.add(entries.tally)
        yield entries


def check_memory(memory: object) -> None:
    """Raise unless this is a size that DuckDB may be bounded by: it takes `-1GB` and `0` for no bound at all."""
    size = MEMORY_SIZE.fullmatch(memory.strip()) if isinstance(memory, str) else None
    if size is None or float(size[1]) <= 0:
        shown = repr(memory) if len(repr(memory)) <= 60 else f"{repr(memory)[:57]}..."
        raise UserError(f"memory must be a size such as 1GB; received {shown}")


@contextmanager
def _workspace(out: str | Path | None, memory: str) -> Iterator[tuple[Path, duckdb.DuckDBPyConnection]]:
    """A new folder, and a DuckDB that spills into it."""
    check_memory(memory)
    with (
        new_folder(None if out is None else folder_place(out, None)) as folder,
        scratch_folder(folder, STAGING) as staging,
    ):
        try:
            opened = connect(staging / "spill", memory=memory)
        except duckdb.Error:
            raise UserError(f"memory must be a size such as 1GB; received {memory!r}") from None
        with opened as connection:
            try:
                yield folder, connection
            except duckdb.OutOfMemoryException as error:
                raise UserError(f"{memory} of memory is too little to encode this table; raise it") from error


def _opened(
    encoder: Encoder, folder: Path, known: Mapping[str, int], tallies: Mapping[str, Tally], *, temporary: bool
) -> Encoded:
    values = {name: open_values(folder, name) for name in encoder.codecs}
    target, weight = (
        open_array(path) if (path := folder / f"{name}.npy").exists() else None for name in ("target", "weight")
    )
    in_order = {name: tallies[name] for name in encoder.codecs}
    encoded = Encoded(encoder, folder, open_array(folder / "rows.npy"), values, known, in_order, target, weight)
    if temporary:
        weakref.finalize(encoded, discard_temporary, folder)
    return encoded


def _columns(groups: Any, others: list[str] | None = None, among: Table | None = None) -> list[str]:
    """Every column of the groups, once (`among` those that a table has)."""
    columns: dict[str, None] = {}
    for group in groups:
        weights = getattr(group.extractor, "weights", None)
        columns.update(dict.fromkeys([*group.columns, *([weights] if weights else [])]))
    columns.update(dict.fromkeys(others or []))
    return [column for column in columns if among is None or column in among.columns]
