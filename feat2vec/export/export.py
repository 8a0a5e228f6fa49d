"""`export`: a run's vectors as files that other tools read. A folder for each export, whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.encode.array_files import Array, file_name
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.entry_text import occurrences_before
from feat2vec.errors import ROOM, UserError, suggest
from feat2vec.export.saved_model import SIGNATURE, write_saved_model
from feat2vec.space.embed import chosen, level_of, parquet_file
from feat2vec.space.geometry import Floats, Model, blocks, candidates
from feat2vec.space.search import EF_CONSTRUCTION, INDEXED, LINKS, import_faiss
from feat2vec.space.vectors import group_vectors
from feat2vec.writing import folder_place, new_folder

Format = Literal["parquet", "npz", "word2vec", "projector", "faiss", "saved_model", "sql"]
FORMATS: tuple[Format, ...] = get_args(Format)

BLOCK = 1 << 24  # bytes of vectors that are written at a time
WIDEST_KEYS = 4 << 30  # bytes of the keys of an npz, each of which takes the room of the longest
WHITE = r"[\s\x{1c}-\x{1f}\x{85}\p{Z}]"  # what some reader or other splits lines or words at
MOST_SQL, MOST_INDEXED = 16_000, 2_000  # dimensions of pgvector's type, and of its index
LONGEST_SQL = 63  # bytes of a name in PostgreSQL


class Exported(NamedTuple):
    """A group that is written."""

    keys: pa.StringArray
    vectors: Floats  # [n, dim]
    counts: Array
    levels: Array

    def blocks(self) -> Iterator[Exported]:
        """Some keys at a time."""
        rows = max(BLOCK // (4 * self.vectors.shape[1]), 1)
        return (Exported(*(part[some] for part in self)) for some in blocks(len(self.vectors), rows))


def export(
    model: Model,
    encoder: Encoder,
    format: Format,  # noqa: A002
    out: str | Path,
    groups: Sequence[str] | None = None,
    *,
    level: int | None = None,
    normalise: bool = False,
    force: bool = False,
) -> dict[str, Any]:
    """See `Run.export`."""
    if not isinstance(format, str) or format not in FORMATS:
        raise UserError(f"format is one of {', '.join(FORMATS)}; received {format!r}{suggest(format, FORMATS)}")
    names, (space, dim) = chosen(list(encoder.codecs), groups), level_of(encoder.schema.model, level)
    if format == "sql":
        _check_sql(names, dim)
    if format == "faiss":
        import_faiss("choose another format, such as npz")
    facts: dict[str, Any] = {
        "format": format,
        "feat2vec": version("feat2vec"),
        "metric": "cosine",
        "normalised": normalise or format == "faiss",
        "dimension": dim,
        "level": space,
        **NOTES.get(format, {}),
    }
    with new_folder(folder_place(out, "export", force=force)) as folder, _told(Path(out)):
        if format == "saved_model":
            facts["groups"] = write_saved_model(model.whole(), encoder, folder, names, level, normalise=normalise)
        else:
            facts["groups"] = {}
            for name in names:
                exported = _vectors(model, encoder, name, level, unit=facts["normalised"])
                files = WRITERS[format](folder, name, exported)
                of = "keys" if encoder.schema.groups[name].extractor.encoding == "items" else "values"
                facts["groups"][name] = {"rows": len(exported.counts), "of": of, "files": files}
            if format == "projector":
                _write_projector_config(folder, facts["groups"])
        text = json.dumps(facts, indent=1, ensure_ascii=False)
        (folder / "manifest.json").write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
    return facts


def _check_sql(groups: Sequence[str], dim: int) -> None:
    """PostgreSQL cuts longer names, so that two tables would have one name; no name of its holds the sign 0."""
    if dim > MOST_SQL:
        raise UserError(f"sql: pgvector's vectors have up to {MOST_SQL:,} dimensions, these have {dim:,}; use parquet")
    for group in groups:
        size, remedy = len(group.encode()), "leave the group out by --group, or use parquet"
        if size > LONGEST_SQL:
            raise UserError(f"sql: a table's name has up to {LONGEST_SQL} bytes, {group!r} has {size}; {remedy}")
        if "\0" in group:
            raise UserError(f"sql: no name in PostgreSQL has the sign 0, and {group!r} has; {remedy}")


def _vectors(model: Model, encoder: Encoder, group: str, level: int | None, *, unit: bool) -> Exported:
    """A group's vectors at a level; those of the whole space, where levels share it and none is given."""
    found = group_vectors(model, encoder, group, level)
    vectors = found.vectors
    if level is None and encoder.schema.model.level_sharing == "truncate":
        tables = candidates(model, encoder, group).tables
        vectors = np.zeros((len(found), sum(table.shape[1] for table in tables)), np.float32)
        at = 0
        for table in tables:  # those of lower levels have nothing further right
            vectors[: len(table), at : at + table.shape[1]] = table
            at += table.shape[1]
    if unit:
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        vectors = np.divide(vectors, norms[:, None], out=np.zeros_like(vectors), where=norms[:, None] > 0)
    return Exported(found.strings, vectors, found.counts, found.levels)


@contextmanager
def _told(out: Path) -> Iterator[None]:
    """A full disk is told with the export's own name, not that of the folder in which it is made."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).removesuffix(f"; {ROOM}")
        raise OSError(error.errno, f"{reason}; {ROOM}", str(out)) from error


# --- for Python -----------------------------------------------------------------------------------------------------


def _write_parquet(folder: Path, group: str, exported: Exported) -> list[str]:
    path = folder / f"{file_name(group)}.parquet"
    dim = exported.vectors.shape[1]
    schema = pa.schema(
        {"key": pa.string(), "vector": pa.list_(pa.float32(), dim), "count": pa.int64(), "level": pa.int8()}
    )
    with parquet_file(path, schema, names=["key", "count", "level"]) as write:
        for keys, vectors, counts, levels in exported.blocks():
            lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), dim)
            columns = [keys, lists, pa.array(counts, pa.int64()), pa.array(levels, pa.int8())]
            write(pa.record_batch(columns, schema=schema))
    return [path.name]


def _write_npz(folder: Path, group: str, exported: Exported) -> list[str]:
    path = folder / f"{file_name(group)}.npz"
    longest = pc.max(pc.utf8_length(exported.keys)).as_py() or 1
    if (size := 4 * longest * len(exported.keys)) > WIDEST_KEYS:
        reason = f"numpy gives each key the room of the longest, {longest:,} signs: {size / 2**30:.0f} GB"
        raise UserError(f"npz: the group {group!r}: {reason}; use parquet")
    ending = exported.keys.filter(pc.ends_with(exported.keys, "\0"))
    if len(ending):  # two keys would become one
        key = repr(ending[0].as_py())[:80]
        reason = "numpy's texts do not keep the character 0 at their end"
        raise UserError(f"npz: the group {group!r}: the key {key}: {reason}; use parquet")
    arrays = {
        "keys": np.array(exported.keys.to_pylist(), np.str_),
        "vectors": exported.vectors,
        "counts": np.asarray(exported.counts, np.int64),
        "levels": np.asarray(exported.levels, np.int8),
    }
    with zipfile.ZipFile(path, "w") as file:  # as `np.savez`, but keys are mostly padding
        for name, array in arrays.items():
            file.compression = zipfile.ZIP_DEFLATED if name == "keys" else zipfile.ZIP_STORED
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return [path.name]


def _write_word2vec(folder: Path, group: str, exported: Exported) -> list[str]:
    paths = [folder / f"{file_name(group)}.{suffix}" for suffix in ("txt", "bin")]
    exported = exported._replace(keys=words_of(exported.keys))
    with paths[0].open("wb") as text, paths[1].open("wb") as binary:
        for file in (text, binary):
            file.write(f"{len(exported.keys)} {exported.vectors.shape[1]}\n".encode())
        for keys, vectors, _, _ in exported.blocks():
            text.write(_joined([keys, _spelled(vectors, " ")], " ", "\n"))
            raw = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(vectors.shape[1] * 4),
                len(vectors),
                [None, pa.py_buffer(np.ascontiguousarray(vectors, "<f4"))],
            )
            binary.write(_joined([keys.cast(pa.large_binary()), raw.cast(pa.large_binary())], b" ", b""))
    return [path.name for path in paths]


def words_of(keys: pa.StringArray) -> pa.StringArray:
    """Keys without white space, each another one."""
    return _replaced(keys, WHITE, "_")


def _replaced(keys: pa.StringArray, pattern: str, by: str) -> pa.StringArray:
    """Keys with what a pattern matches replaced, each another one."""
    words = pc.replace_substring_regex(keys, pattern, by)
    # a key without a match keeps its name; the others that would be called the same get a number
    changed = pc.not_equal(words, keys).to_numpy(zero_copy_only=False)
    order = np.argsort(changed, kind="stable")
    words = words.take(pa.array(order))
    while (twice := occurrences_before(words)).any():
        numbers = pc.binary_join_element_wise("#", pa.array(twice + 1).cast(pa.string()), "")
        words = pc.if_else(pa.array(twice > 0), pc.binary_join_element_wise(words, numbers, ""), words)
    return words.take(pa.array(np.argsort(order, kind="stable")))


def _write_faiss(folder: Path, group: str, exported: Exported) -> list[str]:
    import pyarrow.parquet as pq

    faiss = import_faiss()
    path, keys = folder / f"{file_name(group)}.faiss", folder / f"{file_name(group)}.keys.parquet"
    dim, ids = exported.vectors.shape[1], np.arange(len(exported.keys), dtype=np.int64)
    if len(ids) < INDEXED:
        inner = faiss.IndexFlatIP(dim)
    else:
        inner = faiss.IndexHNSWFlat(dim, LINKS, faiss.METRIC_INNER_PRODUCT)
        inner.hnsw.efConstruction = EF_CONSTRUCTION
    index = faiss.IndexIDMap2(inner)
    at = 0
    for block in exported.blocks():
        index.add_with_ids(np.ascontiguousarray(block.vectors), ids[at : at + len(block.vectors)])
        at += len(block.vectors)
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:  # all that faiss raises, a full disk among it
        raise OSError(errno.EIO, f"faiss cannot write the index ({os.strerror(errno.ENOSPC)}?)") from error
    pq.write_table(
        pa.table({"id": ids, "key": exported.keys, "count": exported.counts, "level": exported.levels}), keys
    )
    return [path.name, keys.name]


# --- text -----------------------------------------------------------------------------------------------------------


def _spelled(vectors: Floats, between: str) -> pa.StringArray:
    """Each vector as its numbers, as short as they are read back the same."""
    rows, dim = vectors.shape
    numbers = pa.array(vectors.reshape(-1)).cast(pa.string())
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * dim)
    return pc.binary_join(pa.ListArray.from_arrays(offsets, numbers), between)


def _joined(columns: Sequence[Any], between: Any, after: Any) -> memoryview:
    """The bytes of lines."""
    kind = pa.large_binary() if isinstance(between, bytes) else pa.large_string()
    line = pc.binary_join_element_wise(*(column.cast(kind) for column in columns), pa.scalar(between, kind))
    lines = pc.binary_join_element_wise(line, pa.scalar(after, kind), pa.scalar(between[:0], kind))
    offsets = np.frombuffer(lines.buffers()[1], np.int64)[lines.offset :]
    return memoryview(lines.buffers()[2] or b"")[offsets[0] : offsets[len(lines)]]


def _escaped(keys: pa.StringArray) -> pa.StringArray:
    """Keys as a field of a line: a backslash and a letter for what would end it."""
    for sign, letter in (("\\", "\\"), ("\t", "t"), ("\n", "n"), ("\r", "r")):
        keys = pc.replace_substring(keys, sign, f"\\{letter}")
    return keys


def _write_projector(folder: Path, group: str, exported: Exported) -> list[str]:
    tensors, metadata = (folder / f"{file_name(group)}.{part}.tsv" for part in ("tensors", "metadata"))
    with tensors.open("wb") as numbers, metadata.open("wb") as lines:
        lines.write(b"key\tcount\tlevel\n")
        for keys, vectors, counts, levels in exported.blocks():
            numbers.write(_joined([_spelled(vectors, "\t")], "", "\n"))
            lines.write(_joined([_escaped(keys), pa.array(counts), pa.array(levels)], "\t", "\n"))
    return [tensors.name, metadata.name]


def _write_projector_config(folder: Path, groups: dict[str, Any]) -> None:
    """What TensorBoard looks for in a log folder."""
    tables = []
    for name, facts in groups.items():
        tensors, metadata = facts["files"]
        fields = {"tensor_name": name, "tensor_path": tensors, "metadata_path": metadata}
        lines = "".join(f"  {key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in fields.items())
        tables.append(f"embeddings {{\n{lines}}}\n")
    (folder / "projector_config.pbtxt").write_text("".join(tables), encoding="utf-8")


def _write_sql(folder: Path, group: str, exported: Exported) -> list[str]:
    path, dim = folder / f"{file_name(group)}.sql", exported.vectors.shape[1]
    exported = exported._replace(keys=_replaced(exported.keys, r"\x{00}", "\ufffd"))  # no text of PostgreSQL holds it
    table = '"' + group.replace('"', '""') + '"'
    index = f"CREATE INDEX ON {table} USING hnsw (vector vector_cosine_ops);"
    if dim > MOST_INDEXED:
        index = f"-- no index: pgvector indexes vectors of up to {MOST_INDEXED} dimensions"
    with path.open("wb") as file:
        file.write(
            f"-- psql -d DATABASE -f {path.name}\n"
            "\\set ON_ERROR_STOP on\n"
            "SET client_encoding = 'UTF8';\n"
            "BEGIN;\n"
            "CREATE EXTENSION IF NOT EXISTS vector;\n"
            f"CREATE TABLE {table} (id integer PRIMARY KEY, key text NOT NULL, vector vector({dim}) NOT NULL,"
            " count bigint NOT NULL, level smallint NOT NULL);\n"
            f"COPY {table} (id, key, vector, count, level) FROM stdin;\n".encode()
        )
        at = 0
        for keys, vectors, counts, levels in exported.blocks():
            text = _escaped(keys)
            lists = pc.binary_join_element_wise("[", _spelled(vectors, ","), "]", "")
            ids = pa.array(np.arange(at + 1, at + 1 + len(vectors)))
            file.write(_joined([ids, text, lists, pa.array(counts), pa.array(levels)], "\t", "\n"))
            at += len(vectors)
        # of the keys' hashes, as a long text has no room in a tree
        file.write(f"\\.\nCREATE INDEX ON {table} USING hash (key);\n{index}\nCOMMIT;\n".encode())
    return [path.name]


WRITERS: dict[str, Callable[[Path, str, Exported], list[str]]] = {
    "parquet": _write_parquet,
    "npz": _write_npz,
    "word2vec": _write_word2vec,
    "projector": _write_projector,
    "faiss": _write_faiss,
    "sql": _write_sql,
}
NOTES: dict[str, dict[str, Any]] = {
    "word2vec": {"keys": "white space is written _; a key that would then be another one ends in #2, #3, ..."},
    "projector": {"keys": "backslash, tab, newline and carriage return are written \\\\, \\t, \\n and \\r"},
    "faiss": {"keys": "an id of the index is a row of the key list; vectors have length 1: their inner product is it"},
    "sql": {"keys": "the character 0 is written U+FFFD; a key that would then be another one ends in #2, #3, ..."},
    "saved_model": {"signature": SIGNATURE},
}
