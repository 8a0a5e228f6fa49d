"""The schema: YAML to frozen objects, every problem of a file at once.

A YAML key, the field that holds it and the constructor's argument have the same name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from weakref import WeakValueDictionary

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

from feat2vec.errors import suggest
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
from feat2vec.schema.objectives import OBJECTIVES, Nce, ObjectiveSpec
from feat2vec.schema.objectives.base import OBJECTIVE_HOLDERS
from feat2vec.schema.validation import Findings, Problem, Spec, validate
from feat2vec.schema.yaml_text import Data, Document, KeyPath, dump_document, parse_document, read_document


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
        for text, known in list(_WRITTEN.items()):
            if known is self:
                return text
        data = self.model_dump(mode="json")
        for key in ("ranks", "level_sharing", "dependents") if self.model.ranks is None else ("dim",):
            del data["model"][key]
        text = dump_document(data)
        if _READ.get(id(self)) is self:  # one that was put together otherwise may not be valid
            _WRITTEN[text] = self
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

# Schemas of many groups take a second to write and another to read, which a training would do five times over.
_READ: WeakValueDictionary[int, Schema] = WeakValueDictionary()  # by id: those that `read_schema` made
_WRITTEN: WeakValueDictionary[str, Schema] = WeakValueDictionary()  # by their resolved text


# --- reading --------------------------------------------------------------------------------------------------------


def read_schema(
    source: str | Path | Document | Mapping[str, Any], *, plugins: bool = True, settings: Sequence[str] = ()
) -> Schema:
    """Read a schema from a file, its text (of several lines), a parsed document or plain data.

    `settings` such as "training.epochs=5" replace what it says. `plugins=False` imports nothing that the schema names:
    use it for a schema that is not the user's own.
    """
    if isinstance(source, Mapping):
        source = parse_document(dump_document(source))
    elif isinstance(source, str) and "\n" in source:
        source = parse_document(source)
    document = source if isinstance(source, Document) else read_document(source)
    document = document.with_settings(settings)
    not_loaded = list(_load_plugins(document, allowed=plugins))
    schema = validate(document, Schema, _conflicts, STAND_INS, not_loaded)
    _READ[id(schema)] = schema
    return schema


def schema_of(text: str, name: str = "schema") -> Schema:
    """The schema that a text is, such as `resolved` writes; plugins that it names have to be imported already.

    The text of a schema that is still in use is not parsed again.
    """
    known = _WRITTEN.get(text)
    return read_schema(parse_document(text, name), plugins=False) if known is None else known


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a schema file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Schema.model_json_schema()


def _load_plugins(document: Document, *, allowed: bool) -> Iterator[Problem]:
    names = document.data.get("plugins")
    for i, name in enumerate(names if isinstance(names, list) else ()):
        if not isinstance(name, str) or not name or name in sys.modules:
            continue
        if not allowed:
            yield ("plugins", i), f"would run the code of {name!r}; import it yourself first if you trust it"
            continue
        path = list(sys.path)
        sys.path.insert(0, str(Path(document.name).resolve().parent))
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:
            remedy = f"; write {name[:-3]!r}" if name.endswith(".py") else ""
            message = " ".join(f"{type(error).__name__}: {error}".split())
            yield ("plugins", i), f"the plugin {name!r} cannot be imported: {message}{remedy}"
        finally:
            sys.path[:] = path


STAND_INS: Mapping[str, Data] = {"version": 1, "groups": {"?": {"column": "?"}}}  # to check the rest of a wrong schema


def _conflicts(schema: Schema, found: Findings) -> Iterator[Problem]:
    """What is wrong although each key is right by itself."""
    groups = found.data.get("groups")
    given: Mapping[str, Any] = groups if isinstance(groups, dict) else {}  # with those that are wrong by themselves
    for name, group in schema.groups.items():
        if name in given and found.sound("groups", name):
            yield from _group_conflicts(schema, name, group, given[name])
    yield from _model_conflicts(schema.model, found)
    if schema.target is not None:
        for path, column in ((("objective", "weight"), schema.weight), (("id",), schema.id)):
            if column == schema.target and found.sound(*path):
                yield path, f"the column {column!r} is also the target; name another column"
    if schema.target is None and isinstance(schema.head, Mlp) and found.sound("head") and found.sound("objective"):
        yield ("head",), "mlp is for objectives with a target; noise is told by the pairs of groups alone"
    if not found.sound("groups", inside=False):
        return
    if found.sound("noise", "joint"):
        yield from _set_conflicts(("noise", "joint"), schema.noise.joint, list(given), "joint noise", "is drawn")
    if found.sound("model", "together"):
        yield from _together_conflicts(schema, found, list(given))
    if found.sound("noise", "targets"):
        joint = schema.noise.joint if found.sound("noise", "joint") else ()
        yield from _target_conflicts(schema.noise.targets, joint, list(given))
    if found.sound("objective"):
        yield from schema.objective.conflicts(schema, found, list(given))
    if schema.target is None and len(given) < 2 and found.sound("objective"):
        yield ("groups",), "one group has nothing to be learnt from; add a second one, or an objective with a target"


def _group_conflicts(schema: Schema, name: str, group: Group, given: Mapping[str, Any]) -> Iterator[Problem]:
    here = ("groups", name)
    columns = (*here, "column" if "column" in given else "columns")
    for path, message in group.extractor.conflicts(group.columns):
        yield ((*here, "extractor", *path) if path else columns), message
    for column in dict.fromkeys(group.columns):
        if group.columns.count(column) > 1:
            yield columns, f"the column {column!r} is here twice; keep one"
    if schema.target in group.columns:
        yield columns, f"the column {schema.target!r} is also the target, which it would give away; remove the group"
    if schema.target is not None and schema.target == getattr(group.extractor, "weights", None):
        yield (*here, "extractor", "weights"), f"the column {schema.target!r} is also the target; name another column"


def _model_conflicts(model: ModelSpec, found: Findings) -> Iterator[Problem]:
    given = model.model_fields_set
    if model.ranks is not None:
        if "dim" in given:
            yield ("model", "dim"), "cannot be combined with `ranks`; keep one of them"
        if found.sound("model", "ranks") and any(
            low >= high for low, high in zip(model.ranks, model.ranks[1:], strict=False)
        ):
            yield ("model", "ranks"), f"must ascend, received {list(model.ranks)}"
    elif found.sound("model", "ranks"):
        for key in ("level_sharing", "dependents"):
            if key in given:
                yield ("model", key), "is for models with `ranks`; remove it, or give ranks"


def _set_conflicts(
    here: KeyPath, sets: Sequence[Sequence[str]], names: Sequence[str], what: str, verb: str
) -> Iterator[Problem]:
    """Sets of two or more groups, each group in one of them."""
    seen: set[str] = set()
    for i, some in enumerate(sets):
        if len(some) < 2:
            yield (*here, i), f"names {len(some)} of the groups; {what} needs two or more"
        for k, name in enumerate(some):
            if name not in names:
                yield (*here, i, k), f"names {name!r}, which is no group{suggest(name, names)}"
            elif name in seen:
                yield (*here, i, k), f"names {name!r} again; a group {verb} once"
            seen.add(name)


def _together_conflicts(schema: Schema, found: Findings, names: Sequence[str]) -> Iterator[Problem]:
    here, sets, objective = ("model", "together"), schema.model.together, schema.objective
    if sets and found.sound("objective") and not objective.allows_together:
        *allowed, last = (name for name, spec in OBJECTIVES.items() if spec.allows_together)
        by = f"{', '.join(allowed)} or {last}"
        yield here, f"is for pairs that tell a number, by {by}; {objective.type} is none"
    elif sets and objective.implicit_group is not None:
        yield here, "cannot be combined with objective.implicit; remove one of them"
    elif any(set(names) <= set(some) for some in sets):
        yield here, "has every group in one sum, which leaves no pairs; leave a group out"
    yield from _set_conflicts(here, sets, names, "a sum", "is added up")


def _target_conflicts(
    targets: Sequence[str] | Mapping[str, float], joints: Sequence[Sequence[str]], names: Sequence[str]
) -> Iterator[Problem]:
    seen: set[str] = set()
    for i, name in enumerate(targets):
        here = ("noise", "targets", name if isinstance(targets, Mapping) else i)
        if name not in names:
            yield here, f"names {name!r}, which is no group{suggest(name, names)}"
        elif name in seen:
            yield here, f"names {name!r} again; keep one"
        else:
            together = next((joint for joint in joints if name in joint), ())
            absent = [other for other in together if other in names and other not in targets]
            if absent:
                yield here, f"names {name!r} without {absent[0]!r}, which is drawn with it; name both or neither"
        seen.add(name)
