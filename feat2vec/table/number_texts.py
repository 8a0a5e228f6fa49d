"""Text of numbers as numbers that a file keeps, from which the same text is made again.

A CSV has text alone. Where the text of all values of a column follows from their numbers, `split` and `complete` write
numbers, for the programs that read the file, with the form of the text in the metadata of the column: feat2vec reads
the text again, letter by letter. Text such as `007`, or `1.5` beside `1.50`, follows from no number and stays text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.table.spelling import spell_floats
from feat2vec.table.types import FLOAT_DIGITS, MISSING_NUMBERS, UNTYPED, TablePart, is_text

FORM = b"feat2vec: form of the text"  # a key in the metadata of a column
INTEGER, SHORTEST, POINT, PLACES = "integer", "shortest", "point", "places "
MOST_PLACES = 12
LARGEST_INTEGER, LARGEST_FLOAT = 2**53, 1.7e308  # those beyond change where a column of integers becomes floats
# between these a float is written without an exponent by Arrow and by Python
LEAST_PLAIN, MOST_PLAIN = 1e-4, 1e9
ABSENT = ("", *MISSING_NUMBERS)


class NumberTexts:
    """In which forms all texts of a column so far are numbers.

    Example:
        >>> prices = NumberTexts()
        >>> prices.add(pa.array(["1.50", "NA", "22.25"]))
        >>> prices.form
        'places 2'

    """

    def __init__(self) -> None:
        self._forms: list[str] | None = None  # None until there is a number

    @property
    def is_open(self) -> bool:
        """Whether there may be a form."""
        return self._forms is None or bool(self._forms)

    @property
    def form(self) -> str | None:
        """The form of all texts; None if there is none."""
        return self._forms[0] if self._forms else None

    def add(self, texts: pa.Array | pa.ChunkedArray) -> None:
        """Take texts into account."""
        if not self.is_open or not len(texts):
            return
        present = _present(texts)
        if not len(present):
            return
        if self._forms is None:
            places = len(present[0].as_py().partition(".")[2])
            self._forms = [INTEGER, SHORTEST, POINT, *([f"{PLACES}{places}"] if 0 < places <= MOST_PLACES else [])]
        self._forms = [form for form in self._forms if fits(present, form)]


def fits(texts: pa.Array, form: str) -> bool:
    """Whether texts without missing ones are made again from their numbers.

    >>> [fits(pa.array(texts), "integer") for texts in (["7", "-12"], ["07"], ["7.0"])]
    [True, False, False]

    """
    with suppress(pa.ArrowInvalid):
        numbers = numbers_of_texts(texts, form)
        largest = LARGEST_INTEGER if form == INTEGER else LARGEST_FLOAT
        is_exact = pc.all(pc.less_equal(pc.abs(numbers), largest)).as_py() is not False  # no infinite one, no NaN
        return is_exact and numbers.null_count == 0 and texts_of_numbers(numbers, form).equals(texts)
    return False


def numbers_of_texts(texts: pa.Array, form: str) -> pa.Array:
    """The numbers of texts, null where one is missing.

    Raises:
        pa.ArrowInvalid: A text is no number.

    """
    texts = _plain(texts)
    present = pc.if_else(pc.is_in(texts, pa.array(ABSENT)), pa.scalar(None, pa.string()), texts)
    return present.cast(type_of_form(form))


def texts_of_numbers(numbers: pa.Array, form: str) -> pa.StringArray:
    """The texts of numbers.

    >>> [texts_of_numbers(pa.array([5.0, 0.25]), form).to_pylist() for form in ("shortest", "point", "places 2")]
    [['5', '0.25'], ['5.0', '0.25'], ['5.00', '0.25']]

    """
    if form == INTEGER:
        return numbers.cast(pa.string())
    if form == SHORTEST:
        return spell_floats(numbers)
    if form == POINT:
        return _as_python_writes(numbers)
    return numbers.cast(pa.decimal128(FLOAT_DIGITS, int(form.removeprefix(PLACES)))).cast(pa.string())


def type_of_form(form: str) -> pa.DataType:
    """The type of the numbers."""
    return pa.int64() if form == INTEGER else pa.float64()


def field_of_form(name: str, form: str) -> pa.Field:
    """The column of a file with the numbers of texts."""
    return pa.field(name, type_of_form(form), metadata={FORM: form.encode()})


def with_texts(part: TablePart, schema: pa.Schema) -> TablePart:
    """The part of a file or a table, with the texts of columns that have the numbers of texts.

    Args:
        part: It.
        schema: Its schema, with the metadata that were written.

    """
    if part.typed or UNTYPED not in (schema.metadata or {}):
        return part
    forms = {field.name: form for field in schema if (form := _form_of(field)) is not None}
    if not forms:
        return part

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        for batch in part.read(columns):
            arrays = [
                texts_of_numbers(array, forms[name]) if name in forms else array
                for name, array in zip(columns, batch.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=columns)

    return replace(part, types={**part.types, **dict.fromkeys(forms, pa.string())}, read=read)


def _form_of(field: pa.Field) -> str | None:
    """The form that a column's metadata tell, if its values can have it."""
    form: str = (field.metadata or {}).get(FORM, b"").decode("ascii", "replace")
    places = form.removeprefix(PLACES)
    is_known = form in (INTEGER, SHORTEST, POINT)
    if form.startswith(PLACES) and places.isdecimal():
        is_known = 0 < int(places) <= MOST_PLACES
    return form if is_known and field.type == type_of_form(form) else None


def _plain(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    return texts if not pa.types.is_dictionary(texts.type) else texts.cast(pa.string())


def _present(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The texts that are not missing."""
    assert is_text(texts.type)
    texts = _plain(texts).drop_null()
    return texts.filter(pc.invert(pc.is_in(texts, pa.array(ABSENT))))


def _as_python_writes(numbers: pa.Array) -> pa.StringArray:
    """The texts that Python, and with it pandas, writes: `5.0`, `1e-05`."""
    sizes = pc.abs(numbers)
    is_plain = pc.or_(pc.equal(sizes, 0), pc.and_(pc.greater_equal(sizes, LEAST_PLAIN), pc.less(sizes, MOST_PLAIN)))
    texts = pc.replace_substring_regex(numbers.cast(pa.string()), r"^(-?[0-9]+)$", r"\1.0")
    if pc.all(is_plain).as_py() is not False:
        return texts
    with_exponent = numbers.filter(pc.invert(is_plain))  # nulls are left out, too
    written = pa.array([repr(number) for number in with_exponent.to_pylist()], pa.string())
    return pc.replace_with_mask(texts, pc.fill_null(pc.invert(is_plain), False), written)


__all__ = [
    "INTEGER",
    "POINT",
    "SHORTEST",
    "NumberTexts",
    "field_of_form",
    "fits",
    "numbers_of_texts",
    "texts_of_numbers",
    "type_of_form",
    "with_texts",
]
