"""Keys, and how often each occurs, in memory-mapped files without a name: they take no memory of the process."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
import pyarrow as pa

from feat2vec.encode.vocabulary import KEY_COUNTS

PARTS = ("offsets", "text", "counts")


class MappedKeysWriter:
    """Writes keys and their counts batch by batch; `table` maps them.

    The files have no name once they are mapped, or an error ends the work: the system removes them with the mapping.

    Args:
        folder: Where the files are made.
        name: The beginning of their names.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, MappedKeysWriter(Path(folder), "director") as writer:
        ...     writer.append(pa.array(["Varda", "Ozu"]), pa.array([7, 3]))
        ...     table = writer.table()
        >>> table.to_pydict()
        {'key': ['Varda', 'Ozu'], 'n': [7, 3]}

    """

    def __init__(self, folder: Path, name: str) -> None:
        self.paths = {part: folder / f"{name}_selected_{part}" for part in PARTS}
        self.keys = self.text_bytes = 0  # written so far

    def __enter__(self) -> Self:
        self.files: dict[str, BinaryIO] = {part: path.open("wb") for part, path in self.paths.items()}
        self.files["offsets"].write(np.zeros(1, np.int32).data)
        return self

    def append(self, keys: pa.StringArray, counts: pa.Int64Array) -> None:
        """Write a batch.

        Args:
            keys: The keys.
            counts: How often each occurs, [keys].

        """
        if not len(keys):
            return
        _, offsets_buffer, text = keys.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
        if text is not None:
            self.files["text"].write(memoryview(text)[offsets[0] : offsets[-1]])
        ends = offsets[1:] - offsets[0] + self.text_bytes
        self.keys, self.text_bytes = self.keys + len(keys), int(ends[-1])
        if self.text_bytes > np.iinfo(np.int32).max:
            raise pa.ArrowCapacityError("the keys of a group have more than 2 GB of text")
        self.files["offsets"].write(ends.astype(np.int32).data)
        self.files["counts"].write(counts.to_numpy().data)

    def table(self) -> pa.Table:
        """The keys (`key`) and their counts (`n`), in the order in which they were written."""
        for file in self.files.values():
            file.close()
        offsets, text, counts = (_mapped(self.paths[part]) for part in PARTS)
        keys = pa.StringArray.from_buffers(self.keys, offsets, text)
        return pa.table([keys, pa.Array.from_buffers(pa.int64(), self.keys, [None, counts])], schema=KEY_COUNTS)

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in self.files.values():
            file.close()
        for path in self.paths.values():
            path.unlink()


def _mapped(path: Path) -> pa.Buffer:
    """The bytes of a file, which stay in it."""
    if not path.stat().st_size:  # which cannot be mapped
        return pa.py_buffer(b"")
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()
