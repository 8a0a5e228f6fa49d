"""One Keras layer for each extractor: a group's entries to its vectors, one pair a level.

An entry is what encode.py makes of a group in a row: padded ids (0 is no item, 1 an unseen one), or scaled numbers, NaN
where the group is missing. A missing group's vectors are zero. Padding has no row in any table: only the items that are
there are gathered, and nothing else gets a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import keras
import tensorflow as tf

from feat2vec.interactions import Level
from feat2vec.specs import ExtractorSpec

UNSEEN = 1  # the first id that has a vector


class Shape(NamedTuple):
    """What a fitted group says about its layer.

    `width` counts the numbers of an entry, and `sizes` holds |F_k| for each level k, the unseen key being one of F_1.
    """

    width: int
    sizes: tuple[int, ...] = ()
    weighted: bool = False


class Extracted(NamedTuple):
    """What a group gives the model, for entries [batch, width]."""

    levels: tuple[Level, ...]  # [batch, D_k] at each level
    linear: Any  # [batch], None without bias
    square: Any  # scalar, what L2 counts: |v|^2 over the occurrences of the looked-up keys' active factors


class Extractor(keras.layers.Layer):
    """The base: `spec` are the schema's options, `shape` comes from the data, `dims` are the levels' ranks."""

    def __init__(
        self, spec: Mapping[str, Any], shape: Sequence[Any], dims: Sequence[int], bias: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.spec, self.dims, self.bias = dict(spec), tuple(dims), bias
        self.shape = Shape(int(shape[0]), tuple(shape[1]), bool(shape[2]))

    def params(self) -> int:
        """Count every weight, frozen ones too."""
        return int(self.count_params())

    def get_config(self) -> dict[str, Any]:
        width, sizes, weighted = self.shape
        own = {"spec": dict(self.spec), "shape": [width, list(sizes), weighted], "dims": list(self.dims)}
        return {**super().get_config(), **own, "bias": self.bias}

    def add_table(self, size: int, dim: int, name: str) -> Any:
        """A table to gather rows from; never cast as a whole, as autocasting would."""
        scale = keras.initializers.RandomNormal(stddev=0.1)
        return self.add_weight(shape=(size, dim), initializer=scale, name=name, autocast=False)

    def gather(self, table: Any, rows: Any) -> Any:
        """Rows of a table: ResourceGather on the variable, whose gradient is `tf.IndexedSlices`."""
        return tf.cast(tf.gather(table.value, rows), self.compute_dtype)


LAYERS: dict[str, type[Extractor]] = {}
LayerClass = TypeVar("LayerClass", bound=type[Extractor])


def layer(name: str) -> Callable[[LayerClass], LayerClass]:
    """Register the layer of the extractor that schemas call by this name."""

    def register(cls: LayerClass) -> LayerClass:
        before = LAYERS.get(name, cls)
        if (before.__module__, before.__qualname__) != (cls.__module__, cls.__qualname__):  # a reload is no conflict
            raise ValueError(f"the extractor {name!r} has a layer already, {before}. Received: {cls}")
        LAYERS[name] = keras.saving.register_keras_serializable("feat2vec", name)(cls)
        return cls

    return register


def build_extractor(spec: ExtractorSpec, shape: Shape, dims: Sequence[int], bias: bool, name: str) -> Extractor:
    """The layer of a group."""
    if spec.type not in LAYERS:
        remedy = f"register one with feat2vec.layer({spec.type!r})"
        raise ValueError(f"the extractor {spec.type!r} has no layer; {remedy}. Received: {spec!r}")
    return LAYERS[spec.type](spec.model_dump(mode="json"), shape, dims, bias, name=name)


# --- lookup ---------------------------------------------------------------------------------------------------------


class Items(NamedTuple):
    """The items that are there, bag by bag: a bag is a row of the batch."""

    ids: Any  # [items]
    bags: Any  # [items, 1]
    weights: Any  # [items, 1], None where each is 1

    def only(self, mask: Any) -> Items:
        """Those that a mask [items] keeps."""
        kept = tf.where(mask)[:, 0]
        return Items(*(None if part is None else tf.gather(part, kept) for part in self))


@layer("lookup")
class LookupExtractor(Extractor):
    """A vector for each key and level; the keys of level k are a prefix of the ids, so its table is just shorter.

    Level 1 has a row for unseen keys, then one for each key; the levels above have keys only. A bag's items are summed,
    each times its weight; `mean` divides by the sum of the weights, `sqrtn` by the root of the sum of their squares.
    """

    def build(self, input_shape: Any = None) -> None:
        del input_shape
        self.tables = [
            self.add_table(size, dim, f"table_{level}")
            for level, (size, dim) in enumerate(zip(self.shape.sizes, self.dims, strict=True), start=1)
        ]
        if self.bias:
            size = self.shape.sizes[0]
            self.linear = self.add_weight(shape=(size, 1), initializer="zeros", name="linear", autocast=False)
        super().build(None)

    def call(self, entries: Any) -> Extracted:
        items = self._items(entries)
        batch = tf.shape(entries, out_type=tf.int64)[0]
        levels, squares = [], []
        for level, (table, parts) in enumerate(zip(self.tables, self._parts(items), strict=True)):
            sums = []
            for part in parts:
                vectors = self.gather(table, part.ids - (UNSEEN if level == 0 else UNSEEN + 1))
                squares.append(tf.reduce_sum(tf.square(vectors)))
                sums.append(_sum_bags(vectors, part, batch))
            levels.append(Level(*sums))
        linear = None
        if self.bias:
            linear = _sum_bags(self.gather(self.linear, items.ids - UNSEEN), items, batch)[:, 0]
        return Extracted(tuple(levels), linear, tf.add_n(squares))

    def _items(self, entries: Any) -> Items:
        width = self.shape.width // 2 if self.shape.weighted else self.shape.width
        ids, weights = entries[:, :width], None  # [batch, width]
        places = tf.where(ids > 0)  # [items, 2], row by row
        combiner = self.spec["combiner"]
        if self.shape.weighted or combiner != "sum":
            weights = tf.bitcast(entries[:, width:], tf.float32) if self.shape.weighted else tf.ones_like(ids)
            weights = tf.where(ids > 0, tf.cast(weights, self.compute_dtype), 0)
        if combiner == "mean":
            weights = tf.math.divide_no_nan(weights, tf.reduce_sum(weights, axis=1, keepdims=True))
        if combiner == "sqrtn":
            weights = tf.math.divide_no_nan(weights, tf.norm(weights, axis=1, keepdims=True))
        if weights is not None:
            weights = tf.gather_nd(weights, places)[:, None]
        return Items(tf.gather_nd(ids, places), places[:, :1], weights)

    def _parts(self, items: Items) -> list[tuple[Items, ...]]:
        """For each level, the items whose top level it is and, below the last level, the items that go higher."""
        if len(self.tables) == 1:
            return [(items,)]
        key = items.ids - (UNSEEN + 1)  # -1 for an unseen one, whose top level is the first
        top = tf.add_n([tf.cast((key >= 0) & (key < size), tf.int32) for size in self.shape.sizes[1:]])
        last = len(self.tables) - 1
        below = [(items.only(top == level), items.only(top > level)) for level in range(last)]
        return [*below, (items.only(top == last),)]


def _sum_bags(vectors: Any, items: Items, batch: Any) -> Any:
    """Sum the items' vectors [items, D] in each bag: [batch, D]."""
    weighted = vectors if items.weights is None else vectors * items.weights
    return tf.scatter_nd(items.bags, weighted, tf.stack([batch, vectors.shape[1]]))


# --- text, numbers, vectors -----------------------------------------------------------------------------------------


class Headed(Extractor):
    """The base of extractors whose features meet every level through an output head of its own.

    Their values have the top level: below it they are dependent.
    """

    def build_heads(self, features: int, *, use_bias: bool) -> None:
        """One head a level, and one for the linear term."""
        self.heads = [
            keras.layers.Dense(dim, use_bias=use_bias, name=f"head_{level}", dtype=self.dtype_policy)
            for level, dim in enumerate(self.dims, start=1)
        ]
        if self.bias:
            self.linear = keras.layers.Dense(
                1, use_bias=False, kernel_initializer="zeros", name="linear", dtype=self.dtype_policy
            )
        for head in (*self.heads, *([self.linear] if self.bias else [])):
            head.build((None, features))

    def finish(self, features: Any, present: Any) -> Extracted:
        """Vectors from features [batch, features]; `present` [batch, 1] is 0 where the group is missing."""
        vectors = [head(features) * present for head in self.heads]
        levels = [Level(tf.zeros_like(vector), vector) for vector in vectors[:-1]] + [Level(vectors[-1], None)]
        linear = (self.linear(features) * present)[:, 0] if self.bias else None
        return Extracted(tuple(levels), linear, tf.zeros((), self.compute_dtype))


@layer("text_cnn")
class TextCnnExtractor(Headed):
    """Convolutions over token vectors, ReLU, maximum over time, dropout, projection.

    A window counts where it lies inside the text; of a text shorter than the window, the first one does. So padding
    changes nothing.
    """

    def build(self, input_shape: Any = None) -> None:
        del input_shape
        spec = self.spec
        self.tokens = self.add_table(self.shape.sizes[0], spec["token_dim"], "tokens")
        self.convolutions = [
            keras.layers.Conv1D(spec["filters"], width, name=f"width_{width}", dtype=self.dtype_policy)
            for width in spec["widths"]
        ]
        for convolution in self.convolutions:
            convolution.build((None, None, spec["token_dim"]))
        self.dropout = keras.layers.Dropout(spec["dropout"], dtype=self.dtype_policy)
        self.build_heads(spec["filters"] * len(spec["widths"]), use_bias=True)
        super().build(None)

    def call(self, entries: Any, training: bool | None = None) -> Extracted:
        time, dim = max(self.shape.width, *self.spec["widths"]), self.spec["token_dim"]
        places = tf.where(entries > 0)
        vectors = self.gather(self.tokens, tf.gather_nd(entries, places) - UNSEEN)  # [tokens, token_dim]
        batch = tf.shape(entries, out_type=tf.int64)[0]
        text = tf.scatter_nd(places, vectors, tf.stack([batch, time, dim]))  # [batch, time, token_dim]
        length = tf.math.count_nonzero(entries, axis=1, keepdims=True, dtype=tf.int32)  # [batch, 1]
        pooled = []
        for width, convolution in zip(self.spec["widths"], self.convolutions, strict=True):
            windows = tf.nn.relu(convolution(text))  # [batch, time - width + 1, filters]
            inside = tf.range(tf.shape(windows)[1])[None] <= tf.maximum(length - width, 0)
            pooled.append(tf.reduce_max(windows * tf.cast(inside, windows.dtype)[..., None], axis=1))
        features = self.dropout(tf.concat(pooled, axis=1), training=training)
        return self.finish(features, tf.cast(length > 0, features.dtype))


@layer("numeric")
class NumericExtractor(Headed):
    """An MLP over scaled numbers and missing indicators; with no hidden layer, the linear map x W."""

    def build(self, input_shape: Any = None) -> None:
        del input_shape
        hidden = self.spec["hidden"]
        self.hidden = [
            keras.layers.Dense(units, activation="relu", name=f"hidden_{i}", dtype=self.dtype_policy)
            for i, units in enumerate(hidden)
        ]
        for layer_, features in zip(self.hidden, [self.shape.width, *hidden], strict=False):
            layer_.build((None, features))
        self.build_heads([self.shape.width, *hidden][-1], use_bias=bool(hidden))
        super().build(None)

    def call(self, entries: Any) -> Extracted:
        present = ~tf.math.is_nan(entries[:, :1])
        features = tf.where(present, tf.cast(entries, self.compute_dtype), 0)
        for hidden in self.hidden:
            features = hidden(features)
        return self.finish(features, tf.cast(present, features.dtype))


@layer("vector")
class VectorExtractor(NumericExtractor):
    """A projection of a pretrained vector."""

    def __init__(self, spec: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        super().__init__({**spec, "hidden": []}, *args, **kwargs)


__all__ = ["LAYERS", "Extracted", "Extractor", "Headed", "Shape", "build_extractor", "layer"]
