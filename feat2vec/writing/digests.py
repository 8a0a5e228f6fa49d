"""The digests in a run's manifest, by which a file that was changed after training is found.

`manifest.json` of a finished run holds the SHA-256 of each file that training wrote, and one of itself. A run that
feat2vec wrote before there were digests has none, and nothing of it is checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from feat2vec.errors import RESTORE, UserError
from feat2vec.writing.files import JsonObject
from feat2vec.writing.folder_marks import MARK
from feat2vec.writing.signatures import digest_of

PARTS, SEAL = "parts", "digest"  # keys of manifest.json: the digest of each file, and that of the manifest itself
DIGEST_LENGTH = 64  # hexadecimal digits of SHA-256


def digests_of(folder: Path) -> dict[str, str]:
    """The digest of each file in a folder and below, by its relative path; without the mark, which grows later."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MARK)
    return {path.relative_to(folder).as_posix(): digest_of(path) for path in files}


def sealed(manifest: Mapping[str, object], folder: Path) -> JsonObject:
    """A manifest with the digests of the folder's files, and with its own."""
    facts = {**manifest, PARTS: digests_of(folder)}
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
    if not _are_digests(manifest.get(PARTS)) or manifest.get(SEAL) != _digest_of_manifest(without_seal):
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


def _are_digests(parts: object) -> bool:
    """Whether this is a mapping from paths below a run's folder to digests."""
    if not isinstance(parts, dict):
        return False
    for name, digest in parts.items():
        is_path_inside = bool(name) and not name.startswith("/") and ".." not in name.split("/")
        if not is_path_inside or not isinstance(digest, str) or len(digest) != DIGEST_LENGTH:
            return False
    return True


def _digest_of_manifest(facts: Mapping[str, object]) -> str:
    try:
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    except RecursionError:  # nested too deep to be written, and so not written by feat2vec
        return ""
