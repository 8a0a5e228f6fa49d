"""Raw values in a graph against what `Encoder` makes of the same rows."""

from __future__ import annotations

import random
import unicodedata
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import tensorflow as tf

from feat2vec.encode.encoder import fit
from feat2vec.encode.vocabulary import Vocabulary
from feat2vec.export.graph_reader import Keys, date_parts, reader, timestamps
from feat2vec.export.graph_words import Words
from feat2vec.export.saved_model import SIGNATURE, save
from feat2vec.model.large_variables import tables_aside
from feat2vec.table.keys import spell_floats

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
    words = tf.function(Words(), input_signature=[tf.TensorSpec([None], tf.string)])(tf.constant(texts)).to_list()
    for given, row, found in zip(texts, rows, words, strict=True):
        keys = codec.decode(entries[row : row + 1])[0] if row >= 0 else []
        assert [word.decode() for word in found][:32] == [unicodedata.normalize("NFD", key) for key in keys], given


@pytest.mark.parametrize("kind", ["number", "text"])
def test_keys_are_in_a_saved_model_once(kind: str, tmp_path: Path) -> None:
    names = [str(10**14 + i) for i in range(5000)]
    vocabulary = Vocabulary(pa.array(names), np.ones(len(names), np.int64), 0, kind, [])  # type: ignore[arg-type]
    module = tf.Module()
    with tables_aside():  # nothing fills the hash table, which only those who load the model need
        module.keys = Keys(vocabulary, text=False)
    table = module.keys.by_number if kind == "number" else module.keys.by_text
    assert table.table.size() == 0
    asked = tf.constant([float(names[7]), 3.0], tf.float64) if kind == "number" else tf.constant([names[7], "x"])
    module.vectors = tf.function(lambda keys: module.keys(keys)).get_concrete_function(
        tf.TensorSpec([None], asked.dtype)
    )
    save(module, tmp_path / "model")
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    (ids,) = loaded.signatures[SIGNATURE](asked).values()
    assert ids.numpy().tolist() == vocabulary.ids(pa.array([names[7], "x"])).tolist()
    assert (tmp_path / "model" / "saved_model.pb").stat().st_size < 5000 * 8  # the graph holds none


@pytest.mark.parametrize("kind", ["number", "boolean", "text", "date"])
@pytest.mark.parametrize("text", [False, True])
def test_ids_of_keys(kind: str, text: bool) -> None:
    names = {
        "number": ["1", "-0.5", "5", "0.1", "1e+20", "0", str(2**60)], "boolean": ["true", "false"],
        "text": ["a", "5.0", "é"], "date": ["2024-01-31"],
    }[kind]  # fmt: skip
    asked = [*names, "5.0", ".5", "-.5", "1e0", "TRUE", "NA", "new", "-0.0", "100000000000000000000.0", "é"]
    for some in (names, names[:-1], []):
        vocabulary = Vocabulary(pa.array(some, pa.string()), np.ones(len(some), np.int64), 0, kind, ["gone"])  # type: ignore[arg-type]
        if kind == "number":
            vocabulary.too_frequent = ["77"]
        keys = Keys(vocabulary, text=text)
        whole = kind == "number" and not text and str(2**60) not in some
        assert keys.text == (not whole)
        given: Any = [*asked, *vocabulary.too_frequent]
        if whole:
            given = np.array([1, -0.5, 5, 0.1, 1e20, -0.0, 77, 3.25])
        expected = vocabulary.ids(spell_floats(pa.array(given)) if whole else pa.array(given))
        np.testing.assert_array_equal(keys(tf.constant(given)), expected)


def test_dates_are_read_and_taken_apart() -> None:
    rng = random.Random(0)
    days = [datetime(1, 1, 1) + timedelta(microseconds=rng.randrange(9998 * 365 * 86_400 * 10**6)) for _ in range(500)]
    days += [datetime(year, 2, 28) + timedelta(days=1) for year in (1600, 1700, 1900, 2000, 2023, 2024)]
    texts = [day.isoformat(rng.choice("T "), rng.choice(["auto", "minutes", "seconds"])) for day in days]
    texts += ["2024-01-31", " 2024-01-31T23 ", "2024-02-29 10:30Z", "1969-12-31 23:59:59.999999"]
    east = timezone(timedelta(hours=5, minutes=45))
    texts += [datetime(2024, 1, 1, 3, tzinfo=east).isoformat(), "2024-01-01T03:00:00-0230", "2024-01-01 03:00:00+02"]
    parts = ["year", "quarter", "month", "day", "weekday", "hour"]
    micros, there = timestamps(tf.constant([*texts, ""]), "when")
    stamps = [pa.array([text.strip()]).cast(pa.timestamp("us", "UTC" if _zoned(text) else None)) for text in texts]
    assert micros.numpy()[:-1].tolist() == [stamp.cast(pa.int64())[0].as_py() for stamp in stamps]
    assert there.numpy().tolist() == [True] * len(texts) + [False]
    keys, present = date_parts(micros, there, parts)
    assert not present.numpy()[-1].any()
    week = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    for stamp, row in zip(stamps, keys.numpy().tolist(), strict=False):
        numbers = [
            (pc.day_of_week(stamp) if part == "weekday" else getattr(pc, part)(stamp))[0].as_py() for part in parts
        ]
        expected = [f"{p}={week[n] if p == 'weekday' else n}" for p, n in zip(parts, numbers, strict=True)]
        assert [key.decode() for key in row] == expected


def _zoned(text: str) -> bool:
    return text.strip().endswith("Z") or "+" in text or "-" in text.strip()[16:]


@pytest.mark.parametrize("text", ["2024-02-30", "2023-02-29", "31.01.2024", "2024-13-01", "today", "2024-1-1"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="when: dates such as 2024-01-31"):
        tf.function(lambda texts: timestamps(texts, "when"), autograph=False)(tf.constant(["2024-01-01", text]))


@pytest.mark.parametrize("scale", ["standard", "minmax", "log1p", "quantile", "none"])
def test_numbers_are_scaled_as_the_encoder_does(scale: str) -> None:
    rng = np.random.default_rng(0)
    numbers = np.where(rng.random(500) < 0.1, np.nan, np.round(rng.gamma(2, 3, 500), 1))
    columns = {"a": pa.array(numbers, from_pandas=True), "b": pa.array(rng.integers(0, 3, 500))}
    spec = {"type": "numeric", "scale": scale}
    group = {"columns": ["a", "b"], "extractor": spec}
    schema = {"version": 1, "groups": {"n": group, "same": group}}
    encoder = fit(schema, pa.table(columns)).encoder
    read = reader("n", encoder.codecs["n"], encoder.schema.groups["n"])
    new = np.array(
        [[0.0, 0], [-0.5, 1], [1e9, 2], [np.nan, 1], [3.3, np.nan], [np.nan, np.nan], *np.c_[numbers, numbers][:50]]
    )
    table = pa.table({"a": pa.array(new[:, 0], from_pandas=True), "b": pa.array(new[:, 1], from_pandas=True)})
    (batch,) = encoder.entries(table)
    entries = read(tf.constant(new[:, 0]), tf.constant(new[:, 1])).numpy()
    np.testing.assert_allclose(entries[batch["n"].present], batch["n"].rows, rtol=1e-6, atol=1e-7)
    assert np.isnan(entries[~batch["n"].present]).all()
    with pytest.raises(tf.errors.InvalidArgumentError, match="a: numbers must be finite"):
        read(tf.constant([np.inf], tf.float64), tf.constant([1], tf.float64))
    if scale == "log1p":
        with pytest.raises(tf.errors.InvalidArgumentError, match="a: log1p needs numbers above -1"):
            read(tf.constant([-1], tf.float64), tf.constant([1], tf.float64))
