"""What is said of wrong clusters: by `feat2vec node` and the options of `train`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from feat2vec.cli.process import exit_code, has_cluster
from feat2vec.cluster import addresses, connection
from feat2vec.cluster.addresses import Addresses, Task, free_addresses
from feat2vec.errors import RESTART_STATUS, RestartError
from tests.commands import feat2vec
from tests.training.tables import LABELLED, table

TRAIN = ("train", "people.yaml", "--data", "people.parquet", "--out", "run")


def test_a_restart_has_an_exit_status_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(RestartError("parameter server 1 was lost", "start it again")) == RESTART_STATUS == 75
    assert capsys.readouterr().err == "parameter server 1 was lost\nstart it again\n"
    assert not has_cluster()


@pytest.mark.parametrize("text", [None, "{", '{"cluster": {}}'])
def test_a_wrong_tf_config_is_the_users_mistake(text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if text is not None:
        monkeypatch.setenv("TF_CONFIG", text)
    for words in (("node",), (*TRAIN, "--cluster")):
        error = feat2vec(*words, code=2).stderr
        assert error.startswith("TF_CONFIG: ")
        assert len(error.splitlines()) <= 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--local-cluster", "2by2"),
            "--local-cluster: expected workers x servers, each 1 to 64, such as 2x2; received '2by2'",
        ),
        (("--local-cluster", "1x1", "--cluster"), "remove one of them"),
        (("--local-cluster", "1x1", "--host", "0.0.0.0"), "remove --host"),
        (("--sync",), "--sync is for a training on a cluster; add --cluster or --local-cluster"),
        (("--host", "0.0.0.0"), "--host is for a training on a cluster"),
        (("--host", "10.0.0.1"), "is not one of"),
    ],
)
def test_options_that_contradict_each_other_are_told(options: tuple[str, ...], message: str) -> None:
    error = feat2vec(*TRAIN, *options, code=2).stderr
    assert message in error
    assert len(error.splitlines()) <= 5


def test_a_server_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent, worker, chief = free_addresses(3)
    monkeypatch.setenv("TF_CONFIG", Addresses((silent,), (worker,), chief, Task("chief", 0)).as_text())
    monkeypatch.setattr(connection, "refuse_silent_servers", partial(addresses.refuse_silent_servers, seconds=0.1))
    (tmp_path / "people.yaml").write_text(yaml.safe_dump(LABELLED))
    pq.write_table(table(40), tmp_path / "people.parquet")
    error = feat2vec(*TRAIN, "--cluster", folder=tmp_path, code=2).stderr
    assert error == f"{silent}: no parameter server answered in 0.1 s; start it with `feat2vec node`\n"
    assert not (tmp_path / "run").exists()
