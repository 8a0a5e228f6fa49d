"""A recipe's rows, and the parts that they fall into: train, validation, test."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from feat2vec.errors import UserError, listed, suggest
from feat2vec.recipes.corpus import Corpus
from feat2vec.recipes.query import MOST_DIGITS, write_query
from feat2vec.recipes.recipe import PARTS, Ask, CorpusSpec, Recipe, Split
from feat2vec.table.sources.files import find_files
from feat2vec.table.sources.parquet import open_parquet
from feat2vec.table.sources.registry import scheme_of
from feat2vec.table.stages import is_list
from feat2vec.table.table import Table, open_table
from feat2vec.table.types import is_supported
from feat2vec.writing import remove_inside


@dataclass(frozen=True)
class Parts:
    """Tables by name, and the texts that `train` was made from, if it was."""

    tables: Mapping[str, Table]
    corpus: Corpus | None = None


def sources_of(recipe: Recipe, given: Sequence[str]) -> dict[str, str]:
    """Every table's source: the recipe's own, or what is given as SOURCE or NAME=SOURCE."""
    asked = [name for name, source in recipe.data.items() if isinstance(source, Ask)]
    found: dict[str, str] = {}
    for one in given:
        name, equals, source = one.partition("=")
        if equals and name in recipe.data:
            found[name] = source
        elif equals and name.isidentifier() and not Path(one).exists():
            near = suggest(name, recipe.data) or f"; its tables are {listed(recipe.data)}"
            raise UserError(f"--data {one}: the recipe has no table {name!r}{near}")
        elif len(asked or recipe.data) == 1:
            found[next(iter(asked or recipe.data))] = one
        else:
            near = suggest(name, recipe.data) or f"; its tables are {listed(recipe.data)}"
            raise UserError(f"--data {one}: expected NAME=SOURCE, with a table of the recipe{near}")
    problems: list[str] = []
    for name, own in recipe.data.items():
        if isinstance(own, Ask) and name not in found:
            option = "--data PATH" if len(asked) == 1 else f"--data {name}=PATH"
            what = " ".join(own.ask.split())
            problems.append(f"{recipe.name}: the recipe asks for a table, {name}: {what}; give it by {option}")
        elif not isinstance(own, Ask):
            found.setdefault(name, own)
    if problems:
        raise UserError(*problems)
    return found


def make_parts(recipe: Recipe, sources: Mapping[str, str], folder: Path, rows: int | None = None) -> Parts:
    """Read the sources; what is made of them is written into the folder. `rows` are the most that a part may have."""
    tables = {name: open_table(source) for name, source in sources.items()}
    corpus = None
    if recipe.rows is not None:
        tables["train"] = _query(recipe, recipe.rows, tables, folder)
    elif "train" not in tables:
        tables["train"] = next(iter(tables.values()))
    for part in PARTS:
        if rows is not None and part in tables:
            tables[part] = _write(folder, part, _first(tables[part], rows), tables[part])
    if recipe.corpus is not None:
        corpus = Corpus.read(tables["train"], recipe.corpus.column, recipe.corpus.min_count)
        tables["train"] = _pair(corpus, recipe.corpus, folder)
    if recipe.split.validation or recipe.split.test:
        tables |= _split(recipe.split, tables[recipe.split.of], folder)
    return Parts(tables, corpus)


def learning_parts(
    recipe: Recipe, sources: Mapping[str, str], folder: Path, rows: int | None = None
) -> dict[str, Table]:
    """The parts train and validation, made once: a folder that holds them whole is read again."""
    index = folder / "parts.json"
    if not index.exists():
        remove_inside(folder.parent, folder.name)
        folder.mkdir()
        made = make_parts(recipe, sources, folder, rows).tables
        facts = {
            name: {"file": Path(made[name].name).name, "typed": made[name].typed}
            if Path(made[name].name).parent == folder
            else {"source": made[name].name}
            for name in ("train", "validation")
        }
        new = index.with_suffix(".new")
        new.write_text(json.dumps(facts), encoding="utf-8")
        new.replace(index)
    tables: dict[str, Table] = {}
    for name, one in json.loads(index.read_text(encoding="utf-8")).items():
        if "source" in one:
            tables[name] = open_table(one["source"])
        else:
            path = str(folder / one["file"])
            tables[name] = Table(path, [open_parquet(path)], one["typed"])
    return tables


def digests(sources: Mapping[str, str]) -> dict[str, str]:
    """Of each source, what tells it from another one: its files' bytes, or the name of what is no file."""
    found: dict[str, str] = {}
    for name, source in sources.items():
        found[name] = source
        if scheme_of(source) is None:
            digest = hashlib.blake2b(digest_size=8)
            for path in find_files(source):
                with open(path, "rb") as file:
                    while block := file.read(1 << 22):
                        digest.update(block)
            found[name] = f"{source} ({digest.hexdigest()})"
    return found


def _write(
    folder: Path, name: str, batches: Iterable[pa.RecordBatch], like: Table | Mapping[str, pa.DataType]
) -> Table:
    """Rows as a file of the folder, with the columns of a table that a schema can use."""
    path = folder / f"{name}.parquet"
    columns = like.columns if isinstance(like, Table) else like
    schema = pa.schema([(column, kind) for column, kind in columns.items() if is_supported(kind)])
    new = path.with_suffix(".new")  # the rows may come from a file of this name
    with pq.ParquetWriter(new, schema) as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_batches([batch.select(schema.names)]).cast(schema))
    new.replace(path)
    return Table(str(path), [open_parquet(str(path))], not isinstance(like, Table) or like.typed)


def _query(recipe: Recipe, query: str, tables: Mapping[str, Table], folder: Path) -> Table:
    """The rows that the recipe's query makes of the tables."""
    path, where = folder / "train.parquet", f"{recipe.name}: rows"
    _refuse_long_decimals(tables, where)
    files = {name: Path(_write(folder, name, _batches(table), table).name) for name, table in tables.items()}
    write_query(query, files, path, where)
    if not pq.read_metadata(path).num_rows:
        raise UserError(f"{where}: the query gives no row; look at its conditions and joins")
    # Columns of a CSV are text until something asks for numbers.
    return Table(str(path), [open_parquet(str(path))], all(table.typed for table in tables.values()))


def _refuse_long_decimals(tables: Mapping[str, Table], where: str) -> None:
    """Raise for a column of decimals that DuckDB would read as float64, in which long ids become one."""
    for table in tables.values():
        for name, kind in table.columns.items():
            while is_list(kind):
                kind = kind.value_type
            if pa.types.is_decimal(kind) and kind.precision > MOST_DIGITS:
                raise UserError(
                    f"{where}: column {name!r} of {table.name} is {kind}, and a query keeps {MOST_DIGITS} digits; "
                    "turn it into text"
                )


def _pair(corpus: Corpus, spec: CorpusSpec, folder: Path) -> Table:
    """Words and the words near them."""
    types = {"word": pa.string(), "context": pa.string()}
    if spec.counts:
        made = corpus.cooccurrences(spec.window)
        return _write(folder, "train", made.to_batches(), types | {"count": pa.float64()})
    return _write(folder, "train", corpus.pairs(spec.window, spec.subsample, spec.seed), types)


def _split(split: Split, table: Table, folder: Path) -> dict[str, Table]:
    """The parts that a table falls into, by a random draw."""
    total = sum(batch.num_rows for batch in _batches(table, 1))
    order = np.random.default_rng(split.seed).permutation(total)
    part = np.zeros(total, np.int8)  # of each row: 0 stays, 1 and 2 go
    first = 0
    shares = {name: share for name, share in (("validation", split.validation), ("test", split.test)) if share}
    for number, (name, share) in enumerate(shares.items(), start=1):
        some = round(share * total)
        if not some or first + some >= total:
            raise UserError(f"{table.name}: has {total} rows; {share:g} of them for {name} leave none; give more rows")
        part[order[first : first + some]] = number
        first += some
    made = {
        name: _write(folder, name, _some(table, part == number), table) for number, name in enumerate(shares, start=1)
    }
    return {**made, split.of: _write(folder, split.of, _some(table, part == 0), table)}


def _batches(table: Table, most: int | None = None) -> Iterator[pa.RecordBatch]:
    """The columns that a schema can use, or the first few of them."""
    names = [name for name, kind in table.columns.items() if is_supported(kind)]
    return (batch.data for batch in table.batches(names[:most]))


def _first(table: Table, rows: int) -> Iterator[pa.RecordBatch]:
    for batch in _batches(table):
        yield batch.slice(0, rows)
        rows -= min(rows, batch.num_rows)
        if not rows:
            return


def _some(table: Table, keep: Any) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in _batches(table):
        yield batch.filter(pa.array(keep[first : first + batch.num_rows]))
        first += batch.num_rows
