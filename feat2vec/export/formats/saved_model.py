"""A TensorFlow SavedModel, which is loaded without feat2vec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from feat2vec.export.format_base import ExportFormat, ExportRequest, GroupFacts, export_format

if TYPE_CHECKING:
    from pathlib import Path

MAX_KEY_BYTES = 1 << 30  # of a group; TensorFlow was never tried with more


@export_format
@dataclass(frozen=True)
class SavedModel(ExportFormat):
    """One signature: a tensor for each column in, a vector for each group and their sum out."""

    name = "saved_model"
    summary = "raw strings and numbers in, vectors out: TensorFlow, without feat2vec"
    notes: ClassVar[Mapping[str, str]] = {"signature": "serving_default"}
    takes_rows: ClassVar[bool] = True

    max_key_bytes: int = MAX_KEY_BYTES

    def write(self, folder: Path, request: ExportRequest) -> dict[str, GroupFacts]:
        from feat2vec.export.graph.saved_model import write_saved_model

        return write_saved_model(folder, request, max_key_bytes=self.max_key_bytes)
