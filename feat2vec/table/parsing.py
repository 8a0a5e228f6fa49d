"""Text as values of another type; what cannot be parsed is named with its row."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.table.kinds import MISSING_NUMBERS
from feat2vec.table.stages import Stage


def trimmed(stage: Stage, values: pa.Array) -> pa.Array:
    """Return text of numbers or dates without spaces around it; null where it says that a value is missing."""
    text = pc.utf8_trim_whitespace(values.cast(pa.string()))
    absent = [""] if stage.table.typed else ["", *MISSING_NUMBERS]
    return pc.if_else(pc.is_in(text, pa.array(absent)), pa.scalar(None, pa.string()), text)


def parse_text(
    stage: Stage, column: str, text: pa.Array, parse: Callable[[pa.Array], pa.Array], message: str
) -> pa.Array:
    """Parse text, or raise a UserError that names the first row that cannot be parsed."""
    try:
        return parse(text)
    except pa.ArrowInvalid:
        low, high = 0, len(text)  # text[:low] parses, text[:high] does not
        while high - low > 1:
            middle = (low + high) // 2
            try:
                parse(text[low:middle])
                low = middle
            except pa.ArrowInvalid:
                high = middle
        stage.refuse(low, column, text[low].as_py(), message)
