"""Numbers, bins of numbers and pretrained vectors inside a TensorFlow graph."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from feat2vec.encode.array_files import Array
from feat2vec.encode.codecs import ItemsCodec, NumbersCodec, VectorCodec, binned
from feat2vec.encode.scaling import ColumnScale
from feat2vec.encode.vocabulary import PADDING
from feat2vec.export.graph.dates import DAY, timestamps
from feat2vec.export.graph.reader_base import IS_DATE, InputColumn, Reader, finite, finite_or_missing
from feat2vec.model.pair_scores import Tensor
from feat2vec.schema.options import Group

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
