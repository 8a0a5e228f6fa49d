"""What a schema says: the example, every default, and the way back to text."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from pydantic import ValidationError

from feat2vec.schema.extractor_options import Lookup, Numeric, TextCnn, Vector
from feat2vec.schema.model_options import ModelSpec
from feat2vec.schema.objectives import Nce
from feat2vec.schema.optimizer_options import Adagrad
from feat2vec.schema.options import Group, Schema
from feat2vec.schema.reading import read_schema
from feat2vec.schema.training_options import Noise, Training
from tests.schema.strategies import QUICK, schemas
from tests.schema.texts import BASE, EXAMPLE, EXTRACTOR_DEFAULTS, read


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
            optimizer=Adagrad(learning_rate=0.1),
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
            "pairs": True,
            "dim": 50,
            "scale": 0.1,
            "ranks": None,
            "bias": False,
            "members": 1,
            "together": [],
            "posterior": "point",
            "dependents": "joint",
            "level_sharing": "separate",
            "activation": None,
            "levels": {"counts": None, "columns": {}},
        },
        "groups": {
            name: {"columns": [name], "extractor": EXTRACTOR_DEFAULTS["lookup"], "share": None} for name in "ab"
        },
        "noise": {
            "alpha_groups": 0.25,
            "alpha_values": 0.75,
            "negatives": 5,
            "sharing": "record",
            "joint": [],
            "targets": [],
            "lists": "whole",
        },
        "objective": {"type": "nce"},
        "head": {"type": "fm"},
        "training": {
            "epochs": 20,
            "batch_size": 2048,
            "optimizer": {"type": "adagrad", "learning_rate": 0.1, "decay": "linear"},
            "l2": 0.0,
            "l2_groups": {},
            "dependent_rate": None,
            "l2_linear": 0.0,
            "l2_over": "occurrences",
            "group_dropout": 0.0,
            "interaction_dropout": 0.0,
            "averaging": 0.0,
            "validation": 0.1,
            "time": None,
            "refit": True,
            "patience": None,
            "neighbours": 50_000,
            "checkpoint_minutes": 10.0,
            "seed": 0,
        },
    }


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
            {
                "type": "logistic",
                "target": "y",
                "weight": None,
                "class_weights": None,
                "implicit": None,
                "zero_as": 0.0,
            },
        ),
        (
            "{type: logistic, target: y, implicit: a, class_weights: {'1': 2}}",
            {
                "type": "logistic",
                "target": "y",
                "weight": None,
                "class_weights": {"1": 2.0},
                "implicit": "a",
                "zero_as": 0.0,
            },
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


def test_ranks() -> None:
    schema = read(f"{BASE}model: {{ranks: [16, 64], level_sharing: truncate, dependents: strict, bias: true}}\n")
    assert schema.model == ModelSpec(ranks=(16, 64), level_sharing="truncate", dependents="strict", bias=True)
    assert read(f"{BASE}model: {{ranks: [8]}}\n").model.ranks == (8,)


def test_a_gaussian_posterior() -> None:
    text = (
        f"{BASE}model: {{dim: 8, bias: true, posterior: gaussian}}\nobjective: {{type: regression, target: y}}\n"
        "training: {l2: 2, l2_groups: {a: 5}, optimizer: adam}\n"
    )
    schema = read(text)
    assert schema.model == ModelSpec(dim=8, bias=True, posterior="gaussian")
    assert "  posterior: gaussian\n" in schema.resolved()
    assert read(schema.resolved()) == schema


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


def test_every_part_is_frozen() -> None:
    schema = read(EXAMPLE)
    group = schema.groups["title"]
    for part in (schema, group, group.extractor, schema.model, schema.noise, schema.objective, schema.training):
        for name in type(part).model_fields:
            with pytest.raises(ValidationError, match="frozen"):
                part.__setattr__(name, getattr(part, name))
    with pytest.raises(ValidationError, match="frozen"):
        schema.training.optimizer.__setattr__("learning_rate", 1.0)


@given(schemas())
@settings(QUICK, max_examples=100)
def test_resolved_is_read_back_equal(data: dict[str, Any]) -> None:
    schema = read_schema(data)
    text = schema.resolved()
    assert read_schema(text) == schema
    assert read_schema(yaml.safe_load(text)) == schema
    assert read_schema(text).resolved() == text
    assert list(schema.groups) == list(data["groups"])


def test_resolved_leaves_out_what_does_not_apply() -> None:
    assert "ranks" not in read(BASE).resolved()
    assert "level_sharing" not in read(BASE).resolved()
    assert "activation" not in read(BASE).resolved()  # so that a schema resolves to the text of before
    ranked = read(f"{BASE}model: {{ranks: [4, 8]}}\n").resolved()
    assert "  ranks: [4, 8]\n" in ranked
    assert "dim" not in yaml.safe_load(ranked)["model"]


SHARING = """
version: 1
groups:
  medium: {column: medium}
  away: {column: away, share: home}
  home: {column: home, extractor: {multi: true, combiner: mean}}
  guest: {column: guest, share: home}
training: {l2: 1, l2_groups: {home: 5}}
"""


def test_a_group_that_shares_vectors_has_the_extractor_of_their_owner() -> None:
    schema = read(SHARING)
    home = schema.groups["home"].extractor
    assert isinstance(home, Lookup)
    assert home.combiner == "mean"
    assert schema.groups["away"].extractor == schema.groups["guest"].extractor == home
    assert [schema.owner(name) for name in schema.groups] == ["medium", "home", "home", "home"]
    assert schema.owners == ["medium", "home"]
    assert schema.sharing("guest") == schema.sharing("home") == ["away", "home", "guest"]
    assert [schema.l2_of(name) for name in schema.groups] == [1, 5, 5, 5]


def test_sharing_is_written_where_there_is_some() -> None:
    """A schema without sharing has the text that it had before there was any."""
    assert "share" not in yaml.safe_load(read(BASE).resolved())["groups"]["a"]
    text = read(SHARING).resolved()
    groups = yaml.safe_load(text)["groups"]
    assert [group.get("share") for group in groups.values()] == [None, "home", None, "home"]
    assert read(text) == read(SHARING)
    assert read(text).resolved() == text


@pytest.mark.parametrize(
    ("names", "shares"),
    [
        (["home", "away"], {"home": None, "away": "home"}),
        (["guest", "away"], {"guest": None, "away": "guest"}),
        (["medium", "away"], {"medium": None, "away": None}),
    ],
)
def test_of_groups_whose_owner_is_left_out_the_first_owns_the_vectors(
    names: list[str], shares: dict[str, str | None]
) -> None:
    schema = read(SHARING)
    groups = schema.groups_of(names)
    assert {name: group.share for name, group in groups.items()} == shares
    assert [group.columns for group in groups.values()] == [schema.groups[name].columns for name in names]


@pytest.mark.parametrize(
    ("objective", "given", "expected"), [("nce", {}, 5), ("contrastive", {}, 0), ("contrastive", {"patience": 3}, 3)]
)
def test_patience_follows_from_the_objective(objective: str, given: dict[str, int], expected: int) -> None:
    groups = {"a": {"column": "a"}, "b": {"column": "b"}}
    schema = read_schema({"version": 1, "groups": groups, "objective": objective, "training": given})
    assert schema.patience == expected
