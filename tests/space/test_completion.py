"""The probabilities of a hidden group's candidates, against loops."""

from __future__ import annotations

import datetime
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.space.calibration import GroupCalibration, mean_items
from feat2vec.space.completer import Completer, check_completed_group
from feat2vec.space.completion import in_list, number_guesses, top_places
from feat2vec.space.held_out_values import without_some
from feat2vec.space.hidden_group import NumberColumn, bin_ends, quantile_values
from feat2vec.space.run_completion import completion_of_run, kept_rows_of_run
from tests import reference
from tests.short_trainings import train
from tests.space import tables
from tests.space.completed_films import SCHEMA, films

CALIBRATION = GroupCalibration(popularity=0.7, weights={"year": 0.4, "score": 1.8, "who": -0.3})
ROW: dict[str, Any] = {"who": "Agnès Varda", "tags": ["t1"], "year": 1999, "score": 0.5, "title": "The 1 of Tōkyō 2"}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("target", ["who", "tags", "score", "title"])
def test_probabilities_of_levels_are_those_of_a_loop(vectors_run: feat2vec.Run, target: str) -> None:
    given = [name for name in ("who", "tags", "year", "score") if name != target]
    completer = Completer(vectors_run.fitted, vectors_run.model, target, CALIBRATION, given)
    row = pa.table({column: [value] for column, value in ROW.items()})
    (batch,) = completer.batches(row)
    own = {}
    for name in given:
        value = "1.0" if name == "score" else str(ROW[name][0] if name == "tags" else ROW[name])
        entry = next(iter(vectors_run.fitted.entries(row)))[name].rows[0]
        entries = np.asarray(vectors_run.fitted.values[name].entries)
        vocabulary = vectors_run.fitted.codecs[name].vocabulary
        place = int(np.argmax((entries == entry).all(axis=1)))
        if vocabulary is not None:
            place = vocabulary.keys.to_pylist().index(value)
        own[name] = tables.parts(vectors_run, name)[place]
    products = []
    for candidate in tables.parts(vectors_run, target):
        pairs = [tables.met(vectors_run, own[name], candidate) for name in given]
        products.append([float(a @ b) for a, b in pairs])
    linear = completer.hidden.linear.tolist()
    assert any(linear)  # the models have biases
    weights = [CALIBRATION.weight(name) for name in given]
    counts = completer.hidden.counts.tolist()
    expected = reference.completion_probabilities(products, linear, counts, weights, 0.7)
    np.testing.assert_allclose(np.exp(batch.log_probabilities[0]), expected, rtol=2e-5)
    np.testing.assert_array_equal(batch.findable, [True])


def test_unit_candidates_and_temperature(completed_run: feat2vec.Run) -> None:
    completer = Completer(completed_run.fitted, completed_run.vector_source, "director")
    assert completer.calibration.popularity == 0.75  # learnt without the correction: a score lacks log Q2
    table = films(30, seed=1)
    blocks = list(completer.batches(table, scores_in_memory=40))
    assert len(blocks) > 5
    probabilities = np.exp(np.concatenate([block.log_probabilities for block in blocks]))
    vectors = completed_run.embed(table, by_group=True)
    candidates = completed_run.vectors("director").vectors.astype(np.float64)
    counts = completer.hidden.counts.tolist()
    for row in range(30):
        products = [[float(vectors[name][row] @ v / np.linalg.norm(v)) for name in completer.given] for v in candidates]
        expected = reference.completion_probabilities(products, [0.0] * len(counts), counts, [1] * 3, 0.75, 0.3)
        np.testing.assert_allclose(probabilities[row], expected, rtol=1e-4)


def test_the_prior_of_many_candidates_is_that_of_all_at_once(
    vectors_run: feat2vec.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is computed in pieces, and rounded once."""
    completer = Completer(vectors_run.fitted, vectors_run.model, "who", CALIBRATION, ["tags"])
    hidden, popularity = completer.hidden, CALIBRATION.popularity
    expected = completer.scale * hidden.linear.astype(np.float64) + popularity * np.log(hidden.counts + 1.0)
    monkeypatch.setattr("feat2vec.space.completer.CANDIDATES_AT_ONCE", 3)
    assert len(expected) > 6
    np.testing.assert_array_equal(completer.prior, expected)
    np.testing.assert_array_equal(completer.short_prior, expected.astype(np.float32))
    other = completer.with_numbers(replace(CALIBRATION, popularity=popularity + 1))
    np.testing.assert_allclose(other.short_prior, expected + np.log(hidden.counts + 1.0), rtol=1e-5)


def test_likely_values_of_rows(completed_run: feat2vec.Run) -> None:
    row = {"genre": "comedy", "actors": ["a2", "a5"], "year": 1937, "director": "d3"}
    (completed,) = completed_run.complete(row, "director", n=3)
    assert completed.values[0][0] == "d1"
    assert completed.values[0][1] > 0.5
    shares = [probability for _, probability in completed.values]
    assert shares == sorted(shares, reverse=True)
    assert len(shares) == 3
    (actors,) = completed_run.complete({"director": "d1"}, "actors", n=40)
    assert {name for name, _ in actors.values[:4]} == {"a2", "a3", "a4", "a5"}
    total = sum(probability for _, probability in actors.values)  # of independent probabilities
    assert total == pytest.approx(mean_items(completed_run.fitted, "actors"), rel=0.3)
    (decade,) = completed_run.complete({"director": "d1"}, "decade")
    guess = decade.numbers["year"]
    assert 1930 <= float(guess.quantiles["10"]) < float(guess.quantiles["50"]) < float(guess.quantiles["90"])
    assert abs(float(guess.mean) - 1938.5) < 6
    assert decade.facts()["numbers"]["year"]["mean"] == guess.mean
    table = pd.DataFrame({"genre": ["drama", "opera"], "year": [1950, None]})
    known, unknown = completed_run.complete(table, "director", n=1)
    assert len(known.values) == 1
    assert unknown.values == ()


def test_memory_and_file_say_the_same(completed_run: feat2vec.Run) -> None:
    table = films(40, seed=2)
    for group in SCHEMA["groups"]:
        calibration = completion_of_run(completed_run)[group]
        kept_rows = kept_rows_of_run(completed_run)
        in_memory = Completer(completed_run.fitted, completed_run.model, group, calibration, kept_rows=kept_rows)
        assert calibration.values > 0  # they are fitted
        for first, second in zip(in_memory.batches(table), completed_run.completer(group).batches(table), strict=True):
            np.testing.assert_allclose(first.log_probabilities, second.log_probabilities, atol=2e-5)


def test_a_row_may_be_as_the_table_has_it(completed_run: feat2vec.Run) -> None:
    """With columns that are in no group, with what pandas has for missing values, as a Series and in a list."""
    expected = completed_run.complete({"genre": "drama", "year": 1950}, "director")
    missing = {"director": float("nan"), "actors": pd.NA, "seen": pd.NaT}
    table_row = {"genre": "drama", "year": 1950, "price": 3.5, **missing}
    assert completed_run.complete(table_row, "director") == expected
    assert completed_run.complete(pd.Series(table_row), "director") == expected
    rows = [table_row, {"genre": "comedy"}]
    completed = completed_run.complete(rows, "director")
    of_loop = [completed_run.complete(row, "director")[0] for row in rows]
    for of_list, alone in zip(completed, of_loop, strict=True):
        assert [value for value, _ in of_list.values] == [value for value, _ in alone.values]
        np.testing.assert_allclose([p for _, p in of_list.values], [p for _, p in alone.values], rtol=1e-3)


def test_messages(completed_run: feat2vec.Run) -> None:
    row = {"genre": "drama"}
    with pytest.raises(UserError, match=r"there is no group 'directr'; did you mean 'director'\?"):
        completed_run.complete(row, "directr")
    with pytest.raises(UserError, match=r"row: the run knows no column 'genr'; did you mean 'genre'\?"):
        completed_run.complete({"genr": "drama"}, "director")
    with pytest.raises(UserError, match="row: holds nothing to complete 'director' by; it is found by the columns"):
        completed_run.complete({"director": "d1"}, "director")
    with pytest.raises(UserError, match="row: training has seen none of its values, of genre"):
        completed_run.complete({"genre": "opera"}, "director")
    with pytest.raises(UserError, match="n: is how many values are named, 1 or more; received 0"):
        completed_run.complete(row, "director", n=0)
    for wrong in (1.5, "3", True):
        with pytest.raises(UserError, match="n: is how many values are named, 1 or more; received "):
            completed_run.complete(row, "director", n=wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="year"):
        completed_run.complete({"year": "long ago"}, "director")
    with pytest.raises(UserError, match="rows: a column has values of no common type"):
        completed_run.complete([{"genre": "drama"}, {"genre": 3}], "director")
    schema = feat2vec.read_schema({**SCHEMA, "objective": {"type": "logistic", "target": "hit"}})
    with pytest.raises(UserError, match=r"the run predicts 'hit' .* `predict` gives 'hit'"):
        check_completed_group(schema, "director")


def test_quantiles_of_many_numbers() -> None:
    rng = np.random.default_rng(0)
    numbers, counts = rng.normal(size=(500, 1)), rng.integers(1, 9, 500)
    places, totals = quantile_values(numbers, counts, 50)
    assert len(places) == len(totals) == 50
    assert totals.sum() == counts.sum()
    chosen = numbers[places, 0]
    assert (np.diff(chosen) > 0).all()
    assert totals.max() < counts.sum() / 50 + 2 * counts.max()
    repeated = np.sort(np.repeat(numbers[:, 0], counts))
    middle = repeated[(np.arange(50) * 2 + 1) * len(repeated) // 100]
    assert np.abs(chosen - middle)[2:-2].max() < 0.1


def test_numbers_of_bins() -> None:
    low, high, mean = bin_ends([0.0, 2.0, 6.0], [-3.0, 1.5, 3.0, 10.0])
    assert (low.tolist(), high.tolist(), mean.tolist()) == ([-6, 0, 2, 6], [0, 2, 6, 14], [-3, 1.5, 3, 10])
    low, high, mean = bin_ends([0.0, 2.0, 6.0])
    assert (low.tolist(), high.tolist(), mean.tolist()) == ([-2, 0, 2, 6], [0, 2, 6, 10], [-1, 1, 4, 8])
    assert [part.tolist() for part in bin_ends([], [4.0])] == [[4.0]] * 3
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(4), 20)
    order = np.array([2, 0, 3, 1])  # candidates need not be in the order of their numbers
    column = NumberColumn("x", False, low[order], high[order], mean[order])
    guesses = number_guesses(column, probabilities, (0.1, 0.5, 0.9))
    for row, of_row in enumerate(probabilities):
        bins = [(low[o], high[o], p) for o, p in zip(order, of_row, strict=True)]
        expected = [reference.number_quantile(bins, share) for share in (0.1, 0.5, 0.9)]
        np.testing.assert_allclose(guesses.quantiles[row], expected)
        np.testing.assert_allclose(guesses.means[row], of_row @ mean[order])


def test_means_of_bins_are_those_of_training(completed_run: feat2vec.Run) -> None:
    codec: Any = completed_run.fitted.codecs["decade"]
    years = np.array(films()["year"].to_pylist())
    bins = np.digitize(years, codec.edges)
    expected = [years[bins == i].mean() for i in range(len(codec.edges) + 1)]
    np.testing.assert_allclose(codec.means, expected)


def test_dates() -> None:
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(days=i % 5) for i in range(60)]
    table = pa.table({"day": days, "kind": [f"k{i % 5}" for i in range(60)]})
    schema = {"version": 1, "groups": {"day": {"column": "day", "extractor": "numeric"}, "kind": {"column": "kind"}}}
    run = feat2vec.Run.of_model(feat2vec.Feat2Vec.from_encoder(feat2vec.fit(schema, table).encoder))
    (completed,) = run.complete({"kind": "k1"}, "day")
    assert str(completed.numbers["day"].quantiles["50"]).startswith("2020-01-0")
    assert str(completed.numbers["day"].mean).startswith("2020-01-0")


def test_probability_of_lists_and_places() -> None:
    shares = np.array([0.0, 0.01, 0.5, 1.0])
    expected = [reference.list_probability(share, 0.7, 1.2) for share in shares]
    np.testing.assert_allclose(in_list(shares, GroupCalibration(list_size=0.7, list_slope=1.2)), expected)
    scores = np.random.default_rng(0).integers(0, 5, (20, 9)).astype(float)
    for n in (1, 4, 9, 20):
        expected_places = np.argsort(-scores, axis=1, kind="stable")[:, :n]
        np.testing.assert_array_equal(top_places(scores, n), expected_places)


def test_what_is_not_calibrated_is_said(completed_run: feat2vec.Run, vectors_run: feat2vec.Run) -> None:
    """A run that held out too few rows with a value of the group, and one that held out enough."""
    (fitted,) = completed_run.complete({"genre": "drama"}, "director", 1)
    assert fitted.is_calibrated
    assert fitted.facts()["calibrated"]
    (unsure,) = vectors_run.complete({"tags": ["t1"]}, "who", 1)
    assert not unsure.is_calibrated
    assert not unsure.facts()["calibrated"]


def test_lookups_are_completed_without_tensorflow(completed_run: feat2vec.Run) -> None:
    import subprocess

    code = (
        f"import sys, feat2vec; run = feat2vec.load({str(completed_run.folder)!r});"
        "print(run.complete({'genre': 'drama'}, 'director', 1)[0].values[0][0]);"
        "assert 'tensorflow' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_row_may_have_columns_that_the_run_does_not_use(completed_run: feat2vec.Run) -> None:
    row = {"director": "d1", "genre": "drama", "year": 1936}
    (expected,) = completed_run.complete(row, "genre")
    (completed,) = completed_run.complete({**row, "genre_code": 3, "note": "x"}, "genre")  # a whole row of the table
    assert completed == expected
    with pytest.raises(UserError, match="knows no column 'genre_code'; did you mean 'genre'"):
        completed_run.complete({"director": "d1", "genre_code": 3}, "actors")
    manifest = {**completed_run.manifest, "unused_columns": ["genre_code", "year"]}
    run = feat2vec.Run(completed_run.folder, manifest, completed_run.metrics)
    without_genre = {"director": "d1", "year": 1936, "genre_code": 3}
    assert run.complete(pd.Series(without_genre), "genre") == [expected]
    assert run.without_unused_columns(without_genre) == {"director": "d1", "year": 1936}
    with pytest.raises(UserError, match="knows no column 'genr'; did you mean 'genre'"):
        run.complete({"director": "d1", "genr": "drama"}, "actors")


def test_the_parts_of_a_date_have_probabilities_of_their_own() -> None:
    rng = np.random.default_rng(0)
    days = [datetime.date(2018 + int(year), 1 + int(month), 3) for year, month in rng.integers(0, 3, (300, 2))]
    table = pa.table({"who": rng.integers(0, 4, 300).astype(str), "sold": days})
    sold = {"column": "sold", "extractor": {"type": "lookup", "parts": ["year", "month"]}}
    schema = {
        "version": 1, "model": {"dim": 4}, "groups": {"who": {"column": "who"}, "sold": sold},
        "objective": {"type": "contrastive"}, "training": {"epochs": 2},
    }  # fmt: skip
    run = train(schema, table, quiet=True)
    (completed,) = run.complete({"who": "1"}, "sold", n=99)
    for part in ("year", "month"):
        probabilities = [probability for name, probability in completed.values if name.startswith(f"{part}=")]
        assert len(probabilities) == 3
        assert sum(probabilities) == pytest.approx(1)
        assert max(probabilities) < 0.7  # nothing tells them
    every = [probability for _, probability in completed.values]
    assert every == sorted(every, reverse=True)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_held_out_rows_that_stand_there_twice_have_less_the_second_time(dtype: Any) -> None:
    originals = np.sort(np.concatenate([np.arange(3000), np.arange(0, 3000, 3)]))
    entries = np.stack([originals + 1, originals + 2], axis=1).astype(dtype)
    given = without_some(entries, originals, np.random.default_rng(0))
    is_second = np.append(False, np.diff(originals) == 0)
    assert is_second.sum() == 1000
    np.testing.assert_array_equal(given[~is_second], entries[~is_second])
    is_missing = np.isnan(given[is_second]) if dtype == np.float32 else given[is_second] == 0
    np.testing.assert_array_equal(is_missing[:, 0], is_missing[:, 1])  # a group as a whole
    assert 0.45 < is_missing[:, 0].mean() < 0.55
    np.testing.assert_array_equal(given[is_second][~is_missing], entries[is_second][~is_missing])
