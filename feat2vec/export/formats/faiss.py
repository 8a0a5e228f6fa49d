"""An index of faiss for each group, and the keys of its ids."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from feat2vec.export.format_base import GroupFiles, export_format

if TYPE_CHECKING:
    from pathlib import Path

    from feat2vec.export.exported_group import ExportedGroup


@export_format
@dataclass(frozen=True)
class Faiss(GroupFiles):
    """An index of inner products: flat for few vectors, a graph (HNSW) for `min_indexed` or more.

    Without `min_indexed` it is a graph where `most_similar` would use one.
    """

    name = "faiss"
    summary = "an index of the vectors at length 1, and the keys of its ids"
    always_unit_length = True
    notes: ClassVar[Mapping[str, str]] = {
        "keys": "an id of the index is a row of the key list; vectors have length 1: their inner product is it"
    }

    min_indexed: int | None = None

    def check(self, groups: Sequence[str], dim: int) -> None:
        from feat2vec.space.faiss_index import import_faiss

        del groups, dim
        import_faiss("choose another format, such as npz")

    def write_group(self, folder: Path, group: ExportedGroup) -> list[str]:
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq

        from feat2vec.space.faiss_index import EF_CONSTRUCTION, LINKS, MIN_INDEXED, import_faiss

        faiss = import_faiss()
        index_path, keys_path = folder / f"{group.file_stem}.faiss", folder / f"{group.file_stem}.keys.parquet"
        if len(group) < (MIN_INDEXED if self.min_indexed is None else self.min_indexed):
            vector_index = faiss.IndexFlatIP(group.dim)
        else:
            vector_index = faiss.IndexHNSWFlat(group.dim, LINKS, faiss.METRIC_INNER_PRODUCT)
            vector_index.hnsw.efConstruction = EF_CONSTRUCTION
        index = faiss.IndexIDMap2(vector_index)
        ids = np.arange(len(group), dtype=np.int64)
        start = 0
        for block in group.blocks(self.bytes_per_block):
            index.add_with_ids(np.ascontiguousarray(block.vectors), ids[start : start + len(block)])
            start += len(block)
        try:
            faiss.write_index(index, str(index_path))
        except RuntimeError as error:  # faiss raises nothing else, also when the disk is full
            raise OSError(errno.EIO, f"faiss cannot write the index ({os.strerror(errno.ENOSPC)}?)") from error
        keys = pa.table({"id": ids, "key": group.keys, "count": group.counts, "level": group.levels})
        pq.write_table(keys, keys_path)
        return [index_path.name, keys_path.name]
