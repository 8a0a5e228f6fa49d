"""What a score is the sum of, against the model's own call; what makes rows alike, against their vectors."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.space.geometry import dense
from tests.commands import feat2vec as command
from tests.short_trainings import train

pytestmark = pytest.mark.usefixtures("trainings_without_graphs")

MODELS: dict[str, dict[str, Any]] = {
    "fm": {"dim": 6, "bias": True},
    "rafm": {"ranks": [3, 6, 8], "bias": True},
    "difacto": {"ranks": [3, 6, 8], "bias": True, "level_sharing": "truncate"},
    "together": {"ranks": [3, 6, 8], "bias": True, "together": [["who", "title"]]},
    "no bias": {"ranks": [3, 6, 8]},
}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "nce": {},
    "logistic": {"objective": {"type": "logistic", "target": "good"}},
    "mlp": {"objective": {"type": "logistic", "target": "good"}, "head": {"type": "mlp", "hidden": [8]}},
    "mlp alone": {
        "objective": {"type": "regression", "target": "good"},
        "head": {"type": "mlp", "hidden": [8], "inputs": ["vectors"], "members": 3, "pairs": False},
    },
    "softmax": {"objective": {"type": "softmax", "target": "kind"}},
    "softmax mlp": {"objective": {"type": "softmax", "target": "kind"}, "head": {"type": "mlp", "hidden": [8]}},
}
CASES = [
    *((model, objective) for model in MODELS if model != "together" for objective in ("nce", "softmax")),
    ("fm", "logistic"),
    ("rafm", "mlp"), ("together", "mlp"), ("fm", "softmax mlp"), ("fm", "mlp alone"),
]  # fmt: skip
QUICK = [("rafm", "nce"), ("together", "mlp")]


def table(rows: int = 200) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "who": [None if i % 11 == 0 else f"<w{min(rng.zipf(1.5), 12)} & co>" for i in range(rows)],
            "tags": [[f"t{x % 20}" for x in rng.zipf(1.3, i % 4)] for i in range(rows)],
            "title": [f"the {rng.integers(0, 6)} of Tōkyō {rng.integers(0, 3)}" for _ in range(rows)],
            "score": [None if i % 7 == 0 else float(i % 5) for i in range(rows)],
            "good": rng.integers(0, 2, rows),
            "kind": [f"k{rng.integers(0, 3)}" for _ in range(rows)],
        }
    )


def schema(model: str, objective: str) -> dict[str, Any]:
    return {
        "version": 1, "model": MODELS[model], **OBJECTIVES[objective],
        "groups": {
            "who": {"column": "who", "extractor": {"type": "lookup", "gain": 2.0}},
            "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
            "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 4}},
            "score": {"column": "score", "extractor": "numeric"},
        },
        "training": {"validation": 0,
                     "epochs": 1, "batch_size": 50, "optimizer": {"type": "adam", "learning_rate": 0.1}},
    }  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs of each kind, trained when first asked for, all of their weights drawn anew."""
    folder, models = tmp_path_factory.mktemp("runs"), {}

    def run(model: str, objective: str) -> feat2vec.Run:
        if (model, objective) not in models:
            out = folder / f"{model} {objective}".replace(" ", "-")
            run = train(schema(model, objective), table(), out, quiet=True)
            rng = np.random.default_rng(3)
            for weight in run.model.trainable_weights:
                weight.assign(rng.normal(0, 0.5, weight.shape))
            models[model, objective] = run
        return models[model, objective]

    return run


def score_of(run: feat2vec.Run, i: int) -> Any:
    (entries,) = run.fitted.entries(table().slice(i, 1))
    return run.model.call({name: dense(entry) for name, entry in entries.items()}).numpy()[0]


@pytest.mark.parametrize(
    ("model", "objective"), [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in CASES]
)
def test_the_parts_add_up_to_the_models_own_score(model: str, objective: str, runs: Any) -> None:
    run = runs(model, objective)
    for i in (0, 1, 5, 7, 33):  # 0 and 33 lack who, 0 and 7 the score, 0 the tags
        explanation = run.explain(table(), index=i + 1)
        expected = score_of(run, i)
        if "softmax" in objective:
            classes = run.fitted.classes.keys.to_pylist()
            assert explanation.what == f"score of kind = {classes[int(expected.argmax())]}"
            third = run.explain(table(), index=i + 1, class_name=classes[2])
            assert sum(part.value for part in third.parts) == pytest.approx(float(expected[2]), rel=1e-5, abs=1e-5)
            expected = expected.max()
        assert explanation.total == pytest.approx(float(expected), rel=1e-6)
        assert sum(part.value for part in explanation.parts) == pytest.approx(float(expected), rel=1e-5, abs=1e-5)
        sizes = [abs(part.value) for part in explanation.parts]
        assert sizes == sorted(sizes, reverse=True)
        assert sum(part.kind == "head" for part in explanation.parts) == ("mlp" in objective)
        assert objective != "mlp alone" or not any(part.kind == "pair" for part in explanation.parts)
        assert (explanation.rows[0]["who"] is None) == (i % 11 == 0)
        assert not any("who" in part.groups for part in explanation.parts) or i % 11
        assert model != "together" or ("who", "title") not in [part.groups for part in explanation.parts]


def test_a_pair_is_the_two_groups_alone(runs: Any) -> None:
    """The model's score of a row that holds nothing else, less its linear part."""
    run = runs("rafm", "nce")
    row = {"who": "<w1 & co>", "tags": ["t1", "t2", "new"], "title": "the 1 of Tōkyō", "score": 3.0}
    values = {part.groups: part.value for part in run.explain(row).parts}
    for pair in (("who", "tags"), ("who", "title"), ("tags", "score")):
        two = run.explain({column: row[column] for column in pair})
        assert values[pair] == pytest.approx(two.total - sum(p.value for p in two.parts if p.kind != "pair"), abs=1e-5)
        assert [part.groups for part in two.parts if part.kind == "pair"] == [pair]
    assert run.explain(row).rows[0]["tags"] == "<unseen>, t1, t2"


@pytest.mark.parametrize(
    "model",
    [pytest.param("fm", marks=pytest.mark.slow), "rafm", pytest.param("difacto", marks=pytest.mark.slow)],
)
def test_what_makes_two_rows_alike_adds_up_to_their_cosine(model: str, runs: Any) -> None:
    run = runs(model, "nce")
    for level in (None, 2) if model != "fm" else (None,):
        a, b = run.embed(table().slice(1, 1), level=level)[0], run.embed(table().slice(5, 1), level=level)[0]
        explanation = run.explain(table(), index=2, to_index=6, level=level)
        cosine = float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
        assert explanation.total == pytest.approx(cosine, abs=1e-5)
        assert sum(part.value for part in explanation.parts) == pytest.approx(cosine, abs=1e-5)
        by_group = [run.embed(table().slice(i, 1), level=level, by_group=True) for i in (1, 5)]
        lengths = np.linalg.norm(a) * np.linalg.norm(b)
        for part in explanation.parts:
            vector, other_vector = (entry[name][0] for entry, name in zip(by_group, part.groups, strict=True))
            assert part.value == pytest.approx(float(vector @ other_vector / lengths), abs=1e-5)
    v = run.row_vectors(table())
    assert run.explain(table(), index=2, to_index=6).total == pytest.approx(v.similarity("2", "6"), abs=1e-5)


def test_the_same_row_by_hand_and_from_a_table(runs: Any) -> None:
    run = runs("fm", "logistic")
    row = table().drop_columns(["kind"]).slice(4, 1).to_pylist()[0]
    assert row["tags"] == []
    assert run.explain(row).facts() == run.explain(table(), index=5).facts()
    facts = run.explain(row, to=row).facts()
    assert facts["what"] == "similarity"
    assert facts["total"] == pytest.approx(1)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        del attrs
        self.seen.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_numbers_beyond_those_of_training_are_shown_as_they_are() -> None:
    rows = pa.table(
        {
            "who": [f"w{i % 5}" for i in range(40)],
            "score": [float(i) for i in range(40)],
            "day": pa.array([1000 + i for i in range(40)], pa.date32()),
        }
    )
    numeric = {"type": "numeric", "scale": "quantile"}
    groups = {
        "who": {"column": "who"},
        "score": {"column": "score", "extractor": numeric},
        "when": {"columns": ["day", "score"], "extractor": {**numeric, "nan": "missing"}},
    }
    run = train({"version": 1, "model": {"dim": 2}, "groups": groups, "training": {"epochs": 1}}, rows, quiet=True)
    given = pa.table({"who": ["w1", "w2"], "score": [41.5, 3.0], "day": pa.array([1000, 999], pa.date32())})
    above, below = run.explain(given, index=1, to_index=2).rows
    assert above == {"who": "w1", "score": "41.5", "when": "day=1972-09-27, score=41.5"}
    assert below == {"who": "w2", "score": "3", "when": "day=1972-09-26, score=3"}
    assert run.explain({"who": "w1", "day": "1972-09-26"}).rows[0]["score"] is None
    facts = run.explain(given, index=1).facts()
    assert facts["rows"][0]["score"] == "41.5"
    nearest = run.explain({"who": "w1", "score": 39.0, "day": "1972-09-27"})
    assert nearest.total == pytest.approx(facts["total"])


def test_charts_can_be_read_and_text_is_escaped(runs: Any) -> None:
    from feat2vec.pages.charts import alone

    explanation = runs("fm", "logistic").explain(table(), index=2)
    svg = ElementTree.fromstring(alone(explanation.svg()))
    bars = [rect for rect in svg.iter("{http://www.w3.org/2000/svg}rect") if rect.get("class") in ("more", "less")]
    assert len(bars) == len(explanation.parts) + 1
    page = Tags()
    page.feed(explanation.page())
    assert {"svg", "table", "h1"} <= set(page.seen)
    assert "script" not in page.seen
    assert explanation.rows[0]["who"] in page.text
    assert "co" not in page.seen


def test_mistakes_are_said(runs: Any) -> None:
    run = runs("fm", "logistic")
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ({"whoo": "x"}, {}, "--row: the run knows no column 'whoo'; did you mean 'who'"),
        ({"good": 1}, {}, "--row: holds no value of the groups' columns: who, tags"),
        ({"score": "high"}, {}, "column 'score'"),
        ({"score": 10**400}, {}, "--row: a value is of no type that a table has"),
        ({"score": float("inf")}, {}, "row 1: column 'score': received inf; numbers must be finite"),
        ({"who": "\ud800"}, {}, "--row: a value is of no type that a table has"),
        (table(), {"index": 0}, "rows are counted from 1; received 0"),
        (table(), {"index": 201}, "has 200 rows; received 201"),
        (table(), {"class_name": "k1"}, "--class: the objective logistic has no classes"),
        (table(), {"level": 1}, "--level: is for the similarity"),
        (table(), {"to_index": 2, "class_name": "k1"}, "--class: is for a row's score"),
        (table(), {"to_index": 2, "level": 2}, "there is no level 2"),
    ]
    for rows, options, message in cases:
        with pytest.raises(UserError, match=message):
            run.explain(rows, **options)
    with pytest.raises(UserError, match="--class: there is no class 'k11'; did you mean"):
        runs("fm", "softmax").explain(table(), class_name="k11")


def test_the_command(tmp_path: Path) -> None:
    folder = train(schema("fm", "logistic"), table(), tmp_path / "run", quiet=True).folder
    pq.write_table(table(), tmp_path / "rows.parquet")
    words = (folder, "--data", tmp_path / "rows.parquet", "--index", "2")
    done = command("explain", *words, "--json", "--plot", tmp_path / "row.svg")
    facts = json.loads(done.stdout)
    assert facts["total"] == pytest.approx(sum(part["value"] for part in facts["parts"]), abs=1e-5)
    ElementTree.parse(tmp_path / "row.svg")
    done = command(
        "explain", folder, "--row", '{"who": "<w1 & co>"}', "--to", '{"tags": ["t1"]}', "--plot", tmp_path / "row.html"
    )
    assert done.stdout.splitlines()[-1].startswith("similarity")
    assert (tmp_path / "row.html").read_text().startswith("<!DOCTYPE html>")
    for wrong, message in (
        ((folder,), "give the row by --row, or by --data and --index"),
        ((folder, "--row", "{"), "--row: is no JSON"),
        ((folder, "--row", "[1]"), "--row: expected columns and values"),
        ((folder, "--data", "rows.parquet"), "--index: says which row of --data"),
        ((folder, "--row", "{}", "--to-index", "3"), "--to-index: is a row of --data"),
        ((folder, "--row", "{}", "--plot", "row.png"), "--plot: writes .svg or .html"),
    ):
        assert message in command("explain", *wrong, code=2).stderr
