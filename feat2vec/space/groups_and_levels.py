"""Which groups of a run are used, at which level, and what the columns of their vectors are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from feat2vec.errors import UserError, listed, suggest
from feat2vec.schema.levels import Levels
from feat2vec.schema.model_options import ModelSpec
from feat2vec.schema.options import Schema

if TYPE_CHECKING:
    from feat2vec.model.pair_scores import Level, Tensor

ROW, ID = "row", "id"  # names of the columns of a row's vector, and of a row's name


def selected_groups(names: Sequence[str], groups: Sequence[str] | None) -> list[str]:
    """The groups that a caller names, in the schema's order.

    Args:
        names: The groups of the run.
        groups: What the caller gave; None is all of them.

    Raises:
        UserError: `groups` is no list, is empty, or names a group that does not exist.

    >>> selected_groups(["director", "genre", "year"], ["year", "genre"])
    ['genre', 'year']

    """
    if groups is None:
        return list(names)
    if isinstance(groups, str) or not groups:
        raise UserError(f"groups: expected a list of groups, such as {list(names[:2])}; received {groups!r}")
    for name in groups:
        if name not in names:
            near = suggest(name, names) or f"; the groups are {listed(names)}"
            raise UserError(f"groups: there is no group {name!r}{near}")
    return [name for name in names if name in groups]


def groups_once(schema: Schema) -> list[str]:
    """The groups of a schema without those whose keys have the table of another group.

    Of groups that share a network each has values, and so vectors, of its own.
    """
    return [
        name
        for name, group in schema.groups.items()
        if schema.owner(name) == name or group.extractor.encoding != "items"
    ]


def others_with_table(schema: Schema, group: str) -> list[str]:
    """The other groups whose keys have the same table as a group's."""
    if schema.groups[group].extractor.encoding != "items":
        return []
    return [name for name in schema.sharing(group) if name != group]


def refuse_no_vectors(model: ModelSpec) -> None:
    """Raise a UserError for a linear model, whose values have terms and no vectors."""
    if not model.pairs:
        raise UserError(
            "the run has no vectors: with `pairs: false` its schema leaves a bias and linear terms to predict"
        )


def level_and_dim(model: ModelSpec, level: int | None) -> tuple[int, int]:
    """The level whose space is used, counted from 1, and the dimensions of that space.

    Without a level it is the first one, where every value has a vector; with truncation it is the last one, whose space
    holds those of all levels.
    """
    refuse_no_vectors(model)
    levels = model.levels
    if level is None:
        level = levels.default
    if not levels.has(level):
        available_levels = f"the levels are 1 to {len(levels)}"
        if len(levels) == 1:
            available_levels = "a model without `ranks` has level 1 only"
        raise UserError(f"level: there is no level {level!r}; {available_levels}")
    return level, levels.ranks[level - 1]


def vectors_at_level(stored: Sequence[Level], level: int, levels: Levels) -> Tensor:
    """The vectors of a group [batch, dim] in the space of a level, counted from 1; zero for values of lower levels.

    Args:
        stored: What each level stores of the group.
        level: The level.
        levels: The levels of the model.

    """
    import tensorflow as tf

    vectors = [part.free if part.dependent is None else part.free + part.dependent for part in stored]
    parts = vectors[levels.parts_of(level)]
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)


def distinct_column_names(groups: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """The groups' names as names of columns beside `row` and `id`: a name that is taken gets an underscore.

    >>> distinct_column_names(["a", "row", "id", "row_"])
    ['a', 'row_', 'id_', 'row__']
    """
    used, names = {ROW, ID, *taken}, []
    for name in groups:
        while name in used:
            name += "_"
        used.add(name)
        names.append(name)
    return names
