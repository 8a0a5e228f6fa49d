"""How many weights a model has, before any of them is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from feat2vec.encode.codecs import Codec, ItemsCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.schema.extractor_options import Lookup, Numeric, TextCnn, Vector
from feat2vec.schema.options import Mlp, Schema

NUMBER = 4  # bytes of a weight
SLOTS = {"adagrad": 1, "adam": 2}
TEXT_CNN: Mapping[str, Any] = {"token_dim": 0, "filters": 0, "widths": ()}  # another text extractor has others
BUILT_IN = (Lookup, TextCnn, Numeric, Vector)  # extractors whose weights are known


def key_sizes(codec: ItemsCodec, schema: Schema) -> tuple[int, ...]:
    """How many keys reach each level; those of the first and the unseen one."""
    levels = schema.model.levels
    top = levels.of_counts(codec.vocabulary.counts)
    first, *others = (int((top >= level).sum()) for level in range(1, len(levels) + 1))
    return (first + 1, *others)


def least_weights(encoder: Encoder) -> int:
    """How many numbers a model's weights are at least; what a plugin's extractors hold is not known."""
    schema, dims = encoder.schema, encoder.schema.model.levels.dims
    total = 0
    for name, codec in encoder.codecs.items():
        spec = schema.groups[name].extractor
        if type(spec) in BUILT_IN:
            total += group_weights(spec, codec, schema, dims)[0]
    if schema.objective.has_classes and encoder.classes is not None:
        total += len(encoder.classes.keys) * sum(dims)
    if isinstance(schema.head, Mlp):
        total += layer_weights([len(schema.partners), *schema.head.hidden])
    return total


def group_weights(spec: Any, codec: Codec, schema: Schema, dims: Sequence[int]) -> tuple[int, str, str]:
    """The number of weights of a group's extractor, what they are, and the options that make them fewer."""
    units = " + ".join(f"{dim:,}" for dim in dims)
    if isinstance(codec, ItemsCodec) and spec.encoding == "items":
        sizes = key_sizes(codec, schema)
        count = sum(size * dim for size, dim in zip(sizes, dims, strict=True))
        return count, f"{sizes[0]:,} keys of {units} numbers", "max_size, to keep fewer keys"
    if isinstance(codec, ItemsCodec):
        token_dim, filters, widths = (getattr(spec, key, of) for key, of in TEXT_CNN.items())
        windows = sum(widths) * token_dim * filters
        count = len(codec.vocabulary) * token_dim + windows + filters * len(widths) * sum(dims)
        return count, f"{len(codec.vocabulary):,} tokens of {token_dim:,} numbers, {filters:,} filters", "token_dim"
    layers = [codec.width, *getattr(spec, "hidden", ())]
    shown = ", ".join(f"{size:,}" for size in layers)
    return layer_weights([*layers, sum(dims)]), f"layers of {shown} and {units} units", "hidden, with fewer units"


def layer_weights(sizes: Sequence[int]) -> int:
    """How many weights dense layers of these widths have, without their biases."""
    return sum(before * after for before, after in pairwise(sizes))
