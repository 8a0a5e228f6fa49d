"""How proposed groups are learnt: with a target or without one, the extractors and the sections of the schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from feat2vec.table.profile import ColumnProfile
from feat2vec.table.propose import defaults_supervised
from feat2vec.table.propose.choices import Choice
from feat2vec.table.propose.defaults import ExtractorOptions, Section, TableFacts, extractor_for, unlabelled_defaults
from feat2vec.table.propose.defaults_supervised import FEWEST_KEYS_OF_PAIRS, supervised_defaults
from feat2vec.table.propose.facts import facts_of, pairs_come_again, time_of
from feat2vec.table.propose.number_rules import as_quantity
from feat2vec.table.propose.targets import Target

FEW_ROWS, FEW_VALUES = 200, 1000  # rows, and values in all groups of all rows
FEWEST_OF_TIME, MOST_REFITTED = 1000, 50_000  # labelled rows: of which the last ones tell enough, and are learnt again
LAST_ROWS = "the last rows in time say how sure predictions of later ones may be"
FEW_LABELS, FEW_OF_A_CLASS = 100, 10
DAYS = "_days"  # the end of the name of a group of dates as numbers


@dataclass(frozen=True)
class Learning:
    """How groups are learnt.

    Attributes:
        groups: The groups with their extractors, by name.
        sections: The sections of the schema but for its groups, by name, in order.
        warning: Why no good result can be expected, if that is so.

    """

    groups: Mapping[str, Choice]
    sections: Mapping[str, Section]
    warning: str | None


def without_target(
    columns: Mapping[str, ColumnProfile], groups: Mapping[str, Choice], copies: Mapping[str, str]
) -> Learning:
    """Return how groups are learnt from each other.

    Args:
        columns: The profiles of the table's columns, by name.
        groups: The groups, by name.
        copies: Those that another group repeats, which are commented out.

    """
    all_facts = facts_of(columns, groups)
    kept = {name: group for name, group in all_facts.groups.items() if name not in copies}
    facts = replace(all_facts, groups=kept, time=time_of(columns, {name: groups[name] for name in kept}))
    learnt = {
        name: replace(choice, extractor=_read_as(choice, extractor_for(all_facts.groups[name], facts)))
        for name, choice in groups.items()
    }
    return Learning(learnt, unlabelled_defaults(facts), _weakness(facts))


def _read_as(choice: Choice, extractor: Mapping[str, object]) -> ExtractorOptions:
    """The options of an extractor, with those that say how the choice's column is read as numbers."""
    options = choice.extractor or {}
    result = dict(extractor)
    if extractor["type"] == "numeric":
        result |= {key: options[key] for key in ("written", "dates", "nan") if key in options}
    return result


def _weakness(facts: TableFacts) -> str | None:
    values = sum(group.present for group in facts.groups.values())
    if facts.rows >= FEW_ROWS and values >= FEW_VALUES:
        if any(group.rows_per_value >= 2 for group in facts.groups.values()):
            return None
        return "hardly a value comes again: nothing is learnt of a value that one row has"
    return (
        f"{facts.rows:,} rows of {len(facts.groups)} groups are too few to learn good vectors from, whatever the "
        "settings: take more rows, or columns"
    )


def with_target(
    columns: Mapping[str, ColumnProfile], groups: Mapping[str, Choice], copies: Mapping[str, str], target: Target
) -> Learning:
    """Return how a target is learnt from groups.

    Args:
        columns: The profiles of the table's columns, by name.
        groups: The groups, by name, without those that tell the target.
        copies: Those that another group repeats, which are commented out.
        target: What is predicted.

    """
    groups = _with_quantities(columns, groups, copies)
    facts = facts_of(columns, groups)
    given = {
        name: _supervised_facts(facts, name) for name in groups if name not in copies
    }  # copies are commented out as they are
    key_columns = [columns[groups[name].columns[0]] for name, group in given.items() if group.kind == "keys"]
    chosen = supervised_defaults(
        target.rows,
        target.objective,
        given,
        target.classes,
        pairs_come_again=pairs_come_again(key_columns, FEWEST_KEYS_OF_PAIRS),
    )
    learnt: dict[str, Choice] = {}
    for name, choice in groups.items():
        reason = chosen.reasons.get(f"groups.{name}")
        comment = f"{choice.comment}; {reason}" if reason else choice.comment
        extractor = _read_as(choice, chosen.extractors.get(name, choice.extractor or {}))
        learnt[name] = replace(choice, extractor=extractor, comment=comment)
    sections = {"objective": Section({"type": target.objective, "target": target.column}, target.reason)}
    for name, options in chosen.settings.items():
        assert isinstance(options, Mapping)
        sections[name] = Section(dict(options), _reason_of(name, chosen.reasons))
    sections.setdefault("model", Section({}, ""))
    time = _time_of_labels(columns, learnt, copies, target)
    if time is not None and "training" in sections:
        options, reason = sections["training"]
        sections["training"] = Section({**options, "time": time}, f"{reason}; {LAST_ROWS}")
    return Learning(learnt, sections, _weakness_of_labels(target))


def _time_of_labels(
    columns: Mapping[str, ColumnProfile], learnt: Mapping[str, Choice], copies: Mapping[str, str], target: Target
) -> str | None:
    """The group by which the last rows say how sure predictions for later ones may be; None if there is none."""
    if not tell_of_later_rows(target.rows):
        return None
    time = time_of(columns, {name: choice for name, choice in learnt.items() if name not in copies})
    return f"{time}{DAYS}" if f"{time}{DAYS}" in learnt else time


def tell_of_later_rows(labelled_rows: int) -> bool:
    """Whether the last of so many labelled rows say how sure predictions for later ones may be, and are learnt then.

    Args:
        labelled_rows: The rows that have a label.

    """
    return FEWEST_OF_TIME <= labelled_rows <= MOST_REFITTED


def _weakness_of_labels(target: Target) -> str | None:
    needed = max(FEW_LABELS, FEW_OF_A_CLASS * target.classes)
    if target.rows >= needed:
        return None
    classes = f" of {target.classes:,} classes" if target.classes else ""
    return f"{target.rows:,} labels{classes} are too few to predict well from, whatever the settings: take more rows"


def _with_quantities(
    columns: Mapping[str, ColumnProfile], groups: Mapping[str, Choice], copies: Mapping[str, str]
) -> dict[str, Choice]:
    """Numbers that are few are quantities to a prediction, and dates go on."""
    result: dict[str, Choice] = {}
    for name, choice in groups.items():
        column = columns[choice.columns[0]]
        quantity = as_quantity(column) if len(choice.columns) == 1 else None
        if "parts" in (choice.extractor or {}):
            result[name] = choice
            if quantity is not None and name not in copies and f"{name}{DAYS}" not in groups:
                result[f"{name}{DAYS}"] = quantity
        else:
            result[name] = quantity or choice
    return result


def _supervised_facts(facts: TableFacts, name: str) -> defaults_supervised.GroupFacts:
    group = facts.groups[name]
    kind = {"numbers": "number", "dates": "date"}.get(group.kind, group.kind)
    return defaults_supervised.GroupFacts(kind, group.extractor, group.distinct)  # type: ignore[arg-type]


def _reason_of(section: str, reasons: Mapping[str, str]) -> str:
    """The reasons for a section and for its options, as one comment."""
    texts = [reasons[section]] if section in reasons else []
    for key, reason in reasons.items():
        if key.startswith(f"{section}."):
            texts.append(f"{key.removeprefix(f'{section}.')}: {reason}")
    return "; ".join(texts)
