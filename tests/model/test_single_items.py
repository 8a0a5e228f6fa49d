"""Items of lists, one at a time, against loops over rows and candidates."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import tensorflow as tf

from feat2vec.encode.encoder import fit
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.single_items import (
    NO_ITEM,
    drawn_items,
    item_counts,
    item_entries,
    with_drawn_items,
    without_own_items,
)
from feat2vec.schema.reading import read_schema
from tests import reference
from tests.model.planted_rows import LOOKUPS, TABLE, one_batch

WEIGHTED = pa.table(
    {
        "who": [f"w{i % 5}" for i in range(96)],
        "tags": [[f"t{(i * j) % 7}" for j in range(1, 1 + i % 4)] for i in range(96)],
        "weights": [[0.5 * j for j in range(1, 1 + i % 4)] for i in range(96)],
    }
)
WEIGHTED_GROUPS: dict[str, Any] = {
    "who": {"column": "who"},
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True, "weights": "weights"}},
}


def vectors(model: Feat2Vec, group: int, ids: list[int], weights: list[float]) -> npt.NDArray[np.float64]:
    """The sum of a bag."""
    table = model.extractors[group].tables[0].numpy().astype(np.float64)
    bag = [weight * table[id_ - 1] for id_, weight in zip(ids, weights, strict=True) if id_ > 0]
    return sum(bag, np.zeros(table.shape[1]))


def loss_loop(model: Feat2Vec, inputs: Any, rows: Any, seed: Any) -> float:
    """The loss of each row, where a list's positive is one item of it, and its negatives are items of other lists."""
    assert model.noise is not None
    names, tags = list(model.groups), model.groups.index("tags")
    entries = {name: inputs[name].numpy() for name in names}
    is_weighted = model.extractors[tags].shape.weighted
    width = entries["tags"].shape[1] // (2 if is_weighted else 1)
    lists = {tags: inputs["tags"][:, :width]}
    draws = without_own_items(model.noise.units, model.noise.sample(with_drawn_items(rows, lists, seed), seed), lists)
    tables = [table.numpy() for table in model.value_tables]
    total, at = 0.0, 0
    for unit, draw in zip(model.noise.units, draws, strict=True):
        (group,) = unit.groups
        for r in range(len(draw.rows)):
            row = {name: entries[name][at + r] for name in names}
            context = np.zeros(model.dims[0])
            for g, name in enumerate(names):
                if g != group:
                    weights = row[name][width:].view(np.float32) if g == tags and is_weighted else [1.0] * 99
                    ids = row[name][:width].tolist()
                    context += vectors(model, g, ids, list(weights[: len(ids)]))
            drawn = draw.values[0].numpy()
            drawn = drawn if drawn.ndim == 1 else drawn[r]
            if group == tags:
                own = row["tags"][:width].tolist()
                positive = int(draw.rows[r, group])
                assert positive in own or (positive == NO_ITEM and max(own) < 2)
                candidates = [[positive], *([item] for item in drawn.tolist())]
                assert draw.hits[r].numpy().tolist() == [item in own for item in drawn.tolist()]
            else:
                candidates = [row[names[group]].tolist(), *(tables[group][value + 1].tolist() for value in drawn)]
            scores = []
            for candidate in candidates:
                vector = vectors(model, group, candidate, [1.0] * len(candidate))
                scores.append(float(context @ vector / max(float(np.linalg.norm(vector)), 1e-3)))
            log_q = draw.log_q.numpy() if draw.log_q.ndim == 1 else draw.log_q.numpy()[r]
            all_log_q = [float(draw.log_q_positive[r]), *log_q.tolist()]
            if draw.present[r]:
                hits = draw.hits.numpy()[r].tolist()
                total += reference.row_loss("contrastive", scores, all_log_q, hits, 0.0, None, True, 0.3)
        at += len(draw.rows)
    return total / len(rows)


@pytest.mark.parametrize("sharing", ["record", "batch"])
@pytest.mark.parametrize(("groups", "table"), [(LOOKUPS, TABLE), (WEIGHTED_GROUPS, WEIGHTED)])
def test_the_loss_is_that_of_a_loop(groups: dict[str, Any], table: pa.Table, sharing: str) -> None:
    schema = {
        "version": 1, "model": {"dim": 4, "scale": 0.7}, "groups": groups,
        "objective": {"type": "contrastive", "unit": True, "temperature": 0.3},
        "noise": {"lists": "items", "sharing": sharing, "negatives": 7}, "training": {"batch_size": 48},
    }  # fmt: skip
    rows = fit(read_schema(schema), table)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile()
    inputs, value_ids = one_batch(model, rows)
    seed = tf.constant([3, 1], tf.int64)
    loss = model.step_loss(inputs, value_ids, None, seed, training=False)
    assert float(loss) == pytest.approx(loss_loop(model, inputs, value_ids, seed), rel=2e-5)


def test_each_known_item_of_a_list_is_as_likely() -> None:
    ids = tf.constant([[5, 2, 0, 9]] * 30_000 + [[1, 0, 0, 0]])
    items = drawn_items(ids, tf.constant([0, 7])).numpy()
    drawn, counts = np.unique(items[:-1], return_counts=True)
    assert drawn.tolist() == [2, 5, 9]
    assert np.abs(counts / 10_000 - 1).max() < 0.03  # 3.7 deviations
    assert items[-1] == NO_ITEM  # unseen items and padding are none


def test_items_are_counted_by_rows() -> None:
    rng = np.random.default_rng(0)
    entries, counts = rng.integers(0, 6, (40, 3)), rng.integers(1, 9, 40)
    expected = [0] * 6
    for entry, count in zip(entries.tolist(), counts.tolist(), strict=True):
        for item in entry:
            expected[item] += count if item > 1 else 0
    assert item_counts(entries, counts, 6).tolist() == expected


def test_single_items_are_never_dropped() -> None:
    """Dropout leaves out items of the lists that a row is found by, not the items that are looked for."""
    groups = {"who": LOOKUPS["who"], "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}}}
    groups["tags"]["extractor"]["item_dropout"] = 0.99
    schema = {
        "version": 1, "groups": groups, "objective": {"type": "contrastive", "unit": True},
        "noise": {"lists": "items", "sharing": "batch", "negatives": 50, "targets": ["tags"]},
    }  # fmt: skip
    rows = fit(read_schema(schema), TABLE)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile()
    inputs, value_ids = one_batch(model, rows)
    with tf.GradientTape() as tape:
        loss = model.step_loss(inputs, value_ids, None, tf.constant([0, 0], tf.int64), training=True)
    gradient = tape.gradient(loss, model.extractors[1].tables[0].value)
    changed = np.unique(np.asarray(gradient.indices)[np.abs(np.asarray(gradient.values)).max(axis=1) > 0])
    assert len(changed) == model.extractors[1].tables[0].shape[0] - 1  # all items, not the row of unseen ones


def test_entries_of_single_items() -> None:
    assert item_entries(tf.constant([[4], [NO_ITEM]]), weighted=False).numpy().tolist() == [[4], [0]]
    weighted = item_entries(tf.constant([4]), weighted=True).numpy()
    assert weighted[0, 0] == 4
    assert weighted[0, 1:].view(np.float32).tolist() == [1.0]


def test_whole_lists_are_replaced_by_default() -> None:
    rows = fit(read_schema({"version": 1, "groups": LOOKUPS, "objective": "contrastive"}), TABLE)
    assert Feat2Vec.from_encoder(rows.encoder).groups_by_item == ()
