"""A run whose schema leaves keys without a vector (`model.activation`), and what says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.pages.explore import Atlas
from feat2vec.pages.report import facts_of, page
from feat2vec.run import Run
from tests.commands import feat2vec as command
from tests.short_trainings import train

SCHEMA: dict[str, Any] = {
    "version": 1,
    "model": {"dim": 3, "bias": True, "activation": {"count": 5, "linear": True}},
    "groups": {"user": {"column": "user"}, "film": {"column": "film"}},
    "objective": {"type": "logistic", "target": "seen"},
    "training": {"epochs": 1, "validation": 0, "optimizer": {"type": "ftrl", "l1": 0.0001}},
}
RARE = 3  # users of one row each


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    rng = np.random.default_rng(0)
    users = [f"u{i % 6}" for i in range(60)] + [f"rare {i}" for i in range(RARE)]
    films = [f"f{film}" for film in rng.integers(0, 5, len(users))]
    rows = pa.table({"user": users, "film": films, "seen": rng.integers(0, 2, len(users))})
    return feat2vec.load(train(SCHEMA, rows, tmp_path_factory.mktemp("runs") / "run", quiet=True).folder)


def test_a_key_without_a_vector_is_similar_to_nothing_and_says_why(run: feat2vec.Run) -> None:
    users = run.vectors("user")
    assert users.without_vector.tolist() == [key.startswith("rare") for key in users.index_to_key]
    reason = r"its count is 1, and `model.activation` gives vectors from 5 on$"
    told = rf"^the group 'user': 'rare 1' has no vector to compare: {reason}"
    with pytest.raises(UserError, match=told):
        users.most_similar("rare 1")
    with pytest.raises(UserError, match=told):
        users.most_similar(["u1", "rare 1"], to="film", similarity="dot")
    with pytest.raises(UserError, match=told):
        users.similarity("u1", "rare 1")
    score = users.similarity("rare 1", "f1", to="film", similarity="score")  # of linear terms, which it has
    assert users._space.linear is not None
    films = run.vectors("film")
    assert films._space.linear is not None
    terms = users._space.linear[users.get_index("rare 1")] + films._space.linear[films.get_index("f1")]
    assert score == pytest.approx(run.model.bias_value() + float(terms), rel=1e-5)


def test_a_key_whose_linear_term_is_zero_says_so(run: feat2vec.Run) -> None:
    users = feat2vec.load(run.folder).vectors("user")
    position = users.get_index("u1")
    assert users._space.linear is not None
    users._space.linear[position] = 0
    users._space.candidates.tables[0][position] = 0
    told = r"'u1' has no vector to compare: its linear term is zero \(its count is 10\), and `model.activation` needs"
    with pytest.raises(UserError, match=told):
        users.most_similar("u1")


@pytest.mark.parametrize("sharing", ["separate", "truncate"])
def test_keys_that_reach_a_level_without_a_vector_have_zeros_there(sharing: str) -> None:
    counts = {"a": 9, "b": 8, "c": 4, "d": 3, "e": 1}  # of which two have vectors, and four reach level 2
    rows = pa.table(
        {"key": [key for key, n in counts.items() for _ in range(n)], "other": ["x", "y", "x", "y", "z"] * 5}
    )
    model = {"ranks": [2, 4], "levels": {"counts": [3]}, "level_sharing": sharing, "activation": {"count": 5}}
    groups = {"key": {"column": "key"}, "other": {"column": "other"}}
    run = Run.of_model(
        Feat2Vec.from_encoder(feat2vec.fit({"version": 1, "groups": groups, "model": model}, rows).encoder)
    )
    keys = run.vectors("key", level=2)
    assert keys.index_to_key == ["a", "b", "c", "d"]
    assert keys.vectors.shape == (4, 4)
    assert keys.without_vector.tolist() == [False, False, True, True]
    assert {hit.key for hit in keys.search("a")} == {"b", "c", "d"}
    with pytest.raises(UserError, match=r"'c' has no vector to compare: its count is 4, and `model.activation` gives"):
        keys.most_similar("c")


def test_the_command_counts_them(run: feat2vec.Run, tmp_path: Path) -> None:
    done = command("export", str(run.folder), "--format", "npz", "--out", "out", folder=tmp_path)
    assert done.stdout.splitlines()[-1] == f"keys without a vector, which are zeros: {RARE} of user"


def test_exports_and_pages_count_such_keys(run: feat2vec.Run, tmp_path: Path) -> None:
    for kind in ("npz", "word2vec"):
        groups = run.export(kind, tmp_path / kind)["groups"]
        assert groups["user"]["without_vector"] == RARE
        assert "without_vector" not in groups["film"]
    facts = facts_of(run)
    assert [group["without_vector"] for group in facts["groups"].values()] == [RARE, 0]
    assert not [near for near in facts["groups"]["user"]["neighbours"] if near["key"].startswith("rare")]
    assert page(facts).count(f"{RARE} of 9 values have no vector.") == 1
    atlas = Atlas(run)
    assert atlas.points("user").keys == [f"u{i}" for i in range(6)]
    assert atlas.answer("points/0")["without_vector"] == RARE
    assert atlas.answer("points/0")["total"] == 9
    with pytest.raises(UserError, match=r"'rare 2' has no vector to compare"):
        atlas.neighbours("user", run.vectors("user").get_index("rare 2"))
