"""The vectors of one group, as every format that has a file for each group writes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Float32s
from feat2vec.encode.arrays_on_disk import file_name
from feat2vec.space.geometry import blocks, candidates
from feat2vec.space.run_vectors import vectors_of_group
from feat2vec.training.run_folder import TrainedRun


@dataclass(frozen=True)
class ExportedGroup:
    """The keys of a group with their vectors, the most frequent key first.

    Args:
        name: The group.
        keys: Its keys, or its values spelled as text, [n].
        vectors: The vectors, [n, dim]; a large table in its file, of which `blocks` reads a few rows at a time.
        counts: How often each key comes in the training rows, [n].
        levels: The level of each key, from 1, [n].
        unit_length: Whether the vectors of `blocks` have length 1.

    """

    name: str
    keys: pa.StringArray
    vectors: Float32s
    counts: Array
    levels: Array
    unit_length: bool = False

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        """Dimensions of a vector."""
        return int(self.vectors.shape[1])

    @property
    def file_stem(self) -> str:
        """The name of the group's files, without an ending."""
        return file_name(self.name)

    def blocks(self, bytes_per_block: int) -> Iterator[ExportedGroup]:
        """Consecutive keys whose vectors take at most `bytes_per_block`, at least one key."""
        rows_per_block = max(bytes_per_block // (4 * self.dim), 1)
        for rows in blocks(len(self), rows_per_block):
            vectors = self.vectors[rows]  # [rows, dim]
            yield replace(
                self,
                keys=self.keys[rows],
                vectors=_with_unit_length(vectors) if self.unit_length else vectors,
                counts=self.counts[rows],
                levels=self.levels[rows],
                unit_length=False,
            )


def _with_unit_length(vectors: Float32s) -> Float32s:
    """The vectors [n, dim] at length 1; zeros stay zeros."""
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]  # [n, 1]
    unit_vectors: Float32s = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return unit_vectors


def exported_group(run: TrainedRun, group: str, level: int | None, *, unit_length: bool) -> ExportedGroup:
    """Read the vectors of a group at a level; without one, in the space in which rows are embedded by default."""
    group_vectors = vectors_of_group(run, group, level)
    vectors = group_vectors.table
    if level is None and run.schema.model.levels.nested:
        vectors = _side_by_side(candidates(run.vector_source, run.fitted, group).tables)
    counts, levels = group_vectors.counts, group_vectors.levels
    return ExportedGroup(group, group_vectors.strings, vectors, counts, levels, unit_length)


def _side_by_side(tables: list[Float32s]) -> Float32s:
    """The vectors of all levels in one row of each key, [n, sum of D_p]; zero at the levels that a key does not reach.

    `tables[p]` has the shape [keys that reach level p, D_p]; these keys come first.
    """
    vectors = np.zeros((len(tables[0]), sum(table.shape[1] for table in tables)), np.float32)
    start = 0
    for table in tables:
        vectors[: len(table), start : start + table.shape[1]] = table
        start += table.shape[1]
    return vectors
