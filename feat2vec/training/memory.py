"""What training holds in memory, and a refusal of what the machine has no room for, before any of it is made.

The estimate is of the whole process at its peak, as `tools/bench_memory.py` measures it: tables, layers, the
optimizer's slots and the averages at 4 bytes a number; a step's candidates and their gradients; keys and values; a
block of rows; Python and TensorFlow. The best weights are on disk, and a checkpoint is written without copies.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from feat2vec.encode.codecs import ItemsCodec
from feat2vec.encode.encoder import Encoded, Encoder
from feat2vec.errors import UserError
from feat2vec.model.sizes import BYTES_OF_WEIGHT, SLOTS, group_weights, key_sizes, layer_weights
from feat2vec.schema.options import BLOCK_ROWS, Mlp

BASE = 820 << 20  # bytes that training 100 rows takes: Python, its modules, TensorFlow and a graph; measured
HELD = 2.0  # times the bytes of keys, values and the noise's tables, with what is left of making them; measured
OF_VALUE = 8 + 12  # bytes of a value's count, and of its place and probability in the noise
OF_ROW, COPIES = 40, 6  # bytes of a row's place in a block, and copies of its value ids between reading and a batch
VECTORS = 2.5  # of a negative, at once: measured, for 300 rows with 10,000 and 20,000 negatives each
MACHINE, LIMIT = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
STATUS = Path("/proc/self/status")


class Part(NamedTuple):
    """Something large: what it is, how many bytes, and what makes it smaller."""

    what: str
    size: int
    remedy: str


def refuse_too_large(encoded: Encoded) -> None:
    """Raise if what training on these rows holds has no room in memory."""
    free, parts = free_memory(), list(estimate(encoded))
    held = min(resident_memory(), BASE)  # Python and TensorFlow, which are there already
    total = sum(part.size for part in parts) - held
    if free is None or total <= free:
        return
    largest = max((part for part in parts if part.remedy), key=lambda part: part.size)
    raise UserError(
        f"training needs at least {spelled(total)} of memory, and {spelled(free)} are free: "
        f"{largest.what} take {spelled(largest.size)}",
        largest.remedy,
    )


def estimate(encoded: Encoded) -> Iterator[Part]:
    """The large parts of training on encoded rows."""
    yield from _weights(encoded.encoder)
    schema = encoded.encoder.schema
    if schema.objective.needs_noise:
        yield _candidates(encoded)
    yield from _held(encoded)


def _weights(encoder: Encoder) -> Iterator[Part]:
    schema = encoder.schema
    copies = 1 + SLOTS[schema.training.optimizer.type] + (schema.training.averaging > 0)
    dims, smaller = schema.model.levels.dims, f"use a smaller model.{schema.model.size_key}"
    for name, codec in encoder.codecs.items():
        spec = schema.groups[name].extractor
        count, what, options = group_weights(spec, codec, schema, dims)
        remedy = f"{smaller}, or groups.{name}.extractor.{options}"
        counts = 0  # of each row's own steps
        if schema.training.optimizer.type == "adam" and isinstance(codec, ItemsCodec):
            counts = 8 * sum(key_sizes(codec, schema) if spec.encoding == "items" else [len(codec.vocabulary)])
        yield Part(f"the group {name!r}, {what},", BYTES_OF_WEIGHT * count * copies + counts, remedy)
    if schema.objective.has_classes and encoder.classes is not None:
        classes = len(encoder.classes.keys)
        yield Part(f"{classes:,} classes", BYTES_OF_WEIGHT * copies * classes * sum(dims), smaller)
    if isinstance(schema.head, Mlp):
        sizes = {"vectors": len(schema.partners) * sum(dims), "interactions": sum(dims)}
        layers = [sum(sizes[name] for name in schema.head.inputs), *schema.head.hidden]
        yield Part("the head's layers", BYTES_OF_WEIGHT * copies * layer_weights(layers), f"{smaller}, or head.hidden")


def _held(encoded: Encoded) -> Iterator[Part]:
    """What training holds beside the model."""
    size = 0
    for name, values in encoded.values.items():
        vocabulary = encoded.encoder.codecs[name].vocabulary
        keys = 0 if vocabulary is None else vocabulary.keys.nbytes + vocabulary.counts.nbytes
        size += int(HELD * (keys + values.entries.nbytes + OF_VALUE * len(values.entries)))
    yield Part("keys and values", size, "keep fewer keys by max_size")
    block = min(len(encoded), BLOCK_ROWS)
    yield Part(f"blocks of {block:,} rows", block * (COPIES * BYTES_OF_WEIGHT * len(encoded.values) + OF_ROW), "")
    yield Part("Python and TensorFlow", BASE, "")


def _candidates(encoded: Encoded) -> Part:
    """A step's negatives: their entries, and their vectors with what becomes of them and a gradient."""
    schema = encoded.encoder.schema
    noise, dims = schema.noise, schema.model.levels.dims
    rows = min(schema.training.batch_size, len(encoded))
    drawn = rows if noise.sharing == "record" else 1
    width = min(codec.width for codec in encoded.encoder.codecs.values())
    size = int(noise.negatives * (drawn * (width + VECTORS * sum(dims)) + rows) * BYTES_OF_WEIGHT)
    for_each = f"for each of {rows:,} rows" if noise.sharing == "record" else f"shared by {rows:,} rows"
    remedy = "" if noise.sharing == "batch" else ", or noise.sharing: batch"
    return Part(
        f"noise.negatives, {noise.negatives:,} {for_each} of a step,",
        size,
        f"use fewer of them, a smaller model.{schema.model.size_key} or training.batch_size{remedy}",
    )


def spelled(size: int) -> str:
    """Bytes as a person says them.

    >>> spelled(800), spelled(52_428_800), spelled(3 << 40)
    ('800 bytes', '50 MB', '3,072 GB')
    """
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB")):
        if size >= unit:
            return f"{size / unit:,.{1 if size < 10 * unit else 0}f} {name}"
    return f"{size:,} bytes"


def resident_memory() -> int:
    """Bytes that this process has already; 0 where nobody tells."""
    with suppress(OSError, ValueError, IndexError):
        return int(STATUS.read_text().split("VmRSS:")[1].split()[0]) << 10
    return 0


def release_memory() -> None:
    """Give back to the system what Arrow and the C library keep of memory that is free."""
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # glibc's alone
        ctypes.CDLL(None).malloc_trim(0)


def free_memory() -> int | None:
    """Bytes that may still be taken, on this machine and in this container; None where nobody tells."""
    told: list[int] = []
    try:
        lines = dict(line.split(":") for line in MACHINE.read_text().splitlines())
        told.append(sum(int(lines[key].split()[0]) << 10 for key in ("MemAvailable", "SwapFree")))
    except (OSError, ValueError, KeyError):
        if "SC_PHYS_PAGES" in os.sysconf_names:
            told.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):
        told.append(int(LIMIT.read_text()))  # or "max"
    return min(told, default=None)
