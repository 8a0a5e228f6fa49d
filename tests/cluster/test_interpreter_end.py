"""The interpreter of a chief ends, whatever its cluster was doing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Ctrl-C comes while workers compute steps; the program goes on to its own end.
PROGRAM = """
import signal, sys
import keras
import feat2vec
from feat2vec.cluster.local_cluster import ClusterSize, local_cluster
from tests.cluster.cases import LOOKUPS, schema, table

class Interrupt(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.05)

with local_cluster(ClusterSize(2, 1)) as addresses:
    try:
        document = schema(LOOKUPS, {"type": "nce"}, training={"epochs": 10_000})
        feat2vec.train(document, table(4000), cluster=addresses, callbacks=[Interrupt()], quiet=True)
    except KeyboardInterrupt:
        print("interrupted")
sys.exit(5)
"""


@pytest.mark.slow
def test_a_program_ends_with_its_own_status_after_an_interrupted_training() -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, timeout=240, cwd=root
    )
    assert (done.returncode, done.stdout.strip()) == (5, "interrupted"), done.stderr[-3000:]
