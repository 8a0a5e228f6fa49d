"""TensorFlow is quiet, and does not import what it can do without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import PROGRAM


@pytest.mark.slow
def test_tensorflow_says_nothing_on_standard_error(folder: Path) -> None:
    """In the environment that a user has, in which nothing keeps TensorFlow quiet."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TF_")}
    commands = (
        "train films.yaml --data films.csv --out run --set training.epochs=1",
        "similar run director Ana",
        "embed run --data films.csv --out vectors.parquet",
        "export run --format saved_model --out model",
    )
    told = []
    for words in commands:
        command = [*PROGRAM, *words.split()]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        told.append(done.stderr.splitlines())
    assert [line.split(":")[0].split(" ")[0] for line in told[0]] == ["4", "director", "cast", "score", "epoch"]
    assert told[1:] == [[], [], []]


@pytest.mark.slow
def test_what_tensorflow_can_do_without_is_imported_only_by_those_who_use_it() -> None:
    code = """
import sys
from feat2vec.cli.tensorflow_import import OPTIONAL_PACKAGES, import_tensorflow
import_tensorflow()
import feat2vec.training.train, keras
assert not [name for name in OPTIONAL_PACKAGES if name in sys.modules]
import pandas, sklearn.linear_model
assert pandas.DataFrame({"a": [1]}).a[0] == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)
