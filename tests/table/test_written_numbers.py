"""Numbers with units, currencies and the marks of countries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.table.table import open_table, stages
from feat2vec.table.written_numbers import written_numbers

NAN = float("nan")
FORMS: dict[str, tuple[list[Any], str, list[float]]] = {
    "minutes": (["97 min", " 1.5min ", None], "1.5 min", [97, 1.5, NAN]),
    "percent": (["12.3%", "-4 %", "+5%"], "1.5%", [12.3, -4, 5]),
    "dollars": (["$1,234.50", "-$7", "$-7", "\u2212$ 7", "$1234567.25"], "$1,000.5", [1234.5, -7, -7, -7, 1234567.25]),
    "decimal comma": (["3,14", "12"], "1,5", [3.14, 12]),
    "euros": (["1.234,5\u00a0€", "12€"], "1.000,5 €", [1234.5, 12]),
    "spaces": (["1 234,5", "1\u202f234\u00a0567"], "1 000,5", [1234.5, 1234567]),
    "apostrophes": (["CHF 1'234.5"], "CHF 1'000.5", [1234.5]),
    "signs of a pattern": (["5 (a+b)"], "1.5 (a+b)", [5]),
    "without a unit": (["$12.5", "12.5", "1,000", "-3"], "$1,000.5", [12.5, 12.5, 1000, -3]),
    "exponents": (["1e-5", "-3.2E+04", "2e3"], "1.5", [1e-5, -3.2e4, 2000]),
    "without a zero": ([".5", "-.25", "5."], "1.5", [0.5, -0.25, 5]),
    "numbers": ([12.5, None], "$1,000.5", [12.5, NAN]),
}


@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_read(name: str) -> None:
    values, form, expected = FORMS[name]
    (stage,) = stages(open_table(pa.table({"it": values})), ["it"])
    np.testing.assert_array_equal(written_numbers(stage, "it", form), expected)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ("12 in", "1.5 min"),
        ("97 h", "1.5 min"),
        ("5,", "1,5"),
        ("e5", "1.5"),
        ("$", "$1.5"),
        ("1,23", "1,000.5"),
        ("--5%", "1.5%"),
        ("-$-5", "$1.5"),
        ("", "1.5x"),
    ],
)
def test_what_is_no_such_number_is_named(value: str, form: str) -> None:
    (stage,) = stages(open_table(pa.table({"it": [form.replace("5", "7"), value]})), ["it"])
    if not value:
        assert np.isnan(written_numbers(stage, "it", form)[1])
        return
    with pytest.raises(UserError, match=r"row 2: column 'it': received .*; a number that is written as 1|\$1"):
        written_numbers(stage, "it", form)


def test_text_that_is_no_number_is_missing_where_that_is_asked_for(tmp_path: Path) -> None:
    values = ["$12", "unknown", None, "7.5", "--5", "1.2.3", "9" * 400]
    (stage,) = stages(open_table(pa.table({"it": values})), ["it"])
    expected = [12, NAN, NAN, 7.5, NAN, NAN, NAN]
    np.testing.assert_array_equal(written_numbers(stage, "it", "$1.5", "lenient"), expected)
    groups: dict[str, Any] = {
        "it": {"column": "it", "extractor": {"type": "numeric", "scale": "none", "nan": "lenient"}},
        "who": {"column": "who"},
    }
    (tmp_path / "made.csv").write_text("it,who\n12,a\nunknown,b\nNA,a\n7.5,b\n")
    encoded = feat2vec.fit(feat2vec.read_schema({"version": 1, "groups": groups}), tmp_path / "made.csv")
    assert sorted(encoded.values["it"].entries.ravel().tolist()) == [7.5, 12]
    assert encoded.tallies["it"].missing == 2
    groups["it"]["extractor"] = {"type": "numeric", "nan": "lenient", "dates": "seconds"}
    with pytest.raises(UserError, match="`lenient` is for numbers, and `dates` are given; keep one of them"):
        feat2vec.read_schema({"version": 1, "groups": groups})


def test_words_for_missing_numbers_of_a_csv(tmp_path: Path) -> None:
    (tmp_path / "made.csv").write_text("it,x\n3 km,a\nNA,b\n")
    (stage,) = stages(open_table(tmp_path / "made.csv"), ["it"])
    np.testing.assert_array_equal(written_numbers(stage, "it", "1.5 km"), [3, NAN])


def test_groups_read_numbers_and_days_from_text(tmp_path: Path) -> None:
    rows = pa.table({"price": ["$1,000", "$3,000", None], "sold": ["31.12.2024", "1.1.2025", None], "who": [*"aba"]})
    groups = {
        "price": {"column": "price", "extractor": {"type": "numeric", "written": "$1,000.5"}},
        "sold": {"column": "sold", "extractor": {"type": "numeric", "scale": "none", "dates": "%d.%m.%Y"}},
        "who": {"column": "who"},
    }
    encoded = feat2vec.fit(feat2vec.read_schema({"version": 1, "groups": groups}), rows, tmp_path / "encoded")
    assert sorted(encoded.values["price"].entries.ravel().tolist()) == [-1, 1]
    assert sorted(encoded.values["sold"].entries.ravel().tolist()) == [20088, 20089]
    (stage,) = stages(open_table(pa.table({"price": ["$5,000", "$2,000"]})), ["price"])
    new = encoded.encoder.codecs["price"].encode(stage, encoded.encoder.schema.groups["price"])
    assert new.rows.ravel().tolist() == [3, 0]
