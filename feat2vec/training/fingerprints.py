"""What a run is learnt from, as digests that are compared before a training is resumed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array
from feat2vec.encode.arrays_on_disk import ROWS_PER_PIECE, release_pages
from feat2vec.encode.encoder import Encoded
from feat2vec.errors import UserError
from feat2vec.schema.reading import schema_of
from feat2vec.schema.yaml_text import parse_document

LEARNT_FROM = ("data", "validation", "start")  # facts of the manifest
LONGEST_SHOWN = 40  # characters of a key or a value in a message
LONGEST_PATH = 150  # characters of nested keys; no file that feat2vec writes is nested that deep
MOST_DIFFERENCES = 3  # that a message shows


def learnt_from(
    rows: Encoded, validation_rows: Encoded | None, start_facts: Mapping[str, object] | None
) -> dict[str, object]:
    """What a training depends on: its schema, rows and validation rows, and the run it starts with."""
    return {
        "schema": rows.encoder.schema.resolved(),
        "data": fingerprints(rows),
        "validation": None if validation_rows is None else fingerprints(validation_rows),
        "start": start_facts,
    }


def refuse_other_origin(where: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise if a run or a checkpoint was learnt from another schema or other rows than are given now.

    Args:
        where: The run or the folder of the checkpoint, for messages.
        before: What `learnt_from` said when it was written.
        now: What `learnt_from` says now.

    Raises:
        UserError: They differ; the message names where.

    """
    if before == now:
        return
    if not isinstance(before["schema"], str):
        raise UserError(f"{where}: does not say which schema it was trained with; start with --force")
    old = {**before, "schema": parse_document(_with_later_options(before["schema"]), f"{where}").data}
    new = {**now, "schema": parse_document(now["schema"], f"{where}").data}
    changed = list(differences(old, new))
    if not changed:
        return
    lines = [f"  {difference.removeprefix('schema.')}" for difference in changed[:MOST_DIFFERENCES]]
    if len(changed) > MOST_DIFFERENCES:
        lines[-1] += f" and {len(changed) - MOST_DIFFERENCES} more"
    raise UserError(f"{where}: was trained with another schema or other data:", *lines, "start with --force")


def _with_later_options(text: str) -> str:
    """A resolved schema with the defaults of options that came after it was written."""
    try:
        return schema_of(text).resolved()
    except UserError:  # an option that there is no more, which the comparison names
        return text


def fingerprints(encoded: Encoded) -> dict[str, object]:
    """A digest of each group's values in every row, and of the target and the weight."""
    facts: dict[str, object] = {"rows": len(encoded)}
    for g, (name, values) in enumerate(encoded.values.items()):
        vocabulary = encoded.encoder.codecs[name].vocabulary
        keys = [] if vocabulary is None else [np.array(hash_of(key_buffers(vocabulary.keys)))]
        value_ids = (block[:, g] for block in row_blocks(encoded.rows))
        facts[name] = hash_of(chain(row_blocks(values.entries), keys, value_ids))
    for name, array in (("target", encoded.target), ("weight", encoded.weight)):
        if array is not None:
            facts[f"the {name}"] = hash_of(row_blocks(array))
    return facts


def row_blocks(array: Array) -> Iterator[Array]:
    """An array in blocks of rows, as it may be larger than memory."""
    for start in range(0, len(array), ROWS_PER_PIECE):
        yield array[start : start + ROWS_PER_PIECE]
        release_pages(array)


def key_buffers(keys: pa.Array) -> Iterator[Array]:
    """The bytes of Arrow strings, and where each string begins; of a slice no more than its own."""
    for buffer in pa.concat_arrays([keys, keys.slice(0, 0)]).buffers():
        if buffer is not None:
            yield np.frombuffer(buffer, np.uint8)


def hash_of(arrays: Iterable[Array]) -> str:
    """A digest of the arrays' bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def differences(before: Mapping[str, object], now: Mapping[str, object], path: str = "") -> Iterator[str]:
    """Where two nested mappings differ: `training.epochs: 5 before, 10 now`."""
    for key in dict.fromkeys([*before, *now]):
        if len(path) > LONGEST_PATH:
            yield f"{path}: differs"
            return
        key_path = f"{path}{key[:LONGEST_SHOWN]}"
        old, new = before.get(key, "nothing"), now.get(key, "nothing")
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from differences(old, new, f"{key_path}.")
        elif old != new:
            yield f"{key_path}: {_shortened(old)} before, {_shortened(new)} now"


def first_difference(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Where two nested mappings differ first, as a line.

    Args:
        before: The one.
        now: The other.

    """
    return next(differences(before, now), "in an order")


def _shortened(value: object) -> str:
    """A value as text that fits into a line."""
    if value is None or isinstance(value, Mapping):
        return "none" if value is None else "given"
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."
