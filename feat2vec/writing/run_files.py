"""The files of a run: a digest of each part, and JSON that is read with care."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from feat2vec.errors import UserError
from feat2vec.writing import MARK

PARTS, SEAL = "parts", "digest"  # keys of manifest.json: the digest of each file, and that of the manifest itself
MODEL = "model.keras"
BUFFER = 1 << 20
DIGEST_LENGTH = 64  # hexadecimal digits of SHA-256
RESTORE = "restore the run from a copy, or train it again"


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, which is read once, in blocks."""
    digest, buffer = hashlib.sha256(), bytearray(BUFFER)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(view[:count])
    return digest.hexdigest()


def digests_of(folder: Path) -> dict[str, str]:
    """The digest of each file in a folder and in those below it, by its path from there; its mark grows with time."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MARK)
    return {path.relative_to(folder).as_posix(): digest_of(path) for path in files}


def sealed(manifest: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A manifest with the digests of the folder's files, and with its own."""
    facts = {**manifest, PARTS: digests_of(folder)}
    return {**facts, SEAL: _seal_of(facts)}


def check_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise if the manifest is not as it was written; a run of an earlier feat2vec has no digests to check."""
    if PARTS not in manifest and SEAL not in manifest:
        return
    parts = manifest.get(PARTS)
    well_formed = isinstance(parts, dict) and all(
        isinstance(digest, str) and len(digest) == DIGEST_LENGTH and _is_inside(name) for name, digest in parts.items()
    )
    if not well_formed or manifest.get(SEAL) != _seal_of({key: manifest[key] for key in manifest if key != SEAL}):
        raise UserError(f"{folder / 'manifest.json'}: was changed after training; {RESTORE}")


def check_parts(folder: Path, manifest: Mapping[str, Any], names: Iterable[str] | None = None) -> None:
    """Raise if a file that training wrote has another content now: all of them, or those named.

    A run of an earlier feat2vec has no digests, and files that a run got later are none of its parts.
    """
    parts: Mapping[str, str] = manifest.get(PARTS, {})
    for name in parts if names is None else names:
        if name not in parts:
            if parts:
                raise UserError(f"{folder / name}: is no part of this run, by its manifest.json; {RESTORE}")
            continue
        path = folder / name
        if not path.is_file():
            raise UserError(f"{path}: is missing; {RESTORE}")
        if digest_of(path) != parts[name]:
            raise UserError(f"{path}: is not the file that this run was trained with; {RESTORE}")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; `ValueError` says what is wrong, also where Python's parser would say something else."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deep") from None
    if not isinstance(facts, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return facts


def in_a_line(error: BaseException) -> str:
    """What an error says, on one short line, with its type."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said if len(said) <= 100 else f'{said[:97]}...'}"


def _seal_of(facts: Mapping[str, Any]) -> str:
    try:
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    except RecursionError:
        return ""


def _is_inside(name: str) -> bool:
    """Whether a part's name is a path below the run."""
    return bool(name) and not name.startswith("/") and ".." not in name.split("/")
