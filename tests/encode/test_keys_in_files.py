"""Large vocabularies stay in files while a model is trained, and large value tables until they are asked for."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from feat2vec.encode import encoded_rows
from feat2vec.encode.encoded_rows import with_keys_in_files
from feat2vec.encode.encoder import Encoder, fit
from tests.encode.tables import SAME, SAME_SCHEMA, differences, files_below, refuse, schema_of


def test_vocabularies_in_files_are_the_same(tmp_path: Path) -> None:
    plain = fit(SAME_SCHEMA, SAME, tmp_path / "plain")
    with mock.patch.object(encoded_rows, "LARGE_KEY_BYTES", 0):
        mapped = fit(SAME_SCHEMA, SAME, tmp_path / "mapped")
    assert differences(plain, mapped) == {}
    keys = {f"keys/{name}.arrow" for name, codec in mapped.encoder.codecs.items() if codec.vocabulary is not None}
    assert files_below(tmp_path / "mapped") == files_below(tmp_path / "plain") | keys
    plain.encoder.save(tmp_path / "a")
    mapped.encoder.save(tmp_path / "b")
    assert {name: (tmp_path / "a" / name).read_bytes() for name in files_below(tmp_path / "a")} == {
        name: (tmp_path / "b" / name).read_bytes() for name in files_below(tmp_path / "b")
    }
    again = mapped.encoder.encode(SAME)
    assert again.rows.tobytes() == plain.rows.tobytes()


def test_a_shared_vocabulary_is_moved_once(tmp_path: Path) -> None:
    rows = pa.table({"to": ["a", "b"], "from": ["b", "c"]})
    groups = {"to": {"column": "to", "share": "from"}, "from": {"column": "from"}}
    codecs = fit({"version": 1, "groups": groups}, rows).encoder.codecs
    moved = with_keys_in_files(codecs, tmp_path, 0)
    assert moved["to"].vocabulary is moved["from"].vocabulary is not codecs["to"].vocabulary
    assert files_below(tmp_path) == {"keys/to.arrow"}


@pytest.mark.slow
def test_keys_in_files_take_no_memory(tmp_path: Path) -> None:
    rows = pa.table({"a": [f"a key of some length {i:09d}" for i in range(400_000)], "b": ["x"] * 400_000})
    codecs = dict(fit(schema_of({"a": "a", "b": "b"}), rows).encoder.codecs)
    before = pa.total_allocated_bytes()
    moved = with_keys_in_files(codecs, tmp_path, 1 << 20)
    del codecs
    assert pa.total_allocated_bytes() < before - 10_000_000
    vocabulary = moved["a"].vocabulary
    assert vocabulary is not None
    assert vocabulary.key(2) == "a key of some length 000000000"


def test_values_of_large_files_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    saved = fit(SAME_SCHEMA, SAME).encoder
    saved.save(tmp_path / "encoder")
    with mock.patch.object(encoded_rows, "LARGE_BYTES", 0):
        encoder = Encoder.load(tmp_path / "encoder")
    assert isinstance(encoder.values, encoded_rows.ValuesInFiles)
    assert (list(encoder.values), len(encoder.values)) == (list(saved.values), len(saved.values))
    assert not encoder.values.known
    few = encoder.only(["tags", "name"])
    assert list(few.values) == ["tags", "name"]
    assert encoder.key_counts("tags").tolist() == saved.key_counts("tags").tolist()  # which the keys' file has
    assert not encoder.values.known
    np.testing.assert_array_equal(few.values["name"].entries, saved.values["name"].entries)
    assert list(encoder.values.known) == ["name"]
    assert "nobody" not in encoder.values
    (tmp_path / "encoder" / "values" / "tags.parquet").write_bytes(b"damaged")
    refuse("holds no encoder that can be read", lambda: encoder.values["tags"])
    refuse("holds no encoder that can be read", lambda: Encoder.load(tmp_path / "encoder"))
