"""Words in a graph against those of the encoder."""

from __future__ import annotations

import random
import unicodedata

import numpy as np
import pyarrow as pa
import tensorflow as tf

from feat2vec.encode.encoder import fit
from feat2vec.export.graph.words import WordSplitter

PIECES = [
    "Straße", "ΌΔΟΣ", "é", "e\u0301", "≠", "=\u0338", "İ", "ﬁ", "한글", "\u1112\u1161\u11ab", "Å", "\u212b", "\u212a",
    "ǆ", "ŉ", "q\u0323\u0307", "q\u0307\u0323", "_", "-", "'", "\u2019", "Ω", "\u2adc", "𝄞", "中文", "क\u093c",
    "Ⅷ", "²", "¨\u0301", "ẞ", "\u200d", "\u00a0", " ", "a", "B", "9", "٣", "\uff46\uff55", "\n", "\t", "\0", "🎬",
    "\u0301", "a\u0316\u0338",
]  # fmt: skip


def test_words_are_those_of_the_encoder() -> None:
    rng = random.Random(0)
    texts = ["".join(rng.choice(PIECES) for _ in range(rng.randint(0, 12))) for _ in range(2000)]
    ranges = [(1, 0x2FF), (0x300, 0x344), (0x370, 0x1F7F), (0x2000, 0x3000), (0xAC00, 0xD7A3), (0xE000, 0x10FFFF)]
    texts += ["".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(0, 12))) for _ in range(2000)]
    texts += ["ᾴ", "ᾳ\u0301", "\u03b1\u0345\u0301", "\u03b1\u0301\u0345", "Ἆ\u0345", "a" * 3000, "", "b " * 40]
    text = {"column": "text", "extractor": {"type": "text_cnn"}}
    schema = {"version": 1, "groups": {"text": text, "same": text}}
    encoded = fit(schema, pa.table({"text": texts}))
    codec = encoded.encoder.codecs["text"]
    rows, entries = np.asarray(encoded.rows)[:, 0], encoded.values["text"].entries
    split = tf.function(WordSplitter(), input_signature=[tf.TensorSpec([None], tf.string)])
    words = split(tf.constant(texts)).to_list()
    for text_given, row, words_of_text in zip(texts, rows, words, strict=True):
        keys = codec.decode(entries[row : row + 1])[0] if row >= 0 else []
        assert [word.decode() for word in words_of_text][:32] == [unicodedata.normalize("NFD", key) for key in keys], (
            text_given
        )
