"""Tables to numbers and back: against the reference, from every source, whatever the sizes of batches and stages."""

from __future__ import annotations

import errno
import gzip
import importlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import feat2vec
from feat2vec.encode import encoder as encode
from feat2vec.encode import entry_tables as values
from feat2vec.encode import fitting as fits
from feat2vec.encode import targets as beside
from feat2vec.encode import value_ids as numbering
from feat2vec.encode import vocabulary
from feat2vec.encode.encoder import Encoded, Encoder, fit
from feat2vec.errors import UserError
from feat2vec.schema.extractor_options import ItemsSpec, NumbersSpec, VectorSpec
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.table import stages as columns
from feat2vec.table import table
from feat2vec.table import types as table_types
from feat2vec.table.database import connect
from tests import reference

Groups = dict[str, Any]


def schema_of(groups: Groups, **others: Any) -> Schema:
    """A schema; groups are (columns, extractor) or a column. A second group makes it one that can be learnt."""
    pairs = {name: group if isinstance(group, tuple) else (group, "lookup") for name, group in groups.items()}
    given = {name: {"columns": columns, "extractor": extractor} for name, (columns, extractor) in pairs.items()}
    if len(given) < 2 and "objective" not in others:
        given["second group"] = next(iter(given.values()))
    return read_schema({"version": 1, "groups": given, **others})


def lookup(**options: Any) -> dict[str, Any]:
    return {"type": "lookup", **options}


def numeric(**options: Any) -> dict[str, Any]:
    return {"type": "numeric", **options}


def value_ids(encoded: Encoded, group: str) -> list[int]:
    ids: list[int] = encoded.rows[:, list(encoded.values).index(group)].tolist()
    return ids


def decoded_rows(encoded: Encoded, group: str) -> list[Any]:
    """What each row's value stands for, None where the group is missing."""
    decoded = encoded.encoder.decode(group, encoded.values[group].entries)
    return [None if i < 0 else decoded[i] for i in value_ids(encoded, group)]


def vocabulary_of(encoded: Encoded, group: str) -> dict[str, int]:
    vocabulary = encoded.encoder.codecs[group].vocabulary
    assert vocabulary is not None
    return dict(zip(vocabulary.keys.to_pylist(), vocabulary.counts.tolist(), strict=True))


def snapshot(encoded: Encoded) -> dict[str, Any]:
    """Every byte that the encoding of rows is made of."""
    parts: dict[str, Any] = {"rows": (encoded.rows.shape, encoded.rows.tobytes()), "known": dict(encoded.known)}
    for name, found in encoded.values.items():
        codec = encoded.encoder.codecs[name]
        parts[name] = (found.entries.shape, found.entries.dtype, found.entries.tobytes(), found.counts.tobytes())
        parts[f"{name} tally"] = encoded.tallies[name]
        if codec.vocabulary is not None:
            parts[f"{name} keys"] = (vocabulary_of(encoded, name), codec.vocabulary.unseen)
    for name, array in (("target", encoded.target), ("weight", encoded.weight)):
        parts[name] = None if array is None else (array.dtype, array.tobytes())
    if encoded.encoder.classes is not None:
        parts["classes"] = encoded.encoder.classes.keys.to_pylist()
    return parts


def differences(one: Encoded, other: Encoded) -> dict[str, Any]:
    some, others = snapshot(one), snapshot(other)
    return {name: (some.get(name), others.get(name)) for name in some | others if some.get(name) != others.get(name)}


def refuse(match: str | None, call: Callable[[], object]) -> list[str]:
    """The call is refused with a message that matches; its problems."""
    with pytest.raises(UserError, match=match) as caught:
        call()
    return list(caught.value.problems)


# --- against the reference ------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "B", "é", "e\u0301", "东", "10", "1.0", "true", " a", "a ", "NA", "\U0001f600"])
TEXTS = st.lists(
    st.sampled_from(
        ["Eve", "eve", "ÈVE", "e\u0300ve", "STRASSE", "straße", "it's", "x_1", "1920", "ab—cd", "हिन्दी", "\u0149", "…"]
    ),
    max_size=6,
).map(" ".join)
EIGHTHS = st.integers(-64, 512).map(lambda n: n / 8)
DATES = st.dates(date(1931, 1, 1), date(2031, 1, 1))
DAY_TIMES = st.datetimes(datetime(1931, 1, 1), datetime(2031, 1, 1)).map(
    lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000)
)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy | strategy | strategy


COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "key": (pa.string(), optional(KEYS | st.just(""))),
    "number": (pa.int64(), optional(st.integers(-3, 9))),
    "score": (pa.float64(), optional(EIGHTHS)),
    "votes": (pa.int64(), optional(st.integers(0, 10**6))),
    "seen": (pa.bool_(), optional(st.booleans())),
    "day": (pa.date32(), optional(DATES)),
    "time": (pa.timestamp("us"), optional(DAY_TIMES)),
    "bag": (pa.list_(pa.string()), optional(st.lists(optional(KEYS | st.just("")), max_size=7))),
    "years": (pa.list_(pa.int64()), optional(st.lists(optional(st.integers(1990, 1993)), max_size=3))),
    "piped": (pa.string(), optional(st.lists(KEYS | st.just(""), max_size=5).map("|".join))),
    "text": (pa.string(), optional(TEXTS)),
    "vector": (pa.list_(pa.float32()), optional(st.lists(EIGHTHS, min_size=3, max_size=3) | st.just([]))),
}
TABLE = pa.schema({**{name: kind for name, (kind, _) in COLUMNS.items()}, "weights": pa.list_(pa.float64())})
SHARES = st.sampled_from([0.1, 0.29, 0.3, 0.5, 0.7, 1.0])
SIZES = st.fixed_dictionaries(
    {}, optional={"min_count": st.integers(1, 3), "max_size": st.integers(1, 4), "max_share": SHARES}
)
MOST = st.fixed_dictionaries({}, optional={"max_items": st.integers(1, 4)})
PARTS = ["year", "quarter", "month", "day", "weekday", "hour"]
NUMERIC = st.fixed_dictionaries(
    {"type": st.just("numeric"), "scale": st.sampled_from(["standard", "minmax", "quantile", "none"])}
)


def bags(**options: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(SIZES, MOST).map(lambda drawn: lookup(**options, **drawn[0], **drawn[1]))


GROUPS: dict[str, tuple[list[str], st.SearchStrategy[Any]]] = {
    "key": (["key"], SIZES.map(lambda sizes: lookup(**sizes))),
    "number": (["number"], SIZES.map(lambda sizes: lookup(**sizes))),
    "score as a key": (["score"], SIZES.map(lambda sizes: lookup(**sizes))),
    "seen": (["seen"], st.just("lookup")),
    "day": (["day"], st.just("lookup")),
    "time": (["time"], st.just("lookup")),
    "parts": (["time"], st.permutations(PARTS).map(lambda parts: lookup(parts=parts[:4]))),
    "parts of a day": (["day"], st.just(lookup(parts=PARTS))),
    "bag": (["bag"], bags(multi=True)),
    "years": (["years"], bags(multi=True)),
    "weighted": (["bag"], bags(multi=True, weights="weights")),
    "piped": (["piped"], bags(split="|")),
    "words": (["text"], bags(split="words")),
    "bins": (["votes"], st.integers(2, 9).map(lambda bins: lookup(bins=bins))),
    "bins of days": (["day"], st.integers(2, 9).map(lambda bins: lookup(bins=bins))),
    "text": (["text"], st.integers(4, 6).map(lambda most: {"type": "text_cnn", "max_tokens": most})),
    "one number": (["votes"], NUMERIC),
    "log": (["votes"], st.just(numeric(scale="log1p"))),
    "numbers": (["score", "number", "seen", "day"], NUMERIC),
    "vector": (["vector"], st.just("vector")),
}
FULL: dict[str, Any] = {
    **{"key": "a", "number": 1, "score": 0.5, "votes": 7, "seen": True, "day": date(2024, 2, 29), "bag": ["a"]},
    **{"time": datetime(2024, 2, 29, 12), "years": [1990], "piped": "a|b", "text": "Eve", "vector": [1.0, 2.0, 3.0]},
    **{"weights": [1.0]},
}


@st.composite
def some_rows(draw: st.DrawFn, most: int = 12) -> list[dict[str, Any]]:
    rows = draw(st.lists(st.fixed_dictionaries({name: kind for name, (_, kind) in COLUMNS.items()}), max_size=most))
    for row in rows:
        count = len(row["bag"] or [])
        weight = st.sampled_from([0.0, -0.0, 0.5, -1.25, 0.1])
        row["weights"] = None if row["bag"] is None else draw(st.lists(weight, min_size=count, max_size=count))
    return rows


@st.composite
def some_schemas(draw: st.DrawFn, least: int = 4) -> Schema:
    names = draw(st.lists(st.sampled_from(list(GROUPS)), min_size=least, unique=True))
    return schema_of({name: (GROUPS[name][0], draw(GROUPS[name][1])) for name in names})


def assume_values(schema: Schema, rows: Sequence[Mapping[str, Any]]) -> None:
    """No group has lost all of its keys to `max_share`."""
    for group in schema.groups.values():
        assume(reference.encode_group(group, rows).missing < len(rows))


def arrow(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), TABLE)


def assert_as_reference(encoded: Encoded, name: str, expected: reference.EncodedGroup, rows: int) -> None:
    """The group's vocabulary, values and counts, and the last `rows` rows' entries."""
    spec = encoded.encoder.schema.groups[name].extractor
    found = encoded.values[name]
    ids, wanted = value_ids(encoded, name), expected.entries[-rows:]
    assert [i < 0 for i in ids] == [entry is None for entry in wanted]
    assert encoded.tallies[name].missing == sum(entry is None for entry in wanted)
    if isinstance(spec, (NumbersSpec, VectorSpec)):
        shown = [found.entries[i] for i in ids if i >= 0]
        present = [entry for entry in wanted if entry is not None]
        assert np.array(shown).shape == np.array(present).shape
        np.testing.assert_allclose(np.array(shown), np.array(present), rtol=2e-6, atol=2e-6)
        # rows have the same value exactly if they have the same entry
        assert len(set(zip(ids, wanted, strict=True))) == len(set(wanted)) == len(set(ids))
        return
    assert vocabulary_of(encoded, name) == expected.keys
    assert list(vocabulary_of(encoded, name)) == list(expected.keys)
    vocabulary = encoded.encoder.codecs[name].vocabulary
    assert vocabulary is not None
    assert vocabulary.unseen == expected.unseen
    assert [entry and tuple(entry) for entry in decoded_rows(encoded, name)] == wanted


QUICK = settings(max_examples=15, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=300)
SEARCH = pytest.mark.parametrize("search", [QUICK, pytest.param(LONG, marks=pytest.mark.slow)], ids=["quick", "long"])


@SEARCH
def test_as_the_reference(search: settings) -> None:
    search(given(some_schemas(), some_rows(), some_rows(5))(assert_all_as_reference))()


def assert_all_as_reference(schema: Schema, rows: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
    rows, new = [FULL, *rows], [*new, FULL]
    assume_values(schema, rows)
    encoded = fit(schema, arrow(rows))
    again = encoded.encoder.encode(arrow(rows))
    encoded_new = encoded.encoder.encode(arrow(new))
    for name, group in schema.groups.items():
        expected = reference.encode_group(group, rows)
        assert_as_reference(encoded, name, expected, len(rows))
        counts = encoded.values[name].counts
        assert len(counts) == len(encoded.values[name].entries) == len(expected.values)
        assert Counter(i for i in value_ids(encoded, name) if i >= 0) == dict(enumerate(counts.tolist()))
        assert int(counts.sum()) + expected.missing == len(rows)
        both = reference.encode_group(group, rows, new)
        assert_as_reference(encoded_new, name, both, len(new))
        known = encoded_new.known[name]
        assert known == len(counts)
        wide, narrow = encoded_new.values[name].entries[:known], encoded.values[name].entries
        assert np.ascontiguousarray(wide[:, : narrow.shape[1]]).tobytes() == narrow.tobytes()
        assert not wide[:, narrow.shape[1] :].any()
        assert encoded_new.values[name].counts.tolist() == [*counts.tolist(), *[0] * (len(both.values) - known)]
        assert_decodes_to_what_was_encoded(encoded.encoder, name)
    assert again.rows.tobytes() == encoded.rows.tobytes()
    assert again.rows.dtype == encoded.rows.dtype == np.int32
    assert [again.known[name] for name in again.values] == [len(found.entries) for found in again.values.values()]


def assert_decodes_to_what_was_encoded(encoder: Encoder, name: str) -> None:
    """Decoded entries, as a table, are encoded to the same entries."""
    spec, (column, *_) = encoder.schema.groups[name].extractor, encoder.schema.groups[name].columns
    entries = encoder.values[name].entries
    decoded = encoder.decode(name, entries)
    assert len(decoded) == len(entries)
    if isinstance(spec, NumbersSpec):
        names = encoder.schema.groups[name].columns
        back = pa.table({c: pa.array([row[i] for row in decoded]) for i, c in enumerate(names)})
    elif isinstance(spec, VectorSpec):
        back = pa.table({column: pa.array(decoded, pa.list_(pa.float32()))})
    elif isinstance(spec, ItemsSpec) and (spec.bins or spec.parts):
        return
    elif isinstance(spec, ItemsSpec) and spec.weights is not None:
        keys = [["unseen key" if key is None else key for key, _ in bag] for bag in decoded]
        back = pa.table({column: keys, spec.weights: [[weight for _, weight in bag] for bag in decoded]})
    else:
        texts = [["unseenkey" if key is None else key for key in bag] for bag in decoded]
        bag = isinstance(spec, ItemsSpec) and spec.multi
        join = "|" if isinstance(spec, ItemsSpec) and spec.split == "|" else " "
        back = pa.table({column: texts if bag else [join.join(text) for text in texts]})
    single = schema_of({name: (list(encoder.schema.groups[name].columns), spec.model_dump(mode="json"))})
    alone = Encoder(single, dict.fromkeys(single.groups, encoder.codecs[name]), {}, None)
    found = np.concatenate([batch[name].rows for batch in alone.entries(back)])
    if isinstance(spec, NumbersSpec):
        np.testing.assert_allclose(found, entries, rtol=1e-4, atol=1e-4)
    else:
        assert found.tobytes() == np.asarray(entries).tobytes()


# --- sizes of batches, stages and chunks; threads -------------------------------------------------------------------


@contextmanager
def tiny_sizes(batch: int, stage: int, chunk: int) -> Iterator[None]:
    """Batches, stages and chunks of very few rows."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (table, table_types):
            patch.setattr(module, "BATCH_ROWS", batch)
        patch.setattr(columns, "STAGE_ROWS", stage)
        patch.setattr(numbering, "CHUNK", chunk)
        patch.setattr(values, "CHUNK", chunk)
        for module in (fits, numbering):
            patch.setattr(module, "BLOCK", chunk)
        patch.setattr(vocabulary, "HELD_BYTES", stage * 8)  # so that keys are handed over to DuckDB on the way
        yield


@SEARCH
def test_sizes_change_nothing(search: settings) -> None:
    sizes = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5))
    search(given(some_schemas(), some_rows(16), sizes)(assert_sizes_change_nothing))()


def assert_sizes_change_nothing(schema: Schema, rows: list[dict[str, Any]], sizes: tuple[int, int, int]) -> None:
    rows = [*rows, FULL]
    assume_values(schema, rows)
    whole = fit(schema, arrow(rows))
    with tiny_sizes(*sizes):
        assert len(list(columns.stages(table.open_table(arrow(rows)), ["key"]))) >= len(rows) / max(sizes)
        pieced = fit(schema, arrow(rows))
        again = whole.encoder.encode(arrow(rows))
    exact = {name for name, group in schema.groups.items() if not isinstance(group.extractor, NumbersSpec)}
    different = differences(whole, pieced)
    assert not {name for name in different if name.split(" tally")[0].split(" keys")[0] in exact}
    for name in set(schema.groups) - exact:  # the mean of means differs in its last bits
        one, other = (encoded.values[name].entries[value_ids(encoded, name)] for encoded in (whole, pieced))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert again.rows.tobytes() == whole.rows.tobytes()


def big_rows(count: int = 20_000) -> pa.Table:
    random = np.random.default_rng(0)
    heads = (random.zipf(1.3, count) % 3000).astype(str)
    lengths = random.integers(0, 5, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    tags = pa.array((random.zipf(1.5, offsets[-1]) % 500).astype(str))
    return pa.table(
        {
            "key": pa.array(heads, mask=random.random(count) < 0.1),
            "tags": pa.ListArray.from_arrays(pa.array(offsets), tags),
            "x": pa.array(random.integers(0, 4000, count) / 4, mask=random.random(count) < 0.1),
            "text": [f"word{i % 7} {i % 11} {i % 3}" for i in range(count)],
            "wide": pa.FixedSizeListArray.from_arrays(random.integers(0, 2, count * 20).astype(np.float32), 20),
        }
    )


BIG = {
    "key": "key",
    "tags": ("tags", lookup(multi=True)),
    "x": ("x", "numeric"),
    "ranks": ("x", numeric(scale="quantile")),
    "text": ("text", "text_cnn"),
    "wide": ("wide", "vector"),
    "bins": ("x", lookup(bins=20)),
}


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    """Also on one thread and in small batches: what threads do when changes nothing."""
    rows, schema = big_rows(), schema_of(BIG)
    first = fit(schema, rows, tmp_path / "first")
    second = fit(schema, rows, tmp_path / "second")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "cpu_count", lambda: 1)
        third = fit(schema, rows, tmp_path / "third")
    with tiny_sizes(1000, 3000, values.CHUNK):
        fourth = fit(schema, rows, tmp_path / "fourth")
    for other in (second, third, fourth):
        assert differences(first, other) == {}
        files = sorted(path.relative_to(first.folder) for path in first.folder.rglob("*") if path.is_file())
        assert files == sorted(path.relative_to(other.folder) for path in other.folder.rglob("*") if path.is_file())
        assert all((first.folder / path).read_bytes() == (other.folder / path).read_bytes() for path in files)
    assert isinstance(first.rows, np.memmap)
    assert first.rows.shape == (len(rows), len(BIG))
    assert first.encoder.encode(rows).rows.tobytes() == first.rows.tobytes()


def test_values_of_one_key_ascend() -> None:
    encoded = fit(schema_of(BIG), big_rows())
    ids = encoded.values["key"].entries[:, 0]
    assert (np.diff(ids) > 0).all()
    assert ids[0] == 2
    assert encoded.values["key"].counts.tolist() == list(vocabulary_of(encoded, "key").values())


@pytest.mark.slow
def test_spilling(tmp_path: Path) -> None:
    """A table that is larger than DuckDB's memory."""
    count = 1_500_000
    random = np.random.default_rng(0)
    keys = pa.array(random.integers(0, 10**6, count)).cast(pa.string())
    long = pa.compute.binary_join_element_wise(keys, "a title that is long enough to take some memory", "-")
    rows = pa.table({"title": long, "x": random.normal(size=count), "y": random.normal(size=count)})
    schema = schema_of({"title": "title", "xy": (["x", "y"], "numeric"), "ranks": ("x", numeric(scale="quantile"))})
    small = fit(schema, rows, tmp_path / "small", memory="150MB")
    large = fit(schema, rows, tmp_path / "large", memory="2GB")
    assert differences(small, large) == {}
    assert len(small.values["title"].entries) == len(set(keys.to_pylist()))


def test_too_little_memory() -> None:
    random = np.random.default_rng(0)
    rows = pa.table({"a": random.integers(0, 10**9, 300_000).astype(str), "b": random.normal(size=300_000)})
    with tiny_sizes(10_000, 10_000, 10_000):
        problems = refuse(
            "memory is too little", lambda: fit(schema_of({"a": "a", "b": ("b", "numeric")}), rows, None, "1MB")
        )
    assert problems == ["1MB of memory is too little to encode this table; raise it"]


# --- the same rows from every source --------------------------------------------------------------------------------

SAME_ROWS = [
    {
        "name": [None, "Ève", "NA", "null", "nan", "a, b", '"q"', "Ève"][i % 8],
        "number": None if i == 3 else i % 4,
        "score": None if i == 4 else [0.5, 5.0, 0.1, -2.0][i % 4],
        "seen": None if i == 5 else i % 3 == 0,
        "day": None if i == 6 else date(2024, 2, 20) + timedelta(days=i % 5),
        "tags": None if i == 7 else ["Åsa", "Bo", "Åsa"][: i % 4],
        "title": None if i == 8 else f"The «{i % 3}» Straße",
        "vector": None if i == 9 else [i / 8, 1.0 - i, 0.1],
        "class": ["yes", "no", "perhaps", "no"][i % 4],
    }
    for i in range(24)
]
SAME_TYPES = pa.schema(
    {
        **{"name": pa.string(), "number": pa.int64(), "score": pa.float64(), "seen": pa.bool_(), "day": pa.date32()},
        **{"tags": pa.list_(pa.string()), "title": pa.string(), "vector": pa.list_(pa.float64()), "class": pa.string()},
    }
)
SAME = pa.Table.from_pylist(SAME_ROWS, SAME_TYPES)
SAME_SCHEMA = schema_of(
    {
        "name": "name",
        "number": "number",
        "score": "score",
        "seen": "seen",
        "day": "day",
        "tags": ("tags", lookup(split="|", multi=True)),
        "words": ("title", lookup(split="words")),
        "title": ("title", "text_cnn"),
        "parts": ("day", lookup(parts=["month", "weekday"])),
        "bins": ("score", lookup(bins=3)),
        "bins of days": ("day", lookup(bins=3)),
        "numbers": (["number", "score", "seen", "day"], "numeric"),
        "rank": ("score", numeric(scale="quantile")),
        "vector": ("vector", "vector"),
    },
    objective={"type": "softmax", "target": "class"},
)


def as_text(rows: pa.Table) -> pa.Table:
    """Lists as text, which is how a CSV file has them."""
    tags = [None if tags is None else "|".join(tags) for tags in rows["tags"].to_pylist()]
    vectors = [None if vector is None else str(vector) for vector in rows["vector"].to_pylist()]
    names = rows.column_names
    rows = rows.set_column(names.index("tags"), "tags", pa.array(tags))
    return rows.set_column(names.index("vector"), "vector", pa.array(vectors))


def csv_of(rows: pa.Table, delimiter: str = ",") -> bytes:
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(as_text(rows), sink, pa.csv.WriteOptions(delimiter=delimiter))
    content: bytes = sink.getvalue().to_pybytes()
    return content


def json_of(rows: pa.Table) -> bytes:
    return "".join(json.dumps(row, default=str) + "\n" for row in rows.to_pylist()).encode()


def cast(**kinds: pa.DataType) -> pa.Table:
    kinds_of = {field.name: kinds.get(field.name, field.type) for field in SAME.schema}
    return pa.table({name: SAME[name].combine_chunks().cast(kind) for name, kind in kinds_of.items()})


def texts_as(kind: pa.DataType) -> pa.Table:
    return cast(**{"name": kind, "title": kind, "class": kind})


def pandas_frame(**missing: object) -> pd.DataFrame:
    """Objects with these for missing values."""
    frame = SAME.to_pandas(integer_object_nulls=True)
    for name, value in missing.items():
        objects = [value if row[name] is None else row[name] for row in SAME_ROWS]
        frame[name] = pd.Series(objects, dtype=object)
    return frame


class Stream:
    """The Arrow interface and nothing else."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return SAME.to_reader(max_chunksize=5).__arrow_c_stream__(requested_schema)


FRAMES: dict[str, Callable[[], object]] = {
    "slices": lambda: pa.concat_tables([SAME.slice(0, 7), SAME.slice(7, 1), SAME.slice(8)]),
    "reader": lambda: SAME.to_reader(max_chunksize=3),
    "dataset": lambda: pa.dataset.dataset(SAME),
    "stream": Stream,
    "large": lambda: texts_as(pa.large_string()),
    "view": lambda: texts_as(pa.string_view()),
    "dictionary": lambda: texts_as(pa.dictionary(pa.int8(), pa.string())),
    "dictionaries": lambda: pa.concat_tables(
        [texts_as(pa.dictionary(pa.int32(), pa.large_string())).slice(i, 2).combine_chunks() for i in range(0, 24, 2)]
    ),
    "small numbers": lambda: cast(number=pa.int8(), day=pa.date64()),
    "dictionary of numbers": lambda: cast(number=pa.int64()).set_column(
        1, "number", SAME["number"].combine_chunks().dictionary_encode()
    ),
    "large list": lambda: cast(tags=pa.large_list(pa.large_string()), vector=pa.large_list(pa.float64())),
    "list view": lambda: SAME.set_column(5, "tags", pa.array(SAME["tags"].to_pylist(), pa.list_view(pa.string()))),
    "list of dictionary": lambda: cast(tags=pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    "fixed size": lambda: cast(vector=pa.list_(pa.float64(), 3)),
    "binary": lambda: texts_as(pa.binary()),
    "pandas": lambda: SAME.to_pandas(),
    "pandas None": lambda: pandas_frame(name=None, number=None, score=None, seen=None, day=None, tags=None),
    "pandas NaN": lambda: pandas_frame(**dict.fromkeys(["name", "number", "score", "seen", "day", "tags"], np.nan)),
    "pandas NA": lambda: pandas_frame(**dict.fromkeys(["name", "number", "score", "seen", "day", "tags"], pd.NA)),
    "pandas NaT": lambda: pandas_frame(day=pd.NaT, vector=None),
    "pandas nullable": lambda: SAME.to_pandas().convert_dtypes(),
    "pandas categories": lambda: SAME.to_pandas().astype({"name": "category", "title": "category"}),
    "pandas arrow": lambda: SAME.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda: pl.DataFrame(SAME),
    "polars lazy": lambda: pl.DataFrame(SAME).lazy(),
    "polars categories": lambda: pl.DataFrame(SAME).with_columns(pl.col("name").cast(pl.Categorical)),
}
FILES: dict[str, Callable[[Path], object]] = {
    "a.parquet": lambda path: pq.write_table(SAME, path),
    "b.parquet": lambda path: pq.write_table(SAME, path, row_group_size=5, use_dictionary=False),
    "a.feather": lambda path: pa.feather.write_feather(SAME, str(path), compression="zstd"),
    "a.arrow": lambda path: pa.feather.write_feather(SAME, str(path), compression="uncompressed"),
    "a.csv": lambda path: path.write_bytes(csv_of(SAME)),
    "a.tsv": lambda path: path.write_bytes(csv_of(SAME, "\t")),
    "a.csv.gz": lambda path: path.write_bytes(gzip.compress(csv_of(SAME))),
    "a.tsv.zst": lambda path: path.write_bytes(pa.Codec("zstd").compress(csv_of(SAME, "\t"), asbytes=True)),
    "pandas.csv": lambda path: as_text(SAME).to_pandas().to_csv(path, index=False),
    "polars.csv": lambda path: pl.DataFrame(as_text(SAME)).write_csv(path),
    "a.jsonl": lambda path: path.write_bytes(json_of(SAME)),
    "a.json": lambda path: path.write_text(json.dumps(SAME_ROWS, default=str, indent=1)),
    "a.jsonl.gz": lambda path: path.write_bytes(gzip.compress(json_of(SAME))),
    "a.ndjson.zst": lambda path: path.write_bytes(pa.Codec("zstd").compress(json_of(SAME), asbytes=True)),
}


@pytest.fixture(scope="module")
def same() -> Encoded:
    return fit(SAME_SCHEMA, SAME)


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_every_frame_gives_the_same_bytes(make: Callable[[], object], same: Encoded) -> None:
    assert differences(fit(SAME_SCHEMA, make()), same) == {}
    assert same.encoder.encode(make()).rows.tobytes() == same.rows.tobytes()


@pytest.mark.parametrize("name", FILES)
def test_every_file_gives_the_same_bytes(name: str, same: Encoded, tmp_path: Path) -> None:
    FILES[name](tmp_path / name)
    assert same.encoder.encode(tmp_path / name).rows.tobytes() == same.rows.tobytes()
    if name in ("pandas.csv", "polars.csv"):  # where 5 is written as 5.0: another key, of a column without a type
        return
    fitted = fit(SAME_SCHEMA, tmp_path / name)
    assert differences(fitted, same) == {}
    assert fitted.encoder.encode(SAME).rows.tobytes() == same.rows.tobytes()


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_folders_and_globs_give_the_same_bytes(ending: str, same: Encoded, tmp_path: Path) -> None:
    write: dict[str, Callable[[pa.Table, Path], object]] = {
        "parquet": pq.write_table,
        "csv": lambda rows, path: path.write_bytes(csv_of(rows)),
        "jsonl": lambda rows, path: path.write_bytes(json_of(rows)),
    }
    for i in range(3):
        write[ending](SAME.slice(8 * i, 8), tmp_path / f"part-{i}.{ending}")
    for source in (tmp_path, f"{tmp_path}/part-*.{ending}"):
        assert differences(fit(SAME_SCHEMA, source), same) == {}


def test_a_tensorflow_dataset_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no null: only text, labels and lists can be missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow_datasets as tfds

        importlib.import_module("tensorflow")
    f = tfds.features
    full: list[dict[str, Any]] = [
        {**row, "number": i % 4, "score": i / 8, "seen": i % 3 == 0, "tags": row["tags"] or [], "vector": [0.5, 1.0, i]}
        for i, row in enumerate(SAME_ROWS)
    ]

    features = {
        **{"name": f.Text(), "number": np.int64, "score": np.float64, "seen": np.bool_, "day": f.Text()},
        **{"tags": f.Sequence(f.Text()), "title": f.Text(), "vector": f.Tensor(shape=(3,), dtype=np.float64)},
        "class": f.ClassLabel(names=["no", "perhaps", "yes"]),
    }

    def info(self: Any) -> Any:
        return tfds.core.DatasetInfo(builder=self, features=f.FeaturesDict(features), disable_shuffling=True)

    def examples(_: Any) -> Any:
        for i, row in enumerate(full):
            yield i, {**row, **{name: str(row[name] or "") for name in ("name", "day", "title")}}

    methods = {
        **{
            "VERSION": tfds.core.Version("1.0.0"),
            "__module__": __name__,
            "_info": info,
            "_generate_examples": examples,
        },
        "_split_generators": lambda self, _: {"train": self._generate_examples()},
    }
    builder: Any = type("SameRows", (tfds.core.GeneratorBasedBuilder,), methods)
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    fitted = fit(SAME_SCHEMA, f"tfds:{builder.name}")
    assert differences(fitted, fit(SAME_SCHEMA, pa.Table.from_pylist(full, SAME_TYPES))) == {}


def test_many_columns_of_few_keys_leave_little_in_duckdb_and_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"c{i}" for i in range(60)]
    kinds = [["true", "False", "TRUE"], ["1", "NA", "2.5"], ["a", "b", "NA"]]
    written = tmp_path / "wide.csv"
    rows = [",".join(kinds[i % 3][row] for i in range(60)) for row in range(3)]
    written.write_text("\n".join([",".join(names), *rows]) + "\n")
    statements: list[str] = []

    class Watched:
        """A connection whose statements are noted."""

        def __init__(self, connection: Any) -> None:
            self.connection = connection

        def __enter__(self) -> Any:
            self.connection.__enter__()
            return self

        def __exit__(self, *error: object) -> None:
            self.connection.__exit__(*error)

        def __getattr__(self, name: str) -> Any:
            statements.append(name)
            return getattr(self.connection, name)

    monkeypatch.setattr(encode, "connect", lambda *args, **options: Watched(connect(*args, **options)))
    encoded = fit(schema_of({name: name for name in names}), written)
    assert statements == []  # a table of DuckDB's takes memory, and a statement time, for each column
    spelled = [encoded.encoder.codecs[name].vocabulary for name in names[:3]]
    assert [v.keys.to_pylist() for v in spelled if v is not None] == [["true", "false"], ["1", "2.5"], ["NA", "a", "b"]]
    for name in names:
        assert not isinstance(encoded.values[name].entries, np.memmap)
        assert not isinstance(encoded.values[name].counts, np.memmap)


def test_a_problem_of_a_column_that_two_groups_read_is_told_once(tmp_path: Path) -> None:
    written = tmp_path / "x.csv"
    written.write_text("x,y\n1,a\n2,b\nthree,c\n")
    groups = {"one": ("x", "numeric"), "two": ("x", {"type": "numeric", "scale": "none"}), "y": "y"}
    assert len(refuse("x.csv:.*: column 'x': received 'three'", lambda: fit(schema_of(groups), written))) == 1


def test_text_is_spelled_as_the_training_rows_were(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,x,ok,code,day\n5,5.0,True,007,2024-02-20\n6,2.50,False,7,2024-02-21\n")
    typed = pa.table(
        {
            **{"n": [5.0, 6.0], "x": [5.0, 2.5], "ok": [True, False], "code": ["007", "7"]},
            "day": [date(2024, 2, 20), None],
        }
    )
    schema = schema_of({name: name for name in typed.column_names})
    from_text, from_types = fit(schema, tmp_path / "a.csv"), fit(schema, typed)
    assert list(vocabulary_of(from_text, "x")) == ["2.50", "5.0"]  # as they stand there
    assert list(vocabulary_of(from_types, "x")) == ["2.5", "5"]
    assert list(vocabulary_of(from_text, "ok")) == ["false", "true"]
    assert list(vocabulary_of(from_text, "code")) == ["007", "7"]
    (tmp_path / "new.csv").write_text("n,x,ok,code,day\n5.0,5,TRUE,7.0,2024-02-20\n,2.5-3,1e,,\n")
    for encoded, five, unseen in ((from_text, None, 1), (from_types, "5", 0)):
        new = encoded.encoder.encode(tmp_path / "new.csv")
        first = {name: decoded_rows(new, name)[0] for name in new.values}
        assert first == {"n": [five], "x": [five], "ok": ["true"], "code": [None], "day": ["2024-02-20"]}
        assert decoded_rows(new, "x")[1] == [None]
        assert [new.tallies[name].unseen for name in ("n", "x", "ok", "code")] == [unseen, unseen + 1, 1, 1]


def test_na_among_the_numbers_of_a_text_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,name\n1,NA\nNA,1\n1,x\n")
    encoded = fit(schema_of({"n": "n", "name": "name"}), tmp_path / "a.csv")
    assert decoded_rows(encoded, "n") == [["1"], None, ["1"]]
    assert decoded_rows(encoded, "name") == [["NA"], ["1"], ["x"]]
    (tmp_path / "new.csv").write_text("n,name\nNA,NA\n")
    new = encoded.encoder.encode(tmp_path / "new.csv")
    assert (decoded_rows(new, "n"), decoded_rows(new, "name")) == ([None], [["NA"]])


def test_a_schema_may_be_a_path_or_a_mapping(tmp_path: Path, same: Encoded) -> None:
    (tmp_path / "a.yaml").write_text(SAME_SCHEMA.resolved())
    for schema in (tmp_path / "a.yaml", str(tmp_path / "a.yaml"), yaml.safe_load(SAME_SCHEMA.resolved())):
        assert differences(fit(schema, SAME), same) == {}


# --- new rows -------------------------------------------------------------------------------------------------------


def test_new_rows() -> None:
    rows = pa.table(
        {
            "a": ["x", "y", "x", None],
            "b": [["p", "q"], ["p"], None, []],
            "n": [1.0, None, 3.0, 3.0],
            "m": [None, 2.0, 4.0, None],
        }
    )
    schema = schema_of({"a": "a", "b": ("b", lookup(multi=True)), "n": (["n", "m"], "numeric")})
    encoded = fit(schema, rows)
    assert encoded.rows.tolist()[3] == [-1, -1, value_ids(encoded, "n")[3]]
    bags = [["q", "p", "q"], ["r"], ["p", "q"]]
    new = encoded.encoder.encode(
        pa.table({"a": ["z", "y", "w"], "b": bags, "n": [None, 3.0, 1.0], "m": [None, 4.0, None]})
    )
    assert value_ids(new, "a") == [2, 1, 2]
    assert new.values["a"].counts.tolist() == [2, 1, 0]
    assert decoded_rows(new, "a") == [[None], ["y"], [None]]
    assert decoded_rows(new, "b") == [["p", "q", "q"], [None], ["p", "q"]]  # wider than any training row
    assert (new.tallies["a"].unseen, new.tallies["b"].unseen, new.tallies["b"].truncated) == (2, 1, 0)
    assert value_ids(new, "n") == [-1, value_ids(encoded, "n")[2], value_ids(encoded, "n")[0]]
    assert (new.tallies["n"].missing, new.tallies["n"].filled) == (1, 1)
    assert "a: 3 values, 2 keys, 2 unseen" in new.summary()


def test_new_bags_are_as_wide_as_the_schema_allows() -> None:
    rows = pa.table({"a": ["x", "y"], "b": [["p"], ["q"]]})
    encoded = fit(schema_of({"a": "a", "b": ("b", lookup(multi=True, max_items=3))}), rows)
    assert encoded.values["b"].entries.tolist() == [[2], [3]]
    assert encoded.encoder.codecs["b"].width == 3
    bags = [["q"], ["p", "q"], ["q", "p", "r", "p"]]
    with tiny_sizes(1, 1, 1):
        new = encoded.encoder.encode(pa.table({"b": bags}))
    assert new.values["b"].entries[value_ids(new, "b")].tolist() == [[3, 0, 0], [2, 3, 0], [1, 2, 3]]
    assert (value_ids(new, "b")[0], new.known["b"], new.tallies["b"].truncated) == (1, 2, 1)


def test_keys_that_are_too_frequent_count_as_none(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "a": ["x", "x", "x", "y", None],
            "b": [["p", "q", "r", "s"], ["q", "p"], ["p"], ["p", "s", "r", "t"], None],
            "w": [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0], [7.0], [8.0, 9.0, 10.0, 11.0], None],
            "n": ["1.0", "1", "1.00", "2", "3"],
        }
    )
    bag = lookup(multi=True, max_items=2, max_share=0.6)
    groups = {
        "a": ("a", lookup(max_share=0.5)),
        "b": ("b", bag),
        "w": ("b", {**bag, "weights": "w"}),
        "n": ("n", lookup(max_share=0.5)),
        "all": ("b", {**bag, "max_share": 0.8}),  # p is in 4 of 5 rows, not in more than 0.8 of them
    }
    csv = tmp_path / "rows.csv"
    pyarrow.csv.write_csv(rows.select(["a", "n"]), csv)
    encoded = fit(schema_of(groups), rows)
    assert vocabulary_of(encoded, "a") == {"y": 1}
    assert decoded_rows(encoded, "a") == [None, None, None, ["y"], None]
    assert vocabulary_of(encoded, "b") == {"q": 2, "r": 2, "s": 2, "t": 1}
    assert decoded_rows(encoded, "b") == [["q", "r"], ["q"], None, ["r", "s"], None]
    assert decoded_rows(encoded, "w") == [
        [("q", 2.0), ("r", 3.0)], [("q", 5.0)], None, [("r", 10.0), ("s", 9.0)], None,
    ]  # fmt: skip
    assert "p" in vocabulary_of(encoded, "all")
    tallies = {name: (tally.missing, tally.truncated, tally.unseen) for name, tally in encoded.tallies.items()}
    assert tallies == {"a": (4, 0, 0), "b": (2, 2, 0), "w": (2, 2, 0), "n": (0, 0, 0), "all": (1, 2, 0)}
    assert vocabulary_of(encoded, "n") == {"1": 1, "1.0": 1, "1.00": 1, "2": 1, "3": 1}  # as a typed column: text
    text = fit(schema_of({"a": "a", "n": groups["n"]}), csv)
    assert vocabulary_of(text, "n") == vocabulary_of(encoded, "n")
    encoded.encoder.save(tmp_path / "encoder")
    loaded = Encoder.load(tmp_path / "encoder")
    new = pa.table(
        {"b": [["p"], ["p", "new", "q", "s"], ["p", "p", "t"]], "w": [[1.0], [1.0, 2.0, 3.0, 4.0], [1.0] * 3]}
    )
    for encoder in (encoded.encoder, loaded):
        again = encoder.encode(new)
        assert decoded_rows(again, "b") == [None, [None, "q"], ["t"]]
        assert decoded_rows(again, "w") == [None, [(None, 2.0), ("q", 3.0)], [("t", 1.0)]]
        tally = again.tallies["b"]
        assert (tally.missing, tally.truncated, tally.unseen) == (1, 1, 1)
        vocabulary = encoder.codecs["b"].vocabulary
        assert vocabulary is not None
        assert vocabulary.too_frequent == ["p"]


def test_groups_none_of_which_can_be_fitted_are_all_named() -> None:
    rows = pa.table({"x": pa.array([None, None], pa.float64()), "y": pa.array([None, None], pa.float64())})
    schema = schema_of({"x": ("x", "numeric"), "y": ("y", "numeric")})
    with pytest.raises(UserError) as caught:
        fit(schema, rows)
    assert [problem.count("has no number in any row") for problem in caught.value.problems] == [1, 1]


def test_a_share_is_exact() -> None:
    """0.29 * 100 is 28.999999999999996."""
    rows = pa.table({"a": ["x"] * 29 + ["y"] * 30 + [f"z{i}" for i in range(41)]})
    encoded = fit(schema_of({"a": ("a", lookup(max_share=0.29))}), rows)
    assert "x" in vocabulary_of(encoded, "a")
    assert "y" not in vocabulary_of(encoded, "a")


def test_partial_tables(same: Encoded) -> None:
    some = same.encoder.encode(SAME.select(["name", "day"]))
    for name in same.values:
        whole = value_ids(same, name)
        given = name in ("name", "day", "parts", "bins of days")
        assert name == "numbers" or value_ids(some, name) == (whole if given else [-1] * len(whole))
    # a column of several that is absent is missing like one that is null
    null = SAME.select(["day"]).append_column("number", pa.nulls(24, pa.int64()))
    assert value_ids(some, "numbers") == value_ids(same.encoder.encode(null), "numbers")
    assert some.tallies["numbers"].filled == 23 * 3
    assert some.tallies["vector"].missing == 24
    [batch] = same.encoder.entries(SAME.select(["tags"]))
    assert (
        batch["tags"].rows.tolist()
        == same.values["tags"].entries[[i for i in value_ids(same, "tags") if i >= 0]].tolist()
    )
    assert (batch["name"].rows.shape, batch["name"].tally.missing) == ((0, 1), 24)
    other = pa.table({"other": [1]})
    refuse("the table: has none of the columns name, .*; received other", lambda: same.encoder.encode(other))


KINDS: dict[str, list[Any]] = {
    "date": [date(2024, 1, 1), date(2024, 1, 2)],
    "number": [1.0, 2.0],
    "text": ["one", "two"],
}
SWAPS = {
    ("date", "number"): "row 1: column 'a' holds double; the training rows had dates",
    ("number", "date"): r"row 1: column 'a' holds date32\[day\]; the training rows had numbers",
    ("number", "text"): "row 1: column 'a': received 'one'; a number is needed, and the column holds text; cast it",
    ("date", "text"): "row 1: column 'a': received 'one'; a date such as 2024-01-31 is needed",
}


@pytest.mark.parametrize("extractor", ["numeric", lookup(bins=2)], ids=["numeric", "bins"])
@pytest.mark.parametrize(("before", "after"), SWAPS)
def test_a_column_keeps_its_kind(before: str, after: str, extractor: Any) -> None:
    encoder = fit(schema_of({"a": ("a", extractor)}), pa.table({"a": KINDS[before]})).encoder
    refuse(SWAPS[before, after], lambda: encoder.encode(pa.table({"a": KINDS[after]})))


def test_the_encoder_outlives_the_encoded_rows() -> None:
    encoded = fit(SAME_SCHEMA, SAME)
    folder, encoder, expected = encoded.folder, encoded.encoder, encoded.rows.tobytes()
    assert folder.exists()
    del encoded
    assert not folder.exists()
    assert encoder.encode(SAME).rows.tobytes() == expected


# --- targets, weights and names -------------------------------------------------------------------------------------

Z = {"z": "z", "y": "z"}


def fit_target(kind: str, cells: list[Any]) -> Encoded:
    rows = pa.table({"z": ["z"] * len(cells), "t": cells})
    return fit(schema_of(Z, objective={"type": kind, "target": "t"}), rows)


def test_targets(tmp_path: Path) -> None:
    logistic = fit_target("logistic", [True, False]).target
    assert logistic is not None
    assert logistic.dtype == np.float32
    assert logistic.tolist() == [1.0, 0.0]
    cases: dict[str, list[Any]] = {"regression": [-1.5, 2.0], "glove": [1, 10**9], "logistic": [0, 1]}
    for kind, cells in cases.items():
        target = fit_target(kind, cells).target
        assert target is not None
        assert target.tolist() == cells
    classes = fit_target("softmax", ["b", "c", "a", "c"])
    assert classes.target is not None
    assert classes.target.dtype == np.int32
    assert classes.target.tolist() == [2, 0, 1, 0]
    new = classes.encoder.encode(pa.table({"z": ["z"] * 2, "t": ["a", "d"]}))
    assert new.target is not None
    assert new.target.tolist() == [1, -1]
    assert classes.encoder.encode(pa.table({"z": ["z"]})).target is None
    (tmp_path / "a.csv").write_text("z,t\nz,true\nz,False\n")
    from_text = fit(schema_of(Z, objective={"type": "logistic", "target": "t"}), tmp_path / "a.csv").target
    assert from_text is not None
    assert from_text.tolist() == [1.0, 0.0]


def test_typed_text_classes_stay_as_they_are() -> None:
    encoded = fit_target("softmax", ["1.0", "1", "1.0"])
    assert encoded.encoder.classes is not None
    assert encoded.encoder.classes.keys.to_pylist() == ["1.0", "1"]


@pytest.mark.parametrize(
    ("kind", "cells", "match"),
    [
        ("logistic", [0, 1, 2], r"the table: row 3: column 't': received 2; .* 0 or 1, in every row"),
        ("logistic", [0, None], r"row 2: column 't': received None; .* 0 or 1, in every row"),
        ("regression", [0.5, None], r"row 2: column 't': received None; .* a number, in every row"),
        ("regression", [0.5, float("inf")], r"row 2: column 't': received inf; numbers must be finite"),
        ("regression", [0.5, float("nan")], r"row 2: column 't': received nan; write null"),
        ("regression", [1e39], r"row 1: column 't': received 1e\+39; "),
        ("regression", ["x"], r"row 1: column 't': received 'x'; a number is needed"),
        ("glove", [3, 0], r"row 2: column 't': received 0; .* above 0"),
        ("glove", [1e-60], r"row 1: column 't': received 1e-60; .* above 0"),
        ("softmax", ["a", None], r"row 2: column 't': received None; .* a class in every row"),
        ("softmax", ["a", ""], r"row 2: column 't': received None; .* a class in every row"),
    ],
)
def test_bad_targets(kind: str, cells: list[Any], match: str) -> None:
    assert len(refuse(match, lambda: fit_target(kind, cells))) == 1


def test_weights_and_names(tmp_path: Path) -> None:
    rows = pa.table({"z": ["z"] * 3, "t": [1, 0, 1], "w": [0.5, 0, 2], "film": [7.0, 8.0, 7.0]})
    schema = schema_of(Z, objective={"type": "logistic", "target": "t", "weight": "w"}, id="film")
    encoded = fit(schema, rows, tmp_path / "out")
    assert encoded.weight is not None
    assert encoded.weight.tolist() == [0.5, 0, 2]
    names = encoded.names()
    assert names is not None
    assert names["name"].to_pylist() == ["7", "8", "7"]
    assert fit(schema_of(Z), rows).names() is None
    negative, unnamed = rows.set_column(2, "w", [[-1, 1, 1]]), rows.set_column(3, "film", [["a", None, "b"]])
    refuse("row 1: column 'w': received -1; .* from 0 to 1e30", lambda: fit(schema, negative))
    refuse("row 2: column 'film': received None; the `id`", lambda: fit(schema, unnamed))


def test_lists_are_no_target_and_no_name() -> None:
    lists = pa.table({"z": ["z"], "t": [["a"]]})
    match = "row 1: column 't' holds lists; a single value a row is needed"
    refuse(match, lambda: fit(schema_of(Z, objective={"type": "softmax", "target": "t"}), lists))
    refuse(match, lambda: fit(schema_of(Z, id="t"), lists))
    refuse("row 1: column 't' holds list.*; a number is needed", lambda: fit_target("regression", [["a"]]))


# --- saving and loading ---------------------------------------------------------------------------------------------

NAMES = [
    *[
        "a/b",
        "../../up",
        "..",
        ".",
        "Cast",
        "cast",
        "CAST",
        "名前 📽",
        "e\u0301",
        "\u00e9",
        " a ",
        "%2F",
        "a%2Fb",
        "con",
    ],
    *["長" * 60, "長" * 61, "x" * 300],
]


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_group_names_as_files(tmp_path: Path) -> None:
    rows = pa.table({"k": ["a", "b", None], "tags": [["a"], ["b", "c"], []]})
    groups: Groups = {name: ("tags", lookup(multi=True)) if i % 2 else ("k", lookup()) for i, name in enumerate(NAMES)}
    encoded = fit(schema_of(groups), rows, tmp_path / "in" / "out")
    encoded.encoder.save(tmp_path / "in" / "saved")
    assert sorted(os.listdir(tmp_path / "in")) == ["out", "saved"]
    assert os.listdir(tmp_path) == ["in"]
    assert len(files_below(tmp_path / "in" / "out")) == 2 * len(NAMES) + 1
    assert len(files_below(tmp_path / "in" / "saved")) == 2 * len(NAMES) + 2
    assert all("/" not in name.split("/", 1)[1] for name in files_below(tmp_path / "in" / "saved") if "/" in name)
    loaded = Encoder.load(tmp_path / "in" / "saved")
    assert list(loaded.codecs) == NAMES
    assert loaded.encode(rows).rows.tobytes() == encoded.rows.tobytes()


EVERY: Groups = {
    "key": ("key", lookup(min_count=2)),
    "weighted": ("bag", lookup(multi=True, weights="weights", max_items=3)),
    "years": ("years", lookup(multi=True)),
    "words": ("text", lookup(split="words")),
    "parts": ("time", lookup(parts=PARTS)),
    "bins": ("votes", lookup(bins=3)),
    "text": ("text", "text_cnn"),
    "numbers": (["score", "number", "seen", "day"], numeric(scale="quantile", nan="missing")),
    "log": ("votes", numeric(scale="log1p")),
    "vector": ("vector", "vector"),
}
EVERY_ROWS = [
    {
        **{**FULL, "key": f"k{i % 5}", "votes": i * i, "text": f"Film {i} of {i % 3}", "score": i / 4},
        **{"bag": ["a", "b", "a", "c"][: i % 5], "weights": [0.5, -1.0, 0.1, 2][: i % 5]},
        **{"number": None if i % 4 else i, "vector": [i, i % 2, 0.1]},
    }
    for i in range(30)
]
EVERY_SCHEMA = schema_of(EVERY, objective={"type": "softmax", "target": "piped"}, model={"ranks": [2, 8]})


LOADING = """
import sys
from feat2vec.encode.encoder import Encoder
encoder = Encoder.load(sys.argv[1])
encoded = encoder.encode(sys.argv[2], sys.argv[3])
encoder.save(sys.argv[4])
print(sorted({"tensorflow", "keras", "tensorflow_datasets", "polars"} & set(sys.modules)))
"""


def test_saved_encoders_load_elsewhere(tmp_path: Path) -> None:
    rows = arrow(EVERY_ROWS)
    pq.write_table(rows, tmp_path / "rows.parquet")
    encoded = fit(EVERY_SCHEMA, rows)
    encoded.encoder.save(tmp_path / "saved")
    here = encoded.encoder.encode(rows, tmp_path / "here")
    arguments = [str(tmp_path / name) for name in ("saved", "rows.parquet", "there", "again")]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOADING, *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
    for one, other in (("here", "there"), ("saved", "again")):
        files = files_below(tmp_path / one)
        assert files == files_below(tmp_path / other)
        assert all((tmp_path / one / name).read_bytes() == (tmp_path / other / name).read_bytes() for name in files)
    assert here.rows.tobytes() == encoded.rows.tobytes()
    assert {Path(name).suffix for name in files_below(tmp_path / "saved")} == {".parquet", ".json", ".yaml"}
    table_of_keys = pq.read_table(tmp_path / "saved" / "vocabulary" / "words.parquet")
    assert table_of_keys.column_names == ["key", "id", "count", "level"]
    assert table_of_keys["id"].to_pylist() == list(range(2, 2 + len(table_of_keys)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "encoder"
    fit(EVERY_SCHEMA, arrow(EVERY_ROWS)).encoder.save(folder)
    return folder


def damaged(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "damaged")
    return tmp_path / "damaged"


def test_every_file_of_an_encoder_is_needed(saved: Path, tmp_path: Path) -> None:
    folder = damaged(saved, tmp_path)
    for name in sorted(files_below(saved)):
        content = (saved / name).read_bytes()
        for bad in (None, b"garbage", content[: len(content) // 2], b"{}"):
            (folder / name).unlink()
            if bad is not None:
                (folder / name).write_bytes(bad)
            problems = refuse(re.escape(str(folder)), lambda: Encoder.load(folder))
            assert all(len(problem) < 2000 for problem in problems)
            (folder / name).write_bytes(content)
    assert Encoder.load(folder).encode(arrow(EVERY_ROWS)).rows.shape == (30, len(EVERY))


def test_foreign_folders(saved: Path, tmp_path: Path) -> None:
    refuse("holds no encoder that can be read", lambda: Encoder.load(tmp_path / "nothing"))
    refuse("holds no encoder that can be read", lambda: Encoder.load(tmp_path))
    folder = damaged(saved, tmp_path)
    facts = json.loads((folder / "encoder.json").read_text())
    for change, match in (
        ({"format": 99}, "format 99; this feat2vec reads 1"),
        ({"groups": {}}, "holds no encoder that can be read"),
        ({"groups": {**facts["groups"], "words": {}}}, "holds no encoder that can be read"),
        ({"groups": {**facts["groups"], "words": {**facts["groups"]["words"], "items": "many"}}}, "holds no encoder"),
        ({"groups": {**facts["groups"], "words": {**facts["groups"]["words"], "items": 1000}}}, "holds no encoder"),
        ({"groups": {**facts["groups"], "vector": {"width": 2}}}, "holds no encoder that can be read"),
        ({"groups": {**facts["groups"], "numbers": {"columns": [{}], "nan": "error"}}}, "holds no encoder"),
        ({"classes": 5}, "holds no encoder"),
    ):
        (folder / "encoder.json").write_text(json.dumps({**facts, **change}))
        refuse(match, lambda: Encoder.load(folder))
    shutil.copy(folder / "values" / "text.parquet", folder / "values" / "key.parquet")
    (folder / "encoder.json").write_text(json.dumps(facts))
    refuse("holds no encoder", lambda: Encoder.load(folder))


def test_loading_runs_no_plugins(saved: Path, tmp_path: Path) -> None:
    folder = damaged(saved, tmp_path)
    (folder / "evil.py").write_text("raise SystemExit('ran')\n")
    (folder / "schema.yaml").write_text((folder / "schema.yaml").read_text().replace("plugins: []", "plugins: [evil]"))
    refuse("would run the code of 'evil'", lambda: Encoder.load(folder))


def test_nothing_is_pickled(tmp_path: Path) -> None:
    encoded = fit(EVERY_SCHEMA, arrow(EVERY_ROWS), tmp_path / "out")
    for path in tmp_path.rglob("*.npy"):
        assert np.load(path, allow_pickle=False).dtype.kind in "if"
    assert encoded.folder == tmp_path / "out"
    expected = {f"{part}/{name}.npy" for part in ("values", "counts") for name in encoded.values}
    expected |= {"rows.npy", "target.npy"}
    assert files_below(tmp_path / "out") == expected


# --- mistakes and interruptions -------------------------------------------------------------------------------------


def test_all_problems_at_once(tmp_path: Path) -> None:
    (tmp_path / "films.csv").write_text("a,b,c,d,z\n1,2,3,2024-01-01,z\nx,2,inf,2024-01-01,z\n1,,4,soon,z\n")
    schema = schema_of({"a": ("a", "numeric"), "c": ("c", "numeric"), "d": ("d", "numeric"), "z": "z", "b": "b"})
    problems = refuse(None, lambda: fit(schema, tmp_path / "films.csv", tmp_path / "out"))
    where = re.escape(str(tmp_path / "films.csv"))
    assert len(problems) == 3
    assert re.fullmatch(f"{where}: row 2: column 'a': received 'x'; a number is needed; text is for .*", problems[0])
    assert re.fullmatch(f"{where}: row 2: column 'c': received inf; numbers must be finite", problems[1])
    assert re.fullmatch(f"{where}: row 3: column 'd': received 'soon'; a date such as .* is needed", problems[2])
    assert os.listdir(tmp_path) == ["films.csv"]
    good = fit(schema, pa.table({"a": [1], "b": ["2"], "c": [3], "d": [date(2024, 1, 1)], "z": ["z"]}))
    assert refuse(None, lambda: good.encoder.encode(tmp_path / "films.csv", tmp_path / "out")) == problems
    assert os.listdir(tmp_path) == ["films.csv"]


def test_all_empty_groups_at_once() -> None:
    empty = pa.nulls(2, pa.float64())
    texts = {"d": [[], None], "e": ["", None], "f": ["…", ""]}
    rows = pa.table({"z": ["z", "z"], "a": empty, "b": empty, "c": pa.nulls(2), **texts})
    schema = schema_of(
        {
            **{"z": "z", "a": ("a", "numeric"), "b": (["b"], numeric(scale="quantile")), "c": "c"},
            **{"d": ("d", lookup(multi=True)), "e": "e", "f": ("f", "text_cnn"), "bins": ("a", lookup(bins=3))},
            **{"v": ("c", "vector"), "parts": ("c", lookup(parts=["year"]))},
        }
    )
    problems = refuse(None, lambda: fit(schema, rows))
    assert [re.findall(r"(?:column|group) '(\w+)'", problem)[0] for problem in problems] == list(schema.groups)[1:]
    assert all(
        (problem.startswith("the table: ") and problem.endswith(("remove it", "its group"))) or "(column" in problem
        for problem in problems
    )


def test_missing_columns_at_once() -> None:
    schema = schema_of({"a": "titel", "b": "year", "c": ("title", lookup(multi=True, weights="wights"))}, id="film")
    problems = refuse(None, lambda: fit(schema, pa.table({"title": ["a"], "weights": [[1.0]]})))
    assert problems == [
        "the table: has no column 'titel', which groups.a.columns names; did you mean 'title'?",
        "the table: has no column 'year', which groups.b.columns names; the columns are title, weights",
        "the table: has no column 'wights', which groups.c.extractor.weights names; did you mean 'weights'?",
        "the table: has no column 'film', which id names; the columns are title, weights",
    ]


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    encoded = fit(SAME_SCHEMA, SAME)
    for call in (lambda: fit(SAME_SCHEMA, SAME, out), lambda: encoded.encoder.encode(SAME, out)):
        refuse("out: exists already; remove it or choose another folder", call)
    assert files_below(tmp_path) == {"out/mine.txt"}


PLACES: dict[str, list[tuple[Any, str]]] = {
    "reading": [(encode, "stages")],
    "staging": [(fits.ItemsFit, "stage"), (numbering.EntryFiles, "stage")],
    "beside": [(beside.Beside, "finish")],
    "numbering": [(numbering, "number_entries")],
    "writing": [(encode, "interleave")],
}


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("place", PLACES)
def test_interruptions_leave_nothing_behind(
    error: type[BaseException], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = schema_of(
        {"name": "name", "tags": ("tags", lookup(multi=True)), "numbers": (["number", "score"], "numeric")}
    )
    encoder = fit(schema, SAME).encoder
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()

    def fail(*_: object, **__: object) -> None:
        raise error(place)

    def fail_late(*arguments: Any, **__: object) -> Iterator[columns.Stage]:
        yield from columns.stages(*arguments)
        raise error(place)

    for target, name in PLACES[place]:
        monkeypatch.setattr(target, name, fail_late if name == "stages" else fail)
    for out in (tmp_path / "out", None):
        with pytest.raises(error, match=place):
            fit(schema, SAME, out)
        with pytest.raises(error, match=place):
            encoder.encode(SAME, out)
    assert files_below(tmp_path) == set()
    assert os.listdir(tmp_path) == ["temporary"]
    assert os.listdir(tmp_path / "temporary") == []


def test_memory_is_a_size(tmp_path: Path) -> None:
    encoder = fit(SAME_SCHEMA, SAME).encoder
    wrong: list[Any] = [
        "lots", "-1GB", "0", "0GB", "0.0 MB", "", "GB", "1", "-1", "1GB; select 1", "1e9", "nan GB", "1_0GB", "٣GB",
        "100%", "none", "1PB", None, 10**9, b"1GB", float("inf"), "9" * 400 + "GB",
    ]  # fmt: skip
    for memory in wrong:
        shown = repr(memory) if len(repr(memory)) <= 60 else f"{repr(memory)[:57]}..."
        for call in (
            lambda: fit(SAME_SCHEMA, SAME, tmp_path / "out", memory),  # noqa: B023
            lambda: encoder.encode(SAME, None, memory),  # noqa: B023
            lambda: feat2vec.train(SAME_SCHEMA, SAME, tmp_path / "out", memory=memory),  # noqa: B023
        ):
            assert refuse(None, call) == [f"memory must be a size such as 1GB; received {shown}"]
    assert os.listdir(tmp_path) == []
    for memory in ("64MB", "0.1 GB", "100mib", " 90000000 bytes", "1GB"):
        assert len(fit(SAME_SCHEMA, SAME, None, memory)) == len(SAME)
    for memory in ("1 B", "1KB"):
        refuse("memory is too little to encode this table", lambda: fit(SAME_SCHEMA, SAME, None, memory))  # noqa: B023


@pytest.mark.parametrize("objective", ["regression", "logistic", "softmax"])
def test_rows_that_all_weigh_nothing_are_refused(objective: str, tmp_path: Path) -> None:
    rows = {"a": ["p", "q", "p"], "b": ["x", "y", "y"], "y": [0, 1, 1]}
    schema = schema_of({"a": "a", "b": "b"}, objective={"type": objective, "target": "y", "weight": "w"})
    good = fit(schema, pa.table({**rows, "w": [0.0, 0.5, 0.0]}))
    zeros = pa.table({**rows, "w": [0, 0, 0]})
    for call in (lambda: fit(schema, zeros, tmp_path / "out"), lambda: good.encoder.encode(zeros, tmp_path / "out")):
        where = "the table: column 'w', which objective.weight names, "
        said = f"{where}is 0 in every row, or nearly; give rows with weights above 0"
        assert refuse(None, call) == [said]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("objective", "target", "given"),
    [
        ("logistic", [0, 0, 1], {"0": 0.0}),
        ("softmax", ["k", "k", "l"], {"k": 0.0}),
    ],
)
def test_classes_that_all_weigh_nothing_are_refused(objective: str, target: list[Any], given: Any) -> None:
    rows = {"a": ["p", "q", "p"], "b": ["x", "y", "y"], "y": target}
    options = {"type": objective, "target": "y", "class_weights": given}
    schema = schema_of({"a": "a", "b": "b"}, objective=options)
    good = fit(schema, pa.table(rows))
    said = "the table: objective.class_weights gives every row the weight 0; raise that of a class which column 'y' has"
    held = pa.table({name: values[:2] for name, values in rows.items()})
    assert refuse(None, lambda: good.encoder.encode(held)) == [said]
    weighed = schema_of({"a": "a", "b": "b"}, objective={**options, "weight": "w"})
    assert refuse(None, lambda: fit(weighed, pa.table({**rows, "w": [1, 1, 0]}))) == [said]
    fit(weighed, pa.table({**rows, "w": [0, 0, 1]}))


@pytest.mark.parametrize("temporary", [False, True])
def test_a_full_disk_is_told_with_the_folder_and_a_remedy(
    temporary: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as a write has it: it knows no name

    monkeypatch.setattr(values.ArrayFile, "append", fail)
    with pytest.raises(OSError, match="No space left on device; make room, or choose another folder") as caught:
        fit(SAME_SCHEMA, SAME, None if temporary else tmp_path / "out")
    assert caught.value.filename == str(tmp_path)
    assert caught.value.errno == errno.ENOSPC
    assert str(caught.value.strerror).endswith("another folder by TMPDIR" if temporary else "another folder")
    assert os.listdir(tmp_path) == []


WAITING = """
import signal, sys
from feat2vec import cli
from feat2vec.encode import encoder
def wait(*_):
    print("waiting", flush=True)
    signal.pause()
encoder.interleave = wait
cli.main()
"""


def test_sigterm_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("version: 1\ngroups: {a: {column: a}, b: {column: b}}\n")
    (tmp_path / "a.csv").write_text("a,b\nx,y\n")
    (tmp_path / "temporary").mkdir()
    command = [sys.executable, "-c", WAITING, "check", "a.yaml", "--data", "a.csv"]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        assert len(os.listdir(tmp_path / "temporary")) == 1
        process.terminate()
    assert process.returncode == 143
    assert os.listdir(tmp_path / "temporary") == []


def test_file_names_that_are_not_utf8_are_printed_escaped(tmp_path: Path) -> None:
    schema, rows = os.fsdecode(b"caf\xe9.yaml"), os.fsdecode(b"caf\xe9.csv")
    (tmp_path / schema).write_text("version: 1\ngroups: {a: {column: a}, b: {column: b}}\n")
    (tmp_path / rows).write_text("a,b\nx,y\n")
    command = [sys.executable, "-c", "from feat2vec.cli import main; main()", "check", schema]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout == b"caf\\udce9.yaml: no problems, 2 groups, objective nce\n"
    done = subprocess.run([*command, "--data", rows], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (2, b"caf\\udce9.csv: its name is not UTF-8: rename the file\n")


def test_the_folder_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").mkdir()
    fit(SAME_SCHEMA, SAME, tmp_path / "out")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)


@pytest.mark.parametrize("texts", [["ab cd", "eve"], ["ab eve", None, "zz ab"], ["zz"]])
def test_items_that_are_cut_after_frequent_ones_left_are_no_values(texts: list[str | None]) -> None:
    """With room for one item the others count as keys, and stand in no entry."""
    spec = {"type": "lookup", "split": "words", "max_items": 1, "max_share": 0.1}
    groups = {"k": {"column": "k"}, "w": {"column": "t", "extractor": spec}}
    rows = pa.table({"k": [str(i) for i in range(20)], "t": [*texts, *[None] * (20 - len(texts))]})
    encoded = fit(read_schema({"version": 1, "groups": groups}), rows)
    found = [key for (key,) in encoded.encoder.decode("w", encoded.values["w"].entries)]
    first = [text.split()[0] for text in texts if text]
    assert sorted(found) == sorted(set(first))
    assert np.asarray(encoded.values["w"].counts).tolist() == [first.count(key) for key in found]
    for again in (encoded, encoded.encoder.encode(rows)):
        ids = np.asarray(again.rows)[:, 1]
        assert [None if i < 0 else found[i] for i in ids[: len(texts)]] == [text and text.split()[0] for text in texts]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_lists_of_nothing_but_null(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{form}"
    if form == "jsonl":
        path.write_text('{"a": [null], "b": "x"}\n{"a": [null, null], "b": "y"}\n')
    else:
        pq.write_table(pa.table({"a": pa.array([[None], [None, None]]), "b": ["x", "y"]}), path)
    groups = {"a": {"column": "a", "extractor": {"type": "lookup", "multi": True}}, "b": {"column": "b"}}
    with pytest.raises(UserError, match="the group 'a' has no value in any row"):
        fit({"version": 1, "groups": groups}, path)
    encoder = fit({"version": 1, "groups": groups}, pa.table({"a": [["p"], ["q"]], "b": ["x", "y"]})).encoder
    (entries,) = encoder.entries(path)
    assert entries["a"].present.tolist() == [False, False]  # bags without an item
