"""README's table of the benchmark: ours beside the best peer of each question, between two marks."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("pandas")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def tools_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


def module() -> ModuleType:
    return importlib.import_module("tables.markdown")


def answers(table: str, candidate: str, seed: int = 0, split: str = "random", **scores: float) -> dict[str, Any]:
    """A record with an MRR for each question, or a loss if the candidate predicts."""
    predicts = candidate.partition("@")[0] in ("init --target", "finetune", "boosting", "constant")
    metric = "log_loss" if predicts else "mrr"
    return {
        "table": table, "split": split, "seed": seed, "task": "predict" if predicts else "complete",
        "candidate": candidate, "seconds": 1.0,
        "results": [{"question": question, metric: score} for question, score in scores.items()],
    }  # fmt: skip


RECORDS = [
    answers("storms", "ours", name=0.5, status=0.8), answers("storms", "tfidf", name=0.4, status=0.81),
    answers("storms", "popularity", name=0.1, status=0.82), answers("storms", "ours", split="time", name=0.1),
    answers("storms", "init --target", wind_label=1234.6), answers("storms", "boosting", wind_label=12.34),
    answers("storms", "constant", wind_label=20), answers("storms", "finetune", wind_label=0.1),
    answers("storms", "boosting@200", wind_label=0.1), answers("penguins", "ours", sex=1),
    answers("penguins", "tfidf", sex=1), answers("movies", "ours", mpaa=1), answers("films", "tfidf", cast=1),
]  # fmt: skip


def test_ours_stands_beside_the_best_peer_of_each_question() -> None:
    """Bold where it is as good; without a peer or without ours there is no line."""
    caption, _, table = module().markdown(RECORDS, "random", "abc123").partition("\n\n")
    assert max(map(len, caption.splitlines())) <= 130
    assert " ".join(caption.split()) == (
        "Ours / the best peer; **bold**: ours is at least as good. Split 80 / 20 at random, seed 0, commit abc123. "
        "Of 3 hidden groups ours is at least as good as the best peer on 2, within 3 % on 3, by more than "
        "noise worse than popularity on 1. Peers: TF-IDF, popularity (1 of 2 tables). Of 1 labels ours is at least as "
        "good as the best peer on 0, within 3 % on 0, by more than noise worse than a constant on 1, at least as good "
        "as boosting on 0 of 1. Peers: boosting, constant."
    )
    assert table.splitlines() == [
        "| table, rows | a hidden value, by the rest of its row: MRR | a label: RMSE or log loss |",
        "|---|---|---|",
        "| penguins, 344 | sex **1.00** / 1.00 TF-IDF |  |",
        "| storms, 19,537 | name **0.500** / 0.400 TF-IDF; status 0.800 / 0.820 popularity | "
        "wind 1,235 / 12.3 boosting |",
    ]


def test_small_and_large_numbers_can_be_told_apart() -> None:
    number = module()._number
    scores = [0.00002, 0.0123, 0.99949, 3.0312, 34.56, 3456.7]
    assert [number(score) for score in scores] == ["2e-05", "0.012", "0.999", "3.03", "34.6", "3,457"]


def test_medians_of_seeds_and_the_split_in_time_are_named() -> None:
    seeds = [answers("storms", "ours", seed, "time", name=0.1 * seed) for seed in (1, 2, 4)]
    text = module().markdown([*seeds, answers("storms", "tfidf", 1, "time", name=0.2)], "time", None)
    assert "Split the last 20 % in time, medians of seeds 1, 2, 4. Of 1" in " ".join(text.split())
    assert "name **0.200** / 0.200 TF-IDF" in text


def test_each_split_with_answers_is_written_and_cut_tables_are_told() -> None:
    cut = [
        {**answers(table, candidate, split=split, name=0.1), "most_rows": 4000}
        for table in ("storms", "penguins")
        for candidate in ("ours", "tfidf")
        for split in ("random", "time")
    ]
    text = module().markdown_of_splits(cut, ["random", "time", "neither"], None)
    assert " ".join(text.split()).count("Larger tables are cut to 4,000 rows.") == 2
    assert text.count("| storms, 4,000 of 19,537 | name **0.100** / 0.100 TF-IDF |") == 2
    assert text.count("| penguins, 344 |") == 2
    assert text.index("80 / 20 at random") < text.index("the last 20 % in time")
    assert module().markdown_of_splits(RECORDS, ["random", "time"], None) == module().markdown(RECORDS, "random", None)


def test_only_what_is_between_the_marks_is_replaced(tmp_path: Path) -> None:
    markdown = module()
    path = tmp_path / "README.md"
    path.write_text(f"before\n{markdown.BEGIN}\nold\n{markdown.END}\nafter\n")
    for _ in range(2):
        markdown.write_between(path, "new\nlines")
        assert path.read_text() == f"before\n{markdown.BEGIN}\nnew\nlines\n{markdown.END}\nafter\n"
    path.write_text(f"{markdown.END}\n{markdown.BEGIN}\n")
    with pytest.raises(ValueError, match=r"README.md: expected one line '<!-- tools/bench_tables.py --markdown"):
        markdown.write_between(path, "new")


def test_readme_has_the_marks_and_a_table() -> None:
    markdown = module()
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, begin, rest = text.partition(markdown.BEGIN)
    table, end, _ = rest.partition(markdown.END)
    assert begin
    assert end
    lines = [line for line in table.splitlines() if line.startswith("|")]
    heads = lines[:2]  # above the tables of both splits
    names = {line.split(",")[0].removeprefix("| ") for line in lines if line not in heads}
    assert "artworks" in names
    assert names <= set(importlib.import_module("tables.sources").SOURCES)
    assert re.search(r"\*\*\d", table)
    first_table = next(line for line in text.splitlines() if line.startswith("|"))
    assert first_table == lines[0]


def test_the_script_writes_both_files(tmp_path: Path) -> None:
    import json

    markdown = module()
    readme, results, bounds = (tmp_path / name for name in ("README.md", "results.jsonl", "bounds.json"))
    readme.write_text(f"{markdown.BEGIN}\n{markdown.END}\n")
    results.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    words = [
        "--out",
        results,
        "--rows",
        "all",
        "--report-only",
        "--seeds",
        "0",
        "--markdown",
        readme,
        "--bounds",
        bounds,
    ]
    script = [sys.executable, str(ROOT / "tools" / "bench_tables.py")]
    subprocess.run([*script, *map(str, words)], check=True, capture_output=True)
    assert "| penguins, 344 | sex **1.00** / 1.00 TF-IDF |  |" in readme.read_text()
    assert json.loads(bounds.read_text())["storms"]["complete"]["name"] == {"measured": 0.5, "bound": 0.485}
