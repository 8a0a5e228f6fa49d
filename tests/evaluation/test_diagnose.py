"""What is said of a space, against loops and closed forms."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation.diagnose import class_bounds, isotropy, labelled_vectors, levels, norms, stability
from feat2vec.run import train

MODELS: dict[str, dict[str, Any]] = {
    "fm": {"dim": 6},
    "rafm": {"ranks": [3, 6, 8], "bias": True},
    "difacto": {"ranks": [3, 6, 8], "level_sharing": "truncate"},
}


def table(rows: int = 250) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "who": [None if i % 11 == 0 else f"w{min(rng.zipf(1.4), 30)}" for i in range(rows)],
            "tags": [[f"t{x % 20}" for x in rng.zipf(1.3, 1 + i % 3)] for i in range(rows)],
            "title": [f"the {rng.integers(0, 6)} of {rng.integers(0, 3)}" for _ in range(rows)],
            "score": rng.integers(0, 9, rows) / 8,
            "kind": [None if i % 50 == 0 else i % 3 for i in range(rows)],
        }
    )


def schema(model: str) -> dict[str, Any]:
    return {
        "version": 1, "model": MODELS[model],
        "groups": {
            "who": {"column": "who", "extractor": {"type": "lookup", "gain": 2.0}},
            "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
            "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 4}},
            "score": {"column": "score", "extractor": "numeric"},
        },
        "training": {"epochs": 1, "batch_size": 50},
    }  # fmt: skip


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=() if name == "rafm" else pytest.mark.slow) for name in MODELS]
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    return train(schema(request.param), table(), tmp_path_factory.mktemp("runs") / "run", quiet=True)


def test_norms_are_of_each_value_at_its_own_level(run: feat2vec.Run) -> None:
    vocabulary = run.fitted.codecs["who"].vocabulary
    assert vocabulary is not None
    tables = [2.0 * table.numpy().astype(float) for table in run.model.extractors[0].tables]
    tables[0] = tables[0][1:]
    truncate = run.schema.model.level_sharing == "truncate"
    by_count: dict[int, list[float]] = {}
    for i, count in enumerate(vocabulary.counts):
        own = [table[i] for table in tables if i < len(table)]
        vector = np.concatenate(own) if truncate else own[-1]
        by_count.setdefault(math.ceil(math.log2(count)), []).append(float(np.sqrt(vector @ vector)))
    found = norms(run.model, run.fitted, "who")
    assert sum(one.values for one in found) == len(vocabulary.counts)
    for one, (place, lengths) in zip(found, sorted(by_count.items()), strict=True):
        assert 2 ** (place - 1) < one.low <= one.high <= 2**place
        np.testing.assert_allclose(one.quantiles, np.quantile(lengths, (0.05, 0.25, 0.5, 0.75, 0.95)), rtol=1e-5)
    assert sum(one.values for one in norms(run.model, run.fitted, "title")) == len(run.fitted.values["title"].entries)


def test_isotropy_follows_its_formula() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((40, 5)) + 0.5
    directions = np.linalg.eigh(vectors.T @ vectors)[1].T
    sums = [sum(math.exp(c @ v) for v in vectors) for one in directions for c in (one, -one)]
    pairs = itertools.combinations(vectors, 2)
    cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs]
    found = isotropy(np.concatenate([vectors, np.zeros((3, 5))]))
    assert found.partition == pytest.approx(min(sums) / max(sums), rel=1e-9)
    assert found.mean_cosine == pytest.approx(np.mean(cosines), rel=1e-9)
    even = isotropy(np.concatenate([np.eye(4), -np.eye(4)]))
    assert even.partition == pytest.approx(1)
    assert even.mean_cosine == pytest.approx(-1 / 7)
    assert isotropy(np.array([[300.0, 0.0], [300.0, 1.0]])).partition == pytest.approx(0, abs=1e-9)  # no overflow
    with pytest.raises(UserError, match="two vectors or more; received 1"):
        isotropy(np.ones((1, 2)))


def test_levels_add_up_to_values_and_weights(run: feat2vec.Run) -> None:
    model, model_levels = run.model, run.schema.model.levels
    for name, group in zip(model.groups, model.extractors, strict=True):
        vocabulary = run.fitted.codecs[name].vocabulary
        values = len(run.fitted.values[name].entries) if name in ("title", "score") else len(vocabulary.counts)  # type: ignore[union-attr]
        found = levels(model, name, values)
        assert sum(one.parameters for one in found) == group.params()
        assert sum(one.values for one in found) == values
        if name == "who":
            own = model_levels.of_counts(vocabulary.counts)  # type: ignore[union-attr]
            expected = [int((own == level).sum()) for level in range(1, len(model_levels) + 1)]
            assert [one.values for one in found if one.level] == expected


@pytest.mark.slow
def test_neighbours_that_stay_are_counted(run: feat2vec.Run, tmp_path: Path) -> None:
    assert stability(run, run, "who").overlap == 1
    rows = table().slice(20)  # and some keys are in one run only
    settings = ["training.seed=7"]
    other = train(schema("fm") | {"model": run.schema.model.model_dump(exclude_unset=True)}, rows, tmp_path / "run",
                  settings=settings, quiet=True)  # fmt: skip
    found = stability(run, other, "who", topn=3)
    one, two = run.vectors("who", 1), other.vectors("who", 1)
    common = [key for key in one.index_to_key if key in two]
    shares = []
    for key in common:
        near = []
        for v in (one, two):
            scores = {other: v.similarity(key, other) for other in common if other != key}
            near.append(set(sorted(scores, key=lambda other, scores=scores: -scores[other])[:3]))  # type: ignore[misc]
        shares.append(len(near[0] & near[1]) / len(near[0] | near[1]))
    assert found.common == found.asked == len(common)
    assert found.overlap == pytest.approx(np.mean(shares), abs=0.02)
    assert stability(run, other, "who", topn=3, sample=5).asked == 5
    with pytest.raises(UserError, match="no group 'whom'; did you mean 'who'"):
        stability(run, other, "whom")
    with pytest.raises(UserError, match="'title' has no keys to be compared by"):
        stability(run, other, "title")


def test_the_contrastive_loss_bounds_the_classifiers(run: feat2vec.Run) -> None:
    vectors, labels, without = labelled_vectors(run.model, run.fitted, table(), "kind")
    assert (len(vectors), without) == (245, 5)
    kinds = [kind for kind in table()["kind"].to_pylist() if kind is not None]
    assert len(set(zip(kinds, labels.tolist(), strict=True))) == 3
    every = run.embed(table())
    np.testing.assert_allclose(vectors, every[[kind is not None for kind in table()["kind"].to_pylist()]], atol=1e-6)
    for one in class_bounds(run.model, run.fitted, table(), "kind", ((1, 1), (2, None)), draws=20_000):
        assert (one.classes, one.rows) == (3, 245)
        assert one.k == (1 if one.negatives == 1 else 2)
        assert one.bound.tau == pytest.approx(3.0**-one.negatives)
        inside = one.bound.contrastive - one.bound.tau * math.log(one.negatives + 1)
        assert one.bound.bound == pytest.approx(one.k / (1 - one.bound.tau) * inside)
        assert one.bound.mean_classifier <= one.bound.bound
    own, _, _ = labelled_vectors(run.model, run.fitted, table(), "who")  # without the group that holds the label
    there = [who is not None for who in table()["who"].to_pylist()]
    np.testing.assert_allclose(own, run.embed(table(), ["tags", "title", "score"])[there], atol=1e-6)
    for label, message in (("kinds", "did you mean 'kind'"), ("tags", "holds lists"), ("one", "has 1 class; two")):
        rows = table().append_column("one", pa.array(["x"] * 250))
        with pytest.raises(UserError, match=message):
            class_bounds(run.model, run.fitted, rows, label)
