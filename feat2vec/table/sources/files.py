"""Files, globs and folders to the parts of a table."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from feat2vec.errors import UserError, suggest
from feat2vec.table.sources.partitions import partitioned
from feat2vec.table.sources.registry import FileFormat, formats_by_suffix, join_words
from feat2vec.table.types import TablePart

_ARCHIVES = (".7z", ".bz2", ".rar", ".tar", ".tgz", ".xz", ".zip")
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}


def open_files(source: str) -> tuple[list[TablePart], bool]:
    """Return the parts that a path, a glob or a folder stands for, and whether their columns have types."""
    paths = find_files(source)
    formats = [_format_and_compression(path) for path in paths]
    first_format, _ = formats[0]
    for path, (format_, _) in zip(paths, formats, strict=True):
        if format_ != first_format:
            raise UserError(
                f"{source}: holds files of more than one format: {paths[0]} is {first_format.name} and {path} is "
                f"{format_.name}: use a glob, such as '*.parquet', that matches files of one"
            )
    parts = []
    for path, (format_, compression) in zip(paths, formats, strict=True):
        parts.append(partitioned(format_.open(path, compression), source, path))
    return parts, first_format.typed and all(part.typed for part in parts)


def find_files(source: str) -> list[str]:
    """Return the files of a path, a glob or a folder, sorted; hidden ones and those that start with `_` are no data."""
    if os.path.isfile(source):
        return [source]
    if os.path.isdir(source):
        _refuse_encoded_rows(source)
        paths = sorted(_files_below(source))
        if not paths:
            raise UserError(f"{source}: the folder has no data files: received nothing but hidden files, or none")
        return paths
    if glob.has_magic(source):
        paths = sorted(path for path in glob.glob(source, recursive=True) if os.path.isfile(path))
        if not paths:
            raise UserError(f"{source}: no file matches: check the pattern and the folder")
        return paths
    raise UserError(_why_missing(source))


def _refuse_encoded_rows(folder: str) -> None:
    """Raise for a folder that `feat2vec encode` wrote: what it holds are no rows of a table."""
    if os.path.isdir(os.path.join(folder, "_shards")):
        raise UserError(f"{folder}: holds encoded rows, which `feat2vec train` starts from; give the table itself")


def _files_below(folder: str) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        yield from (os.path.join(parent, name) for name in files if not name.startswith((".", "_")))


def _why_missing(source: str) -> str:
    """Say why a path is neither a file nor a folder."""
    if not source:
        return "received '', which names no table: give the path of a file or a folder"
    path = Path(source)
    if path.is_symlink():
        return f"{source}: is a link to {os.readlink(path)}, which is no file or folder: check the path"
    if path.exists():
        return f"{source}: is neither a file nor a folder, but a device, a pipe or a socket: write its rows to a file"
    if not path.parent.is_dir():
        return f"{source}: no such file: the folder {path.parent} does not exist either"
    near = suggest(path.name, sorted(entry.name for entry in path.parent.iterdir()))
    return f"{source}: no such file or folder{near or ': check the path'}"


def _format_and_compression(path: str) -> tuple[FileFormat, str | None]:
    """Return the format and the compression that the name of a file tells."""
    if any("\udc80" <= letter <= "\udcff" for letter in path):  # what Arrow and DuckDB cannot open
        raise UserError(f"{path}: its name is not UTF-8: rename the file")
    stem, suffix = os.path.splitext(path.lower())
    compression = _COMPRESSIONS.get(suffix)
    if compression:
        stem, suffix = os.path.splitext(stem)
    formats = formats_by_suffix()
    format_ = formats.get(suffix)
    if format_ is None:
        compressible = dict.fromkeys(known.name for known in formats.values() if known.compressible)
        remedy = ": unpack it" if suffix in _ARCHIVES else suggest(suffix, formats)
        raise UserError(
            f"{path}: unknown format {suffix!r}{remedy}",
            f"known: {' '.join(formats)}; {join_words(list(compressible), 'and')} also with {' '.join(_COMPRESSIONS)}",
            "rename it, or write a glob such as '*.parquet' to leave it out",
        )
    if compression and not format_.compressible:
        raise UserError(
            f"{path}: {format_.name} cannot be read compressed as a whole: decompress it; it compresses inside"
        )
    return format_, compression
