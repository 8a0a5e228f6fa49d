"""`SeekableBytes`: what is read as a file is, from a position that can be moved."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


class SeekableBytes(io.RawIOBase):
    """Bytes to read as a file. A class that derives from it reads them in `read_at`.

    Args:
        size: How many there are.

    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.position = size, 0

    def read_at(self, position: int, view: memoryview) -> int:
        """Read the bytes from a position on into a buffer, no longer than what is left, and return how many."""
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.position = max(offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence], 0)
        return self.position

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer).cast("B")[: max(self.size - self.position, 0)]
        count = self.read_at(self.position, view)
        self.position += count
        return count
