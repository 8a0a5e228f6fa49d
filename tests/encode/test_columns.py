"""The columns that a schema names and a table lacks."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather

from feat2vec.encode.encoder import Encoded, fit
from tests.encode.tables import SAME, lookup, refuse, schema_of, value_ids


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


def test_missing_columns_at_once() -> None:
    schema = schema_of({"a": "titel", "b": "year", "c": ("title", lookup(multi=True, weights="wights"))}, id="film")
    problems = refuse(None, lambda: fit(schema, pa.table({"title": ["a"], "weights": [[1.0]]})))
    assert problems == [
        "the table: has no column 'titel', which groups.a.columns names; did you mean 'title'?",
        "the table: has no column 'year', which groups.b.columns names; the columns are title, weights",
        "the table: has no column 'wights', which groups.c.extractor.weights names; did you mean 'weights'?",
        "the table: has no column 'film', which id names; the columns are title, weights",
    ]
