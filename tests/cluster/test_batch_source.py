"""Where workers have their rows from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from feat2vec.cluster.batch_source import ChiefBatches, FolderBatches, Piece, batch_source
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.schema.reading import read_schema
from feat2vec.shards.encoded_folder import EncodedTable
from tests.cluster.cases import CASES, GOOD, LOOKUPS, schema, table
from tests.cluster.folders import encoded_table

ROWS = 150
WEIGHED = schema(LOOKUPS, {**GOOD, "class_weights": "balanced"})


def learnt(folder: Path, document: dict[str, Any]) -> tuple[Feat2Vec, Any, Any, EncodedTable]:
    """A model, its rows, their batches, and the folder that they are in."""
    encoded = encoded_table(folder / "encoded", document, table(ROWS))
    rows = encoded.encoded(
        read_schema(document, settings=["training.batch_size=16"]), None, lambda before, now: f"{before} {now}"
    )
    model = Feat2Vec.from_encoder(rows.encoder)
    model.learn_from(rows)
    return model, rows, model.batches(rows), encoded


def used(source: Any, model: Feat2Vec, pieces: list[Piece]) -> tuple[list[bytes], list[int]]:
    """The rows that steps take, each as bytes, and the numbers that they draw by."""
    batches: list[bytes] = []
    numbers: list[int] = []

    def step(batch: Any) -> None:
        entries = tf.concat([tf.cast(part, tf.int64) for part in batch[0].values()], axis=1).numpy()
        labels = [np.asarray(label).reshape(len(entries), -1).astype(np.float64) for label in batch[1:]]
        batches.extend(row.tobytes() for row in np.concatenate([entries, *labels], axis=1))
        assert model.step_number is not None
        numbers.append(int(model.step_number))

    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        function = source.function(model, step)
        for piece in pieces:
            function(*piece.arguments)
    finally:
        tf.config.run_functions_eagerly(before)
    return batches, numbers


def pieces_of(source: Any, epoch: int, first_step: int) -> list[Piece]:
    """The pieces of the rest of an epoch, which have 1, 3, 1, 3, ... steps where the source can."""
    of_epoch, pieces = source.epoch(epoch, first_step), [Piece(first_step, ())]
    while pieces[-1].done < source.batches.steps:
        pieces.append(of_epoch.piece(3 if len(pieces) % 2 else 1))
    return pieces[1:]


@pytest.mark.filterwarnings("ignore:Even though")
@pytest.mark.parametrize("case", ["linear", pytest.param("nce", marks=pytest.mark.slow)])
def test_each_row_is_used_once_in_an_epoch(case: str, tmp_path: Path) -> None:
    model, rows, batches, encoded = learnt(tmp_path, CASES[case])
    of_folder, of_chief = batch_source(model, rows, batches, encoded), batch_source(model, rows, batches, None)
    assert isinstance(of_folder, FolderBatches)
    assert isinstance(of_chief, ChiefBatches)
    expected = None
    for source in (of_chief, of_folder):
        pieces = pieces_of(source, 3, 0)
        assert pieces[-1].done == batches.steps
        all_rows, numbers = used(source, model, pieces)
        assert len(all_rows) == ROWS
        assert numbers == [3 * batches.steps + step for step in range(batches.steps)]
        expected = sorted(all_rows) if expected is None else expected
        assert sorted(all_rows) == expected
        resumed, _ = used(source, model, pieces_of(source, 3, pieces[2].done))
        assert sorted(all_rows[-len(resumed) :]) == sorted(resumed)  # in pieces of other sizes
        assert 0 < len(resumed) < ROWS
    assert model.step_number is None


@pytest.mark.parametrize("document", [WEIGHED, {**CASES["nce"], "noise": {"joint": [["who", "film"]]}}])
def test_rows_that_records_do_not_hold_come_from_the_chief(document: dict[str, Any], tmp_path: Path) -> None:
    encoded = encoded_table(tmp_path / "encoded", CASES["nce" if "noise" in document else "linear"], table(ROWS))
    rows = encoded.encoded(read_schema(document), None, lambda before, now: f"{before} {now}")
    model = Feat2Vec.from_encoder(rows.encoder)
    model.learn_from(rows)
    assert isinstance(batch_source(model, rows, model.batches(rows, 16), encoded), ChiefBatches)
