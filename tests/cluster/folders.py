"""Folders of encoded rows for the tests of the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from feat2vec.schema.reading import read_schema
from feat2vec.shards.encoded_folder import EncodedTable
from feat2vec.training.encoding import EncodingRequest, encode_into


def encoded_table(folder: Path, schema: Any, rows: pa.Table, shard_bytes: int = 4000) -> EncodedTable:
    """Encode rows into a new folder of small shards."""
    encode_into(folder, EncodingRequest(read_schema(schema), shard_bytes=shard_bytes), rows)
    return EncodedTable(folder)
