"""Trainings on a cluster are those of one process."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import feat2vec
from feat2vec.cluster.cluster_fitting import ClusterFitting
from feat2vec.cluster.local_copy import bytes_of, local_copy
from feat2vec.encode.encoder import fit
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.schema.reading import read_schema
from tests.cluster.cases import CASES, LOOKUPS, table
from tests.cluster.in_process import LEAST_BYTES, trained

FAST = "nce"
SERVERS = 2


def check_equal(result: dict[str, Any]) -> None:
    """The weights and losses of a training in one process and on a cluster are the same to float precision."""
    assert max(result["differences"].values()) < 1e-5, result["differences"]
    np.testing.assert_allclose(result["losses"][1], result["losses"][0], rtol=1e-5)
    numbers = [
        {name: value for name, value in metrics.items() if "second" not in name} for metrics in result["metrics"]
    ]
    assert numbers[1] == pytest.approx(numbers[0], rel=1e-4)


def check_divided(result: dict[str, Any]) -> None:
    """No server has more than its share of a table or of a slot, and what servers hold is what their variables have."""
    of_servers, tables = [0] * SERVERS, 0
    for name, variable in result["divided"]["variables"].items():
        shape, parts = variable["shape"], variable["parts"]
        assert sum(math.prod(part) for part, _ in parts) == math.prod(shape)
        assert all("/job:ps/" in device for _, device in parts), name
        is_table = any(word in name for word in ("table", "tokens", "linear", "curvatures"))
        if is_table and math.prod(shape) * 4 >= SERVERS * LEAST_BYTES:
            tables += 1
            assert len({device for _, device in parts}) == SERVERS
            assert max(part[0] for part, _ in parts) <= -(-shape[0] // SERVERS)
        for part, device in parts:
            size = 8 if any(word in name for word in ("iteration", "steps", "rows_of_pass")) else 4
            of_servers[int(device.split("task:")[1].split("/")[0])] += math.prod(part) * size
    assert tables >= 2
    assert sum(result["divided"]["shares"]) == pytest.approx(1)
    assert (
        max(result["divided"]["shares"]) < 0.6
    )  # of small tables, the first rows of which are on one server or another
    for size, counted in zip(of_servers, result["divided"]["bytes"], strict=True):
        assert size <= counted <= size + 20_000  # noise, and counts


def test_a_training_on_a_cluster_is_that_of_one_process(tmp_path: Path) -> None:
    result = trained(tmp_path, [FAST])[FAST]
    check_equal(result)
    check_divided(result)
    local, cluster = (feat2vec.load(tmp_path / name) for name in (FAST, f"{FAST} on a cluster"))
    for group in LOOKUPS:
        neighbours, expected = (run.vectors(group).similar_by_key(f"{group[0]}1", 3) for run in (cluster, local))
        assert [key for key, _ in neighbours] == [key for key, _ in expected]


@pytest.mark.slow
def test_every_model_on_a_cluster_is_that_of_one_process(tmp_path: Path) -> None:
    results = trained(tmp_path, [name for name in CASES if name != FAST], seconds=1200)
    for result in results.values():
        check_equal(result)
        check_divided(result)
    local, cluster = (completion["groups"] for completion in results["completed"]["completion"])
    assert set(local) == set(cluster) == set(LOOKUPS)
    for group in LOOKUPS:
        assert cluster[group]["weights"] == pytest.approx(local[group]["weights"], rel=1e-2)


@pytest.mark.slow
def test_a_training_goes_on_on_a_cluster_and_in_one_process_again(tmp_path: Path) -> None:
    results = trained(
        tmp_path, ["negative_sampling", "sparse", "rafm", "averaged", "normal_weights"], "--resumed", seconds=400
    )
    for result in results.values():
        check_equal(result)


@pytest.mark.slow
def test_a_fine_tuning_on_a_cluster_is_that_of_one_process(tmp_path: Path) -> None:
    for result in trained(tmp_path, ["contrastive"], "--finetuned", seconds=400).values():
        check_equal(result)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--encoded", "--async"])
def test_workers_side_by_side_come_to_the_same_loss(tmp_path: Path, option: str) -> None:
    results = trained(
        tmp_path, ["rafm", "contrastive", "nce", "decayed", "normal_weights"], "--async", option, seconds=400
    )
    for result in results.values():
        local, cluster = (losses[-1] for losses in result["losses"])
        assert cluster == pytest.approx(local, rel=0.1)


def test_a_model_is_measured_in_a_copy_if_it_is_not_too_large() -> None:
    model = Feat2Vec.from_encoder(fit(read_schema(CASES[FAST]), table(50)).encoder)
    copy = local_copy(model)
    for weight, source in zip(copy.weights, model.weights, strict=True):
        assert weight is not source
        np.testing.assert_array_equal(weight, source)
    lines: list[str] = []
    fitting = SimpleNamespace(model=model, most_copied=100, reporter=SimpleNamespace(say=lines.append))
    assert ClusterFitting.model_to_measure(fitting) is None  # type: ignore[arg-type]
    assert re.fullmatch(
        r"nothing is measured on held-out rows: the chief would hold all weights, .* more than .*", lines[0]
    )
    fitting.most_copied = bytes_of(model)
    assert ClusterFitting.model_to_measure(fitting) is not None  # type: ignore[arg-type]
