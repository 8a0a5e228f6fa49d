"""What `evaluate` refuses, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation.ranking import nearest, rank
from tests.commands import feat2vec as command
from tests.evaluation.tables import films


def test_what_cannot_be_evaluated_is_said(run: feat2vec.Run) -> None:
    test = films(20, 1)
    with pytest.raises(UserError, match="there is no group 'directr'; did you mean 'director'"):
        rank(run, test, "directr")
    with pytest.raises(UserError, match="'cast' is the target, which it would give away"):
        rank(run, test, "cast", ["cast"])
    with pytest.raises(UserError, match="holds no numbers"):
        nearest(run, test, "cast")
    with pytest.raises(UserError, match="has no column 'director', which the target 'director' needs"):
        rank(run, test.drop_columns(["director"]), "director")


def test_the_command_prints_one_object(run: feat2vec.Run, tmp_path: Path) -> None:
    pq.write_table(films(60, 3), tmp_path / "test.parquet")
    words = ["evaluate", run.folder, "--data", tmp_path / "test.parquet", "--task", "rank"]
    words += ["--target", "director", "--given", "cast, year", "--json"]
    done = command(*words)
    facts = json.loads(done.stdout)
    assert list(facts) == [
        "task", "target", "given", "similarity", "n", "skipped_unseen", "skipped_empty", "candidates", "mpr", "mrr",
        "top1", "recall_at_10", "median_rank",
    ]  # fmt: skip
    assert facts["given"] == ["cast", "year"]
    assert done.stderr == ""
