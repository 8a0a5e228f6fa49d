"""The registry of sources: formats of files, schemes such as `tfds:`, and kinds of objects in memory.

Each source is a module of this folder that registers a `FileFormat`, a `Scheme` or an `ObjectKind`. All lists of
sources are made from the registry: what `open_table` reads, the help of the command line, and the messages.

A module of a source is imported to be registered, so it imports the library that it reads with only when it reads.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from feat2vec.table.types import TablePart


@dataclass(frozen=True)
class FileFormat:
    """A format of files, which the ending of a file's name tells.

    Attributes:
        name: what help and messages call the format.
        suffixes: the endings of file names, in lower case.
        open: returns the part of a table for a path and the compression of the file (`gzip`, `zstd` or None).
        typed: whether columns have types; in a CSV file all values are text.
        compressible: whether a file may be compressed as a whole.

    """

    name: str
    suffixes: tuple[str, ...]
    open: Callable[[str, str | None], TablePart]
    typed: bool = True
    compressible: bool = False


@dataclass(frozen=True)
class Scheme:
    """A kind of names of tables that are not paths, told by their prefix.

    Attributes:
        prefix: what the names begin with, such as `tfds:`.
        form: how a name is written, such as `tfds:NAME`.
        example: a name that exists.
        open: returns the part of a table for a name.

    """

    prefix: str
    form: str
    example: str
    open: Callable[[str], TablePart]


@dataclass(frozen=True)
class ObjectKind:
    """A kind of objects in memory.

    Attributes:
        name: what messages call an object of this kind, with its article.
        open: returns the part of a table for an object, or None for an object of another kind.
        fallback: whether the kind is asked after all others, as many objects of theirs are of this kind too.

    """

    name: str
    open: Callable[[object], TablePart | None]
    fallback: bool = False


_Source = TypeVar("_Source")

_FORMATS: dict[str, FileFormat] = {}
_SCHEMES: dict[str, Scheme] = {}
_OBJECT_KINDS: dict[str, ObjectKind] = {}


def register(*sources: FileFormat | Scheme | ObjectKind) -> None:
    """Add sources to the registry.

    Raises:
        ValueError: when another source has the same suffix, prefix or name.

    """
    for source in sources:
        match source:
            case FileFormat():
                for suffix in source.suffixes:
                    _add(_FORMATS, suffix, source)
            case Scheme():
                _add(_SCHEMES, source.prefix, source)
            case ObjectKind():
                _add(_OBJECT_KINDS, source.name, source)


def _add(registered: dict[str, _Source], key: str, source: _Source) -> None:
    if registered.setdefault(key, source) is not source:
        raise ValueError(f"two sources are registered for {key!r}")


@cache
def _import_sources() -> None:
    """Import each module of this folder, so that its sources are registered."""
    package = importlib.import_module("feat2vec.table.sources")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def formats_by_suffix() -> dict[str, FileFormat]:
    """Return the format of each suffix, ordered by the names of the formats."""
    _import_sources()
    return dict(sorted(_FORMATS.items(), key=lambda item: item[1].name.casefold()))


def file_formats() -> list[FileFormat]:
    """Return the formats of files, ordered by name."""
    return list(dict.fromkeys(formats_by_suffix().values()))


def schemes() -> list[Scheme]:
    """Return the schemes, ordered by prefix."""
    _import_sources()
    return [_SCHEMES[prefix] for prefix in sorted(_SCHEMES)]


def scheme_of(source: str) -> Scheme | None:
    """Return the scheme of a source's name, or None for a path.

    >>> scheme_of("tfds:movielens").prefix
    'tfds:'
    >>> scheme_of("films.csv") is None
    True

    """
    return next((scheme for scheme in schemes() if source.startswith(scheme.prefix)), None)


def object_kinds() -> list[ObjectKind]:
    """Return the kinds of objects, in the order in which they are asked."""
    _import_sources()
    return sorted(_OBJECT_KINDS.values(), key=lambda kind: (kind.fallback, kind.name))


def describe_names() -> str:
    """Say in words which names of tables can be opened, as the help of the command line does."""
    formats = ", ".join(format_.name for format_ in file_formats())
    return join_words([f"a file ({formats})", "a folder", "a glob", *(scheme.form for scheme in schemes())])


def describe_sources() -> str:
    """Say in words what can be opened: paths, names and objects."""
    return join_words(["a path", *(scheme.form for scheme in schemes()), *(kind.name for kind in object_kinds())])


def join_words(words: Sequence[str], last: str = "or") -> str:
    """Join words for a sentence.

    >>> join_words(["a file", "a folder", "a glob"])
    'a file, a folder or a glob'

    """
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else words[0]
