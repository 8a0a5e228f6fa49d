"""The digests in a run's manifest."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from feat2vec.errors import UserError
from feat2vec.writing import digests as digests_module
from feat2vec.writing.digests import (
    PARTS,
    PIECES,
    SEAL,
    CheckedFile,
    Pieces,
    check_manifest,
    check_parts,
    digests_of,
    digests_of_pieces,
    pieces_of,
    sealed,
)
from feat2vec.writing.signatures import digest_of

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # the SHA-256 of "abc"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.fixture
def folder() -> Path:
    """A folder with a large file, an empty one and one below."""
    folder = Path("run")
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "small").write_bytes(b"abc")
    (folder / "empty").touch()
    (folder / "large").write_bytes(b"x" * (2 << 20) + b"y")
    return folder


def test_a_digest_is_that_of_the_whole_file(folder: Path) -> None:
    digests = digests_of(folder)
    assert list(digests) == ["below/small", "empty", "large"]
    assert (digests["below/small"], digests["empty"]) == (ABC, EMPTY)
    (folder / "large").write_bytes(b"x" * (2 << 20) + b"z")
    assert digest_of(folder / "large") != digests["large"]


def test_a_manifest_that_was_changed_is_refused(folder: Path) -> None:
    manifest = sealed({"seed": 0}, folder)
    check_manifest(folder, manifest)
    check_manifest(folder, {"seed": 1})  # of a run without digests
    changes: list[dict[str, Any]] = [
        {"seed": 1}, {PARTS: {}}, {PARTS: None}, {PARTS: {"../x": "0" * 64}}, {PARTS: {"large": 5}}, {SEAL: 5},
        {PIECES: 5}, {PIECES: {"large": 5}},
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(UserError, match=r"^run/manifest\.json: was changed after training; restore"):
            check_manifest(folder, {**manifest, **change})


def test_a_file_that_was_changed_is_refused(folder: Path) -> None:
    manifest = sealed({}, folder)
    check_parts(folder, manifest)
    (folder / "empty").write_text("no more")
    check_parts(folder, manifest, ["large"])
    check_parts(folder, {})  # of a run without digests
    with pytest.raises(UserError, match=r"^run/empty: is not the file that this run was trained with; restore"):
        check_parts(folder, manifest)
    (folder / "empty").unlink()
    with pytest.raises(UserError, match=r"^run/empty: is missing; restore"):
        check_parts(folder, manifest)
    with pytest.raises(UserError, match=r"^run/other: is no part of this run, by its manifest\.json; restore"):
        check_parts(folder, manifest, ["other"])


def test_a_large_file_has_digests_of_its_pieces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PIECES not in sealed({}, folder)  # these are small
    monkeypatch.setattr(digests_module, "LARGE_BYTES", 2 << 20)
    manifest = sealed({}, folder)
    check_manifest(folder, manifest)
    assert list(manifest[PIECES]) == ["large"]
    pieces = pieces_of(manifest, "large")
    assert pieces is not None
    assert pieces.digest(0) == pieces.digest(1) != pieces.digest(2) == hashlib.sha256(b"y").hexdigest()
    assert pieces_of(manifest, "empty") is pieces_of({}, "large") is None


def test_a_piece_that_was_changed_is_refused_when_it_is_read(tmp_path: Path) -> None:
    path, content = tmp_path / "file", bytes(range(100))
    path.write_bytes(content)
    whole = Pieces("".join(hashlib.sha256(content[i : i + 16]).hexdigest() for i in range(0, 100, 16)), 16)
    path.write_bytes(content[:40] + b"?" + content[41:])
    with CheckedFile(path, whole) as file:
        assert file.read(32) == content[:32]
        assert file.seek(-48, 2) == 52
        assert file.read() == content[52:]
        file.seek(31)
        for _ in range(2):
            with pytest.raises(UserError, match="file: is not the file that this run was trained with; restore"):
                file.read(2)
        assert file.seek(10) == 10
        assert file.read(4) == content[10:14]
    path.write_bytes(content[:80])
    with pytest.raises(UserError, match="is not the file that this run was trained with"):
        CheckedFile(path, whole)


def test_a_piece_is_read_once_to_be_checked(folder: Path) -> None:
    digests = digests_of_pieces(folder / "large")
    assert len(digests) == 3 * 64
    with CheckedFile(folder / "large", Pieces(digests)) as file:
        file.seek(5)
        assert file.read(2) == b"xx"
        (folder / "large").write_bytes(b"z" * (2 << 20) + b"y")  # in place: the file is the same
        assert file.read(2) == b"zz"
        file.seek(1 << 20)
        with pytest.raises(UserError):
            file.read(1)
