"""What can be learnt from labels: the objective that fits a column, and a column that could be a target."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

import pyarrow as pa

from feat2vec.errors import UserError, listed, suggest
from feat2vec.table.profile import ColumnProfile
from feat2vec.table.propose.choices import Choice
from feat2vec.table.propose.number_rules import are_years, is_named_as_key, number_span, numbers_that_identify
from feat2vec.table.propose.quoting import quote_short
from feat2vec.table.propose.rules import choose
from feat2vec.table.table import Table
from feat2vec.table.types import is_list

Objective = Literal["logistic", "softmax", "regression"]
MOST_CLASSES = 1000
TIME = re.compile(r"(?i)(?:^|[\W_])(?:year|yr|decade|date|month|day|weekday|hour|time)(?:$|[\W_])|[a-z](?:Year|Date)$")
TARGET = re.compile(
    r"(?i)(?:^|[\W_])(?:target|label|class|outcome|survived|churn|churned|clicked|bought|rating|ratings|stars|score|grade|"
    r"price|sales?|salary|fraud|default)$|[a-z](?:Rating|Score|Price|Label|Class)$"
)
FEW_CLASSES, ROWS_PER_CLASS = 20, 10  # of a category that is proposed


class Target(NamedTuple):
    """A column to be predicted.

    Attributes:
        column: Its name.
        objective: What learns it.
        rows: The rows that have a value.
        classes: The number of values, of a category.
        reason: What its values are, and why the objective fits.

    """

    column: str
    objective: Objective
    rows: int
    classes: int
    reason: str


def refuse_unknown_target(table: Table, target: str) -> None:
    """Raise a UserError for a target that is no column, or one of lists."""
    if not isinstance(target, str) or target not in table.columns:
        hint = suggest(target, table.columns) or f"; the columns are {listed(table.columns)}"
        raise UserError(f"{table.name}: has no column {target!r} to be the target{hint}")
    kind = table.columns[target]
    if is_list(kind):
        raise UserError(f"{table.name}: the target {target!r} holds lists ({kind}); a row has one value of a target")


def target_of(table: Table, column: ColumnProfile) -> Target:
    """Return the objective that fits a column.

    Args:
        table: The table, for messages.
        column: The profile of the column.

    Raises:
        UserError: Nothing can be learnt from the column, or no objective can.

    """
    problem = _problem_of(column)
    if problem is not None:
        raise UserError(f"{table.name}: the target {column.name!r} {problem}")
    objective = _objective_of(column)
    if objective == "softmax" and column.distinct > MOST_CLASSES:
        raise UserError(
            f"{table.name}: the target {column.name!r} has {column.distinct:,} values, and {MOST_CLASSES:,} can be "
            "classes; train without a target, so that `feat2vec complete` tells the most probable values"
        )
    classes = column.distinct if objective == "softmax" else 0
    return Target(column.name, objective, column.present, classes, _reason(column, objective))


def _problem_of(column: ColumnProfile) -> str | None:
    if column.refusal:
        return column.refusal
    if not column.present:
        return "has no value in any row"
    is_number = column.kind in ("number", "date")
    if column.distinct <= 1 or (is_number and column.low == column.high):
        value = f"{column.low:g}" if column.kind == "number" else quote_short(str((column.sample or ["one value"])[0]))
        return f"is {value} in every row that has it; a target has two values or more"
    is_identifier = is_named_as_key(column) and numbers_that_identify(column) is not None
    if (is_number and not is_identifier) or pa.types.is_boolean(column.type):
        return None
    choice = choose(column)
    extractor = choice.extractor
    example = quote_short(str(column.sample[0]))
    if extractor is None:
        return f"is {choice.comment}; a target is a number, or a category that many rows have"
    if "split" in extractor:
        return f"holds lists, such as {example}; a row has one value of a target"
    numbers = column.written_numbers.best_of_most
    if extractor.get("nan") == "lenient" and numbers is not None:
        junk = quote_short(numbers.junk_texts[0])
        return f"holds text beside numbers, such as {junk}; write null for a missing number to predict them"
    if "written" in extractor:
        return f"holds text, such as {example}; write numbers as 1234.5 to predict them"
    if extractor["type"] in ("text_cnn", "text_attention", "vector"):
        kind = "vectors" if extractor["type"] == "vector" else f"{column.distinct:,} texts"
        return f"holds {kind}, such as {example}; a target is a number, or a category that many rows have"
    return None


def _objective_of(column: ColumnProfile) -> Objective:
    zeros_and_ones = column.kind == "number" and column.distinct == 2 and (column.low, column.high) == (0, 1)
    if zeros_and_ones or pa.types.is_boolean(column.type) or _are_truth_values(column):
        return "logistic"
    if column.kind == "date" or (column.kind == "number" and not _are_codes(column)):
        return "regression"
    return "softmax"


def _are_truth_values(column: ColumnProfile) -> bool:
    """Whether the text of a file without types says true and false, which the encoder reads as 1 and 0."""
    values = {str(value).casefold() for value in column.sample}
    return not column.typed and column.distinct == len(column.sample) and values == {"true", "false"}


def _are_codes(column: ColumnProfile) -> bool:
    return column.are_integers and is_named_as_key(column) and column.distinct <= MOST_CLASSES


def _reason(column: ColumnProfile, objective: Objective) -> str:
    missing = f", {column.missing:,} rows have none" if column.missing else ""
    if objective == "logistic":
        return f"two values: the probability of a 1 is learnt{missing}"
    if objective == "softmax":
        return f"{column.distinct:,} values: the probability of each is learnt{missing}"
    if column.kind == "date":
        return f"days since 1970{missing}"
    return f"numbers, {number_span(column)}{missing}"


# --- a proposal -----------------------------------------------------------------------------------------------------


def suggest_target(groups: Mapping[str, Choice], columns: Mapping[str, ColumnProfile]) -> str | None:
    """Return the column that is the likeliest target, if there is one; never a time, or a category of many values.

    The best is one that is called so, then one of two values, then a category of few, then a number. Of equals it is
    the last, as labels are often behind what they follow from.

    Args:
        groups: The groups that no other group repeats, by name.
        columns: The profiles of the table's columns, by name.

    """
    candidates = [choice.columns[0] for choice in groups.values() if _can_be_target(choice, columns)]

    def rank(name: str) -> int:
        column = columns[name]
        if TARGET.search(name) is not None:
            return 0
        if column.distinct == 2:
            return 1
        return 2 if _objective_of(column) == "softmax" else 3

    return min(reversed(candidates), key=rank, default=None)


def _can_be_target(choice: Choice, columns: Mapping[str, ColumnProfile]) -> bool:
    if len(choice.columns) > 1:
        return False
    column = columns[choice.columns[0]]
    is_time = are_years(column) or column.kind == "date" or TIME.search(column.name) is not None
    is_time = is_time or "dates" in (choice.extractor or {})
    if column.missing or is_time or column.is_list or _problem_of(column) is not None:
        return False
    if column.kind == "number" and is_named_as_key(column):
        return False
    return _objective_of(column) != "softmax" or _are_few_classes(column)


def _are_few_classes(column: ColumnProfile) -> bool:
    return column.distinct <= FEW_CLASSES and column.distinct * ROWS_PER_CLASS <= column.present
