"""The digests in a run's manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from feat2vec.errors import UserError
from feat2vec.writing.digests import PARTS, SEAL, check_manifest, check_parts, digests_of, sealed
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
