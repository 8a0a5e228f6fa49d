"""Keys and vectors as lines of text, many at once, in Arrow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Float32s
from feat2vec.encode.entry_text import occurrences_before

ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def spelled_vectors(vectors: Float32s, separator: str) -> pa.StringArray:
    """Each vector as its numbers, with as few digits as give the same float32 back.

    >>> spelled_vectors(np.array([[0.1, 2.0], [3.0, 4.5]], np.float32), " ").to_pylist()
    ['0.1 2', '3 4.5']
    """
    rows, dim = vectors.shape
    numbers = pa.array(vectors.reshape(-1)).cast(pa.string())
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * dim)
    return pc.binary_join(pa.ListArray.from_arrays(offsets, numbers), separator)


def joined_lines(columns: Sequence[pa.Array], separator: str | bytes, end: str | bytes) -> memoryview:
    """The bytes of lines: in each row the columns with a separator between them, and the end of a line.

    >>> bytes(joined_lines([pa.array(["a", "b"]), pa.array([1, 2])], ",", ";"))
    b'a,1;b,2;'
    """
    type_ = pa.large_binary() if isinstance(separator, bytes) else pa.large_string()
    texts = [column.cast(type_) for column in columns]
    lines = pc.binary_join_element_wise(*texts, pa.scalar(separator, type_))
    lines = pc.binary_join_element_wise(lines, pa.scalar(end, type_), pa.scalar(separator[:0], type_))
    _, offsets_buffer, data = lines.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[lines.offset :]
    return memoryview(data or b"")[offsets[0] : offsets[len(lines)]]


def escaped_keys(keys: pa.StringArray) -> pa.StringArray:
    """Keys with a backslash and a letter for each character that would end a field or a line.

    >>> print(*escaped_keys(pa.array(["a b", "two\\nlines"])).to_pylist())
    a b two\\nlines
    """
    for character, escape in ESCAPES.items():
        keys = pc.replace_substring(keys, character, escape)
    return keys


def replaced_distinctly(keys: pa.StringArray, pattern: str, replacement: str) -> pa.StringArray:
    """Keys with all matches of a pattern replaced; keys that would become the same get #2, #3, ...

    A key without a match stays as it is.

    >>> replaced_distinctly(pa.array(["a b", "a_b"]), " ", "_").to_pylist()
    ['a_b#2', 'a_b']
    """
    replaced = pc.replace_substring_regex(keys, pattern, replacement)
    changed = pc.not_equal(replaced, keys).to_numpy(zero_copy_only=False)
    order = np.argsort(changed, kind="stable")  # the unchanged keys first: they are never numbered
    replaced = replaced.take(pa.array(order))
    while (repeats := occurrences_before(replaced)).any():  # how many equal keys stand before each
        suffixes = pc.binary_join_element_wise("#", pa.array(repeats + 1).cast(pa.string()), "")
        numbered = pc.binary_join_element_wise(replaced, suffixes, "")
        replaced = pc.if_else(pa.array(repeats > 0), numbered, replaced)
    return replaced.take(pa.array(np.argsort(order, kind="stable")))
