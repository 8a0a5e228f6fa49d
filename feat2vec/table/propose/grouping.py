"""From choices to groups: their names, merged numbers, and the column that names the rows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count

from feat2vec.table.profile import ColumnProfile
from feat2vec.table.propose.choices import Choice
from feat2vec.table.propose.defaults import ExtractorOptions
from feat2vec.table.propose.number_rules import counts_rows, is_named_as_key, numbers_in_text
from feat2vec.table.propose.quoting import readable_name
from feat2vec.table.propose.text_patterns import are_addresses, is_phone
from feat2vec.table.propose.text_rules import numbers_beside_text

MANY_NUMERIC_GROUPS = 40
LONGEST_ROW_NAME = 80
NAMED_AS_TITLE = re.compile(r"(?i)(?:^|[\W_])(?:title|name|headline|label)$|[a-z](?:Title|Name)$")
NAMED_AS_ADDRESS = re.compile(
    r"(?i)(?:^|[\W_])(?:phones?|telephone|tel|mobile|cell|fax|e-?mails?|mail|isbn|issn|ean|upc|doi|url|uri|link|web|"
    r"website|homepage|ip)(?:$|[\W_\d])|[a-z](?:Phone|Email|Url|Link)$"
)


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
    numeric = [choice for choice in choices if choice.extractor and _is_plain_number(choice.extractor)]
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


def _is_plain_number(extractor: ExtractorOptions) -> bool:
    is_read_from_text = {"written", "dates"} & set(extractor) or extractor.get("nan") == "lenient"
    return extractor["type"] == "numeric" and not is_read_from_text


def _merge(choices: Sequence[Choice]) -> Choice:
    """Return one choice for all columns of numbers."""
    if len(choices) == 1:
        return choices[0]
    options = [choice.extractor or {} for choice in choices]
    scales = {option.get("scale") for option in options}
    extractor: ExtractorOptions = {"type": "numeric", "hidden": [64]}
    if scales != {None}:
        extractor["scale"] = "quantile"
    if any("nan" in option for option in options):
        extractor["nan"] = "missing"
    return Choice(tuple(choice.columns[0] for choice in choices), extractor, f"{len(choices)} columns of numbers")


# --- the column that names the rows ----------------------------------------------------------------------------------


def choose_row_names(columns: Sequence[ColumnProfile], left_out: Mapping[str, str]) -> str | None:
    """Return the column that names the rows, if there is one: best one that is called so, then one that is no group.

    A unique title says more than what reaches somebody or something, such as a phone number or an ISBN. An index that a
    program wrote beside the rows comes last.
    """

    def rank(column: ColumnProfile) -> tuple[bool, int, bool]:
        return counts_rows(column), _order_of_row_names(column, is_left_out=column.name in left_out), _is_number(column)

    candidates = [column for column in columns if _names_every_row(column, is_left_out=column.name in left_out)]
    best = min(candidates, key=rank, default=None)
    return None if best is None else best.name


def _order_of_row_names(column: ColumnProfile, *, is_left_out: bool) -> int:
    if _reaches(column):
        return 3
    if is_named_as_key(column):
        return 0
    if is_left_out:
        return 1
    return 2 if NAMED_AS_TITLE.search(column.name) is not None and column.kind == "text" else 4


def _is_number(column: ColumnProfile) -> bool:
    return column.kind != "text" and not is_named_as_key(column)


def _reaches(column: ColumnProfile) -> bool:
    """Whether values are numbers of telephones or books, or addresses of mail or in the web."""
    if NAMED_AS_ADDRESS.search(column.name) is not None:
        return True
    texts = [str(value) for value in column.sample]
    return column.kind == "text" and (are_addresses(texts) or sum(map(is_phone, texts)) >= 0.9 * len(texts))


def _has_hours(column: ColumnProfile) -> bool:
    return column.kind == "date" and sum(part.startswith("hour=") for part in column.date_parts or ()) > 1


def _names_every_row(column: ColumnProfile, *, is_left_out: bool) -> bool:
    if column.refusal or column.absent or not column.sample or not column.distinct == column.rows > 2:
        return False
    if column.kind == "number" and not (column.are_integers and is_left_out):
        return False  # quantities differ by chance, and so do times
    if column.kind not in ("number", "text", "date") or column.written_dates.best is not None or _has_hours(column):
        return False
    if numbers_in_text(column) is not None or numbers_beside_text(column) is not None:
        return False
    return max(len(str(value)) for value in column.sample) <= LONGEST_ROW_NAME
