"""What defaults follow from, and that the schema has them as they are."""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from feat2vec.schema.reading import read_schema
from feat2vec.table.profile import profile_table
from feat2vec.table.propose import propose
from feat2vec.table.propose.defaults import GroupFacts, TableFacts, extractor_for, unlabelled_defaults
from feat2vec.table.propose.facts import facts_of
from feat2vec.table.propose.rules import choose
from feat2vec.table.table import open_table
from tests.table.propose.columns import PAIR, proposed

NUMBERS = GroupFacts("numbers", 1000, 900, 1.1, 1.0, 1, has_nan=False, extractor={"type": "numeric"})


def test_numbers_in_text_are_no_bins() -> None:
    """Bins read plain numbers alone; one group that has none is enough for the others to have pieces, too."""
    plain = {f"n{i}": NUMBERS for i in range(40)}
    assert extractor_for(NUMBERS, TableFacts(1000, plain))["type"] == "lookup"
    written = replace(NUMBERS, extractor={"type": "numeric", "written": "$1.5"})
    assert extractor_for(written, TableFacts(1000, {**plain, "price": written}))["type"] == "numeric"


@pytest.mark.parametrize(
    ("rows", "epochs", "batch_size"),
    [(3, 80, 512), (25_000, 80, 512), (50_000, 40, 512), (50_001, 39, 2048), (200_000, 10, 2048), (10**9, 10, 2048)],
)
def test_epochs_and_batches_follow_from_the_rows(rows: int, epochs: int, batch_size: int) -> None:
    sections = unlabelled_defaults(TableFacts(rows, {}))
    training = sections["training"].options
    assert (training["epochs"], training["batch_size"]) == (epochs, batch_size)
    assert f"{rows:,} rows" in sections["training"].reason
    schema: dict[str, Any] = {name: section.options for name, section in sections.items()}
    read_schema({"version": 1, "groups": {"a": {"column": "a"}, "b": {"column": "b"}}, **schema})


@pytest.mark.parametrize(("present", "pieces"), [(3, 2), (39, 3), (120, 12), (160, 16), (10**6, 16)])
def test_a_piece_has_ten_rows_or_more(present: int, pieces: int) -> None:
    table = TableFacts(10**6, {})
    expected = {"type": "numeric", "scale": "quantile", "pieces": pieces}
    assert extractor_for(replace(NUMBERS, present=present), table) == expected
    assert extractor_for(replace(NUMBERS, present=present, has_nan=True), table) == {**expected, "nan": "missing"}


def test_lists_and_texts_are_told_from_noise_item_by_item() -> None:
    for kind in ("list", "text"):
        group = replace(NUMBERS, kind=kind, extractor={"type": "lookup", "multi": True})
        assert unlabelled_defaults(TableFacts(100, {"group": group}))["noise"].options["lists"] == "items"
    assert "lists" not in unlabelled_defaults(TableFacts(100, {"size": NUMBERS}))["noise"].options


@pytest.mark.parametrize(("rows", "least"), [(50_000, 1), (50_001, 2)])
def test_words_that_come_once_have_vectors_in_small_tables(rows: int, least: int) -> None:
    text = replace(NUMBERS, kind="text", extractor={"type": "text_cnn"})
    assert extractor_for(text, TableFacts(rows, {})).get("min_count", 1) == least


def test_numbers_are_replaced_less_often_than_keys() -> None:
    keys = replace(NUMBERS, kind="keys", extractor={"type": "lookup"})
    noise = unlabelled_defaults(TableFacts(100, {"size": NUMBERS, "who": keys}))["noise"].options
    assert noise["targets"] == {"size": 0.3, "who": 1}
    assert "targets" not in unlabelled_defaults(TableFacts(100, {"size": NUMBERS}))["noise"].options


def test_the_schema_has_the_defaults_and_says_why() -> None:
    text, schema = proposed(pa.table(PAIR))
    keys = replace(NUMBERS, kind="keys", extractor={"type": "lookup"})
    sections = unlabelled_defaults(TableFacts(len(PAIR["kind"]), {"kind": keys, "size": NUMBERS}))
    for name, section in sections.items():
        given = getattr(schema, name).model_dump(exclude_unset=True)
        assert given == section.options | ({"type": given["type"]} if "type" in given else {})
        assert section.reason in " ".join(text.replace("#", "").split())


def test_facts_of_each_kind_of_group() -> None:
    table = open_table(
        pa.table(
            {
                "key": ["a", "b", None, "a"] * 30,
                "tags": ["x|y", "y", "x|z", "z|y|x"] * 30,
                "lists": [["x"], ["y", "x"], [], ["z"]] * 30,
                "size": [i / 8 for i in range(120)],
                "text": [f"a few of the {i} words" for i in range(120)],
            }
        )
    )
    columns = {column.name: column for column in profile_table(table).columns}
    facts = facts_of(columns, {name: choose(column) for name, column in columns.items()})
    assert facts.rows == 120
    rounded = {
        name: (group.kind, group.present, group.distinct, round(group.rows_per_value, 2), round(group.items_per_row, 2))
        for name, group in facts.groups.items()
    }
    assert rounded == {
        "key": ("keys", 90, 2, 45.0, 1.0),
        "tags": ("list", 120, 3, 80.0, 2.0),
        "lists": ("list", 90, 3, 40.0, 1.33),
        "size": ("numbers", 120, 120, 1.0, 1.0),
        "text": ("text", 120, 125, 5.76, 6.0),
    }


def test_the_time_is_that_of_dates_or_else_of_years() -> None:
    days = [datetime.date(2019, 1, 1) + datetime.timedelta(days=i) for i in range(300)]
    years = [1990 + i % 30 for i in range(300)]
    columns: dict[str, Any] = {
        "who": [str(i % 7) for i in range(300)],
        "made": [day.replace(day=1) for day in days],
        "sold": days,
        "year": years,
        "weight": [1900 + i % 90 for i in range(300)],
    }

    def time_of(*names: str) -> str | None:
        text = propose(pa.table({name: columns[name] for name in names}))
        return read_schema(text).training.time

    assert time_of("who", "year", "made", "sold", "weight") == "sold"
    assert time_of("who", "made", "year") == "made"
    assert time_of("who", "weight", "year") == "year"
    assert time_of("who", "weight") is None
