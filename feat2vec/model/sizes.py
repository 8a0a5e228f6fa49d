"""The number of a model's weights, before any of them is made: for the memory check, and for a file's least size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from feat2vec.encode.codecs import Codec, ItemsCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.schema.extractor_options import ExtractorSpec, Lookup, Numeric, TextAttention, TextCnn, Vector
from feat2vec.schema.options import Schema
from feat2vec.schema.training_options import Mlp

BYTES_OF_WEIGHT = 4
BUILT_IN = (Lookup, TextCnn, TextAttention, Numeric, Vector)  # the options of extractors whose weights are known


def key_sizes(codec: ItemsCodec, schema: Schema) -> tuple[int, ...]:
    """The number of keys that reach each level; the first level also counts the unseen key.

    Every key reaches the first level, also one that has no vector there (see `table_sizes`).
    """
    levels = schema.model.levels
    top_levels = codec.vocabulary.levels_in(levels)  # [keys]
    first, *higher = (int((top_levels >= level).sum()) for level in range(1, len(levels) + 1))
    most = keys_with_vector(codec, schema)
    return (first + 1, *(min(size, most) for size in higher))


def keys_with_vector(codec: ItemsCodec, schema: Schema) -> int:
    """How many keys have a vector: the first ones of the vocabulary, by `model.activation`; all of them without it."""
    counts, activation = codec.vocabulary.counts, schema.model.activation
    return len(counts) if activation is None else int((counts >= activation.count).sum())


def table_sizes(codec: ItemsCodec, schema: Schema) -> tuple[int, ...]:
    """The number of rows of a lookup's table of vectors at each level; the first also has the unseen key's row."""
    return (keys_with_vector(codec, schema) + 1, *key_sizes(codec, schema)[1:])


def level_costs(encoder: Encoder, rows: int) -> list[float]:
    """D_k n(F_k) of each level: the numbers that the vectors of a row have there, as the training rows expect it.

    Their sum is what the pairs of a row cost (corollary 4 and remark 5 of Chen et al., 2019); of levels that share
    coordinates D_k is what a level adds.

    Args:
        encoder: Fitted to the training rows.
        rows: How many rows it was fitted to.

    Returns:
        The cost of each level.

    """
    dims = encoder.schema.model.levels.dims
    occurrences = np.zeros(len(dims))  # [levels], of values that reach a level, in all rows
    for name, codec in encoder.codecs.items():
        if isinstance(codec, ItemsCodec) and encoder.schema.groups[name].extractor.encoding == "items":
            if encoder.schema.owner(name) != name:
                continue  # the counts of the group that it shares the keys of are those of both
            top_levels = codec.vocabulary.levels_in(encoder.schema.model.levels)  # [keys]
            for k in range(len(dims)):
                occurrences[k] += codec.vocabulary.counts[top_levels > k].sum()
            occurrences[0] += codec.vocabulary.unseen
        else:
            occurrences += encoder.values[name].counts.sum()  # what is no key has the highest level
    costs: list[float] = (occurrences / rows * np.array(dims)).tolist()
    return costs


def least_weights(encoder: Encoder) -> int:
    """The least number of weights that a model of this encoder has. Those of a plugin's extractors are not known."""
    schema, dims = encoder.schema, encoder.schema.model.levels.dims
    total = 0
    for name in schema.owners:
        options, codec = schema.groups[name].extractor, encoder.codecs[name]
        if type(options) in BUILT_IN:
            total += group_weights(options, codec, schema, dims)[0]
    if schema.objective.has_classes and encoder.classes is not None:
        total += len(encoder.classes.keys) * sum(dims)
    if isinstance(schema.head, Mlp):
        total += layer_weights([len(schema.partners), *schema.head.hidden])
    return total


def group_weights(spec: ExtractorSpec, codec: Codec, schema: Schema, dims: Sequence[int]) -> tuple[int, str, str]:
    """The number of weights of a group's extractor, what they are, and the option that makes them fewer.

    Args:
        spec: The options of the extractor.
        codec: How the group is encoded.
        schema: The schema that the group is of.
        dims: The rank of each level.

    """
    shown_dims = " + ".join(f"{dim:,}" for dim in dims)
    if isinstance(codec, ItemsCodec) and spec.encoding == "items":
        sizes = table_sizes(codec, schema)
        count = sum(size * dim for size, dim in zip(sizes, dims, strict=True))
        return count, f"{sizes[0]:,} keys of {shown_dims} numbers", "max_size, to keep fewer keys"
    if isinstance(codec, ItemsCodec) and isinstance(spec, TextAttention):
        return _attention_weights(spec, _token_rows(codec), dims)
    if isinstance(codec, ItemsCodec):
        # options of text_cnn, which other text extractors lack
        token_dim: int = getattr(spec, "token_dim", 0)
        filters: int = getattr(spec, "filters", 0)
        spans: tuple[int, ...] = getattr(spec, "widths", ())
        tokens = _token_rows(codec)
        convolutions = sum(spans) * token_dim * filters
        count = tokens * token_dim + convolutions + filters * len(spans) * sum(dims)
        return count, f"{tokens:,} tokens of {token_dim:,} numbers, {filters:,} filters", "token_dim"
    pieces = getattr(spec, "pieces", None)
    widths = [codec.width * pieces + 1 if pieces else codec.width, *getattr(spec, "hidden", ())]
    shown_widths = ", ".join(f"{width:,}" for width in widths)
    count = layer_weights([*widths, sum(dims)])
    return count, f"layers of {shown_widths} and {shown_dims} units", "hidden, with fewer units"


def _token_rows(codec: ItemsCodec) -> int:
    """The rows of a table of token vectors: one of each key, and that of unseen ones; padding has none."""
    return len(codec.vocabulary) - 1


def _attention_weights(spec: TextAttention, tokens: int, dims: Sequence[int]) -> tuple[int, str, str]:
    """What `group_weights` returns for self-attention over a vocabulary of so many tokens."""
    dim = spec.token_dim
    block = 4 * dim**2 + layer_weights([dim, spec.units, dim]) + spec.units + 5 * dim
    positions = spec.max_tokens * dim if spec.positions == "learned" else 0
    count = tokens * dim + positions + spec.blocks * block + dim * sum(dims)
    return count, f"{tokens:,} tokens of {dim:,} numbers, {spec.blocks:,} blocks of attention", "token_dim"


def layer_weights(widths: Sequence[int]) -> int:
    """The number of weights of dense layers, without their biases; `widths` begins with that of the input."""
    return sum(inputs * outputs for inputs, outputs in pairwise(widths))
