"""The baselines: their list, and what they measure, against loops and scikit-learn's own models."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation.baselines import BASELINES, BaselineName, BaselineRequest
from feat2vec.evaluation.baselines import items as items_module
from feat2vec.evaluation.baselines import tfidf as tfidf_module
from feat2vec.evaluation.baselines.items import ItemColumns
from feat2vec.evaluation.baselines.matrices import matrix_groups
from feat2vec.evaluation.options import METRICS
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.run import Run
from feat2vec.space.geometry import dense
from feat2vec.space.run_vectors import vectors_of_group
from feat2vec.table.table import open_table
from tests.reference import ranks_of_true_values, tfidf_scores

pca_module = sys.modules["feat2vec.evaluation.baselines.pca"]
GROUPS: dict[str, Any] = {
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
    "kind": {"column": "kind"},
    "size": {"column": "size", "extractor": "numeric"},
    "words": {"column": "text", "extractor": {"type": "lookup", "split": "words"}},
}


def things(rows: int, seed: int) -> pa.Table:
    """A kind tells of tags, size and words, and so of the labels."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 5, rows)
    return pa.table(
        {
            "tags": [[f"t{k}{x}" for x in rng.integers(0, 3, i % 4)] for i, k in enumerate(kinds)],
            "kind": [f"k{k}" for k in kinds],
            "size": [None if i % 9 == 0 else k + rng.normal() for i, k in enumerate(kinds)],
            "text": [f"a {'red' if k > 2 else 'blue'} {rng.choice(['car', 'boat'])}" for k in kinds],
            "price": kinds * 10 + rng.normal(size=rows),
            "sold": (kinds + rng.normal(size=rows) > 2).astype(int),
            "shop": [f"s{k % 3}" if rng.random() < 0.9 else "s0" for k in kinds],
        }
    )


def request_for(
    target: str,
    objective: dict[str, Any] | None = None,
    rows: int = 300,
    dim: int = 50,
    groups: Sequence[str] = tuple(GROUPS),
) -> BaselineRequest:
    """A run that was not trained: baselines ask for its encoder and its schema."""
    schema: dict[str, Any] = {"version": 1, "groups": {name: GROUPS[name] for name in groups}, "model": {"dim": dim}}
    if objective is not None:
        schema["objective"] = {**objective, "target": target}
    train = things(rows, 0)
    run = Run.of_model(Feat2Vec.from_encoder(feat2vec.fit(schema, train).encoder))
    return BaselineRequest(run, open_table(train), open_table(things(80, 1)), target if objective is None else None)


def test_recipes_know_every_baseline_by_its_name() -> None:
    assert get_args(BaselineName) == tuple(BASELINES)
    for name, baseline in BASELINES.items():
        assert baseline.name == name


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_is_for_a_task(name: str) -> None:
    assert BASELINES[name].task in METRICS


def items_of(table: pa.Table, groups: list[str]) -> list[list[str]]:
    """The items of each row by a loop; the numbers of `size` are left out."""
    rows = []
    for row in table.to_pylist():
        items = [f"tags {tag}" for tag in dict.fromkeys(row["tags"])] if "tags" in groups else []
        items += [f"kind {row['kind']}"] if "kind" in groups else []
        items += [f"words {word}" for word in row["text"].split()] if "words" in groups else []
        rows.append(items)
    return rows


@pytest.mark.parametrize(("target", "given"), [("kind", ["words", "tags"]), ("tags", ["kind", "words"])])
def test_tfidf_ranks_as_a_loop_does(target: str, given: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfidf_module, "NEIGHBOURS", 7)
    monkeypatch.setattr(tfidf_module, "SIMILARITIES_IN_MEMORY", 1000)
    request = BaselineRequest(**{**vars(request_for(target)), "given": given})
    facts = BASELINES["tfidf"].measure(request)
    train, test = things(300, 0), things(80, 1)
    vocabulary = request.run.fitted.codecs[target].vocabulary
    assert vocabulary is not None
    names = vocabulary.keys.to_pylist()

    def values(table: pa.Table) -> list[list[int]]:
        lists = [value if isinstance(value, list) else [value] for value in table[target].to_pylist()]
        return [sorted({names.index(key) for key in row if key in names}) for row in lists]

    popularity = vocabulary.counts / (vocabulary.counts.sum() + 1) * 1e-6
    expected = []
    for items, true_values in zip(items_of(test, given), values(test), strict=True):
        scores = np.array(tfidf_scores(items_of(train, given), values(train), items, len(names), 7)) + popularity
        expected += ranks_of_true_values(np.round(scores, 9).tolist(), true_values)
    assert facts["n"] == len(expected)
    assert facts["mpr"] == pytest.approx(np.mean(expected) / len(names), abs=2e-3)  # ties of cosines may be rounded
    assert facts["mrr"] > BASELINES["popularity"].measure(request)["mrr"]


def dense_features(table: pa.Table, train: pa.Table) -> Any:
    """Standardised sizes, whether they are missing, and TF-IDF of kinds, by scikit-learn on dense arrays."""
    from sklearn.feature_extraction.text import TfidfTransformer

    sizes, train_sizes = (part["size"].to_numpy() for part in (table, train))
    scaled = np.nan_to_num((sizes - np.nanmean(train_sizes)) / np.nanstd(train_sizes))
    one_hot, train_one_hot = (
        np.array([[kind == f"k{k}" for k in range(5)] for kind in part["kind"].to_pylist()], float)
        for part in (table, train)
    )
    kinds = TfidfTransformer(sublinear_tf=True).fit(train_one_hot).transform(one_hot).toarray()
    return np.column_stack([scaled, np.isnan(sizes), kinds])


@pytest.mark.parametrize("most_dense", [1000, 2], ids=["covariance", "sparse"])
def test_pca_ranks_by_the_nearest_rows_in_its_space(most_dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.decomposition import PCA

    monkeypatch.setattr(pca_module, "MOST_DENSE", most_dense)
    monkeypatch.setattr(pca_module, "NEIGHBOURS", 7)
    monkeypatch.setattr(pca_module, "SIMILARITIES_IN_MEMORY", 1000)
    request = BaselineRequest(**{**vars(request_for("tags", dim=3)), "given": ["size", "kind"]})
    facts = BASELINES["pca"].measure(request)
    train, test = things(300, 0), things(80, 1)
    vocabulary = request.run.fitted.codecs["tags"].vocabulary
    assert vocabulary is not None
    names = vocabulary.keys.to_pylist()
    answered = train.filter(pa.compute.greater(pa.compute.list_value_length(train["tags"]), 0))
    features = dense_features(answered, answered)
    fitted = PCA(3).fit(features)
    vectors, queries = fitted.transform(features), fitted.transform(dense_features(test, answered))
    popularity = vocabulary.counts / (vocabulary.counts.sum() + 1) * 1e-6
    expected = []
    for query, tags in zip(queries, test["tags"].to_pylist(), strict=True):
        cosines = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
        scores = popularity.copy()
        for row in np.argsort(-cosines)[:7]:
            for tag in set(answered["tags"][int(row)].as_py()):
                scores[names.index(tag)] += max(cosines[row], 0)
        true_values = sorted({names.index(tag) for tag in tags if tag in names})
        expected += ranks_of_true_values(scores.tolist(), true_values)
    assert facts["n"] == len(expected)
    assert facts["mpr"] == pytest.approx(np.mean(expected) / len(names), abs=5e-3)  # ties of cosines may be rounded
    assert facts["mrr"] > BASELINES["popularity"].measure(request)["mrr"]


def test_pca_linear_is_a_ridge_regression_on_components() -> None:
    from sklearn.decomposition import PCA
    from sklearn.linear_model import Ridge

    request = request_for("price", {"type": "regression"}, dim=3, groups=["size", "kind"])
    facts = BASELINES["pca_linear"].measure(request)
    train, test = things(300, 0), things(80, 1)
    fitted = PCA(3).fit(dense_features(train, train))
    prices = train["price"].to_numpy()
    model = Ridge().fit(fitted.transform(dense_features(train, train)), (prices - prices.mean()) / prices.std())
    predictions = model.predict(fitted.transform(dense_features(test, train))) * prices.std() + prices.mean()
    assert facts["rmse"] == pytest.approx(np.sqrt(np.square(predictions - test["price"].to_numpy()).mean()), rel=1e-3)


def test_sparse_features_have_the_same_components(monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy import sparse

    rng = np.random.default_rng(0)
    features = sparse.csr_array(rng.normal(size=(60, 9)) * (rng.random((60, 9)) < 0.3) + np.eye(60, 9))
    dense = pca_module.fit_projection(features, 4).components(features)
    monkeypatch.setattr(pca_module, "MOST_DENSE", 2)
    arpack = pca_module.fit_projection(features, 4).components(features)
    np.testing.assert_allclose(np.abs(arpack), np.abs(dense), atol=1e-8)
    assert pca_module.fit_projection(features[:1], 4).components(features).shape == (60, 0)


def test_items_are_keys_words_and_bins_of_numbers() -> None:
    encoder = request_for("kind").run.fitted
    (entries,) = encoder.entries(things(300, 0))
    columns = ItemColumns(encoder, ["tags", "size", "words"])
    matrix = columns.matrix({name: dense(entries[name]) for name in GROUPS}).toarray()
    bins = matrix[:, columns.groups["size"].first :][:, :10]
    sizes = things(300, 0)["size"].to_numpy()
    assert (bins.sum(axis=1) == ~np.isnan(sizes)).all()
    assert bins.sum(axis=0).min() >= 25  # of 266 numbers
    order = np.argsort(sizes)[: int(bins.sum())]
    assert (np.diff(bins[order].argmax(axis=1)) >= 0).all()
    assert matrix[:, columns.groups["words"].first :].sum() == 3 * 300


def test_of_many_rows_some_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("answered_rows", "linear"):
        module = sys.modules[f"feat2vec.evaluation.baselines.{name}"]
        monkeypatch.setattr(module, "sampled_rows", lambda table: items_module.sampled_rows(table, 50))
    assert items_module.sampled_rows(open_table(things(300, 0)), 50).sum() == 50
    assert BASELINES["tfidf"].measure(request_for("kind"))["mrr"] > 0.5
    assert BASELINES["linear"].measure(request_for("price", {"type": "regression"}))["rmse"] < 8


def test_the_constant_is_the_mean_or_the_share_of_each_class() -> None:
    train, test = things(300, 0), things(80, 1)
    facts = BASELINES["constant"].measure(request_for("price", {"type": "regression"}))
    errors = test["price"].to_numpy() - train["price"].to_numpy().mean()
    assert facts["rmse"] == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-5)
    assert facts["mae"] == pytest.approx(np.abs(errors).mean(), rel=1e-5)
    facts = BASELINES["constant"].measure(request_for("sold", {"type": "logistic"}))
    share, sold = train["sold"].to_numpy().mean(), test["sold"].to_numpy()
    assert facts["log_loss"] == pytest.approx(-np.log(np.where(sold, share, 1 - share)).mean(), rel=1e-5)
    assert facts["auc"] == 0.5
    facts = BASELINES["constant"].measure(request_for("shop", {"type": "softmax"}))
    counts = {shop: (np.array(train["shop"]) == shop).sum() + 1 for shop in ("s0", "s1", "s2")}
    shares = [counts[shop] / sum(counts.values()) for shop in test["shop"].to_pylist()]
    assert facts["log_loss"] == pytest.approx(-np.log(shares).mean(), rel=1e-5)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["linear", "pca_linear", "boosting"])
@pytest.mark.parametrize(("target", "objective"), [("price", "regression"), ("sold", "logistic"), ("shop", "softmax")])
def test_what_learns_is_better_than_a_constant(name: str, target: str, objective: str) -> None:
    request = request_for(target, {"type": objective}, rows=600)
    facts, of_constant = BASELINES[name].measure(request), BASELINES["constant"].measure(request)
    metric = "rmse" if target == "price" else "log_loss"
    assert facts["n"] == of_constant["n"] == 80
    assert facts[metric] < 0.8 * of_constant[metric]
    assert set(request.run.schema.objective.metrics) <= set(facts)


@pytest.mark.parametrize("scale", ["standard", "quantile"])
def test_the_linear_model_is_that_of_scikit_learn(scale: str) -> None:
    """It learns the numbers of the table, however the run scales them."""
    from sklearn.linear_model import Ridge

    schema = {
        "version": 1,
        "groups": {
            "size": {"column": "size", "extractor": {"type": "numeric", "scale": scale}},
            "kind": GROUPS["kind"],
        },
        "objective": {"type": "regression", "target": "price"},
    }
    train, test = (table.filter(table["size"].is_valid()) for table in (things(300, 0), things(80, 1)))
    run = Run.of_model(Feat2Vec.from_encoder(feat2vec.fit(schema, train).encoder))
    facts = BASELINES["linear"].measure(BaselineRequest(run, open_table(train), open_table(test)))
    kinds = [f"k{k}" for k in range(5)]
    sizes = train["size"].to_numpy()

    def features(table: pa.Table) -> Any:
        one_hot = np.array([[kind == name for name in kinds] for kind in table["kind"].to_pylist()], float)
        return np.column_stack([(table["size"].to_numpy() - sizes.mean()) / sizes.std(), one_hot])

    prices = train["price"].to_numpy()
    model = Ridge().fit(features(train), (prices - prices.mean()) / prices.std())
    errors = model.predict(features(test)) * prices.std() + prices.mean() - test["price"].to_numpy()
    assert facts["rmse"] == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-2 if scale == "quantile" else 1e-3)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_for("kind")
    with pytest.raises(UserError, match="--train: a run keeps no rows"):
        BASELINES["tfidf"].measure(BaselineRequest(request.run, None, request.test, "kind"))
    with pytest.raises(UserError, match="the run has no target to predict"):
        BASELINES["constant"].measure(request)
    labelled = request_for("price", {"type": "regression"})
    with pytest.raises(UserError, match="has no column 'price', the target"):
        BASELINES["constant"].measure(
            BaselineRequest(labelled.run, open_table(things(9, 0).drop("price")), labelled.test)
        )
    for name in ("sklearn", "sklearn.ensemble", "sklearn.feature_extraction.text"):
        monkeypatch.setitem(sys.modules, name, None)
    asked_of = {"tfidf": request, "pca": request, "linear": labelled, "pca_linear": labelled, "boosting": labelled}
    for name, asked in asked_of.items():
        with pytest.raises(UserError, match=rf"beside {name}: needs scikit-learn: pip install 'feat2vec\[recipes\]'"):
            BASELINES[name].measure(asked)


@pytest.mark.parametrize("csv", [False, True], ids=["typed", "csv"])
def test_boosting_reads_numbers_and_dates_from_text_as_the_run_does(csv: bool, tmp_path: Path) -> None:
    """Each row has another price and day, of which no category can be told from training rows."""
    sources: list[Any] = []
    for part, rows in enumerate((600, 80)):
        numbers = np.random.default_rng(part).permutation(rows) * 10.0 + part
        days = np.random.default_rng(part + 2).integers(0, 3000, rows)
        dates = (np.datetime64("2015-01-01") + days).astype("datetime64[D]").tolist()
        table = pa.table(
            {
                "price": [f"${number:,.2f}" for number in numbers],
                "size": [f"{number / 7:.3f}" for number in numbers] if csv else list(numbers / 7),
                "sold": [f"{day.day}.{day.month}.{day.year}" for day in dates],
                "seen": [f"{day:%m/%d/%Y}" for day in dates],
                "label": numbers / 1000 + days / 500,
            }
        )
        if csv:
            pyarrow.csv.write_csv(table, tmp_path / f"{part}.csv")
        sources.append(str(tmp_path / f"{part}.csv") if csv else table)
    schema = {
        "version": 1,
        "groups": {
            "price": {"column": "price", "extractor": {"type": "numeric", "written": "$1,000.5"}},
            "size": {"column": "size", "extractor": {"type": "numeric"}},
            "sold": {"column": "sold", "extractor": {"type": "numeric", "dates": "%d.%m.%Y"}},
            "seen": {"column": "seen", "extractor": {"type": "lookup", "parts": ["month"], "dates": "%m/%d/%Y"}},
        },
        "objective": {"type": "regression", "target": "label"},
    }
    train, test = map(open_table, sources)
    run = Run.of_model(Feat2Vec.from_encoder(feat2vec.fit(schema, train).encoder))
    facts = BASELINES["boosting"].measure(BaselineRequest(run, train, test))
    of_constant = BASELINES["constant"].measure(BaselineRequest(run, train, test))
    assert facts["columns"] == ["price", "size", "sold", "seen"]
    assert facts["rmse"] < 0.2 * of_constant["rmse"]


def test_boosting_learns_classes_of_one_row() -> None:
    """None can be held out to say how many trees there should be."""
    table = things(300, 0)
    shops = table["shop"].to_pylist()
    table = table.set_column(table.column_names.index("shop"), "shop", pa.array(["rare", *shops[1:]]))
    groups = {"size": {"column": "size", "extractor": "numeric"}, "sold": {"column": "sold"}}
    schema = {"version": 1, "groups": groups, "objective": {"type": "softmax", "target": "shop"}}
    run = Run.of_model(Feat2Vec.from_encoder(feat2vec.fit(schema, table).encoder))
    facts = BASELINES["boosting"].measure(BaselineRequest(run, open_table(table), open_table(things(50, 1))))
    assert facts["trees"] == 100
    assert np.isfinite(facts["log_loss"])


def test_boosting_needs_a_column_that_is_no_text() -> None:
    schema = {
        "version": 1,
        "groups": {"words": GROUPS["words"], "tags": GROUPS["tags"]},
        "objective": {"type": "regression", "target": "price"},
    }
    table = things(50, 0)
    run = Run.of_model(Feat2Vec.from_encoder(feat2vec.fit(schema, table).encoder))
    with pytest.raises(UserError, match="the schema has no column but texts and lists"):
        BASELINES["boosting"].measure(BaselineRequest(run, open_table(table), open_table(table)))


# --- matrices -------------------------------------------------------------------------------------------------------


def rated(rows: int, seed: int, shops: int = 12) -> pa.Table:
    """Prices that are a matrix of rank 1 of buyers and shops, and what buyers and shops add."""
    rng = np.random.default_rng(seed)
    buyers, shop_ids = rng.integers(0, 15, rows), rng.integers(0, shops, rows)
    prices = 20 + buyers - shop_ids / 2 + 6 * np.cos(buyers) * np.sin(1.0 + shop_ids) + 0.1 * rng.normal(size=rows)
    return pa.table(
        {
            "tags": [[f"t{b % 3}", "t"] for b in buyers], "buyer": [f"b{b}" for b in buyers],
            "shop": shop_ids, "kind": [f"k{s % 2}" for s in shop_ids], "price": prices,
        }
    )  # fmt: skip


RATED_GROUPS: dict[str, Any] = {
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
    "buyer": {"column": "buyer"}, "shop": {"column": "shop"}, "kind": {"column": "kind"},
    "again": {"column": "shop", "extractor": "numeric"},
}  # fmt: skip


def rated_request(train: pa.Table, test: pa.Table, **options: Any) -> BaselineRequest:
    objective = {"type": "regression", "target": "price"}
    schema = {"version": 1, "groups": RATED_GROUPS, "objective": objective}
    run = Run.of_model(Feat2Vec.from_encoder(feat2vec.fit(schema, train).encoder))
    return BaselineRequest(run, open_table(train), open_table(test), **options)


@pytest.mark.parametrize("name", ["svd", "als", "soft_impute"])
def test_a_matrix_is_completed_from_the_training_rows(name: str) -> None:
    request = rated_request(rated(400, 0), rated(200, 1))
    facts, of_constant = BASELINES[name].measure(request), BASELINES["constant"].measure(request)
    assert (facts["n"], facts["matrix"]) == (200, ["buyer", "shop"])  # `tags` may be several
    assert facts["rmse"] < 0.25 * of_constant["rmse"]
    assert facts["rank"] >= 1
    other = BASELINES[name].measure(rated_request(rated(400, 0), rated(200, 1), matrix=["kind", "buyer"]))
    assert other["matrix"] == ["kind", "buyer"]
    assert other["rmse"] > 2 * facts["rmse"]


def test_what_training_has_not_seen_has_the_bias_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = rated(400, 0, shops=8), rated(60, 2, shops=12)  # shops 8 to 11 are new
    request = rated_request(train, test)
    asked: list[Any] = []
    of_module = sys.modules["feat2vec.evaluation.baselines.matrices"]
    complete = of_module.complete_matrix

    def completed(method: Any, entries: Any) -> Any:
        asked.append(complete(method, entries))
        return asked[0]

    monkeypatch.setattr(of_module, "complete_matrix", completed)
    facts = BASELINES["als"].measure(request)
    matrix, prices = asked[0], train["price"].to_numpy()
    buyers, shops = (vectors_of_group(request.run, group) for group in ("buyer", "shop"))
    errors = []
    for row in test.to_pylist():
        buyer, shop = buyers.get_index(row["buyer"]), shops.get_index(row["shop"]) if row["shop"] < 8 else -1
        number = matrix.biases.mean + matrix.biases.rows[buyer]
        if shop >= 0:
            number += matrix.biases.columns[shop]
            number += matrix.deviation * matrix.factors.rows[buyer] @ matrix.factors.columns[shop]
        errors.append(float(np.clip(number, prices.min(), prices.max())) - row["price"])
    assert facts["rmse"] == pytest.approx(np.sqrt(np.square(errors).mean()), rel=1e-5)


def test_of_too_many_rows_a_matrix_is_completed_from_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["feat2vec.evaluation.baselines.matrices"], "MOST_ENTRIES", 60)
    request = rated_request(rated(400, 0), rated(100, 1))
    assert 1 < BASELINES["als"].measure(request)["rmse"] < BASELINES["constant"].measure(request)["rmse"]


NO_MATRIX: dict[str, tuple[dict[str, Any], list[str] | None, str]] = {
    "no numbers": (
        {"objective": {"type": "logistic", "target": "sold"}}, None,
        "--beside: svd, als and soft_impute complete a matrix of numbers; the objective logistic predicts none",
    ),
    "one group": (
        {"groups": {"kind": GROUPS["kind"], "tags": GROUPS["tags"]}}, None,
        "--beside: a matrix needs two lookup groups of one key a row, for its rows and columns; the only one is kind",
    ),
    "no group": (
        {"groups": {"tags": GROUPS["tags"]}}, None,
        "--beside: a matrix needs two lookup groups of one key a row, for its rows and columns; there is none",
    ),
    "three": (
        {}, ["kind", "tags", "size"],
        "--matrix: expected two groups, that of the rows and that of the columns; received kind, tags, size",
    ),
    "one twice": (
        {}, ["kind", "kind"],
        "--matrix: expected two groups, that of the rows and that of the columns; received kind, kind",
    ),
    "unknown": ({}, ["kind", "tag"], "--matrix: there is no group 'tag'; did you mean 'tags'?"),
    "a list": (
        {}, ["kind", "tags"],
        "--matrix: 'tags' is no lookup group of one key a row, which rows and columns of a matrix have to be",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_MATRIX)
def test_an_impossible_matrix_is_refused_in_a_sentence(name: str) -> None:
    options, matrix, message = NO_MATRIX[name]
    schema = {"version": 1, "groups": GROUPS, "objective": {"type": "regression", "target": "price"}, **options}
    with pytest.raises(UserError) as error:
        matrix_groups(feat2vec.read_schema(schema), matrix)
    assert str(error.value) == message


def test_rows_without_an_entry_are_refused() -> None:
    train = rated(50, 0)
    request = rated_request(train, train)
    empty = train.set_column(1, "buyer", pa.nulls(50, pa.string()))
    with pytest.raises(UserError, match=r"no row has buyer, shop and the target$"):
        BASELINES["svd"].measure(BaselineRequest(request.run, open_table(empty), request.test))
