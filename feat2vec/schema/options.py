"""The options of a schema, as frozen objects.

A YAML key, the field that holds it and the constructor's argument have the same name. Each class is one mapping of the
YAML; `Schema` is the whole file. Its parts are in `model_options.py`, `training_options.py`, `extractor_options.py`,
`optimizer_options.py` and `objectives`, checks of several options in `cross_checks.py`; `reading.py` makes a schema of
a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AliasChoices, BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from feat2vec.schema.document import KeyPath
from feat2vec.schema.extractor_options import EXTRACTORS, HOLDERS, ExtractorSpec, ItemsSpec, Lookup, Many, Text
from feat2vec.schema.model_options import ModelSpec
from feat2vec.schema.objectives import OBJECTIVES, Nce, ObjectiveSpec
from feat2vec.schema.objectives.kinds import OBJECTIVE_HOLDERS
from feat2vec.schema.resolved_texts import ResolvedTexts
from feat2vec.schema.training_options import Fm, Head, Noise, Training
from feat2vec.schema.typed_fields import Registered, ShortForm
from feat2vec.schema.validation import Spec
from feat2vec.schema.yaml_text import dump_document


def _to_sequence(value: object) -> object:
    """A single column as a sequence of one."""
    return value if isinstance(value, (list, tuple, dict)) else (value,)


class Group(Spec):
    """Columns that belong together, and how they become a vector."""

    columns: Annotated[
        tuple[Text, ...],
        Field(strict=False, min_length=1, validation_alias=AliasChoices("columns", "column")),
        BeforeValidator(_to_sequence),
    ]
    extractor: Annotated[ExtractorSpec, Registered(EXTRACTORS), ShortForm("lookup")] = Lookup()
    # The group whose vocabulary and vectors these columns have: one table, or network, and one linear term of a key in
    # whichever column it stands. The extractor is that group's and need not be given; `weights` may name a column of
    # its own. What tells the columns apart, such as the advantage of a home team, is a group of its own.
    share: Text | None = None

    @classmethod
    def __get_pydantic_json_schema__(cls, source: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(source))
        several = schema["properties"].pop("columns")
        single = {"type": "string", "minLength": 1}
        schema["properties"] = {"column": single, "columns": {"anyOf": [single, several]}} | schema["properties"]
        schema["required"] = [name for name in schema.get("required", ()) if name != "columns"]
        schema["oneOf"] = [{"required": ["column"]}, {"required": ["columns"]}]
        return schema


def _refuse_equals_of_one(value: object) -> object:
    """Text for `true` and `1.0`, which equal 1 in Python, and are no version."""
    is_other_number = isinstance(value, (bool, int, float)) and (type(value), value) != (int, 1)
    return str(value) if is_other_number else value


class Schema(Spec):
    """The groups of a table, and how their vectors are learnt.

    Args:
        version: The version of the schema's format, 1.
        name: The name of the schema, for reports.
        id: The column that names rows.
        plugins: Modules that register extractors and objectives; reading a schema file imports them.
        model: The space: its dimensions or ranks, and whether scores have linear terms.
        groups: By name, the columns of each group and their extractor.
        noise: How negatives are drawn.
        objective: What is learnt.
        head: What is added to the score of the pairs.
        training: How long the model is trained, in which steps, and how it is regularized.

    Example:
        >>> films_schema = feat2vec.read_schema(schema)
        >>> list(films_schema.groups), films_schema.objective.type, films_schema.model.dim
        (['director', 'genre', 'year'], 'nce', 4)
        >>> films_schema.columns()["year"]
        ('groups', 'year', 'columns')
        >>> feat2vec.read_schema(films_schema.resolved()) == films_schema
        True

    """

    version: Annotated[Literal[1], BeforeValidator(_refuse_equals_of_one)]
    name: Text = "table"
    id: Text | None = None
    plugins: Annotated[tuple[Text, ...], Many] = ()
    model: ModelSpec = ModelSpec()
    groups: Annotated[dict[Text, Group], Field(min_length=1)]
    noise: Noise = Noise()
    objective: Annotated[ObjectiveSpec, Registered(OBJECTIVES), ShortForm("nce")] = Nce()
    head: Annotated[Head, ShortForm("fm")] = Fm()
    training: Training = Training()

    @model_validator(mode="after")
    def _give_shared_extractors(self) -> Schema:
        """Give a group that shares another one's vectors, and has no extractor, the extractor of that group."""
        for name, group in list(self.groups.items()):
            origin = None if group.share is None else self.groups.get(group.share)
            if origin is not None and "extractor" not in group.model_fields_set:
                self.groups[name] = group.model_copy(update={"extractor": origin.extractor})
        return self

    def owner(self, group: str) -> str:
        """The group whose vocabulary and vectors a group has: the one that it shares, or itself.

        Args:
            group: The name of the group.

        Returns:
            The name of a group that shares no other one's vectors.

        """
        share = self.groups[group].share
        return group if share is None else share

    @property
    def owners(self) -> list[str]:
        """The groups that have a vocabulary and vectors of their own, in the order in which a group first has them."""
        return list(dict.fromkeys(self.owner(name) for name in self.groups))

    def sharing(self, group: str) -> list[str]:
        """The groups that have the vectors of this one, in the schema's order: itself, and those it is shared with.

        Args:
            group: The name of the group.

        Returns:
            The names of all groups with the same owner.

        """
        owner = self.owner(group)
        return [name for name in self.groups if self.owner(name) == owner]

    def groups_of(self, names: Sequence[str]) -> dict[str, Group]:
        """Some of the groups; where one shares the vectors of a group that is left out, the first such one owns them.

        Args:
            names: The names of the groups.

        Returns:
            The groups by name, in this order.

        Raises:
            KeyError: The schema has no group of that name.

        """
        kept: dict[str, Group] = {}
        new_owners: dict[str, str] = {}  # by the owner in this schema
        for name in names:
            group, owner = self.groups[name], self.owner(name)
            if owner not in names:
                new_owner = new_owners.setdefault(owner, name)
                group = group.model_copy(update={"share": None if new_owner == name else new_owner})
            kept[name] = group
        return kept

    def l2_of(self, group: str) -> float:
        """The weight of a group's squared vectors in the loss: that of the group that owns them.

        Args:
            group: The name of the group.

        Returns:
            The weight.

        """
        return self.training.l2_of(self.owner(group))

    @property
    def target(self) -> str | None:
        """The column that a supervised objective predicts; None for other objectives."""
        return self.objective.target_column

    @property
    def weight(self) -> str | None:
        """The column with a weight for each row, if there is one."""
        return self.objective.weight_column

    @property
    def patience(self) -> int:
        """After how many epochs without improvement training stops; 0 is never."""
        given = self.training.patience
        return self.objective.default_patience if given is None else given

    @property
    def partners(self) -> list[tuple[str, ...]]:
        """The units of which a score has the pairs: single groups, and the sets of `model.together`.

        A set stands at the place of its first group.
        """
        set_of_group = {name: names for names in self.model.together for name in names}
        units = [set_of_group.get(name, (name,)) for name in self.groups]
        return list(dict.fromkeys(units))

    def resolved(self) -> str:
        """The schema as YAML, with every default filled in.

        Returns:
            A text that `read_schema` reads back as an equal schema.

        """
        known_text = RESOLVED_TEXTS.text_of(self)
        if known_text is not None:
            return known_text
        data = self.model_dump(mode="json")
        for key in self.model.unused_keys:
            data["model"].pop(key, None)
        for group_data in data["groups"].values():
            if group_data["share"] is None:  # most groups: a schema without sharing has the text that it always had
                del group_data["share"]
        if self.model.activation is None:
            data["model"].pop("activation", None)
        text = dump_document(data)
        RESOLVED_TEXTS.remember(self, text)
        return text

    def columns(self) -> dict[str, KeyPath]:
        """Every column that the schema names.

        Returns:
            For each column the path of the first key that names it.

        """
        mentions: list[tuple[str | None, KeyPath]] = []
        for name, group in self.groups.items():
            mentions += [(column, ("groups", name, "columns")) for column in group.columns]
            if isinstance(group.extractor, ItemsSpec):
                mentions.append((group.extractor.weights, ("groups", name, "extractor", "weights")))
        for name, level_column in self.model.level_source.columns.items():
            mentions.append((level_column, ("model", "levels", "columns", name)))
        mentions.append((self.id, ("id",)))
        mentions.append((self.target, ("objective", "target")))
        mentions.append((self.weight, ("objective", "weight")))
        paths: dict[str, KeyPath] = {}
        for column, path in mentions:
            if column is not None:
                paths.setdefault(column, path)
        return paths


HOLDERS += [Group, Schema]
OBJECTIVE_HOLDERS.append(Schema)
RESOLVED_TEXTS: ResolvedTexts[Schema] = ResolvedTexts()
