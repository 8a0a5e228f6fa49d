"""What the process holds in memory, what it may still take, and how free memory is returned to the system."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from feat2vec.encode.codecs import Codec, ItemsCodec
from feat2vec.encode.encoder import Encoded
from feat2vec.encode.process_memory import PROCESS_STATUS, process_memory, release_memory
from feat2vec.errors import UserError
from feat2vec.model.sizes import BYTES_OF_WEIGHT, group_weights, layer_weights, table_sizes
from feat2vec.schema.extractor_options import TextAttention
from feat2vec.schema.options import Schema
from feat2vec.schema.training_options import BLOCK_ROWS, Mlp

MACHINE_MEMORY = Path("/proc/meminfo")
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def resident_memory(status: Path = PROCESS_STATUS) -> int:
    """Bytes that this process holds; 0 on systems that do not say so."""
    return process_memory("VmRSS", status)


def free_memory(machine: Path = MACHINE_MEMORY, container: Path = CONTAINER_LIMIT) -> int | None:
    """Bytes that may still be taken on this machine and in this container; None on systems that do not say so."""
    limits: list[int] = []
    try:
        lines = dict(line.split(":") for line in machine.read_text().splitlines())
        limits.append(sum(int(lines[key].split()[0]) << 10 for key in ("MemAvailable", "SwapFree")))
    except (OSError, ValueError, KeyError):
        if "SC_PHYS_PAGES" in os.sysconf_names:
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # the file is missing, or says "max"
        limits.append(int(container.read_text()))
    return min(limits, default=None)


TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # options of glibc's mallopt
LARGEST_REUSED = 32 << 20  # bytes; the most that glibc takes
MOST_KEPT = 256 << 20


@contextmanager
def reused_memory() -> Iterator[None]:
    """Within it the C library keeps memory that is freed, at most 256 MB of it, for the next arrays.

    Otherwise it may take each array from the system, which clears it page by page, and give it back: in NumPy code that
    makes many of them that is as much time as all else. After that it keeps as much as it does by itself once an array
    of 32 MB was freed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc has it
    if mallopt is None:
        yield
        return
    mallopt(MMAP_THRESHOLD, LARGEST_REUSED)
    mallopt(TRIM_THRESHOLD, MOST_KEPT)
    try:
        yield
    finally:
        mallopt(TRIM_THRESHOLD, 2 * LARGEST_REUSED)
        release_memory()


# Constants that are measured: see tools/bench_memory.py.
BASE_BYTES = 740 << 20  # what `feat2vec train` of 100 rows takes: Python, its modules, TensorFlow and a graph
VALUES_FACTOR = 2.0  # times the bytes of keys, values and the noise's tables, with what is left of making them
NEGATIVE_FACTOR = 2.5  # times the vector of a negative, of 300 rows with 10,000 and 20,000 negatives each

# Constants that follow from the code.
BYTES_PER_VALUE = 8 + 12  # a value's count, and its place and probability in the noise
BYTES_PER_BLOCK_ROW = 40  # a row's place in a block of shuffled rows
VALUE_ID_COPIES = 6  # copies of a row's value ids between reading and a batch
BYTES_PER_STEP_COUNT = 8  # Adam counts the steps of each row of a table


class MemoryUse(NamedTuple):
    """Something that takes memory.

    Args:
        description: What it is, for messages.
        size: Its bytes.
        remedy: What makes it smaller; empty if nothing does.

    """

    description: str
    size: int
    remedy: str


def refuse_too_large(encoded: Encoded) -> None:
    """Raise `UserError` if training on these rows needs more memory than there is."""
    check_room(list(estimate(encoded)), free=free_memory(), resident=resident_memory())


def check_room(uses: Sequence[MemoryUse], *, free: int | None, resident: int) -> None:
    """Raise `UserError` if what training will hold has no room in memory.

    Args:
        uses: What training will hold.
        free: Bytes that may still be taken; None if that is not known.
        resident: Bytes that the process holds already, of which Python and TensorFlow need not be added again.

    """
    needed = sum(use.size for use in uses) - min(resident, BASE_BYTES)
    if free is None or needed <= free:
        return
    largest = max((use for use in uses if use.remedy), key=lambda use: use.size)
    raise UserError(
        f"training needs at least {spelled(needed)} of memory, and {spelled(free)} are free: "
        f"{largest.description} take {spelled(largest.size)}",
        largest.remedy,
    )


def estimate(encoded: Encoded) -> Iterator[MemoryUse]:
    """What training on encoded rows will hold, its large parts one by one."""
    encoder, schema = encoded.encoder, encoded.encoder.schema
    for name in schema.owners:
        yield _group(name, encoder.codecs[name], schema)
    for name, codec in encoder.codecs.items():
        if isinstance(schema.groups[name].extractor, TextAttention):
            yield _attention(name, codec, encoded)
    if schema.objective.has_classes and encoder.classes is not None:
        yield _classes(len(encoder.classes.keys), schema)
    if isinstance(schema.head, Mlp):
        yield _head(schema.head, schema)
    if schema.objective.needs_noise:
        yield _negatives(encoded)
    yield _keys_and_values(encoded)
    yield _block_of_rows(encoded)
    yield MemoryUse("Python and TensorFlow", BASE_BYTES, "")


def _copies_of_weights(schema: Schema) -> int:
    """How many numbers training holds for each weight: itself, its slots, its variance. Averages are on the disk."""
    has_variances = schema.model.posterior == "gaussian"
    return 1 + schema.training.optimizer.slots + has_variances


def _smaller_model(schema: Schema) -> str:
    return f"use a smaller model.{schema.model.size_key}"


def _group(name: str, codec: Codec, schema: Schema) -> MemoryUse:
    """The weights of a group's extractor, with their slots."""
    spec = schema.groups[name].extractor
    weights, parts_in_words, options = group_weights(spec, codec, schema, schema.model.levels.dims)
    size = BYTES_OF_WEIGHT * weights * _copies_of_weights(schema)
    if schema.training.optimizer.type == "adam" and isinstance(codec, ItemsCodec):
        table_rows = table_sizes(codec, schema) if spec.encoding == "items" else [len(codec.vocabulary)]
        size += BYTES_PER_STEP_COUNT * sum(table_rows)
    remedy = f"{_smaller_model(schema)}, or groups.{name}.extractor.{options}"
    return MemoryUse(f"the group {name!r}, {parts_in_words},", size, remedy)


def _attention(name: str, codec: Codec, encoded: Encoded) -> MemoryUse:
    """The weights of attention between the tokens of a step's texts, before and after the softmax."""
    schema = encoded.encoder.schema
    spec = schema.groups[name].extractor
    assert isinstance(spec, TextAttention)
    rows = min(schema.training.batch_size, encoded.learnt_rows)
    size = 2 * BYTES_OF_WEIGHT * rows * spec.blocks * spec.heads * codec.training_width**2
    remedy = f"use a smaller training.batch_size, or groups.{name}.extractor.max_tokens"
    return MemoryUse(f"attention among {codec.training_width:,} tokens of {name!r} in {rows:,} rows,", size, remedy)


def _classes(classes: int, schema: Schema) -> MemoryUse:
    size = BYTES_OF_WEIGHT * _copies_of_weights(schema) * classes * sum(schema.model.levels.dims)
    return MemoryUse(f"{classes:,} classes", size, _smaller_model(schema))


def _head(head: Mlp, schema: Schema) -> MemoryUse:
    dim = sum(schema.model.levels.dims)
    input_sizes = {"vectors": len(schema.partners) * dim, "interactions": dim}
    layers = [sum(input_sizes[name] for name in head.inputs), *head.hidden]
    factors = 2 * head.members * sum(layers) if head.members > 1 else 0  # of each member
    size = BYTES_OF_WEIGHT * _copies_of_weights(schema) * (layer_weights(layers) + factors)
    return MemoryUse("the head's layers", size, f"{_smaller_model(schema)}, or head.hidden")


def _negatives(encoded: Encoded) -> MemoryUse:
    """A step's negatives: their entries, and their vectors with what becomes of them and a gradient."""
    schema = encoded.encoder.schema
    noise, dim = schema.noise, sum(schema.model.levels.dims)
    rows = min(schema.training.batch_size, encoded.learnt_rows)
    draws = rows if noise.sharing == "record" else 1  # sets of negatives that a step draws
    entry_width = min(codec.width for codec in encoded.encoder.codecs.values())
    numbers = noise.negatives * (draws * (entry_width + NEGATIVE_FACTOR * dim) + rows)
    drawn_for = f"for each of {rows:,} rows" if noise.sharing == "record" else f"shared by {rows:,} rows"
    sharing = "" if noise.sharing == "batch" else ", or noise.sharing: batch"
    return MemoryUse(
        f"noise.negatives, {noise.negatives:,} {drawn_for} of a step,",
        int(numbers * BYTES_OF_WEIGHT),
        f"use fewer of them, a smaller model.{schema.model.size_key} or training.batch_size{sharing}",
    )


def _keys_and_values(encoded: Encoded) -> MemoryUse:
    size, schema = 0, encoded.encoder.schema
    for name, values in encoded.values.items():
        vocabulary = encoded.encoder.codecs[name].vocabulary if schema.owner(name) == name else None
        keys = 0 if vocabulary is None else vocabulary.keys.nbytes + vocabulary.counts.nbytes
        size += int(VALUES_FACTOR * (keys + values.entries.nbytes + BYTES_PER_VALUE * len(values.entries)))
    return MemoryUse("keys and values", size, "keep fewer keys by max_size")


def _block_of_rows(encoded: Encoded) -> MemoryUse:
    """The rows that are shuffled at a time."""
    rows = min(encoded.learnt_rows, BLOCK_ROWS)
    bytes_per_row = VALUE_ID_COPIES * BYTES_OF_WEIGHT * len(encoded.values) + BYTES_PER_BLOCK_ROW
    return MemoryUse(f"blocks of {rows:,} rows", rows * bytes_per_row, "")


def spelled(size: int) -> str:
    """Bytes in the unit that fits, for messages.

    >>> spelled(800), spelled(52_428_800), spelled(3 << 40)
    ('800 bytes', '50 MB', '3,072 GB')
    """
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB")):
        if size >= unit:
            return f"{size / unit:,.{1 if size < 10 * unit else 0}f} {name}"
    return f"{size:,} bytes"
