"""Text to words inside a TensorFlow graph: what `keys.tokens_of` does, without feat2vec."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from feat2vec.table.keys import BETWEEN_WORDS

EVERY_SIGN = [*range(0xD800), *range(0xE000, 0x110000)]  # without surrogates
SUBSCRIPT = "\u0345"  # an iota under a letter, the last of its marks; it is casefolded to a letter, but in its place


class Words:
    """Text to its words, casefolded, as `keys.tokens_of` has them but in NFD: no graph composes signs.

    Each sign becomes what its casefolded form decomposes into, those between words a space; then the marks of a sign
    are put in their canonical order. Two words are the same in NFD if and only if they are in NFC. (One
    thing differs: a letter with an iota under it and two accents, which no language writes.)
    """

    def __init__(self) -> None:
        self.signs, self.edges, self.folded, self.pieces, self.marks, self.classes = _folding()

    def __call__(self, texts: Any) -> Any:
        """Words [texts, (words)] of texts [texts]."""
        texts = tf.strings.regex_replace(texts, self.signs, " ")
        points = tf.strings.unicode_decode(texts, "UTF-8", replace_control_characters=False)
        between = tf.searchsorted(self.edges, points.values, side="right") % 2 == 0
        place, found = _find(self.folded, points.values)
        own = tf.pad(tf.where(between, ord(" "), points.values)[:, None], [[0, 0], [0, 3]], constant_values=-1)
        pieces = tf.where(found[:, None], tf.gather(self.pieces, place), own)  # [signs, 4], -1 for nothing
        lengths = tf.reduce_sum(tf.cast(pieces >= 0, tf.int64), axis=1)
        splits = tf.gather(tf.concat([[0], tf.cumsum(lengths)], 0), points.row_splits)
        folded = tf.RaggedTensor.from_row_splits(tf.boolean_mask(pieces, pieces >= 0), splits)
        place, found = _find(self.marks, folded.values)
        classes = tf.where(found, tf.gather(self.classes, place), 0)
        # a mark never leaves its sign, nor its text
        signs = tf.cumsum(tf.cast(classes == 0, tf.int64)) + folded.value_rowids()
        order = tf.cond(
            tf.reduce_any(found),
            lambda: tf.argsort(signs * 256 + tf.cast(classes, tf.int64), stable=True),
            lambda: tf.range(tf.size(classes)),
        )
        ordered = tf.gather(folded.values, order)
        ordered = folded.with_values(tf.where(ordered == ord(SUBSCRIPT), 0x3B9, ordered))
        return tf.strings.split(tf.strings.unicode_encode(ordered, "UTF-8"))


def _find(known: Any, points: Any) -> tuple[Any, Any]:
    """Where each of some signs is among sorted ones, and whether it is there."""
    place = tf.minimum(tf.searchsorted(known, points), len(known) - 1)
    return place, tf.gather(known, place) == points


@lru_cache(maxsize=1)
def _folding() -> tuple[str, Any, Any, Any, Any, Any]:
    """What `Words` needs of Unicode, from the libraries that encode tables.

    The signs between words that are two in NFD, as a pattern; where the signs of words begin and end; the signs that
    become others, and what; the marks that have an order, and their classes.
    """
    signs = pa.array([chr(point) for point in EVERY_SIGN], pa.string())
    words = pc.invert(pc.match_substring_regex(signs, BETWEEN_WORDS)).to_numpy(zero_copy_only=False)
    points = np.array(EVERY_SIGN, np.int32)
    starts = points[np.flatnonzero(np.diff(words.astype(np.int8), prepend=0))]
    is_word = dict(zip(signs.to_pylist(), words.tolist(), strict=True))
    composed = pc.equal(pc.utf8_normalize(signs, "NFC"), signs).to_numpy(zero_copy_only=False)
    changed = pc.not_equal(pc.utf8_normalize(signs, "NFD"), signs).to_numpy(zero_copy_only=False)
    doubles = pc.utf8_normalize(signs.filter(pa.array(~words & composed & changed)), "NFD").to_pylist()
    pattern = "|".join("".join(f"\\x{{{ord(sign):x}}}" for sign in double) for double in doubles)
    pieces = {}
    for point in points[words | ~composed].tolist():
        apart = unicodedata.normalize("NFD", chr(point))
        folded = "".join(sign if sign == SUBSCRIPT else unicodedata.normalize("NFD", sign.casefold()) for sign in apart)
        if folded != chr(point):
            pieces[point] = [ord(sign) if is_word[sign] else ord(" ") for sign in folded]
    rows = np.array([row + [-1] * (4 - len(row)) for row in pieces.values()], np.int32)
    marks = [point for point in points[words].tolist() if unicodedata.combining(chr(point))]
    classes = [unicodedata.combining(chr(point)) for point in marks]
    return (
        pattern,
        starts,
        np.array(list(pieces), np.int32),
        rows,
        np.array(marks, np.int32),
        np.array(classes, np.int32),
    )


@lru_cache(maxsize=1)
def _white() -> str:
    """The signs that `utf8_trim_whitespace` trims, as a class of a pattern."""
    signs = pa.array([chr(point) for point in EVERY_SIGN], pa.string())
    white = pc.equal(pc.utf8_trim_whitespace(signs), "").to_numpy(zero_copy_only=False)
    return "".join(f"\\x{{{point:x}}}" for point in np.array(EVERY_SIGN)[white].tolist())


def trimmed(keys: Any) -> Any:
    """Ragged text without white space around it."""
    white = _white()
    return keys.with_values(tf.strings.regex_replace(keys.values, f"^[{white}]+|[{white}]+$", ""))
