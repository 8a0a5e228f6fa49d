"""Names of groups, merged numbers, copies, the column that names the rows, the target."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import parse_document
from feat2vec.table.propose import propose
from tests.table.propose.columns import PAIR, ROWS, fitted, proposed, texts


@pytest.mark.parametrize(
    "line", ["# objective: {type: softmax, target: kind}", "# objective: {type: logistic, target: it}"]
)
def test_the_commented_objective_can_be_used(line: str, tmp_path: Path) -> None:
    columns = {**PAIR, "it": [i % 2 for i in range(ROWS)]} if "logistic" in line else {**PAIR, "size": texts(1)}
    text = propose(pa.table(columns))
    assert line in text
    target = line.split()[-1].rstrip("}")
    text = re.sub(
        rf"(?m)^  {target}: .*\n|^objective: .type: contrastive.*\n", "", text.replace(line, line.removeprefix("# "))
    )
    feat2vec.fit(read_schema(parse_document(text)), pa.table(columns), tmp_path / "encoded")


def test_the_id_is_the_column_that_is_called_so() -> None:
    table = pa.table({"code": [f"c{i}" for i in range(ROWS)], "name": [f"n{i}" for i in range(ROWS)], **PAIR})
    assert proposed(table)[1].id == "code"
    assert proposed(table.drop_columns(["code"]))[1].id == "name"
    assert proposed(table.set_column(0, "code", pa.array(["c0"] * ROWS)))[1].id == "name"
    assert proposed(pa.table(PAIR))[1].id is None


def test_recodings_are_commented_out(tmp_path: Path) -> None:
    table = pa.table(
        {"code": [ord(kind) for kind in PAIR["kind"]], **PAIR, "Size": [2 * size for size in PAIR["size"]]}
    )
    text, schema = fitted(table, tmp_path / "encoded")
    assert list(schema.groups) == ["code", "size"]
    assert "  # kind:   {column: kind, extractor: lookup}  # tells what code tells, one to one" in text
    assert list(proposed(table.select(["code", "kind"]))[1].groups) == ["code", "kind"]  # better than no schema


def test_very_many_numbers_become_a_few_groups(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    numbers = {f"sensor_{i}": rng.normal(size=ROWS) for i in range(12)} | {
        name: rng.normal(size=ROWS) for name in "xyz"
    }
    table = pa.table({"kind": PAIR["kind"], **numbers})
    _, schema = fitted(table, tmp_path / "encoded")
    assert {name: len(group.columns) for name, group in schema.groups.items()} == {
        "kind": 1,
        "sensor": 12,
        "numbers": 3,
    }
    assert schema.groups["sensor"].extractor == schema.groups["numbers"].extractor
    few = table.select([f"sensor_{i}" for i in range(12)])
    assert len(proposed(few)[1].groups) == 12
    only = pa.table({f"sensor_{i}": rng.normal(size=ROWS) for i in range(20)})
    assert len(proposed(only)[1].groups) == 20  # one group has nothing to learn from
