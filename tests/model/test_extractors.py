"""Each extractor against loops, the promises that all registered ones keep, and the graph that training runs."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from feat2vec.model.extractors import (
    LAYERS,
    Extracted,
    Extractor,
    Headed,
    Shape,
    build_extractor,
    layer,
    text_attention,
)
from feat2vec.model.optimizers import SparseAdagrad, SparseAdam
from feat2vec.schema.extractor_options import EXTRACTORS, HOLDERS, ExtractorSpec, TextCnn, VectorSpec, extractor
from tests import reference

Array = npt.NDArray[Any]
DIMS = {"fm": (3,), "rafm": (2, 3, 5)}
SIZES = {"fm": (7,), "rafm": (7, 4, 2)}  # six keys and the unseen one; four of the keys reach level 2


class Case(NamedTuple):
    """An extractor with options that are not the defaults."""

    name: str
    options: dict[str, Any]
    width: int  # items, or numbers, of an entry
    weighted: bool = False

    def spec(self) -> ExtractorSpec:
        return EXTRACTORS[self.name](**self.options)

    def shape(self, levels: str) -> Shape:
        ids = self.spec().encoding in ("items", "tokens")
        return Shape(self.width * (2 if self.weighted else 1), SIZES[levels] if ids else (), self.weighted)


LEARNED = {"positions": "learned", "max_tokens": 11}
CASES = {
    "single": Case("lookup", {}, 1),
    "bag": Case("lookup", {"multi": True}, 4),
    "mean": Case("lookup", {"multi": True, "combiner": "mean"}, 4),
    "sqrtn": Case("lookup", {"multi": True, "combiner": "sqrtn"}, 4),
    "weighted": Case("lookup", {"multi": True, "weights": "w"}, 3, weighted=True),
    "weighted_mean": Case("lookup", {"multi": True, "weights": "w", "combiner": "mean"}, 3, weighted=True),
    "weighted_sqrtn": Case("lookup", {"multi": True, "weights": "w", "combiner": "sqrtn"}, 3, weighted=True),
    "text": Case("text_cnn", {"token_dim": 4, "filters": 3, "widths": (1, 3), "dropout": 0.5}, 5),
    "short_text": Case("text_cnn", {"token_dim": 4, "filters": 3, "widths": (2, 4)}, 2),  # a window wider than entries
    "attention": Case("text_attention", {"token_dim": 4, "heads": 2, "units": 7, **LEARNED}, 5),
    "linear": Case("numeric", {}, 3),
    "mlp": Case("numeric", {"hidden": (5, 4)}, 3),
    "pieces": Case("numeric", {"pieces": 4, "scale": "quantile"}, 2),
    "vector": Case("vector", {}, 6),
    "users_own": Case("scaled", {"factor": 2.5}, 4),
}


SOFTMAX = 1e-7  # the tolerance of Keras' attention, whose softmax is in float32 in any case
SINUSOIDAL = Case("text_attention", {"token_dim": 3, "heads": 1, "blocks": 2, "units": 5, "dropout": 0.5}, 4)


class Scaled(VectorSpec):
    type: Literal["scaled"] = "scaled"
    factor: float = 1.0


class ScaledExtractor(Headed):
    def build(self, input_shape: Any = None) -> None:
        self.build_heads(self.shape.width, use_bias=False)
        super().build(input_shape)

    def call(self, entries: Any, training: bool = False, seed: Any = None) -> Extracted:
        del training, seed
        present = ~tf.math.is_nan(entries[:, :1])
        features = tf.where(present, tf.cast(entries, self.compute_dtype), 0) * self.spec["factor"]
        return self.finish(features, tf.cast(present, features.dtype))


@keras.saving.register_keras_serializable("tests")
class Holder(keras.Model):
    """A model that is one extractor."""

    def __init__(self, held: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.held = held if isinstance(held, Extractor) else keras.saving.deserialize_keras_object(held)

    def build(self, input_shape: Any = None) -> None:
        if not self.held.built:
            self.held.build(None)
        super().build(input_shape)

    def call(self, entries: Any) -> Any:
        return parts_of(self.held(entries))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "held": keras.saving.serialize_keras_object(self.held)}


def saved_and_loaded(made: Extractor, entries: Array, path: Path) -> Any:
    model = Holder(made)
    model(tf.constant(entries))
    model.save(path / "model.keras")
    return keras.models.load_model(path / "model.keras")


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    """Each case, the user's own extractor registered only while it runs."""
    found = CASES[request.param]
    if found.name != "scaled":
        yield found
        return
    extractor("scaled")(Scaled)
    layer("scaled")(ScaledExtractor)
    try:
        yield found
    finally:
        del EXTRACTORS["scaled"], LAYERS["scaled"], keras.saving.get_custom_objects()["feat2vec>scaled"]
        for holder in HOLDERS:
            holder.model_rebuild(force=True)


@pytest.fixture(params=DIMS)
def levels(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_extractor_has_a_layer_and_a_case() -> None:
    assert set(LAYERS) == set(EXTRACTORS)
    assert set(LAYERS) == {case.name for case in CASES.values()} - {"scaled"}


# --- entries and layers ---------------------------------------------------------------------------------------------


def make(case: Case, levels: str, bias: bool = True, dtype: str = "float64") -> Extractor:
    """A built layer of which no weight is zero."""
    config = build_extractor(case.spec(), case.shape(levels), DIMS[levels], bias, "group").get_config()
    made = LAYERS[case.name].from_config({**config, "dtype": dtype})
    made.build(None)
    randomize(made)
    return made


def randomize(made: Extractor) -> None:
    rng = np.random.default_rng(5)
    made.set_weights([rng.normal(size=weight.shape) for weight in made.get_weights()])


def entries_of(case: Case, rows: int, seed: int = 0) -> Array:
    """Entries of every length, the one in row 1 missing."""
    rng = np.random.default_rng(seed)
    shape = (rows, case.width)
    if case.spec().encoding in ("numbers", "vector"):
        numbers = rng.normal(size=shape).astype(np.float32)
        numbers[1:2] = np.nan
        return numbers
    lengths = 1 + np.arange(rows)[:, None] % case.width
    lengths[1:2] = 0
    filled = np.arange(case.width) < lengths
    ids = np.where(filled, rng.integers(1, SIZES["fm"][0] + 1, shape), 0).astype(np.int32)
    if not case.weighted:
        return ids
    weights = np.where(filled, rng.normal(size=shape), 0).astype(np.float32)
    return np.concatenate([ids, weights.view(np.int32)], axis=1)


def missing(case: Case, rows: int) -> Array:
    return np.repeat(entries_of(case, 2)[1:], rows, axis=0)


def parts_of(extracted: Extracted) -> list[Any]:
    """Every tensor [batch, ...]: free, dependent, ..., and the linear term."""
    parts = [part for level in extracted.levels for part in level[:2]] + [extracted.linear]
    return [part for part in parts if part is not None]


def outputs(made: Extractor, entries: Array) -> list[Array]:
    extracted = made(tf.constant(entries))
    return [part.numpy() for part in [*parts_of(extracted), extracted.square]]


def loss_of(made: Extractor, entries: Array) -> Any:
    """A number that depends on every output."""
    rng = np.random.default_rng(9)
    extracted = made(tf.constant(entries))
    terms = [
        tf.reduce_sum(part * rng.normal(size=(50, *part.shape[1:]))[: len(entries)]) for part in parts_of(extracted)
    ]
    return tf.add_n(terms) + 0.7 * extracted.square


def gradients(made: Extractor, entries: Array) -> list[Any]:
    with tf.GradientTape() as tape:
        loss = loss_of(made, entries)
    return list(tape.gradient(loss, [weight.value for weight in made.trainable_weights]))


def close(got: Sequence[Any], expected: Sequence[Any], tolerance: float = 1e-11) -> None:
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


# --- the admission test: what every extractor promises --------------------------------------------------------------


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", ["float32", "float64", "mixed_bfloat16"])
@pytest.mark.parametrize("bias", [True, False])
def test_shapes_and_types(case: Case, levels: str, bias: bool, dtype: str) -> None:
    made = make(case, levels, bias, dtype)
    extracted = made(tf.constant(entries_of(case, 7)))
    dims = DIMS[levels]
    for number, (level, dim) in enumerate(zip(extracted.levels, dims, strict=True), start=1):
        assert level.free.shape == (7, dim)
        assert (level.dependent is None) == (number == len(dims))
        assert level.dependent is None or level.dependent.shape == (7, dim)
    assert (extracted.linear is not None) == bias
    assert not bias or extracted.linear.shape == (7,)
    assert extracted.square.shape == ()
    assert {part.dtype for part in [*parts_of(extracted), extracted.square]} == {tf.as_dtype(made.compute_dtype)}


@pytest.mark.thinned(3)
def test_the_same_seed_gives_the_same_layer(case: Case, levels: str) -> None:
    def fresh(seed: int) -> Extractor:
        keras.utils.set_random_seed(seed)
        made = build_extractor(case.spec(), case.shape(levels), DIMS[levels], True, "group")
        made.build(None)
        return made

    entries = entries_of(case, 9)
    first, second, other = (outputs(fresh(seed), entries) for seed in (1, 1, 2))
    assert [part.tobytes() for part in first] == [part.tobytes() for part in second]
    assert not first[-2].any()  # linear terms start at 0
    assert max(np.abs(one - two).max() for one, two in zip(first, other, strict=True)) > 0


@pytest.mark.thinned(3)
def test_a_config_rebuilds_the_layer(case: Case, levels: str) -> None:
    made, entries = make(case, levels), entries_of(case, 9)
    clone = type(made).from_config(json.loads(json.dumps(made.get_config())))
    clone.build(None)
    clone.set_weights(made.get_weights())
    close(outputs(clone, entries), outputs(made, entries), 0)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("bias", [True, False])
def test_a_keras_file_rebuilds_the_layer(case: Case, levels: str, bias: bool, tmp_path: Path) -> None:
    made, entries = make(case, levels, bias), entries_of(case, 9)
    loaded = saved_and_loaded(made, entries, tmp_path)
    assert type(loaded.held) is type(made)
    close(loaded(tf.constant(entries)), outputs(made, entries)[:-1], 0)


def count(case: Case, levels: str, bias: bool) -> int:
    """How many weights there have to be."""
    dims, sizes, options = DIMS[levels], SIZES[levels], case.options
    if case.name == "lookup":
        return sum(d * f for d, f in zip(dims, sizes, strict=True)) + bias * sizes[0]
    outs = sum(dims) + bias
    if case.name == "text_cnn":
        return 7 * 4 + sum(width * 4 * 3 + 3 for width in options["widths"]) + 2 * 3 * outs + sum(dims)
    if case.name == "text_attention":
        dim, units, learned = options["token_dim"], options["units"], options.get("positions") == "learned"
        block = 4 * dim * dim + 2 * dim + (dim * units + units) + (units * dim + dim) + 2 * dim
        return 7 * dim + learned * 11 * dim + options.get("blocks", 1) * block + dim * outs + sum(dims)
    if "hidden" in options:
        return (3 * 5 + 5) + (5 * 4 + 4) + 4 * outs + sum(dims)
    features = case.width * options["pieces"] + 1 if "pieces" in options else case.width
    return features * outs  # a linear map has no bias


@pytest.mark.thinned(3)
@pytest.mark.parametrize("bias", [True, False])
def test_params_count_every_weight(case: Case, levels: str, bias: bool) -> None:
    made = make(case, levels, bias)
    assert made.params() == count(case, levels, bias)
    made.trainable = False
    assert made.params() == sum(weight.size for weight in made.get_weights())


@pytest.mark.thinned(3)
def test_a_gradient_reaches_every_weight(case: Case, levels: str) -> None:
    made = make(case, levels)
    for weight, gradient in zip(made.trainable_weights, gradients(made, entries_of(case, 40)), strict=True):
        dense = np.asarray(tf.convert_to_tensor(gradient))
        assert dense.shape == weight.shape
        assert (dense != 0).any(), weight.path
        if isinstance(gradient, tf.IndexedSlices):
            assert (dense != 0).all(), weight.path  # every key occurs


@pytest.mark.thinned(3)
def test_gradients_equal_central_differences(case: Case, levels: str) -> None:
    made, entries, step = make(case, levels), entries_of(case, 6), 1e-6
    compiled = tf.function(lambda: loss_of(made, entries))
    for weight, gradient in zip(made.trainable_weights, gradients(made, entries), strict=True):
        start, numeric = weight.numpy().copy(), np.zeros(weight.shape)
        for place in np.ndindex(*weight.shape):
            ends = []
            for sign in (1, -1):
                moved = start.copy()
                moved[place] += sign * step
                weight.assign(moved)
                ends.append(float(compiled()))
            numeric[place] = (ends[0] - ends[1]) / (2 * step)
        weight.assign(start)
        close([tf.convert_to_tensor(gradient)], [numeric], 1e-6)


@pytest.mark.thinned(3)
def test_a_missing_group_is_zero_and_has_no_gradient(case: Case, levels: str) -> None:
    made = make(case, levels)
    for part in outputs(made, entries_of(case, 9))[:-1]:
        assert not part[1].any()
    assert not any(part.any() for part in outputs(made, missing(case, 4)))
    for gradient in gradients(made, missing(case, 4)):
        if isinstance(gradient, tf.IndexedSlices):
            assert len(gradient.indices) == 0
        else:
            assert not gradient.numpy().any()


@pytest.mark.thinned(3)
def test_a_batch_equals_its_rows(case: Case, levels: str) -> None:
    made, entries = make(case, levels), entries_of(case, 9)
    whole, rows = outputs(made, entries), [outputs(made, entries[i : i + 1]) for i in range(9)]
    close(whole[:-1], [np.concatenate(part) for part in list(zip(*rows, strict=True))[:-1]])
    close([whole[-1]], [sum(row[-1] for row in rows)])


@pytest.mark.thinned(3)
def test_permuting_rows_permutes_outputs(case: Case, levels: str) -> None:
    made, entries, order = make(case, levels), entries_of(case, 9), np.random.default_rng(3).permutation(9)
    straight, permuted = outputs(made, entries), outputs(made, entries[order])
    close(permuted, [*(part[order] for part in straight[:-1]), straight[-1]])


@pytest.mark.thinned(3)
def test_a_row_depends_on_its_own_entry_only(case: Case, levels: str) -> None:
    made, entries = make(case, levels), entries_of(case, 9)
    changed = entries.copy()
    changed[4] = next(row for row in entries_of(case, 30, seed=1)[2:] if (row != entries[4]).any())
    before, after = outputs(made, entries)[:-1], outputs(made, changed)[:-1]
    others = np.arange(9) != 4
    close([part[others] for part in after], [part[others] for part in before])
    assert any((one[4] != two[4]).any() for one, two in zip(before, after, strict=True))


@pytest.mark.thinned(3)
def test_an_empty_batch(case: Case, levels: str) -> None:
    made, entries = make(case, levels), entries_of(case, 3)[:0]
    assert [part.shape for part in outputs(made, entries)[:-1]] == [
        (0, *part.shape[1:]) for part in outputs(made, entries_of(case, 3))[:-1]
    ]
    assert not any(np.asarray(tf.convert_to_tensor(gradient)).any() for gradient in gradients(made, entries))


# --- loops ----------------------------------------------------------------------------------------------------------


def weights_by_name(made: Extractor) -> dict[str, Array]:
    """`table_1`, `width_3/kernel`, `head_2/bias`, ... of a layer named `group`."""
    return {weight.path.removeprefix("group/"): weight.numpy() for weight in made.weights}


def lookup_loop(case: Case, levels: str, entries: Array, w: dict[str, Array]) -> Iterator[list[Any]]:
    """For each row: free, dependent, ..., linear, square. A key of id v has row v - 1 in table 1, and v - 2 above."""
    sizes, dims = SIZES[levels], DIMS[levels]
    for row in entries:
        ids = [int(v) for v in row[: case.width] if v]
        weights = row[case.width :].view(np.float32).astype(float)[: len(ids)] if case.weighted else [1.0] * len(ids)
        combiner = case.options.get("combiner", "sum")
        total = {"sum": 1.0, "mean": sum(weights), "sqrtn": sum(x * x for x in weights) ** 0.5}[combiner]
        free, dependent = ([np.zeros(dim) for dim in dims] for _ in range(2))
        linear = square = 0.0
        for v, weight in zip(ids, weights, strict=True):
            top = max([0, *(k for k in range(1, len(sizes)) if 2 <= v < 2 + sizes[k])])
            for k in range(top + 1):
                vector = w[f"table_{k + 1}"][v - 1 if k == 0 else v - 2]
                (free if k == top else dependent)[k] += weight / total * vector
                square += sum(x * x for x in vector)
            linear += weight / total * w["linear"][v - 1, 0]
        mixed = [part for pair in zip(free, dependent, strict=True) for part in pair]
        yield [*mixed[:-1], linear, square]  # the last level has no dependents


def heads_loop(levels: str, features: list[float] | None, w: dict[str, Array]) -> list[Any]:
    """A row's outputs from its features, None for a missing group: zeros are free below the last level."""
    found: list[Any] = []
    for k, dim in enumerate(DIMS[levels], start=1):
        vector = np.zeros(dim)
        for d in range(dim if features is not None else 0):
            vector[d] = w[f"head_{k}/bias"][d] if f"head_{k}/bias" in w else 0
            vector[d] += sum(x * w[f"head_{k}/kernel"][i, d] for i, x in enumerate(features or []))
        found += [vector] if k == len(DIMS[levels]) else [np.zeros(dim), vector]
    return [*found, sum(x * w["linear/kernel"][i, 0] for i, x in enumerate(features or [])), 0.0]


def text_loop(case: Case, levels: str, entries: Array, w: dict[str, Array]) -> Iterator[list[Any]]:
    for row in entries:
        text = [w["tokens"][v - 1] for v in row if v]
        features = []
        for width in case.options["widths"]:
            kernel, bias = w[f"width_{width}/kernel"], w[f"width_{width}/bias"]  # [width, token_dim, filters]
            padded = text + [np.zeros(kernel.shape[1])] * (width - len(text))
            for f in range(kernel.shape[2]):
                best = 0.0
                for start in range(len(padded) - width + 1):
                    window = bias[f] + sum(padded[start + j] @ kernel[j, :, f] for j in range(width))
                    best = max(best, window)
                features.append(best)
        *parts, _ = heads_loop(levels, features if text else None, w)
        yield [*parts, sum(x * x for token in text for x in token)]


def attention_loop(case: Case, levels: str, entries: Array, w: dict[str, Array]) -> Iterator[list[Any]]:
    dim = case.options["token_dim"]
    for row in entries:
        tokens = [w["tokens"][v - 1] for v in row if v]
        text = []
        for place, token in enumerate(tokens):
            position = w["positions"][place] if "positions" in w else reference.sinusoid(place, dim)
            text.append(dim**0.5 * token + position)
        for block in range(case.options.get("blocks", 1)):
            prefix = f"block_{block}/"
            of_block = {name.removeprefix(prefix): array for name, array in w.items() if name.startswith(prefix)}
            text = reference.attention_block(text, of_block)
        *parts, _ = heads_loop(levels, list(np.mean(text, axis=0)) if text else None, w)
        yield [*parts, sum(x * x for token in tokens for x in token)]


def numbers_loop(case: Case, levels: str, entries: Array, w: dict[str, Array]) -> Iterator[list[Any]]:
    for row in entries:
        features = [float(x) * case.options.get("factor", 1) for x in row]
        if "pieces" in case.options:
            edges = [i / case.options["pieces"] for i in range(case.options["pieces"] + 1)]
            features = [part for x in features for part in reference.piecewise(x, edges)] + [1.0]
        for number, units in enumerate(case.options.get("hidden", ())):
            kernel, bias = w[f"hidden_{number}/kernel"], w[f"hidden_{number}/bias"]
            features = [max(0.0, bias[u] + sum(x * kernel[i, u] for i, x in enumerate(features))) for u in range(units)]
        yield heads_loop(levels, None if np.isnan(row[0]) else features, w)


LOOPS: dict[str, Callable[..., Iterator[list[Any]]]] = {
    "lookup": lookup_loop,
    "text_cnn": text_loop,
    "text_attention": attention_loop,
    "numeric": numbers_loop,
    "vector": numbers_loop,
    "scaled": numbers_loop,
}


def test_outputs_equal_the_loops(case: Case, levels: str) -> None:
    made, entries = make(case, levels), entries_of(case, 40)
    rows = list(LOOPS[case.name](case, levels, entries, weights_by_name(made)))
    *parts, square = (np.array(part) for part in zip(*rows, strict=True))
    close(outputs(made, entries), [*parts, square.sum()], SOFTMAX if case.name == "text_attention" else 1e-11)


# --- lookups --------------------------------------------------------------------------------------------------------


def test_a_keys_levels_by_hand() -> None:
    made = make(CASES["single"], "rafm")
    entries = np.array([[0], [1], [2], [3], [4], [5], [6], [7]], np.int32)  # keys 2, 3 | 4, 5 | 6, 7: levels 3, 2, 1
    first, second, third, linear = made.get_weights()
    free_1, dependent_1, free_2, dependent_2, free_3, terms, square = outputs(made, entries)
    zero = np.zeros
    close(
        [free_1, dependent_1],
        [[zero(2), first[0], *zero((4, 2)), *first[5:]], [zero(2), zero(2), *first[1:5], *zero((2, 2))]],
        0,
    )
    close(
        [free_2, dependent_2],
        [[*zero((4, 3)), *second[2:], *zero((2, 3))], [*zero((2, 3)), *second[:2], *zero((4, 3))]],
        0,
    )
    close([free_3, terms], [[*zero((2, 5)), *third, *zero((4, 5))], [0, *linear[:, 0]]], 0)
    close([square], [sum((table**2).sum() for table in (first, second, third))])


@pytest.mark.parametrize("name", ["bag", "mean", "sqrtn", "text", "short_text", "attention"])
def test_padding_changes_nothing(name: str, levels: str) -> None:
    case = CASES[name]
    made, wide = make(case, levels), make(case._replace(width=case.width + 6), levels)
    entries = entries_of(case, 20)
    padded = np.pad(entries, [(0, 0), (0, 6)])
    close(outputs(wide, padded), outputs(made, entries))
    close(
        [tf.convert_to_tensor(g) for g in gradients(wide, padded)],
        [tf.convert_to_tensor(g) for g in gradients(made, entries)],
    )


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_weights_that_sum_to_nothing_give_zero(combiner: str) -> None:
    made = make(Case("lookup", {"multi": True, "weights": "w", "combiner": combiner}, 2, weighted=True), "fm")
    entries = np.array([[3, 4, 0, 0]], np.int32)  # weights 0.0, 0.0
    assert not any(part.any() for part in outputs(made, entries)[:-1])
    assert all(np.isfinite(tf.convert_to_tensor(gradient)).all() for gradient in gradients(made, entries))


@pytest.mark.parametrize("name", ["single", "weighted_mean"])
def test_levels_without_keys(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    spec, shape = case.spec(), case.shape("rafm")._replace(sizes=(1, 0, 0))
    made = build_extractor(spec, shape, DIMS["rafm"], True, "group")
    made.build(None)
    randomize(made)
    assert made.params() == 3
    entries = np.zeros((5, shape.width), np.int32)
    entries[2:, 0] = 1
    entries[:, 3:4] = np.float32(0.5).view(np.int32)  # the item's weight, where there are weights
    got = outputs(made, entries)
    assert got[0].any()
    assert not any(part.any() for part in got[1:-2])
    SparseAdagrad(0.1).apply_gradients(zip(gradients(made, entries), made.trainable_weights, strict=True))
    loaded = saved_and_loaded(made, entries, tmp_path)
    close(loaded(tf.constant(entries)), outputs(made, entries)[:-1], 0)


@pytest.mark.parametrize("name", ["bag", "text", "attention"])
def test_an_unseen_key_is_zero_until_training_meets_it(name: str, levels: str) -> None:
    case = CASES[name]
    made = build_extractor(case.spec(), case.shape(levels), DIMS[levels], False, "group")
    made.build(None)
    table = made.trainable_weights[0]
    assert not table.numpy()[0].any()
    assert table.numpy()[1:].all()
    for convolution in getattr(made, "convolutions", ()):
        convolution.bias.assign(np.ones(convolution.bias.shape))  # no window is below the ReLU
    entries = np.zeros((2, case.width), np.int32)
    entries[0, 0], entries[1, :2] = 2, (2, 1)
    if name == "bag":  # an unseen item adds nothing to its bag
        first = made(entries).levels[0]
        for part in first[:2]:
            assert part is None or (part[0] == part[1]).numpy().all()
    with tf.GradientTape() as tape:
        extracted = made(entries)
        loss = tf.add_n([tf.reduce_sum(tf.square(part - 1)) for part in parts_of(extracted)])
    assert np.asarray(tf.convert_to_tensor(tape.gradient(loss, table.value)))[0].any()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["bag", "mean", "sqrtn", "weighted", "weighted_mean", "text", "attention"])
def test_entries_may_be_narrower_or_wider_than_the_layer(name: str, levels: str) -> None:
    """Training rows may have narrower bags than `max_items`: a width that is not theirs would mix the rows."""
    case = CASES[name]
    wide = make(case._replace(width=case.width + 3), levels)
    entries = entries_of(case, 20)
    one = make(case, levels)
    close(outputs(wide, entries), outputs(one, entries))
    ids, weights = entries[:, : case.width], entries[:, case.width :]
    if case.name == "lookup":
        close(outputs(one, np.concatenate([np.pad(part, [(0, 0), (0, 2)]) for part in (ids, weights) if part.size], 1)),
              outputs(one, entries))  # fmt: skip
    spec = tf.TensorSpec([None, None], tf.int32)
    traced = tf.function(lambda rows: parts_of(wide(rows)), input_signature=[spec])
    close([part.numpy() for part in traced(entries)], outputs(one, entries)[:-1])


# --- dropout of items -----------------------------------------------------------------------------------------------


def kept_items(rate: float, combiner: str, weighted: bool, rows: int, seed: Sequence[int]) -> tuple[Any, Array, Array]:
    """A layer that shows which items it kept; ids [rows, 7], each key once a row; their weights."""
    options = {"multi": True, "max_items": 7, "item_dropout": rate, "combiner": combiner}
    case = Case("lookup", {**options, **({"weights": "w"} if weighted else {})}, 7, weighted)
    made = LAYERS["lookup"](case.spec().model_dump(mode="json"), case.shape("fm"), (7,), True, dtype="float64")
    made.build(None)
    made.set_weights([np.eye(7), np.arange(1.0, 8)[:, None]])
    rng = np.random.default_rng(list(seed))
    ids = rng.permuted(np.tile(np.arange(1, 8, dtype=np.int32), (rows, 1)), axis=1)
    weights = rng.uniform(0.5, 2, ids.shape).astype(np.float32) if weighted else np.ones(ids.shape, np.float32)
    return made, ids, weights


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("weighted", [False, True])
def test_dropped_items_are_as_if_they_were_not_there(combiner: str, weighted: bool) -> None:
    made, ids, weights = kept_items(0.6, combiner, weighted, 300, (1, 2))
    entries = np.concatenate([ids, weights.view(np.int32)], 1) if weighted else ids
    found = made(entries, training=True, seed=[1, 2])
    vectors = found.levels[0].free.numpy()
    linear = np.zeros(len(ids))
    kept_number = 0
    for r, row in enumerate(ids):
        kept = [(int(v), float(w)) for v, w in zip(row, weights[r], strict=True) if vectors[r, v - 1]]
        kept_number += len(kept)
        norm = {"sum": 1.0, "mean": sum(w for _, w in kept), "sqrtn": sum(w * w for _, w in kept) ** 0.5}[combiner]
        expected = np.zeros(7)
        for v, w in kept:
            expected[v - 1] = w / norm
            linear[r] += w / norm * v
        np.testing.assert_allclose(vectors[r], expected, rtol=1e-6)
    np.testing.assert_allclose(found.linear, linear, rtol=1e-6)
    assert float(found.square) == kept_number  # what L2 counts
    assert 0 < kept_number < ids.size
    assert not vectors.any(axis=1).all()  # 0.6^7 of the rows keep nothing, and are missing


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("weighted", [False, True])
def test_items_are_dropped_at_their_rate_each_by_itself(rate: float, weighted: bool) -> None:
    made, ids, weights = kept_items(rate, "sum", weighted, 20_000, (3, 4))
    entries = np.concatenate([ids, weights.view(np.int32)], 1) if weighted else ids
    kept = made(entries, training=True, seed=[3, 4]).levels[0].free.numpy() != 0  # by key, [rows, 7]
    by_place = np.take_along_axis(kept, ids - 1, 1)
    for mask in (kept, by_place):
        expected = len(mask) * (1 - rate)
        statistic = ((mask.sum(0) - expected) ** 2 / (expected * rate)).sum()  # 7 degrees of freedom
        assert statistic < 29.9  # p = 1e-4
    sizes = np.bincount(kept.sum(1), minlength=8)
    chance = np.array([math.comb(7, n) * (1 - rate) ** n * rate ** (7 - n) for n in range(8)]) * len(kept)
    likely = chance > 5
    assert ((sizes - chance)[likely] ** 2 / chance[likely]).sum() < 31.8


def test_dropped_items_follow_the_seed_and_only_training_drops() -> None:
    made, ids, _ = kept_items(0.5, "sum", False, 200, (5, 6))
    one, again, other, third = (
        made(ids, training=True, seed=seed).levels[0].free.numpy() for seed in ([5, 6], [5, 6], [5, 7], [6, 6])
    )
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    assert (one != third).any()
    for options in ({"training": False}, {"training": False, "seed": [5, 6]}, {}):
        np.testing.assert_array_equal(made(ids, **options).levels[0].free, np.ones((200, 7)))
    with pytest.raises(ValueError, match=r"dropout needs a `seed` of two integers. Received: seed=None"):
        made(ids, training=True)


# --- the graph ------------------------------------------------------------------------------------------------------


def dense_reads(graph: Any, sizes: set[int]) -> list[str]:
    """Consumers, but those of the shape alone, of a whole variable with so many rows."""
    found = []
    for op in graph.get_operations():
        if op.type == "ReadVariableOp" and op.outputs[0].shape.rank and op.outputs[0].shape[0] in sizes:
            found += [use.type for use in op.outputs[0].consumers() if use.type not in ("Shape", "ShapeN")]
    return found


STEPS = list(
    itertools.product(
        ["single", "weighted_mean", "text", "attention"], ["adagrad", "adam"], ["float32", "mixed_bfloat16"]
    )
)
QUICK_STEPS = {
    ("single", "adagrad", "float32"),
    ("weighted_mean", "adam", "float32"),
    ("text", "adagrad", "mixed_bfloat16"),
}


@pytest.mark.parametrize(
    ("name", "optimizer_name", "dtype"),
    [pytest.param(*step, marks=() if step in QUICK_STEPS else pytest.mark.slow) for step in STEPS],
)
def test_a_step_gathers_and_never_reads_a_table(name: str, optimizer_name: str, dtype: str) -> None:
    case, sizes = CASES[name], (103, 53, 19)
    shape = case.shape("rafm")._replace(sizes=sizes)
    made = LAYERS[case.name](case.spec().model_dump(mode="json"), shape, DIMS["rafm"], True, dtype=dtype)
    made.build(None)
    optimizer = {"adagrad": SparseAdagrad, "adam": SparseAdam}[optimizer_name](0.1)
    optimizer.build(made.trainable_weights)
    tables = [weight for weight in made.trainable_weights if weight.shape[0] in sizes]
    assert len(tables) == (4 if case.name == "lookup" else 1)
    entries = entries_of(case, 30)

    def step(entries: Any) -> None:
        with tf.GradientTape() as tape:
            extracted = made(entries)
            loss = tf.add_n([tf.reduce_sum(tf.square(part - 1)) for part in parts_of(extracted)]) + extracted.square
        found = tape.gradient(loss, [weight.value for weight in made.trainable_weights])
        slices = [w.path for g, w in zip(found, made.trainable_weights, strict=True) if isinstance(g, tf.IndexedSlices)]
        assert slices == [table.path for table in tables]
        optimizer.apply(found, made.trainable_weights)

    traced = tf.function(step).get_concrete_function(tf.TensorSpec(entries.shape, entries.dtype))
    assert not dense_reads(traced.graph, set(sizes))
    gathers = [op for op in traced.graph.get_operations() if op.type == "ResourceGather"]
    assert {id(op.inputs[0]) for op in gathers} >= {
        id(inner) for outer, inner in traced.graph.captures if any(outer is table.value.handle for table in tables)
    }
    before = [table.numpy().copy() for table in tables]
    traced(tf.constant(entries))
    for table, old in zip(tables, before, strict=True):
        changed = np.flatnonzero((table.numpy() != old).any(axis=1)) + (103 - table.shape[0] > 0)  # as rows of table 1
        ids = entries[:, : case.width]
        assert set(changed) == {v - 1 for v in ids[ids > 0] if table.shape[0] == 103 or 2 <= v < 2 + table.shape[0]}


def test_the_inspection_sees_a_dense_read() -> None:
    table = tf.Variable(np.ones((103, 2)))
    embedding = keras.layers.Embedding(103, 2)
    embedding.build()
    for read in (lambda ids: tf.gather(table * 2, ids), embedding):
        assert dense_reads(tf.function(read).get_concrete_function(tf.TensorSpec((4,), tf.int32)).graph, {103})


# --- text -----------------------------------------------------------------------------------------------------------


def test_dropout_drops_features_in_training_only() -> None:
    case = Case("text_cnn", {"token_dim": 4, "filters": 3, "widths": (2,), "dropout": 0.25}, 4)
    keras.utils.set_random_seed(0)
    made = make(case, "fm")
    made.heads[0].set_weights([np.eye(3), np.zeros(3)])  # vectors are features
    made.convolutions[0].set_weights([made.convolutions[0].kernel.numpy(), np.full(3, 100.0)])  # none is 0
    entries = np.random.default_rng(0).integers(1, 8, (2000, 4)).astype(np.int32)
    still = made(entries).levels[0].free.numpy()
    trained, again, other = (made(entries, training=True, seed=[1, step]).levels[0].free.numpy() for step in (2, 2, 3))
    np.testing.assert_array_equal(trained, again)
    assert (trained != other).any()
    with pytest.raises(ValueError, match=r"dropout needs a `seed` of two integers. Received: seed=None"):
        made(entries, training=True)
    close([made(entries, training=False).levels[0].free], [still], 0)
    kept = trained != 0
    close([trained[kept]], [still[kept] / 0.75])
    assert 0.73 < kept.mean() < 0.77


def test_blocks_over_sinusoids_equal_the_loops() -> None:
    made, entries = make(SINUSOIDAL, "rafm"), entries_of(SINUSOIDAL, 20)
    assert made.params() == count(SINUSOIDAL, "rafm", bias=True)
    rows = list(attention_loop(SINUSOIDAL, "rafm", entries, weights_by_name(made)))
    *parts, square = (np.array(part) for part in zip(*rows, strict=True))
    close(outputs(made, entries), [*parts, square.sum()], SOFTMAX)


def test_attention_drops_features_in_training_only() -> None:
    made = make(SINUSOIDAL, "fm")
    made.heads[0].set_weights([np.eye(3), np.zeros(3)])  # vectors are features
    entries = np.random.default_rng(0).integers(1, 8, (2000, 4)).astype(np.int32)
    still = made(entries).levels[0].free.numpy()
    trained, again, other = (made(entries, training=True, seed=[1, step]).levels[0].free.numpy() for step in (2, 2, 3))
    np.testing.assert_array_equal(trained, again)
    assert (trained != other).any()
    kept = trained != 0
    close([trained[kept]], [still[kept] / 0.5])
    assert 0.48 < kept.mean() < 0.52
    with pytest.raises(ValueError, match=r"dropout needs a `seed` of two integers. Received: seed=None"):
        made(entries, training=True)


@pytest.mark.parametrize("weights", [1, 3 * 16])  # a row at a time, or three
def test_many_rows_are_read_in_parts(weights: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made, entries = make(SINUSOIDAL, "fm"), entries_of(SINUSOIDAL, 10)
    expected = outputs(made, entries)
    monkeypatch.setattr(text_attention, "MOST_WEIGHTS", weights)
    close(outputs(made, entries), expected)
    close(outputs(made, entries[:0])[:-1], [part[:0] for part in expected[:-1]])
    spec = tf.TensorSpec([None, None], tf.int32)
    traced = tf.function(lambda rows: parts_of(made(rows)), input_signature=[spec])
    close([part.numpy() for part in traced(entries)], expected[:-1])


def test_attention_sees_the_order_of_tokens_and_nothing_beyond_max_tokens() -> None:
    case = Case("text_attention", {"token_dim": 4, "heads": 2, "units": 3, "max_tokens": 3}, 3)
    made = make(case, "fm", bias=False)
    there, back = (made(np.array([ids], np.int32)).levels[0].free.numpy() for ids in ([2, 3, 4], [4, 3, 2]))
    assert np.abs(there - back).max() > 1e-3
    longer = made(np.array([[2, 3, 4, 0, 0]], np.int32)).levels[0].free.numpy()
    close([longer], [there])


def test_learned_positions_start_as_the_sinusoids() -> None:
    options = {"token_dim": 5, "heads": 1, "max_tokens": 6}
    vectors = []
    for positions in ("learned", "sinusoidal"):
        keras.utils.set_random_seed(3)
        case = Case("text_attention", {**options, "positions": positions}, 6)
        made = build_extractor(case.spec(), case.shape("fm"), DIMS["fm"], False, "group")
        vectors.append(outputs(made, entries_of(case, 7)))
    close(vectors[0], vectors[1], 1e-6)
    expected = [reference.sinusoid(place, 5) for place in range(6)]
    close([made.sinusoids], [expected])


def test_windows_over_the_padding_do_not_count() -> None:
    made = make(Case("text_cnn", {"token_dim": 2, "filters": 1, "widths": (2,)}, 5), "fm", bias=False)
    made.set_weights([np.full((7, 2), -1.0), np.ones((2, 2, 1)), np.full(1, 9.0), np.ones((1, 3)), np.zeros(3)])
    entries = np.array([[3, 0, 0, 0, 0], [3, 4, 0, 0, 0], [3, 4, 5, 0, 0]], np.int32)
    close([made(entries).levels[0].free[:, 0]], [[7, 5, 5]])  # a window of padding alone would be 9


# --- the registry ---------------------------------------------------------------------------------------------------


def test_a_layer_has_one_name_and_a_name_one_layer() -> None:
    before = dict(LAYERS)
    with pytest.raises(ValueError, match=r"'lookup' has a layer already, .*LookupExtractor.*Received: .*Scaled"):
        layer("lookup")(ScaledExtractor)
    twin = type("LookupExtractor", (Headed,), {"__module__": "elsewhere"})
    with pytest.raises(ValueError, match=r"has a layer already.*Received: .*elsewhere"):
        layer("lookup")(twin)
    assert before == LAYERS


def test_an_extractor_without_a_layer() -> None:
    with pytest.raises(ValueError, match=r"'scaled' has no layer; register one with feat2vec.layer\('scaled'\)"):
        build_extractor(Scaled(), Shape(3), (2,), False, "group")


def test_options_reach_the_layer_as_the_schema_spells_them() -> None:
    made = build_extractor(TextCnn(widths=(5,)), Shape(6, (4,)), (2,), False, "title")
    assert made.name == "title"
    assert made.spec == TextCnn(widths=(5,)).model_dump(mode="json")
