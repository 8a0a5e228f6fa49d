"""What the nearest training rows say, against loops; and how much of it is believed."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

import feat2vec
from feat2vec.errors import UserError
from feat2vec.run import train
from feat2vec.space.completion_calibration import fit_completion, rows_to_keep, with_vectors
from feat2vec.space.geometry import dense, extract_groups
from feat2vec.space.neighbour_fit import PowersLoss, fitted_powers
from feat2vec.space.neighbours import (
    EXPECTED,
    FEATURES,
    NEAREST,
    NEIGHBOURS_FILE,
    SMALLEST_SHARE,
    TIES,
    WIDTHS,
    Neighbours,
    RowItems,
    kept_rows_bytes,
    nearest_columns,
    nth_largest,
    read_kept_rows,
    side_by_side,
    unit_rows,
)
from feat2vec.space.run_completion import completer_of_run, kept_rows_of_run
from tests import reference, short_trainings
from tests.space.completed_films import films

NUMBERED = {
    "version": 1,
    "model": {"dim": 4},
    "groups": {
        "director": {"column": "director"},
        "actors": {"column": "actors", "extractor": {"type": "lookup", "multi": True}},
        "year": {"column": "year", "extractor": {"type": "numeric", "scale": "quantile", "pieces": 4}},
    },
    "noise": {"negatives": 8, "sharing": "batch", "lists": "items"},
    "objective": {"type": "contrastive", "unit": True, "temperature": 0.3},
    "training": {"epochs": 4, "batch_size": 64},
}


@pytest.fixture(scope="module")
def numbered_run(tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    return feat2vec.load(train(NUMBERED, films(), tmp_path_factory.mktemp("run") / "run", quiet=True).folder)


def items_of_row(row: pa.Table, edges: list[float]) -> list[str]:
    """The keys of the actors, and the class of the year."""
    items = [f"actor {actor}" for actor in row["actors"][0].as_py()]
    year = row["year"][0].as_py()
    return [*items, f"year {sum(edge < year for edge in edges)}"]


def test_evidence_is_that_of_loops(numbered_run: feat2vec.Run) -> None:
    """TF-IDF and vectors of the rows by actors and year, for the director that is hidden."""
    kept = kept_rows_of_run(numbered_run)
    assert kept is not None
    assert len(kept.value_ids) == 400  # all rows: the ones that were held out, too
    given = ["actors", "year"]
    neighbours, completer = Neighbours(kept, "director", given), completer_of_run(numbered_run, "director")
    queries = films(9, seed=5)
    batch = {name: dense(entries) for name, entries in next(iter(numbered_run.fitted.entries(queries))).items()}
    levels = numbered_run.schema.model.levels
    vectors = unit_rows(side_by_side(completer.weighted(extract_groups(completer.model, batch)), levels))
    kept_vectors = completer.vectors_of_kept(neighbours)
    evidence = neighbours.evidence(neighbours.row_items.vectors(batch), vectors, kept_vectors)
    table = films()
    has_director = [i for i in range(400) if table["director"][i].as_py() is not None]
    assert neighbours.places.tolist() == has_director
    years = [table["year"][i].as_py() for i in has_director]
    edges = np.quantile(years, np.arange(1, 10) / 10).tolist()
    names = completer.hidden.names(range(len(completer.hidden)))
    train_items = [items_of_row(table.slice(i, 1), edges) for i in has_director]
    held = [names.index(table["director"][i].as_py()) for i in has_director]
    for q in range(9):
        query = items_of_row(queries.slice(q, 1), edges)
        literal = reference.tfidf_cosines(train_items, query)
        cosines = (kept_vectors.astype(np.float64) @ vectors[q].astype(np.float64)).tolist()
        weighings = [(literal, literal), (literal, [c**3 for c in literal])]
        weighings += [(cosines, [math.exp((c - max(cosines)) / width) for c in cosines]) for width in WIDTHS]
        for matrix, (similarities, weights) in zip(evidence, weighings, strict=True):
            said = matrix[q].toarray()[0]
            bound = sorted(similarities)[-NEAREST]
            shares = [0.0] * len(names)
            nearest = [i for i, s in enumerate(similarities) if s >= bound - 1e-6]
            for i in nearest:
                shares[held[i]] += weights[i] / sum(weights[j] for j in nearest)
            np.testing.assert_allclose(said, [math.log1p(s / SMALLEST_SHARE) for s in shares], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("columns", [3, 60, 1023, 1024, 1500, 5000])
def test_the_nearest_are_those_of_sorted_rows(columns: int) -> None:
    """Of short rows and of rows in parts; rows of zeros, and with few numbers above the ties."""
    rng = np.random.default_rng(columns)
    similarities = rng.normal(size=(7, columns)).astype(np.float32)
    similarities[1] = 0
    similarities[2, 4:] = 0.25
    similarities[3] = np.sort(similarities[3])
    nearest = nearest_columns(similarities)
    for row, of_row in enumerate(similarities):
        bound = sorted(of_row.tolist())[-min(NEAREST, columns)]
        expected = [i for i, s in enumerate(of_row.tolist()) if s >= bound - TIES]
        is_of_row = nearest.rows == row
        assert nearest.columns[is_of_row].tolist() == expected
        np.testing.assert_array_equal(nearest.similarities[is_of_row], of_row[expected])
    for n in (1, 2, columns):
        np.testing.assert_array_equal(nth_largest(similarities, n), np.sort(similarities, axis=1)[:, -n])


def test_vectors_of_rows_are_sums_of_those_of_their_values(numbered_run: feat2vec.Run) -> None:
    kept, completer = kept_rows_of_run(numbered_run), completer_of_run(numbered_run, "director")
    assert kept is not None
    kept.value_ids[::5, 1] = -1  # actors that are missing
    completer = completer.with_numbers(replace(completer.calibration, weights={"actors": 0.3, "year": -1.7}))
    row_by_row = completer.vectors_of_kept(Neighbours(kept, "director", completer.given))
    by_values = completer.vectors_of_kept(Neighbours(with_vectors(kept, completer.model), "director", completer.given))
    np.testing.assert_allclose(by_values, row_by_row, atol=1e-6)


def test_a_row_says_each_item_of_its_list(numbered_run: feat2vec.Run) -> None:
    kept = kept_rows_of_run(numbered_run)
    assert kept is not None
    neighbours = Neighbours(kept, "actors", ["director"])
    assert neighbours.values.sum(axis=1).ravel().tolist()[0] == [len(set(a)) for a in films()["actors"].to_pylist()]


def test_missing_numbers_and_new_keys_are_no_items(numbered_run: feat2vec.Run) -> None:
    kept = kept_rows_of_run(numbered_run)
    assert kept is not None
    every = np.arange(400)
    row_items = RowItems(
        numbered_run.fitted, ["actors", "year"], {name: kept.entries(name, every) for name in ("actors", "year")}
    )
    new = pa.table({"director": ["?"], "actors": [["nobody"]], "year": pa.array([None], pa.int64())})
    batch = {name: dense(entries) for name, entries in next(iter(numbered_run.fitted.entries(new))).items()}
    assert row_items.vectors(batch).nnz == 0


def test_probabilities_are_products_of_powers(numbered_run: feat2vec.Run) -> None:
    completer = completer_of_run(numbered_run, "director")
    assert len(completer.calibration.neighbours) == 1 + FEATURES
    queries = completer.queries_of_table(films(20, seed=8))
    log_p = completer.log_probabilities(queries)
    np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1.0)
    of_space = completer.products(queries.sums) + completer.prior
    vectors = unit_rows(side_by_side(queries.sums, numbered_run.schema.model.levels))
    assert completer.neighbours is not None
    evidence = completer.neighbours.evidence(queries.items, vectors, completer.kept_vectors)
    powers = completer.calibration.neighbours
    logits = powers[0] * of_space + sum(p * matrix.toarray() for p, matrix in zip(powers[1:], evidence, strict=True))
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(log_p, logits, atol=1e-4)
    np.testing.assert_allclose(np.diff(completer.scores(queries)), np.diff(log_p), atol=1e-4)
    some = queries.take(slice(3, 9))
    np.testing.assert_allclose(completer.log_probabilities(some), log_p[3:9], atol=1e-5)


def drawn_evidence(rows: int = 60, candidates: int = 12) -> tuple[Any, list[Any], Any]:
    """Log p of the space, what the nearest rows say of a few candidates of most rows, and values drawn by both."""
    rng = np.random.default_rng(0)
    of_space = rng.normal(size=(rows, candidates)).astype(np.float32)
    of_space[:, -1] = -np.inf  # a candidate that training has not seen
    is_said = (rng.random((2, rows, candidates)) < 0.3) & (np.arange(rows) % 7 != 0)[:, None]
    evidence = [np.where(is_said[way // 2], rng.random((rows, candidates)), 0) for way in range(FEATURES)]
    for of_way in evidence:
        of_way[:, -1] = 0
    logits = 0.9 * of_space + 2.5 * evidence[1] + 1.5 * evidence[2]
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    truth = np.zeros((rows, candidates))
    for row, of_row in enumerate(shares):
        values = rng.choice(candidates, rng.integers(1, 3), p=of_row)
        truth[row, values] = 1 / len(set(values.tolist()))
    return of_space, [sparse.csr_matrix(of_way.astype(np.float32)) for of_way in evidence], sparse.csr_matrix(truth)


def powers_loss_loop(of_space: Any, evidence: Any, truth: Any, powers: Any, ridge: float) -> float:
    """The loss of powers, row by row and candidate by candidate."""
    total = ridge / 2 * sum((power - expected) ** 2 for power, expected in zip(powers, EXPECTED, strict=True))
    for row, of_row in enumerate(of_space.astype(float).tolist()):
        logits = []
        for candidate, log_p in enumerate(of_row):
            said = [float(of_way[row, candidate]) for of_way in evidence]
            logits.append(powers[0] * log_p + sum(p * s for p, s in zip(powers[1:], said, strict=True)))
        log_sum = math.log(sum(math.exp(logit) for logit in logits))
        for candidate in np.flatnonzero(truth[[row]].toarray()[0]).tolist():
            total -= float(truth[row, candidate]) * (logits[candidate] - log_sum)
    return total


@pytest.mark.parametrize("powers", [EXPECTED, (0.3, 0.0, 1.7, 0.2, 0.9)])
def test_the_loss_of_powers_is_that_of_a_loop(powers: Any) -> None:
    rows = drawn_evidence()
    loss, at = PowersLoss(*rows, ridge=2.0), np.array(powers)
    value, gradient, curvature = loss(at)
    assert value == pytest.approx(powers_loss_loop(*rows, at, 2.0), rel=1e-5)
    for i in range(len(powers)):
        step = np.eye(len(powers))[i] * 1e-2
        slope = powers_loss_loop(*rows, at + step, 2.0) - powers_loss_loop(*rows, at - step, 2.0)
        assert gradient[i] == pytest.approx(slope / 2e-2, rel=2e-3, abs=2e-3)
        np.testing.assert_allclose(curvature[i], (loss(at + step)[1] - loss(at - step)[1]) / 2e-2, rtol=0.01, atol=0.02)


def test_powers_are_fitted_by_maximum_likelihood() -> None:
    rows = drawn_evidence()
    powers = fitted_powers(*rows, ridge=1.0)
    assert (powers >= 0).all()
    loss = PowersLoss(*rows, ridge=1.0)
    best, gradient, _ = loss(powers)
    for i in range(len(powers)):
        moved = powers + np.eye(len(powers))[i] * 1e-2
        assert min(loss(p)[0] for p in (moved, np.maximum(2 * powers - moved, 0))) > best - 1e-3  # no better
        assert abs(gradient[i]) < 0.02 or (powers[i] < 1e-6 and gradient[i] > 0)


def test_powers_do_not_depend_on_where_the_fit_begins() -> None:
    rows = drawn_evidence()
    elsewhere = fitted_powers(*rows, ridge=1.0, start=(1.5, 0.0, 1.0, 1.0, 0.0))
    np.testing.assert_allclose(elsewhere, fitted_powers(*rows, ridge=1.0), atol=2e-3)


def test_few_rows_hardly_move_the_powers() -> None:
    of_space, evidence, truth = drawn_evidence(1, 3)
    assert np.abs(fitted_powers(of_space, evidence, truth) - EXPECTED).max() < 0.4


def test_rows_of_which_the_nearest_say_nothing_are_fitted_by_the_space() -> None:
    of_space, evidence, truth = drawn_evidence()
    nothing = [0 * of_way for of_way in evidence]
    powers = fitted_powers(of_space, nothing, truth)
    np.testing.assert_allclose(powers[1:], EXPECTED[1:], atol=1e-6)


@pytest.mark.slow
def test_what_rows_share_to_the_letter_is_found(tmp_path: Path) -> None:
    """A word of two rows names the owner: the space blurs it, its neighbours know it."""
    rng = np.random.default_rng(0)
    owners = [f"o{i // 3}" for i in range(900)]
    words = [f"w{i // 3} x{rng.integers(40)} y{rng.integers(40)} z{rng.integers(40)}" for i in range(900)]
    order = rng.permutation(900)
    rows = pa.table({"owner": [owners[i] for i in order], "note": [words[i] for i in order]})
    schema = {
        "version": 1, "model": {"dim": 4},
        "groups": {
            "owner": {"column": "owner"},
            "note": {"column": "note", "extractor": {"type": "lookup", "split": "words"}},
        },
        "noise": {"negatives": 16, "sharing": "batch", "lists": "items"},
        "objective": {"type": "contrastive", "unit": True, "temperature": 0.1},
        "training": {"epochs": 5, "batch_size": 64},
    }  # fmt: skip
    run = train(schema, rows.slice(0, 800), tmp_path / "run", quiet=True)
    top1 = {}
    for name in ("neighbours", "space"):
        completer = run.completer("owner")
        if name == "space":
            completer.neighbours = None
        scores = completer.scores(completer.queries_of_table(rows.slice(800)))
        best = completer.hidden.names(scores.argmax(axis=1))
        top1[name] = np.mean([a == b for a, b in zip(best, rows["owner"][800:].to_pylist(), strict=True)])
    assert top1["neighbours"] > 0.8 > 0.5 > top1["space"]


@pytest.mark.slow
def test_none_are_kept_if_none_are_asked_for(tmp_path: Path, numbered_run: feat2vec.Run) -> None:
    schema = {**NUMBERED, "training": {"epochs": 1, "neighbours": 0}}
    run = short_trainings.train(schema, films(300), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run" / NEIGHBOURS_FILE).exists()
    assert kept_rows_of_run(run) is None
    assert fit_completion(run, films(100, seed=3))["director"].neighbours == ()
    assert kept_rows_of_run(numbered_run) is not None


def test_so_many_are_kept(tmp_path: Path) -> None:
    rows = feat2vec.fit(feat2vec.read_schema(NUMBERED), films())
    fitted_to, kept = rows_to_keep(rows, 50)
    assert len(fitted_to) == 50
    assert kept.tolist() == fitted_to.tolist()
    fitted_to, kept = rows_to_keep(rows.without(np.arange(40), tmp_path / "left_out.npy"), 500)
    assert fitted_to.tolist() == list(range(40, 400))
    assert kept.tolist() == list(range(400))


@pytest.mark.parametrize("change", ["text", "float", "narrow", "unknown value", "pickle", "cut"])
def test_a_damaged_file_is_an_error(tmp_path: Path, numbered_run: feat2vec.Run, change: str) -> None:
    kept = kept_rows_of_run(numbered_run)
    assert kept is not None
    path = tmp_path / NEIGHBOURS_FILE
    content = kept_rows_bytes(kept.value_ids)
    path.write_bytes(content)
    read = read_kept_rows(tmp_path, {}, numbered_run.fitted)
    assert read is not None
    np.testing.assert_array_equal(read.value_ids, kept.value_ids)
    wrong = kept.value_ids.copy()
    wrong[3, 1] = 10**6
    damaged = {
        "text": b"not an array", "narrow": kept_rows_bytes(kept.value_ids[:, :2]),
        "unknown value": kept_rows_bytes(wrong), "cut": content[:-7],
    }  # fmt: skip
    if change in damaged:
        path.write_bytes(damaged[change])
    else:
        np.save(path, np.array([{}]) if change == "pickle" else kept.value_ids.astype(float), allow_pickle=True)
    with pytest.raises(UserError, match=NEIGHBOURS_FILE):
        read_kept_rows(tmp_path, {}, numbered_run.fitted)
