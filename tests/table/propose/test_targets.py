"""What is proposed for a target: the objective, the groups to predict from, and what cannot be a target."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import parse_document
from feat2vec.table.propose import propose, propose_schema
from tests.table.propose.columns import PAIR, ROWS, WORDS, bags, proposed, texts

OBJECTIVES: dict[str, tuple[list[Any], str]] = {
    "zeros and ones": ([i % 2 for i in range(ROWS)], "logistic"),
    "booleans": ([i % 3 == 0 for i in range(ROWS)], "logistic"),
    "yes and no": (["yes" if i % 3 else "no" for i in range(ROWS)], "softmax"),
    "ones and twos": ([1 + i % 2 for i in range(ROWS)], "regression"),
    "words": ([WORDS[i % 12] for i in range(ROWS)], "softmax"),
    "stars": ([1 + i % 5 for i in range(ROWS)], "regression"),
    "years": ([1950 + i % 40 for i in range(ROWS)], "regression"),
    "fractions": ([i / 8 for i in range(ROWS)], "regression"),
    "gaps": ([None if i % 4 else i / 8 for i in range(ROWS)], "regression"),
}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("csv", [False, True], ids=["typed", "csv"])
def test_the_objective_fits_the_column(name: str, csv: bool, tmp_path: Path) -> None:
    values, objective = OBJECTIVES[name]
    table = pa.table({"it": values, **PAIR})
    source: Any = table
    if csv:
        source = tmp_path / "made.csv"
        table.to_pandas().to_csv(source, index=False)
    schema = _proposed_for(source, "it")
    assert (schema.objective.type, schema.target) == (objective, "it")
    assert "it" not in schema.groups
    if not any(value is None for value in values):
        feat2vec.fit(schema, source, tmp_path / "encoded")


def test_codes_are_classes() -> None:
    assert _proposed_for(pa.table({"class_id": [7 * (i % 5) for i in range(ROWS)], **PAIR}), "class_id").target
    schema = _proposed_for(pa.table({"zip": [10_000 + i % 5 for i in range(ROWS)], **PAIR}), "zip")
    assert schema.objective.type == "softmax"


def test_what_tells_the_target_is_left_out() -> None:
    survived = [i % 7 in (1, 4) for i in range(ROWS)]
    table = pa.table({"survived": survived, "alive": ["yes" if alive else "no" for alive in survived], **PAIR})
    text = propose(table, target="survived")
    assert "#   alive: tells what survived tells, one to one" in text
    assert list(read_schema(parse_document(text)).groups) == ["kind", "size"]


def test_quantities_are_numbers_to_a_prediction() -> None:
    days = np.datetime64("2015-01-01") + np.arange(ROWS)
    epochs = [1_500_000_000 + 7919 * i for i in range(ROWS)]
    table = {
        "stars": [i % 5 for i in range(ROWS)],
        "created_at": epochs,
        "zip": [100 + i % 9 for i in range(ROWS)],
        "day": days,
        "us_day": [f"{day + timedelta(days=9 * (i % 5)):%m/%d/%Y}" for i, day in enumerate(days.tolist())],
        **PAIR,
    }
    schema = _proposed_for(pa.table(table), "kind")
    days_of_epochs = schema.groups["created_at_days"].extractor
    assert (days_of_epochs.model_dump()["dates"], schema.groups["day_days"].columns) == ("seconds", ("day",))
    assert {name: group.extractor.type for name, group in schema.groups.items()} == {
        "stars": "numeric",
        "created_at": "lookup",
        "created_at_days": "numeric",
        "zip": "lookup",
        "day": "lookup",
        "day_days": "numeric",
        "us_day": "lookup",
        "us_day_days": "numeric",
        "size": "numeric",
    }


HOPELESS: dict[str, tuple[Any, str]] = {
    "constant": ([3] * ROWS, "the target 'it' is 3 in every row that has it; a target has two values or more"),
    "one word": (["x"] * ROWS, "the target 'it' is x in every row that has it"),
    "missing": (pa.nulls(ROWS, pa.string()), "the target 'it' has no value in any row"),
    "lists": ([["x", "y"]] * ROWS, r"the target 'it' holds lists \(list<item: string>\); a row has one value"),
    "lists in text": (bags("|"), "the target 'it' holds lists, such as .*; a row has one value"),
    "prose": (texts(1), "the target 'it' holds 120 texts, such as .*; a target is a number, or a category"),
    "names": ([f"u{i}" for i in range(ROWS)], "the target 'it' is an identifier: 120 values in 120 rows; a target is"),
    "units": ([f"{i} min" for i in range(ROWS)], "the target 'it' holds text, such as .*; write numbers as 1234.5"),
    "numbers and text": (
        ["unknown" if i == 5 else str(i / 8) for i in range(ROWS)],
        "the target 'it' holds text beside numbers, such as unknown; write null for a missing number",
    ),
    "structs": ([{"x": 1}] * ROWS, "the target 'it' is of type struct"),
}


@pytest.mark.parametrize("name", HOPELESS)
def test_what_cannot_be_a_target_is_refused(name: str) -> None:
    values, message = HOPELESS[name]
    with pytest.raises(UserError, match=f"^the table: {message}") as caught:
        propose(pa.table({"it": values, **PAIR}), target="it")
    assert len(caught.value.problems) == 1


def test_an_unknown_target_is_told_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match=r"has no column 'sice' to be the target; did you mean 'size'\?"):
        propose(pa.table(PAIR), target="sice")
    with pytest.raises(UserError, match="has no column 'zebra' to be the target; the columns are kind, size"):
        propose(pa.table(PAIR), target="zebra")


def test_too_many_classes_are_refused() -> None:
    table = pa.table({"who": [f"u{i % 1001}" for i in range(3003)], "size": [i % 7 / 4 for i in range(3003)]})
    with pytest.raises(UserError, match="the target 'who' has 1,001 values, and 1,000 can be classes"):
        propose(table, target="who")
    assert _proposed_for(table.slice(0, 1000).append_column("x", [[1, 2] * 500]), "x").target == "x"


def test_nothing_beside_the_target_is_refused() -> None:
    message = "the table: no of 2 columns can be a group, and a schema needs one beside the target; left out:"
    with pytest.raises(UserError, match=f"^{message}\n  same: one value in every row"):
        propose(pa.table({"it": [1, 2] * 30, "same": [1] * 60}), target="it")


@pytest.mark.parametrize(("rows", "is_weak"), [(40, True), (99, True), (100, False)])
def test_few_labels_are_said_to_be_few(rows: int, is_weak: bool) -> None:
    table = pa.table({"it": [i % 7 / 2 for i in range(rows)], "kind": ["a", "b"] * (rows // 2) + ["a"] * (rows % 2)})
    proposal = propose_schema(table, target="it")
    assert (proposal.warning is not None) == is_weak
    assert (f"# Weak: {rows} labels are too few to predict well from" in proposal.text) == is_weak


@pytest.mark.parametrize("target", [None, "hit"])
def test_the_target_that_is_named_in_the_comment_can_be_used(target: str | None) -> None:
    table = pa.table({"hit": [i % 2 for i in range(ROWS)], "year": [1950 + i % 40 for i in range(ROWS)], **PAIR})
    if target is None:
        table = table.drop_columns(["hit"])
    (line,) = [line for line in propose(table).splitlines() if "--target" in line]
    named = line.split()[-1]
    assert named in ("hit", "kind", "size")  # never the year
    assert _proposed_for(table, named).target == named


def test_a_year_is_never_proposed_as_the_label() -> None:
    columns = {
        "year": [1950 + i % 40 for i in range(ROWS)],
        "releaseDate": [i % 9 for i in range(ROWS)],
        "hour": [i % 24 for i in range(ROWS)],
        "built": [1800 + i % 40 for i in range(ROWS)],
    }
    text, _ = proposed(pa.table(columns))
    assert "--target COLUMN\n" in text


LABELS: dict[str, tuple[dict[str, list[Any]], str]] = {
    "what is called so": ({"score": [i / 7 for i in range(ROWS)], "gift": ["yes", "no"] * 60}, "score"),
    "part of a name": ({"average_rating": [i / 7 for i in range(ROWS)], "gift": ["yes", "no"] * 60}, "average_rating"),
    "yes and no": (
        {"gift": ["yes", "no"] * 60, "kind": ["a", "b", "c"] * 40, "x": [i / 7 for i in range(ROWS)]},
        "gift",
    ),
    "few classes": ({"kind": ["a", "b", "c"] * 40, "x": [i / 7 for i in range(ROWS)]}, "kind"),
    "no mail": ({"x": [i / 7 for i in range(ROWS)], "email": [f"{i // 2}@mail.org" for i in range(ROWS)]}, "x"),
    "no names": ({"town": [f"t{i % 40}" for i in range(ROWS)], "who": [f"u{i % 60}" for i in range(ROWS)]}, "COLUMN"),
}


@pytest.mark.parametrize("name", LABELS)
def test_the_likeliest_label_is_proposed(name: str) -> None:
    columns, expected = LABELS[name]
    assert f"--target {expected}\n" in propose(pa.table(columns))


def _proposed_for(table: object, target: str) -> Schema:
    return read_schema(parse_document(propose(table, target=target)))


@pytest.mark.parametrize(("apps_of_a_user", "is_machine"), [(10, True), (250, False)])
def test_pairs_of_keys_that_come_again_are_seen(apps_of_a_user: int, is_machine: bool) -> None:
    """With 10 apps a user most pairs of 20,000 rows come again, with 250 hardly any."""
    rng = np.random.default_rng(0)
    users = rng.integers(0, 400, 20_000)
    apps = (users * 7 + rng.integers(0, apps_of_a_user, len(users)) * 13) % 3000
    if not is_machine:
        apps = rng.permutation(20_000) % 3000
    table = pa.table({
        "user": [f"u{user}" for user in users], "app": [f"a{app}" for app in apps],
        "day": [f"d{day}" for day in rng.integers(0, 7, len(users))], "used": rng.integers(0, 2, len(users)),
    })  # fmt: skip
    text = propose(table, target="used")
    assert ("factorization machine" in text) == is_machine
    assert ("head:" in text) != is_machine
