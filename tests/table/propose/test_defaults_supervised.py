"""What `init --target` trains with: sound for every size of a table, and what it is said to be."""

from __future__ import annotations

from typing import Any

import pytest

from feat2vec.schema.reading import read_schema
from feat2vec.table.propose.defaults_supervised import GroupFacts, supervised_defaults

GROUPS = {
    "who": GroupFacts("keys", {"type": "lookup"}, 900),
    "sex": GroupFacts("keys", {"type": "lookup"}, 2),
    "tags": GroupFacts("list", {"type": "lookup", "split": "|", "max_items": 5}, 40),
    "title": GroupFacts("text", {"type": "text_cnn", "max_tokens": 200}, 4000),
    "price": GroupFacts("number", {"type": "numeric", "hidden": [32], "scale": "log1p", "nan": "missing"}, 70),
    "day": GroupFacts("date", {"type": "lookup", "parts": ["month", "weekday"]}, 19),
    "picture": GroupFacts("vector", {"type": "vector"}),
}


@pytest.mark.parametrize("rows", [5, 300, 5_000, 300_000, 10_000_000])
@pytest.mark.parametrize("objective", ["regression", "logistic", "softmax"])
def test_they_are_a_schema_of_few_steps(rows: int, objective: str) -> None:
    chosen = supervised_defaults(rows, objective, GROUPS, classes=3)
    groups: dict[str, Any] = {
        name: {"column": name, "extractor": dict(options)} for name, options in chosen.extractors.items()
    }
    target = {"objective": {"type": objective, "target": "y"}}
    schema = read_schema({"version": 1, "groups": groups, **target, **chosen.settings})
    assert list(schema.groups) == list(GROUPS)
    training = schema.training
    assert 8 <= training.epochs <= 25
    assert schema.patience < training.epochs or training.epochs == 8
    assert training.batch_size <= max(32, rows)
    assert schema.model.bias == (objective != "softmax")
    assert set(chosen.reasons) <= {*chosen.settings, *(f"groups.{name}" for name in GROUPS)}


def test_extractors_are_for_labels() -> None:
    extractors = supervised_defaults(5_000, "regression", GROUPS).extractors
    assert extractors["who"] == {"type": "lookup", "min_count": 2}  # 5.6 rows a key
    assert extractors["sex"] == {"type": "lookup"}
    assert extractors["tags"] == {"type": "lookup", "split": "|", "max_items": 5, "combiner": "sqrtn"}
    assert extractors["title"]["split"] == "words"
    assert extractors["title"]["max_items"] == 64
    assert extractors["price"] == {"type": "numeric", "scale": "quantile", "pieces": 48, "nan": "missing"}
    assert extractors["day"] == GROUPS["day"].extractor
    assert extractors["picture"] == {"type": "vector"}


def test_small_tables_have_more_members_and_dropout_and_fewer_pieces() -> None:
    small, large = (supervised_defaults(rows, "regression", GROUPS) for rows in (200, 200_000))
    small_head, large_head = small.settings["head"], large.settings["head"]
    assert isinstance(small_head, dict)
    assert isinstance(large_head, dict)
    assert small_head["members"] > large_head["members"] > 1
    assert small_head["dropout"] > large_head["dropout"] > 0
    numbers = {"price": GROUPS["price"], "sex": GROUPS["sex"]}
    smooth, yes_no = (supervised_defaults(200_000, objective, numbers) for objective in ("regression", "logistic"))
    assert isinstance(smooth.settings["head"], dict)
    assert isinstance(yes_no.settings["head"], dict)
    assert (smooth.settings["head"]["dropout"], yes_no.settings["head"]["dropout"]) == (0, 0.1)
    assert small.extractors["price"]["pieces"] == 20


KEYS = {"user": GroupFacts("keys", {"type": "lookup"}, 900), "app": GroupFacts("keys", {"type": "lookup"}, 4000)}


def test_labels_of_pairs_that_come_again_are_learnt_by_a_factorization_machine() -> None:
    chosen = supervised_defaults(200_000, "logistic", KEYS, pairs_come_again=True)
    groups = {name: {"column": name, "extractor": dict(options)} for name, options in chosen.extractors.items()}
    schema = read_schema(
        {"version": 1, "groups": groups, "objective": {"type": "logistic", "target": "y"}, **chosen.settings}
    )
    assert schema.head.type == "fm"
    assert schema.model.members > 1
    assert schema.training.epochs <= 20
    assert schema.training.interaction_dropout > 0


@pytest.mark.parametrize(
    ("rows", "objective", "groups", "again"),
    [
        (200_000, "logistic", KEYS, False),
        (200_000, "regression", KEYS, True),
        (2_000, "logistic", KEYS, True),
        (200_000, "logistic", {**KEYS, "price": GROUPS["price"]}, True),
    ],
)
def test_other_labels_are_learnt_by_a_network(
    rows: int, objective: str, groups: dict[str, GroupFacts], again: bool
) -> None:
    assert "head" in supervised_defaults(rows, objective, groups, pairs_come_again=again).settings
