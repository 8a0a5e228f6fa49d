"""Which rows are held out: by the seed, a share of those that are learnt from, known to the encoder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.encode.encoder import Encoded
from feat2vec.encode.hashing import mixed, row_order
from feat2vec.errors import UserError
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.schema.reading import read_schema
from feat2vec.training.held_out import MOST_HELD_OUT, held_out_places, later_places, split_off, why_none_is_held_out
from tests.training.tables import table

OF_LABELS = read_schema(
    {"version": 1, "groups": {"a": {"column": "a"}}, "objective": {"type": "regression", "target": "good"}}
).objective
GROUPS = {name: {"column": name} for name in ("who", "place")}


def encoded(rows: pa.Table, **training: Any) -> Encoded:
    objective = {"objective": {"type": "regression", "target": "good"}} if "good" in rows.column_names else {}
    return feat2vec.fit({"version": 1, "groups": GROUPS, "training": training, "model": {"dim": 2}, **objective}, rows)


def without_targets(rows: pa.Table, places: list[int]) -> pa.Table:
    good = [None if i in places else value for i, value in enumerate(rows["good"].to_pylist())]
    return rows.select(["who", "place"]).append_column("good", pa.array(good))


def test_words_are_mixed_as_by_splitmix64() -> None:
    """By integers of Python, which do not overflow."""

    def mixed_slowly(word: int) -> int:
        word = (word + 0x9E3779B97F4A7C15) % 2**64
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
        return word ^ word >> 31

    words = [0, 1, 2**32, 2**64 - 1, 123456789]
    assert mixed(np.array(words, np.uint64)).tolist() == [mixed_slowly(word) for word in words]
    assert mixed_slowly(0) == 0xE220A8397B1DCDAF  # the first number of SplitMix64 with the seed 0
    assert row_order(np.array([5]), 7).tolist() == [mixed_slowly(5 ^ mixed_slowly(7))]


@pytest.mark.parametrize("share", [0.1, 0.35])
def test_the_first_rows_of_the_seed_s_order_are_held_out(share: float) -> None:
    missing = list(range(3, 250, 7))
    rows = encoded(without_targets(table(300), missing))
    learnt = [row for row in range(300) if row not in missing]
    for seed in (0, 1):
        in_order = sorted(learnt, key=lambda row: int(row_order(np.array([row]), seed)[0]))
        expected = sorted(in_order[: round(share * len(learnt))])
        for rows_per_piece in (17, 1000):
            places = held_out_places(rows, share, seed, rows_per_piece=rows_per_piece)
            assert places.tolist() == expected
        assert held_out_places(rows, share, seed, most=5).tolist() == sorted(in_order[:5])
    assert MOST_HELD_OUT == 20_000


def test_a_table_is_split_in_two_parts_whose_counts_are_those_of_the_rows_learnt_from(tmp_path: Path) -> None:
    missing = list(range(0, 300, 9))
    rows = encoded(without_targets(table(300), missing))
    split = split_off(rows, tmp_path / "left_out.npy")
    assert split is not None
    assert len(split.held_out) == len(split.places) == round(0.1 * rows.learnt_rows)
    learnt = np.setdiff1d(np.arange(300), [*missing, *split.places])
    assert split.learnt.learnt_rows == len(learnt)
    np.testing.assert_array_equal(split.learnt.left_out.all_of(rows.rows), rows.rows[learnt])
    np.testing.assert_array_equal(split.held_out.rows, rows.rows[split.places])
    np.testing.assert_array_equal(split.held_out.target, np.asarray(rows.target)[split.places])
    for g, name in enumerate(GROUPS):
        with_targets = rows.rows[:, g].copy()
        with_targets[split.places] = -1
        expected = np.bincount(with_targets[with_targets >= 0], minlength=len(rows.values[name].counts))
        np.testing.assert_array_equal(split.learnt.values[name].counts, expected)
        assert rows.encoder.values[name].counts.sum() == (rows.rows[:, g] >= 0).sum()


def test_no_batch_has_a_row_that_is_held_out(tmp_path: Path) -> None:
    rows = encoded(table(400).select(["who", "place"]), batch_size=32)
    split = split_off(rows, tmp_path / "left_out.npy")
    assert split is not None
    model = Feat2Vec.from_encoder(rows.encoder)
    model.learn_from(split.learnt)
    assert split.held_out.rows.tolist() == 16 * rows.rows[split.places].tolist()  # compared with noise 16 times
    batches = model.batches(split.learnt)
    batches.block, batches.chunk = 64, 16  # a table of several blocks
    seen = np.concatenate([value_ids for _, value_ids in batches.dataset()])
    learnt = np.delete(rows.rows, split.places, axis=0)
    assert sorted(map(tuple, seen.tolist())) == sorted(map(tuple, learnt.tolist()))


@pytest.mark.parametrize(
    ("rows", "options", "why"),
    [
        (199, {}, "199 are fewer than 200"),
        (200, {}, None),
        (300, {"validation": 0}, "training.validation is 0"),
    ],
)
def test_small_tables_are_not_split(rows: int, options: dict[str, Any], why: str | None, tmp_path: Path) -> None:
    of_table = encoded(table(rows).select(["who", "place"]), **options)
    assert why_none_is_held_out(of_table) == why
    assert (split_off(of_table, tmp_path / "left_out.npy") is None) == (why is not None)


def test_counts_of_pairs_are_not_split(tmp_path: Path) -> None:
    counts = table(300).append_column("n", pa.array(np.arange(300) + 1.0))
    schema = {"version": 1, "groups": GROUPS, "objective": {"type": "glove", "target": "n"}}
    why = why_none_is_held_out(feat2vec.fit(schema, counts, tmp_path / "rows"))
    assert why == "a row of glove is the count of a pair, which no other row knows"


def test_the_last_rows_are_those_of_the_rows_although_the_encoder_was_fitted_to_others() -> None:
    """As labelled rows are those of a run: their counts are not the value tables', and years may be new to it."""
    years = np.random.default_rng(1).permutation(np.repeat(np.arange(2000, 2008), [50, 50, 50, 40, 30, 20, 25, 35]))
    encoder = rows_of_years([*[2000] * 10, *[2005] * 900, *range(2000, 2007)]).encoder
    labels: list[float | None] = [None if i % 2 else 1.0 for i in range(300)]
    encoder = replace(encoder, schema=encoder.schema.model_copy(update={"objective": OF_LABELS}))
    rows = encoder.encode(pa.table({"who": ["0"] * 300, "year": years, "good": labels}))
    is_last = np.isin(years, [2005, 2006]) & (np.arange(300) % 2 == 0)  # nobody knows when 2007 was
    np.testing.assert_array_equal(later_places(rows, rows_per_piece=70), np.flatnonzero(is_last))
    assert 20 <= is_last.sum() <= 30


def rows_of_years(years: list[int], **training: Any) -> Encoded:
    names = [str(i % 7) for i in range(len(years))]
    groups = {name: {"column": name} for name in ("who", "year")}
    schema = {"version": 1, "groups": groups, "model": {"dim": 2}, "objective": {"type": "contrastive"}}
    training = {"time": "year", "seed": 3, **training}
    return feat2vec.fit({**schema, "training": training}, pa.table({"who": names, "year": years}))


@pytest.mark.parametrize(
    ("rows_of_year", "last"),
    [
        ([40] * 10, [9]),  # a tenth of the rows
        ([30] * 10, [9]),
        ([100, 100, 100, 30, 20, 10, 9, 8], [4, 5, 6, 7]),  # at least a tenth
        ([100, 100, 150, 40, 3], [3, 4]),
        ([100, 100, 90, 90, 23], [4]),  # with another year it would be more than two tenths
        ([100, 150, 150], []),
        ([150, 150, 150, 3], []),  # of which nothing can be fitted
    ],
)
def test_the_last_times_are_held_out_whole(rows_of_year: list[int], last: list[int], tmp_path: Path) -> None:
    years = np.repeat(np.arange(1990, 1990 + len(rows_of_year)), rows_of_year)
    years = np.random.default_rng(0).permutation(years)
    rows = rows_of_years(years.tolist())
    expected = np.flatnonzero(np.isin(years, np.array(last) + 1990))
    for rows_per_piece in (11, 10_000):
        np.testing.assert_array_equal(later_places(rows, rows_per_piece=rows_per_piece), expected)
    split = split_off(rows, tmp_path / "left_out.npy")
    assert split is not None
    np.testing.assert_array_equal(split.later, expected)
    assert not np.intersect1d(split.places, split.later).size
    assert len(split.places) == round(0.1 * (len(years) - len(expected)))
    learnt = np.setdiff1d(np.arange(len(years)), np.union1d(split.places, split.later))
    np.testing.assert_array_equal(split.learnt.left_out.all_of(rows.rows), rows.rows[learnt])
    counts = np.bincount(rows.rows[learnt, 0], minlength=7)
    np.testing.assert_array_equal(split.learnt.values["who"].counts, counts)


def test_a_group_of_names_tells_no_time() -> None:
    names, years = ["Eve", "Ann"] * 100, [1990] * 200
    groups = {name: {"column": name} for name in ("who", "year")}
    schema = {"version": 1, "groups": groups, "model": {"dim": 2}, "training": {"time": "who"}}
    rows = feat2vec.fit(schema, pa.table({"who": names, "year": years}))
    with pytest.raises(UserError, match="no value of 'who' is a number, a year or a date"):
        later_places(rows)


def test_no_more_rows_are_held_out_than_twice_the_most() -> None:
    years = np.repeat(np.arange(1990, 2020), 20)
    assert len(later_places(rows_of_years(years.tolist()), most=30)) == 40
    assert len(later_places(rows_of_years(years.tolist(), time=None))) == 0
