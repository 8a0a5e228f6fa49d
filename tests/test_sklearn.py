"""The transformer in scikit-learn's own hands."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import feat2vec
from feat2vec.sklearn import Feat2VecTransformer

pytestmark = pytest.mark.usefixtures("trainings_without_graphs")

SCHEMA: dict[str, Any] = {
    "version": 1,
    "model": {"dim": 4},
    "groups": {"who": {"column": "who"}, "size": {"column": "size", "extractor": "numeric"}},
    "training": {"validation": 0, "epochs": 1},
}


def frame(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    who = rng.integers(0, 6, rows)
    return pd.DataFrame({"who": [f"w{w}" for w in who], "size": who + rng.normal(size=rows)}, index=range(5, 5 + rows))


@pytest.fixture(scope="module")
def fitted() -> Feat2VecTransformer:
    return Feat2VecTransformer(SCHEMA).fit(frame(60, 0))


def test_rows_become_the_runs_vectors(fitted: Feat2VecTransformer) -> None:
    new = frame(9, 1)
    vectors = fitted.transform(new)
    assert vectors.shape == (9, 4)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, fitted.run_.embed(new))
    np.testing.assert_array_equal(fitted.transform(pl.DataFrame(new.to_dict("list"))), vectors)
    assert isinstance(fitted.run_, feat2vec.Run)
    names = [f"feat2vectransformer{i}" for i in range(4)]
    assert fitted.get_feature_names_out().tolist() == names
    assert fitted.feature_names_in_.tolist() == ["who", "size"]
    try:
        as_frame = fitted.set_output(transform="pandas").transform(new)
        assert as_frame.columns.tolist() == names
        assert as_frame.index.tolist() == new.index.tolist()
        assert fitted.set_output(transform="polars").transform(new).columns == names
    finally:
        fitted.set_output(transform="default")
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.transform(new.rename(columns={"who": "whom"}))
    with pytest.raises(NotFittedError):
        Feat2VecTransformer(SCHEMA).transform(new)


def test_clones_and_parameters(fitted: Feat2VecTransformer) -> None:
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "archive_")
    copy.set_params(dim=3, settings={"training.batch_size": 16}, random_state=7, groups=["who"])
    assert SCHEMA["model"] == {"dim": 4}
    copy.fit(frame(60, 0))
    assert copy.transform(frame(5, 1)).shape == (5, 3)
    schema = copy.run_.schema
    assert (schema.training.batch_size, schema.training.seed, schema.model.dim) == (16, 7, 3)
    with pytest.raises(ValueError, match=r"training\.epoch: unknown key"):
        clone(copy).set_params(settings={"training.epoch": 3}).fit(frame(60, 0))


@pytest.mark.slow
def test_a_pickle_works_in_another_process(fitted: Feat2VecTransformer, tmp_path: Path) -> None:
    new = frame(9, 1)
    fitted.transform(new)  # has opened its run
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(new), fitted.transform(new))
    joblib.dump((fitted, new), tmp_path / "t.joblib")
    code = "import sys, joblib; t, x = joblib.load(sys.argv[1]); print(t.transform(x).tolist())"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "t.joblib")], capture_output=True, text=True)
    np.testing.assert_allclose(np.array(eval(done.stdout)), fitted.transform(new), rtol=1e-5)


@pytest.mark.slow
def test_arrays_have_columns_x0_and_so_on() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(30, 2))
    numbers[3, 1] = np.nan
    assert Feat2VecTransformer(epochs=1).fit_transform(numbers).shape == (30, 16)
    words = np.array([["a", 1.5], ["b", 2.5], ["a", None]] * 5, object)
    fitted = Feat2VecTransformer(epochs=1, dim=3).fit(words)
    assert {n: g.extractor.type for n, g in fitted.run_.schema.groups.items()} == {"x0": "lookup", "x1": "numeric"}
    assert not np.any(fitted.transform(np.array([[None, None]], object)))


def test_a_target_may_be_y() -> None:
    schema = {**SCHEMA, "objective": {"type": "softmax", "target": "label"}}
    rows = frame(60, 0)
    labels = np.where(rows["size"] > 3, "large", "small")
    fitted = Feat2VecTransformer(schema).fit(rows, labels)
    assert fitted.transform(rows).shape == (60, 4)
    with pytest.raises(ValueError, match="the schema's target 'label' is no column of X, and y is None"):
        Feat2VecTransformer(schema).fit(rows)
    with pytest.raises(ValueError, match="X has 60 rows, y has 3"):
        Feat2VecTransformer(schema).fit(rows, labels[:3])


def test_a_frame_without_a_schema_gets_one() -> None:
    fitted = Feat2VecTransformer(epochs=1).fit(frame(60, 0))
    assert set(fitted.run_.schema.groups) == {"who", "size"}


@pytest.mark.slow
def test_a_grid_search_over_a_pipeline() -> None:
    rows, new = frame(90, 0), frame(90, 1)
    labels, true = (some["size"] > 2.5 for some in (rows, new))
    pipeline = make_pipeline(Feat2VecTransformer(SCHEMA, settings={"training.epochs": 30}), LogisticRegression())
    search = GridSearchCV(pipeline, {"feat2vectransformer__dim": [2, 8]}, cv=2, error_score="raise")
    search.fit(rows, labels)
    # a number's vector is a linear map of it, so that a line through the vectors can cut where the labels do; rows of
    # which nothing is known are half right
    most_frequent = max(true.mean(), 1 - true.mean())
    assert most_frequent < 0.65
    assert search.score(new, true) > 0.85
    assert search.best_estimator_[0].run_.schema.training.epochs == 30


@pytest.mark.slow
@parametrize_with_checks([Feat2VecTransformer(epochs=1, dim=2)])  # none is expected to fail
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)
