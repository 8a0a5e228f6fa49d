"""The text and binary formats of word2vec (Mikolov et al., 2013), which gensim and others open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from feat2vec.export.format_base import GroupFiles, export_format

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from feat2vec.export.exported_group import ExportedGroup

WHITE_SPACE = r"[\s\x{1c}-\x{1f}\x{85}\p{Z}]"  # every character at which some reader splits lines or words


@export_format
@dataclass(frozen=True)
class Word2Vec(GroupFiles):
    """A line of text for each key, and the same in binary."""

    name = "word2vec"
    summary = "text and binary: gensim and others"
    notes: ClassVar[Mapping[str, str]] = {
        "keys": "white space is written _; a key that would then be another one ends in #2, #3, ..."
    }

    def write_group(self, folder: Path, group: ExportedGroup) -> list[str]:
        from dataclasses import replace

        import numpy as np
        import pyarrow as pa

        from feat2vec.export.text_lines import joined_lines, spelled_vectors

        paths = [folder / f"{group.file_stem}.{ending}" for ending in ("txt", "bin")]
        words = replace(group, keys=words_of(group.keys))
        with paths[0].open("wb") as text, paths[1].open("wb") as binary:
            for file in (text, binary):
                file.write(f"{len(group)} {group.dim}\n".encode())
            for block in words.blocks(self.bytes_per_block):
                text.write(joined_lines([block.keys, spelled_vectors(block.vectors, " ")], " ", "\n"))
                little_endian = pa.py_buffer(np.ascontiguousarray(block.vectors, "<f4"))
                raw = pa.FixedSizeBinaryArray.from_buffers(pa.binary(group.dim * 4), len(block), [None, little_endian])
                keys = block.keys.cast(pa.large_binary())
                binary.write(joined_lines([keys, raw.cast(pa.large_binary())], b" ", b""))
        return [path.name for path in paths]


def words_of(keys: pa.StringArray) -> pa.StringArray:
    """The keys with white space replaced by `_`, and with a number where two would become the same.

    >>> import pyarrow as pa
    >>> words_of(pa.array(["a b", "a_b", "c"])).to_pylist()
    ['a_b#2', 'a_b', 'c']
    """
    from feat2vec.export.text_lines import replaced_distinctly

    return replaced_distinctly(keys, WHITE_SPACE, "_")
