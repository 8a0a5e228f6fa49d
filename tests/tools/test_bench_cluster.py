"""The measurement of a cluster: which process is what, and what a step takes."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("bench_cluster")


def test_an_epoch_with_a_checkpoint_is_not_measured(bench: ModuleType) -> None:
    moments = [
        bench.Moment(10.0, {"chief": 1.0, "servers": 2.0}, 1000, {"chief": 5}),
        bench.Moment(12.0, {"chief": 1.5, "servers": 3.0}, 2000, {"chief": 6}),
        bench.Moment(22.0, {"chief": 9.5, "servers": 9.0}, 9000, {"chief": 7}),  # whole tables came
        bench.Moment(26.0, {"chief": 10.0, "servers": 10.5}, 10_020, {"chief": 8}),
    ]
    facts = bench.spent_a_step(moments, steps=10)
    assert facts["epochs"] == 2
    assert facts["steps_per_second"] == pytest.approx(20 / 6)
    assert facts["steps_per_second_of_the_fastest_epoch"] == pytest.approx(10 / 2)
    assert facts["processor_seconds_a_step"] == pytest.approx({"chief": 0.05, "servers": 0.125})
    assert facts["bytes_a_step"] == pytest.approx(101)
    assert facts["cores"] == pytest.approx((0.5 + 1 + 0.5 + 1.5) / 6)
    assert facts["most_resident_bytes"] == {"chief": 8}


def test_the_processes_of_a_cluster_are_known_by_their_configuration(bench: ModuleType) -> None:
    work = "import time; end = time.process_time() + 0.1\nwhile time.process_time() < end: pass\ninput()"
    configuration = json.dumps({"task": {"type": "ps", "index": 0}, "cluster": {}})
    environment = {**os.environ, "TF_CONFIG": configuration}
    before = bench.moment(os.getpid())
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", work], stdin=pipe, stdout=pipe, env=environment) as process:
        while bench.processor_seconds(process.pid) < 0.1:
            os.sched_yield()
        after = bench.moment(os.getpid())
        process.communicate(b"\n")
    assert set(before.processor) == {"chief"}
    assert after.processor["servers"] >= 0.1
    assert after.most_resident["servers"] > 1 << 20


def test_a_training_that_fails_says_why(bench: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="No such command 'trian'"):
        bench.measure(["trian"], 1)


def test_a_calibration_of_another_training_is_refused(bench: ModuleType) -> None:
    path = str(TOOLS / "simulation" / "two_cores.json")
    message = (
        r"is of \{'groups': 8, 'rank': 64\}, not of \{'groups': 8, 'rank': 16\}\nwrite one .* ANOTHER_FILE --groups 8"
    )
    with pytest.raises(ValueError, match=message):
        bench.read_calibration(path, {"groups": 8, "rank": 16})


def test_a_calibration_that_is_not_there_is_told_with_the_command_that_writes_it(tmp_path: Path) -> None:
    words = [sys.executable, str(TOOLS / "bench_cluster.py"), str(tmp_path / "none.json"), "--rank", "16"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    what, remedy = done.stderr.splitlines()
    assert what == f"{tmp_path}/none.json: No such file or directory"
    shape = "--groups 8 --rank 16 --batch 4096"
    assert remedy == f"write one with `python tools/simulate_cluster.py --calibrate {tmp_path}/none.json {shape}`"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"c.json: Expecting property name .*"),
        ("[]", r"c.json: has no 'costs'"),
        ('{"costs": {}}', r"(chief|costs): needs .*"),
    ],
)
def test_what_is_no_calibration_is_told_in_two_lines(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.json").write_text(text)
    with pytest.raises(ValueError, match=rf"^{message}\nwrite one with `[^\n]* --calibrate c.json --rank 16`$"):
        bench.read_calibration("c.json", {"rank": 16})


def test_a_calibration_without_measurements_is_told(bench: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text((TOOLS / "simulation" / "two_cores.json").read_text().replace('"local_step"', '"step"'))
    with pytest.raises(ValueError, match=r"c.json: has no measurement 'local_step'\nwrite one with `"):
        bench.read_calibration(str(path), {"groups": 8, "rank": 64, "batch": 4096})
