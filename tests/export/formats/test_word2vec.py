"""word2vec's files are read back by gensim."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.export.export import export
from feat2vec.export.formats.word2vec import Word2Vec, words_of
from tests.export.tables import HARD, NAMES, check_nearest, write_keys


@pytest.mark.parametrize("binary", [False, True])
def test_gensim_loads_word2vec_and_finds_the_same_neighbours(run: feat2vec.Run, tmp_path: Path, binary: bool) -> None:
    from gensim.models import KeyedVectors

    facts = export(run, Word2Vec(bytes_per_block=100), tmp_path / "out")  # several blocks
    for name, group in facts["groups"].items():
        file = tmp_path / "out" / group["files"][binary]
        v, loaded = run.vectors(name), KeyedVectors.load_word2vec_format(file, binary=binary)
        words = words_of(pa.array(v.index_to_key)).to_pylist()
        assert loaded.index_to_key == words
        np.testing.assert_array_equal(loaded.vectors, v.vectors)
        for i, key in enumerate(v.index_to_key[:20]):
            near = [v.index_to_key[words.index(word)] for word, _ in loaded.similar_by_key(words[i], topn=3)]
            check_nearest(v, key, near)


def test_words_have_no_white_space_and_stay_distinct() -> None:
    keys = pa.array(["a b", "a_b", "a\tb", "a_b#2", "a\u00a0b", "", " ", "\n", "a\x1cb", "x\u2028y", "ü"])
    words = words_of(keys).to_pylist()
    assert words == ["a_b#2#2", "a_b", "a_b#3", "a_b#2", "a_b#4", "", "_", "_#2", "a_b#5", "x_y", "ü"]
    assert all(len(word.split()) <= 1 for word in words)
    names = words_of(pa.array(NAMES)).to_pylist()
    assert len(set(names)) == len(NAMES)
    assert words_of(pa.array([], pa.string())).to_pylist() == []


def test_every_key_is_one_word_and_stays_distinct(tmp_path: Path) -> None:
    keys = [*HARD, "a\0", "a\0\0", "a\ufffd", "\0", "a\ufffd#2"]
    name, _ = write_keys("word2vec", keys, tmp_path / "word2vec")
    first, *words = (tmp_path / "word2vec" / name).read_bytes().decode().removesuffix("\n").split("\n")
    assert first == f"{len(keys)} 2"
    assert len({word.split(" ")[0] for word in words}) == len(keys)
    assert {len(word.split()) for word in words} == {3}
