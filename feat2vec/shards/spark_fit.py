"""`fit` and joint tuples, counted by Spark SQL: the same bytes as those of DuckDB.

Workers read the files of the table, Spark counts keys and entries, sorts them and joins them to rows. What has no
vocabulary, the scale of numbers and the target, is fitted here, as those columns are read once. Steps that are finished
stay in a folder beside the rows, and are not done again after a kill.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from feat2vec.arrays import Ints
from feat2vec.encode.arrays_on_disk import ArrayFile, file_name
from feat2vec.encode.codecs import Codec, CodecFit, Tally, codec_fit
from feat2vec.encode.codecs.items_fit import ItemsFit
from feat2vec.encode.columns import check_columns, columns_of
from feat2vec.encode.encoded_rows import Encoded, open_encoded
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.stage_reading import read_stages
from feat2vec.encode.targets import TargetFiles
from feat2vec.encode.value_tables import (
    MISSING,
    GroupEntries,
    Packing,
    number_group,
    open_values,
    write_rows,
)
from feat2vec.encode.vocabulary import FIRST, UNSEEN
from feat2vec.encode.workspace import DEFAULT_SIZES, Workspace, new_workspace
from feat2vec.errors import UserError, listed
from feat2vec.sampling.joint_values import Joint, joint_values
from feat2vec.schema.extractor_options import ItemsSpec
from feat2vec.schema.options import Group, Schema
from feat2vec.shards.spark_tasks import (
    COUNT,
    COUNTED,
    ENTRIES,
    JOINT_ROWS,
    MOST,
    PIECE_ROWS,
    PROBLEM,
    PROBLEM_ROW,
    ROWS,
    TALLY_ROW,
    CountKeys,
    CountTuples,
    EncodeGroup,
    WritePiece,
    bytes_of,
    words_of_bytes,
)
from feat2vec.table.table import Table, open_table, stages
from feat2vec.table.types import Kind, kind_of_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACE_BITS = 33  # of a number that Spark gives a row of a partition


@dataclass(frozen=True)
class SparkEngine:
    """Counts and numbers by a session of Spark.

    Args:
        session: The session.

    """

    session: SparkSession

    def fit(self, schema: Schema, source: Table, out: Path, memory: str) -> Encoded:
        """Fit an encoder to a table, and encode its rows, as `feat2vec.fit` does.

        Args:
            schema: The schema.
            source: The table: files that all workers see.
            out: The new folder; finished steps are kept in the folder `steps` beside the one above it.
            memory: What DuckDB may hold here.

        Raises:
            UserError: If the table cannot be encoded, or is not of files.

        """
        table = open_table(source)
        check_columns(schema, table)
        refuse_what_spark_lacks(schema, table)
        steps = out.parent.parent / "steps"
        steps.mkdir(exist_ok=True)
        with new_workspace(out, memory, DEFAULT_SIZES) as workspace:
            return SparkFit(self.session, schema, table, workspace, out, steps.absolute()).run()

    def count_joint(self, encoded: Encoded, groups: tuple[int, ...]) -> Joint:
        """Count the tuples of a joint set of groups.

        Args:
            encoded: The rows.
            groups: The places of the groups.

        """
        pieces = -(-encoded.learnt_rows // JOINT_ROWS)
        task = CountTuples(str((encoded.folder / "rows.npy").absolute()), groups, encoded.left_out)
        names = [f"m{member}" for member in range(len(groups))]
        types = ", ".join([*(f"{name} int" for name in names), "n long"])
        self._numbers(pieces).mapInArrow(task, types).createOrReplaceTempView("tuples")
        keys = ", ".join(names)
        counted = self.session.sql(f"select {keys}, sum(n) as n from tuples group by {keys} order by {keys}").toArrow()
        tuples = np.stack([counted[name].to_numpy() for name in names], axis=1)  # [tuples, members]
        numbered = joint_values(tuples, range(len(groups)))
        return Joint(groups, numbered.levels, counted["n"].to_numpy().astype(np.int64))

    def _numbers(self, count: int) -> DataFrame:
        return numbers(self.session, count)


def numbers(session: SparkSession, count: int) -> DataFrame:
    """The numbers below `count`, each in a task of its own."""
    return session.range(0, count, 1, max(count, 1))


def refuse_what_spark_lacks(schema: Schema, table: Table) -> None:
    """Raise for rows that workers cannot read, and for what only DuckDB's engine fits.

    Args:
        schema: The schema.
        table: The table.

    Raises:
        UserError: There is such a thing.

    """
    if not table.files or len(table.files) != table.part_count:
        raise UserError(f"{table.name}: --engine spark reads files that all its workers see; write the rows to Parquet")
    if any(group.share is not None for group in schema.groups.values()):
        raise UserError("groups: those that `share` vectors are encoded by --engine duckdb alone; leave --engine out")
    if schema.model.level_source.columns:
        raise UserError("model.levels: those of a column are encoded by --engine duckdb alone; leave --engine out")


class SparkFit:
    """The steps of fitting an encoder.

    Args:
        session: The session of Spark.
        schema: The schema.
        table: The table.
        workspace: Where arrays are written, and DuckDB.
        out: The folder that the workspace's becomes.
        steps: The folder of finished steps, which all workers see.

    """

    def __init__(
        self, session: SparkSession, schema: Schema, table: Table, workspace: Workspace, out: Path, steps: Path
    ) -> None:
        self.session, self.schema, self.table = session, schema, table
        self.workspace, self.out, self.steps = workspace, out, steps
        # as the working directory of a worker is another one
        self.source = str(Path(table.name).absolute()) if Path(table.name).exists() else table.name
        self.counted_groups = {name: group for name, group in schema.groups.items() if has_vocabulary(group)}
        self.tallies: dict[str, Tally] = {}

    def run(self) -> Encoded:
        """All steps."""
        counts = self._count_keys()
        rows_of_parts = [0] * self.table.part_count
        for place, n in zip(*_of_kind(counts, ROWS, "place", "n"), strict=True):
            rows_of_parts[place] = n
        rows = sum(rows_of_parts)
        if not rows:
            raise UserError(f"{self.table.name}: has no rows: a table needs at least one")
        target_files, fits = self._fit_here()
        codecs = self._codecs(counts, fits, rows)
        first_rows = tuple(np.cumsum([0, *rows_of_parts[:-1]]).tolist())
        pieces = [self._number(name, codec, first_rows, rows) for name, codec in codecs.items()]
        problems = [no_value(name, group) for name, group in self.schema.groups.items() if self._is_empty(name, rows)]
        if problems:
            raise UserError(*(f"{self.table.name}: {problem}" for problem in problems))
        write_rows(self.workspace, pieces, rows)
        folder = self.workspace.folder
        values = {name: open_values(folder, name) for name in codecs}
        encoder = Encoder(self.schema, codecs, values, target_files.classes)
        known = {name: len(values[name].entries) for name in values}
        return open_encoded(encoder, folder, known, self.tallies, is_temporary=False)

    def _is_empty(self, name: str, rows: int) -> bool:
        return self.tallies[name].missing == rows

    def _count_keys(self) -> pa.Table:
        """How often each key of each group occurs, and how many rows each part has."""
        groups = tuple(self.counted_groups.values())
        columns = columns_of(groups) or columns_of(self.schema.groups.values())[:1]
        task = CountKeys(self.source, groups, tuple(columns))
        numbers(self.session, self.table.part_count).mapInArrow(task, COUNTED).createOrReplaceTempView("counted")
        folder = self._step(
            "counts",
            f"select kind, place, key, case when kind = '{MOST}' then max(n) else sum(n) end as n"
            " from counted group by kind, place, key",
        )
        counts = pq.read_table(folder)
        _raise_problems(_of_kind(counts, PROBLEM, "key")[0])
        return counts

    def _step(self, name: str, query: str) -> Path:
        """The Parquet files of a query's rows; of a step that is finished, those of an earlier session."""
        folder = self.steps / name
        if not (folder / "_SUCCESS").exists():
            shutil.rmtree(folder, ignore_errors=True)
            self.session.sql(query).write.parquet(folder.as_uri())
        return folder

    def _fit_here(self) -> tuple[TargetFiles, dict[str, CodecFit]]:
        """The target, and the codecs of groups without counted keys, from their columns alone."""
        target_files = TargetFiles(self.schema, self.table, self.workspace, None)
        groups = {name: group for name, group in self.schema.groups.items() if name not in self.counted_groups}
        fits = {name: codec_fit(self.workspace, f"g{i}", group) for i, (name, group) in enumerate(groups.items())}
        columns = columns_of(groups.values(), target_files.columns)
        if columns:
            read_stages(stages(self.table, columns), [target_files, *fits.values()])
        target_files.finish()
        return target_files, fits

    def _codecs(self, counts: pa.Table, fits: dict[str, CodecFit], rows: int) -> dict[str, Codec]:
        """The codec of each group, in the schema's order."""
        codecs: dict[str, Codec] = {}
        problems: list[str] = []
        most_items: dict[int, int] = defaultdict(lambda: 1)
        for place, n in zip(*_of_kind(counts, MOST, "place", "n"), strict=True):
            most_items[place] = max(most_items[place], n)
        places = {name: place for place, name in enumerate(self.counted_groups)}
        for name, group in self.schema.groups.items():
            try:
                if name in fits:
                    codecs[name] = fits[name].finish()
                else:
                    codecs[name] = self._items_codec(group, counts, places[name], rows, most_items[places[name]])
            except UserError as error:
                problems += error.problems
        if problems:
            raise UserError(*(f"{self.table.name}: {problem}" for problem in dict.fromkeys(problems)))
        return codecs

    def _items_codec(self, group: Group, counts: pa.Table, place: int, rows: int, most_items: int) -> Codec:
        """The codec of a group from the counts of its keys."""
        import pyarrow.compute as pc

        fit = ItemsFit(self.workspace, f"counted{place}", group)
        is_key = pc.and_(pc.equal(counts["kind"], COUNT), pc.equal(counts["place"], place))
        of_group = counts.filter(is_key)
        keys = of_group["key"].cast(pa.string()).combine_chunks()
        fit.vocabulary_fit.add(keys, of_group["n"].to_numpy().astype(np.int64))
        fit.rows, fit.most_items = rows, most_items
        fit.kind = self._kind(group)
        return fit.finish()

    def _kind(self, group: Group) -> Kind | None:
        return kind_of_keys(self.table.columns[group.columns[0]]) if self.table.typed else None

    def _number(self, name: str, codec: Codec, first_rows: tuple[int, ...], rows: int) -> Iterator[Ints]:
        """The value ids of a group's rows, in pieces; its values and their counts are written."""
        group, step = self.schema.groups[name], f"g{list(self.schema.groups).index(name)}"
        entries = GroupEntries(name, group, codec, iter(()), codec.training_width)
        first_id = None
        if entries.is_single_id and codec.vocabulary is not None:
            first_id = UNSEEN if codec.vocabulary.unseen > 0 else FIRST
        spec = group.extractor
        is_spelled = name in self.counted_groups and not self.table.typed and isinstance(spec, ItemsSpec)
        broadcast = self.session.sparkContext.broadcast(codec)
        task = EncodeGroup(self.source, group, broadcast, is_spelled, first_id, first_rows)
        numbers(self.session, self.table.part_count).mapInArrow(task, ENTRIES).createOrReplaceTempView("read_entries")
        folder = self._step(f"{step}-entries", "select * from read_entries")
        broadcast.unpersist()
        self.session.read.parquet(folder.as_uri()).createOrReplaceTempView("entries")
        self._read_tally(name)
        if first_id is None:
            self._values_by_sorting(name, codec, step)
            query = "select row, cast(id as int) as id from entries join numbered using (entry) where row >= 0"
        else:
            for _ in number_group(self.workspace, entries, rows):
                pass
            query = "select row, entry as id from entries where row >= 0"
        return self._pieces(step, query, rows)

    def _read_tally(self, name: str) -> None:
        """Add up what the tasks of a group tell, and raise what is wrong in its rows."""
        tallied = self.session.sql("select row, entry from entries where row < 0").toArrow()
        texts = list(zip(tallied["row"].to_pylist(), tallied["entry"].to_pylist(), strict=True))
        _raise_problems([text.decode() for row, text in texts if row == PROBLEM_ROW])
        self.tallies[name] = Tally()
        for row, text in texts:
            if row == TALLY_ROW:
                self.tallies[name].add(Tally(**json.loads(text)))

    def _values_by_sorting(self, name: str, codec: Codec, step: str) -> None:
        """Write the distinct entries of a group in their order, and make the view `numbered` of their numbers."""
        folder = self._step(
            f"{step}-values",
            "select entry, n, spark_partition_id() as part,"
            f" monotonically_increasing_id() & {(1 << PLACE_BITS) - 1} as place from"
            " (select entry, count(*) as n from entries where row >= 0 group by entry order by entry)",
        )
        packing = Packing(codec.dtype, codec.training_width, codec.bits)
        npy_name = f"{file_name(name)}.npy"
        values_file = ArrayFile(self.workspace.folder / "values" / npy_name, codec.dtype, codec.training_width)
        counts_file = ArrayFile(self.workspace.folder / "counts" / npy_name, np.int64)
        firsts: list[tuple[int, int]] = []  # of each partition: its number, and that of its first value
        for path in sorted(folder.glob("part-*.parquet")):
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    if not batch.num_rows:
                        continue
                    if batch.column("place")[0].as_py() == 0:
                        firsts.append((batch.column("part")[0].as_py(), values_file.rows))
                    words = words_of_bytes(bytes_of(batch.column("entry"), 8 * packing.words), packing.words)
                    values_file.append(packing.unpack(words))
                    counts_file.append(batch.column("n").to_numpy())
        values_file.close()
        counts_file.close()
        self.session.read.parquet(folder.as_uri()).createOrReplaceTempView("sorted_values")
        self.session.createDataFrame(firsts or [(0, 0)], "part int, first long").createOrReplaceTempView("firsts")
        self.session.sql(
            "select entry, first + place as id from sorted_values join firsts using (part)"
        ).createOrReplaceTempView("numbered")

    def _pieces(self, step: str, query: str, rows: int) -> Iterator[Ints]:
        """Let workers write the value ids that a query gives, and read them in the order of the rows."""
        folder = self.steps / f"{step}-ids"
        if not (folder / "_SUCCESS").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            ids = self.session.sql(query).selectExpr("row", "id", f"row div {PIECE_ROWS} as piece")
            write = WritePiece(str(folder), rows)
            # Spark counts the parameters of a function, and takes an object's own for one
            ids.groupBy("piece").applyInArrow(lambda table: write(table), "piece long").collect()
            (folder / "_SUCCESS").touch()
        return self._read_pieces(folder, rows)

    def _read_pieces(self, folder: Path, rows: int) -> Iterator[Ints]:
        for piece in range(-(-rows // PIECE_ROWS)):
            path = folder / f"{piece:06d}.npy"
            if path.exists():
                yield np.load(path, allow_pickle=False)
            else:
                yield np.full(min(PIECE_ROWS, rows - piece * PIECE_ROWS), MISSING, np.int32)


def has_vocabulary(group: Group) -> bool:
    """Whether a group's keys are counted: those of bins are known once their edges are."""
    spec = group.extractor
    return spec.encoding in ("items", "tokens") and not (isinstance(spec, ItemsSpec) and spec.bins)


def no_value(name: str, group: Group) -> str:
    """The problem of a group that is missing in every row."""
    return f"the group {name!r} has no value in any row (column {listed(group.columns)}); remove it"


def _of_kind(counts: pa.Table, kind: str, *columns: str) -> list[list[Any]]:
    """Columns of the counts of one kind."""
    import pyarrow.compute as pc

    chosen = counts.filter(pc.equal(counts["kind"], kind))
    return [chosen[column].to_pylist() for column in columns]


def _raise_problems(problems: list[str]) -> None:
    if problems:
        raise UserError(*sorted(set(problems)))


__all__ = ["SparkEngine"]
