"""What the type of a column says of its values."""

from __future__ import annotations

import pyarrow as pa

from feat2vec.table.kinds import kind_of_type


def test_kinds_of_types() -> None:
    kinds = {pa.string(): "text", pa.int64(): "number", pa.list_(pa.float32()): "number", pa.bool_(): "boolean"}
    kinds |= {
        pa.date32(): "date",
        pa.timestamp("us", "UTC"): "date",
        pa.list_(pa.bool_(), 2): "boolean",
        pa.null(): "text",
    }
    assert {kind: kind_of_type(kind) for kind in kinds} == kinds
