"""The signature of a file: a digest of what feat2vec wrote, by which a file that was edited since is told.

A text ends with a comment that holds the digest of all before it; a Parquet file holds the digest of its row groups
in its metadata.
"""

from __future__ import annotations

import hashlib
import io
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from typing_extensions import Buffer

SIGNATURE = "written by feat2vec"  # the key in Parquet's metadata, and the words in a comment
COMMENTS = {".html": "<!-- {} -->", ".svg": "<!-- {} -->", ".yaml": "# {}", ".yml": "# {}"}
SIGNATURE_LINE = re.compile(rb"(?:<!-- |# )" + SIGNATURE.encode() + rb", blake2b ([0-9a-f]{64})(?: -->)?\n\Z")
SIGNATURE_BYTES = 256  # at the end of a text, which hold its signature
BLOCK_BYTES = 1 << 20  # that are read at a time
FOOTER_BYTES = 8  # at the end of a Parquet file: the length of its metadata, and the word PAR1


def signed_text(text: str, suffix: str) -> bytes:
    """A text as UTF-8 with its signature, if files of the suffix have comments.

    >>> signed_text("version: 1\\n", ".yaml").splitlines()[0]
    b'version: 1'
    >>> signed_text("plain", ".txt")
    b'plain'
    """
    content = text.encode("utf-8", "backslashreplace")
    if suffix.lower() not in COMMENTS:
        return content
    if not content.endswith(b"\n"):
        content += b"\n"
    comment = COMMENTS[suffix.lower()].format(f"{SIGNATURE}, blake2b {_Digest().of_content(content)}")
    return content + comment.encode() + b"\n"


def is_signed(path: Path) -> bool:
    """Whether a file is as feat2vec wrote it; a link is not."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        with path.open("rb") as file:
            if path.suffix == ".parquet":
                return _is_signed_parquet(file)
            return path.suffix.lower() in COMMENTS and _is_signed_text(file)
    except OSError:
        return False


def _is_signed_text(file: BinaryIO) -> bool:
    size = file.seek(0, io.SEEK_END)
    file.seek(max(size - SIGNATURE_BYTES, 0))
    signature = SIGNATURE_LINE.search(file.read())
    if signature is None:
        return False
    return _Digest().of_file(file, size - len(signature[0])) == signature[1].decode()


def _is_signed_parquet(file: BinaryIO) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(file).metadata or {}
    except (pa.ArrowException, OSError):
        return False
    size = file.seek(0, io.SEEK_END)
    file.seek(size - FOOTER_BYTES)
    metadata_bytes = int.from_bytes(file.read(4), "little")
    digest = metadata.get(SIGNATURE.encode(), b"").decode("ascii", "replace")
    return bool(digest) and _Digest().of_file(file, size - FOOTER_BYTES - metadata_bytes) == digest


@contextmanager
def signed_parquet(path: Path, schema: pa.Schema, **options: object) -> Iterator[pq.ParquetWriter]:
    """Write a Parquet file that is signed when it is closed.

    Args:
        path: The file.
        schema: The columns.
        **options: Those of `pyarrow.parquet.ParquetWriter`.

    Yields:
        The writer.

    """
    import pyarrow.parquet as pq

    with path.open("wb") as file:
        sink = _Digesting(file)
        with pq.ParquetWriter(sink, schema, **options) as writer:
            yield writer
            writer.add_key_value_metadata({SIGNATURE: sink.digest.text()})  # of all but the footer, which follows


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, which is read in blocks."""
    digest, block = hashlib.sha256(), bytearray(BLOCK_BYTES)
    view = memoryview(block)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(view[:count])
    return digest.hexdigest()


class _Digest:
    """A BLAKE2b digest of 32 bytes."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=32)

    def update(self, content: Buffer) -> None:
        """Add content."""
        self.hash.update(content)

    def text(self) -> str:
        """The digest of all content so far, in hexadecimal."""
        return self.hash.hexdigest()

    def of_content(self, content: bytes) -> str:
        """The digest of a content."""
        self.update(content)
        return self.text()

    def of_file(self, file: BinaryIO, size: int) -> str:
        """The digest of the first bytes of a file."""
        file.seek(0)
        while size > 0 and (block := file.read(min(BLOCK_BYTES, size))):
            self.update(block)
            size -= len(block)
        return self.text()


class _Digesting(io.RawIOBase):
    """A file to write to, with the digest of what was written."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self.file, self.digest = file, _Digest()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.file.tell()

    def write(self, content: Buffer) -> int:
        self.digest.update(content)
        return self.file.write(content)
