"""TensorFlow datasets: their columns, splits and downloads."""

from __future__ import annotations

import importlib
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from feat2vec.table.table import open_table
from tests.table.tables import S, column, refuse, rows


@pytest.fixture(scope="module")
def tfds() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow_datasets

        importlib.import_module("tensorflow")  # TFDS imports it later, when warnings are errors again
    return tensorflow_datasets


@pytest.fixture(scope="module")
def tiny_table(tfds: Any) -> str:
    f = tfds.features

    class TinyTable(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> Any:
            features = {
                **{"text": f.Text(), "label": f.ClassLabel(names=["no", "yes"]), "n": np.int32, "ok": np.bool_},
                **{"tags": f.Sequence(f.Text()), "labels": f.Sequence(f.ClassLabel(names=["p", "q"])), "x": np.float32},
                **{"vector": f.Tensor(shape=(3,), dtype=np.float32), "pair": f.Sequence(f.Text(), length=2)},
                **{"in": {"a": np.int64, "b": f.Text()}, "seq": f.Sequence({"u": np.int64, "w": f.Text()})},
                **{"deep": f.Sequence(f.Sequence(f.Text())), "image": f.Image(shape=(2, 2, 3))},
                **{"ints": f.Tensor(shape=(2,), dtype=np.int64), "matrix": f.Tensor(shape=(2, 2), dtype=np.float32)},
            }
            return tfds.core.DatasetInfo(builder=self, features=f.FeaturesDict(features), disable_shuffling=True)

        def _split_generators(self, dl_manager: Any) -> Any:
            del dl_manager
            return {"train": self._generate_examples(3), "test": self._generate_examples(1)}

        def _generate_examples(self, count: int) -> Any:
            for i in range(count):
                yield (
                    i,
                    {
                        **{"text": f"é{i}", "label": i - 1, "n": i, "ok": i == 1, "tags": ["a", "é"][:i], "x": i / 2},
                        **{"labels": ["q", "p"][:i], "vector": [i, 0, 1], "pair": ["l", "r"], "in": {"a": i, "b": "b"}},
                        **{"seq": [{"u": 1, "w": "w"}] * i, "deep": [["a"], []][:i], "ints": [i, 1]},
                        **{"image": np.zeros((2, 2, 3), np.uint8), "matrix": np.zeros((2, 2), np.float32)},
                    },
                )

    return f"tfds:{TinyTable.name}"


@pytest.fixture
def tiny(tiny_table: str, tfds: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A dataset that is not on disk yet."""
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    return tiny_table


def test_tfds(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = open_table(tiny)
    assert capsys.readouterr().out == ""
    usable = [name for name in table.columns if name not in ("image", "matrix")]
    assert rows(table, usable)[2] == {
        **{"text": "é2", "label": "yes", "n": 2, "ok": False, "tags": ["a", "é"], "labels": ["q", "p"], "x": 1.0},
        **{"vector": [2.0, 0.0, 1.0], "pair": ["l", "r"], "in/a": 2, "in/b": "b", "seq/u": [1, 1], "seq/w": ["w", "w"]},
        **{"deep": [["a"], []], "ints": [2, 1]},
    }
    assert (table.columns["vector"], table.columns["labels"]) == (pa.list_(pa.float32(), 3), pa.list_(S))
    assert column(table, "label") == [None, "no", "yes"]  # -1 is missing
    assert column(f"{tiny}:1.0.0[test]", "text") == ["é0"]
    assert column(f"{tiny}[train[1:]+test]", "text") == ["é1", "é2", "é0"]
    refuse(table, "column 'image' is of type Image of shape", ["image"])
    refuse(table, "column 'matrix' is of type Tensor of shape", ["matrix"])
    refuse(f"{tiny}[trian]", r"no split 'trian'; did you mean 'train'\?; it has train, test")
    refuse(f"{tiny}:9.9.9", "tiny_table:9.9.9: .*9.9.9")
    refuse("tfds:", "expected tfds:name")
    refuse("tfds:tiny_tabel", "TFDS has no dataset of that name; did you mean 'tiny_table'")


def test_tfds_that_cannot_be_downloaded(tiny: str, tfds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(tfds.core.GeneratorBasedBuilder, "download_and_prepare", fail)
    refuse(
        tiny, "(?s)downloading it failed: ConnectionError: no route to host\ncheck the network, or set TFDS_DATA_DIR"
    )


def test_tfds_mock_data(tfds: Any) -> None:
    with tfds.testing.mock_data(num_examples=5):
        table = open_table("tfds:glue/cola")
        assert table.columns == {"idx": pa.int64(), "label": S, "sentence": S}
        assert len(rows(table)) == 5


def test_artworks_as_a_tensorflow_dataset(tfds: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from feat2vec.table.sources.datasets.artworks import Artworks

    builder = Artworks(data_dir=tmp_path)
    builder.download_and_prepare()
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    assert rows("tfds:artworks") == rows("dataset:artworks")
    assert re.search("(?s)Tate.*CC0", builder.info.description)


def test_tfds_says_what_it_downloads_and_that_there_is_no_network(
    tfds: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The size is what TFDS has noted of the file; nothing is asked of the network but whether there is one."""

    def no_address(*_: object, **__: object) -> None:
        raise OSError("Name or service not known")

    builder = tfds.testing.DummyDataset(data_dir=tmp_path)
    monkeypatch.setattr(tfds, "builder", lambda _: builder)
    info = tfds.core.download.checksums.UrlInfo(size=tfds.core.utils.Size(166373201), checksum="", filename="a.tgz")
    monkeypatch.setattr(type(builder), "url_infos", {"https://data.example/a.tgz": info})
    monkeypatch.setattr("feat2vec.table.sources.tfds.socket.getaddrinfo", no_address)
    monkeypatch.setattr("feat2vec.table.sources.tfds.getproxies", dict)
    refuse("tfds:dummy", r"cannot be downloaded: no network reaches data.example\ngo online, set TFDS_DATA_DIR")
    told = capsys.readouterr()
    assert "TFDS downloads and prepares it, 158.67 MiB" in told.err
    assert told.out == ""
