"""The files of TensorBoard's Embedding Projector."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from feat2vec.export.format_base import GroupFacts, GroupFiles, export_format

if TYPE_CHECKING:
    from pathlib import Path

    from feat2vec.export.exported_group import ExportedGroup


@export_format
@dataclass(frozen=True)
class Projector(GroupFiles):
    """Tab-separated vectors, tab-separated keys, and the configuration that TensorBoard looks for in a log folder."""

    name = "projector"
    summary = "what `tensorboard --logdir OUT` shows"
    notes: ClassVar[Mapping[str, str]] = {
        "keys": "backslash, tab, newline and carriage return are written \\\\, \\t, \\n and \\r"
    }

    def write_group(self, folder: Path, group: ExportedGroup) -> list[str]:
        import pyarrow as pa

        from feat2vec.export.text_lines import escaped_keys, joined_lines, spelled_vectors

        tensors, metadata = (folder / f"{group.file_stem}.{content}.tsv" for content in ("tensors", "metadata"))
        with tensors.open("wb") as vectors_file, metadata.open("wb") as keys_file:
            keys_file.write(b"key\tcount\tlevel\n")
            for block in group.blocks(self.bytes_per_block):
                vectors_file.write(joined_lines([spelled_vectors(block.vectors, "\t")], "", "\n"))
                columns = [escaped_keys(block.keys), pa.array(block.counts), pa.array(block.levels)]
                keys_file.write(joined_lines(columns, "\t", "\n"))
        return [tensors.name, metadata.name]

    def finish(self, folder: Path, groups: Mapping[str, GroupFacts]) -> None:
        embeddings = []
        for name, facts in groups.items():
            tensors, metadata = facts["files"]
            fields = {"tensor_name": name, "tensor_path": tensors, "metadata_path": metadata}
            lines = "".join(f"  {key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in fields.items())
            embeddings.append(f"embeddings {{\n{lines}}}\n")
        (folder / "projector_config.pbtxt").write_text("".join(embeddings), encoding="utf-8")
