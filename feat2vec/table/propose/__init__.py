"""A first schema for any table.

In: a source. Out: the text of a commented schema. `rules.py` decides what becomes of a column (`text_patterns.py` says
what its text looks like), `grouping.py` makes groups of the choices, `copies.py` finds those that say the same,
`learning.py` asks `defaults.py` how they are learnt, `writing.py` writes YAML. Open `rules.py` first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from feat2vec.errors import UserError, listed
from feat2vec.table.profile import PROFILE_STAGE_BYTES, ColumnProfile, profile_table
from feat2vec.table.propose.choices import Choice
from feat2vec.table.propose.copies import find_copies, find_copies_of
from feat2vec.table.propose.grouping import choose_row_names, name_groups
from feat2vec.table.propose.learning import with_target, without_target
from feat2vec.table.propose.quoting import quote_short
from feat2vec.table.propose.rules import choose
from feat2vec.table.propose.targets import Target, refuse_unknown_target, suggest_target, target_of
from feat2vec.table.propose.writing import Proposal, write_schema
from feat2vec.table.sources.csv import DELIMITERS
from feat2vec.table.table import Table, open_table

REMEDY = "add columns whose values come again"
REMEDY_WITHOUT_TARGET = f"{REMEDY}, or give a target to predict from the columns that are left"
FEWEST_ROWS = 5


@dataclass(frozen=True)
class ProposedSchema:
    """A schema, and what is to be said about it.

    Attributes:
        text: Of the schema, with comments.
        choices: What was chosen, in a few lines.
        warning: Why no good result can be expected, in one line, if that is so.

    """

    text: str
    choices: Sequence[str]
    warning: str | None


def propose(
    source: object,
    name: str | None = None,
    *,
    target: str | None = None,
    path: str | os.PathLike[str] = "schema.yaml",
    stage_bytes: int = PROFILE_STAGE_BYTES,
) -> str:
    """Profile a table over all of its rows, and propose a schema for it.

    Args:
        source: anything that `open_table` takes.
        name: of the schema; by default it is made from the name of the source.
        target: a column to predict from the others; without one, the columns are learnt from each other.
        path: where the schema will be written, for the command that its first lines propose.
        stage_bytes: how much of the table is held at once.

    Returns:
        The text of a schema, with a comment on each group and each column that is left out.

    Raises:
        UserError: when the table cannot be read, or too few of its columns can be groups, or nothing can be learnt
            from the target.

    Example:
        >>> import pyarrow as pa
        >>> films = pa.table({"director": ["Varda", "Ozu"] * 20, "year": [1950 + i for i in range(20)] * 2})
        >>> print(next(line for line in propose(films).splitlines() if "director" in line))
          director: {column: director, extractor: lookup}  # 2 keys in 40 rows

    """
    return propose_schema(source, name, target=target, path=path, stage_bytes=stage_bytes).text


def propose_schema(
    source: object,
    name: str | None = None,
    *,
    target: str | None = None,
    path: str | os.PathLike[str] = "schema.yaml",
    stage_bytes: int = PROFILE_STAGE_BYTES,
) -> ProposedSchema:
    """Return what `propose` writes, and what is to be said about it; the arguments are the same."""
    table = open_table(source)
    if target is not None:
        refuse_unknown_target(table, target)
    profiles, left_out = profile_table(table, stage_bytes)
    _refuse_few_rows(table, profiles)
    columns = {column.name: column for column in profiles}
    goal = None if target is None else _goal(table, columns, target, left_out)
    groups = _groups(columns, goal, left_out)
    _refuse_too_few_groups(table, groups, goal, left_out)
    row_names = choose_row_names([column for column in profiles if column.name != target], left_out)
    if row_names is not None and row_names in left_out:
        left_out[row_names] += "; it names the rows"
    copies = find_copies(columns, groups)
    learning = without_target(columns, groups, copies) if goal is None else with_target(columns, groups, copies, goal)
    kept = {group: choice for group, choice in groups.items() if group not in copies}
    proposal = Proposal(
        source=source,
        name=name,
        path=os.fsdecode(path),
        rows=profiles[0].rows,
        column_count=len(table.columns),
        row_names=row_names,
        groups=learning.groups,
        copies=copies,
        left_out=left_out,
        sections=learning.sections,
        target=target,
        possible_target=suggest_target(kept, columns),
        warning=learning.warning,
    )
    return ProposedSchema(write_schema(proposal), _choices(proposal), learning.warning)


def _goal(table: Table, columns: Mapping[str, ColumnProfile], target: str, left_out: Mapping[str, str]) -> Target:
    if target not in columns:
        raise UserError(f"{table.name}: the target {target!r} {left_out[target]}")
    return target_of(table, columns[target])


def _groups(columns: Mapping[str, ColumnProfile], goal: Target | None, left_out: dict[str, str]) -> dict[str, Choice]:
    """The groups by name; the columns that are none, such as those that tell the target, go to `left_out`."""
    candidates = dict(columns)
    if goal is not None:
        del candidates[goal.column]
        for name in find_copies_of(columns[goal.column], list(candidates.values())):
            left_out[name] = f"tells what {quote_short(goal.column)} tells, one to one"
            del candidates[name]
    choices = [choose(column) for column in candidates.values()]
    for choice in choices:
        if choice.extractor is None:
            left_out[choice.columns[0]] = choice.comment
    return name_groups([choice for choice in choices if choice.extractor is not None])


def _refuse_few_rows(table: Table, columns: Sequence[ColumnProfile]) -> None:
    rows = max((column.rows for column in columns), default=FEWEST_ROWS)
    if rows < FEWEST_ROWS:
        raise UserError(
            f"{table.name}: has {rows:,} row{'s' * (rows != 1)}, of which nothing can be learnt; give it some hundreds"
        )


def _refuse_too_few_groups(
    table: Table, groups: Mapping[str, Choice], goal: Target | None, left_out: Mapping[str, str]
) -> None:
    if len(groups) >= (2 if goal is None else 1):
        return
    reasons = [f"  {quote_short(column)}: {reason}" for column, reason in left_out.items()]
    if len(reasons) > 3:
        reasons = [*reasons[:2], f"  and {len(reasons) - 2} more"]
    is_one_column_of_text = not table.typed and len(table.columns) == 1
    needed = "two, or one and a target" if goal is None else "one beside the target"
    raise UserError(
        f"{table.name}: {len(groups) or 'no'} of {len(table.columns)} columns can be a group, and a schema needs "
        f"{needed}{'; left out:' if reasons else ''}",
        *reasons,
        DELIMITERS if is_one_column_of_text else REMEDY_WITHOUT_TARGET if goal is None else REMEDY,
    )


# --- what is said ---------------------------------------------------------------------------------------------------


def _choices(proposal: Proposal) -> list[str]:
    """What was chosen: the kinds of groups, the columns that are left out, and how the rest is learnt."""
    by_kind: dict[str, list[str]] = {}
    for name, choice in proposal.groups.items():
        if name not in proposal.copies:
            by_kind.setdefault(_kind_in_words(choice), []).append(name)
    lines = [f"{kind}: {listed(names)}" for kind, names in by_kind.items()]
    if proposal.row_names is not None:
        lines.append(f"names of rows: {listed([proposal.row_names])}")
    left_out = [*proposal.left_out, *(proposal.groups[name].columns[0] for name in proposal.copies)]
    left_out = [name for name in left_out if name != proposal.row_names]
    if left_out:
        lines.append(f"left out: {listed(name or 'the column without a name' for name in left_out)}")
    options = {name: section.options for name, section in proposal.sections.items()}
    goal = f" of {proposal.target}" if proposal.target is not None else ""
    facts = (("model", "dim"), ("training", "epochs"), ("training", "batch_size"))
    numbers = [f"{key} {options[name][key]}" for name, key in facts if key in options.get(name, {})]
    lines.append(", ".join([f"objective: {options['objective']['type']}{goal}", *numbers]))
    return lines


def _kind_in_words(choice: Choice) -> str:
    extractor = choice.extractor or {}
    if extractor["type"] == "lookup":
        if extractor.get("parts"):
            return "dates"
        if extractor.get("bins"):
            return "numbers, as bins"
        if extractor.get("split") == "words":
            return "texts"
        return "lists" if {"split", "multi"} & set(extractor) else "keys"
    return {"text_cnn": "texts", "text_attention": "texts", "numeric": "numbers"}.get(str(extractor["type"]), "vectors")
