"""NumPy's own format: a file for each group, which `np.load` opens without pickle."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from feat2vec.errors import UserError
from feat2vec.export.format_base import GroupFiles, export_format

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from feat2vec.arrays import Array
    from feat2vec.export.exported_group import ExportedGroup

MAX_KEY_BYTES = 4 << 30  # of a group's keys, each of which takes as much memory as the longest


@export_format
@dataclass(frozen=True)
class Npz(GroupFiles):
    """The arrays keys, vectors, counts and levels."""

    name = "npz"
    summary = "the arrays keys, vectors, counts and levels: numpy"

    max_key_bytes: int = MAX_KEY_BYTES

    def write_group(self, folder: Path, group: ExportedGroup) -> list[str]:
        import numpy as np

        longest = self._check_keys(group)
        path = folder / f"{group.file_stem}.npz"
        keys = f"<U{longest}"
        rows = max(self.bytes_per_block // np.dtype(keys).itemsize, 1)
        blocks_of_keys = (group.keys[at : at + rows].to_pylist() for at in range(0, len(group), rows))
        with zipfile.ZipFile(path, "w") as file:  # as `np.savez`, but keys are compressed: they are mostly padding
            file.compression = zipfile.ZIP_DEFLATED
            _write_array(file, "keys", keys, (len(group),), (np.array(block, keys) for block in blocks_of_keys))
            file.compression = zipfile.ZIP_STORED
            vectors = (block.vectors for block in group.blocks(self.bytes_per_block))
            _write_array(file, "vectors", "<f4", (len(group), group.dim), vectors)
            _write_array(file, "counts", "<i8", (len(group),), [group.counts])
            _write_array(file, "levels", "|i1", (len(group),), [group.levels])
        return [path.name]

    def _check_keys(self, group: ExportedGroup) -> int:
        """The length of the longest key; raises if NumPy's strings would take too much, or would not keep every key."""
        import pyarrow.compute as pc

        longest = pc.max(pc.utf8_length(group.keys)).as_py() or 1
        key_bytes = 4 * longest * len(group)
        if key_bytes > self.max_key_bytes:
            size = f"{longest:,} characters: {key_bytes / 2**30:.0f} GB"
            reason = f"numpy stores every key at the length of the longest, {size}"
            raise UserError(f"npz: the group {group.name!r}: {reason}; use parquet")
        ending_in_zero = group.keys.filter(pc.ends_with(group.keys, "\0"))
        if len(ending_in_zero):  # two keys would become one
            key = repr(ending_in_zero[0].as_py())[:80]
            reason = "numpy strings do not keep the character 0 at their end"
            raise UserError(f"npz: the group {group.name!r}: the key {key}: {reason}; use parquet")
        return int(longest)


def _write_array(file: zipfile.ZipFile, name: str, dtype: str, shape: tuple[int, ...], blocks: Iterable[Array]) -> None:
    """Write an array, given in blocks, as `np.savez` does."""
    import numpy as np

    with file.open(f"{name}.npy", "w", force_zip64=True) as member:
        header = {"descr": dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(member, header)
        for block in blocks:
            member.write(np.ascontiguousarray(block, dtype).tobytes())
