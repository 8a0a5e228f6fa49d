"""What becomes of each kind of column, and why."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.table.profile import profile_table
from feat2vec.table.propose.rules import choose
from feat2vec.table.table import open_table, stages
from tests.table.propose.columns import PAIR, ROWS, WORDS, bags, column, fitted, numbers_of, proposed, texts

NUMBERS = numbers_of(ROWS)
LOOKUP = {"type": "lookup"}
WORDS_OF_TEXTS = {
    "type": "lookup", "split": "words", "max_items": 64, "combiner": "sqrtn", "item_dropout": 0.3,
}  # fmt: skip
DAYS = [date(2015, 1, 1) + timedelta(days=11 * i) for i in range(ROWS)]
TIMES = [datetime(2015, 1, 1) + timedelta(hours=271 * i) for i in range(ROWS)]
CHOICES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "fractions": ([i / 8 for i in range(ROWS)], NUMBERS),
    "many whole numbers": ([i * i % 1009 for i in range(ROWS)], NUMBERS),
    "few whole numbers": ([i % 5 for i in range(ROWS)], LOOKUP),
    "zeros and ones": ([i % 2 for i in range(ROWS)], LOOKUP),
    "years": ([1950 + i % 40 for i in range(ROWS)], LOOKUP),
    "each year once": ([1900 + i for i in range(ROWS)], NUMBERS),
    "booleans": ([i % 3 == 0 for i in range(ROWS)], LOOKUP),
    "a long tail": ([1.6**i for i in range(60)] * 2, NUMBERS),
    "codes": ([f"0{i % 30}" for i in range(ROWS)], LOOKUP),
    "words": ([WORDS[i % 12] for i in range(ROWS)], LOOKUP),
    "names with a comma": ([f"{WORDS[i % 12].title()}, {WORDS[i % 7]}n" for i in range(ROWS)], LOOKUP),
    "prose": (texts(1), WORDS_OF_TEXTS),
    "bars": (bags("|"), {"type": "lookup", "split": "|", "max_items": 4}),
    "semicolons": (bags("; "), {"type": "lookup", "split": ";", "max_items": 4}),
    "commas": (bags(","), {"type": "lookup", "split": ",", "max_items": 4}),
    "slashes": (bags(" / "), {"type": "lookup", "split": "/", "max_items": 4}),
    "vectors as text": ([f"[{i / 8}, {i % 3}, -1e-3]" for i in range(ROWS)], {"type": "vector"}),
    "days": (DAYS, {"type": "lookup", "parts": ("year", "month", "weekday")}),
    "times": (TIMES, {"type": "lookup", "parts": ("year", "month", "weekday", "hour")}),
    "firsts of January": (
        [date(1900 + i % 40, 1, 1) for i in range(ROWS)], {"type": "lookup", "parts": ("year",)},
    ),
    "days in another form": (
        [f"{1 + i % 28}.{1 + i // 28}.{2015 + i % 5}" for i in range(ROWS)],
        {"type": "lookup", "parts": ("year", "month", "weekday"), "dates": "%d.%m.%Y"},
    ),
    "times of day": (
        [f"{i % 24:02}:{i % 60:02}" for i in range(ROWS)], {"type": "lookup", "parts": ("hour",), "dates": "%H:%M"},
    ),
    "times of day with a type": (
        [time(i % 24, i % 60) for i in range(ROWS)], {"type": "lookup", "parts": ("hour",), "dates": "%H:%M:%S"},
    ),
    "percentages": ([f"{i / 8}%" for i in range(ROWS)], {**NUMBERS, "written": "1.5%"}),
    "minutes": ([f"{97 + i % 40} min" for i in range(ROWS)], {**NUMBERS, "written": "1.5 min"}),
    "minutes of few lengths": ([f"{97 + i % 10} min" for i in range(ROWS)], LOOKUP),
    "decimal commas": ([f"{i},{i % 10}" for i in range(ROWS)], {**NUMBERS, "written": "1,5"}),
    "dollars": ([f"${100 * i:,}.50" for i in range(ROWS)], {**NUMBERS, "written": "$1,000.5"}),
    "two days": ([date(2020, 1, 6 + 7 * (i % 2)) for i in range(ROWS)], NUMBERS),
    "one or none": (["x", None] * 60, LOOKUP),
    "gaps": ([None if i % 4 else i / 8 for i in range(ROWS)], numbers_of(ROWS // 4)),
}  # fmt: skip


def _without_dropout(extractor: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """The options without the item dropout of lists, which follows from their length: see test_defaults.py."""
    return {key: value for key, value in extractor.items() if key != "item_dropout" or key in expected}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("csv", [False, True], ids=["typed", "csv"])
def test_each_kind_of_column_gets_its_extractor(name: str, csv: bool, tmp_path: Path) -> None:
    values, expected = CHOICES[name]
    text, extractor = column(values, csv=csv, tmp_path=tmp_path)
    assert _without_dropout(extractor, expected) == expected, text


LISTS: dict[str, tuple[pa.Array, dict[str, Any]]] = {
    "text": (
        pa.array([[WORDS[i % 12], WORDS[i % 5]] if i % 9 else [] for i in range(ROWS)]),
        {"type": "lookup", "multi": True, "max_items": 2},
    ),
    "numbers": (
        pa.array([list(range(i % 4 + 1)) for i in range(ROWS)]),
        {"type": "lookup", "multi": True, "max_items": 4},
    ),
    "vectors": (pa.array([[i / 8, 1.0, 0.5] for i in range(ROWS)], pa.list_(pa.float32(), 3)), {"type": "vector"}),
    "loose vectors": (pa.array([[i / 8, 1.0] if i else None for i in range(ROWS)]), {"type": "vector"}),
    "NaN": (
        pa.array([float("nan") if i % 4 else float(i) for i in range(ROWS)], from_pandas=False),
        numbers_of(ROWS // 4, has_nan=True),
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_typed_columns_of_lists_and_nan(name: str, tmp_path: Path) -> None:
    values, expected = LISTS[name]
    text, schema = fitted(pa.table({"it": values, **PAIR}), tmp_path / "encoded")
    extractor = schema.groups["it"].extractor
    options = extractor.model_dump(exclude_defaults=True) | {"type": extractor.type}
    assert _without_dropout(options, expected) == expected, text


LEFT_OUT: dict[str, tuple[Any, str]] = {
    "sequence": (list(range(1, ROWS + 1)), "it: an identifier: 120 numbers in 120 rows; it names the rows"),
    "words": ([f"u{i}" for i in range(ROWS)], "it: an identifier: 120 values in 120 rows; it names the rows"),
    "some words twice": (
        [f"u{i // 2 if i < 4 else i}" for i in range(ROWS)],
        "it: an identifier: 118 values in 120 rows",
    ),
    "constant": (["x"] * ROWS, "it: one value in every row"),
    "constant number": ([5.0] * ROWS, "it: one value in every row"),
    "one or hardly any": (["x"] * (ROWS - 1) + [None], "it: one value, or none"),
    "one or none of numbers": ([5.0, float("nan")] * 60, "it: one value"),
    "missing": (pa.nulls(ROWS, pa.string()), "it: no value in any row"),
    "null": (pa.nulls(ROWS), "it: no value in any row"),
    "structs": ([{"x": 1}] * ROWS, "it: is of type struct<x: int64>, which cannot be used"),
    "lists of structs": ([[{"x": 1}]] * ROWS, "it: is of type list<item: struct<x: int64>>"),
    "lists of lists": ([[["x"]]] * ROWS, "it: holds lists of lists"),
    "one list": ([["x", "y"]] * ROWS, "it: one value in every row"),
    "ragged": ([[0.5] * (1 + i % 2) for i in range(ROWS)], "a vector of 1 numbers is needed, this has 2"),
    "infinity": ([0.5 * i for i in range(ROWS - 1)] + [float("inf")], "it: received inf; numbers must be finite"),
    "far apart": ([10.0 ** (250 * (i % 2)) + i for i in range(ROWS)], "too far apart to be scaled"),
    "huge": ([2**60 + i for i in range(ROWS)], "it: an identifier: 120"),
    "bytes": ([b"\xff\xfe%d" % i for i in range(ROWS)], "cannot be read as string"),
    "numbers as text": ([str(i * i) for i in range(ROWS)], "120 values in 120 rows; cast it if these are numbers"),
    "dates of another kind": ([f"{1 + i % 28}.{1 + i // 28}.20" for i in range(ROWS)], "write dates as 2024-01-31"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_cannot_be_learnt_from_is_left_out_with_the_reason(name: str, tmp_path: Path) -> None:
    values, reason = LEFT_OUT[name]
    text, schema = fitted(pa.table({"it": values, **PAIR}), tmp_path / "encoded")
    assert list(schema.groups) == ["kind", "size"]
    assert reason in re.sub(r"\n#  +", " ", text)
    assert (schema.id == "it") == (
        "names the rows" in reason or name in ("huge", "numbers as text", "dates of another kind")
    )


@pytest.mark.parametrize("csv", [False, True], ids=["typed", "csv"])
@pytest.mark.parametrize("form", ["plain", "dollars"])
def test_little_text_beside_numbers_is_missing(form: str, csv: bool, tmp_path: Path) -> None:
    sign = "$" if form == "dollars" else ""
    values = [f"{sign}{i % 50 + i / 8}" for i in range(ROWS)]
    for i, other in enumerate(["unknown", "about 3", "n/a", "unknown"]):
        values[29 * i + 7] = other
    text, extractor = column(values, csv=csv, tmp_path=tmp_path)
    expected = {**numbers_of(ROWS), "nan": "lenient"} | ({"written": "$1.5"} if sign else {})
    assert extractor == expected
    facts = re.sub(r"\s+#?\s*", " ", text)
    assert "0 to 61.38; text in 3 % of the rows, such as unknown and about 3, counts as missing" in facts


@pytest.mark.parametrize("csv", [False, True], ids=["typed", "csv"])
def test_much_text_beside_numbers_makes_keys_and_is_told(csv: bool, tmp_path: Path) -> None:
    values = ["unknown" if i % 5 == 0 else str(i // 2 % 30 + 0.5) for i in range(ROWS)]
    text, extractor = column(values, csv=csv, tmp_path=tmp_path)
    assert extractor == LOOKUP
    facts = re.sub(r"\s+#?\s*", " ", text)
    assert "numbers in 80 % of the rows, fewer than 90 %; others such as unknown" in facts


def test_text_beside_few_numbers_is_a_key(tmp_path: Path) -> None:
    text, extractor = column(["x" if i == 5 else str(i % 9) for i in range(ROWS)], csv=True, tmp_path=tmp_path)
    assert extractor == LOOKUP
    assert "numbers in 99 % of the rows, of few values; others such as x" in re.sub(r"\s+#?\s*", " ", text)


def test_text_beside_counted_numbers_is_no_quantity(tmp_path: Path) -> None:
    text, extractor = column([str(i) if i else "none" for i in range(ROWS)], csv=True, tmp_path=tmp_path)
    assert not extractor
    assert "numbers in 99 % of the rows, counted; others such as none" in re.sub(r"\s+#?\s*", " ", text)


WITH_GAPS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "days": (
        [20150101 + 10000 * (i % 5) + 100 * (i % 12) + i % 28 for i in range(ROWS)],
        {"type": "lookup", "parts": ("year", "month", "weekday"), "dates": "%Y%m%d"},
    ),
    "few": ([20 + i % 9 for i in range(ROWS)], LOOKUP),
    "many": ([i * i % 1009 for i in range(ROWS)], numbers_of(ROWS - 10)),
}


@pytest.mark.parametrize("name", WITH_GAPS)
@pytest.mark.parametrize("source", ["frame", "parquet with NaN", "csv"])
def test_integers_with_gaps_are_what_they_are_without(name: str, source: str, tmp_path: Path) -> None:
    import pandas as pd

    values, expected = WITH_GAPS[name]
    frame = pd.DataFrame({"it": values, **PAIR})
    frame.loc[::12, "it"] = np.nan
    assert frame["it"].dtype == np.float64
    table: Any = frame
    if source == "csv":
        frame.to_csv(tmp_path / "made.csv", index=False)
        table = str(tmp_path / "made.csv")
    if source == "parquet with NaN":
        table = pa.table({column: frame[column].to_numpy() for column in frame})
        if name != "days":
            expected = numbers_of(ROWS - 10, has_nan=True)  # a key is no NaN
    _, schema = proposed(table)
    encoded = feat2vec.fit(schema, table, tmp_path / "encoded")
    extractor = schema.groups["it"].extractor
    assert extractor.model_dump(exclude_defaults=True) | {"type": extractor.type} == expected
    assert encoded.tallies["it"].missing == 10
    if expected == LOOKUP:
        vocabulary = encoded.encoder.codecs["it"].vocabulary
        assert vocabulary is not None
        keys = vocabulary.keys.to_pylist()
        assert sorted(keys) == [str(number) for number in range(20, 29)]
        (stage,) = stages(open_table(pa.table({"it": [26]})), ["it"])
        entries = encoded.encoder.codecs["it"].encode(stage, schema.groups["it"]).rows
        assert keys[int(entries[0, 0]) - 2] == "26"


@pytest.mark.parametrize("absent", ["NA", "NaN", "null", ""])
def test_the_missing_numbers_of_a_text_file(absent: str, tmp_path: Path) -> None:
    text, extractor = column([absent, *(str(i / 8) for i in range(1, ROWS))], csv=True, tmp_path=tmp_path)
    assert extractor == numbers_of(ROWS - 1)
    assert "# 0.125 to 14.88, under 1 % missing" in text


def test_a_missing_word_in_a_lookup_is_pointed_out(tmp_path: Path) -> None:
    text, extractor = column(["NA" if i % 4 == 0 else str(i % 3) for i in range(ROWS)], csv=True, tmp_path=tmp_path)
    assert extractor == LOOKUP
    assert "NA counts as a key" in text


def test_a_missing_word_beside_truth_values_is_missing(tmp_path: Path) -> None:
    text, extractor = column([("NA", "True", "FALSE")[i % 3] for i in range(ROWS)], csv=True, tmp_path=tmp_path)
    assert extractor == LOOKUP
    assert "counts as a key" not in text


def test_numbers_that_are_called_keys_are_keys(tmp_path: Path) -> None:
    table = pa.table(
        {"user_id": [i if i % 4 else 0 for i in range(ROWS)], "itemId": [i // 2 for i in range(ROWS)], **PAIR}
    )
    _, schema = fitted(table, tmp_path / "encoded")
    assert schema.groups["user_id"].extractor == schema.groups["itemId"].extractor == schema.groups["kind"].extractor


def test_facts_stand_beside_the_groups(tmp_path: Path) -> None:
    text, _ = column([WORDS[i % 12] if i % 3 else None for i in range(ROWS)], csv=False, tmp_path=tmp_path)
    assert "# 8 keys in 120 rows, 33 % missing" in text


def rule_for(values: Any, name: str = "it") -> tuple[str | None, object]:
    """The type and the scale that the rules give to a column, before the defaults; no type if it is left out."""
    profile = profile_table(open_table(pa.table({name: values}))).columns[0]
    extractor = choose(profile).extractor
    return (None, None) if extractor is None else (str(extractor["type"]), extractor.get("scale"))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("rows", [400, 5000])
def test_heavy_tails_are_scaled_by_quantiles_whatever_the_largest_number_is(rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert rule_for(1e7 * np.exp(1.4 * rng.normal(size=rows))) == ("numeric", "quantile")
    assert rule_for(rng.normal(size=rows)) == rule_for(rng.uniform(size=rows)) == ("numeric", None)


def test_amounts_that_are_all_distinct_are_no_identifiers() -> None:
    rng = np.random.default_rng(0)
    gross = (1e7 * np.exp(1.6 * rng.normal(size=1500))).astype(np.int64)
    gross = np.unique(gross)
    assert len(gross) > 1400
    assert rule_for(rng.permutation(gross), "gross") == ("numeric", "quantile")
    assert rule_for(rng.permutation(gross), "geonameid") == (None, None)
    assert rule_for(rng.permutation(gross), "paid") == ("numeric", "quantile")
    assert rule_for(rng.permutation(1500) * 7919) == (None, None)


def test_integers_that_are_counted_and_used_evenly_are_keys() -> None:
    rng = np.random.default_rng(0)
    assert rule_for(rng.integers(1, 600, 6000), "s") == ("lookup", None)
    assert rule_for((600 * rng.beta(2, 5, 6000)).astype(np.int64), "s")[0] == "numeric"  # as delays are
    assert rule_for(rng.integers(1, 60_000, 6000), "s")[0] == "numeric"  # hardly one comes again
