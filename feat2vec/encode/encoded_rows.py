"""Encoded rows: value ids in a folder, with the values, the target and the weight."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from feat2vec.encode.array_files import Array, open_array
from feat2vec.encode.codecs import Tally
from feat2vec.encode.distinct_entries import Values, open_values
from feat2vec.encode.parquet_files import read_parquet
from feat2vec.terminal import printable
from feat2vec.writing import discard_temporary

if TYPE_CHECKING:
    from feat2vec.encode.encoder import Encoder

MOST_SUMMARY_GROUPS = 20  # that have a line of their own in a summary


@dataclass(frozen=True, repr=False)
class Encoded:
    """Rows as value ids, in a folder; `values` hold what the ids stand for.

    The values of rows other than the training rows begin with the training values, of which there are `known`; the
    new ones follow, and have the count 0.
    """

    encoder: Encoder
    folder: Path
    rows: Array  # int32 [rows, groups], -1 where a group is missing
    values: Mapping[str, Values]
    known: Mapping[str, int]
    tallies: Mapping[str, Tally]
    target: Array | None = None  # float32 [rows], or int32 classes
    weight: Array | None = None  # float32 [rows]

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def names(self) -> pa.Table | None:
        """The rows' names, from the schema's `id` column; None without one."""
        path = self.folder / "names.parquet"
        return read_parquet(path) if path.exists() else None

    def summary(self) -> str:
        """What was encoded and what the policies did, a line for each group; of many groups for the first ones."""
        groups = list(self.tallies)
        lines = [f"{len(self):,} rows"]
        for group in groups[:MOST_SUMMARY_GROUPS]:
            lines.append(f"{printable(group)}: {self._summary_of([group])}")
        if more_groups := groups[MOST_SUMMARY_GROUPS:]:
            lines.append(f"and {len(more_groups):,} more groups: {self._summary_of(more_groups)}")
        return "\n".join(lines)

    def _summary_of(self, groups: Sequence[str]) -> str:
        """How many values and keys the groups have together, and how often each policy was applied to them."""
        values = sum(len(self.values[group].entries) for group in groups)
        vocabularies = [self.encoder.codecs[group].vocabulary for group in groups]
        keys = [len(vocabulary.keys) for vocabulary in vocabularies if vocabulary is not None]
        applied: Counter[str] = Counter()
        for group in groups:
            applied.update(asdict(self.tallies[group]))
        parts = [f"{values:,} values"]
        if keys:
            parts.append(f"{sum(keys):,} keys")
        parts += [f"{count:,} {policy}" for policy, count in applied.items() if count]
        return ", ".join(parts)


def open_encoded(
    encoder: Encoder, folder: Path, known: Mapping[str, int], tallies: Mapping[str, Tally], *, is_temporary: bool
) -> Encoded:
    """Open the arrays of a folder of encoded rows; a temporary one is removed with them."""
    arrays: dict[str, Array] = {}
    for name in ("rows", "target", "weight"):
        path = folder / f"{name}.npy"
        if path.exists():
            arrays[name] = open_array(path)
    values = {name: open_values(folder, name) for name in encoder.codecs}
    encoded = Encoded(
        encoder,
        folder,
        arrays["rows"],
        values,
        known,
        tallies,
        target=arrays.get("target"),
        weight=arrays.get("weight"),
    )
    if is_temporary:
        weakref.finalize(encoded, discard_temporary, folder)
    return encoded
