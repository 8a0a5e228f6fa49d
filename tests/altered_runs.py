"""Runs and files that were changed after training: what tests of several rooms share."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from feat2vec.errors import UserError
from feat2vec.writing.digests import sealed
from feat2vec.writing.files import read_json

GOLDEN = Path(__file__).parent / "golden" / "run_format_1"  # written by commit 8d6fb1c, which knew no digests
STRANGE: list[Any] = [
    None, True, -1, 0, 0.5, 2**31, 10**12, 2**63, 10**400, float("nan"), float("inf"), "", "x" * 300, [], [[]], {},
    {"a": {}}, [1], ["a"], "lookup", "\ud800",
]  # fmt: skip


def seal(folder: Path) -> Path:
    manifest = read_json(folder / "manifest.json")
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").write_text(json.dumps(sealed(manifest, folder)))
    return folder


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        call()
    lines = str(caught.value).splitlines()
    assert 1 <= len(lines) <= 5
    return lines[0]


def mutated(content: bytes, name: str, rng: random.Random) -> bytes:
    """A file with bytes changed, cut or put in; or, of JSON, with another value at some place."""
    if name.endswith(".json") and rng.random() < 0.6:
        return json.dumps(with_another_value(json.loads(content), rng)).encode()
    data = bytearray(content)
    at = rng.randrange(len(data))
    kind = rng.randrange(5)
    if kind == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        del data[at : at + rng.randrange(1, 40)]
    elif kind == 3:
        data[at : at + 8] = rng.choice([b"\xff" * 8, bytes(8), (10**12).to_bytes(8, "little"), b"[" * 5000])
    else:
        data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 20)))
    return bytes(data)


def with_another_value(facts: Any, rng: random.Random) -> Any:
    """JSON with one value replaced, or a key removed."""
    places = list(places_of(facts))
    holder, key = rng.choice(places)
    if rng.random() < 0.25:
        del holder[key]
    else:
        holder[key] = rng.choice(STRANGE)
    return facts


def places_of(facts: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(facts if isinstance(facts, dict) else range(len(facts))):
        yield facts, key
        if isinstance(facts[key], dict | list):
            yield from places_of(facts[key])
