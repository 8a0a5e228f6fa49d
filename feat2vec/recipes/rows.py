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

from feat2vec.arrays import Bools
from feat2vec.errors import UserError, listed, suggest
from feat2vec.recipes.corpus import Corpus
from feat2vec.recipes.query import DECIMAL_DIGITS, write_query
from feat2vec.recipes.recipe import PARTS, Ask, CorpusSpec, Recipe, Split
from feat2vec.recipes.windows import FAKE_ALPHA
from feat2vec.table.sources.files import find_files
from feat2vec.table.sources.parquet import open_parquet
from feat2vec.table.sources.registry import scheme_of
from feat2vec.table.table import Table, open_table
from feat2vec.table.types import is_list, is_supported
from feat2vec.writing import mark_folder, remove_inside, replacing_file
from feat2vec.writing.files import read_json
from feat2vec.writing.signatures import digest_of

LEARNING_PARTS = ("train", "validation")  # that trainings see


@dataclass(frozen=True)
class RowParts:
    """Tables by their names: parts of the rows and tables of `data`; and the corpus that `train` was made from."""

    tables: Mapping[str, Table]
    corpus: Corpus | None = None


def sources_of(recipe: Recipe, given: Sequence[str]) -> dict[str, str]:
    """Every table's source: the recipe's own, or what is given as SOURCE or NAME=SOURCE."""
    tables_asked_for = [name for name, source in recipe.data.items() if isinstance(source, Ask)]
    sources: dict[str, str] = {}
    for option_value in given:
        name, equals, source = option_value.partition("=")
        if equals and name in recipe.data:
            sources[name] = source
        elif equals and name.isidentifier() and not Path(option_value).exists():
            suggestion = suggest(name, recipe.data) or f"; its tables are {listed(recipe.data)}"
            raise UserError(f"--data {option_value}: the recipe has no table {name!r}{suggestion}")
        elif len(tables_asked_for or recipe.data) == 1:
            sources[next(iter(tables_asked_for or recipe.data))] = option_value
        else:
            suggestion = suggest(name, recipe.data) or f"; its tables are {listed(recipe.data)}"
            raise UserError(f"--data {option_value}: expected NAME=SOURCE, with a table of the recipe{suggestion}")
    problems: list[str] = []
    for name, recipe_source in recipe.data.items():
        if isinstance(recipe_source, Ask) and name not in sources:
            option = "--data PATH" if len(tables_asked_for) == 1 else f"--data {name}=PATH"
            description = " ".join(recipe_source.ask.split())
            problems.append(f"{recipe.name}: the recipe asks for a table, {name}: {description}; give it by {option}")
        elif not isinstance(recipe_source, Ask):
            sources.setdefault(name, recipe_source)
    if problems:
        raise UserError(*problems)
    return sources


def make_parts(recipe: Recipe, sources: Mapping[str, str], folder: Path, rows: int | None = None) -> RowParts:
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
    return RowParts(tables, corpus)


def learning_parts(
    recipe: Recipe, sources: Mapping[str, str], folder: Path, rows: int | None = None
) -> dict[str, Table]:
    """The parts train and validation, made once: a folder that holds them whole is read again."""
    index_file = folder / "parts.json"
    if not index_file.exists():
        remove_inside(folder.parent, folder.name)
        mark_folder(folder, "data", ())
        parts = make_parts(recipe, sources, folder, rows).tables
        facts = {name: _part_facts(name, parts[name], folder) for name in LEARNING_PARTS}
        with replacing_file(index_file) as partial:
            partial.write_text(json.dumps(facts), encoding="utf-8")
    try:
        facts = read_json(index_file)
    except (OSError, ValueError):
        facts = {}
    if set(facts) != set(LEARNING_PARTS):
        raise UserError(f"{index_file}: does not say what the parts of the rows are; --force starts anew")
    return {name: _read_part(name, facts[name], sources, folder) for name in LEARNING_PARTS}


def _part_facts(name: str, part: Table, folder: Path) -> dict[str, Any]:
    """What tells where a part is, and that it is still the same: a file of the folder, or one of the sources."""
    path = folder / f"{name}.parquet"
    if part.name == str(path):
        return {"typed": part.typed, "digest": digest_of(path)}
    return {"source": part.name}


def _read_part(name: str, facts: Any, sources: Mapping[str, str], folder: Path) -> Table:
    """The part that `_part_facts` told of; `UserError` if it is another one now."""
    if isinstance(facts, dict) and facts.keys() == {"source"} and facts["source"] in sources.values():
        return open_table(facts["source"])
    path = folder / f"{name}.parquet"
    is_of_folder = isinstance(facts, dict) and facts.keys() == {"typed", "digest"} and isinstance(facts["typed"], bool)
    if not is_of_folder or path.is_symlink() or not path.is_file() or digest_of(path) != facts["digest"]:
        raise UserError(f"{path}: is not the part that this study began with; --force starts anew")
    return Table(str(path), [open_parquet(str(path))], facts["typed"])


def digests(sources: Mapping[str, str]) -> dict[str, str]:
    """Of each source, what tells it from another one: its files' bytes, or the name of what is no file."""
    source_digests: dict[str, str] = {}
    for name, source in sources.items():
        source_digests[name] = source
        if scheme_of(source) is None:
            digest = hashlib.blake2b(digest_size=8)
            for path in find_files(source):
                with open(path, "rb") as file:
                    while block := file.read(1 << 22):
                        digest.update(block)
            source_digests[name] = f"{source} ({digest.hexdigest()})"
    return source_digests


def _write(
    folder: Path, name: str, batches: Iterable[pa.RecordBatch], like: Table | Mapping[str, pa.DataType]
) -> Table:
    """Rows as a file of the folder, with the columns of a table that a schema can use."""
    path = folder / f"{name}.parquet"
    columns = like.columns if isinstance(like, Table) else like
    schema = pa.schema([(column, kind) for column, kind in columns.items() if is_supported(kind)])
    # The rows may come from a file of this name, which can be read until the new one is whole.
    # In a path that is not absolute PyArrow takes a `~` for the home folder.
    with replacing_file(path) as partial, pq.ParquetWriter(partial.absolute(), schema) as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_batches([batch.select(schema.names)]).cast(schema))
    return Table(str(path), [open_parquet(str(path))], not isinstance(like, Table) or like.typed)


def _query(recipe: Recipe, query: str, tables: Mapping[str, Table], folder: Path) -> Table:
    """The rows that the recipe's query makes of the tables."""
    path, where = folder / "train.parquet", f"{recipe.name}: rows"
    _refuse_long_decimals(tables, where)
    files = {name: Path(_write(folder, name, _batches(table), table).name) for name, table in tables.items()}
    write_query(query, files, path, where)
    if not pq.read_metadata(path.absolute()).num_rows:
        raise UserError(f"{where}: the query gives no row; look at its conditions and joins")
    # Columns of a CSV are text until something asks for numbers.
    return Table(str(path), [open_parquet(str(path))], all(table.typed for table in tables.values()))


def _refuse_long_decimals(tables: Mapping[str, Table], where: str) -> None:
    """Raise for a column of decimals that DuckDB would read as float64, in which long ids become one."""
    for table in tables.values():
        for name, kind in table.columns.items():
            while is_list(kind):
                kind = kind.value_type
            if pa.types.is_decimal(kind) and kind.precision > DECIMAL_DIGITS:
                raise UserError(
                    f"{where}: column {name!r} of {table.name} is {kind}, and a query keeps {DECIMAL_DIGITS} digits; "
                    "turn it into text"
                )


def _pair(corpus: Corpus, spec: CorpusSpec, folder: Path) -> Table:
    """Words and the words near them."""
    types = {"word": pa.string(), "context": pa.string()}
    if spec.counts:
        counts = corpus.cooccurrences(
            spec.window,
            reach=spec.chosen_reach,
            count_weights=spec.count_weights or "inverse_distance",
            subsample=spec.subsample,
            seed=spec.seed,
        )
        return _write(folder, "train", counts.to_batches(), types | {"count": pa.float64()})
    pairs = corpus.pairs(
        spec.window,
        spec.subsample,
        spec.seed,
        reach=spec.chosen_reach,
        fake_centres=spec.fake_centres or 0,
        fake_alpha=FAKE_ALPHA if spec.fake_alpha is None else spec.fake_alpha,
    )
    return _write(folder, "train", pairs, types | ({"label": pa.int8()} if spec.fake_centres else {}))


def _split(split: Split, table: Table, folder: Path) -> dict[str, Table]:
    """The parts that a table falls into, by a random draw."""
    total = sum(batch.num_rows for batch in _batches(table, 1))
    order = np.random.default_rng(split.seed).permutation(total)
    part_of_row = np.zeros(total, np.int8)  # of each row: 0 stays, 1 and 2 go
    first = 0
    shares = split.parts()
    for number, (name, share) in enumerate(shares.items(), start=1):
        part_rows = round(share * total)
        if not part_rows or first + part_rows >= total:
            raise UserError(f"{table.name}: has {total} rows; {share:g} of them for {name} leave none; give more rows")
        part_of_row[order[first : first + part_rows]] = number
        first += part_rows
    parts = {
        name: _write(folder, name, _filtered(table, part_of_row == number), table)
        for number, name in enumerate(shares, start=1)
    }
    return {**parts, split.of: _write(folder, split.of, _filtered(table, part_of_row == 0), table)}


def _batches(table: Table, most: int | None = None) -> Iterator[pa.RecordBatch]:
    """The columns that a schema can use, or the first few of them."""
    names = [name for name, kind in table.columns.items() if is_supported(kind)]
    return (batch.data for batch in table.batches(names[:most]))


def _first(table: Table, rows: int) -> Iterator[pa.RecordBatch]:
    for batch in _batches(table):
        length = min(rows, batch.num_rows)  # `rows` may be more than Arrow counts
        yield batch.slice(0, length)
        rows -= length
        if not rows:
            return


def _filtered(table: Table, is_kept: Bools) -> Iterator[pa.RecordBatch]:
    """The rows of a table for which `is_kept` [rows] is true."""
    first = 0
    for batch in _batches(table):
        yield batch.filter(pa.array(is_kept[first : first + batch.num_rows]))
        first += batch.num_rows
