"""A file that is there when it is whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from feat2vec.errors import UserError, writing


@contextmanager
def whole_file(out: str | Path) -> Iterator[Path]:
    """The place to write to, which gets the name `out` at the end; after an error nothing is left of it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(Path(folder) / "films.txt") as partial:
    ...         _ = partial.write_text("Cléo de 5 à 7", encoding="utf-8")
    ...     [path.name for path in Path(folder).iterdir()]
    ['films.txt']
    """
    out = Path(out)
    if out.exists() and not out.is_file():  # a device would be replaced by a file
        raise UserError(f"{out}: is no file that can be replaced; choose another name")
    partial = out.with_name(f".{out.name[:200]}-{os.urandom(8).hex()}")
    try:
        with writing(out):
            yield partial
            partial.replace(out)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def write_text(out: str | Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all; what has no encoding, such as a lone surrogate, is escaped."""
    with whole_file(out) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
