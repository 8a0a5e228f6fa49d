"""From choices to groups: their names, merged numbers, copies, the column that names the rows, and a target."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count
from typing import NamedTuple

import pyarrow as pa

from feat2vec.table.profile import ColumnProfile
from feat2vec.table.propose.quoting import readable_name
from feat2vec.table.propose.rules import FEW_NUMBERS, NAMED_AS_KEY, Choice, ExtractorOptions

MANY_NUMERIC_GROUPS = 12
LONGEST_ROW_NAME = 80
TARGET = re.compile(r"(?i)^(target|label|class|y|outcome|survived|churn|clicked|bought|rating|score|price|sales?)$")


# --- names -----------------------------------------------------------------------------------------------------------


def name_groups(choices: Sequence[Choice]) -> dict[str, Choice]:
    """Return the groups by name; of very many groups of numbers a few are made, by the start of their names."""
    merged = _merge_numbers(choices)
    named = [(choice.columns[0], choice) for choice in choices] if merged is None else merged
    groups: dict[str, Choice] = {}
    taken_names: set[str] = set()  # names of files are made of them, in which some systems do not tell case apart
    for name, choice in named:
        unique_name = _unique_name(readable_name(name), taken_names)
        taken_names.add(unique_name.casefold())
        groups[unique_name] = choice
    return groups


def _unique_name(name: str, taken_names: set[str]) -> str:
    if name.casefold() not in taken_names:
        return name
    numbered = (f"{name}_{i}" for i in count(2))
    return next(candidate for candidate in numbered if candidate.casefold() not in taken_names)


def _merge_numbers(choices: Sequence[Choice]) -> list[tuple[str, Choice]] | None:
    """Return named groups, of which those of numbers are merged; None if there are too few of either."""
    numeric = [choice for choice in choices if choice.extractor and choice.extractor["type"] == "numeric"]
    if len(numeric) <= MANY_NUMERIC_GROUPS:
        return None
    by_stem: dict[str, list[Choice]] = defaultdict(list)  # "sensor_1" and "sensor_2" have the stem "sensor"
    for choice in numeric:
        by_stem[re.split(r"(?<=\w)(?:[\W_]|\d+$)", choice.columns[0])[0]].append(choice)
    by_name: dict[str, list[Choice]] = defaultdict(list)
    for stem, members in by_stem.items():
        by_name[stem if len(members) > 2 else "numbers"] += members
    named = [(choice.columns[0], choice) for choice in choices if choice not in numeric]
    named += [(name, _merge(members)) for name, members in by_name.items()]
    return named if len(named) >= 2 else None  # a single group has nothing to learn from


def _merge(choices: Sequence[Choice]) -> Choice:
    """Return one choice for all columns of numbers."""
    if len(choices) == 1:
        return choices[0]
    options = [choice.extractor or {} for choice in choices]
    scales = {option.get("scale") for option in options}
    extractor: ExtractorOptions = {"type": "numeric", "hidden": [64]}
    if scales != {None}:
        extractor["scale"] = "quantile" if None in scales else "log1p"
    if any("nan" in option for option in options):
        extractor["nan"] = "missing"
    return Choice(tuple(choice.columns[0] for choice in choices), extractor, f"{len(choices)} columns of numbers")


# --- copies ----------------------------------------------------------------------------------------------------------


def find_copies(columns: Sequence[ColumnProfile], groups: Mapping[str, Choice]) -> dict[str, str]:
    """Return the groups that recode the column of an earlier group, one to one, and that column for each."""
    comparable = {
        column.name: column
        for column in columns
        if column.distinct > 2 and column.distinct_share <= 0.9 and column.rows >= FEW_NUMBERS and not column.is_list
    }
    originals: dict[tuple[bytes, int], str] = {}
    copies: dict[str, str] = {}
    for group, choice in groups.items():
        column = comparable.get(choice.columns[0])
        if column is None or len(choice.columns) > 1:
            continue
        original = originals.setdefault((column.fingerprint.digest(), column.distinct), column.name)
        if original != column.name:
            copies[group] = original
    return copies if len(groups) - len(copies) > 1 else {}


# --- the column that names the rows ----------------------------------------------------------------------------------


def choose_row_names(columns: Sequence[ColumnProfile], left_out: Mapping[str, str]) -> str | None:
    """Return the column that names the rows, if there is one: best one that is called so, then one that is no group."""

    def rank(column: ColumnProfile) -> tuple[bool, bool, bool]:
        is_named = NAMED_AS_KEY.search(column.name) is not None
        return not is_named, column.name not in left_out, not is_named and column.kind != "text"

    best = min(filter(_names_every_row, columns), key=rank, default=None)
    return None if best is None else best.name


def _names_every_row(column: ColumnProfile) -> bool:
    if column.refusal or column.absent or not column.sample or not column.distinct == column.rows > 2:
        return False
    has_names = column.kind in ("text", "date") or (column.kind == "number" and column.are_integers)
    return has_names and max(len(str(value)) for value in column.sample) <= LONGEST_ROW_NAME


# --- a target --------------------------------------------------------------------------------------------------------


class Target(NamedTuple):
    """A group whose column could be a target, and the objective for it."""

    group: str
    column: str
    objective: str


def choose_target(groups: Mapping[str, Choice], columns: Mapping[str, ColumnProfile]) -> Target | None:
    """Return the last group whose column could be a target, if there is one: best one that is called so."""
    candidates = [group for group, choice in groups.items() if _can_be_target(choice, columns[choice.columns[0]])]
    if not candidates:
        return None
    named_so = [group for group in candidates if TARGET.match(groups[group].columns[0])]
    group = (named_so or candidates)[-1]
    choice = groups[group]
    column = columns[choice.columns[0]]
    return Target(group, column.name, _objective_for(choice, column))


def _objective_for(choice: Choice, column: ColumnProfile) -> str:
    if choice.extractor is not None and choice.extractor["type"] == "numeric":
        return "regression"
    return "logistic" if _is_binary(column) else "softmax"


def _can_be_target(choice: Choice, column: ColumnProfile) -> bool:
    extractor = choice.extractor or {}
    is_single_value = not {"split", "multi", "parts"} & set(extractor)
    return is_single_value and extractor["type"] not in ("text_cnn", "vector") and not column.missing


def _is_binary(column: ColumnProfile) -> bool:
    zeros_and_ones = column.kind == "number" and column.distinct == 2 and (column.low, column.high) == (0, 1)
    return zeros_and_ones or bool(pa.types.is_boolean(column.type))
