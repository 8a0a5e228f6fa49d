"""The options of a schema, as frozen objects.

A YAML key, the field that holds it and the constructor's argument have the same name. Each class is one mapping of the
YAML; `Schema` is the whole file. The options of extractors are in `extractor_options.py`, checks of several options in
`cross_checks.py`; `reading.py` makes a schema of a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from feat2vec.schema.activation import Activation
from feat2vec.schema.document import KeyPath
from feat2vec.schema.extractor_options import (
    EXTRACTORS,
    HOLDERS,
    Count,
    Dim,
    ExtractorSpec,
    ItemsSpec,
    Lookup,
    Many,
    NotNegative,
    Share,
    Text,
)
from feat2vec.schema.levels import Levels
from feat2vec.schema.objectives import OBJECTIVES, Nce, ObjectiveSpec
from feat2vec.schema.objectives.base import OBJECTIVE_HOLDERS
from feat2vec.schema.optimizer_options import Adagrad, OptimizerOptions
from feat2vec.schema.resolved_texts import ResolvedTexts
from feat2vec.schema.validation import Spec
from feat2vec.schema.yaml_text import dump_document


@dataclass(frozen=True)
class _ShortForm:
    """The annotation of a field with a `type`: the text `lookup` is short for `{type: lookup}`.

    A mapping without a `type` has the default one.
    """

    default: str

    def fill(self, value: object) -> object:
        """Return the value as a mapping with its type."""
        if isinstance(value, dict):
            return {"type": self.default, **value}
        return {"type": value} if isinstance(value, str) else value

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.fill, handler(source))

    def __get_pydantic_json_schema__(self, source: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        long_form = handler(source)
        short_forms: list[str] = []  # the types that need no other key
        for reference in long_form.get("oneOf", [long_form]):
            option = handler.resolve_ref_schema(reference)
            type_schema, required = option["properties"]["type"], option.get("required", [])
            types = type_schema.get("enum", [type_schema.get("const")])
            if not required:
                short_forms += types
            if self.default not in types:
                option["required"] = ["type", *(key for key in required if key != "type")]
        return {"anyOf": [{"enum": short_forms}, long_form]}


@dataclass(frozen=True)
class _Registered:
    """The annotation of a field that holds options of a registered extractor or objective, by their `type`."""

    registry: Mapping[str, type[Spec]]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices = {name: handler.generate_schema(spec) for name, spec in self.registry.items()}
        return core_schema.tagged_union_schema(choices, discriminator="type")


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
    extractor: Annotated[ExtractorSpec, _Registered(EXTRACTORS), _ShortForm("lookup")] = Lookup()
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


# --- model, noise, training -----------------------------------------------------------------------------------------


class LevelSource(Spec):
    """Which values reach which level of `model.ranks`; what neither key decides follows from counts by equation 17."""

    # How often a value has to occur among the training rows to reach the second level, the third and so on.
    counts: Annotated[tuple[Count, ...], Many, Field(min_length=1)] | None = None
    # By group, the column of the training rows that holds the level of the row's value, from 1. Of several the highest
    # counts; a value of rows without one has the level of its count.
    columns: dict[Text, Text] = Field(default_factory=dict)


class ModelSpec(Spec):
    """The space of the vectors, and the terms of a score."""

    # Whether scores have the pairs of the groups' vectors. Without, they are the bias and the linear terms alone (LR),
    # and there are no vectors: `bias` is then on.
    pairs: bool = True
    dim: Dim = 50  # the dimensions of every vector
    scale: Annotated[float, Field(gt=0, le=10)] = 0.1  # the standard deviation of the initial normal weights
    # The dimensions of each level, instead of `dim` (RaFM; Chen et al., 2019): rare values have few. See `levels.py`.
    ranks: Annotated[tuple[Dim, ...], Many, Field(min_length=1)] | None = None
    bias: bool = False  # whether scores have a constant and a linear term for each value
    # Sets of groups that describe one thing, such as a film's id and its title. The vectors of a set are added up, and
    # the sum is paired with the other groups; there are no pairs within a set.
    together: Annotated[tuple[Annotated[tuple[Text, ...], Many], ...], Many] = ()
    # The coordinates are those of so many members side by side: each member learns the labels by the pairs of its own
    # coordinates alone, `members` times, and their mean, which has the pairs of all, predicts.
    members: Annotated[int, Field(ge=1, le=256)] = 1
    # What is learnt of a weight. point: a number; gaussian: the mean and the variance of a normal distribution, as
    # variational inference has them. The mean is the vector; `l2` and `l2_linear` are then the precisions of the prior.
    posterior: Literal["point", "gaussian"] = "point"
    # How a value's vectors below its own level learn. strict: from their level's loss alone (Algorithm 1 of RaFM);
    # joint: also from the top level's loss, as in the code of its authors.
    dependents: Literal["joint", "strict"] = "joint"
    activation: Activation | None = None  # which keys have a vector; all of them without it. See `activation.py`.
    level_sharing: Literal["separate", "truncate", "all"] = "separate"  # see `levels.py`
    # The option `levels`; the attribute of that name is what follows from it.
    level_source: LevelSource = Field(default_factory=LevelSource, alias="levels")

    @model_validator(mode="before")
    @classmethod
    def _with_what_follows(cls, data: object) -> object:
        """Switch `bias` on where a score has nothing else; `dim: null`, as a setting beside `ranks`, gives no `dim`."""
        if not isinstance(data, Mapping):
            return data
        given = {key: value for key, value in data.items() if (key, value) != ("dim", None)}
        return {"bias": True, **given} if given.get("pairs") is False else given

    @model_serializer(mode="wrap")
    def _by_keys(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The options by their keys in a schema."""
        data: dict[str, Any] = handler(self)
        return {"levels" if name == "level_source" else name: value for name, value in data.items()}

    @property
    def levels(self) -> Levels:
        """The levels of the space; a model without `ranks` has one, as has one whose levels stand side by side."""
        if not self.pairs:
            return Levels((0,))
        if self.ranks is None:
            return Levels((self.dim,))
        if self.level_sharing == "all":
            return Levels((sum(self.ranks),))
        return Levels(self.ranks, self.level_sharing == "truncate", self.level_source.counts)

    @property
    def member_dims(self) -> tuple[int, ...]:
        """The coordinates of each member, side by side; of one where the whole space learns the labels at once."""
        if self.level_sharing == "all" and self.ranks is not None:
            return self.ranks
        return (self.levels.ranks[0] // self.members,) * self.members

    @property
    def unused_keys(self) -> tuple[str, ...]:
        """The keys that have no meaning beside the others, and are refused if they are given."""
        of_ranks = ("ranks", "level_sharing", "dependents", "levels")
        if not self.pairs:
            return (*of_ranks, "dim", "scale", "together", "members", "posterior", "activation")
        if self.ranks is None:
            return of_ranks
        return ("dim", "dependents", "levels", "members") if self.level_sharing == "all" else ("dim",)

    @property
    def size_key(self) -> str:
        """The key that says how large the space is."""
        return "dim" if self.ranks is None else "ranks"


def _list_or_mapping(value: object) -> str:
    return "mapping" if isinstance(value, Mapping) else "list"


Targets = Annotated[
    Annotated[tuple[Text, ...], Many, Tag("list")]
    | Annotated[dict[Text, Annotated[float, Field(gt=0)]], Tag("mapping")],
    Discriminator(_list_or_mapping),
]


class Noise(Spec):
    """Two-step noise: Q1 chooses the group that is replaced, Q2 a value of it."""

    alpha_groups: Annotated[float, Field(ge=0, le=10)] = 0.25  # the exponent of Q1
    alpha_values: Annotated[float, Field(ge=0, le=10)] = 0.75  # the exponent of the values' counts in Q2
    negatives: Annotated[int, Field(ge=1, le=1_000_000)] = 5  # for each row; those that a batch shares, for each unit
    sharing: Literal["record", "batch"] = "record"  # whether a row has its own negatives, or a batch shares them
    joint: Annotated[tuple[Annotated[tuple[Text, ...], Many], ...], Many] = ()  # groups that are replaced jointly
    # The groups that may be replaced; empty for all. With a number for each, Q1 is in proportion to these.
    targets: Targets = ()
    # What of a list is told from noise: the list, or an item of it at a time, drawn by the items' counts.
    lists: Literal["whole", "items"] = "whole"


class Fm(Spec):
    """Nothing beside the pairs' score."""

    type: Literal["fm"] = "fm"


class Mlp(Spec):
    """A network beside the pairs' score: layers of `hidden` units on `inputs`, then a linear one.

    Inputs are the groups' vectors side by side (as in DeepFM), the interaction vector (as in NFM), or both; `normalize`
    brings the units of each layer to mean 0 and variance 1 over the batch. Several `members` are networks that share
    the layers' matrices, and whose mean is the prediction (TabM; Gorishniy et al., 2024). Without `pairs`, the groups'
    vectors reach the score through the network and linear terms alone.
    """

    type: Literal["mlp"] = "mlp"
    hidden: Annotated[tuple[Count, ...], Many, Field(min_length=1)] = (256, 128)
    inputs: Annotated[tuple[Literal["vectors", "interactions"], ...], Many, Field(min_length=1)] = (
        "vectors",
        "interactions",
    )
    dropout: Share = 0.0
    normalize: bool = False
    members: Annotated[int, Field(ge=1, le=256)] = 1
    pairs: bool = True


Head = Annotated[Fm | Mlp, Field(discriminator="type")]


BLOCK_ROWS = 1 << 20  # rows that training reads and shuffles at a time


class Training(Spec):
    """How long a model is trained, in which steps, and how it is regularized."""

    epochs: Count = 20
    batch_size: Count = 2048
    optimizer: Annotated[OptimizerOptions, _ShortForm("adagrad")] = Adagrad()
    # The weight of the squared vectors in the loss. With `posterior: gaussian`, the precision of the prior of a value's
    # coordinates, which counts once a value and not once an occurrence.
    l2: NotNegative = 0.0
    # The same for groups that have a weight of their own.
    l2_groups: dict[Text, NotNegative] = Field(default_factory=dict)
    # The learning rate of dependent vectors, those of a value below its own level; by default that of the optimizer, of
    # which it keeps its share where that decays.
    dependent_rate: Annotated[float, Field(gt=0)] | None = None
    l2_linear: NotNegative = 0.0  # the same for linear terms; with `posterior: gaussian`, 0 is learnt from the terms
    l2_over: Literal["occurrences", "tables"] = "occurrences"  # the squares of the rows that a step reads, or of all
    group_dropout: Share = 0.0  # the share of groups that training leaves out of a row at random
    interaction_dropout: Share = 0.0  # the share of coordinates of the interaction vector that are dropped
    # If above 0, a running average of the weights at the ends of epochs is measured and kept; the weights of an epoch
    # are multiplied by this factor with each later epoch. Training itself goes on from its own weights.
    averaging: Share = 0.0
    # The share of rows that are held out where no validation table is given, to choose the epoch by their loss; 0 for
    # none. Tables of fewer than 200 rows are used whole, and no more than 20,000 rows are held out.
    validation: Annotated[float, Field(ge=0, le=0.5)] = 0.1
    # Whether up to 50,000 rows are then learnt from the beginning with those held out, for as many epochs; `continue`:
    # the training goes on with all rows, however many, for a quarter of the epochs.
    refit: bool | Literal["continue"] = True
    # With validation rows: training stops after so many epochs without improvement; 0 for never. The default is that of
    # the objective: 5, and 0 of contrastive, whose ranks get better after its loss has begun to rise.
    patience: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    # How many training rows the run keeps as the numbers of their values, so that `complete` also asks the nearest of
    # them; 0 for none. Held-out rows say how much these know, so none are kept without.
    neighbours: Annotated[int, Field(ge=0, le=10_000_000)] = 50_000
    checkpoint_minutes: Annotated[float, Field(gt=0)] = 10.0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    def l2_of(self, group: str) -> float:
        """The weight of a group's squared vectors in the loss."""
        return self.l2_groups.get(group, self.l2)


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
    objective: Annotated[ObjectiveSpec, _Registered(OBJECTIVES), _ShortForm("nce")] = Nce()
    head: Annotated[Head, _ShortForm("fm")] = Fm()
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
