"""What a run was trained on, as digests that are compared before training goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from feat2vec.encode.array_files import ROWS_PER_PIECE, Array, release_pages
from feat2vec.encode.encoder import Encoded

LEARNT_FROM = ("data", "validation", "start")  # facts of the manifest
MOST_SHOWN = 40  # characters of a key or a value in a message


def fingerprints(encoded: Encoded) -> dict[str, Any]:
    """A digest of each group's values in every row, and of the target and the weight."""
    facts: dict[str, Any] = {"rows": len(encoded)}
    for g, (name, values) in enumerate(encoded.values.items()):
        vocabulary = encoded.encoder.codecs[name].vocabulary
        keys = [] if vocabulary is None else [np.array(hash_of(buffers(vocabulary.keys)))]
        facts[name] = hash_of(chain(pieces(values.entries), keys, (piece[:, g] for piece in pieces(encoded.rows))))
    for name, array in (("target", encoded.target), ("weight", encoded.weight)):
        if array is not None:
            facts[f"the {name}"] = hash_of(pieces(array))
    return facts


def pieces(array: Array) -> Iterator[Array]:
    """An array in pieces, as it may be larger than memory."""
    for at in range(0, len(array), ROWS_PER_PIECE):
        yield array[at : at + ROWS_PER_PIECE]
        release_pages(array)


def buffers(keys: Any) -> Iterator[Array]:
    """The bytes of Arrow strings, and where each begins."""
    return (np.frombuffer(buffer, np.uint8) for buffer in keys.buffers() if buffer is not None)


def hash_of(arrays: Any) -> str:
    """A digest of the arrays' bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def differences(before: Mapping[str, Any], now: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Where two nested mappings differ: `training.epochs: 5 before, 10 now`."""
    for key in dict.fromkeys([*before, *now]):
        if len(path) > 150:  # no file of ours is nested that deep
            yield f"{path}: differs"
            return
        here, old, new = f"{path}{key[:MOST_SHOWN]}", before.get(key, "nothing"), now.get(key, "nothing")
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from differences(old, new, f"{here}.")
        elif old != new:
            was, now_ = (_shown(value) for value in (old, new))
            yield f"{here}: {was} before, {now_} now"


def _shown(value: Any) -> Any:
    if value is None or isinstance(value, Mapping):
        return "none" if value is None else "given"
    text = " ".join(str(value).split())
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."
