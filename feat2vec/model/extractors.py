"""One Keras layer for each extractor: a group's entries to its vectors, one pair a level.

An entry is what encode.py makes of a group in a row: padded ids (0 is no item, 1 an unseen one), or scaled numbers, NaN
where the group is missing. A missing group's vectors are zero. Padding has no row in any table: only the items that are
there are gathered, and nothing else gets a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import keras
import numpy as np
import tensorflow as tf

from feat2vec.model.custom_gradients import custom_gradient
from feat2vec.model.large_variables import TableStart, are_aside, is_table
from feat2vec.model.optimizers import by_row, read_rows
from feat2vec.model.pair_scores import Level
from feat2vec.model.pair_scores_by_key import Column, column
from feat2vec.schema.extractor_options import ExtractorSpec

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
    # Scalar, what `l2` counts: |v|^2 over the occurrences of the active factors, those of keys and of tokens. Not dense
    # weights, which every row shares.
    square: Any
    linear_square: Any = 0.0  # and what `l2_linear` counts: the squares of linear terms over their occurrences
    columns: tuple[Column, ...] = ()  # in place of levels, where `keyed` asked for them


class Extractor(keras.layers.Layer):
    """The base: `spec` are the schema's options, `shape` comes from the data, `dims` are the levels' ranks.

    Keys' vectors begin with the standard deviation `scale`.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        shape: Sequence[Any],
        dims: Sequence[int],
        bias: bool = False,
        scale: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.spec, self.dims, self.bias, self.scale = dict(spec), tuple(dims), bias, scale
        self.shape = Shape(int(shape[0]), tuple(shape[1]), bool(shape[2]))

    def params(self) -> int:
        """Count every weight, frozen ones too."""
        return int(self.count_params())

    def get_config(self) -> dict[str, Any]:
        width, sizes, weighted = self.shape
        own = {"spec": dict(self.spec), "shape": [width, list(sizes), weighted], "dims": list(self.dims)}
        return {**super().get_config(), **own, "bias": self.bias, "scale": self.scale}

    def add_table(self, size: int, dim: int, name: str, unseen: bool, scale: float = 0.1) -> Any:
        """A table to gather rows from, the first of them zero if it is the unseen key's.

        It is never cast as a whole, as autocasting would.
        """
        start = TableStart(scale, unseen)
        return by_row(self.add_weight(shape=(size, dim), initializer=start, name=name, autocast=False))

    def save_own_variables(self, store: Any) -> None:
        """As Keras'; while tables are aside, an empty array stands for each."""
        super().save_own_variables(_Aside(store) if are_aside() else store)

    def load_own_variables(self, store: Any) -> None:
        """As Keras'; tables that are aside are left as they are."""
        if not are_aside():
            super().load_own_variables(store)
            return
        for key, variable in self._saved():
            if not is_table(variable):
                variable.assign(store[key])

    def saved_tables(self) -> dict[str, Any]:
        """The tables that are saved and loaded in pieces, by the keys that Keras has for them."""
        ways = [(type(self).save_own_variables, Extractor.save_own_variables)]
        ways += [(type(self).load_own_variables, Extractor.load_own_variables)]
        if any(way is not plain for way, plain in ways):  # a layer of the user's that saves in its own way
            return {}
        return {key: variable for key, variable in self._saved() if is_table(variable)}

    def _saved(self) -> list[tuple[str, Any]]:
        """The layer's own variables, without those of layers inside, by Keras' keys."""
        own = [*self._trainable_variables, *self._non_trainable_variables]
        return [(str(i), variable) for i, variable in enumerate(own)]

    def gather(self, table: Any, rows: Any) -> Any:
        """Rows of a table: ResourceGather on the variable, whose gradient is `tf.IndexedSlices`."""
        return tf.cast(tf.gather(table.value, rows), self.compute_dtype)

    def gather_distinct(self, table: Any, rows: Any) -> Any:
        """As `gather`, for rows that do not repeat: the optimizer need not look for repeated ones."""
        return tf.cast(read_rows(table, rows), self.compute_dtype)

    def needed(self, seed: Any) -> Any:
        """The seed of a layer that has dropout."""
        if seed is None:
            raise ValueError(f"{self.name}: dropout needs a `seed` of two integers. Received: seed=None")
        return seed


class _Aside:
    """What Keras saves a layer's variables to, for all but the tables."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __setitem__(self, key: str, variable: Any) -> None:
        self.store[key] = np.zeros((0, *variable.shape[1:]), variable.dtype) if is_table(variable) else variable


LAYERS: dict[str, type[Extractor]] = {}
LayerClass = TypeVar("LayerClass", bound=type[Extractor])


def layer(name: str) -> Callable[[LayerClass], LayerClass]:
    """Register the layer of the extractor that schemas call by this name.

    >>> @feat2vec.layer("example")
    ... class Example(feat2vec.extractors.LookupExtractor):
    ...     pass
    >>> feat2vec.extractors.LAYERS["example"] is Example
    True
    """

    def register(cls: LayerClass) -> LayerClass:
        before = LAYERS.get(name, cls)
        if (before.__module__, before.__qualname__) != (cls.__module__, cls.__qualname__):  # a reload is no conflict
            raise ValueError(f"the extractor {name!r} has a layer already, {before}. Received: {cls}")
        LAYERS[name] = keras.saving.register_keras_serializable("feat2vec", name)(cls)
        return cls

    return register


def build_extractor(
    spec: ExtractorSpec, shape: Shape, dims: Sequence[int], bias: bool, name: str, scale: float = 0.1
) -> Extractor:
    """The layer of a group."""
    if spec.type not in LAYERS:
        remedy = f"register one with feat2vec.layer({spec.type!r})"
        raise ValueError(f"the extractor {spec.type!r} has no layer; {remedy}. Received: {spec!r}")
    return LAYERS[spec.type](spec.model_dump(mode="json"), shape, dims, bias, scale, name=name)


# --- lookup ---------------------------------------------------------------------------------------------------------


class Items(NamedTuple):
    """The items that are there, bag by bag: a bag is a row of the batch."""

    slots: Any  # [items], the place of an item's key among the distinct ones
    bags: Any  # [items], ascending
    weights: Any  # [items, 1], None where each is 1

    def at(self, places: Any) -> Items:
        """Some of them."""
        return Items(*(None if part is None else tf.gather(part, places) for part in self))


@layer("lookup")
class LookupExtractor(Extractor):
    """A vector for each key and level; the keys of level k are a prefix of the ids, so its table is just shorter.

    Level 1 has a row for unseen keys, zero until training meets one, then one for each key; the levels above have only
    keys. A bag's items are summed, each times its weight; `mean` divides by the sum of the weights, `sqrtn` by the root
    of the sum of their squares.

    A table is read once a call, at its distinct keys: so what the optimizer gets is summed by key already.
    """

    def build(self, input_shape: Any = None) -> None:
        del input_shape
        self.tables = [
            self.add_table(size, dim, f"table_{level}", unseen=level == 1, scale=self.scale)
            for level, (size, dim) in enumerate(zip(self.shape.sizes, self.dims, strict=True), start=1)
        ]
        if self.bias:
            size = self.shape.sizes[0]
            self.linear = by_row(self.add_weight(shape=(size, 1), initializer="zeros", name="linear", autocast=False))
        super().build(None)

    def call(self, entries: Any, training: bool | None = None, seed: Any = None, keyed: bool = False) -> Extracted:
        """`seed` [2] decides what dropout drops in training, so that a step can be repeated.

        With `keyed` there are columns in place of levels: a group with one item a row is read no more than once a key,
        and the last level of bags has only the rows that reach it.
        """
        width = entries.shape[1] or tf.shape(entries)[1]  # bags of new rows may be wider
        width = width // 2 if self.shape.weighted else width
        rate = self.spec.get("item_dropout", 0.0)
        if training and rate:
            kept = tf.random.stateless_uniform(tf.shape(entries[:, :width]), self.needed(seed)) >= rate
            entries = tf.concat([tf.where(kept, entries[:, :width], 0), entries[:, width:]], axis=1)
        ids = tf.reshape(entries[:, :width], [-1])
        places = tf.where(ids > 0)[:, 0]
        keys, slots, counts = tf.unique_with_counts(tf.gather(ids, places))
        bags = tf.truncatediv(tf.cast(places, tf.int32), width)  # `//` takes four times as long
        weights, share = self._weights(entries, width)
        if weights is not None:
            weights = tf.gather(tf.reshape(weights, [-1, 1]), places)
        items = Items(slots, bags, weights)
        counts, batch = tf.cast(counts, self.compute_dtype), tf.shape(entries)[0]
        linear, linear_square = None, 0.0
        squares: list[Any] = []
        if self.bias:
            terms = self.gather_distinct(self.linear, keys - UNSEEN)
            linear_square = _count_squares(terms, counts)
            linear = _sum_bags(terms, items, batch)
            linear = (linear if share is None else linear * share)[:, 0]
        if keyed and weights is None and entries.shape[1] == 1:
            columns, squares = self._columns(keys, items, counts, batch)
            return Extracted((), linear, tf.add_n(squares), linear_square, tuple(columns))
        levels, columns = [], []
        for level, (rows, active, some) in enumerate(self._active(keys, items, batch)):
            vectors = self.gather_distinct(self.tables[level], rows)
            squares.append(_count_squares(vectors, counts if active is None else tf.gather(counts, active)))
            if level < len(self.tables) - 1:
                sums = tf.split(_sum_bags(vectors, some, 2 * batch), 2)
                levels.append(Level(*(part if share is None else part * share for part in sums)))
                continue
            if keyed and level > 0:
                reach, bags = tf.unique(some.bags)
                whole = _sum_bags(vectors, some._replace(bags=bags), tf.size(reach))
                place = tf.scatter_nd(reach[:, None], tf.range(1, tf.size(reach) + 1), [batch])
                columns.append(Column(whole if share is None else whole * tf.gather(share, reach), place))
                continue
            whole = _sum_bags(vectors, some, batch)
            levels.append(Level(whole if share is None else whole * share))
        if keyed:
            return Extracted((), linear, tf.add_n(squares), linear_square, (*map(column, levels), *columns))
        return Extracted(tuple(levels), linear, tf.add_n(squares), linear_square)

    def _columns(self, keys: Any, items: Items, counts: Any, batch: Any) -> tuple[list[Column], list[Any]]:
        """The levels as columns, and |v|^2 over the occurrences."""
        place = tf.scatter_nd(items.bags[:, None], items.slots + 1, [batch])  # among the keys
        tops, columns, squares = self._tops(keys), [], []
        for level, table in enumerate(self.tables):
            rows, own, count = keys - UNSEEN, place, counts
            if tops is not None:
                active = tf.where(tops >= level)[:, 0]
                rows, count = tf.gather(rows - (level > 0), active), tf.gather(counts, active)
                here = tf.cumsum(tf.cast(tops >= level, tf.int32))
                own = _placed(tf.where(tops == level, here, 0), place)
            vectors = self.gather_distinct(table, rows)
            squares.append(_count_squares(vectors, count))
            last = level == len(self.tables) - 1
            columns.append(Column(vectors, own, None if last else _placed(tf.where(tops > level, here, 0), place)))
        return columns, squares

    def _tops(self, keys: Any) -> Any:
        """The top level of each key; None where there is one level."""
        if len(self.tables) == 1:
            return None
        number = keys - (UNSEEN + 1)  # -1 for an unseen one, whose top level is the first
        return tf.add_n([tf.cast((number >= 0) & (number < size), tf.int32) for size in self.shape.sizes[1:]])

    def _weights(self, entries: Any, width: int) -> tuple[Any, Any]:
        """Weights of items [batch, width] and what a bag's sum is multiplied by [batch, 1]; None where each is 1."""
        combiner = self.spec["combiner"]
        there = entries[:, :width] > 0
        weights, size = None, None  # what `mean` divides by, and the square of what `sqrtn` does
        if self.shape.weighted:
            weights = tf.where(there, tf.cast(tf.bitcast(entries[:, width:], tf.float32), self.compute_dtype), 0)
            if combiner != "sum":
                size = tf.reduce_sum(weights if combiner == "mean" else tf.square(weights), axis=1, keepdims=True)
        elif combiner != "sum":
            size = tf.math.count_nonzero(there, axis=1, keepdims=True, dtype=self.compute_dtype)
        if size is None:
            return weights, None
        return weights, tf.math.divide_no_nan(tf.ones_like(size), size if combiner == "mean" else tf.sqrt(size))

    def _active(self, keys: Any, items: Items, batch: Any) -> Iterator[tuple[Any, Any, Items]]:
        """For each level the table rows to read, which of `keys` they are (None is all), and the items that sum them.

        Below the last level the items that end there come first; those that go higher follow, in bags of their own.
        """
        rows, tops = keys - UNSEEN, self._tops(keys)
        if tops is None:
            yield rows, None, items
            return
        top = tf.gather(tops, items.slots)  # [items]
        for level in range(len(self.tables)):
            own = items.at(tf.where(top == level)[:, 0])
            if level < len(self.tables) - 1:
                higher = items.at(tf.where(top > level)[:, 0])
                higher = higher._replace(bags=higher.bags + batch)
                own = Items(*(None if x is None else tf.concat([x, y], 0) for x, y in zip(own, higher, strict=True)))
            if level == 0:
                yield rows, None, own
                continue
            active = tf.where(tops >= level)[:, 0]
            slots = tf.cumsum(tf.cast(tops >= level, tf.int32)) - 1
            yield tf.gather(rows - 1, active), active, own._replace(slots=tf.gather(slots, own.slots))


def _placed(numbers: Any, place: Any) -> Any:
    """`numbers` [keys] at places that are counted from 1, 0 at no place."""
    return tf.gather(tf.concat([[0], numbers], axis=0), place)


def _sum_bags(vectors: Any, items: Items, batch: Any) -> Any:
    """Sum the items' vectors, rows of `vectors`, in each bag: [batch, D]."""
    if items.weights is None:
        return tf.sparse.segment_sum(vectors, items.slots, items.bags, num_segments=batch)
    weighted = tf.gather(vectors, items.slots) * items.weights  # [items, D]
    return tf.sparse.segment_sum(weighted, tf.range(tf.shape(weighted)[0]), items.bags, num_segments=batch)


def _count_squares(vectors: Any, counts: Any) -> Any:
    """|v|^2 over the occurrences, `counts` [keys] of each row of `vectors`."""

    @custom_gradient
    def count(vectors: Any) -> Any:
        total = tf.reduce_sum(tf.reduce_sum(tf.square(vectors), axis=1) * counts)
        return total, lambda upstream: vectors * (2 * upstream * counts)[:, None]

    return count(vectors)


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
        self.tokens = self.add_table(self.shape.sizes[0], spec["token_dim"], "tokens", unseen=True)
        self.convolutions = [
            keras.layers.Conv1D(spec["filters"], width, name=f"width_{width}", dtype=self.dtype_policy)
            for width in spec["widths"]
        ]
        for convolution in self.convolutions:
            convolution.build((None, None, spec["token_dim"]))
        self.build_heads(spec["filters"] * len(spec["widths"]), use_bias=True)
        super().build(None)

    def call(self, entries: Any, training: bool | None = None, seed: Any = None) -> Extracted:
        """`seed` [2] decides what dropout drops in training, so that a step can be repeated."""
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
        features = tf.concat(pooled, axis=1)
        if training and self.spec["dropout"]:
            features = tf.nn.experimental.stateless_dropout(features, self.spec["dropout"], self.needed(seed))
        square = tf.reduce_sum(tf.square(vectors))
        return self.finish(features, tf.cast(length > 0, features.dtype))._replace(square=square)


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
