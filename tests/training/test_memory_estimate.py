"""What training will hold: the estimate against the weights that are made, and what is refused."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.encode.encoder import Encoded
from feat2vec.encode.process_memory import release_memory
from feat2vec.errors import UserError
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.sizes import BYTES_OF_WEIGHT, least_weights
from feat2vec.schema.reading import read_schema
from feat2vec.training.memory_estimate import (
    BASE_BYTES,
    check_room,
    estimate,
    free_memory,
    resident_memory,
)

GROUPS: dict[str, Any] = {
    "who": {"column": "who"},
    "tags": {"column": "tags", "extractor": {"type": "lookup", "split": " "}},
    "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 9, "filters": 7, "widths": [1, 2]}},
    "order": {
        "column": "title",
        "extractor": {"type": "text_attention", "token_dim": 8, "units": 9, "blocks": 2, "positions": "learned"},
    },
    "size": {"column": "size", "extractor": {"type": "numeric", "hidden": [30, 20]}},
}


def encoded(**options: Any) -> Encoded:
    rng = np.random.default_rng(0)
    rows = pa.table(
        {
            "who": [f"w{i * i % 37}" for i in range(200)],
            "tags": [f"a{i % 5} b{i % 11}" for i in range(200)],
            "title": [f"the {i % 13} of {i % 7}" for i in range(200)],
            "size": rng.normal(size=200),
            "kind": [f"k{i % 6}" for i in range(200)],
        }
    )
    return feat2vec.fit({"version": 1, "groups": GROUPS, **options}, rows)


CASES: dict[str, dict[str, Any]] = {
    "fm": {"model": {"dim": 40}},
    "rafm": {"model": {"ranks": [4, 16, 64]}},
    "truncate": {"model": {"ranks": [4, 16, 64], "level_sharing": "truncate"}},
    "activation": {"model": {"dim": 40, "bias": True, "activation": {"count": 11}}},
    "softmax": {"model": {"dim": 40}, "objective": {"type": "softmax", "target": "kind"}},
    "mlp": {"model": {"dim": 40}, "objective": {"type": "softmax", "target": "kind"}, "head": {"type": "mlp"}},
}


def tables_of(model: Feat2Vec) -> list[Any]:
    return [weight for extractor in model.extractors for weight in extractor.saved_tables().values()]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("case", "optimizer", "copies"),
    [
        *((case, optimizer, copies) for case in CASES for optimizer, copies in (("adagrad", 2), ("adam", 3))),
        ("activation", "ftrl", 2),
        ("activation", "sgd", 1),
    ],
)
def test_the_estimate_is_little_less_than_the_weights_and_slots(case: str, optimizer: str, copies: int) -> None:
    rows = encoded(**CASES[case], training={"optimizer": optimizer})
    weights = ("the group", "the head", "6 classes")
    estimated = sum(use.size for use in estimate(rows) if use.description.startswith(weights))
    if optimizer == "adam":  # beside the slots each row of a table has a count of its steps
        estimated -= 8 * sum(int(weight.shape[0]) for weight in tables_of(Feat2Vec.from_encoder(rows.encoder)))
    weight_count = sum(int(np.prod(weight.shape)) for weight in Feat2Vec.from_encoder(rows.encoder).weights)
    assert 0.9 * weight_count <= estimated / BYTES_OF_WEIGHT / copies <= weight_count


@pytest.mark.thinned(2)
@pytest.mark.parametrize("case", CASES)
def test_a_model_has_at_least_the_least_weights(case: str) -> None:
    """A file with fewer is refused before the model is made; it must never be one that training wrote."""
    encoder = encoded(**CASES[case]).encoder
    weight_count = sum(int(np.prod(weight.shape)) for weight in Feat2Vec.from_encoder(encoder).weights)
    assert (0.1 if case == "mlp" else 0.9) * weight_count <= least_weights(encoder) <= weight_count


def test_the_slots_of_vectors_are_those_that_the_estimate_counts() -> None:
    rows = encoded(**CASES["activation"])
    options: list[tuple[Any, int]] = [
        ("adagrad", 1),
        ("adam", 2),
        ("sgd", 0),
        ({"type": "sgd", "momentum": 0.9}, 1),
        ({"type": "ftrl", "l1": 1.0}, 1),  # and another one of linear terms
        ({"type": "ftrl", "l1": 1.0, "penalize": "tables"}, 2),
    ]
    for optimizer, slots in options:
        data = {"version": 1, "groups": GROUPS, **CASES["activation"], "training": {"optimizer": optimizer}}
        model = Feat2Vec.from_encoder(replace(rows.encoder, schema=read_schema(data)))
        assert model.schema.training.optimizer.slots == slots
        model.compile()
        model.optimizer.build(model.trainable_variables)
        table = model.extractors[0].tables[0]
        assert table.shape[0] < model.extractors[0].linear.shape[0]  # some keys have no vector, and no slots
        assert [variable.shape for variable in model.optimizer.variables].count(table.shape) == slots


def test_what_has_no_room_is_refused_with_what_is_largest() -> None:
    uses = list(estimate(encoded(model={"ranks": [4, 60_000]}, noise={"sharing": "batch", "negatives": 1})))
    total = sum(use.size for use in uses)
    check_room(uses, free=total - 1000, resident=1000)
    check_room(uses, free=None, resident=1000)
    with pytest.raises(
        UserError, match=r"at least \d+ MB .*: the group '\w+', .* take .* MB\nuse a smaller model\.ranks"
    ):
        check_room(uses, free=total - 1001, resident=1000)


def test_the_estimate_counts_each_copy_and_what_is_beside_the_model() -> None:
    def size(what: str, **options: Any) -> int:
        return sum(use.size for use in estimate(encoded(**options)) if use.description.startswith(what))

    plain = size("the group", training={})
    assert size("attention", training={"batch_size": 50}) == 2 * 4 * 50 * 2 * 4 * 4**2  # 2 blocks, 4 heads, 4 tokens
    assert size("the group", training={"averaging": 0.9, "patience": 2}) == plain  # averages and the best are on disk
    assert size("Python") == BASE_BYTES
    rows = encoded()
    keys = sum(c.vocabulary.keys.nbytes for c in rows.encoder.codecs.values() if c.vocabulary is not None)
    entries = sum(values.entries.nbytes for values in rows.values.values())
    assert 2 * (keys + entries) < size("keys and values") < 8 * (keys + entries)
    assert size("blocks") == 200 * (6 * 4 * 5 + 40)


def test_resident_memory_is_that_of_this_process(tmp_path: Path) -> None:
    before = resident_memory()
    array = np.ones(8 << 20)
    assert 60 << 20 < resident_memory() - before < 80 << 20
    del array
    assert resident_memory(tmp_path / "none") == 0
    release_memory()


def test_free_memory_is_the_smaller_of_the_machines_and_the_containers(tmp_path: Path) -> None:
    machine, container = tmp_path / "machine", tmp_path / "container"
    machine.write_text("MemTotal: 9 kB\nMemAvailable:   3 kB\nSwapFree:  2 kB\n")
    assert free_memory(machine, container) == 5 * 1024
    container.write_text("max\n")
    assert free_memory(machine, container) == 5 * 1024
    container.write_text("4096\n")
    assert free_memory(machine, container) == 4096
    machine.unlink()  # a system that is not Linux: all of the machine's memory
    container.unlink()
    assert (free_memory(machine, container) or 1 << 30) >= 1 << 28


FAULTS_OF_ARRAYS = """
import resource
import numpy as np
from feat2vec.training.memory_estimate import reused_memory
def faults_of_arrays():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        np.ones(250_000)  # 2 MB, in no hole of the heap
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
held = np.ones(100_000_000 // 8)
print(faults_of_arrays())
with reused_memory():
    print(faults_of_arrays())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
def test_arrays_use_the_memory_of_those_before_them() -> None:
    """In a process of its own, whose heap has no holes that are large enough."""
    said = subprocess.run([sys.executable, "-c", FAULTS_OF_ARRAYS], capture_output=True, text=True, check=True).stdout
    by_themselves, reused = map(int, said.split())
    assert reused < 5_000  # 488 pages for each array that the system gives
    assert by_themselves > reused
