"""The digests in a run's manifest, by which a file that was changed after training is found.

`manifest.json` of a finished run holds the SHA-256 of each file that training wrote, and one of itself. A run that
feat2vec wrote before there were digests has none, and nothing of it is checked. Of a large file it holds the digest of
each piece too, so that who needs a few rows of a table reads no more than the pieces that they are in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from feat2vec.errors import RESTORE, UserError
from feat2vec.writing.files import JsonObject
from feat2vec.writing.folder_marks import MARK
from feat2vec.writing.seekable_bytes import SeekableBytes
from feat2vec.writing.signatures import BLOCK_BYTES, digest_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

PARTS, SEAL = "parts", "digest"  # keys of manifest.json: the digest of each file, and that of the manifest itself
DIGEST_LENGTH = 64  # hexadecimal digits of SHA-256
PIECES = "pieces"  # a key of manifest.json: of each large file the digests of its pieces, one after the other
LARGE_BYTES = 8 * BLOCK_BYTES  # a larger file has digests of pieces


def digests_of(folder: Path) -> dict[str, str]:
    """The digest of each file in a folder and below, by its relative path; without the mark, which grows later."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MARK)
    return {path.relative_to(folder).as_posix(): digest_of(path) for path in files}


def sealed(manifest: Mapping[str, object], folder: Path) -> JsonObject:
    """A manifest with the digests of the folder's files, and with its own."""
    digests = digests_of(folder)
    facts: JsonObject = {**manifest, PARTS: digests}
    large = [name for name in digests if (folder / name).stat().st_size > LARGE_BYTES]
    if large:
        facts[PIECES] = {name: digests_of_pieces(folder / name) for name in large}
    return {**facts, SEAL: _digest_of_manifest(facts)}


def check_manifest(folder: Path, manifest: Mapping[str, object]) -> None:
    """Check that a manifest is as it was written.

    Args:
        folder: The run's folder, for the message.
        manifest: What its manifest.json holds. One without digests is not checked.

    Raises:
        UserError: The manifest was changed after training.

    """
    if PARTS not in manifest and SEAL not in manifest:
        return
    without_seal = {key: manifest[key] for key in manifest if key != SEAL}
    are_digests = _are_digests(manifest.get(PARTS)) and _are_digests_of_pieces(manifest.get(PIECES, {}))
    if not are_digests or manifest.get(SEAL) != _digest_of_manifest(without_seal):
        raise UserError(f"{folder / 'manifest.json'}: was changed after training; {RESTORE}")


def check_parts(folder: Path, manifest: JsonObject, names: Iterable[str] | None = None) -> None:
    """Check that files of a run are those that training wrote.

    Files that a run got later, such as an index, are not checked.

    Args:
        folder: The run's folder.
        manifest: Its manifest. If it has no digests, nothing is checked.
        names: The files to check, by their paths below the folder; None for all that the manifest names.

    Raises:
        UserError: A file is missing, was changed, or is not in the manifest.

    """
    digests: Mapping[str, str] = manifest.get(PARTS, {})
    if not digests:
        return
    for name in digests if names is None else names:
        if name not in digests:
            raise UserError(f"{folder / name}: is no part of this run, by its manifest.json; {RESTORE}")
        path = folder / name
        if not path.is_file():
            raise UserError(f"{path}: is missing; {RESTORE}")
        if digest_of(path) != digests[name]:
            raise UserError(f"{path}: is not the file that this run was trained with; {RESTORE}")


def digests_of_pieces(path: Path) -> str:
    """The digests of a file's pieces of `BLOCK_BYTES`, one after the other."""
    digests, block = [], bytearray(BLOCK_BYTES)
    view = memoryview(block)
    with path.open("rb") as file:
        while count := file.readinto(block):
            digests.append(hashlib.sha256(view[:count]).hexdigest())
    return "".join(digests)


class Pieces(NamedTuple):
    """What is known of the pieces of a file.

    Args:
        digests: Their digests, one after the other.
        piece_bytes: The size of each piece but the last.

    """

    digests: str
    piece_bytes: int = BLOCK_BYTES

    def digest(self, piece: int) -> str:
        """The digest of a piece."""
        return self.digests[piece * DIGEST_LENGTH : (piece + 1) * DIGEST_LENGTH]


def pieces_of(manifest: JsonObject, name: str) -> Pieces | None:
    """The digests of a large file's pieces, None for a file that is checked as a whole.

    Args:
        manifest: A run's manifest, which was checked.
        name: The file's path below the run's folder.

    """
    digests = manifest.get(PIECES, {}).get(name)
    return None if digests is None else Pieces(digests)


class CheckedFile(SeekableBytes):
    """A file to read, of which each piece is compared with its digest before anything of it is used.

    Args:
        path: The file.
        pieces: The digests.

    Raises:
        UserError: The file has another size than that of the digests. Reading raises it for a piece that was changed.

    """

    def __init__(self, path: Path, pieces: Pieces) -> None:
        super().__init__(path.stat().st_size)
        self.path, self.pieces = path, pieces
        self.file = path.open("rb", buffering=0)
        count = -(-self.size // pieces.piece_bytes)
        self.is_checked = bytearray(count)
        if len(pieces.digests) != count * DIGEST_LENGTH:
            self.close()
            raise self._other_file()

    def _other_file(self) -> UserError:
        return UserError(f"{self.path}: is not the file that this run was trained with; {RESTORE}")

    def close(self) -> None:
        self.file.close()
        super().close()

    def read_at(self, position: int, view: memoryview) -> int:
        self.file.seek(position)
        count = self.file.readinto(view) or 0
        start, end, piece_bytes = position, position + count, self.pieces.piece_bytes
        for piece in range(start // piece_bytes, -(-end // piece_bytes)):
            first, last = piece * piece_bytes, min((piece + 1) * piece_bytes, self.size)
            if self.is_checked[piece]:
                continue
            is_inside = start <= first and last <= end
            self._check(piece, view[first - start : last - start] if is_inside else self._piece(first))
        return count

    def _piece(self, first: int) -> bytes:
        """A piece of which a part is asked for."""
        self.file.seek(first)
        return self.file.read(self.pieces.piece_bytes)

    def _check(self, piece: int, content: Buffer) -> None:
        if hashlib.sha256(content).hexdigest() != self.pieces.digest(piece):
            raise self._other_file()
        self.is_checked[piece] = 1


def _are_digests(parts: object) -> bool:
    """Whether this is a mapping from paths below a run's folder to digests."""
    if not isinstance(parts, dict):
        return False
    for name, digest in parts.items():
        is_path_inside = bool(name) and not name.startswith("/") and ".." not in name.split("/")
        if not is_path_inside or not isinstance(digest, str) or len(digest) != DIGEST_LENGTH:
            return False
    return True


def _are_digests_of_pieces(pieces: object) -> bool:
    return isinstance(pieces, dict) and all(isinstance(digests, str) for digests in pieces.values())


def _digest_of_manifest(facts: Mapping[str, object]) -> str:
    try:
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    except RecursionError:  # nested too deep to be written, and so not written by feat2vec
        return ""
