"""A proposal fits its table, whatever the table holds; what is hopeless is refused."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import feat2vec
from feat2vec.errors import UserError
from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import parse_document
from feat2vec.table.propose import propose
from tests.table.propose.columns import HOSTILE, PAIR, ROWS, WORDS, bags, fitted, texts


def test_hopeless_tables_are_refused_with_every_reason() -> None:
    table = pa.table({"id": range(50), "same": [1] * 50, "x": [i / 8 for i in range(50)]})
    message = (
        "the table: 1 of 3 columns can be a group, and a schema needs two, or one and a target; left out:\n"
        "  id: an identifier: 50 numbers in 50 rows\n"
        "  same: one value in every row\n"
        "add columns whose values come again, or give a target to predict from the columns that are left"
    )
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        propose(table)
    with pytest.raises(UserError, match="no of 1 columns can be a group"):
        propose(pa.table({"id": range(50)}))
    with pytest.raises(UserError, match="one beside the target") as error:
        propose(pa.table({"k": [0, 1] * 25}), target="k")
    assert error.value.problems[-1] == "add columns whose values come again"


def test_a_broken_text_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "films.csv").write_bytes(b"a,b\n" + b"1,\xff\n" * 50)
    with pytest.raises(UserError, match=r"films\.csv"):
        propose(tmp_path / "films.csv")


def test_stages_are_counted_together() -> None:
    rows = 300_000  # three batches
    table = pa.table(
        {
            "unique": [f"k{i}" for i in range(rows)],
            "twice": [f"k{i % (rows // 2)}" for i in range(rows)],
            "few": [i % 6 for i in range(rows)],
            "late": pa.array([None] * (rows - 1000) + [i / 8 for i in range(1000)]),
            "constant": [1] * rows,
        }
    )
    whole = propose(table)
    assert propose(table, stage_bytes=1) == whole
    assert "# 150,000 keys in 300,000 rows" in whole
    assert "id: unique" in whole


def test_it_is_quick_and_imports_no_framework(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = 100_000
    columns: dict[str, Any] = {f"word{i}": np.array(WORDS)[rng.integers(0, 12, rows)] for i in range(4)}
    columns |= {f"number{i}": rng.normal(size=rows) for i in range(4)}
    columns |= {"title": texts(3, 5) * (rows // ROWS) + texts(4, 5)[: rows % ROWS], "id": np.arange(rows)}
    columns |= {"age": rng.integers(0, 99, rows), "genres": bags("|") * (rows // ROWS) + bags("|")[: rows % ROWS]}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    start = time.process_time()
    propose(tmp_path / "rows.parquet")
    assert time.process_time() - start < 4
    code = (
        "import sys; from feat2vec.table.propose import propose; propose('dataset:artworks');"
        "print([name for name in ('tensorflow', 'keras', 'duckdb') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_pandas_frame_may_hold_anything(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "kind": pd.Categorical(PAIR["kind"], categories=["d", "c", "b", "a"]),
            "size": [None if i % 5 == 0 else i // 3 for i in range(ROWS)],
            "mixed": ["a", 1] * 60,
            "span": pd.to_timedelta(range(ROWS), unit="h"),
        }
    )
    text, schema = fitted(frame, tmp_path / "encoded")
    assert list(schema.groups) == ["kind", "size"]
    assert "#   mixed: 1: expected one kind of value, received numbers and text" in text
    assert "#   span: is of type duration" in text


LETTERS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
VALUES: list[st.SearchStrategy[Any]] = [
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 3),
    st.floats(),
    st.floats(0, 1),
    LETTERS.map(lambda text: text[:12]),
    st.sampled_from(WORDS),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map("|".join),
    st.sampled_from(["NA", "1", "2.5", "x", "true", "2020-01-01", "1e400", "0x1", "1,5", ""]),
    st.dates(),
    st.datetimes(),
    st.lists(st.integers(0, 5), max_size=3),
    st.lists(st.sampled_from(["", "a", "b"]), max_size=3),
    st.lists(st.floats(0, 1), min_size=2, max_size=2),
    st.lists(st.floats(), max_size=2),
]


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(1, 40))
    names = draw(
        st.lists(LETTERS.map(lambda text: text[:6]) | st.sampled_from(HOSTILE), min_size=2, max_size=5, unique=True)
    )
    columns = {}
    for name in names:
        value = draw(st.sampled_from(VALUES))
        pool = draw(st.lists(value | st.none() if draw(st.booleans()) else value, min_size=1, max_size=rows))
        columns[name] = pa.array([pool[draw(st.integers(0, len(pool) - 1))] for _ in range(rows)], from_pandas=False)
    return pa.table(columns)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(tables(), st.booleans())
def test_any_table_gets_a_schema_that_fits_it(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table, as_text: bool
) -> None:
    folder = tmp_path_factory.mktemp("any")
    source: Any = table
    if as_text:
        source = folder / "any.csv"
        table.to_pandas().to_csv(source, index=False, quoting=csv.QUOTE_ALL)
    try:
        text = propose(source)
    except UserError as error:
        if not re.search("and a schema needs two|of which nothing can be learnt", str(error)):
            raise
        return
    assert all(char.isprintable() or char == "\n" for char in text)
    encoded = feat2vec.fit(read_schema(parse_document(text)), source, folder / "encoded")
    assert len(encoded) == table.num_rows
