"""Saved encoders: loaded elsewhere, damaged, altered."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from feat2vec.encode.arrays_on_disk import read_parquet, write_parquet
from feat2vec.encode.encoder import Encoder, fit
from tests.encode.tables import EVERY, EVERY_ROWS, EVERY_SCHEMA, Groups, arrow, files_below, lookup, refuse, schema_of

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


def test_an_encoder_below_a_folder_called_tilde_is_not_below_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    table = pa.table({"key": ["a"]})
    write_parquet(table, Path("~/a.parquet"))
    assert read_parquet(Path("~/a.parquet")) == table
    assert not list((tmp_path / "home").iterdir())
