"""Batches are validated before their values are used, as Arrow would read beyond the buffers of a damaged one.

Arrow's readers take the offsets, lengths and dictionary indices of a file as they are. Working on a wrong one gives a
wrong answer or ends the process, so that each batch is validated in full before anything looks at its values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from feat2vec.errors import UserError


class DamagedError(UserError):
    """The buffers of a batch do not fit its types: nothing of its source is believed, sound columns neither."""


# Types whose values are validated later, each with its row, and types that have the same buffers.
_SAME_BUFFERS = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
    pa.date64(): pa.int64(),
}


def sound_batches(source: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same batches, validated; whether text is UTF-8 is left to `cast_array`, which names the row.

    Raises:
        DamagedError: when the buffers of a batch do not fit its types or one another.

    """
    first_row = 0
    for batch in batches:
        name = None
        try:
            batch.validate()  # the number of buffers and their sizes: without it a column may not even be taken out
            for name in batch.schema.names:
                _as_bytes(batch.column(name)).validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
            rows = f"rows {first_row + 1:,} to {first_row + max(batch.num_rows, 1):,}"
            where = rows if name is None else f"{rows}: column {name!r:.60}"
            reason = str(error).splitlines()[0]
            raise DamagedError(
                f"{source}: {where}: {reason:.100}", "the file is damaged, or made to do harm: write it again"
            ) from error
        first_row += batch.num_rows
        yield batch


def _as_bytes(array: pa.Array) -> pa.Array:
    """Return the array with bytes in place of text, and numbers in place of dates of milliseconds."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    type_ = _bytes_type(array.type)
    return array if type_ == array.type else array.view(type_)


def _bytes_type(type_: pa.DataType) -> pa.DataType:
    """Return the type with the same buffers whose values need not be UTF-8."""
    if isinstance(type_, pa.BaseExtensionType):
        return _bytes_type(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return pa.dictionary(type_.index_type, _bytes_type(type_.value_type), type_.ordered)
    if pa.types.is_run_end_encoded(type_):
        return pa.run_end_encoded(type_.run_end_type, _bytes_type(type_.value_type))
    for is_type, list_type in _LISTS.items():
        if is_type(type_):
            return list_type(_bytes_type(type_.value_type))
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(_bytes_type(type_.value_type), type_.list_size)
    return _SAME_BUFFERS.get(type_, type_)


_LISTS = {
    pa.types.is_list: pa.list_,
    pa.types.is_large_list: pa.large_list,
    pa.types.is_list_view: pa.list_view,
    pa.types.is_large_list_view: pa.large_list_view,
}


@contextmanager
def damage_named(path: str, format_name: str) -> Iterator[None]:
    """Turn errors of a reader into a UserError that names the file."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: the name of a column is not UTF-8: rename it, or write the file again") from error
    except (pa.ArrowException, OSError) as error:
        reason = f"{str(error).splitlines()[0]:.100}"
        raise UserError(
            f"{path}: cannot be read as {format_name}: {reason}",
            f"is it whole, and is it really {format_name}? write it again",
        ) from error
