"""Ids of keys in a graph against those of the vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from feat2vec.encode.vocabulary import Vocabulary
from feat2vec.export.graph.keys import GraphVocabulary
from feat2vec.export.graph.saved_model import SIGNATURE, save
from feat2vec.model.large_variables import tables_aside
from feat2vec.table.spelling import spell_floats


@pytest.mark.parametrize("kind", ["number", "text"])
def test_keys_are_in_a_saved_model_once(kind: str, tmp_path: Path) -> None:
    names = ["0", *(str(10**14 + i) for i in range(4999))]
    vocabulary = Vocabulary(pa.array(names), np.ones(len(names), np.int64), 0, kind, [])  # type: ignore[arg-type]
    module = tf.Module()
    with tables_aside():  # nothing fills the hash table, which only those who load the model need
        module.keys = GraphVocabulary(vocabulary, as_text=False)
    table = module.keys.by_number if kind == "number" else module.keys.by_text
    assert table.table.size() == 0
    texts = [names[7], "x", "0"]
    asked = tf.constant([float(names[7]), 3.0, -0.0], tf.float64) if kind == "number" else tf.constant(texts)
    module.vectors = tf.function(lambda keys: module.keys(keys)).get_concrete_function(
        tf.TensorSpec([None], asked.dtype)
    )
    save(module, tmp_path / "model")
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    (ids,) = loaded.signatures[SIGNATURE](asked).values()
    assert ids.numpy().tolist() == vocabulary.ids(pa.array(texts)).tolist()
    assert (tmp_path / "model" / "saved_model.pb").stat().st_size < 5000 * 8  # the graph holds none


def test_float32_keys_are_found_by_float64s_in_a_saved_model(tmp_path: Path) -> None:
    vocabulary = Vocabulary(pa.array(["0.1", "0.5"]), np.ones(2, np.int64), 0, "float32")
    module = tf.Module()
    module.keys = GraphVocabulary(vocabulary, as_text=False)
    assert not module.keys.takes_text
    numbers = tf.TensorSpec([None], tf.float64)
    module.vectors = tf.function(lambda keys: module.keys(keys)).get_concrete_function(numbers)
    save(module, tmp_path / "model")
    asked = np.array([np.float32(0.1), 0.1, 0.5, 0.2, 1e-60, 1e60])
    (ids,) = tf.saved_model.load(str(tmp_path / "model")).signatures[SIGNATURE](tf.constant(asked)).values()
    assert ids.numpy().tolist() == vocabulary.ids(spell_floats(pa.array(asked))).tolist() == [2, 2, 3, 1, 1, 1]


@pytest.mark.parametrize("kind", ["float", "float32"])
def test_subnormal_numbers_in_a_saved_model_are_not_0(kind: str, tmp_path: Path) -> None:
    """TensorFlow computes with them as if they were."""
    keys = ["0", "1e-40", "1e-45", "1e-38"]
    vocabulary = Vocabulary(pa.array(keys), np.ones(len(keys), np.int64), 0, kind)  # type: ignore[arg-type]
    module = tf.Module()
    module.keys = GraphVocabulary(vocabulary, as_text=False)
    numbers = tf.TensorSpec([None], tf.float64)
    module.vectors = tf.function(lambda keys: module.keys(keys)).get_concrete_function(numbers)
    save(module, tmp_path / "model")
    asked = np.array([0.0, -0.0, 1e-40, -1e-40, 1e-45, 1.2e-45, 1e-38, 1e-310, -1e-310, 5e-324])
    (ids,) = tf.saved_model.load(str(tmp_path / "model")).signatures[SIGNATURE](tf.constant(asked)).values()
    assert ids.numpy().tolist() == vocabulary.ids(spell_floats(pa.array(asked))).tolist()
    assert ids.numpy().tolist() == [2, 2, 3, 1, 4, 4 if kind == "float32" else 1, 5, 1, 1, 1]


def test_whole_numbers_do_not_find_a_key_with_a_fraction() -> None:
    vocabulary = Vocabulary(pa.array(["12345678901234567.88", "12345678901234569"]), np.ones(2, np.int64), 0, "number")
    asked = ["12345678901234568.0", "12345678901234569.0", "12345678901234567.88"]
    ids = GraphVocabulary(vocabulary, as_text=True)(tf.constant(asked)).numpy().tolist()
    assert ids == vocabulary.ids(pa.array(asked)).tolist() == [1, 3, 2]


@pytest.mark.parametrize("kind", ["number", "boolean", "text", "date"])
@pytest.mark.parametrize("text", [False, True])
def test_ids_of_keys(kind: str, text: bool) -> None:
    names = {
        "number": ["1", "-0.5", "5", "0.1", "1e+20", "0", str(2**60)], "boolean": ["true", "false"],
        "text": ["a", "5.0", "é"], "date": ["2024-01-31"],
    }[kind]  # fmt: skip
    asked = [*names, "5.0", ".5", "-.5", "1e0", "TRUE", "NA", "na", "new", "-0.0", "100000000000000000000.0", "é"]
    for known in (names, names[:-1], []):
        vocabulary = Vocabulary(pa.array(known, pa.string()), np.ones(len(known), np.int64), 0, kind, ["gone"])  # type: ignore[arg-type]
        if kind == "number":
            vocabulary.too_frequent = ["77"]
        keys = GraphVocabulary(vocabulary, as_text=text)
        is_exact = kind == "number" and not text and str(2**60) not in known
        assert keys.takes_text == (not is_exact)
        given: Any = [*asked, *vocabulary.too_frequent]
        if is_exact:
            given = np.array([1, -0.5, 5, 0.1, 1e20, -0.0, 77, 3.25])
        expected = vocabulary.ids(spell_floats(pa.array(given)) if is_exact else pa.array(given))
        np.testing.assert_array_equal(keys(tf.constant(given)), expected)
