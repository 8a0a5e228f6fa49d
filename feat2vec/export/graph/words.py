"""Text to words inside a TensorFlow graph: what `feat2vec.table.keys.tokens_of` does."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from feat2vec.arrays import Ints
from feat2vec.model.pair_scores import Tensor
from feat2vec.table.keys import BETWEEN_WORDS

CodePoints = Ints

ALL_CODE_POINTS = [*range(0xD800), *range(0xE000, 0x110000)]  # without surrogates
# An iota under a letter. It is the last of the letter's marks, and becomes a letter by casefolding, but in its place.
IOTA_SUBSCRIPT, SMALL_IOTA = "\u0345", 0x3B9
MAX_FOLDED = 4  # characters that one character becomes by casefolding in NFD


class WordSplitter:
    """Text to its words, casefolded, as `tokens_of` has them but in NFD: no graph composes characters.

    Each character becomes what its casefolded form decomposes into, and characters between words become a space. Then
    the marks of each letter are put in their canonical order. Two words are equal in NFD if and only if they are equal
    in NFC. (One thing differs: a letter with an iota under it and two accents, which no language writes.)
    """

    def __init__(self) -> None:
        self.rules = _folding_rules()

    def __call__(self, texts: Tensor) -> Tensor:
        """The words of texts [texts]: ragged, [texts, (words)]."""
        texts = tf.strings.regex_replace(texts, self.rules.decomposed_separators, " ")
        points = tf.strings.unicode_decode(texts, "UTF-8", replace_control_characters=False)  # [texts, (characters)]
        folded = self._folded(points)
        ordered = self._with_marks_in_order(folded)
        ordered = folded.with_values(tf.where(ordered == ord(IOTA_SUBSCRIPT), SMALL_IOTA, ordered))
        return tf.strings.split(tf.strings.unicode_encode(ordered, "UTF-8"))

    def _folded(self, points: Tensor) -> Tensor:
        """Code points casefolded and decomposed, ragged as they were given; separators become spaces."""
        is_separator = tf.searchsorted(self.rules.word_range_edges, points.values, side="right") % 2 == 0
        unchanged = tf.where(is_separator, ord(" "), points.values)[:, None]
        unchanged = tf.pad(unchanged, [[0, 0], [0, MAX_FOLDED - 1]], constant_values=-1)
        position, is_changed = _find(self.rules.changed, points.values)
        # [characters, MAX_FOLDED], -1 for nothing
        pieces = tf.where(is_changed[:, None], tf.gather(self.rules.changed_to, position), unchanged)
        lengths = tf.reduce_sum(tf.cast(pieces >= 0, tf.int64), axis=1)
        row_splits = tf.gather(tf.concat([[0], tf.cumsum(lengths)], 0), points.row_splits)
        return tf.RaggedTensor.from_row_splits(tf.boolean_mask(pieces, pieces >= 0), row_splits)

    def _with_marks_in_order(self, folded: Tensor) -> Tensor:
        """The values of `folded` with the marks of each letter sorted by their combining classes."""
        position, is_mark = _find(self.rules.marks, folded.values)
        classes = tf.where(is_mark, tf.gather(self.rules.mark_classes, position), 0)
        # a mark never leaves its letter, nor its text
        letter = tf.cumsum(tf.cast(classes == 0, tf.int64)) + folded.value_rowids()
        order = tf.cond(
            tf.reduce_any(is_mark),
            lambda: tf.argsort(letter * 256 + tf.cast(classes, tf.int64), stable=True),
            lambda: tf.range(tf.size(classes)),
        )
        return tf.gather(folded.values, order)


def _find(known: CodePoints, points: Tensor) -> tuple[Tensor, Tensor]:
    """The positions of code points among sorted known ones, and whether they are there."""
    position = tf.minimum(tf.searchsorted(known, points), len(known) - 1)
    return position, tf.gather(known, position) == points


class FoldingRules(NamedTuple):
    """What `WordSplitter` needs of Unicode."""

    decomposed_separators: str  # a pattern: the separators of words that are two characters in NFD
    word_range_edges: CodePoints  # where the ranges of characters of words begin and end, in turn
    changed: CodePoints  # the characters that become others
    changed_to: CodePoints  # and what they become, [changed, MAX_FOLDED], -1 for nothing
    marks: CodePoints  # the marks that have an order
    mark_classes: CodePoints  # and their combining classes


@lru_cache(maxsize=1)
def _folding_rules() -> FoldingRules:
    """The rules, from the libraries that encode tables."""
    characters = pa.array([chr(point) for point in ALL_CODE_POINTS], pa.string())
    points = np.array(ALL_CODE_POINTS, np.int32)
    in_words = pc.invert(pc.match_substring_regex(characters, BETWEEN_WORDS)).to_numpy(zero_copy_only=False)
    is_composed = pc.equal(pc.utf8_normalize(characters, "NFC"), characters).to_numpy(zero_copy_only=False)
    decomposes = pc.not_equal(pc.utf8_normalize(characters, "NFD"), characters).to_numpy(zero_copy_only=False)

    word_range_edges = points[np.flatnonzero(np.diff(in_words.astype(np.int8), prepend=0))]
    separators = characters.filter(pa.array(~in_words & is_composed & decomposes))
    patterns = [
        "".join(f"\\x{{{ord(character):x}}}" for character in decomposed)
        for decomposed in pc.utf8_normalize(separators, "NFD").to_pylist()
    ]

    is_in_word = dict(zip(characters.to_pylist(), in_words.tolist(), strict=True))
    changed_to = {}
    for point in points[in_words | ~is_composed].tolist():
        folded = _casefolded(chr(point))
        if folded != chr(point):
            pieces = [ord(character) if is_in_word[character] else ord(" ") for character in folded]
            changed_to[point] = pieces + [-1] * (MAX_FOLDED - len(pieces))

    marks = [point for point in points[in_words].tolist() if unicodedata.combining(chr(point))]
    return FoldingRules(
        decomposed_separators="|".join(patterns),
        word_range_edges=word_range_edges,
        changed=np.array(list(changed_to), np.int32),
        changed_to=np.array(list(changed_to.values()), np.int32),
        marks=np.array(marks, np.int32),
        mark_classes=np.array([unicodedata.combining(chr(point)) for point in marks], np.int32),
    )


def _casefolded(character: str) -> str:
    """A character casefolded, in NFD; the iota under a letter stays, as it is folded after marks are sorted."""
    folded = ""
    for piece in unicodedata.normalize("NFD", character):
        folded += piece if piece == IOTA_SUBSCRIPT else unicodedata.normalize("NFD", piece.casefold())
    return folded


@lru_cache(maxsize=1)
def _white_space() -> str:
    """The characters that `utf8_trim_whitespace` trims, as the inside of a character class."""
    characters = pa.array([chr(point) for point in ALL_CODE_POINTS], pa.string())
    is_white = pc.equal(pc.utf8_trim_whitespace(characters), "").to_numpy(zero_copy_only=False)
    return "".join(f"\\x{{{point:x}}}" for point in np.array(ALL_CODE_POINTS)[is_white].tolist())


def trimmed(texts: Tensor) -> Tensor:
    """Ragged text without white space around it."""
    white = _white_space()
    return texts.with_values(tf.strings.regex_replace(texts.values, f"^[{white}]+|[{white}]+$", ""))
