"""Splits of TensorFlow datasets. TFDS is imported when one is opened."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np
import pyarrow as pa

from feat2vec.errors import UserError, suggest
from feat2vec.table.sources.registry import Scheme, register
from feat2vec.table.types import TablePart, column_types, unsupported
from feat2vec.terminal import printable, shortened

if TYPE_CHECKING:
    import tensorflow as tf
    import tensorflow_datasets as tfds

_ROWS_PER_BATCH = 2**12


@dataclass(frozen=True)
class _Column:
    """A feature that is no dict: where it is, its type, and the names of its classes if it has any."""

    path: tuple[str, ...]
    type_: pa.DataType
    labels: tuple[str, ...] | None = None


def open_tfds(source: str) -> TablePart:
    """Return the part of `tfds:name/config:version[split]`; the default split is `train`."""
    import tensorflow_datasets as tfds

    match = re.fullmatch(r"tfds:([\w./:+-]+)(?:\[(.+)\])?", source)
    if match is None:
        raise UserError(f"{source}: expected tfds:name, tfds:name[split] or tfds:name/config:version[split]")
    split = match[2] or "train"
    builder = _prepared(source, match[1])
    _check_split(source, builder, split)
    features = builder.info.features
    if not isinstance(features, tfds.features.FeaturesDict):
        raise UserError(f"{source}: its rows are no dict of features but {features!r}: it cannot be read as a table")
    columns = {"/".join(column.path): column for column in _columns(features)}
    types = column_types(source, [(name, column.type_) for name, column in columns.items()])

    def read(names: list[str]) -> Iterator[pa.RecordBatch]:
        for rows in _dataset(builder, split, {columns[name].path[0] for name in names}).ragged_batch(_ROWS_PER_BATCH):
            arrays = [_array(_at(rows, columns[name].path), columns[name].labels) for name in names]
            yield pa.RecordBatch.from_arrays(arrays, names=names)

    return TablePart(source, types, read)


def _prepared(source: str, name: str) -> tfds.core.DatasetBuilder:
    """Return the builder, its data on disk."""
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(name)
    except tfds.core.DatasetNotFoundError as error:
        near = suggest(re.split("[/:]", name)[0], tfds.list_builders(with_community_datasets=False))
        raise UserError(f"{source}: TFDS has no dataset of that name{near}") from error
    except Exception as error:  # a wrong configuration or version: a different exception for each
        raise UserError(f"{source}: {_first_line(error)}") from error
    if not builder.is_prepared():
        _announce_download(source, builder)
        try:
            with redirect_stdout(sys.stderr):  # TFDS prints, and standard output is for answers
                builder.download_and_prepare()
        except Exception as error:  # a dataset's own code runs here
            raise UserError(
                f"{source}: is not in {builder.data_dir}, and downloading it failed: {_first_line(error)}",
                "check the network, or set TFDS_DATA_DIR to the folder that holds it",
            ) from error
    return builder


def _announce_download(source: str, builder: tfds.core.DatasetBuilder) -> None:
    """Say what will be downloaded; refuse at once where there is no network, as TFDS would try for minutes."""
    try:
        files = builder.url_infos or {}
    except (AttributeError, OSError, ValueError):  # a builder outside of TFDS has no list of them
        files = {}
    if ".testing." in type(builder).download_and_prepare.__module__:  # mock data: nothing is fetched
        return
    sizes = sorted(info.size for info in files.values() if info.size)
    size = f", {sizes[0]}" if len(sizes) == 1 else f", files of {sizes[0]} to {sizes[-1]}" if sizes else ""
    message = f"{source}: is not in {builder.data_dir} yet; TFDS downloads and prepares it{size}"
    print(shortened(printable(message)), file=sys.stderr)  # noqa: T201
    hosts = {urlsplit(url).hostname for url in files}
    if hosts and not getproxies() and not any(host and _is_known(host) for host in hosts):
        raise UserError(
            f"{source}: is not in {builder.data_dir}, and it cannot be downloaded: no network reaches "
            f"{', '.join(sorted(filter(None, hosts)))}",
            "go online, set TFDS_DATA_DIR to the folder that holds it, or give another table",
        )


def _is_known(host: str) -> bool:
    """Whether the name of a host leads to an address."""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _check_split(source: str, builder: tfds.core.DatasetBuilder, split: str) -> None:
    known = [*builder.info.splits, "all"]
    for name in re.sub(r"\[[^\]]*\]", "", split).split("+"):
        if builder.info.splits and name.strip() not in known:
            raise UserError(f"{source}: no split {name!r}{suggest(name, known)}; it has {', '.join(known[:-1])}")


def _columns(feature: tfds.features.FeatureConnector, path: tuple[str, ...] = ()) -> Iterator[_Column]:
    """Yield the features that are no dict; classes are compared exactly, as a video is a Sequence too."""
    import tensorflow_datasets as tfds

    if isinstance(feature, tfds.features.FeaturesDict):
        for name, inner in feature.items():
            yield from _columns(inner, (*path, name))
    elif type(feature) is tfds.features.Sequence:
        for column in _columns(feature.feature, path):
            is_nested = pa.types.is_fixed_size_list(column.type_) or isinstance(column.type_, pa.OpaqueType)
            yield replace(column, type_=unsupported(repr(feature)) if is_nested else pa.list_(column.type_))
    elif type(feature) is tfds.features.ClassLabel and feature.names:
        yield _Column(path, pa.string(), tuple(feature.names))
    else:
        yield _Column(path, _type(feature))


def _type(feature: tfds.features.FeatureConnector) -> pa.DataType:
    import tensorflow_datasets as tfds

    f = tfds.features
    if type(feature) not in (f.Tensor, f.Scalar, f.Text, f.ClassLabel, f.BBoxFeature) or len(feature.shape) > 1:
        return unsupported(type(feature).__name__ + f" of shape {feature.shape}")
    dtype = np.dtype(feature.np_dtype)
    try:
        value = pa.string() if dtype.kind in "OSU" else pa.from_numpy_dtype(dtype)
    except pa.ArrowNotImplementedError:
        return unsupported(f"tensor of {dtype}")
    if not feature.shape:
        return value
    fixed = feature.shape[0] is not None and dtype.kind == "f"
    return pa.list_(value, feature.shape[0]) if fixed else pa.list_(value)


def _dataset(builder: tfds.core.DatasetBuilder, split: str, names: set[str]) -> tf.data.Dataset:
    """Read the split in its order on disk, with nothing else decoded than these features."""
    import tensorflow_datasets as tfds

    return builder.as_dataset(
        split=split,
        shuffle_files=False,
        decoders=tfds.decode.PartialDecoding({name: builder.info.features[name] for name in names}),
        read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
    )


def _at(rows: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        rows = rows[name]
    return rows


def _array(tensor: Any, labels: tuple[str, ...] | None) -> pa.Array:
    """Turn a tensor, dense or ragged, into an array with one entry for each of its rows."""
    if hasattr(tensor, "row_splits"):
        return pa.ListArray.from_arrays(pa.array(tensor.row_splits.numpy(), pa.int32()), _array(tensor.values, labels))
    values = tensor.numpy() if hasattr(tensor, "numpy") else tensor
    if values.ndim > 1:  # [rows, n, ...] -> [rows * n, ...]
        flat = values.reshape(-1, *values.shape[2:])
        return pa.FixedSizeListArray.from_arrays(_array(flat, labels), values.shape[1])
    if labels is not None:  # -1 is how TFDS says that a label is missing
        return pa.DictionaryArray.from_arrays(pa.array(values, mask=values < 0), pa.array(labels, pa.string()))
    return pa.array(values, pa.binary() if values.dtype == object else None)


register(Scheme("tfds:", "tfds:NAME", "tfds:movielens/100k-ratings", open_tfds))
