"""The Keras model: training, saving, batches, one step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

import feat2vec
from feat2vec.encode.encoder import Encoded
from feat2vec.model import optimizers
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.schema.yaml_text import dump_document
from tests.model.planted_rows import CASES, GROUPS, LOOKUPS, UNTARGETED, encoded, one_batch


def trained(rows: Encoded, epochs: int = 3, **options: Any) -> tuple[Feat2Vec, list[float]]:
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile(**options)
    losses: list[float] = model.fit(model.dataset(rows), epochs=epochs, verbose=0).history["loss"]
    return model, losses


QUICK = {"nce, joint", "softmax"}  # the losses of others are compared with loops, too
ALL_CASES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]


@pytest.mark.parametrize("name", ALL_CASES)
def test_every_objective_trains_and_comes_back_from_a_file(name: str, tmp_path: Path) -> None:
    rows = encoded(CASES[name], GROUPS if "joint" in name else LOOKUPS if "softmax" not in name else UNTARGETED)
    model, losses = trained(rows, 3)
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    inputs = one_batch(model, rows)[0]
    np.testing.assert_array_equal(loaded(inputs), model(inputs))
    assert loaded.encoder is not None
    assert loaded.encoder.schema == rows.encoder.schema
    for ours, theirs in zip(model.optimizer.variables, loaded.optimizer.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    loaded.learn_from(rows)
    continued = [
        continuing.fit(model.dataset(rows), epochs=1, verbose=0).history["loss"] for continuing in (model, loaded)
    ]
    assert continued[0] == continued[1]


@pytest.mark.slow
def test_a_file_is_loaded_after_import_feat2vec_keras_alone(tmp_path: Path) -> None:
    rows = encoded(CASES["contrastive pool, ranks"], LOOKUPS)
    model, _ = trained(rows, 1)
    model.save(tmp_path / "model.keras")
    inputs = {name: array.numpy() for name, array in one_batch(model, rows)[0].items()}
    np.savez(tmp_path / "inputs.npz", **inputs)
    code = (
        "import feat2vec, sys; assert 'keras' not in sys.modules; import feat2vec.keras, keras, numpy as np;"
        "model = keras.models.load_model('model.keras', safe_mode=True);"
        "np.save('scores.npy', model(dict(np.load('inputs.npz'))).numpy())"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), model(inputs))


@pytest.mark.slow
def test_one_rank_is_the_plain_model_to_the_last_bit() -> None:
    losses = [
        trained(encoded({"model": model, "objective": "nce"}, LOOKUPS), 2)[1] for model in ({"dim": 6}, {"ranks": [6]})
    ]
    assert losses[0] == losses[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nce, joint", pytest.param("contrastive pool, ranks", marks=pytest.mark.slow)])
def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(name: str) -> None:
    case = CASES[name]
    rows = encoded(case, LOOKUPS)
    weights = [np.concatenate([w.ravel() for w in trained(rows, 2)[0].get_weights()]) for _ in range(2)]
    assert weights[0].tobytes() == weights[1].tobytes()
    with_another_seed = Feat2Vec.from_encoder(encoded({**case, "training": {"seed": 1}}, LOOKUPS).encoder)
    assert np.concatenate([w.ravel() for w in with_another_seed.get_weights()]).tobytes() != weights[0].tobytes()


def test_a_step_is_traced_once_and_touches_only_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = encoded({"objective": "nce", "noise": {"negatives": 1}, "model": {"dim": 3}}, LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile(steps_per_execution=2)
    calls = []
    step = model.train_step

    def counted(data: Any) -> Any:
        calls.append(data)
        return step(data)

    monkeypatch.setattr(model, "train_step", counted)
    before = model.extractors[1].tables[0].numpy()
    model.fit(model.dataset(rows, batch_size=4), steps_per_epoch=2, epochs=1, verbose=0)
    touched = (model.extractors[1].tables[0].numpy() != before).any(axis=1)
    assert 0 < touched.sum() < len(touched)
    model.fit(model.dataset(rows, batch_size=4), epochs=1, verbose=0)
    assert len(calls) <= 2  # fit makes its function anew, the steps inside it do not


def test_dropout_is_for_training_only() -> None:
    case = {
        "objective": {"type": "regression", "target": "score"},
        "training": {"interaction_dropout": 0.5},
        "model": {"dim": 8},
    }
    rows = encoded(case, LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile()
    inputs, _ = one_batch(model, rows)
    np.testing.assert_array_equal(model(inputs), model(inputs, training=False))
    assert not np.array_equal(model(inputs, training=True), model(inputs))
    rows = encoded({"objective": "nce", "training": {"group_dropout": 0.5}}, LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    inputs, ids = one_batch(model, rows)
    seed = tf.constant([3, 4], tf.int64)
    plain, dropped, repeated = (float(model.step_loss(inputs, ids, None, seed, mode)) for mode in (False, True, True))
    assert plain != dropped == repeated


def test_a_loss_that_is_not_finite_stops_the_weights_and_tells_the_step() -> None:
    rows = encoded(CASES["nce"], LOOKUPS)
    model, _ = trained(rows, 1)
    batches = iter(model.dataset(rows, batch_size=32))
    assert int(model.failed_at) == -1
    step = int(model.optimizer.iterations)
    model.train_step(next(batches))
    table = model.extractors[0].tables[0]
    good = table.numpy()
    table.assign(np.full_like(good, np.nan))
    model.train_step(next(batches))
    assert int(model.failed_at) == step + 1
    assert np.isnan(table.numpy()).all()
    table.assign(good)
    before = [v.numpy().tobytes() for v in (*model.variables, *model.optimizer.variables)]
    for _ in range(2):  # finite again, and still nothing moves
        model.train_step(next(batches))
    names = {id(v) for v in (model.loss_tracker.total, model.loss_tracker.count)}
    held = [(v, old) for v, old in zip((*model.variables, *model.optimizer.variables), before, strict=True)]
    assert all(v.numpy().tobytes() == old for v, old in held if id(v) not in names)
    assert int(model.failed_at) == step + 1


def test_an_epoch_has_every_row_once_and_the_next_has_another_order() -> None:
    rows = encoded(CASES["nce"], LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    batches = model.dataset(rows, batch_size=50)
    assert len(batches) == 4
    epochs = [[ids.numpy() for _, ids in batches] for _ in range(2)]
    assert [[len(ids) for ids in epoch] for epoch in epochs] == [[48] * 4] * 2  # 192 rows
    first, second = (np.concatenate(epoch) for epoch in epochs)
    assert not np.array_equal(first, second)
    for epoch in (first, second):
        assert sorted(epoch.tolist()) == sorted(np.asarray(rows.rows).tolist())
    uneven = [len(ids) for _, ids in model.dataset(rows, batch_size=55)]
    assert sum(uneven) == len(rows)
    assert max(uneven) - min(uneven) <= 1
    ordered = np.concatenate([ids.numpy() for _, ids in model.dataset(rows, batch_size=55, shuffle=False)])
    np.testing.assert_array_equal(ordered, rows.rows)


def test_the_schemas_optimizer_is_in_units_of_a_row() -> None:
    rows = encoded({"objective": "nce", "training": {"batch_size": 64}}, LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile()
    model.optimizer.build(model.trainable_variables)
    assert isinstance(model.optimizer, optimizers.SparseAdagrad)
    assert model.optimizer.row_scale == 1 / 64
    table = model.extractors[0].tables[0]
    np.testing.assert_allclose(model.optimizer._accumulators[model.optimizer.index(table)], 0.1 / 64**2, rtol=1e-6)
    np.testing.assert_allclose(model.optimizer._accumulators[model.optimizer.index(model.offsets)], 0.1)


def test_mistakes_are_told() -> None:
    rows = encoded(CASES["nce"], LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    inputs = {name: tf.zeros((1, shape.width), tf.int32) for name, shape in model.shapes.items()}
    with pytest.raises(ValueError, match=r"has not learnt from rows yet; call model\.learn_from"):
        model.step_loss(inputs, tf.zeros((1, 3), tf.int32), None, [0, 0], True)
    with pytest.raises(ValueError, match=r"has not learnt from rows yet; call model\.learn_from"):
        model.batches(rows)
    assert model.noise is None
    rows = encoded(CASES["regression"])
    model = Feat2Vec.from_encoder(rows.encoder)
    with pytest.raises(ValueError, match="the rows have no target, 'score'"):
        model.dataset(rows.encoder.encode(pa.table({"who": ["w1"]})))
    assert float(model.bias) == 0


def test_a_saved_model_runs_no_code_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("raise RuntimeError('executed')")
    schema = {"version": 1, "plugins": ["evil"], "groups": {"a": {"column": "a"}, "b": {"column": "b"}}}
    config = {"schema": dump_document(schema), "shapes": {"a": [1, [3], False], "b": [1, [3], False]}, "classes": 0}
    with pytest.raises(Exception, match="would run the code of 'evil'"):
        Feat2Vec.from_config(config)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux says what is resident")
def test_what_is_learnt_from_rows_leaves_their_files_out_of_memory() -> None:
    rows = pa.table({"a": [f"a{i}" for i in range(20_000)], "b": [f"b{i % 9_000}" for i in range(20_000)]})
    groups = {"a": {"column": "a", "extractor": "lookup"}, "b": {"column": "b", "extractor": "lookup"}}
    rows_of_file = feat2vec.fit({"version": 1, "model": {"dim": 2}, "groups": groups}, rows)
    mapped = [array for values in rows_of_file.values.values() for array in (values.entries, values.counts)]
    assert all(int(array.sum()) > 0 for array in mapped)  # each of their pages was read
    names = [str(array.filename) for array in mapped if isinstance(array, np.memmap)]
    assert len(names) == len(mapped)
    assert min(_resident(name) for name in names) > 0
    Feat2Vec.from_encoder(rows_of_file.encoder).learn_from(rows_of_file)
    assert [_resident(name) for name in names] == [0] * len(names)


def _resident(path: str) -> int:
    """Kilobytes of a mapped file that are in this process' memory."""
    _, *mapping = Path("/proc/self/smaps").read_text().partition(f"{path}\n")
    return int("".join(mapping).split("Rss:")[1].split()[0])
