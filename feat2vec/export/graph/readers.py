"""What a reader is: it stands for a group, and makes its entries of raw columns inside a TensorFlow graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Array
from feat2vec.encode.codecs import Codec, ItemsCodec, NumbersCodec, VectorCodec, binned
from feat2vec.encode.codecs.numbers import ColumnScale
from feat2vec.encode.vocabulary import PADDING
from feat2vec.errors import UserError
from feat2vec.export.graph.dates import DAY, date_parts, timestamps
from feat2vec.export.graph.keys import GraphVocabulary
from feat2vec.export.graph.words import WordSplitter, trimmed
from feat2vec.model.pair_scores import Tensor
from feat2vec.schema.extractor_options import ItemsSpec, Lookup, TokensSpec
from feat2vec.schema.options import Group

IS_DATE = "a date, as 2024-01-31, 2024-01-31 10:30:00 or 2024-01-31T10:30:00+02:00"


@dataclass(frozen=True)
class InputColumn:
    """A tensor that stands for a column.

    Args:
        column: The column's name.
        dtype: The tensor's type.
        shape: Its shape, None for a size that is not fixed.
        form: What its values are, in words.
        missing: How a missing value is written, in words.

    """

    column: str
    dtype: str
    shape: tuple[int | None, ...]
    form: str
    missing: str


class Reader(tf.Module):  # type: ignore[misc]
    """The base of readers. A call takes a tensor for each of `inputs`, in their order."""

    inputs: list[InputColumn]

    def __call__(self, *columns: Tensor) -> Tensor:
        """Entries [batch, width]: padded ids, or numbers that are NaN where the group is missing."""
        raise NotImplementedError


def finite(numbers: Tensor, column: str) -> Tensor:
    """The same numbers; a graph that meets one that is not finite stops."""
    return tf.debugging.assert_all_finite(numbers, f"{column}: numbers must be finite")


def finite_or_missing(numbers: Tensor, is_missing: Tensor, column: str) -> Tensor:
    """The same numbers, which are finite where they are not missing."""
    return tf.where(is_missing, numbers, finite(tf.where(is_missing, tf.zeros_like(numbers), numbers), column))


IS_TEXT = "text"
FORM_OF_KIND = {
    "boolean": "true or false",
    "number": "a number as text",
    "float": "a number as text",
    "float32": "a number as text",
    "date": "a date, as 2024-01-31 or 2024-01-31 10:30:00",
}


class ItemsReader(Reader):
    """The ids of a group's items, padded with 0."""

    def __init__(self, codec: ItemsCodec, group: Group, keys: GraphVocabulary | None = None) -> None:
        super().__init__()
        spec = group.extractor
        assert isinstance(spec, (ItemsSpec, TokensSpec))
        self.codec, self.is_text = codec, isinstance(spec, TokensSpec)
        items = spec if isinstance(spec, ItemsSpec) else Lookup(split="words", max_items=spec.max_tokens)
        self.parts: tuple[str, ...] = items.parts
        self.split = items.split
        self.max_given_items = _max_given_items(items)
        self.words = WordSplitter() if self.split == "words" and not self.parts else None
        self.keys = keys or GraphVocabulary(
            codec.vocabulary, as_text=bool(self.parts or self.split), form="NFD" if self.words is not None else None
        )
        self.inputs = [self._values_input(group.columns[0], items)]
        if items.weights is not None:
            missing = "any, where the item is missing"
            self.inputs.append(InputColumn(items.weights, "float32", (None, None), "an item's weight", missing))

    def _values_input(self, column: str, items: ItemsSpec) -> InputColumn:
        shape = (None, None) if items.multi else (None,)
        if not self.keys.takes_text:
            return InputColumn(column, "float64", shape, "a number", "NaN")
        form = FORM_OF_KIND.get(self.codec.vocabulary.kind, IS_TEXT)
        if self.parts:
            form = IS_DATE
        if self.split:
            form = IS_TEXT
        return InputColumn(column, "string", shape, form, "empty")

    def __call__(self, *columns: Tensor) -> Tensor:
        """Ids [batch, items], or with weights [batch, 2 * items]: ids, then the bits of their weights."""
        values, *weight_columns = columns
        items = _first(tf.ragged.boolean_mask(*self._items(values)), self.max_given_items)  # [batch, (items)]
        ids = items.with_values(self.keys(items.values))
        is_kept = ids.with_values(ids.values != PADDING)
        ids = _first(tf.ragged.boolean_mask(ids, is_kept), self.codec.max_items)
        if weight_columns:
            (weights,) = weight_columns
            weights = _first(tf.ragged.boolean_mask(weights, _is_present(values)), self.max_given_items)
            weights = _first(tf.ragged.boolean_mask(weights, is_kept), self.codec.max_items)
            return self._weighted(ids, weights)
        if self.is_text:
            return ids.to_tensor(PADDING, shape=[None, self.codec.items])  # the layer is built for this width
        ids = ids.to_tensor(PADDING)
        return tf.pad(ids, [[0, 0], [0, tf.maximum(1 - tf.shape(ids)[1], 0)]])  # one column at least

    def _weighted(self, ids: Tensor, weights: Tensor) -> Tensor:
        shape = [None, self.codec.items]  # the layer is built for this width
        finite_weights = finite(weights.values, self.inputs[1].column)
        padded_weights = ids.with_values(finite_weights).to_tensor(0.0, shape=shape)
        return tf.concat([ids.to_tensor(PADDING, shape=shape), tf.bitcast(padded_weights, tf.int32)], axis=1)

    def _items(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The items of each row, dense or ragged, and which of them are not missing."""
        if self.parts:
            return date_parts(*timestamps(values, self.inputs[0].column), self.parts)
        texts = values if values.shape.rank == 2 else values[:, None]  # [batch, values of a row]
        if self.split is None:
            return texts, _is_present(texts)
        flat = tf.reshape(texts, [-1])
        items = self.words(flat) if self.words is not None else trimmed(tf.strings.split(flat, self.split))
        items_of_rows = tf.reduce_sum(tf.reshape(items.row_lengths(), tf.shape(texts)), axis=1)
        bags = tf.RaggedTensor.from_row_lengths(items.values, items_of_rows)
        return bags, bags.with_values(_is_present(bags.values))


def _max_given_items(items: ItemsSpec) -> int | None:
    """How many items of a row are looked up; None is all of them."""
    if not items.bag:
        return 1
    if items.parts or items.max_share < 1:  # frequent keys are left out, and make room for later ones
        return None
    return items.max_items


def _is_present(values: Tensor) -> Tensor:
    return values != "" if values.dtype == tf.string else ~tf.math.is_nan(values)


def _first(items: Tensor, most: int | None) -> Tensor:
    """The first items of each row."""
    return items if most is None else items[:, :most]


IS_NUMBER = "a number; a boolean is 1 or 0"


class NumbersReader(Reader):
    """Scaled numbers, then indicators of missing ones."""

    def __init__(self, codec: NumbersCodec) -> None:
        super().__init__()
        self.columns = codec.columns
        self.inputs = [_number_input(scale.column, scale.kind) for scale in codec.columns]

    def __call__(self, *columns: Tensor) -> Tensor:
        scaled, indicators, are_missing = [], [], []
        for column, scale in zip(columns, self.columns, strict=True):
            numbers = _numbers(column, scale.column)  # [batch]
            is_missing = tf.math.is_nan(numbers)
            are_missing.append(is_missing)
            scaled.append(_scaled(numbers, scale))
            if scale.indicator:
                indicators.append(tf.cast(is_missing, tf.float64))
        names = ", ".join(scale.column for scale in self.columns)
        entries = finite(tf.cast(tf.stack([*scaled, *indicators], axis=1), tf.float32), names)  # [batch, width]
        all_missing = tf.reduce_all(tf.stack(are_missing, axis=1), axis=1, keepdims=True)  # [batch, 1]
        return tf.where(all_missing, np.float32(np.nan), entries)


class BinsReader(Reader):
    """The bin that a number falls into."""

    def __init__(self, codec: ItemsCodec, group: Group) -> None:
        super().__init__()
        self.edges = codec.edges
        self.ids = codec.vocabulary.ids(binned(np.zeros(0), codec.edges).keys)  # [bins]
        self.inputs = [_number_input(group.columns[0], codec.kind)]

    def __call__(self, *columns: Tensor) -> Tensor:
        (column,) = columns
        numbers = _numbers(column, self.inputs[0].column)
        bins = tf.searchsorted(tf.constant(self.edges, tf.float64), numbers, side="right")
        return tf.where(tf.math.is_nan(numbers), PADDING, tf.gather(tf.constant(self.ids), bins))[:, None]


class VectorReader(Reader):
    """A pretrained vector as it is."""

    def __init__(self, codec: VectorCodec, group: Group) -> None:
        super().__init__()
        self.inputs = [InputColumn(group.columns[0], "float32", (None, codec.width), "a vector", "NaN")]

    def __call__(self, *columns: Tensor) -> Tensor:
        (vectors,) = columns  # [batch, width]
        is_missing = tf.reduce_all(tf.math.is_nan(vectors), axis=1, keepdims=True)
        return finite_or_missing(vectors, is_missing, self.inputs[0].column)


def _number_input(column: str, kind: str | None) -> InputColumn:
    if kind == "date":
        return InputColumn(column, "string", (None,), IS_DATE, "empty")
    return InputColumn(column, "float64", (None,), IS_NUMBER, "NaN")


def _numbers(values: Tensor, column: str) -> Tensor:
    """A column of numbers, or of dates as days since 1970: float64, NaN where missing."""
    if values.dtype == tf.string:
        micros, is_present = timestamps(values, column)
        return tf.where(is_present, tf.cast(micros, tf.float64) / DAY, np.nan)
    return finite_or_missing(values, tf.math.is_nan(values), column)


def _scaled(numbers: Tensor, scale: ColumnScale) -> Tensor:
    """What `ColumnScale.apply` gives."""
    filled = tf.where(tf.math.is_nan(numbers), tf.constant(scale.fill, tf.float64), numbers)
    if scale.scale in ("standard", "minmax"):
        return (filled - scale.knots[0]) / scale.knots[1]
    if scale.scale == "log1p":
        message = f"{scale.column}: log1p needs numbers above -1"
        tf.debugging.assert_greater(filled, tf.constant(-1, tf.float64), message)
        return tf.math.log1p(filled)
    if scale.scale == "quantile":
        knots, levels = np.array(scale.knots), np.linspace(0, 1, len(scale.knots))
        # from both sides: a number that several knots equal gets the middle of their levels
        return (_interpolated(filled, knots, levels) - _interpolated(-filled, -knots[::-1], -levels[::-1])) / 2
    return filled


def _interpolated(numbers: Tensor, knots: Array, levels: Array) -> Tensor:
    """What `np.interp` gives."""
    left_knot = tf.searchsorted(tf.constant(knots), numbers, side="right") - 1
    left_knot = tf.clip_by_value(left_knot, 0, len(knots) - 2)
    widths = np.diff(knots)
    slopes = np.divide(np.diff(levels), widths, out=np.zeros_like(widths), where=widths > 0)
    inside = tf.gather(levels, left_knot) + tf.gather(slopes, left_knot) * (numbers - tf.gather(knots, left_knot))
    inside = tf.where(numbers < knots[0], levels[0], inside)
    return tf.where(numbers >= knots[-1], levels[-1], inside)


def reader_of(name: str, codec: Codec, group: Group, *, max_key_bytes: int, owner: Reader | None = None) -> Reader:
    """What reads a group's columns inside a graph.

    Args:
        name: The group's name.
        codec: The fitted codec that encodes the group.
        group: The group's options.
        max_key_bytes: Groups with more bytes of keys are refused.
        owner: The reader of a group with the same vocabulary, whose hash tables serve this one, too.

    Raises:
        UserError: The group has too many keys, or a codec that no graph can imitate.

    """
    if isinstance(codec, ItemsCodec):
        key_bytes = codec.vocabulary.keys.nbytes
        if key_bytes > max_key_bytes:
            size = f"{key_bytes / 2**30:.1f} GB of keys"
            raise UserError(f"the group {name!r} has {size}, more than a saved model holds; export the other groups")
        if codec.edges or getattr(group.extractor, "bins", None):
            return BinsReader(codec, group)
        return ItemsReader(codec, group, owner.keys if isinstance(owner, ItemsReader) else None)
    if isinstance(codec, NumbersCodec):
        return NumbersReader(codec)
    if isinstance(codec, VectorCodec):
        return VectorReader(codec, group)
    raise UserError(
        f"the group {name!r} is encoded by {type(codec).__name__}, which a saved model cannot do; leave it out"
    )
