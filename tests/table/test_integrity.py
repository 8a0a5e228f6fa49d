"""Parquet and Arrow files that lie: refused with a message, whatever bytes they hold; none ends the process."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from feat2vec.errors import UserError
from feat2vec.table.profile import profile_table
from feat2vec.table.table import open_table

MUTATIONS = 12  # of each file

# What a child process does with the files that it is given: all that a stage's values go through on the way to keys.
READ = """
import sys
from feat2vec.table.types import is_list
from feat2vec.table.table import stages
from feat2vec.errors import UserError
from feat2vec.table.keys import items_of
from feat2vec.specs import Lookup
from feat2vec.table import open_table, types
for path in sys.argv[1:]:
    print(path, flush=True)
    try:
        table = open_table(path)
        names = [name for name, kind in table.columns.items() if types.is_supported(kind)]
        for stage in stages(table, names):
            for name in names:
                items_of(stage, name, Lookup(multi=True))
    except UserError as error:
        print("", *str(error).splitlines(), sep="  ", flush=True)
        assert len(str(error).splitlines()) <= 5, error
        assert all(len(line) <= 200 for line in str(error).replace(path, "").splitlines()), error
"""


def read_in_child(paths: list[Path]) -> list[str]:
    """Read the files in another process, and return what it says of them; the last path is the one that ended it."""
    done = subprocess.run([sys.executable, "-c", READ, *map(str, paths)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout.splitlines()[-1:], done.stderr[-2000:])
    said = done.stdout.splitlines()
    assert [line for line in said if not line.startswith("  ")] == [str(path) for path in paths]
    return [line for line in said if line.startswith("  ")]


def table(rows: int) -> pa.Table:
    text = pa.array([None if i % 7 == 3 else f"Ève {i % 11}" for i in range(rows)])
    return pa.table(
        {
            "text": text,
            "repeated": text.dictionary_encode(),
            "number": pa.array([None if i % 5 == 0 else i for i in range(rows)]),
            "list": pa.array(
                [["a", "bb", None][: i % 4] if i % 6 else None for i in range(rows)], pa.list_(pa.string())
            ),
            "vector": pa.array([[1.0, 2.0] if i % 3 else None for i in range(rows)], pa.list_(pa.float32(), 2)),
            "seen": pa.array([i % 2 == 0 for i in range(rows)]),
        }
    )


def write_stream(data: pa.Table, path: Path) -> None:
    views = data["text"].cast(pa.string_view())
    data = data.append_column("views", views).append_column("runs", pc.run_end_encode(data["text"].combine_chunks()))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, data.schema) as writer:
        writer.write_table(data, max_chunksize=25)


FILES: dict[str, Callable[[pa.Table, Path], None]] = {
    "stream.arrow": write_stream,
    "plain.feather": lambda data, path: pa.feather.write_feather(data, str(path), compression="uncompressed"),
    "lz4.feather": lambda data, path: pa.feather.write_feather(data, str(path)),
    "plain.parquet": lambda data, path: pq.write_table(data, path, compression="none", row_group_size=25),
    "zstd.parquet": lambda data, path: pq.write_table(data, path, compression="zstd", data_page_version="2.0"),
}


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Some bytes or words of the content replaced, more often near its ends, where files keep what they hold."""
    new = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        near_end = len(new) - 1 - rng.randrange(min(len(new), 2500))
        at = rng.choice([near_end, rng.randrange(min(len(new), 2500)), rng.randrange(len(new))])
        match rng.randrange(3):
            case 0:
                new[at] ^= 1 << rng.randrange(8)
            case 1:
                number = rng.choice([-1, 0, 60, 2**20, 2**31 - 1, -(2**31)])
                new[at - at % 4 : at - at % 4 + 4] = number.to_bytes(4, "little", signed=True)
            case _:
                number = rng.choice([-1, 0, 1000, 2**40, 2**63 - 1])
                new[at - at % 8 : at - at % 8 + 8] = number.to_bytes(8, "little", signed=True)
    return bytes(new)


def test_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    paths = []
    for name, write in FILES.items():
        whole = tmp_path / name
        write(table(60), whole)
        rng = random.Random(name)
        paths.append(whole)
        for i in range(MUTATIONS):
            paths.append(tmp_path / f"{i}-{name}")
            paths[-1].write_bytes(mutated(whole.read_bytes(), rng))
    read_in_child(paths)


def broken(array: pa.Array, buffer: int, *numbers: int, size: int = 4) -> pa.Array:
    """The array with one of its buffers replaced."""
    buffers = array.buffers()
    buffers[buffer] = pa.py_buffer(b"".join(number.to_bytes(size, "little", signed=True) for number in numbers))
    return pa.Array.from_buffers(array.type, len(array), buffers)


LIES = {
    "offset": broken(pa.array(["a", "b", "c"]), 1, 0, 1, 2_000_000, 3),
    "index": pa.DictionaryArray.from_arrays(pa.array([0, 1_000_000, 0]), pa.array(["x", "y"]), safe=False),
    "dictionary": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 0]), broken(pa.array(["x", "y"]), 1, 0, 2_000_000, 2), safe=False
    ),
    "view": broken(pa.array(["a string that is not inline"] * 2, pa.string_view()), 1, 27, 0, 7, 9, 27, 0, 0, 1 << 30),
}


def test_lies_are_named_with_their_column(tmp_path: Path) -> None:
    """The first batch is sound."""
    paths = [tmp_path / f"{name}.arrow" for name in LIES]
    for path, lie in zip(paths, LIES.values(), strict=True):
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, pa.schema({"a": lie.type})) as writer:
            writer.write_batch(pa.record_batch({"a": pa.nulls(2, lie.type)}))
            writer.write_batch(pa.record_batch({"a": lie}))
    for name, said in zip(LIES, read_in_child(paths), strict=True):
        reason = "the file is damaged, or made to do harm"
        assert re.search(rf"{name}\.arrow: rows 3 to \d: column 'a': .*  {reason}", said)


def test_no_schema_is_proposed_for_a_table_with_a_damaged_column() -> None:
    """Its sound columns are not believed either."""
    table = pa.table({"a": LIES["index"], "b": ["x", "y", "x"]})
    with pytest.raises(UserError, match=r"rows 1 to 3: column 'a': .*\n.*the file is damaged"):
        profile_table(open_table(table))


def test_parquet_metadata_that_contradict_themselves(tmp_path: Path) -> None:
    """A histogram of levels that the schema has no more: PyArrow ends the process when it is asked for the column."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"title": [f"title {i}" for i in range(20_000)]}), path)
    optional = b"\x15\x0c\x25\x02\x18\x05title"  # in Thrift: bytes, optional, the name
    content = path.read_bytes()
    assert optional in content
    path.write_bytes(content.replace(optional, b"\x15\x0c\x25\x00\x18\x05title"))
    read_in_child([path])


def test_names_and_zones_that_are_no_text(tmp_path: Path) -> None:
    data = pa.table({"title": ["x"], "time": pa.array([0], pa.timestamp("us", "Europe/Paris"))})
    path = tmp_path / "a.feather"
    for text, match in ((b"title", "the name of a column is not UTF-8"), (b"Europe/Paris", "column 'time': its type")):
        pa.feather.write_feather(data, str(path), compression="uncompressed")
        path.write_bytes(path.read_bytes().replace(text, b"\xff" + text[1:]))
        with pytest.raises(UserError, match=match):
            open_table(path)
