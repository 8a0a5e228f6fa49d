"""In which way the texts of a column are numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

from feat2vec.table.profile import profile_table
from feat2vec.table.table import open_table

COLUMNS: dict[str, tuple[list[str], str | None]] = {
    "percent": (["12.3%", "4%", "-1.5 %"], "1.5%"),
    "decimal comma": (["3,14", "2,7", "12"], "1,5"),
    "decimal comma of three places": (["5,250", "-0,659", "12,125"], "1,5"),
    "thousands of euros beside cents": (["1.250 €", "0,50 €"], "1.000,5 €"),
    "minutes": (["97 min", "120 min"], "1.5 min"),
    "minutes without a space": (["97min", "120min"], "1.5min"),
    "many minutes": (["97 min", "1,120 min"], "1,000.5 min"),
    "dollars": (["$1,234.50", "$7", "-$3.20"], "$1,000.5"),
    "dollars of Canada": (["CA$7", "CA$12.20"], "CA$1.5"),
    "euros": (["1.234,50 €", "7,00 €"], "1.000,5 €"),
    "euros without a fraction": (["1.234.567 €", "7.000 €"], "1.000,5 €"),
    "spaces that are not broken": (["1\u00a0234,5\u00a0kg", "7,25 kg"], "1 000,5 kg"),
    "thousands": (["1,234", "17", "1,234,567"], "1,000.5"),
    "stars of five": (["3 out of 5", "4.5 out of 5"], None),
    "plain numbers": (["3.5", "12"], None),
    "another unit": (["97 min", "2 h"], None),
    "a number without its unit": (["97 min", "120"], "1.5 min"),
    "a number before those with a unit": (["12.5", "$12.5", "$1,000"], "$1,000.5"),
    "exponents": (["1e-5", "3.2E+04", "1e05"], "1.5"),
    "fractions without a zero": ([".5 kg", "-.25 kg"], "1.5 kg"),
    "codes": (["12B", "34B"], None),
    "codes with a letter before": (["s12", "s34"], None),
    "zeros in front": (["007 min", "120 min"], None),
    "telephones": (["612 345 678", "698 765 432"], None),
    "times": (["10:30", "11:30"], None),
    "versions": (["1.2.3", "1.2.4"], None),
    "words": (["one", "two"], None),
    "not finite": ([f"{'9' * 400} km", "3 km"], None),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("stage_bytes", [1, 1 << 20], ids=["many stages", "one stage"])
def test_the_form_of_a_column(name: str, stage_bytes: int) -> None:
    values, expected = COLUMNS[name]
    table = open_table(pa.table({"it": values, "beside": ["x"] * len(values)}))
    best = profile_table(table, stage_bytes).columns[0].written_numbers.best
    assert (None if best is None else best.form) == expected


@pytest.mark.parametrize("stage_bytes", [1, 1 << 20], ids=["many stages", "one stage"])
@pytest.mark.parametrize("source", ["typed", "csv"])
def test_numbers_beside_other_text(stage_bytes: int, source: str, tmp_path: Path) -> None:
    values = ["12", "unknown", "13.5", "-2e1", "12", None, "n/a", "unknown"]
    table: Any = pa.table({"it": values, "beside": ["x"] * len(values)})
    if source == "csv":
        pyarrow.csv.write_csv(table, tmp_path / "made.csv")
        table = tmp_path / "made.csv"
    forms = profile_table(open_table(table), stage_bytes).columns[0].written_numbers
    best = forms.best_of_most
    assert forms.best is None
    assert best is not None
    assert (best.form, best.low, best.high, best.rows, best.junk_rows) == ("1.5", -20, 13.5, 4, 3)
    assert best.junk_texts[:2] == ["unknown", "n/a"]


def test_what_the_numbers_are() -> None:
    table = pa.table({"price": ["$1,234.50", None, "-$7"]})
    best = profile_table(open_table(table)).columns[0].written_numbers.best
    assert best is not None
    assert (best.low, best.high) == (-7, 1234.5)
