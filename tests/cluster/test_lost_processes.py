"""A worker, a server or the chief is killed at a random moment: training ends with all rows and about the same loss."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml

import feat2vec
from feat2vec.cluster.addresses import Task
from feat2vec.run import Run
from tests.cluster.folders import encoded_table
from tests.cluster.processes import Processes

SECONDS = 150  # of a test
ROWS = 3000
SCHEMA = {
    "version": 1,
    "model": {"dim": 4, "bias": True},
    "groups": {"who": {"column": "who"}, "place": {"column": "place"}, "number": {"column": "number"}},
    "objective": {"type": "logistic", "target": "good"},
    "training": {"validation": 0, "epochs": 3, "batch_size": 16, "checkpoint_minutes": 1e-9},
}
WORDS = ("people.yaml", "--data", "encoded", "--out", "run")


def people(seed: int = 4, rows: int = ROWS) -> pa.Table:
    """Rows with a number of their own each, whose label follows, mostly, from who they are."""
    rng = np.random.default_rng(seed)
    who, place = rng.zipf(1.4, rows) % 40, rng.integers(0, 9, rows)
    good = (who % 2 == 0) ^ (rng.random(rows) < 0.15)
    numbers = [f"n{seed} {i}" for i in range(rows)]
    names = {"who": [f"w{w}" for w in who], "place": [f"p{p}" for p in place], "number": numbers}
    return pa.table({**names, "good": good.astype(np.int64)})


def log_loss(run: Run, rows: pa.Table) -> float:
    """The loss of a run's predictions of rows."""
    good = rows["good"].to_numpy()
    probability = np.asarray(run.predict(rows)["probability"], np.float64)
    return float(-np.log(np.where(good == 1, probability, 1 - probability)).mean())


def used_rows(run: Run) -> int:
    """How many rows were learnt from: the linear term of their number, which begins at 0, is no longer 0."""
    unseen = 1
    (linear,) = [weight for weight in run.model.weights if tuple(weight.shape) == (unseen + ROWS, 1)]
    return int(np.count_nonzero(linear.numpy()[unseen:]))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return feat2vec.train(SCHEMA, people(), tmp_path_factory.mktemp("local") / "run", quiet=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "workers", "servers", "seed"),
    [(Task("worker", 1), 2, 1, 0), (Task("ps", 1), 1, 2, 1), (Task("chief", 0), 1, 1, 2)],
    ids=str,
)
def test_training_ends_although_a_process_is_killed(
    tmp_path: Path, local: Run, victim: Task, workers: int, servers: int, seed: int
) -> None:
    (tmp_path / "people.yaml").write_text(yaml.safe_dump(SCHEMA))
    encoded_table(tmp_path / "encoded", SCHEMA, people(), shard_bytes=8000)
    rng = np.random.default_rng(seed)
    epochs, delay = rng.integers(0, 2), rng.uniform(0, 0.5)  # of the three epochs those that have ended, and seconds
    with Processes(tmp_path, workers, servers, SECONDS) as processes:
        processes.start_nodes()
        processes.start(Task("chief", 0), *WORDS)
        begun = f"epoch {epochs}/" if epochs else f"{ROWS:,} rows"
        processes.wait_for(lambda: begun in processes.messages)
        time.sleep(delay)
        assert processes.children[Task("chief", 0)].poll() is None, "the kill came too late"
        processes.kill(victim)
        assert processes.train(*WORDS) == 0, processes.messages[-3000:]
        ends = processes.chief_ends
    assert ends == {"worker": [0], "ps": [75, 0], "chief": [-9, 0]}[victim.kind], processes.messages[-3000:]
    run = feat2vec.load(tmp_path / "run")
    assert used_rows(run) == used_rows(local) == ROWS
    for rows in (people(), people(seed=5)):  # those that it has learnt from, and new ones
        assert log_loss(run, rows) == pytest.approx(log_loss(local, rows), rel=0.02)
