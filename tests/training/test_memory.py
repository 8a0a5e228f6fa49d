"""What training will hold: estimates against the weights that are made, and what the machine says is free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.encode.encoder import Encoded
from feat2vec.errors import UserError
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.sizes import BYTES_OF_WEIGHT, least_weights
from feat2vec.training import memory
from feat2vec.training.memory import estimate, free_memory, refuse_too_large

GROUPS: dict[str, Any] = {
    "who": {"column": "who"},
    "tags": {"column": "tags", "extractor": {"type": "lookup", "split": " "}},
    "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 9, "filters": 7, "widths": [1, 2]}},
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
    "softmax": {"model": {"dim": 40}, "objective": {"type": "softmax", "target": "kind"}},
    "mlp": {"model": {"dim": 40}, "objective": {"type": "softmax", "target": "kind"}, "head": {"type": "mlp"}},
}


def tables_of(model: Feat2Vec) -> list[Any]:
    return [weight for extractor in model.extractors for weight in extractor.saved_tables().values()]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("optimizer", "copies"), [("adagrad", 2), ("adam", 3)])
def test_the_estimate_is_little_less_than_the_weights_and_slots(case: str, optimizer: str, copies: int) -> None:
    rows = encoded(**CASES[case], training={"optimizer": optimizer})
    weights = ("the group", "the head", "6 classes")
    told = sum(part.size for part in estimate(rows) if part.what.startswith(weights))
    if optimizer == "adam":  # beside the slots each row of a table has a count of its steps
        told -= 8 * sum(int(weight.shape[0]) for weight in tables_of(Feat2Vec.from_encoder(rows.encoder)))
    made = sum(int(np.prod(weight.shape)) for weight in Feat2Vec.from_encoder(rows.encoder).weights)
    assert 0.9 * made <= told / BYTES_OF_WEIGHT / copies <= made


@pytest.mark.parametrize("case", CASES)
def test_a_model_has_at_least_the_least_weights(case: str) -> None:
    """A file with fewer is refused before the model is made; it must never be one that training wrote."""
    encoder = encoded(**CASES[case]).encoder
    made = sum(int(np.prod(weight.shape)) for weight in Feat2Vec.from_encoder(encoder).weights)
    assert (0.1 if case == "mlp" else 0.9) * made <= least_weights(encoder) <= made


def test_what_has_no_room_is_refused_with_what_is_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = encoded(model={"ranks": [4, 60_000]}, noise={"sharing": "batch", "negatives": 1})
    total = sum(part.size for part in estimate(rows))
    monkeypatch.setattr(memory, "resident_memory", lambda: 1000)
    monkeypatch.setattr(memory, "free_memory", lambda: total - 1000)
    refuse_too_large(rows)
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    refuse_too_large(rows)
    monkeypatch.setattr(memory, "free_memory", lambda: total - 1001)
    with pytest.raises(
        UserError, match=r"at least \d+ MB .*: the group '\w+', .* take .* MB\nuse a smaller model\.ranks"
    ):
        refuse_too_large(rows)


def test_the_estimate_counts_each_copy_and_what_is_beside_the_model() -> None:
    def size(what: str, **options: Any) -> int:
        return sum(part.size for part in estimate(encoded(**options)) if part.what.startswith(what))

    plain = size("the group", training={})
    assert size("the group", training={"averaging": 0.9}) == plain * 3 // 2  # weights and slots, and the average
    assert size("the group", training={"averaging": 0.9, "patience": 2}) == plain * 3 // 2  # the best are on disk
    assert size("Python") == memory.BASE
    rows = encoded()
    keys = sum(c.vocabulary.keys.nbytes for c in rows.encoder.codecs.values() if c.vocabulary is not None)
    entries = sum(values.entries.nbytes for values in rows.values.values())
    assert 2 * (keys + entries) < size("keys and values") < 8 * (keys + entries)
    assert size("blocks") == 200 * (6 * 4 * 4 + 40)


def test_resident_memory_is_the_processs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = memory.resident_memory()
    held = np.ones(8 << 20)
    assert 60 << 20 < memory.resident_memory() - before < 80 << 20
    del held
    monkeypatch.setattr(memory, "STATUS", tmp_path / "none")
    assert memory.resident_memory() == 0
    memory.release_memory()


def test_free_memory_is_the_smaller_of_the_machines_and_the_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MACHINE", "LIMIT"):
        monkeypatch.setattr(memory, name, tmp_path / name)
    (tmp_path / "MACHINE").write_text("MemTotal: 9 kB\nMemAvailable:   3 kB\nSwapFree:  2 kB\n")
    assert free_memory() == 5 * 1024
    (tmp_path / "LIMIT").write_text("max\n")
    assert free_memory() == 5 * 1024
    (tmp_path / "LIMIT").write_text("4096\n")
    assert free_memory() == 4096
    (tmp_path / "MACHINE").unlink()  # no Linux: all of the machine's
    (tmp_path / "LIMIT").unlink()
    assert (free_memory() or 1 << 30) >= 1 << 28
