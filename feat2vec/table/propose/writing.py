"""A proposal as the text of a commented schema."""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from feat2vec.table.propose.choices import Choice
from feat2vec.table.propose.defaults import Section
from feat2vec.table.propose.quoting import quote_short, readable_name, to_yaml
from feat2vec.table.sources.registry import scheme_of

LINE = 120
COMMENTED_LINE = 116  # of a group with its comment behind it
WIDEST_GROUP_NAME = 24  # that others are aligned with


@dataclass(frozen=True)
class Proposal:
    """What a schema is written of.

    Attributes:
        source: that was profiled.
        name: of the schema; None for one that is made from the source.
        path: where the schema will be written.
        rows: of the table.
        column_count: of the table.
        row_names: the column that names the rows, if there is one.
        groups: by name.
        copies: the groups that are commented out, and why.
        left_out: the columns that are no group, and why.
        sections: how they are learnt, by the name of the section.
        target: the column that is predicted, if there is one.
        possible_target: a column that could be, if there is none.
        warning: why no good result can be expected, if that is so.

    """

    source: object
    name: str | None
    path: str
    rows: int
    column_count: int
    row_names: str | None
    groups: Mapping[str, Choice]
    copies: Mapping[str, str]
    left_out: Mapping[str, str]
    sections: Mapping[str, Section]
    target: str | None
    possible_target: str | None
    warning: str | None


def write_schema(proposal: Proposal) -> str:
    """Return the text of a schema."""
    data, default_name = _names_of_source(proposal.source)
    lines = [
        *_header(data, proposal),
        "",
        "version: 1",
        f"name: {to_yaml(proposal.name or default_name)}",
    ]
    if proposal.row_names:
        lines.append(f"id: {to_yaml(proposal.row_names)}  # names every row")
    if "model" in proposal.sections:
        lines += _section_lines("model", proposal.sections["model"])
    lines += ["groups:", *_group_lines(proposal.groups, proposal.copies), ""]
    if proposal.left_out:
        lines.append("# Left out:")
        for column, reason in proposal.left_out.items():
            lines += _comment(f"{quote_short(column)}: {reason}", "#   ")
        lines.append("")
    for name, section in proposal.sections.items():
        if name != "model":  # which comes first
            lines += _section_lines(name, section)
        if name == "objective":
            lines += _target_comment(data, proposal)
    return "\n".join(lines) + "\n"


def _names_of_source(source: object) -> tuple[str, str]:
    """Return what a source is called in a command, and in a schema."""
    if not isinstance(source, (str, os.PathLike)):
        return "DATA", "table"
    name = os.fsdecode(source)
    scheme = scheme_of(name)
    if scheme is not None:
        return name, readable_name(name.removeprefix(scheme.prefix), "table")
    base = os.path.basename(name.rstrip("/"))
    return base if os.path.isabs(name) else name, readable_name(base.partition(".")[0], "table")


def _header(data: str, proposal: Proposal) -> list[str]:
    path = _shown(proposal.path)
    what = "" if proposal.target is None else f" --target {shlex.quote(_shown(proposal.target))}"
    lines = [
        f"# Written by `feat2vec init{what}` from {_shown(data)}: {proposal.rows:,} rows, "
        f"{proposal.column_count} columns.",
        f"# Next: feat2vec check {shlex.quote(path)} --data {shlex.quote(_shown(data))}",
    ]
    if proposal.warning is not None:
        lines += _comment(f"Weak: {proposal.warning}", "# ")
    return lines


def _shown(text: str) -> str:
    return text if text.isprintable() else to_yaml(text)


# --- groups ----------------------------------------------------------------------------------------------------------


def _group_lines(groups: Mapping[str, Choice], copies: Mapping[str, str]) -> list[str]:
    width = min(max(len(to_yaml(name)) for name in groups) + 1, WIDEST_GROUP_NAME)
    lines = []
    for name, choice in groups.items():
        if name in copies:
            lines += _lines_of_group(name, choice, copies[name], "  # ", width)
        else:
            lines += _lines_of_group(name, choice, choice.comment, "  ", width)
    return lines


def _lines_of_group(name: str, choice: Choice, comment: str, indent: str, width: int) -> list[str]:
    """Return a group on one line with its comment, or below it, or (where that is too long) as a block."""
    key = f"{to_yaml(name)}:"
    group: dict[str, object] = {}
    if len(choice.columns) == 1:
        group["column"] = choice.columns[0]
    else:
        group["columns"] = list(choice.columns)
    options = choice.extractor or {}
    group["extractor"] = options["type"] if len(options) == 1 else options
    line = f"{indent}{key:<{width}} {to_yaml(group)}"
    if len(line) + len(comment) <= COMMENTED_LINE:
        return [f"{line}  # {comment}"]
    if len(line) <= LINE:
        return [*_comment(comment, "  # "), line]
    columns = [f"  column: {to_yaml(group['column'])}"] if "column" in group else _column_list(choice.columns)
    block = [key, *columns, f"  extractor: {to_yaml(group['extractor'])}"]
    return [*_comment(comment, "  # "), *(indent + line for line in block)]


def _column_list(columns: Sequence[str]) -> list[str]:
    lines = ["  columns: ["]
    for column in map(to_yaml, columns):
        if len(lines[-1]) + len(column) > 114:
            lines.append(" " * 12)
        lines[-1] += f"{column}, "
    lines[-1] = lines[-1].removesuffix(", ") + "]"
    return [line.rstrip() for line in lines]


def _comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, 118, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False)


# --- learning --------------------------------------------------------------------------------------------------------


def _target_comment(data: str, proposal: Proposal) -> list[str]:
    if proposal.target is not None:
        return []
    target = "COLUMN" if proposal.possible_target is None else shlex.quote(_shown(proposal.possible_target))
    return [f"# To predict a column from labels instead: feat2vec init {shlex.quote(_shown(data))} --target {target}"]


def _section_lines(name: str, section: Section) -> list[str]:
    """Return a section on one line with its reason behind it or, where that is too long, above it."""
    line = f"{name}: {to_yaml(section.options)}"
    if not section.reason and len(line) <= LINE:
        return [line]
    if len(line) + len(section.reason) <= COMMENTED_LINE:
        return [f"{line}  # {section.reason}"]
    reason = _comment(section.reason, "# ")  # of no reason there is no line
    return [*reason, *([line] if len(line) <= LINE else [f"{name}:", *_option_lines(section.options)])]


def _option_lines(options: Mapping[str, object]) -> list[str]:
    lines: list[str] = []
    for key, value in options.items():
        line = f"  {to_yaml(key)}: {to_yaml(value)}"
        if len(line) > LINE and isinstance(value, Mapping):
            lines += [f"  {to_yaml(key)}:", *(f"    {to_yaml(name)}: {to_yaml(item)}" for name, item in value.items())]
        else:
            lines.append(line)
    return lines
