"""A training whose chief is killed goes on, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

import feat2vec
from feat2vec.training.checkpoint_file import open_checkpoint
from tests.cluster.cases import CASES, table
from tests.cluster.in_process import differences
from tests.short_trainings import train

SECONDS = 240
SETTINGS = {"epochs": 3, "batch_size": 16, "checkpoint_minutes": 1e-9}


def command(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """A training on a cluster of this machine."""
    words = ["train", "schema.yaml", "--data", "rows.parquet", "--out", "run", "--local-cluster", "1x2", "--sync"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.Popen([sys.executable, "-m", "feat2vec", *words, *options], cwd=folder, env=environment)


@pytest.mark.slow
def test_a_training_whose_chief_is_killed_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    schema = {**CASES["rafm"], "training": {**CASES["rafm"]["training"], **SETTINGS}}
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(schema, sort_keys=False))
    pq.write_table(table(), tmp_path / "rows.parquet")
    checkpoint, end = tmp_path / "run.partial" / "checkpoint.npz", time.monotonic() + SECONDS
    with command(tmp_path) as chief:
        try:
            while not checkpoint.exists() and chief.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            chief.kill()
    assert checkpoint.exists()
    assert not (tmp_path / "run").exists()
    with open_checkpoint(checkpoint) as read:
        assert 0 < read.facts["epoch"] * 25 + read.facts["step"] < 75  # steps
    with command(tmp_path, "--resume") as chief:
        try:
            assert chief.wait(SECONDS) == 0
        finally:
            chief.kill()
    local = train(schema, table(), tmp_path / "local", quiet=True)
    cluster = feat2vec.load(tmp_path / "run")
    assert max(differences(local, cluster).values()) < 1e-5
    losses = [[row["loss"] for row in run.history] for run in (local, cluster)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
