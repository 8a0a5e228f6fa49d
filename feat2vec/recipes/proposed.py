"""The schema of a recipe for any table: `groups: proposed` are those that `feat2vec init` writes for its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from feat2vec.errors import UserError
from feat2vec.schema.document import Data, Document
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_edit import with_settings
from feat2vec.schema.yaml_text import parse_document
from feat2vec.table.propose import propose_schema
from feat2vec.table.table import Table

PROPOSED = "proposed"
BINS = 30  # of a column of numbers
PROPOSED_GROUP = "?"  # stands for the groups, so that the rest of a schema can be checked before there are rows


def asks_for_groups(document: Document) -> bool:
    """Whether a recipe's schema leaves its groups to the rows."""
    return document.data.get("groups") == PROPOSED


def read_without_groups(document: Document, settings: Sequence[str]) -> Schema:
    """Check a schema whose groups will be proposed; groups that stand for these are in it.

    Args:
        document: The recipe's schema.
        settings: Such as "training.epochs=5"; they replace what the schema says.

    Returns:
        The schema with groups that no table has.

    Raises:
        UserError: Something else of the schema is wrong, or it names no target.

    """
    given = with_settings(document, settings)
    learnt = given.data.get("objective")
    if not isinstance(learnt, dict) or not isinstance(learnt.get("target"), str):
        raise UserError(
            given.problem(("objective",), f"`groups: {PROPOSED}` needs the column to learn: --set objective.target=...")
        )
    stand_in: dict[str, Data] = {PROPOSED_GROUP: {"column": PROPOSED_GROUP}}
    stand_ins: dict[str, Data] = {"groups": stand_in, "objective": {"type": "logistic", **learnt}}
    return read_schema(replace(given, data={**given.data, **stand_ins}))


def proposed_document(document: Document, settings: Sequence[str], table: Table) -> Document:
    """The schema with the groups, and the objective, that `feat2vec init` proposes for a table; numbers are bins.

    Args:
        document: The recipe's schema.
        settings: Such as "training.epochs=5"; they replace what the schema says.
        table: The rows to learn from.

    Returns:
        The document of the schema. What it says of the objective stays; the type is proposed if it says none.

    Raises:
        UserError: The table has no such target, or nothing to learn it from.

    """
    given = with_settings(document, settings)
    learnt = given.data["objective"]
    assert isinstance(learnt, dict)
    target = str(learnt["target"])
    try:
        proposal = parse_document(propose_schema(table, target=target).text).data
    except UserError as error:  # of a file that is removed when the recipe ends
        of_table = [problem.replace(f"{table.name}: ", "the table: ", 1) for problem in error.problems]
        remedy = "name the column to learn: --set objective.target=COLUMN"
        raise UserError(*(given.problem(("objective", "target"), problem) for problem in of_table), remedy) from None
    groups = proposal["groups"]
    assert isinstance(groups, dict)
    of_rows: dict[str, Data] = {
        "groups": {name: _as_keys(group) for name, group in groups.items()},
        "objective": _objective(proposal["objective"], learnt),
    }
    return replace(given, data={"id": proposal.get("id"), **given.data, **of_rows})


def _as_keys(group: Data) -> Data:
    """A proposed group, of which numbers are bins: factorization machines are of keys, whose ranks follow from counts.

    Numbers that are written in a way of their own stay numbers.
    """
    extractor = group.get("extractor") if isinstance(group, dict) else None
    options = {"type": extractor} if isinstance(extractor, str) else extractor
    if not isinstance(group, dict) or not isinstance(options, dict) or options.get("type") != "numeric":
        return group
    if "column" not in group or options.get("written") is not None or options.get("dates") is not None:
        return group
    return {**group, "extractor": {"type": "lookup", "bins": BINS}}


def _objective(proposed: Data, given: Mapping[str, Data]) -> Data:
    """The proposed objective with the options that are given."""
    return {**(proposed if isinstance(proposed, dict) else {}), **given}


def lines_of(schema: Schema) -> Iterator[str]:
    """What was proposed, in two lines: the groups by their extractors, and what is learnt."""
    by_extractor: dict[str, list[str]] = {}
    for name, group in schema.groups.items():
        by_extractor.setdefault(group.extractor.type, []).append(name)
    yield "; ".join(f"{extractor}: {', '.join(names)}" for extractor, names in by_extractor.items())
    yield f"{schema.objective.type} of {schema.target}"
