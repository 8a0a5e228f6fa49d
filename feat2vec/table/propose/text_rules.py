"""What becomes of columns of text and of booleans, which no rule of numbers has taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from feat2vec.schema.extractor_options import PLAIN_NUMBER
from feat2vec.table.number_forms import NumbersOfForm
from feat2vec.table.profile import ColumnProfile
from feat2vec.table.propose.choices import Choice, leave_out, make_group, most_items, percentile
from feat2vec.table.propose.defaults import ExtractorOptions
from feat2vec.table.propose.number_rules import FEW_NUMBERS, IDENTIFIER_SHARE, is_named_as_key, missing_word
from feat2vec.table.propose.quoting import quote_short
from feat2vec.table.propose.text_patterns import find_delimiter, is_prose, resemblance, split_words

SHARE_OF_NUMBERS = 0.9  # of the rows with a text, from which the other texts count as missing
TOLD_SHARE = 0.5  # of numbers among keys, from which it is said why they are keys


def vectors_in_text(column: ColumnProfile) -> Choice | None:
    """Text such as `[0.5, 1]`, all of one size."""
    if not column.text_is_vectors or not column.vector_size:
        return None
    return make_group(column, {"type": "vector"}, f"vectors of {column.vector_size}")


def lists_in_text(column: ColumnProfile) -> Choice | None:
    """Text such as `drama|war`."""
    texts = _texts(column)
    delimiter = find_delimiter(texts) if column.is_string else None
    if delimiter is None:
        return None
    max_items = most_items([text.count(delimiter) + 1 for text in texts])
    extractor: ExtractorOptions = {"type": "lookup", "split": delimiter, "max_items": max_items}
    return make_group(column, extractor, f"lists, nearly all of {max_items} or fewer{missing_word(column)}")


def numbers_beside_text(column: ColumnProfile) -> Choice | None:
    """Numbers, beside some of which stands text such as unknown."""
    numbers = column.written_numbers.best_of_most
    if numbers is None or _why_no_numbers(column, numbers) is not None:
        return None
    extractor: ExtractorOptions = {"type": "numeric", "hidden": [32], "nan": "lenient"}
    if numbers.form != PLAIN_NUMBER:
        extractor["written"] = numbers.form
    junk_share = _percent(1 - numbers.share)
    facts = f"{numbers.low:.4g} to {numbers.high:.4g}; text in {junk_share} of the rows, such as {_junk_texts(numbers)}"
    return make_group(column, extractor, f"{facts}, counts as missing")


def _why_no_numbers(column: ColumnProfile, numbers: NumbersOfForm) -> str | None:
    """Why a column of numbers beside other text is none of numbers; None if it is one."""
    if numbers.share < SHARE_OF_NUMBERS:
        return f"fewer than {_percent(SHARE_OF_NUMBERS)}"
    if is_named_as_key(column):
        return "called keys"
    if column.distinct <= FEW_NUMBERS:
        return "of few values"
    if numbers.low == numbers.high:
        return "all of them one"
    is_dense = numbers.are_integers and numbers.high - numbers.low < 2 * column.distinct
    return "counted" if is_dense and column.distinct_share >= IDENTIFIER_SHARE else None


def _percent(share: float) -> str:
    return "under 1 %" if share < 0.01 else f"{100 * share:.0f} %"


def _junk_texts(numbers: NumbersOfForm) -> str:
    return " and ".join(map(quote_short, numbers.junk_texts[:2]))


def prose(column: ColumnProfile) -> Choice | None:
    """Text of several words, some of which several rows have, while the texts are mostly distinct."""
    texts = _texts(column)
    if not column.is_string or not is_prose(texts, column.distinct_share):
        return None
    word_counts = [len(words) for words in map(split_words, texts)]
    max_tokens = min(max(percentile(word_counts, 95), 4), 128)
    order = "text_cnn or text_attention would read them in order"
    facts = f"{column.distinct:,} texts, {np.mean(word_counts):.1f} words on average; {order}"
    return make_group(column, {"type": "text_cnn", "max_tokens": max_tokens}, facts)


def text_that_identifies(column: ColumnProfile) -> Choice | None:
    """Text of which 95 % is distinct."""
    if column.distinct_share < IDENTIFIER_SHARE:
        return None
    facts = f"{column.distinct:,} values in {column.present:,} rows{_resemblance(column)}"
    return leave_out(column, f"an identifier: {facts}")


def text_as_keys(column: ColumnProfile) -> Choice | None:
    """All other text, and booleans."""
    facts = f"{column.distinct:,} keys in {column.rows:,} rows{missing_word(column)}{_resemblance(column)}"
    return make_group(column, {"type": "lookup"}, facts)


def _texts(column: ColumnProfile) -> list[str]:
    return [str(value) for value in column.sample]


def _resemblance(column: ColumnProfile) -> str:
    numbers = column.written_numbers.best_of_most
    if numbers is not None and numbers.share >= TOLD_SHARE:
        reason = _why_no_numbers(column, numbers)
        return f"; numbers in {_percent(numbers.share)} of the rows, {reason}; others such as {_junk_texts(numbers)}"
    return resemblance(_texts(column), is_typed_text=column.typed and column.is_string)


RULES: Sequence[Callable[[ColumnProfile], Choice | None]] = (
    vectors_in_text,
    lists_in_text,
    numbers_beside_text,
    prose,
    text_that_identifies,
    text_as_keys,
)
