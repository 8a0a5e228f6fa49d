"""The page about a run: whole, valid, self-contained, and true to the run."""

from __future__ import annotations

import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation.level_bounds import LevelLoss
from feat2vec.pages.bound_parts import plain
from feat2vec.pages.charts import number
from feat2vec.pages.latent import latent_facts, latent_parts
from feat2vec.pages.report import report
from feat2vec.space.run_completion import completion_of_run
from tests.commands import feat2vec as command
from tests.short_trainings import train

EVIL = "<script>alert('who')</script> & \"co\""


def table(rows: int = 200) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "who": [
                None if i % 11 == 0 else [EVIL, "b"][i % 2] if i < 60 else f"w{rng.integers(0, 9)}" for i in range(rows)
            ],
            "tags": [[f"t{x % 20}" for x in rng.zipf(1.3, 1 + i % 3)] for i in range(rows)],
            "title": [f"the {rng.integers(0, 6)} of {rng.integers(0, 3)}" for _ in range(rows)],
            "good": rng.integers(0, 2, rows),
        }
    )


SCHEMA: dict[str, Any] = {
    "version": 1, "name": "<b>people</b>", "model": {"ranks": [3, 6]},
    "groups": {
        "who": {"column": "who"},
        "a <group>": {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
        "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 4}},
    },
    "training": {"validation": 0, "epochs": 3, "batch_size": 50},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs `run` and `other`, of two seeds."""
    folder = tmp_path_factory.mktemp("runs")
    train(SCHEMA, table(), folder / "run", table(50), quiet=True)
    train(SCHEMA, table(), folder / "other", quiet=True, settings=["training.seed=1"])
    pq.write_table(table(), folder / "rows.parquet")
    return folder


VOID = {"meta", "line", "rect", "polyline", "polygon", "circle"}


class Page(HTMLParser):
    """Reads a page, and that what is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.titles: list[str] = []  # of charts
        self.tables: dict[str, list[list[str]]] = {}
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.rows: list[list[str]] = []
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "table":
            self.tables[self.caption] = self.rows

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        elif self.open and self.open[-1] == "caption":
            self.caption = data
        elif self.open[-2:] == ["svg", "title"]:
            self.titles.append(data)


@pytest.fixture(scope="module")
def facts_and_page(folder: Path) -> tuple[dict[str, Any], str]:
    run, other = feat2vec.load(folder / "run"), feat2vec.load(folder / "other")
    facts = report(run, folder / "report.html", folder / "rows.parquet", "good", other)
    return facts, (folder / "report.html").read_text(encoding="utf-8")


def test_every_chart_and_table_is_there(facts_and_page: tuple[dict[str, Any], str]) -> None:
    page = Page(facts_and_page[1])
    groups = list(SCHEMA["groups"])
    reliability = [f"reliability of {name}" for name in groups]
    assert page.titles == ["loss by epoch", *reliability, *(f"norms of {name} by count" for name in groups)]
    both = [f"{what} {name}" for name in groups for what in ("norms of", "neighbours in")]
    assert list(page.tables) == [
        "metrics",
        "history",
        "held-out rows",
        "completion",
        "bound",
        "losses of classifiers",
        "lemmas",
        "isotropy",
        "levels",
        "clusters",
        "topics",
        "cost of levels",
        "loss of levels",
        "stability",
        *both,
    ]
    assert all(len(rows) > 1 for rows in page.tables.values())
    assert "polyline" in page.tags


def test_it_is_one_file_that_is_safe_to_open(facts_and_page: tuple[dict[str, Any], str]) -> None:
    text = facts_and_page[1]
    page = Page(text)
    assert not {"script", "link", "img", "b", "group", "iframe"} & set(page.tags)
    assert not {"src", "href", "onload", "style"} & {name for name, _ in page.attributes}
    assert "url(" not in text
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text
    assert EVIL in page.text
    assert "<b>people</b>" in page.text
    assert "a <group>" in page.text


def test_its_numbers_are_those_of_the_run(facts_and_page: tuple[dict[str, Any], str], folder: Path) -> None:
    facts, text = facts_and_page
    run, page = feat2vec.load(folder / "run"), Page(text)
    metrics = dict(page.tables["metrics"][1:])
    assert metrics == {key: number(value, 6) for key, value in {**run.metrics, "seed": 0}.items()}
    header, *rows = page.tables["history"]
    assert header == list(run.history[0])
    assert rows == [[number(row[key], 6) for key in header] for row in run.history]
    assert facts["history"] == run.history
    assert facts["metrics"] == run.metrics
    inside = sum(group["parameters"] for group in facts["groups"].values())
    assert inside + 3 == run.metrics["parameters"]  # and an offset of nce for each group
    levels = page.tables["levels"][1:]
    assert sum(int(row[4].replace(",", "")) for row in levels) == inside
    who = facts["groups"]["who"]
    vectors = run.vectors("who")
    first = who["neighbours"][0]
    assert (first["key"], first["place"]) == (vectors.index_to_key[0], "often")
    assert [(hit["key"], hit["score"]) for hit in first["near"]] == vectors.most_similar(first["key"], topn=5)
    assert who["neighbours"][-1]["key"] == vectors.index_to_key[-1]
    stored = completion_of_run(run)
    errors = [calibration.reliability.error for calibration in stored.values() if calibration.reliability]
    assert [row[4] for row in page.tables["completion"][1:]] == [number(error) for error in errors]
    assert [row[0] for row in page.tables["completion"][1:]] == list(stored) == list(SCHEMA["groups"])
    assert facts["stability"]["seeds"] == [0, 1]
    for one in facts["bounds"]:
        assert one["bound"]["mean_classifier"] <= one["bound"]["bound"]
        assert one["best_linear"] <= one["bound"]["mean_classifier"]
        assert one["meaning"] in page.text
    assert len(facts["bounds"]) == 2  # of two classes: k is 1
    label = facts["label"]
    assert [row[1] for row in page.tables["losses of classifiers"][1:]] == [
        number(loss)
        for loss in (
            *(label[name] for name in ("guess", "shares_loss", "mean_classifier", "best_linear")),
            label["probe"]["log_loss"],
        )
    ]
    assert [row[4] for row in page.tables["lemmas"][1:]] == [number(lemma["bound"]) for lemma in label["lemmas"]]
    sentences = [
        label["meaning"],
        label["frequencies"],
        label["probe_meaning"],
        *(lemma["meaning"] for lemma in label["lemmas"]),
    ]
    assert all(sentence in page.text for sentence in sentences)
    costs, losses = facts["levels"]["costs"], facts["levels"]["losses"]
    assert [row[:2] for row in page.tables["cost of levels"][1:]] == [["1", "3"], ["2", "6"]]
    assert [row[5] for row in page.tables["cost of levels"][1:]] == [number(cost["multiplications"]) for cost in costs]
    names = ("level", "loss", "row_by_row", "bound")
    assert page.tables["loss of levels"][1:] == [[number(loss[name]) for name in names] for loss in losses]
    assert all(loss["loss"] <= loss["row_by_row"] <= loss["bound"] for loss in losses)


def test_numbers_without_an_end_are_none_in_json() -> None:
    assert plain((LevelLoss(1, 0.5, float("inf"), 1.0), ["a", None])) == [
        {"level": 1, "loss": 0.5, "bound": None, "row_by_row": 1.0},
        ["a", None],
    ]


def test_clusters_and_topics_are_told(facts_and_page: tuple[dict[str, Any], str], folder: Path) -> None:
    facts, page = facts_and_page[0]["latent"], Page(facts_and_page[1])
    run = feat2vec.load(folder / "run")
    assert list(facts["clusters"]) == ["who", "a <group>", "title"]
    for name, clusters in facts["clusters"].items():
        assert sum(cluster["values"] for cluster in clusters) == len(run.vectors(name))
        assert sum(cluster["share"] for cluster in clusters) == pytest.approx(1)
    assert list(facts["topics"]) == ["a <group>", "title"]
    rows = [[group, topic["name"]] for group, topics in facts["topics"].items() for topic in topics]
    assert [row[:2] for row in page.tables["topics"][1:]] == rows
    keys = set(run.vectors("a <group>").index_to_key)
    words = [set(name.partition(": ")[2].split(", ")) for group, name in rows if group == "a <group>"]
    assert words
    assert set().union(*words) <= keys


def test_without_scikit_learn_the_page_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    sentence = "clusters and topics: scikit-learn is not installed: `pip install 'feat2vec[explore]'`"
    facts = latent_facts(feat2vec.load(folder / "run"))
    assert facts == {"missing": sentence}
    assert sentence in Page("".join(latent_parts(facts))).text


@pytest.mark.slow
def test_a_supervised_run_is_measured(tmp_path: Path) -> None:
    objective = {"type": "logistic", "target": "good"}
    run = train({**SCHEMA, "objective": objective}, table(), tmp_path / "run", quiet=True)
    facts = report(run, tmp_path / "report.html", table())
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert dict(page.tables["evaluation"][1:])["auc"] == number(facts["evaluation"]["auc"], 6)
    with pytest.raises(UserError, match=r"report\.html: exists already"):
        report(run, tmp_path / "report.html")
    with pytest.raises(UserError, match="--label: is a column of --data"):
        report(run, tmp_path / "other.html", label="good")
    with pytest.raises(UserError, match="there is no folder"):
        report(run, tmp_path / "none" / "report.html")
    with pytest.raises(UserError, match="did you mean 'good'"):
        report(run, tmp_path / "other.html", table(), "goood")
    assert {path.name for path in tmp_path.iterdir()} == {"run", "report.html"}


def test_rows_that_are_given_are_measured_without_baselines(folder: Path, tmp_path: Path) -> None:
    done = command(
        "report", folder / "run", "--data", folder / "rows.parquet", "--out", tmp_path / "page.html", "--json"
    )
    facts = json.loads(done.stdout)
    assert list(facts["ranked"]["groups"]) == ["who", "a <group>"]
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert [row[0] for row in page.tables["ranked"]] == ["target", "who", "a <group>"]
    assert "among those the run was trained on" in done.stderr


def test_a_label_of_as_many_values_as_rows_is_refused(folder: Path, tmp_path: Path) -> None:
    rows = pa.table({"tags": [["t1"]] * 1001, "price": np.arange(1001) / 8})
    message = (
        r"^--label: column 'price' of .* has 1,001 values; a label has at most 1,000 classes: name a column of fewer"
    )
    with pytest.raises(UserError, match=message):
        report(feat2vec.load(folder / "run"), tmp_path / "report.html", rows, "price")
    assert not list(tmp_path.iterdir())


def test_the_command(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    options = ("--data", folder / "rows.parquet", "--label", "good", "--other", folder / "other", "--out", out)
    done = command("report", folder / "run", *options)
    lines = done.stdout.splitlines()
    assert "good: 200 rows of 2 classes, the bound for N 5, k 1" in done.stderr.splitlines()
    assert lines[0].startswith("good: N 1, k 1: L_un ")
    assert "tau 0.5, bound" in lines[0]
    assert lines[0].split(", ")[-1].startswith("best linear ")
    for begin in ("The best linear classifier", "The classes of good", "Lemma 3.1", "Lemma 3.2, N 5", "A linear probe"):
        assert any(line.startswith(f"good: {begin}") for line in lines)
    assert [line.split(":")[0] for line in lines if "by theorem S1" in line] == ["level 1", "level 2"]
    assert any(line.startswith("who: ") and "nearest neighbours are shared" in line for line in lines)
    Page(out.read_text(encoding="utf-8"))
    assert "exists already" in command("report", folder / "run", *options, code=2).stderr
    done = command("report", folder / "run", "--out", out, "--force", "--json")
    assert json.loads(done.stdout)["metrics"]["rows"] == 200
