"""`WarmStart`: a training that begins with the encoder and the vectors of another run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from feat2vec.arrays import Array
from feat2vec.encode.columns import check_columns
from feat2vec.encode.encoder import Encoded
from feat2vec.model.large_variables import pieces
from feat2vec.schema.options import Schema
from feat2vec.table.table import open_table
from feat2vec.training.fingerprints import hash_of
from feat2vec.training.run_folder import TrainedRun


class WarmStart(NamedTuple):
    """What a training begins with instead of a new encoder and random vectors.

    Args:
        run: The run whose encoder and vectors are taken. The new schema has some of its groups.
        freeze: Leave the vectors as they are.

    """

    run: TrainedRun
    freeze: bool = False

    def encode(self, schema: Schema, source: object, folder: Path | None, memory: str) -> Encoded:
        """Rows, some columns of which may be missing, by the other run's encoder; only a target's classes are new."""
        table = open_table(source)
        check_columns(schema, table, with_groups=False)
        encoder = replace(self.run.fitted.only(list(schema.groups)), schema=schema, classes=None)
        return encoder.encode(table, folder, memory)

    def facts(self) -> dict[str, object]:
        """What the training begins with, for its manifest and checkpoints."""
        return {"weights": hash_of(self._weights()), "freeze": self.freeze}

    def _weights(self) -> Iterator[Array]:
        for variable in self.run.model.weights:
            for _, values in pieces(variable):
                yield values
