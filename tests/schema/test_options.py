"""The schema: what a file says, every mistake in it, and the way back to text."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import feat2vec
from feat2vec.errors import UserError
from feat2vec.schema.extractor_options import (
    EXTRACTORS,
    ExtractorSpec,
    Lookup,
    NumbersSpec,
    Numeric,
    TextCnn,
    Vector,
    extractor,
)
from feat2vec.schema.options import (
    Group,
    ModelSpec,
    Nce,
    Noise,
    OptimizerSpec,
    Schema,
    Training,
    json_schema,
    read_schema,
    schema_of,
)
from feat2vec.schema.yaml_text import Document, dotted, dump_document, parse_document

EXAMPLE = """\
version: 1
name: movies
id: film                                 # optional: the column that names a row
model:    {dim: 50}
groups:
  director: {column: directors, extractor: {type: lookup, multi: true, max_items: 5}}
  cast:     {column: cast,      extractor: {type: lookup, multi: true, max_items: 10, min_count: 1}}
  title:    {column: title,     extractor: {type: text_cnn, max_tokens: 16, filters: 64, widths: [2, 3, 4]}}
  words:    {column: title,     extractor: {type: lookup, split: words, max_items: 8}}
  rating:   {columns: [score, votes], extractor: {type: numeric, hidden: [50, 50]}}
  image:    {column: vector,    extractor: {type: vector}}         # a pretrained vector, projected
noise:     {alpha_groups: 0.25, alpha_values: 0.75, negatives: 5, sharing: record, joint: [[director, cast]]}
objective: {type: nce}
training:  {epochs: 20, batch_size: 2048, optimizer: {type: adagrad, learning_rate: 0.1}, l2: 0.0, group_dropout: 0.0, \
seed: 0}
"""
BASE = "version: 1\ngroups:\n  a: {column: a}\n  b: {column: b}\n"


def read(text: str) -> Schema:
    return read_schema(parse_document(text))


def problems(text: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        read(text)
    return list(caught.value.problems)


# --- what a file says -----------------------------------------------------------------------------------------------


def test_the_example_of_the_design() -> None:
    schema = read(EXAMPLE)
    assert schema == Schema(
        version=1,
        name="movies",
        id="film",
        model=ModelSpec(dim=50),
        groups={
            "director": Group(columns=("directors",), extractor=Lookup(multi=True, max_items=5)),
            "cast": Group(columns=("cast",), extractor=Lookup(multi=True, max_items=10, min_count=1)),
            "title": Group(columns=("title",), extractor=TextCnn(max_tokens=16, filters=64, widths=(2, 3, 4))),
            "words": Group(columns=("title",), extractor=Lookup(split="words", max_items=8)),
            "rating": Group(columns=("score", "votes"), extractor=Numeric(hidden=(50, 50))),
            "image": Group(columns=("vector",), extractor=Vector()),
        },
        noise=Noise(alpha_groups=0.25, alpha_values=0.75, negatives=5, sharing="record", joint=(("director", "cast"),)),
        objective=Nce(),
        training=Training(
            epochs=20,
            batch_size=2048,
            optimizer=OptimizerSpec(type="adagrad", learning_rate=0.1),
            l2=0.0,
            group_dropout=0.0,
            seed=0,
        ),
    )
    assert list(schema.groups) == ["director", "cast", "title", "words", "rating", "image"]
    assert schema.target is None
    assert schema.weight is None


def test_every_default() -> None:
    assert read(BASE).model_dump(mode="json") == {
        "version": 1,
        "name": "table",
        "id": None,
        "plugins": [],
        "model": {
            "dim": 50,
            "scale": 0.1,
            "ranks": None,
            "bias": False,
            "together": [],
            "dependents": "joint",
            "level_sharing": "separate",
        },
        "groups": {name: {"columns": [name], "extractor": DEFAULTS["lookup"]} for name in "ab"},
        "noise": {
            "alpha_groups": 0.25,
            "alpha_values": 0.75,
            "negatives": 5,
            "sharing": "record",
            "joint": [],
            "targets": [],
        },
        "objective": {"type": "nce"},
        "head": {"type": "fm"},
        "training": {
            "epochs": 20,
            "batch_size": 2048,
            "optimizer": {"type": "adagrad", "learning_rate": 0.1, "decay": "linear"},
            "l2": 0.0,
            "l2_linear": 0.0,
            "l2_over": "occurrences",
            "group_dropout": 0.0,
            "interaction_dropout": 0.0,
            "averaging": 0.0,
            "patience": 5,
            "checkpoint_minutes": 10.0,
            "seed": 0,
        },
    }


DEFAULTS: dict[str, dict[str, Any]] = {
    "lookup": {
        "type": "lookup",
        "gain": 1.0,
        "multi": False,
        "split": None,
        "max_items": 16,
        "min_count": 1,
        "max_size": None,
        "max_share": 1.0,
        "weights": None,
        "bins": None,
        "parts": [],
        "combiner": "sum",
        "item_dropout": 0.0,
    },
    "text_cnn": {
        "type": "text_cnn",
        "gain": 1.0,
        "max_tokens": 32,
        "min_count": 1,
        "max_size": None,
        "token_dim": 64,
        "filters": 64,
        "widths": [2, 3, 4],
        "dropout": 0.0,
    },
    "numeric": {"type": "numeric", "gain": 1.0, "scale": "standard", "nan": "error", "hidden": []},
    "vector": {"type": "vector", "gain": 1.0},
}


@pytest.mark.parametrize("name", EXTRACTORS)
def test_every_extractor_has_defaults_and_a_short_form(name: str) -> None:
    short = read(f"version: 1\ngroups:\n  a: {{column: a, extractor: {name}}}\n  b: {{column: b}}\n")
    long = read(f"version: 1\ngroups:\n  a: {{columns: [a], extractor: {{type: {name}}}}}\n  b: {{columns: b}}\n")
    assert short == long
    assert short.groups["a"].extractor.model_dump(mode="json") == DEFAULTS[name]
    assert type(short.groups["a"].extractor) is EXTRACTORS[name]
    assert short.groups["a"].extractor.encoding in ("items", "tokens", "numbers", "vector")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nce", {"type": "nce"}),
        ("negative_sampling", {"type": "negative_sampling"}),
        ("contrastive", {"type": "contrastive", "correction": True, "unit": False, "temperature": 1.0}),
        ("{}", {"type": "nce"}),
        (
            "{type: contrastive, correction: no, unit: yes, temperature: 0.1}",
            {"type": "contrastive", "correction": False, "unit": True, "temperature": 0.1},
        ),
        (
            "{type: logistic, target: y}",
            {"type": "logistic", "target": "y", "weight": None, "class_weights": None, "implicit": None},
        ),
        (
            "{type: logistic, target: y, implicit: a, class_weights: {'1': 2}}",
            {"type": "logistic", "target": "y", "weight": None, "class_weights": {"1": 2.0}, "implicit": "a"},
        ),
        ("{type: regression, target: y, weight: w}", {"type": "regression", "target": "y", "weight": "w"}),
        (
            "{type: softmax, target: y, class_weights: balanced}",
            {"type": "softmax", "target": "y", "weight": None, "class_weights": "balanced"},
        ),
        ("{type: glove, target: y}", {"type": "glove", "target": "y", "weight": None, "n_max": 100.0, "alpha": 0.75}),
    ],
)
def test_every_objective(text: str, expected: dict[str, Any]) -> None:
    schema = read(f"{BASE}objective: {text}\n")
    assert schema.objective.model_dump() == expected
    assert (schema.target, schema.weight) == (expected.get("target"), expected.get("weight"))


@pytest.mark.parametrize(
    ("text", "kind", "rate"),
    [("adam", "adam", 0.1), ("{type: adam, learning_rate: 1e-3}", "adam", 0.001), ("{learning_rate: 1}", "adagrad", 1)],
)
def test_optimizers(text: str, kind: str, rate: float) -> None:
    optimizer = read(f"{BASE}training: {{optimizer: {text}}}\n").training.optimizer
    assert (optimizer.type, optimizer.learning_rate) == (kind, rate)


def test_an_extractor_without_type_is_a_lookup() -> None:
    schema = read("version: 1\ngroups: {a: {column: a, extractor: {multi: true}}, b: {column: b, extractor: {}}}\n")
    assert schema.groups["a"].extractor == Lookup(multi=True)
    assert schema.groups["b"].extractor == Lookup()


def test_ranks() -> None:
    schema = read(f"{BASE}model: {{ranks: [16, 64], level_sharing: truncate, dependents: strict, bias: true}}\n")
    assert schema.model == ModelSpec(ranks=(16, 64), level_sharing="truncate", dependents="strict", bias=True)
    assert read(f"{BASE}model: {{ranks: [8]}}\n").model.ranks == (8,)


def test_columns_with_the_keys_that_name_them() -> None:
    text = (
        "version: 1\nid: key\ngroups:\n  a: {columns: [x, z], extractor: numeric}\n  b: {column: x}\n"
        "  c: {column: bag, extractor: {multi: true, weights: w}}\n"
        "objective: {type: logistic, target: y, weight: w2}\n"
    )
    assert read(text).columns() == {
        "x": ("groups", "a", "columns"),
        "z": ("groups", "a", "columns"),
        "bag": ("groups", "c", "columns"),
        "w": ("groups", "c", "extractor", "weights"),
        "key": ("id",),
        "y": ("objective", "target"),
        "w2": ("objective", "weight"),
    }


@pytest.mark.parametrize(
    ("options", "bag"),
    [({}, False), ({"multi": True}, True), ({"split": ","}, True), ({"parts": ("year",)}, True), ({"bins": 5}, False)],
)
def test_what_a_bag_is(options: dict[str, Any], bag: bool) -> None:
    assert Lookup(**options).bag is bag


def test_every_part_is_frozen() -> None:
    schema = read(EXAMPLE)
    group = schema.groups["title"]
    for part in (schema, group, group.extractor, schema.model, schema.noise, schema.objective, schema.training):
        for name in type(part).model_fields:
            with pytest.raises(ValidationError, match="frozen"):
                part.__setattr__(name, getattr(part, name))
    with pytest.raises(ValidationError, match="frozen"):
        schema.training.optimizer.__setattr__("learning_rate", 1.0)


# --- sources --------------------------------------------------------------------------------------------------------


def test_every_source_gives_the_same_schema(tmp_path: Path) -> None:
    path = tmp_path / "schema.yaml"
    path.write_text(EXAMPLE, encoding="utf-8")
    expected = read(EXAMPLE)
    mapping = yaml.safe_load(EXAMPLE)
    before = deepcopy(mapping)
    for source in (path, str(path), EXAMPLE, expected.resolved(), mapping, parse_document(EXAMPLE)):
        assert read_schema(source) == expected
    assert read_schema(expected.model_dump(mode="json", exclude={"model": {"level_sharing", "dependents"}})) == expected
    assert mapping == before
    assert feat2vec.read_schema(path) == expected


def test_the_example_with_crlf_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "schema.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + EXAMPLE.replace("\n", "\r\n").encode())
    assert read_schema(path) == read(EXAMPLE)


def test_problems_of_a_file_start_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "my schema.yaml"
    path.write_text("version: 1\ngroups:\n  a:\n    colum: x\n  b: {column: b}\n", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_schema(path)
    assert caught.value.problems == (f"{path}:4: groups.a.colum: unknown key; did you mean 'column' or 'columns'?",)


def test_a_folder_and_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Is a directory"):
        read_schema(tmp_path)
    with pytest.raises(UserError, match="No such file"):
        read_schema(tmp_path / "schema.yaml")


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", 1j, float("nan"), {1: 2}, "\ud800"], ids=count())
def test_mappings_that_are_not_plain(value: object) -> None:
    with pytest.raises(UserError):
        read_schema({"version": 1, "groups": {"a": {"column": "a"}, "b": {"column": "b"}}, "name": value})


# --- settings -------------------------------------------------------------------------------------------------------

SETTABLE = """\
version: 1
groups:
  a: {column: a}
  b: {column: b}
training:
  optimizer: adam
  epochs: many
"""


def set_to(*given: str, text: str = SETTABLE) -> Schema:
    return read_schema(parse_document(text), settings=given)


def test_settings_replace_what_the_file_says_even_what_is_wrong() -> None:
    with pytest.raises(UserError, match=r"schema:7: training\.epochs: expected a whole number, received many"):
        set_to()
    schema = set_to(
        "training.epochs=7",
        "training.optimizer.learning_rate=0.5",
        "objective=negative_sampling",
        "model.dim=3",
        "groups.a.extractor.multi=true",
        "noise.targets.b=2",
    )
    assert schema.training == Training(epochs=7, optimizer=OptimizerSpec(type="adam", learning_rate=0.5))
    assert schema.objective.type == "negative_sampling"
    assert schema.model.dim == 3
    assert schema.groups["a"].extractor == Lookup(multi=True)
    assert schema.noise.targets == {"b": 2.0}
    assert set_to("training.epochs=010", "training.epochs=2").training.epochs == 2
    flawed = SETTABLE.replace("many", "010\n  epochs: 3")
    assert set_to("training.epochs=2", text=flawed).training.epochs == 2
    assert set_to("training=2", "training={seed: 4}").training == Training(seed=4)


def test_settings_reach_a_schema_of_any_source(tmp_path: Path) -> None:
    path = tmp_path / "schema.yaml"
    path.write_text(EXAMPLE, encoding="utf-8")
    for source in (path, EXAMPLE, yaml.safe_load(EXAMPLE), parse_document(EXAMPLE)):
        assert read_schema(source, settings=["training.epochs=3"]).training.epochs == 3
    assert read_schema(path).training.epochs == 20


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("training.seed=1.5", "training.seed: expected a whole number, received 1.5"),
        ("training.seed='7'", "training.seed: expected a whole number, received '7'"),
        ("training.seed=", "training.seed: expected a whole number, received nothing"),
        (
            "training.seed=0x1F",
            'training.seed: received 0x1F, which is a hexadecimal or binary number to some readers; write "0x1F" in '
            "quotes for the text, or a plain decimal number",
        ),
        ("training.sede=1", "training.sede: unknown key; did you mean 'seed'?"),
        ("trainin.seed=1", "trainin: unknown key; did you mean 'training'?"),
        ("training.optimizer.lr=1", "training.optimizer.lr: unknown key; known here: type, learning_rate, decay"),
        (
            "training.optimizer=adm",
            "training.optimizer: expected 'adagrad' or 'adam', received adm; did you mean 'adam'?",
        ),
        ("training.optimizer={learning_rate: 0}", "training.optimizer.learning_rate: must be more than 0, received 0"),
        ("name=12", 'name: expected text, received 12, a whole number; put it in quotes: "12"'),
        ("objective=logistic", "objective: the key `target` is missing"),
        ("objective.type=logistic", "objective: the key `target` is missing"),
        ("groups.a.extractor=lokup", "groups.a.extractor: unknown type 'lokup'; did you mean 'lookup'?"),
        ("noise.targets=[a, bb]", "noise.targets[1]: names 'bb', which is no group; did you mean 'b'?"),
        ("noise.targets.bb=2", "noise.targets.bb: names 'bb', which is no group; did you mean 'b'?"),
        ("noise={joint: [[a]]}", "noise.joint[0]: names 1 of the groups; joint noise needs two or more"),
        ("version=2", "version: expected 1, received 2"),
    ],
)
def test_problems_of_settings_are_told_beside_those_of_the_file(setting: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        set_to(setting)
    assert sorted(caught.value.problems) == [
        f"--set {setting}: {told}",
        "schema:7: training.epochs: expected a whole number, received many",
    ]


# --- there and back -------------------------------------------------------------------------------------------------

HOSTILE = [
    "no", "010", "1e3", "2020-01-01", "12:30", "~", " x", "x ", "a: b", "#x", "null", "y", "<<", "=", "é", "🎬", "a\nb",
    "\x85", "-", "*x", "&x", "!x", "%", "@", "0x1f", "1_000", ".inf", "true", "lookup", "columns", "'", '"',
]  # fmt: skip
NAMES = st.sampled_from(HOSTILE) | st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
COUNTS = st.integers(1, 2**31 - 1)
DIMS = st.integers(1, 65_536)
SHARES = st.floats(0, 1, exclude_max=True)
POSITIVE = st.floats(0, exclude_min=True, allow_infinity=False)
NOT_NEGATIVE = st.floats(0, allow_infinity=False)
VOCABULARY: dict[str, st.SearchStrategy[Any]] = {"min_count": COUNTS, "max_size": st.none() | COUNTS}


def some(required: dict[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(required, optional=optional)


def typed(name: str, **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return some({"type": st.just(name)}, **optional)


COMBINER = st.sampled_from(["sum", "mean", "sqrtn"])
PARTS = st.lists(st.sampled_from(["year", "quarter", "month", "day", "weekday", "hour"]), max_size=6, unique=True)
ONE_COLUMN = st.one_of(
    st.just("lookup"),
    st.just({}),
    typed(
        "lookup",
        multi=st.booleans(),
        split=NAMES,
        max_items=COUNTS,
        max_share=st.floats(0, 1, exclude_min=True),
        item_dropout=SHARES,
        gain=POSITIVE,
        combiner=COMBINER,
        **VOCABULARY,
    ),
    some({"type": st.just("lookup"), "multi": st.just(True)}, weights=NAMES, **VOCABULARY),
    typed("lookup", bins=st.integers(2, 10_000)),
    typed("lookup", parts=PARTS),
    st.just("text_cnn"),
    typed(
        "text_cnn",
        max_tokens=st.integers(9, 2**31 - 1),
        widths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
        filters=DIMS,
        token_dim=DIMS,
        dropout=SHARES,
        **VOCABULARY,
    ),
    st.sampled_from(["vector", "numeric"]),
)
NUMERIC = typed(
    "numeric",
    scale=st.sampled_from(["standard", "minmax", "log1p", "quantile", "none"]),
    nan=st.sampled_from(["error", "missing"]),
    hidden=st.lists(DIMS, max_size=3),
)
GROUPS = st.one_of(
    some({"column": NAMES}, extractor=ONE_COLUMN),
    some({"columns": NAMES | st.lists(NAMES, min_size=1, max_size=1)}, extractor=ONE_COLUMN),
    some({"columns": st.lists(NAMES, min_size=1, max_size=4, unique=True), "extractor": NUMERIC}),
)
MODELS = some({}, dim=DIMS, bias=st.booleans()) | some(
    {"ranks": st.lists(DIMS, min_size=1, max_size=4, unique=True).map(sorted)},
    bias=st.booleans(),
    dependents=st.sampled_from(["joint", "strict"]),
    level_sharing=st.sampled_from(["separate", "truncate"]),
)
TARGET: dict[str, st.SearchStrategy[Any]] = {"target": NAMES}
OBJECTIVES = st.one_of(
    st.sampled_from(["nce", "negative_sampling", "contrastive"]),
    typed("contrastive", correction=st.booleans(), unit=st.booleans(), temperature=POSITIVE),
    *(some({"type": st.just(kind), **TARGET}, weight=NAMES) for kind in ("logistic", "regression", "softmax")),
    some({"type": st.just("glove"), **TARGET}, weight=NAMES, n_max=POSITIVE, alpha=NOT_NEGATIVE),
)
OPTIMIZERS = st.sampled_from(["adam", "adagrad"]) | some(
    {},
    type=st.sampled_from(["adam", "adagrad"]),
    learning_rate=POSITIVE,
    decay=st.sampled_from(["linear", "none"]),
)
TRAINING = some(
    {},
    epochs=COUNTS,
    batch_size=COUNTS,
    optimizer=OPTIMIZERS,
    l2=NOT_NEGATIVE,
    group_dropout=SHARES,
    interaction_dropout=SHARES,
    patience=st.integers(0, 2**31 - 1),
    checkpoint_minutes=POSITIVE,
    seed=st.integers(0, 2**31 - 1),
)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """A schema's data, valid by construction."""
    groups = draw(st.dictionaries(NAMES, GROUPS, min_size=2, max_size=5))
    joint = draw(st.lists(st.sampled_from(list(groups)), unique=True, max_size=4))
    noise = some(
        {},
        alpha_groups=st.floats(0, 10),
        alpha_values=st.floats(0, 10),
        negatives=st.integers(1, 1_000_000),
        sharing=st.sampled_from(["record", "batch"]),
        joint=st.just([joint] if len(joint) > 1 else []),
        targets=st.just(joint) | st.fixed_dictionaries(dict.fromkeys(joint, POSITIVE)),
    )
    data = draw(
        some(
            {"version": st.just(1), "groups": st.just(groups)},
            name=NAMES,
            id=NAMES,
            model=MODELS,
            noise=noise,
            objective=OBJECTIVES,
            training=TRAINING,
        )
    )
    objective = data.get("objective")
    columns = [column for group in read_columns(groups) for column in group]
    extractors = [group.get("extractor") for group in groups.values()]
    columns += [str(extractor.get("weights")) for extractor in extractors if isinstance(extractor, dict)]
    if isinstance(objective, dict) and "target" in objective:
        assume(objective["target"] not in [*columns, objective.get("weight"), data.get("id")])
    return dict(data)


def read_columns(groups: dict[str, Any]) -> Iterator[list[str]]:
    for group in groups.values():
        columns = group.get("columns", group.get("column"))
        yield [columns] if isinstance(columns, str) else columns


QUICK = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(schemas())
@settings(QUICK, max_examples=100)
def test_resolved_is_read_back_equal(data: dict[str, Any]) -> None:
    schema = read_schema(data)
    text = schema.resolved()
    assert read_schema(text) == schema
    assert read_schema(yaml.safe_load(text)) == schema
    assert read_schema(text).resolved() == text
    assert list(schema.groups) == list(data["groups"])
    assert accepts(JSON_SCHEMA, data)
    assert accepts(JSON_SCHEMA, yaml.safe_load(text))


def test_resolved_leaves_out_what_does_not_apply() -> None:
    assert "ranks" not in read(BASE).resolved()
    assert "level_sharing" not in read(BASE).resolved()
    ranked = read(f"{BASE}model: {{ranks: [4, 8]}}\n").resolved()
    assert "  ranks: [4, 8]\n" in ranked
    assert "dim" not in yaml.safe_load(ranked)["model"]


# --- JSON Schema ----------------------------------------------------------------------------------------------------

JSON_SCHEMA = json_schema()
KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
NOTES = {"title", "description", "default", "discriminator", "$defs", "$schema"}


def accepts(schema: Any, value: Any) -> bool:
    """A JSON Schema validator for the words that ours uses; any other word is a mistake of the test."""
    if isinstance(schema, bool):
        return schema
    checks: dict[str, Callable[[Any], bool]] = {
        "$ref": lambda ref: accepts(JSON_SCHEMA["$defs"][ref.removeprefix("#/$defs/")], value),
        "anyOf": lambda options: any(accepts(option, value) for option in options),
        "oneOf": lambda options: sum(accepts(option, value) for option in options) == 1,
        "type": lambda kind: isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool)),
        "enum": lambda values: value in values,
        "const": lambda expected: value == expected,
        "required": lambda keys: not isinstance(value, dict) or all(key in value for key in keys),
        "properties": lambda known: (
            not isinstance(value, dict) or all(accepts(known[key], value[key]) for key in known if key in value)
        ),
        "additionalProperties": lambda rest: (
            not isinstance(value, dict)
            or all(accepts(rest, value[key]) for key in value if key not in schema.get("properties", {}))
        ),
        "propertyNames": lambda names: not isinstance(value, dict) or all(accepts(names, key) for key in value),
        "items": lambda item: not isinstance(value, list) or all(accepts(item, each) for each in value),
        "minItems": lambda n: not isinstance(value, list) or len(value) >= n,
        "minProperties": lambda n: not isinstance(value, dict) or len(value) >= n,
        "minLength": lambda n: not isinstance(value, str) or len(value) >= n,
        "minimum": lambda n: not isinstance(value, (int, float)) or value >= n,
        "maximum": lambda n: not isinstance(value, (int, float)) or value <= n,
        "exclusiveMinimum": lambda n: not isinstance(value, (int, float)) or value > n,
        "exclusiveMaximum": lambda n: not isinstance(value, (int, float)) or value < n,
    }
    return all(checks[word](wanted) for word, wanted in schema.items() if word not in NOTES)


def test_json_schema_is_json_and_names_everything() -> None:
    text = json.dumps(JSON_SCHEMA)
    assert json.loads(text) == JSON_SCHEMA
    assert JSON_SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert list(JSON_SCHEMA["properties"]) == list(Schema.model_fields)
    assert JSON_SCHEMA["required"] == ["version", "groups"]
    group = JSON_SCHEMA["$defs"]["Group"]
    assert list(group["properties"]) == ["column", "columns", "extractor"]
    for name in EXTRACTORS:
        assert f'"const": "{name}"' in text
        assert name in group["properties"]["extractor"]["anyOf"][0]["enum"]
    references = set(re.findall(r'"#/\$defs/(\w+)"', text))
    assert references == set(JSON_SCHEMA["$defs"])


def test_json_schema_accepts_the_example_and_short_forms() -> None:
    assert accepts(JSON_SCHEMA, yaml.safe_load(EXAMPLE))
    assert accepts(JSON_SCHEMA, yaml.safe_load(f"{BASE}objective: nce\ntraining: {{optimizer: adam}}\n"))
    short = {"column": "x", "extractor": "text_cnn"}
    assert accepts(JSON_SCHEMA, {"version": 1, "groups": {"a": short, "b": {"columns": ["x"]}}})


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"extra": 1},
        {"groups": {}},
        {"groups": {"a": {}}},
        {"groups": {"a": {"column": "x", "columns": ["x"]}}},
        {"groups": {"a": {"columns": []}}},
        {"groups": {"a": {"column": "x", "extractor": "lokup"}}},
        {"groups": {"a": {"column": "x", "extractor": {"type": "lookup", "widths": [2]}}}},
        {"objective": "logistic"},
        {"objective": {"type": "nce", "target": "y"}},
        {"training": {"optimizer": "sgd"}},
        {"noise": {"targets": "a"}},
        {"noise": {"targets": {"a": 0}}},
        {"noise": {"targets": {"a": "much"}}},
        {"training": {"group_dropout": 1}},
        {"training": {"optimizer": {"learning_rate": 0}}},
    ],
    ids=str,
)
def test_json_schema_refuses_what_we_refuse(change: dict[str, Any]) -> None:
    data = {"version": 1, "groups": {"a": {"column": "a"}, "b": {"column": "b"}}} | change
    assert not accepts(JSON_SCHEMA, data)
    with pytest.raises(UserError):
        read_schema(data)


# --- what is wrong --------------------------------------------------------------------------------------------------


def test_all_problems_at_once_sorted_by_line() -> None:
    text = """\
version: 2
groups:
  a: {column: 010}
  a: {column: b}
  b:
    colum: x
    extractor: {tpe: text_cnn,
      filters: 3}
  no: {column: x}
  c:
    columns:
      - x
      - 5
    extractor: nummeric
model: {ranks: [3, 2],
        level_sharing: x}
noise: {joint: [[a, c],
                [b, no]]}
objective: {type: nce, target: y}
training:
  optimizer: adm
  epochs: 0
trainin: {}
"""
    assert problems(text) == [
        "schema:1: version: expected 1, received 2",
        "schema:3: groups.a.column: received 010, which is an octal number to some readers; "
        'write "010" in quotes for the text, or a plain decimal number',
        "schema:4: groups.a: is here twice (first in line 3); keep one",
        "schema:6: groups.b.colum: unknown key; did you mean 'column' or 'columns'?",
        "schema:7: groups.b.extractor.tpe: unknown key; did you mean 'type'?",
        'schema:9: groups: a key must be text, received no; put it in quotes: "no"',
        'schema:13: groups.c.columns[1]: expected text, received 5, a whole number; put it in quotes: "5"',
        "schema:14: groups.c.extractor: unknown type 'nummeric'; did you mean 'numeric'?",
        "schema:15: model.ranks: must ascend, received [3, 2]",
        "schema:16: model.level_sharing: expected 'separate' or 'truncate', received x",
        'schema:18: noise.joint[1][1]: expected text, received no, a boolean; put it in quotes: "no"',
        "schema:19: objective.target: unknown key for the type 'nce'; glove, logistic, regression, softmax have it",
        "schema:21: training.optimizer: expected 'adagrad' or 'adam', received adm; did you mean 'adam'?",
        "schema:22: training.epochs: must be at least 1, received 0",
        "schema:23: trainin: unknown key; did you mean 'training'?",
    ]


def cases(block: str) -> list[tuple[str, list[str]]]:
    """A schema's text and, behind `!`, the problems it has."""
    found = []
    for case in block.strip().split("\n\n"):
        text, *told = case.split("\n    ! ")
        found.append((text, told))
    return found


def group(text: str) -> str:
    return f"version: 1\ngroups:\n  b: {{column: b}}\n  a: {{{text}}}\n"


IN_A_GROUP = """
column: x, columns: [x]
    ! column: cannot be given beside `columns`, which means the same; remove one of them

columns: []
    ! columns: needs at least 1 entry, received an empty list

column: []
    ! column: needs at least 1 entry, received an empty list

column: ''
    ! column: expected text that is not empty, received ''

column: {x: 1}
    ! column: expected a list, received keys and values

column: {}
    ! column: expected a list, received an empty mapping

column: [[x]]
    ! column[0]: expected text, received a list

? column
    ! column: expected text, received nothing

column: ~
    ! column: expected text, received ~

column: no
    ! column: expected text, received no, a boolean; put it in quotes: "no"

column: 12
    ! column: expected text, received 12, a whole number; put it in quotes: "12"

column: 1e3
    ! column: expected text, received 1e3, a number; put it in quotes: "1e3"

column: 1_0
    ! column: received 1_0, which is a number with underscores to some readers; write "1_0" in quotes for the text, \
or a plain decimal number

extractor: lookup
    ! the key `column` is missing

column: [x, x], extractor: numeric
    ! column: the column 'x' is here twice; keep one

columns: [x, y]
    ! columns: lookup takes one column, received 2; make a group for each

columns: [x, y], extractor: text_cnn
    ! columns: text_cnn takes one column, received 2; make a group for each

columns: [x, y], extractor: vector
    ! columns: vector takes one column, received 2; make a group for each

column: x, extractor: lokup
    ! extractor: unknown type 'lokup'; did you mean 'lookup'?

column: x, extractor: zzz
    ! extractor: unknown type 'zzz'; known here: lookup, numeric, text_cnn, vector

column: x, extractor: {type: NUMERIC}
    ! extractor.type: unknown type 'NUMERIC'; did you mean 'numeric'?

column: x, extractor: 3
    ! extractor: expected a type, or keys and values, received 3

column: x, extractor: null
    ! extractor: expected a type, or keys and values, received null

column: x, extractor: []
    ! extractor: expected a type, or keys and values, received an empty list

column: x, extractor: {type: yes}
    ! extractor.type: expected one of lookup, numeric, text_cnn, vector, received yes

column: x, extractor: {mutli: true}
    ! extractor.mutli: unknown key; did you mean 'multi'?

column: x, extractor: {tpe: numeric, scale: none}
    ! extractor.tpe: unknown key; did you mean 'type'?

column: x, extractor: {widths: [2]}
    ! extractor.widths: unknown key for the type 'lookup'; text_cnn has it

column: x, extractor: {type: vector, zzz: 1}
    ! extractor.zzz: unknown key; known here: type, gain

column: x, extractor: {type: vector, vector: 1}
    ! extractor.vector: unknown key; known here: type, gain

column: x, extractor: {multi: 1}
    ! extractor.multi: expected true or false, received 1

column: x, extractor: {multi: 'yes'}
    ! extractor.multi: expected true or false, received 'yes'

column: x, extractor: {max_items: 0}
    ! extractor.max_items: must be at least 1, received 0

column: x, extractor: {max_items: -3}
    ! extractor.max_items: must be at least 1, received -3

column: x, extractor: {max_items: 2147483648}
    ! extractor.max_items: must be at most 2147483647, received 2147483648

column: x, extractor: {max_items: 1.0}
    ! extractor.max_items: expected a whole number, received 1.0

column: x, extractor: {max_items: on}
    ! extractor.max_items: expected a whole number, received on

column: x, extractor: {max_items: '3'}
    ! extractor.max_items: expected a whole number, received '3'

column: x, extractor: {gain: 0}
    ! extractor.gain: must be more than 0, received 0

column: x, extractor: {type: vector, gain: -1}
    ! extractor.gain: must be more than 0, received -1

column: x, extractor: {item_dropout: 1}
    ! extractor.item_dropout: must be less than 1, received 1

column: x, extractor: {type: text_cnn, item_dropout: 0.1}
    ! extractor.item_dropout: unknown key for the type 'text_cnn'; lookup has it

column: x, extractor: {max_share: 0}
    ! extractor.max_share: must be more than 0, received 0

column: x, extractor: {max_share: 1.5}
    ! extractor.max_share: must be at most 1, received 1.5

column: x, extractor: {bins: 1}
    ! extractor.bins: must be at least 2, received 1

column: x, extractor: {bins: 3, multi: true}
    ! extractor.bins: bins are for a column of single numbers; remove `multi`

column: x, extractor: {bins: 3, split: ','}
    ! extractor.bins: cannot be combined with `split`; keep one of them

column: x, extractor: {bins: 3, parts: [year]}
    ! extractor.parts: cannot be combined with `bins`; keep one of them

column: x, extractor: {split: ',', parts: [day]}
    ! extractor.parts: cannot be combined with `split`; keep one of them

column: x, extractor: {parts: [yaer]}
    ! extractor.parts[0]: expected 'year', 'quarter', 'month', 'day', 'weekday' or 'hour', received yaer; did you \
mean 'year'?

column: x, extractor: {parts: year}
    ! extractor.parts: expected a list, received year

column: x, extractor: {multi: true, split: ',', weights: w}
    ! extractor.weights: cannot be combined with `split`; keep one of them

column: x, extractor: {multi: true, parts: [day], weights: w}
    ! extractor.weights: cannot be combined with `parts`; keep one of them

column: x, extractor: {weights: w}
    ! extractor.weights: weights are for a bag, one number an item; set `multi: true`

column: x, extractor: {combiner: men}
    ! extractor.combiner: expected 'sum', 'mean' or 'sqrtn', received men; did you mean 'mean'?

column: x, extractor: {type: text_cnn, widths: []}
    ! extractor.widths: needs at least 1 entry, received an empty list

column: x, extractor: {type: text_cnn, widths: [0]}
    ! extractor.widths[0]: must be at least 1, received 0

column: x, extractor: {type: text_cnn, widths: [33, 2]}
    ! extractor.widths: 33 is wider than max_tokens, 32; make it narrower

column: x, extractor: {type: text_cnn, max_tokens: 3}
    ! extractor.widths: 4 is wider than max_tokens, 3; make it narrower

column: x, extractor: {type: text_cnn, dropout: 1}
    ! extractor.dropout: must be less than 1, received 1

column: x, extractor: {type: text_cnn, dropout: .nan}
    ! extractor.dropout: expected a finite number, received .nan

column: x, extractor: {type: numeric, hidden: 50}
    ! extractor.hidden: expected a list, received 50

column: x, extractor: {type: numeric, hidden: [65537]}
    ! extractor.hidden[0]: must be at most 65536, received 65537

column: x, extractor: {type: numeric, scale: no}
    ! extractor.scale: expected 'standard', 'minmax', 'log1p', 'quantile' or 'none', received no

colum: x
    ! colum: unknown key; did you mean 'column' or 'columns'?

column: x, extrator: lookup
    ! extrator: unknown key; did you mean 'extractor'?

column: x, column: y
    ! column: is here twice (first in line 4); keep one
"""


@pytest.mark.parametrize(("text", "expected"), cases(IN_A_GROUP), ids=count())
def test_one_problem_of_a_group(text: str, expected: list[str]) -> None:
    """Exactly one: nothing that only follows from it."""
    (told,) = expected
    assert problems(group(text)) == [f"schema:4: groups.a{': ' if told.startswith('the key') else '.'}{told}"]


OUTSIDE_THE_GROUPS = """
zzz: 1
    ! zzz: unknown key; known here: version, name, id, plugins, model, groups, noise, objective, head, training

nois: {}
    ! nois: unknown key; did you mean 'noise'?

name: ''
    ! name: expected text that is not empty, received ''

name: on
    ! name: expected text, received on, a boolean; put it in quotes: "on"

name:
    ! name: expected text, received nothing

id: 7
    ! id: expected text, received 7, a whole number; put it in quotes: "7"

id: {}
    ! id: expected text, received an empty mapping

model:
    ! model: expected keys and values, received nothing

model: 50
    ! model: expected keys and values, received 50

model: {dmi: 3}
    ! model.dmi: unknown key; did you mean 'dim'?

model: {dim: 0}
    ! model.dim: must be at least 1, received 0

model: {dim: -1}
    ! model.dim: must be at least 1, received -1

model: {dim: 70000}
    ! model.dim: must be at most 65536, received 70000

model: {dim: .inf}
    ! model.dim: expected a whole number, received .inf

model: {dim: 0x10}
    ! model.dim: received 0x10, which is a hexadecimal or binary number to some readers; write "0x10" in quotes for \
the text, or a plain decimal number

model: {bias: 1}
    ! model.bias: expected true or false, received 1

model: {ranks: []}
    ! model.ranks: needs at least 1 entry, received an empty list

model: {ranks: 16}
    ! model.ranks: expected a list, received 16

model: {ranks: [64, 16]}
    ! model.ranks: must ascend, received [64, 16]

model: {ranks: [16, 16]}
    ! model.ranks: must ascend, received [16, 16]

model: {ranks: [16, x, 8]}
    ! model.ranks[1]: expected a whole number, received x

model: {ranks: [x], level_sharing: truncate}
    ! model.ranks[0]: expected a whole number, received x

model: {rank: [1, 2], level_sharing: truncate}
    ! model.rank: unknown key; did you mean 'ranks'?

model: {ranks: [16], dim: 50}
    ! model.dim: cannot be combined with `ranks`; keep one of them

model: {level_sharing: separate}
    ! model.level_sharing: is for models with `ranks`; remove it, or give ranks

model: {dependents: joint}
    ! model.dependents: is for models with `ranks`; remove it, or give ranks

model: {ranks: [1], dependents: strit}
    ! model.dependents: expected 'joint' or 'strict', received strit; did you mean 'strict'?

noise: {alpha_groups: -0.5}
    ! noise.alpha_groups: must be at least 0, received -0.5

noise: {alpha_values: 11}
    ! noise.alpha_values: must be at most 10, received 11

noise: {negatives: 0}
    ! noise.negatives: must be at least 1, received 0

noise: {negatives: 5.5}
    ! noise.negatives: expected a whole number, received 5.5

noise: {sharing: bacth}
    ! noise.sharing: expected 'record' or 'batch', received bacth; did you mean 'batch'?

model: {together: [[a]]}
objective: {type: logistic, target: y}
    ! model.together[0]: names 1 of the groups; a sum needs two or more

model: {together: [[a, a], [b, c]]}
objective: {type: logistic, target: y}
    ! model.together[0][1]: names 'a' again; a group is added up once
    ! model.together[1][1]: names 'c', which is no group

model: {together: [[b, a]]}
objective: {type: logistic, target: y}
    ! model.together: has every group in one sum, which leaves no pairs; leave a group out

model: {together: [[a, b]]}
    ! model.together: is for pairs that tell a number, by logistic, regression or glove; nce is none

model: {together: [[a, b]]}
objective: {type: softmax, target: y}
    ! model.together: is for pairs that tell a number, by logistic, regression or glove; softmax is none

model: {together: [[a, b]]}
objective: {type: logistic, target: y, implicit: a}
    ! model.together: cannot be combined with objective.implicit; remove one of them

training: {averaging: 1}
    ! training.averaging: must be less than 1, received 1

noise: {joint: [[a]]}
    ! noise.joint[0]: names 1 of the groups; joint noise needs two or more

noise: {joint: [[]]}
    ! noise.joint[0]: names 0 of the groups; joint noise needs two or more

noise: {joint: [[a, a]]}
    ! noise.joint[0][1]: names 'a' again; a group is drawn once

noise: {joint: [[a, c]]}
    ! noise.joint[0][1]: names 'c', which is no group

noise: {joint: [a]}
    ! noise.joint[0]: expected a list, received a

noise: {targets: [a, c]}
    ! noise.targets[1]: names 'c', which is no group

noise: {targets: [b, a, b]}
    ! noise.targets[2]: names 'b' again; keep one

noise: {targets: a}
    ! noise.targets: expected a list, received a

noise: {targets: [a, 5]}
    ! noise.targets[1]: expected text, received 5, a whole number; put it in quotes: "5"

noise: {targets: [a, bb]}
    ! noise.targets[1]: names 'bb', which is no group; did you mean 'b'?

noise: {targets: {a: 1, bb: 2}}
    ! noise.targets.bb: names 'bb', which is no group; did you mean 'b'?

noise: {targets: {a: 0}}
    ! noise.targets.a: must be more than 0, received 0

noise: {targets: {a: much}}
    ! noise.targets.a: expected a number, received much

noise: {targets: {b: [1]}}
    ! noise.targets.b: expected a number, received a list

noise: {targets: {a: .inf}}
    ! noise.targets.a: expected a finite number, received .inf

noise: {targets: {'': 1}}
    ! noise.targets['']: expected text that is not empty, received ''

noise: {joint: [[a, b]], targets: {b: 2}}
    ! noise.targets.b: names 'b' without 'a', which is drawn with it; name both or neither

noise: {joint: [[a, b]], targets: [b]}
    ! noise.targets[0]: names 'b' without 'a', which is drawn with it; name both or neither

noise: {joint: [a, [b]]}
    ! noise.joint[0]: expected a list, received a

objective: nec
    ! objective: unknown type 'nec'; did you mean 'nce'?

objective: {type: negative_samplng}
    ! objective.type: unknown type 'negative_samplng'; did you mean 'negative_sampling'?

objective: logistic
    ! objective: the key `target` is missing

objective: {type: softmax}
    ! objective: the key `target` is missing

objective: {type: glove, targt: n}
    ! objective.targt: unknown key; did you mean 'target'?

objective: {type: logistic, target: 1}
    ! objective.target: expected text, received 1, a whole number; put it in quotes: "1"

objective: {type: nce, target: y}
    ! objective.target: unknown key for the type 'nce'; glove, logistic, regression, softmax have it

objective: {type: contrastive, weight: y}
    ! objective.weight: unknown key for the type 'contrastive'; glove, logistic, regression, softmax have it

objective: {type: contrastive, temperature: 0}
    ! objective.temperature: must be more than 0, received 0

objective: {type: contrastive, unit: 1}
    ! objective.unit: expected true or false, received 1

objective: {type: nce, unit: true}
    ! objective.unit: unknown key for the type 'nce'; contrastive has it

objective: {type: nce, correction: true}
    ! objective.correction: unknown key for the type 'nce'; contrastive has it

objective: {type: glove, target: n, n_max: 0}
    ! objective.n_max: must be more than 0, received 0

objective: [nce]
    ! objective: expected a type, or keys and values, received a list

training: []
    ! training: expected keys and values, received an empty list

training: {epoch: 3}
    ! training.epoch: unknown key; did you mean 'epochs'?

training: {epochs: 1e3}
    ! training.epochs: expected a whole number, received 1e3

training: {batch_size: off}
    ! training.batch_size: expected a whole number, received off

training: {l2: -1}
    ! training.l2: must be at least 0, received -1

training: {l2: 1e999}
    ! training.l2: expected a finite number, received 1e999

training: {l2: .nan}
    ! training.l2: expected a finite number, received .nan

training: {l2: high}
    ! training.l2: expected a number, received high

training: {group_dropout: 1.0}
    ! training.group_dropout: must be less than 1, received 1.0

training: {seed: -1}
    ! training.seed: must be at least 0, received -1

training: {seed: 99999999999999999999}
    ! training.seed: must be less than 2147483648, received 99999999999999999999

training: {optimizer: adm}
    ! training.optimizer: expected 'adagrad' or 'adam', received adm; did you mean 'adam'?

training: {optimizer: {type: sgd}}
    ! training.optimizer.type: expected 'adagrad' or 'adam', received sgd

training: {optimizer: {adam: 1}}
    ! training.optimizer.adam: unknown key; known here: type, learning_rate, decay

training: {optimizer: {type: adam, adam: 1}}
    ! training.optimizer.adam: unknown key; known here: type, learning_rate, decay

training: {optimizer: {lr: 0.1}}
    ! training.optimizer.lr: unknown key; known here: type, learning_rate, decay

training: {optimizer: {decay: zigzag}}
    ! training.optimizer.decay: expected 'linear' or 'none', received zigzag

training: {patience: -1}
    ! training.patience: must be at least 0, received -1

model: {scale: 0}
    ! model.scale: must be more than 0, received 0

training: {l2_over: rows}
    ! training.l2_over: expected 'occurrences' or 'tables', received rows

head: mlp
    ! head: mlp is for objectives with a target; noise is told by the pairs of groups alone

head: {type: mlp, hidden: []}
    ! head.hidden: needs at least 1 entry, received an empty list

head: {type: tree}
    ! head.type: unknown type 'tree'; known here: fm, mlp

objective: {type: logistic, target: y, class_weights: {'2': 1}}
    ! objective.class_weights.2: is no class of a logistic target; those are 0 and 1

objective: {type: logistic, target: y, class_weights: even}
    ! objective.class_weights: expected 'balanced', received even

objective: {type: logistic, target: y, implicit: aa}
    ! objective.implicit: names 'aa', which is no group; did you mean 'a'?

objective: {type: regression, target: y, class_weights: balanced}
    ! objective.class_weights: unknown key for the type 'regression'; logistic, softmax have it

training: {checkpoint_minutes: 0}
    ! training.checkpoint_minutes: must be more than 0, received 0

training: {optimizer: {learning_rate: 0}}
    ! training.optimizer.learning_rate: must be more than 0, received 0

plugins: x
    ! plugins: expected a list, received x

plugins: [3]
    ! plugins[0]: expected text, received 3, a whole number; put it in quotes: "3"

plugins: ['']
    ! plugins[0]: expected text that is not empty, received ''
"""


@pytest.mark.parametrize(("text", "expected"), cases(OUTSIDE_THE_GROUPS), ids=count())
def test_one_problem_outside_the_groups(text: str, expected: list[str]) -> None:
    assert problems(f"{BASE}{text}\n") == [f"schema:5: {told}" for told in expected]


WITHOUT_FOLLOWING = """
groups: {a: {column: a}, b: {column: b}}
    ! 1: the key `version` is missing; add `version: 1`

version: 1
    ! 1: the key `groups` is missing

vresion: 1
groups: {a: {column: a}, b: {column: b}}
    ! 1: vresion: unknown key; did you mean 'version'?

version: 1
gruops: {a: {column: a}}
    ! 2: gruops: unknown key; did you mean 'groups'?

version: 1
groups: {}
    ! 2: groups: needs at least 1 entry, received an empty mapping

version: 1
groups:
    ! 2: groups: expected keys and values, received nothing

version: 1
groups: [a]
    ! 2: groups: expected keys and values, received a list

version: 1
groups: {a: , b: {column: b}}
    ! 2: groups.a: expected keys and values, received nothing

version: 1
groups: {a: x, b: {column: b}}
    ! 2: groups.a: expected keys and values, received x

version: 1
groups: {'': {column: b}, b: {column: b}}
    ! 2: groups['']: expected text that is not empty, received ''

version: 1
groups: {no: {column: b}}
    ! 2: groups: a key must be text, received no; put it in quotes: "no"

version: 1
groups: {<<: {a: {column: b}}}
    ! 2: groups: merge keys (`<<`) are not supported; repeat the keys

version: true
groups: {a: {column: a}, b: {column: b}}
    ! 1: version: expected 1, received true

version: 1.0
groups: {a: {column: a}, b: {column: b}}
    ! 1: version: expected 1, received 1.0

version: '1'
groups: {a: {column: a}, b: {column: b}}
    ! 1: version: expected 1, received '1'

version:
groups: {a: {column: a}, b: {column: b}}
    ! 1: version: expected 1, received nothing

version: [1]
groups: {a: {column: a}, b: {column: b}}
    ! 1: version: expected 1, received a list

version: 1
groups: {a: {column: a}}
    ! 2: groups: one group has nothing to be learnt from; add a second one, or an objective with a target

version: 1
groups: {a: {column: a}}
objective: logistc
    ! 3: objective: unknown type 'logistc'; did you mean 'logistic'?

version: 1
groups: {a: {column: a}}
objective: logistic
    ! 3: objective: the key `target` is missing

version: 1
groups: {a: {column: a}}
objektive: logistic
    ! 3: objektive: unknown key; did you mean 'objective'?

version: 1
groups: {a: {column: x, extractor: {bins: 3, weights: w}}, b: {column: b}}
    ! 2: groups.a.extractor.weights: cannot be combined with `bins`; keep one of them
    ! 2: groups.a.extractor.weights: weights are for a bag, one number an item; set `multi: true`

version: 1
groups: {a: {column: a, extractor: {multi: true, weights: y}}}
objective: {type: regression, target: y}
    ! 2: groups.a.extractor.weights: the column 'y' is also the target; name another column

version: 1
groups: {a: {column: a}}
objective: {type: regression, target: y, weight: y}
    ! 3: objective.weight: the column 'y' is also the target; name another column

version: 1
id: y
groups: {a: {column: a}}
objective: {type: regression, target: y}
    ! 2: id: the column 'y' is also the target; name another column

version: 1
groups: {a: {colum: a}, b: {column: b}}
noise: {joint: [[a, b]]}
    ! 2: groups.a.colum: unknown key; did you mean 'column' or 'columns'?

version: 2
groups: 3
model: {ranks: [2, 1]}
    ! 1: version: expected 1, received 2
    ! 2: groups: expected keys and values, received 3
    ! 3: model.ranks: must ascend, received [2, 1]

version: 1
groups: 3
noise: {joint: [[a, b]]}
    ! 2: groups: expected keys and values, received 3

version: 1
groups: {a: {column: x, extractor: {multi: yess, weights: w}}, b: {column: b}}
    ! 2: groups.a.extractor.multi: expected true or false, received yess

version: 1
groups: {a: {column: x, extractor: {mutli: yes, weights: w}}, b: {column: b}}
    ! 2: groups.a.extractor.mutli: unknown key; did you mean 'multi'?

version: 1
groups: {a: {column: x, extractor: {type: text_cnn, max_tokens: 99x, widths: [40]}}, b: {column: b}}
    ! 2: groups.a.extractor.max_tokens: expected a whole number, received 99x
"""


@pytest.mark.parametrize(("text", "expected"), cases(WITHOUT_FOLLOWING), ids=count())
def test_problems_do_not_bring_others(text: str, expected: list[str]) -> None:
    assert problems(f"{text}\n") == [f"schema:{told}" for told in expected]


def test_one_group_is_enough_for_an_objective_with_a_target() -> None:
    assert read("version: 1\ngroups: {a: {column: a}}\nobjective: {type: logistic, target: y}\n").target == "y"


def test_the_target_may_not_be_a_groups_column() -> None:
    text = "version: 1\ngroups:\n  a: {columns: [x, y], extractor: numeric}\nobjective: {type: regression, target: y}\n"
    assert problems(text) == [
        "schema:3: groups.a.columns: the column 'y' is also the target, which it would give away; remove the group"
    ]


def test_lines_of_values_in_flow_style_over_several_lines() -> None:
    text = (
        "{version: 1,\n groups: {a: {column: a,\n   extractor: {type: text_cnn,\n"
        "     widths: [2,\n       0]}},\n  b: {column: 5}}}"
    )
    assert problems(text) == [
        "schema:5: groups.a.extractor.widths[1]: must be at least 1, received 0",
        'schema:6: groups.b.column: expected text, received 5, a whole number; put it in quotes: "5"',
    ]


def test_a_mistake_in_an_anchor_is_told_at_the_anchor() -> None:
    text = "version: 1\ngroups:\n  a: &x\n    column: 5\n  b: *x\n"
    assert [problem.split(": expected")[0] for problem in problems(text)] == [
        "schema:4: groups.a.column",
        "schema:4: groups.b.column",
    ]


def test_values_in_messages_are_short_and_in_one_line() -> None:
    for text in (
        f"{BASE}model: {{dim: {'x' * 9999}}}",
        f"{BASE}name: 3\n\n{'z' * 9999}: 1",
        f'{BASE}objective: "a\\nb"',
    ):
        for problem in problems(f"{text}\n"):
            assert len(problem) < 250
            assert "\n" not in problem


def test_many_problems_are_told_quickly() -> None:
    lines = [f"  g{i}: {{column: {i}, colum: x, extractor: lokup}}" for i in range(1000)]
    assert len(problems("\n".join(["version: 1", "groups:", *lines, ""]))) == 3000


# --- every mistake is told in our words -----------------------------------------------------------------------------

THEIRS = re.compile(
    r"input|pydantic|\bvalid|tuple|dict|instance|model_|Field required|permitted|should|NoneType|Traceback|\bstr\b"
    r"|\bint\b|literal|Error\b|discriminator|object at"
)
SURPRISES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**63, 10**30, -(10**400), 1.5, 1e308, float("inf"), float("nan"), -0.0]),
    st.sampled_from(["", "x", "lookup", "nce", "numeric", "adam", "type", "a b", "\n", "\ud800", "no", "logistic"]),
    st.just([]),
    st.just({}),
    st.lists(st.sampled_from([1, "x", None, [], {}, "year"]), max_size=3),
    st.dictionaries(st.sampled_from(["type", "x", "column", "", "multi"]), st.sampled_from([1, "lookup", None, []])),
)
KEYS = st.sampled_from(
    ["x", "tpe", "colum", "column", "columns", "target", "ranks", "type", "", "lookup", "nce", "[key]"]
)


def nodes(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    for key in data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield (*path, key)
        yield from nodes(data[key], (*path, key))


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A schema of which a few nodes are replaced, removed, renamed or joined by another one."""
    data: dict[str, Any] = deepcopy(draw(schemas() | st.just(yaml.safe_load(EXAMPLE))))
    for _ in range(draw(st.integers(1, 4))):
        paths = list(nodes(data))
        if not paths:
            break
        path = draw(st.sampled_from(paths))
        holder: Any = data
        for key in path[:-1]:
            holder = holder[key]
        change = draw(st.sampled_from(["replace", "remove", "rename", "add"]))
        if change == "replace":
            holder[path[-1]] = deepcopy(draw(SURPRISES))
        elif change == "remove" or not isinstance(holder, dict):
            del holder[path[-1]]
        elif change == "rename":
            holder[draw(KEYS)] = holder.pop(path[-1])
        else:
            holder[draw(KEYS)] = deepcopy(draw(SURPRISES))
    return data


@given(mutated())
@settings(QUICK, max_examples=150)
def test_any_mutation_is_a_schema_or_told_in_our_words(data: dict[str, Any]) -> None:
    told = mistakes(data)
    assert all(re.match(r"^schema:[1-9]\d*: ", problem) for problem in told)
    assert not [problem for problem in told if THEIRS.search(problem) or "\n" in problem]
    assert len(set(told)) == len(told)
    lines = [int(problem.split(":")[1]) for problem in told]
    assert lines == sorted(lines)


def mistakes(data: dict[str, Any]) -> tuple[str, ...]:
    """The problems of the data, or none when it is a schema that can be read back."""
    try:
        schema = read_schema(data)
    except UserError as caught:
        return caught.problems
    assert read_schema(schema.resolved()) == schema
    return ()


PLACES = [path for path in nodes(yaml.safe_load(EXAMPLE)) if len(path) != 2 or path[0] != "groups"]


@pytest.mark.parametrize("path", PLACES, ids=dotted)
def test_keys_that_are_unknown_are_told_where_they_are(path: tuple[str | int, ...]) -> None:
    """Each node of the example, replaced by a mapping that no part knows."""
    data: Any = yaml.safe_load(EXAMPLE)
    holder = data
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = {"zzzz": 1}
    told = [problem.split(": ")[1] for problem in problems(dump_document(data))]
    assert dotted(path) in told or f"{dotted(path)}.zzzz" in told
    assert all(where.startswith(dotted(path)) or where.startswith("noise.joint") for where in told)


# --- plugins --------------------------------------------------------------------------------------------------------

PLUGIN = """\
from typing import Literal

import feat2vec
from feat2vec.specs import NumbersSpec


@feat2vec.extractor("{name}")
class Wave(NumbersSpec):
    type: Literal["{name}"] = "{name}"
    waves: int = 8
"""


@pytest.fixture
def clean_registry() -> Iterator[None]:
    before, modules = dict(EXTRACTORS), set(sys.modules)
    yield
    EXTRACTORS.clear()
    EXTRACTORS.update(before)
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    for model in (Group, Schema):
        model.model_rebuild(force=True)


def plugin_schema(folder: Path, plugin: str, extractor: str = "wave") -> Path:
    path = folder / "schema.yaml"
    path.write_text(
        f"version: 1\nplugins:\n  - {plugin}\ngroups:\n  a: {{column: a}}\n"
        f"  b: {{columns: [b, c], extractor: {{type: {extractor}, waves: 3}}}}\n",
        encoding="utf-8",
    )
    return path


@pytest.mark.usefixtures("clean_registry")
def test_a_plugin_beside_the_schema(tmp_path: Path) -> None:
    (tmp_path / "waves_beside.py").write_text(PLUGIN.format(name="wave"), encoding="utf-8")
    path = plugin_schema(tmp_path, "waves_beside")
    before = list(sys.path)
    schema = read_schema(path)
    assert sys.path == before
    spec = schema.groups["b"].extractor
    assert isinstance(spec, NumbersSpec)
    assert spec.model_dump() == {"type": "wave", "gain": 1.0, "scale": "standard", "nan": "error", "waves": 3}
    assert schema.plugins == ("waves_beside",)
    assert read_schema(schema.resolved()) == schema
    assert read_schema(path, plugins=False) == schema  # imported already: nothing is run
    assert '"const": "wave"' in json.dumps(json_schema())
    assert "wave" in json_schema()["$defs"]["Group"]["properties"]["extractor"]["anyOf"][0]["enum"]
    assert "type 'wav'; did you mean 'wave'?" in problems(group("column: x, extractor: wav"))[0]
    assert problems(group("column: x, extractor: {type: wave, wavs: 1}")) == [
        "schema:4: groups.a.extractor.wavs: unknown key; did you mean 'waves'?"
    ]
    assert problems(group("column: x, extractor: {type: lookup, waves: 1}")) == [
        "schema:4: groups.a.extractor.waves: unknown key for the type 'lookup'; wave has it"
    ]


@pytest.mark.usefixtures("clean_registry")
def test_a_plugin_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waves_on_path.py").write_text(PLUGIN.format(name="wave"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert read_schema(yaml.safe_load(plugin_schema(tmp_path, "waves_on_path").read_text())).plugins == (
        "waves_on_path",
    )


def test_the_registry_is_clean_again() -> None:
    assert list(EXTRACTORS) == ["lookup", "text_cnn", "numeric", "vector"]
    assert json_schema() == JSON_SCHEMA


@pytest.mark.usefixtures("clean_registry")
def test_plugins_of_others_are_not_imported(tmp_path: Path) -> None:
    (tmp_path / "waves_evil.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    path = plugin_schema(tmp_path, "waves_evil")
    with pytest.raises(UserError) as caught:
        read_schema(path, plugins=False)
    assert caught.value.problems == (
        f"{path}:3: plugins[0]: would run the code of 'waves_evil'; import it yourself first if you trust it",
    )
    assert "waves_evil" not in sys.modules


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def x(:", "SyntaxError: "),
        ("import waves_no_such_module", "ModuleNotFoundError: No module named 'waves_no_such_module'"),
        (
            "from typing import Literal\nimport feat2vec\nfrom feat2vec.specs import NumbersSpec\n"
            "@feat2vec.extractor('lookup')\nclass Mine(NumbersSpec):\n    type: Literal['lookup'] = 'lookup'\n",
            "ValueError: the extractor 'lookup' is registered already",
        ),
    ],
    ids=count(),
)
def test_a_plugin_that_fails(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "waves_fail.py").write_text(code, encoding="utf-8")
    path = plugin_schema(tmp_path, "waves_fail")
    path.write_text(path.read_text() + "nam: x\n", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_schema(path)
    first, second = caught.value.problems  # the unknown extractor only follows; the misspelt key does not
    assert first.startswith(f"{path}:3: plugins[0]: the plugin 'waves_fail' cannot be imported: {message}")
    assert second == f"{path}:7: nam: unknown key; did you mean 'name'?"


def test_a_plugin_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r":3: plugins\[0\]: the plugin 'waves_none' cannot be imported: ModuleNotFound"
    ):
        read_schema(plugin_schema(tmp_path, "waves_none"))
    with pytest.raises(UserError, match=r"'waves_none\.py' cannot be imported: .*; write 'waves_none'"):
        read_schema(plugin_schema(tmp_path, "waves_none.py"))


@pytest.mark.usefixtures("clean_registry")
def test_registering_again() -> None:
    class Mine(NumbersSpec):
        type: Literal["mine"] = "mine"

    assert extractor("mine")(Mine) is Mine
    assert extractor("mine")(Mine) is Mine  # a reload

    other = type("Other", (NumbersSpec,), {"__annotations__": {"type": Literal["mine"]}, "type": "mine"})
    with pytest.raises(ValueError, match=r"'mine' is registered already, by .*Mine.* Received: .*Other"):
        extractor("mine")(other)
    namesake = type("Lookup", (NumbersSpec,), {"__annotations__": {"type": Literal["lookup"]}, "type": "lookup"})
    with pytest.raises(ValueError, match="'lookup' is registered already"):
        extractor("lookup")(namesake)
    assert EXTRACTORS["lookup"] is Lookup
    assert EXTRACTORS["mine"] is Mine


@pytest.mark.usefixtures("clean_registry")
def test_registering_what_is_no_extractor() -> None:
    class Untyped(NumbersSpec):
        pass

    class Aimless(ExtractorSpec):
        type: Literal["aimless"] = "aimless"

    with pytest.raises(ValueError, match=r'Untyped needs the field `type: Literal\["untyped"\] = "untyped"`'):
        extractor("untyped")(Untyped)
    with pytest.raises(ValueError, match="Aimless must derive from ItemsSpec, TokensSpec, NumbersSpec or VectorSpec"):
        extractor("aimless")(Aimless)
    with pytest.raises(ValueError, match=r"letters, digits and underscores\. Received: 'my own'"):
        extractor("my own")(Untyped)
    assert list(EXTRACTORS) == ["lookup", "text_cnn", "numeric", "vector"]


# --- cost -----------------------------------------------------------------------------------------------------------


def test_reading_a_schema_imports_nothing_heavy(tmp_path: Path) -> None:
    path = tmp_path / "schema.yaml"
    path.write_text(EXAMPLE, encoding="utf-8")
    code = (
        "import sys, feat2vec.schema.options as s; s.read_schema(sys.argv[1]); s.json_schema();"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "feat2vec" in loaded
    assert not {"tensorflow", "keras", "pyarrow", "duckdb", "pandas", "polars", "numpy", "rich", "click"} & set(loaded)


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("noise: {targets: [b]}", "noise.targets: cannot be combined with objective.implicit"),
        ("noise: {joint: [[a, b]]}", "noise.joint: holds 'a', which objective.implicit draws alone"),
        ("training: {interaction_dropout: 0.2}", "training.interaction_dropout: cannot be combined with"),
        ("head: mlp", "head: cannot be mlp with objective.implicit"),
    ],
)
def test_what_implicit_negatives_cannot_be_combined_with(rest: str, expected: str) -> None:
    (told,) = problems(f"{BASE}objective: {{type: logistic, target: y, implicit: a}}\n{rest}\n")
    assert expected in told


@pytest.mark.parametrize(("given", "wrong"), [({"0": 0, "1": 0}, True), ({"0": 0}, False), ({"1": 0, "0": 2}, False)])
def test_classes_that_both_weigh_nothing_are_a_mistake(given: dict[str, float], wrong: bool) -> None:
    objective = {"type": "logistic", "target": "y", "class_weights": given}
    schema = {"version": 1, "groups": {"a": {"column": "a"}}, "objective": objective}
    if wrong:
        with pytest.raises(UserError, match=r"objective\.class_weights: is 0 for both classes"):
            read_schema(schema)
    else:
        read_schema(schema)


def test_a_schema_in_use_is_written_and_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = read_schema(EXAMPLE)
    text = schema.resolved()
    made = schema.model_copy(update={"name": "another"})
    assert "another" in made.resolved()
    other = text.replace("version: 1", "version:  1")
    assert other != text
    parsed: list[str] = []

    def parse(text: str, name: str = "schema") -> Document:
        parsed.append(text)
        return parse_document(text, name)

    monkeypatch.setattr("feat2vec.schema.options.parse_document", parse)
    monkeypatch.setattr("feat2vec.schema.options.dump_document", lambda _: pytest.fail("written again"))
    assert schema.resolved() is text
    assert schema_of(text) is schema
    assert not parsed
    assert schema_of(other) == schema  # any other text, even of the same schema
    assert parsed == [other]
    monkeypatch.undo()
    written = made.resolved()  # which nobody has checked
    assert schema_of(written) is not made
    assert schema_of(written) == made
