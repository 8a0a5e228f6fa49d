"""The bundled artworks as a TensorFlow dataset; importing this module registers it, as `artworks`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds

_DESCRIPTION = """
4,284 artworks made since 1990: artist, title, medium and year. From the open data on its collection that Tate, the
museum, has put in the public domain (CC0 1.0).
"""


class Artworks(tfds.core.GeneratorBasedBuilder):
    """Tate's artworks since 1990, one split, the rows in the order of the bundled file."""

    VERSION = tfds.core.Version("1.0.0")
    url_infos: ClassVar[dict[str, object]] = {}  # nothing is downloaded, so TFDS need not look for checksums

    def _info(self) -> Any:
        text = tfds.features.Text
        columns = {"id": np.int64, "artist": text(), "title": text(), "medium": text(), "year": np.int64}
        return tfds.core.DatasetInfo(
            builder=self,
            description=_DESCRIPTION,
            features=tfds.features.FeaturesDict(columns),
            license="CC0 1.0",
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        del dl_manager  # there is nothing to download
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        text = (files("feat2vec.table.sources.datasets") / "artworks.csv").read_bytes().decode()
        for number, row in enumerate(csv.DictReader(io.StringIO(text, newline=""))):
            yield number, {**row, "id": int(row["id"]), "year": int(row["year"])}
