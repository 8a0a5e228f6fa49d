"""The schema: YAML to frozen objects, every problem of a file at once.

A YAML key, the field that holds it and the constructor's argument have the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

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
from feat2vec.schema.resolved_texts import ResolvedTexts
from feat2vec.schema.validation import Spec
from feat2vec.schema.yaml_text import dump_document


@dataclass(frozen=True)
class _Typed:
    """The short form `lookup` for `{type: lookup}`; without a `type` it is the default."""

    default: str

    def fill(self, value: object) -> object:
        """The value with its type."""
        if isinstance(value, dict):
            return {"type": self.default, **value}
        return {"type": value} if isinstance(value, str) else value

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.fill, handler(source))

    def __get_pydantic_json_schema__(self, source: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        long = handler(source)
        names: list[str] = []
        for option in (handler.resolve_ref_schema(option) for option in long.get("oneOf", [long])):
            tag, required = option["properties"]["type"], option.get("required", [])
            tags = tag.get("enum", [tag.get("const")])
            names += [] if required else tags
            if self.default not in tags:
                option["required"] = ["type", *(key for key in required if key != "type")]
        return {"anyOf": [{"enum": names}, long]}


@dataclass(frozen=True)
class _Registered:
    """The class that a registry, of extractors or objectives, has under the value's `type`."""

    registry: Mapping[str, type[Spec]]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices = {name: handler.generate_schema(spec) for name, spec in self.registry.items()}
        return core_schema.tagged_union_schema(choices, discriminator="type")


def _one_or_more(value: object) -> object:
    return value if isinstance(value, (list, tuple, dict)) else (value,)


class Group(Spec):
    """Columns that belong together, and how they become a vector."""

    columns: Annotated[
        tuple[Text, ...],
        Field(strict=False, min_length=1, validation_alias=AliasChoices("columns", "column")),
        BeforeValidator(_one_or_more),
    ]
    extractor: Annotated[ExtractorSpec, _Registered(EXTRACTORS), _Typed("lookup")] = Lookup()

    @classmethod
    def __get_pydantic_json_schema__(cls, source: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(source))
        names = schema["properties"].pop("columns")
        short = {"type": "string", "minLength": 1}
        schema["properties"] = {"column": short, "columns": {"anyOf": [short, names]}} | schema["properties"]
        schema["required"] = [name for name in schema.get("required", ()) if name != "columns"]
        schema["oneOf"] = [{"required": ["column"]}, {"required": ["columns"]}]
        return schema


# --- model, noise, training -----------------------------------------------------------------------------------------


class ModelSpec(Spec):
    """The size of the space, or its ranks (RaFM); vectors begin as normal numbers of standard deviation `scale`."""

    dim: Dim = 50
    scale: Annotated[float, Field(gt=0, le=10)] = 0.1
    ranks: Annotated[tuple[Dim, ...], Many, Field(min_length=1)] | None = None
    bias: bool = False
    # Groups that tell of one thing, such as a film's id and its title: their vectors add up to one, which meets the
    # other groups', so that there are no pairs among them.
    together: Annotated[tuple[Annotated[tuple[Text, ...], Many], ...], Many] = ()
    dependents: Literal["joint", "strict"] = "joint"
    level_sharing: Literal["separate", "truncate"] = "separate"

    @property
    def levels(self) -> Levels:
        """The levels of the space; a model without `ranks` has one."""
        return Levels(self.ranks or (self.dim,), nested=self.level_sharing == "truncate")

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
    """Two-step noise: Q1 over groups, Q2 over a group's values."""

    alpha_groups: Annotated[float, Field(ge=0, le=10)] = 0.25
    alpha_values: Annotated[float, Field(ge=0, le=10)] = 0.75
    negatives: Annotated[int, Field(ge=1, le=1_000_000)] = 5
    sharing: Literal["record", "batch"] = "record"
    joint: Annotated[tuple[Annotated[tuple[Text, ...], Many], ...], Many] = ()
    # The groups that are replaced, none being all; with a number for each, Q1 is in proportion to those.
    targets: Targets = ()


class Fm(Spec):
    """Nothing beside the pairs' score."""

    type: Literal["fm"] = "fm"


class Mlp(Spec):
    """A network beside the pairs' score: layers of `hidden` units on `inputs`, then a linear one.

    Inputs are the groups' vectors side by side (as in DeepFM), the interaction vector (as in NFM), or both; `normalize`
    brings the units of each layer to mean 0 and variance 1 over the batch.
    """

    type: Literal["mlp"] = "mlp"
    hidden: Annotated[tuple[Count, ...], Many, Field(min_length=1)] = (256, 128)
    inputs: Annotated[tuple[Literal["vectors", "interactions"], ...], Many, Field(min_length=1)] = (
        "vectors",
        "interactions",
    )
    dropout: Share = 0.0
    normalize: bool = False


Head = Annotated[Fm | Mlp, Field(discriminator="type")]


class OptimizerSpec(Spec):
    """A row-sparse optimizer; with `decay: linear` its learning rate falls to 0 over the run."""

    type: Literal["adagrad", "adam"] = "adagrad"
    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    decay: Literal["linear", "none"] = "linear"


BLOCK_ROWS = 1 << 20  # rows that are read and shuffled at a time


class Training(Spec):
    """How long and how fast; with a validation table, until `patience` epochs are no better (0: never stop early)."""

    epochs: Count = 20
    batch_size: Count = 2048
    optimizer: Annotated[OptimizerSpec, _Typed("adagrad")] = OptimizerSpec()
    l2: NotNegative = 0.0
    l2_linear: NotNegative = 0.0  # as l2, on linear terms
    l2_over: Literal["occurrences", "tables"] = "occurrences"  # the rows that a step reads, or every weight
    group_dropout: Share = 0.0
    interaction_dropout: Share = 0.0
    # Above 0, what `train` measures and keeps is a running average of the weights at the ends of epochs, of which an
    # epoch fades by this factor in each later one; training itself goes on from its own weights.
    averaging: Share = 0.0
    patience: Annotated[int, Field(ge=0, le=2**31 - 1)] = 5
    checkpoint_minutes: Annotated[float, Field(gt=0)] = 10.0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


def _only_one(value: object) -> object:
    """Text for other numbers: `true` and `1.0` equal 1, and are no version."""
    return str(value) if isinstance(value, (bool, int, float)) and (type(value), value) != (int, 1) else value


class Schema(Spec):
    """A table's groups and how they are learnt."""

    version: Annotated[Literal[1], BeforeValidator(_only_one)]
    name: Text = "table"
    id: Text | None = None
    plugins: Annotated[tuple[Text, ...], Many] = ()
    model: ModelSpec = ModelSpec()
    groups: Annotated[dict[Text, Group], Field(min_length=1)]
    noise: Noise = Noise()
    objective: Annotated[ObjectiveSpec, _Registered(OBJECTIVES), _Typed("nce")] = Nce()
    head: Annotated[Head, _Typed("fm")] = Fm()
    training: Training = Training()

    @property
    def target(self) -> str | None:
        """The column that a supervised objective learns."""
        return self.objective.target_column

    @property
    def weight(self) -> str | None:
        """The column with a weight for each row."""
        return self.objective.weight_column

    @property
    def partners(self) -> list[tuple[str, ...]]:
        """What meets in pairs: a group by itself, or the groups that are `together`, at the place of the first."""
        sets = {name: names for names in self.model.together for name in names}
        return list(dict.fromkeys(sets.get(name, (name,)) for name in self.groups))

    def resolved(self) -> str:
        """The schema as YAML, every default filled in."""
        known_text = RESOLVED_TEXTS.text_of(self)
        if known_text is not None:
            return known_text
        data = self.model_dump(mode="json")
        for key in ("ranks", "level_sharing", "dependents") if self.model.ranks is None else ("dim",):
            del data["model"][key]
        text = dump_document(data)
        RESOLVED_TEXTS.remember(self, text)
        return text

    def columns(self) -> dict[str, KeyPath]:
        """Every column the schema names, with the key that names it (the first one)."""
        given: list[tuple[str | None, KeyPath]] = []
        for name, group in self.groups.items():
            given += [(column, ("groups", name, "columns")) for column in group.columns]
            if isinstance(group.extractor, ItemsSpec):
                given.append((group.extractor.weights, ("groups", name, "extractor", "weights")))
        given += [(self.id, ("id",)), (self.target, ("objective", "target")), (self.weight, ("objective", "weight"))]
        named: dict[str, KeyPath] = {}
        for column, path in given:
            if column is not None:
                named.setdefault(column, path)
        return named


HOLDERS += [Group, Schema]
OBJECTIVE_HOLDERS.append(Schema)
RESOLVED_TEXTS: ResolvedTexts[Schema] = ResolvedTexts()
