"""The bench of scale: its tables are made once, part by part, and what was measured is not measured again."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("bench_scale")


def test_a_table_is_made_part_by_part(bench: ModuleType, tmp_path: Path) -> None:
    bench.generate(tmp_path / "data", 250, 40, 100)
    parts = sorted((tmp_path / "data").iterdir())
    assert [pq.read_metadata(part).num_rows for part in parts] == [100, 100, 50]
    assert pq.read_metadata(parts[0]).row_group(0).column(0).compression == "ZSTD"
    contents = [part.read_bytes() for part in parts]
    parts[1].unlink()
    changed = parts[0].stat().st_mtime_ns
    bench.generate(tmp_path / "data", 250, 40, 100)
    assert [part.read_bytes() for part in parts] == contents
    assert parts[0].stat().st_mtime_ns == changed
    rows = pq.read_table(tmp_path / "data")
    assert set(rows["item"].to_pylist()) == {f"item-{i}" for i in range(40)}  # each key occurs
    assert rows["tags"].type == pa.list_(pa.string())
    assert set(rows.column_names) == set(bench.SCHEMA)


def test_a_command_is_measured(bench: ModuleType, tmp_path: Path) -> None:
    work = "import time; held = bytearray(200 << 20); time.sleep(0.5); open('/dev/zero', 'rb').read(64 << 20)"
    facts = bench.measured([sys.executable, "-c", work], tmp_path / "log")
    assert set(facts) == {"seconds", "cpu_seconds", "peak", "held", "read"}
    assert facts["peak"] > 200
    assert facts["held"] > 190
    with pytest.raises(SystemExit, match="ended with 256: wrong"):
        bench.measured([sys.executable, "-c", "import sys; sys.exit(print('wrong') or 1)"], tmp_path / "log")


def test_what_was_measured_is_not_measured_again(bench: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_text(json.dumps({"encode": {"peak": 5, "held": 3}}))
    options = argparse.Namespace(
        values=9, dim=2, epochs=1, memory="1GB", part_rows=50, only=["encode"], index=[], keep=False
    )
    facts = bench.bench(tmp_path, 60, options)
    assert facts == {"encode": {"peak": 5, "held": 3}}
    assert not (tmp_path / "data").exists()
    above = bench.with_base({"encode": {"peak": 7, "held": 4}, "sizes": {"keys": 1}}, facts)
    assert above["encode"] == {"peak": 7, "held": 4, "peak_above_base": 2, "held_above_base": 1}
    assert above["sizes"] == {"keys": 1}


@pytest.mark.slow
def test_the_bench_measures_commands_on_a_small_table(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tmp_path), "--rows", "2000", "--values", "300", "--dim", "4", "--only", "encode,train,similar"]
    monkeypatch.setattr("sys.argv", ["bench_scale.py", *words])
    bench.main()
    facts = json.loads(capsys.readouterr().out)
    rows = facts["rows"]["2000"]
    assert set(rows) == {"encode", "train", "sizes", "similar"}
    assert rows["sizes"]["keys"] > 300
    assert {"peak_above_base", "held_above_base"} <= set(rows["train"])
