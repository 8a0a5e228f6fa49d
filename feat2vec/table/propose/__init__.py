"""A first schema for any table.

In: a source. Out: the text of a commented schema. `rules.py` decides what becomes of a column (`text_patterns.py` says
what its text looks like), `grouping.py` makes groups of the choices, `defaults.py` says how they are learnt from what
`facts.py` knows of them, `writing.py` writes YAML. Open `rules.py` first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from feat2vec.errors import UserError
from feat2vec.table.profile import PROFILE_STAGE_BYTES, ColumnProfile, profile_table
from feat2vec.table.propose.defaults import extractor_for, unlabelled_defaults
from feat2vec.table.propose.facts import facts_of
from feat2vec.table.propose.grouping import choose_row_names, choose_target, find_copies, name_groups
from feat2vec.table.propose.quoting import quote_short
from feat2vec.table.propose.rules import Choice, choose
from feat2vec.table.propose.writing import Proposal, write_schema
from feat2vec.table.sources.csv import DELIMITERS
from feat2vec.table.table import Table, open_table

REMEDY = "add columns whose values come again, or write a schema by hand and give it an objective with a target"


def propose(
    source: object,
    name: str | None = None,
    *,
    path: str | os.PathLike[str] = "schema.yaml",
    stage_bytes: int = PROFILE_STAGE_BYTES,
) -> str:
    """Profile a table over all of its rows, and propose a schema for it.

    Args:
        source: anything that `open_table` takes.
        name: of the schema; by default it is made from the name of the source.
        path: where the schema will be written, for the command that its first lines propose.
        stage_bytes: how much of the table is held at once.

    Returns:
        The text of a schema, with a comment on each group and each column that is left out.

    Raises:
        UserError: when the table cannot be read, or fewer than two of its columns can be groups.

    Example:
        >>> import pyarrow as pa
        >>> films = pa.table({"director": ["Varda", "Ozu"] * 20, "year": [1950 + i for i in range(20)] * 2})
        >>> print(propose(films).splitlines()[7])
          director: {column: director, extractor: lookup}  # 2 keys in 40 rows

    """
    table = open_table(source)
    columns, left_out = profile_table(table, stage_bytes)
    choices = [choose(column) for column in columns]
    for choice in choices:
        if choice.extractor is None:
            left_out[choice.columns[0]] = choice.comment
    groups = name_groups([choice for choice in choices if choice.extractor is not None])
    _refuse_too_few_groups(table, groups, left_out)
    row_names = choose_row_names(columns, left_out)
    if row_names is not None and row_names in left_out:
        left_out[row_names] += "; it names the rows"
    copies = find_copies(columns, groups)
    target = choose_target(_groups_of_one_column(groups, copies), _by_name(columns))
    facts = facts_of(_by_name(columns), groups)
    groups = {
        name: replace(choice, extractor=extractor_for(facts.groups[name], facts)) for name, choice in groups.items()
    }
    proposal = Proposal(
        source=source,
        name=name,
        path=os.fsdecode(path),
        rows=columns[0].rows,
        column_count=len(table.columns),
        row_names=row_names,
        groups=groups,
        copies=copies,
        left_out=left_out,
        sections=unlabelled_defaults(facts),
        target=target,
    )
    return write_schema(proposal)


def _by_name(columns: Sequence[ColumnProfile]) -> dict[str, ColumnProfile]:
    return {column.name: column for column in columns}


def _groups_of_one_column(groups: Mapping[str, Choice], copies: Mapping[str, str]) -> dict[str, Choice]:
    """The groups of one column that no other group repeats: those that can be a target without being given away."""
    return {
        name: choice
        for name, choice in groups.items()
        if len(choice.columns) == 1 and name not in copies and choice.columns[0] not in copies.values()
    }


def _refuse_too_few_groups(table: Table, groups: Mapping[str, Choice], left_out: Mapping[str, str]) -> None:
    if len(groups) >= 2:
        return
    reasons = [f"  {quote_short(column)}: {reason}" for column, reason in left_out.items()]
    if len(reasons) > 3:
        reasons = [*reasons[:2], f"  and {len(reasons) - 2} more"]
    is_one_column_of_text = not table.typed and len(table.columns) == 1
    raise UserError(
        f"{table.name}: {len(groups) or 'no'} of {len(table.columns)} columns can be a group, and a schema needs "
        f"two, or one and a target{'; left out:' if reasons else ''}",
        *reasons,
        DELIMITERS if is_one_column_of_text else REMEDY,
    )
