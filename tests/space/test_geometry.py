"""Similarities of queries and candidates against loops over pairs of values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from feat2vec.encode.encoder import Encoded, fit
from feat2vec.encode.vocabulary import FIRST
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.schema.reading import read_schema
from feat2vec.space.geometry import Candidates, blocks, candidates, dense, extract, keys_of, known, similarities

RANKS = [2, 3, 6]


def encoded(model: dict[str, Any], **gains: float) -> Encoded:
    rng = np.random.default_rng(0)
    rows = 300
    table = pa.table(
        {
            "who": [None if i % 11 == 0 else f"w{rng.zipf(1.3) % 30}" for i in range(rows)],
            "tags": [[f"t{x % 20}" for x in rng.zipf(1.3, i % 4)] for i in range(rows)],
            "size": rng.integers(0, 9, rows).astype(float),
        }
    )
    groups = {
        "who": {"column": "who", "extractor": {"type": "lookup", "gain": gains.get("who", 1)}},
        "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True, "gain": gains.get("tags", 1)}},
        "size": {"column": "size", "extractor": {"type": "numeric", "gain": gains.get("size", 1)}},
    }
    return fit(read_schema({"version": 1, "model": model, "groups": groups}), table)


def vectors(model: Feat2Vec, group: str, id_: int) -> list[Any]:
    """A key's vectors at its levels 1..k."""
    tables = [table.numpy() for table in model.extractors[model.groups.index(group)].tables]
    key = id_ - FIRST
    return [tables[0][key + 1], *(table[key] for table in tables[1:] if key < len(table))]


@pytest.mark.parametrize("model", [{"dim": 5}, {"ranks": RANKS}, {"ranks": RANKS, "level_sharing": "truncate"}])
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_each_pair_meets_at_its_own_level(model: dict[str, Any], similarity: Any) -> None:
    rows = encoded(model)
    learnt = Feat2Vec.from_encoder(rows.encoder)
    truncate = model.get("level_sharing") == "truncate"
    values = candidates(learnt, rows.encoder, "who")
    entries = rows.encoder.values["tags"].entries
    scores = similarities(extract(learnt, {"tags": entries}), values, similarity)
    keys = keys_of(rows.encoder, "who")
    assert keys is not None
    assert scores.shape == (len(entries), len(keys))
    candidate_vectors = [vectors(learnt, "who", v + FIRST) for v in range(len(keys))]
    tag_vectors = {int(id_): vectors(learnt, "tags", int(id_)) for id_ in np.unique(entries[entries > 0])}
    levels: set[int] = set()
    for q, bag in enumerate(entries):
        for v in range(scores.shape[1]):
            candidate = candidate_vectors[v]
            top = len(candidate) - 1
            seen: dict[int, Any] = {}  # the query towards this candidate: the sum of what meets it, level by level
            for id_ in bag[bag > 0]:
                own_vectors = tag_vectors[int(id_)]
                meets = range(min(len(own_vectors) - 1, top) + 1) if truncate else [min(len(own_vectors) - 1, top)]
                for level in meets:
                    seen[level] = seen.get(level, 0) + own_vectors[level]
                    levels.add(level)
            expected = sum(seen[level] @ candidate[level] for level in seen)
            if similarity == "cosine":
                norms = [sum(side[level] @ side[level] for level in seen) for side in (seen, candidate)]
                expected = expected / np.sqrt(norms[0] * norms[1])
            assert scores[q, v] == pytest.approx(expected, abs=1e-5)
    assert levels == set(range(len(model.get("ranks", [1]))))


def test_a_cosine_of_two_values_is_that_of_their_level() -> None:
    rows = encoded({"ranks": RANKS})
    learnt = Feat2Vec.from_encoder(rows.encoder)
    cosines = similarities(
        extract(learnt, {"who": np.arange(FIRST, FIRST + 20, dtype=np.int32)[:, None]}),
        candidates(learnt, rows.encoder, "who"),
        "cosine",
    )
    np.testing.assert_allclose(np.diag(cosines), 1, rtol=1e-5)
    assert (cosines <= 1 + 1e-5).all()


def test_values_that_are_no_keys_are_candidates_too() -> None:
    rows = encoded({"ranks": RANKS})
    learnt = Feat2Vec.from_encoder(rows.encoder)
    values = candidates(learnt, rows.encoder, "size")
    assert [len(table) for table in values.tables] == [len(rows.encoder.values["size"].entries)] * 3
    scores = similarities(extract(learnt, {"size": rows.encoder.values["size"].entries}), values, "cosine")
    np.testing.assert_allclose(np.abs(np.diag(scores)), 1, rtol=1e-4)


@pytest.mark.parametrize("model", [{"dim": 5}, {"ranks": RANKS}, {"ranks": RANKS, "level_sharing": "truncate"}])
@pytest.mark.parametrize("gains", [{}, {"who": 3.0, "tags": 0.25, "size": 2.0}])
def test_candidates_are_what_single_keys_are_extracted_as(model: dict[str, Any], gains: dict[str, float]) -> None:
    rows = encoded(model, **gains)
    learnt = Feat2Vec.from_encoder(rows.encoder)
    before = [weight.copy() for weight in learnt.get_weights()]
    query = extract(learnt, {"tags": rows.encoder.values["tags"].entries[:9]})
    for group in ("who", "size"):
        values = candidates(learnt, rows.encoder, group)
        keys = keys_of(rows.encoder, group)
        entries = rows.encoder.values[group].entries
        if keys is not None:
            entries = np.arange(FIRST, FIRST + len(keys), dtype=np.int32)[:, None]
        alone = extract(learnt, {group: entries})
        for level, table in enumerate(values.tables):
            whole = alone.free[level] + alone.dependent[level]
            np.testing.assert_array_equal(table, whole[: len(table)])
            assert not whole[len(table) :].any()
        dots = similarities(query, values, "dot")
        unscaled = [candidates(learnt, rows.encoder, group).tables[0] / gains.get(group, 1)]
        if group == "who":
            np.testing.assert_allclose(unscaled[0], learnt.extractors[0].tables[0].numpy()[1:], rtol=1e-6)
        for i, keyed in enumerate(entries):
            single = similarities(query, Candidates([t[i : i + 1] for t in values.tables]), "dot")
            np.testing.assert_allclose(dots[:, i], single[:, 0], rtol=1e-5, atol=1e-7, err_msg=str(keyed))
    for old, new in zip(before, learnt.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)  # scaled are copies


def test_known_is_what_training_has_seen() -> None:
    rows = encoded({"dim": 4})
    new = pa.table({"who": ["w1", "nobody", None], "tags": [["nothing", "t1"], [], ["nothing"]]})
    (batch,) = rows.encoder.entries(new)
    assert known(rows.encoder, "who", dense(batch["who"])).tolist() == [True, False, False]
    assert known(rows.encoder, "tags", dense(batch["tags"])).tolist() == [True, False, False]
    assert known(rows.encoder, "size", dense(batch["size"])).tolist() == [False, False, False]


def test_blocks_cover_everything_once() -> None:
    assert [(b.start, b.stop) for b in blocks(7, 3)] == [(0, 3), (3, 6), (6, 7)]
