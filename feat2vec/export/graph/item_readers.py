"""Keys, bags of keys, parts of dates and words inside a TensorFlow graph."""

from __future__ import annotations

import tensorflow as tf

from feat2vec.encode.codecs import ItemsCodec
from feat2vec.encode.vocabulary import PADDING
from feat2vec.export.graph.dates import date_parts, timestamps
from feat2vec.export.graph.keys import GraphVocabulary
from feat2vec.export.graph.reader_base import IS_DATE, InputColumn, Reader, finite
from feat2vec.export.graph.words import WordSplitter, trimmed
from feat2vec.model.pair_scores import Tensor
from feat2vec.schema.extractor_options import ItemsSpec, Lookup, TokensSpec
from feat2vec.schema.options import Group

IS_TEXT = "text"
FORM_OF_KIND = {
    "boolean": "true or false",
    "number": "a number as text",
    "float": "a number as text",
    "date": "a date, as 2024-01-31 or 2024-01-31 10:30:00",
}


class ItemsReader(Reader):
    """The ids of a group's items, padded with 0."""

    def __init__(self, codec: ItemsCodec, group: Group) -> None:
        super().__init__()
        spec = group.extractor
        assert isinstance(spec, (ItemsSpec, TokensSpec))
        self.codec, self.is_text = codec, isinstance(spec, TokensSpec)
        items = spec if isinstance(spec, ItemsSpec) else Lookup(split="words", max_items=spec.max_tokens)
        self.parts: tuple[str, ...] = items.parts
        self.split = items.split
        self.max_given_items = _max_given_items(items)
        self.words = WordSplitter() if self.split == "words" and not self.parts else None
        self.keys = GraphVocabulary(
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
