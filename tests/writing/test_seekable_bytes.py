"""`SeekableBytes` reads as `io.BytesIO` does."""

from __future__ import annotations

import io
import random

from feat2vec.writing.seekable_bytes import SeekableBytes


class HeldBytes(SeekableBytes):
    """Bytes in memory, of which no more than three are read at a time."""

    def __init__(self, content: bytes) -> None:
        super().__init__(len(content))
        self.content = content

    def read_at(self, position: int, view: memoryview) -> int:
        piece = self.content[position : position + min(len(view), 3)]
        view[: len(piece)] = piece
        return len(piece)


def test_reads_and_seeks_are_those_of_a_file_in_memory() -> None:
    draw, content = random.Random(0), bytes(range(40))
    plain, held = io.BytesIO(content), HeldBytes(content)
    assert held.readable()
    assert held.seekable()
    for _ in range(300):
        whence, length = draw.choice([io.SEEK_SET, io.SEEK_CUR, io.SEEK_END]), draw.randrange(4)
        offset = draw.randrange(0 if whence == io.SEEK_SET else -9, 50)
        if whence == io.SEEK_CUR and plain.tell() + offset > 60:
            offset = 0
        assert plain.seek(offset, whence) == held.seek(offset, whence)
        assert plain.read(length) == held.read(length)
        assert plain.tell() == held.tell()


def test_a_buffer_around_it_reads_all_of_it() -> None:
    assert io.BufferedReader(HeldBytes(bytes(range(40)))).read() == bytes(range(40))
