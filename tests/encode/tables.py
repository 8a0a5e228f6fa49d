"""Tables, schemas and comparisons that the tests of encoding share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from feat2vec.encode.encoder import Encoded, fit
from feat2vec.errors import UserError
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.table.table import BEGINNING, Batch, RowPlace, Table
from feat2vec.table.types import TablePart
from tests import reference

Groups = dict[str, Any]


def schema_of(groups: Groups, **options: Any) -> Schema:
    """A schema; groups are (columns, extractor) or a column. A second group makes it one that can be learnt."""
    pairs = {name: group if isinstance(group, tuple) else (group, "lookup") for name, group in groups.items()}
    given = {name: {"columns": columns, "extractor": extractor} for name, (columns, extractor) in pairs.items()}
    if len(given) < 2 and "objective" not in options:
        given["second group"] = next(iter(given.values()))
    return read_schema({"version": 1, "groups": given, **options})


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
    for name, values in encoded.values.items():
        codec = encoded.encoder.codecs[name]
        parts[name] = (values.entries.shape, values.entries.dtype, values.entries.tobytes(), values.counts.tobytes())
        parts[f"{name} tally"] = encoded.tallies[name]
        if codec.vocabulary is not None:
            parts[f"{name} keys"] = (vocabulary_of(encoded, name), codec.vocabulary.unseen)
    for name, array in (("target", encoded.target), ("weight", encoded.weight)):
        parts[name] = None if array is None else (array.dtype, array.tobytes())
    if encoded.encoder.classes is not None:
        parts["classes"] = encoded.encoder.classes.keys.to_pylist()
    return parts


def differences(first: Encoded, second: Encoded) -> dict[str, Any]:
    before, after = snapshot(first), snapshot(second)
    pairs = {name: (before.get(name), after.get(name)) for name in before | after}
    return {name: (old, new) for name, (old, new) in pairs.items() if old != new}


def refuse(match: str | None, call: Callable[[], object]) -> list[str]:
    """The call is refused with a message that matches; its problems."""
    with pytest.raises(UserError, match=match) as caught:
        call()
    return list(caught.value.problems)


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
def row_lists(draw: st.DrawFn, most: int = 12) -> list[dict[str, Any]]:
    rows = draw(st.lists(st.fixed_dictionaries({name: kind for name, (_, kind) in COLUMNS.items()}), max_size=most))
    for row in rows:
        count = len(row["bag"] or [])
        weight = st.sampled_from([0.0, -0.0, 0.5, -1.25, 0.1])
        row["weights"] = None if row["bag"] is None else draw(st.lists(weight, min_size=count, max_size=count))
    return rows


@st.composite
def schemas(draw: st.DrawFn, least: int = 4) -> Schema:
    names = draw(st.lists(st.sampled_from(list(GROUPS)), min_size=least, unique=True))
    return schema_of({name: (GROUPS[name][0], draw(GROUPS[name][1])) for name in names})


def assume_values(schema: Schema, rows: Sequence[Mapping[str, Any]]) -> None:
    """No group has lost all of its keys to `max_share`."""
    for group in schema.groups.values():
        assume(reference.encode_group(group, rows).missing < len(rows))


class TableInBatches(Table):
    """A table that is read in batches of so many rows."""

    def __init__(self, rows: pa.Table, batch_rows: int) -> None:
        types = {field.name: field.type for field in rows.schema}
        super().__init__(
            "the table", [TablePart("the table", types, lambda names: iter(rows.select(names).to_batches()))]
        )
        self.batch_rows = batch_rows

    def batches(self, columns: Sequence[str] | None = None, start: RowPlace = BEGINNING) -> Iterator[Batch]:
        for batch in super().batches(columns, start):
            for first in range(0, batch.data.num_rows, self.batch_rows):
                rows = batch.data.slice(first, self.batch_rows)
                yield Batch(rows, batch.source, batch.first_row + first)


def arrow(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), TABLE)


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


Z = {"z": "z", "y": "z"}


def fit_target(kind: str, cells: list[Any]) -> Encoded:
    rows = pa.table({"z": ["z"] * len(cells), "t": cells})
    return fit(schema_of(Z, objective={"type": kind, "target": "t"}), rows)


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


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
