"""A run as a TensorFlow SavedModel: raw strings and numbers in, vectors out, to be loaded without feat2vec."""

from __future__ import annotations

import errno
import keyword
import logging
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from feat2vec.encode.encoder import Encoder
from feat2vec.export.graph_reader import reader
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.large_variables import tables_aside
from feat2vec.space.embed import ROW
from feat2vec.space.keras_models import encoder as keras_encoder
from feat2vec.space.keras_models import input_names
from feat2vec.terminal import printable

SIGNATURE = "serving_default"


def write_saved_model(
    model: Feat2Vec, encoder: Encoder, folder: Path, groups: Sequence[str], level: int | None, *, normalise: bool
) -> dict[str, Any]:
    """Write it into a folder; returns what each group takes and gives.

    Its one signature takes a tensor for each column of each group, and gives a vector for each group and their sum.
    """
    names = list(groups)
    given = distinct_names([ROW, *names])[1:]
    outputs = dict(zip(names, given, strict=True))
    with tables_aside():  # hash tables, which nothing here looks into
        readers = {name: reader(name, encoder.codecs[name], encoder.schema.groups[name]) for name in names}
    columns = [(name, column) for name in names for column in readers[name].inputs]
    single = {name: len(readers[name].inputs) == 1 for name in names}
    inputs = distinct_names([name if single[name] else f"{name}_{column.column}" for name, column in columns])
    layer = keras_encoder(model, groups=names, level=level, copy=False).get_layer("vectors")
    keys = dict(zip(names, input_names(names), strict=True))

    def vectors(**tensors: Any) -> dict[str, Any]:
        given = iter(inputs)
        entries = {keys[name]: readers[name](*(tensors[next(given)] for _ in readers[name].inputs)) for name in names}
        found = layer(entries, training=False)
        named = {ROW: found[ROW], **{outputs[name]: found[keys[name]] for name in names}}
        return {name: unit(one) if normalise else one for name, one in named.items()}

    specs = {
        name: tf.TensorSpec(column.shape, tf.as_dtype(column.dtype), name)
        for name, (_, column) in zip(inputs, columns, strict=True)
    }
    module = tf.Module()
    module.readers, module.weights = list(readers.values()), [weight.value for weight in layer.weights]
    module.vectors = tf.function(vectors, autograph=False).get_concrete_function(**specs)
    save(module, folder)
    described: dict[str, dict[str, Any]] = {name: {"inputs": [], "output": outputs[name]} for name in names}
    for name, (group, column) in zip(inputs, columns, strict=True):
        shape = ["batch", *("items" if size is None else size for size in column.shape[1:])]
        facts = {"name": name, "column": column.column, "dtype": column.dtype, "shape": shape}
        described[group]["inputs"].append({**facts, "values": column.form, "missing": column.missing})
    return described


def save(module: Any, folder: Path) -> None:
    """`tf.saved_model.save`, which says what it does on standard error, and has errors of its own for a full disk."""
    logger, level = logging.getLogger("tensorflow"), logging.getLogger("tensorflow").level
    logger.setLevel(logging.ERROR)
    try:
        tf.saved_model.save(module, str(folder), signatures={SIGNATURE: module.vectors})
    except tf.errors.OpError as error:
        full = isinstance(error, tf.errors.ResourceExhaustedError)
        reason = (
            os.strerror(errno.ENOSPC) if full else f"TensorFlow cannot write the model ({printable(error.message)})"
        )
        raise OSError(errno.ENOSPC if full else errno.EIO, reason) from error
    finally:
        logger.setLevel(level)


def unit(vectors: Any) -> Any:
    """Vectors of length 1, or zero."""
    return tf.math.divide_no_nan(vectors, tf.norm(vectors, axis=1, keepdims=True))


def distinct_names(names: Iterable[str]) -> list[str]:
    """Names that a signature can have: ASCII letters, digits and underscores, each once whatever its case.

    They are keyword arguments of Python functions, so that none is a word of the language or `self`.
    """
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        plain = plain if plain[:1].isalpha() else f"g{plain}"
        while plain.casefold() in found or keyword.iskeyword(plain) or plain == "self":
            plain += "_"
        found[plain.casefold()] = plain
    return list(found.values())
