"""A folder of encoded rows gives back what `fit` made, and refuses what is missing, changed or of another schema."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feat2vec.encode.encoder import Encoded, fit
from feat2vec.sampling.joint_values import joint_values
from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import parse_document
from feat2vec.shards.encoded_folder import EncodedTable, encoding_facts, is_encoded_folder, read_joint
from feat2vec.table.table import open_table
from feat2vec.training.encoding import EncodingRequest, encode_into
from feat2vec.training.fingerprints import first_difference
from tests.commands import feat2vec
from tests.encode.tables import EVERY_ROWS, EVERY_SCHEMA, SAME, SAME_SCHEMA, arrow, refuse, snapshot
from tests.training.tables import SCHEMA, table

JOINT = read_schema({**SCHEMA, "noise": {"negatives": 4, "joint": [["who", "place"], ["title", "tags"]]}})


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of many small shards, with joint sets."""
    folder = tmp_path_factory.mktemp("encoded") / "people"
    encode_into(folder, EncodingRequest(JOINT, shard_bytes=1000), table(300))
    return folder


@pytest.fixture
def copy(kept: Path, tmp_path: Path) -> Path:
    shutil.copytree(kept, tmp_path / "copy")
    return tmp_path / "copy"


def again(folder: Path, schema: Any) -> Encoded:
    return EncodedTable(folder).encoded(schema, None, first_difference)


SHARED = read_schema(
    {
        **{"version": 1, "model": {"ranks": [2, 4], "levels": {"columns": {"who": "good"}}}},
        "groups": {
            "who": {"column": "who"},
            "place": {"column": "place"},
            "also": {"column": "place", "share": "place"},
        },
    }
)
LEVELS = table(40).set_column(4, "good", [[1 + len(who or "") % 2 for who in table(40)["who"].to_pylist()]])


@pytest.mark.parametrize(("schema", "rows"), [(EVERY_SCHEMA, arrow(EVERY_ROWS)), (SAME_SCHEMA, SAME), (SHARED, LEVELS)])
def test_rows_of_all_kinds_of_groups_come_back(tmp_path: Path, schema: Any, rows: Any) -> None:
    if schema is EVERY_SCHEMA:
        rows = rows.set_column(rows.column_names.index("piped"), "piped", [["a", "b", None] * 10])
    encode_into(tmp_path / "folder", EncodingRequest(schema, shard_bytes=400), rows)
    assert snapshot(again(tmp_path / "folder", schema)) == snapshot(fit(schema, rows))
    assert len(list((tmp_path / "folder" / "_shards").iterdir())) > 1


def test_joint_tuples_are_in_the_records_and_beside_them(kept: Path) -> None:
    encoded, manifest = fit(JOINT, table(300)), EncodedTable(kept).manifest
    joints = [joint_values(encoded.rows, groups) for groups in ((0, 2), (3, 1))]
    records = [np.fromfile(kept / shard["file"], "<i4").reshape(-1, 6) for shard in manifest["shards"]]
    assert manifest["record_bytes"] == 24
    assert [len(record) for record in records] == [41] * 7 + [13] == [shard["rows"] for shard in manifest["shards"]]
    for place, joint in enumerate(joints):
        values, counts = read_joint(kept, place)
        np.testing.assert_array_equal(values, joint.values())
        np.testing.assert_array_equal(counts, joint.counts)
        np.testing.assert_array_equal(np.concatenate(records)[:, 4 + place], joint.ids(encoded.rows))


@pytest.mark.parametrize(
    ("option", "is_same"),
    [
        ("training.epochs=9", True),
        ("model.dim=3", True),
        ("noise.negatives=2", True),
        ("objective.type=contrastive", True),
        ("groups.title.extractor.filters=2", True),
        ("groups.tags.extractor.item_dropout=0.5", True),
        ("groups.tags.extractor.max_items=2", False),
        ("groups.who.extractor.min_count=2", False),
        ("groups.title.extractor.max_tokens=5", False),
        ("groups.title.columns=who", False),
    ],
)
def test_what_decides_no_id_may_change(option: str, is_same: bool) -> None:
    changed = read_schema(JOINT.resolved(), settings=[option])
    assert (encoding_facts(changed) == encoding_facts(JOINT)) == is_same


def test_a_schema_that_encodes_in_another_way_is_told_where(kept: Path) -> None:
    other = read_schema(JOINT.resolved(), settings=["groups.who.extractor.min_count=2"])
    problems = refuse("was encoded by another schema", lambda: again(kept, other))
    assert problems[1].strip() == "groups.who.extractor.min_count: 1 before, 2 now"


def remove_a_shard(folder: Path) -> None:
    (folder / "_shards" / "rows-00003.bin").unlink()


def change_a_shard(folder: Path) -> None:
    path = folder / "_shards" / "rows-00003.bin"
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1")


def cut_a_shard(folder: Path) -> None:
    path = folder / "_shards" / "rows-00007.bin"
    path.write_bytes(path.read_bytes()[:-24])


def change_a_vocabulary(folder: Path) -> None:
    shutil.copyfile(folder / "_encoder/vocabulary/who.parquet", folder / "_encoder/vocabulary/place.parquet")


def change_the_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"rows": 41', '"rows": 40', 1))


def newer_format(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))


def remove_the_sample(folder: Path) -> None:
    shutil.rmtree(folder / "_sample")


def spoil_the_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("{")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (remove_a_shard, r"rows-00003\.bin: is missing; copy it again, or encode the table again"),
        (change_a_shard, r"rows-00003\.bin: is not the file that was encoded into copy"),
        (cut_a_shard, r"rows-00007\.bin: is not the file that was encoded"),
        (change_a_vocabulary, r"place\.parquet: is not the file that was encoded"),
        (change_the_manifest, r"manifest\.json: was changed after encoding"),
        (newer_format, r"copy: was encoded in format 2; this feat2vec reads 1"),
        (remove_the_sample, r"rows\.parquet: is missing"),
        (spoil_the_manifest, r"copy: cannot be read as encoded rows"),
    ],
)
def test_a_damaged_folder_is_refused(copy: Path, spoil: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    spoil(copy)
    assert is_encoded_folder(copy)
    assert len(refuse(message, lambda: again(copy, JOINT))) <= 5
    done = feat2vec("train", "--data", copy, "--out", tmp_path / "run", "--quiet", code=2)
    assert 1 <= len(done.stderr.splitlines()) <= 5
    assert not (tmp_path / "run").exists()
    assert not list(tmp_path.glob("run*"))


def test_encoded_rows_are_no_table(kept: Path) -> None:
    folder = EncodedTable(kept)
    assert list(folder.columns) == table(1).column_names
    refuse("holds encoded rows, which `feat2vec train` starts from", lambda: fit(SCHEMA, folder))
    refuse("holds encoded rows, which `feat2vec train` starts from", lambda: open_table(str(kept)))


def test_groups_may_stand_in_another_order(kept: Path) -> None:
    """As in a schema that a program has written again."""
    text: Any = parse_document(JOINT.resolved()).data
    groups = {name: text["groups"][name] for name in reversed(text["groups"])}
    turned = read_schema({**text, "groups": groups, "noise": {"negatives": 4}})
    assert list(turned.groups) != list(JOINT.groups)
    assert snapshot(again(kept, turned)) == snapshot(fit(turned, table(300)))
