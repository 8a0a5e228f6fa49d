"""A run as a TensorFlow SavedModel: raw strings and numbers in, vectors out, to be loaded without feat2vec."""

from __future__ import annotations

import errno
import gc
import keyword
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from feat2vec.encode.encoder import Encoder
from feat2vec.encode.process_memory import release_memory
from feat2vec.export.format_base import ExportRequest, GroupFacts
from feat2vec.export.graph.readers import InputColumn, Reader, reader_of
from feat2vec.model.large_variables import tables_aside
from feat2vec.model.optimizers.tables import Variable
from feat2vec.model.pair_scores import Tensor
from feat2vec.model.stored_model import StoredModel
from feat2vec.space.groups_and_levels import ROW
from feat2vec.space.keras_models import input_names, keras_encoder
from feat2vec.terminal import printable
from feat2vec.writing import scratch_folder

VARIABLES = Path("variables/variables")  # the name of the checkpoint's files, in the folder
SCRATCH = ".saved_model"
SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


class SignatureInput(NamedTuple):
    """A tensor of the signature: its name, and the group's column that it stands for."""

    name: str
    group: str
    column: InputColumn


def write_saved_model(folder: Path, request: ExportRequest, *, max_key_bytes: int) -> dict[str, GroupFacts]:
    """Write the model into a folder.

    Its one signature takes a tensor for each column of each group, and gives a vector for each group and their sum.
    TensorFlow holds all that it saves. So lookups' tables that are in the model's file are added to the checkpoint
    afterwards, one at a time.

    Args:
        folder: Where the model is written.
        request: What is exported.
        max_key_bytes: Groups with more bytes of keys are refused.

    Returns:
        For each group, the tensors that it takes and the name of the one that it gives.

    """
    with scratch_folder(folder, SCRATCH) as scratch:
        graph = scratch / "graph"
        facts, tables = _write_without_tables(graph, request, max_key_bytes=max_key_bytes)
        gc.collect()  # the module and its functions refer to each other
        release_memory()
        shutil.copytree(graph, folder, ignore=shutil.ignore_patterns(VARIABLES.parent.name), dirs_exist_ok=True)
        (folder / VARIABLES.parent).mkdir()
        with _errors_of_tensorflow():
            parts = [graph / VARIABLES]
            for i, (key, read) in enumerate(tables.items()):
                parts.append(scratch / f"table{i}")
                tf.raw_ops.SaveV2(prefix=str(parts[-1]), tensor_names=[key], shape_and_slices=[""], tensors=[read()])
            tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=[str(part) for part in parts],
                destination_prefix=str(folder / VARIABLES),
                delete_old_dirs=False,
            )
    return facts


def _write_without_tables(
    folder: Path, request: ExportRequest, *, max_key_bytes: int
) -> tuple[dict[str, GroupFacts], dict[str, Callable[[], Tensor]]]:
    """Write a SavedModel; returns facts about groups, and what reads the tables that its checkpoint lacks, by key."""
    encoder, groups = request.run.fitted, list(request.groups)
    with tables_aside():  # hash tables, which nothing here looks into, stay empty
        readers = _readers(encoder, groups, max_key_bytes=max_key_bytes)
    inputs = _signature_inputs(readers)
    _, *output_names = distinct_names([ROW, *groups])
    outputs = dict(zip(groups, output_names, strict=True))
    source = request.run.vector_source
    stored = [name for name in groups if isinstance(source, StoredModel) and source.has_lookups([name])]
    model = source.model_without_tables(stored) if isinstance(source, StoredModel) else source
    keras_model = keras_encoder(model, groups=groups, level=request.level, copy=False)
    layer = keras_model.get_layer("vectors")
    layer_names = dict(zip(groups, input_names(groups), strict=True))  # the groups' names inside the layer

    def vectors(**tensors: Tensor) -> dict[str, Tensor]:
        entries = {}
        for name in groups:
            columns = [tensors[column.name] for column in inputs if column.group == name]
            entries[layer_names[name]] = readers[name](*columns)
        layer_outputs = layer(entries, training=False)
        named = {ROW: layer_outputs[ROW]}
        for name in groups:
            named[outputs[name]] = layer_outputs[layer_names[name]]
        if request.unit_length:
            return {name: unit_length(tensor) for name, tensor in named.items()}
        return named

    module = tf.Module()
    module.readers, module.weights = list(readers.values()), [weight.value for weight in layer.weights]
    specs = {}
    for name, _, column in inputs:
        specs[name] = tf.TensorSpec(column.shape, tf.as_dtype(column.dtype), name)
    module.vectors = tf.function(vectors, autograph=False).get_concrete_function(**specs)
    tables: dict[str, Callable[[], Tensor]] = {}
    for name in stored:
        assert isinstance(source, StoredModel)
        for level, table in enumerate(layer.extractors[groups.index(name)].tables):
            tables[_checkpoint_key(layer.weights, table)] = partial(source.table, name, level)
            table.value.is_initialized = _no  # TensorFlow leaves the value of such a variable out of the checkpoint
    save(module, folder)
    return _group_facts(inputs, outputs), tables


def _readers(encoder: Encoder, groups: Sequence[str], *, max_key_bytes: int) -> dict[str, Reader]:
    """What reads the columns of each group; the keys of groups that share a vocabulary are held once."""
    readers: dict[str, Reader] = {}
    of_owners: dict[str, Reader] = {}
    for name in groups:
        owner, codec, group = encoder.schema.owner(name), encoder.codecs[name], encoder.schema.groups[name]
        readers[name] = reader_of(name, codec, group, max_key_bytes=max_key_bytes, owner=of_owners.get(owner))
        of_owners.setdefault(owner, readers[name])
    return readers


def _no(name: str | None = None) -> bool:
    del name
    return False


def _checkpoint_key(weights: Sequence[Variable], variable: Variable) -> str:
    """The key of one of a module's `weights` in the checkpoint of a SavedModel."""
    (place,) = [i for i, weight in enumerate(weights) if weight is variable]
    return f"weights/{place}/.ATTRIBUTES/VARIABLE_VALUE"


def _signature_inputs(readers: Mapping[str, Reader]) -> list[SignatureInput]:
    """The tensors of the signature, group by group; a group of one column gives its name to the tensor."""
    columns, wanted_names = [], []
    for group, reader in readers.items():
        for column in reader.inputs:
            columns.append((group, column))
            wanted_names.append(group if len(reader.inputs) == 1 else f"{group}_{column.column}")
    names = distinct_names(wanted_names)
    return [SignatureInput(name, group, column) for name, (group, column) in zip(names, columns, strict=True)]


def _group_facts(inputs: Iterable[SignatureInput], outputs: Mapping[str, str]) -> dict[str, GroupFacts]:
    """What the manifest says of each group."""
    facts: dict[str, GroupFacts] = {group: {"inputs": [], "output": output} for group, output in outputs.items()}
    for name, group, column in inputs:
        facts[group]["inputs"].append(
            {
                "name": name,
                "column": column.column,
                "dtype": column.dtype,
                "shape": ["batch", *("items" if size is None else size for size in column.shape[1:])],
                "values": column.form,
                "missing": column.missing,
            }
        )
    return facts


def save(module: tf.Module, folder: Path) -> None:
    """Write a module whose `vectors` is the signature; TensorFlow prints what it does, which is dropped here."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with _errors_of_tensorflow():
            tf.saved_model.save(module, str(folder), signatures={SIGNATURE: module.vectors})
    finally:
        logger.setLevel(level)


@contextmanager
def _errors_of_tensorflow() -> Iterator[None]:
    """Raise an `OSError` in place of TensorFlow's own errors, such as that of a full disk."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
    except tf.errors.OpError as error:
        raise OSError(errno.EIO, f"TensorFlow cannot write the model ({printable(error.message)})") from error


def unit_length(vectors: Tensor) -> Tensor:
    """Vectors [batch, dim] of length 1; zero vectors stay zero."""
    return tf.math.divide_no_nan(vectors, tf.norm(vectors, axis=1, keepdims=True))


def distinct_names(names: Iterable[str]) -> list[str]:
    """Names that a signature can have: ASCII letters, digits and underscores, each once whatever its case.

    They become keyword arguments of Python functions, so none is a keyword of the language or `self`.

    >>> distinct_names(["year", "Year", "sci-fi", "class"])
    ['year', 'Year_', 'sci_fi', 'class_']
    """
    name_of_folded: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        plain = plain if plain[:1].isalpha() else f"g{plain}"
        while plain.casefold() in name_of_folded or keyword.iskeyword(plain) or plain == "self":
            plain += "_"
        name_of_folded[plain.casefold()] = plain
    return list(name_of_folded.values())
