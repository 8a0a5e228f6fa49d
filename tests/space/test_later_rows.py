"""Rows of a time that training has not seen are completed by numbers of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.pages.report import report
from feat2vec.space.calibration import GroupCalibration, completion_text, read_completion
from feat2vec.space.completer import Completer
from feat2vec.space.held_out_values import as_new_rows
from feat2vec.space.run_completion import completion_of_run, kept_rows_of_run
from tests.pages.test_report import Page
from tests.short_trainings import train

YEARS, ITEMS = 20, 12
GROUPS = ("item", "brand", "shop", "year")
SCHEMA: dict[str, Any] = {
    "version": 1, "model": {"dim": 16}, "groups": {name: {"column": name} for name in GROUPS},
    "noise": {"sharing": "batch", "negatives": 24},
    "objective": {"type": "contrastive", "unit": True, "temperature": 0.2, "correction": True},
    "training": {
        "epochs": 16, "batch_size": 128, "time": "year", "refit": "continue", "patience": 0,
        "optimizer": {"type": "adagrad", "learning_rate": 0.3},
    },
}  # fmt: skip


def sales(rows: int, first_year: int, last_year: int, seed: int = 0) -> pa.Table:
    """What a shop sells changes every year, what a brand makes does not; of half of the rows the brand says nothing."""
    rng = np.random.default_rng(seed)
    item, year = rng.integers(0, ITEMS, rows), rng.integers(first_year, last_year + 1, rows)
    shop = (item + 5 * year) % ITEMS + ITEMS * (year % 4)
    brand = np.where(rng.random(rows) < 0.5, item, rng.integers(0, ITEMS, rows))
    columns = {"item": item, "brand": brand, "shop": shop, "year": year + 2000}
    return pa.table({name: pa.array(values.astype(str)) for name, values in columns.items()})


@pytest.fixture(scope="module")
def run() -> feat2vec.Run:
    return train(SCHEMA, sales(3000, 0, YEARS - 1), quiet=True)


def log_loss(run: feat2vec.Run, rows: pa.Table, calibration: GroupCalibration) -> float:
    completer = Completer(run.fitted, run.vector_source, "item", calibration, kept_rows=kept_rows_of_run(run))
    log_p = np.concatenate([batch.log_probabilities for batch in completer.batches(rows)])
    vocabulary = run.fitted.codecs["item"].vocabulary
    assert vocabulary is not None
    return -float(log_p[np.arange(len(rows)), np.asarray(vocabulary.ids(rows["item"].combine_chunks())) - 2].mean())


def test_what_does_not_last_is_not_believed_of_later_rows(run: feat2vec.Run) -> None:
    """Shops tell the items of the years that training has seen, and mislead in later ones."""
    assert (run.metrics["rows"], run.metrics["held_out"], run.metrics["held_out_last"]) == (3000, 256, 439)
    calibration = completion_of_run(run)["item"]
    assert calibration.later is not None
    later, known = sales(400, YEARS, YEARS + 3, seed=1), sales(400, 0, YEARS - 1, seed=2)
    as_others = replace(calibration, later=None)
    assert log_loss(run, later, calibration) < log_loss(run, later, as_others) - 0.1
    assert log_loss(run, known, calibration) == log_loss(run, known, as_others)
    assert log_loss(run, known, calibration) < log_loss(run, known, calibration.later) - 0.1


def test_each_row_has_the_probabilities_of_its_own_numbers(run: feat2vec.Run) -> None:
    calibration = completion_of_run(run)["item"]
    assert calibration.later is not None
    rows = pa.concat_tables([sales(7, 3, 9), sales(6, 40, 50), sales(5, 2, 9)])
    log_p = {}
    kept_rows = kept_rows_of_run(run)
    for name, numbers in {
        "both": calibration,
        "known": replace(calibration, later=None),
        "later": calibration.later,
    }.items():
        completer = Completer(run.fitted, run.vector_source, "item", numbers, kept_rows=kept_rows)
        log_p[name] = np.concatenate(
            [batch.log_probabilities for batch in completer.batches(rows, scores_in_memory=60)]
        )
        queries = completer.queries_of_table(rows)
        np.testing.assert_allclose(completer.log_probabilities(queries), log_p[name], atol=1e-5)
        scores = completer.scores(queries)
        np.testing.assert_array_equal(scores.argsort(axis=1)[:, -3:], log_p[name].argsort(axis=1)[:, -3:])
    expected = np.concatenate([log_p["known"][:7], log_p["later"][7:13], log_p["known"][13:]])
    np.testing.assert_allclose(log_p["both"], expected, atol=1e-6)
    without_year = rows.drop_columns(["year"])
    completer = Completer(run.fitted, run.vector_source, "item", calibration, ["brand", "shop"], kept_rows=kept_rows)
    by_known = Completer(
        run.fitted, run.vector_source, "item", replace(calibration, later=None), ["brand", "shop"], kept_rows=kept_rows
    )
    np.testing.assert_array_equal(
        completer.log_probabilities(completer.queries_of_table(without_year)),
        by_known.log_probabilities(by_known.queries_of_table(without_year)),
    )


def test_numbers_of_later_rows_are_read_back(run: feat2vec.Run, tmp_path: Any) -> None:
    completion = completion_of_run(run)
    assert completion["year"].later is None  # the time is hidden
    (tmp_path / "completion.json").write_text(completion_text(completion))
    manifest = {name: value for name, value in run.manifest.items() if name != "sha256"}
    assert read_completion(tmp_path, manifest) == completion


def test_a_report_says_how_the_last_rows_are_completed(run: feat2vec.Run, tmp_path: Any) -> None:
    facts = report(run, tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    head, *rows = page.tables["completion of later rows"]
    assert (facts["time"], [row[0] for row in rows]) == ("year", ["item", "brand", "shop"])
    calibration = completion_of_run(run)["item"]
    assert calibration.later is not None
    assert head[2:4] == ["log loss", "of any time"]
    assert float(rows[0][2]) == pytest.approx(calibration.later.log_loss, rel=1e-3)
    assert float(rows[0][3]) == pytest.approx(calibration.log_loss, rel=1e-3)
    assert "By year, the last rows were held out of training, too" in page.text
    assert page.text.count("true of the last rows") == 3


def test_keys_that_are_not_learnt_are_as_in_new_rows(run: feat2vec.Run) -> None:
    encoder = run.fitted
    rows = sales(50, 0, 9, seed=3)
    (batch,) = encoder.entries(rows)
    counts = {name: np.ones(len(values.entries), np.int64) for name, values in encoder.values.items()}
    vocabulary = encoder.codecs["shop"].vocabulary
    assert vocabulary is not None
    lost = {key for key in vocabulary.keys.to_pylist() if key.endswith("1")}
    entries_of_values = np.asarray(encoder.values["shop"].entries)
    for place, (id_, *_) in enumerate(entries_of_values.tolist()):
        if vocabulary.key(id_) in lost:
            counts["shop"][place] = 0
    given = {name: np.asarray(entries.rows) for name, entries in batch.items()}
    as_new = as_new_rows(encoder, given, counts, ids_at_once=7)
    for name in GROUPS:
        keys = rows[name].to_pylist()
        is_lost = np.array([name == "shop" and key in lost for key in keys])
        np.testing.assert_array_equal(as_new[name][:, 0], np.where(is_lost, 1, given[name][:, 0]))
    assert 0 < sum(key in lost for key in rows["shop"].to_pylist()) < 50
