"""A run beside baselines: the lines of the table, and how far a bound was missed."""

from __future__ import annotations

import pytest

from feat2vec.recipes.comparison import Comparison, metric_text
from feat2vec.recipes.recipe import Bound, Evaluation

EVALUATION = Evaluation.model_validate({"task": "rank", "target": "director", "beside": ["popularity"]})
METRICS = {"n": 1000, "given": ["cast"], "mpr": 0.25, "mrr": None}


def comparison(**expected: Bound) -> Comparison:
    return Comparison(EVALUATION, METRICS, {"popularity": {"n": 1000, "mpr": 0.5}}, expected)


def test_a_line_has_the_metric_of_each_method_and_what_is_expected() -> None:
    title, heads, mpr, mrr = comparison(mpr=Bound(max=0.8, of="popularity")).lines()
    assert title == "\nrank director by cast: 1,000 of test"
    assert heads.split() == ["feat2vec", "popularity"]
    assert mpr.split() == ["mpr", "0.25", "0.5", "expected", "<=", "0.4"]
    assert mrr.split() == ["mrr", "-", "-"]


def test_a_miss_says_by_how_much() -> None:
    assert list(comparison(mpr=Bound(max=0.8, of="popularity")).misses("director")) == []
    assert list(comparison(mpr=Bound(max=0.2), mrr=Bound(min=0.1)).misses("director")) == [
        "rank director: mpr is 0.25, expected <= 0.2, by 0.05",
        "rank director: mrr is -, expected >= 0.1",
    ]


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (0.123456, "0.1235"), (7, "7"), ({"a": 1}, '{"a": 1}')])
def test_a_metric_is_short(value: object, text: str) -> None:
    assert metric_text(value) == text
