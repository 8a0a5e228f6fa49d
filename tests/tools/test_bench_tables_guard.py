"""The guard of the untuned defaults: ours on the small tables is not worse than it was measured, nor than popularity.

The bounds are 3 % worse than what was measured; both are in bench_tables_bounds.json, which
`tools/bench_tables.py --report-only --bounds FILE` writes. The slow tests train what a new user would get: artworks and
penguins take a minute and a half; all of them took forty minutes, one after the other, on two cores that were busy with
other work. The packages that bring the tables are the extra `tables`; without them all but the artworks are skipped.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("pandas")
pytest.importorskip("sklearn")
HERE = Path(__file__).parent
BOUNDS = json.loads((HERE / "bench_tables_bounds.json").read_text(encoding="utf-8"))
GUARDED = [(table, task) for table, tasks in BOUNDS.items() for task in tasks]


@pytest.fixture(autouse=True)
def tools_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE.parents[1] / "tools"))


def module(name: str) -> ModuleType:
    return importlib.import_module(f"tables.{name}")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # this measures; a warning of a table's package makes no vector worse
@pytest.mark.parametrize(("table", "task"), GUARDED)
def test_ours_is_as_good_as_it_was(table: str, task: str, tmp_path: Path) -> None:
    bounds, running, spec = module("bounds"), module("running"), module("spec")
    try:
        module("sources").SOURCES[table].load(spec.Places())
    except spec.UnavailableError as error:
        pytest.skip(str(error))
    wanted = running.Wanted(
        [table], [bounds.SEED], spec.Places(),
        candidates=[bounds.OURS[task], bounds.LEAST[task]], tasks=[task], splits=[bounds.SPLIT],
    )  # fmt: skip
    out = tmp_path / "results.jsonl"
    running.run_all(wanted, out)
    lines = bounds.misses(running.read_records(out), {table: {task: BOUNDS[table][task]}})
    assert not lines, "\n".join(lines)


def test_every_bound_is_of_a_table_that_needs_no_path() -> None:
    """The bundled table is among them, so that something is guarded wherever the slow tests run."""
    bounds = module("bounds")
    assert set(BOUNDS) <= set(bounds.GUARDED)
    assert set(BOUNDS["artworks"]) == {"complete", "predict"}
    for table, task in GUARDED:
        for question in BOUNDS[table][task].values():
            worse = (
                question["measured"] - question["bound"]
                if task == "complete"
                else question["bound"] - question["measured"]
            )
            least = bounds.LEAST_SLACK if task == "predict" else 0.0
            assert worse == pytest.approx(max(bounds.SLACK * question["measured"], least), rel=0.05)


def answer(task: str, candidate: str, score: float, question: str = "artist", seed: int = 0) -> dict[str, Any]:
    metric = "mrr" if task == "complete" else "rmse"
    return {
        "table": "artworks", "split": "random", "seed": seed, "task": task, "candidate": candidate,
        "results": [{"question": question, metric: score}],
    }  # fmt: skip


MEASURED = [
    answer("complete", "ours", 0.5), answer("complete", "popularity", 0.2), answer("complete", "ours", 0.1, seed=1),
    answer("predict", "init --target", 2.0, "year"), answer("predict", "constant", 3.0, "year"),
]  # fmt: skip


def test_bounds_are_a_little_worse_than_what_was_measured() -> None:
    """A loss that is almost none has more room than a share of it."""
    bounds = module("bounds")
    tiny = bounds.bounds_of([answer("predict", "init --target", 1e-5, "year")])
    assert tiny["artworks"]["predict"]["year"]["bound"] == 0.00201
    others = [{**entry, "table": table} for table in ("films", "movies") for entry in MEASURED]
    assert bounds.bounds_of(MEASURED + others) == {
        "artworks": {
            "complete": {"artist": {"measured": 0.5, "bound": 0.485}},
            "predict": {"year": {"measured": 2.0, "bound": 2.06}},
        }
    }


@pytest.mark.parametrize(
    ("task", "candidate", "score", "expected"),
    [
        ("complete", "ours", 0.49, []),
        ("complete", "ours", 0.48, ["artworks, complete artist: 0.48, the bound is 0.485 (measured: 0.5)"]),
        ("complete", "popularity", 0.505, []),
        ("complete", "popularity", 0.52, ["artworks, complete artist: 0.5, popularity has 0.52"]),
        ("predict", "init --target", 2.05, []),
        ("predict", "init --target", 2.1, ["artworks, predict year: 2.1, the bound is 2.06 (measured: 2)"]),
        ("predict", "constant", 1.9, ["artworks, predict year: 2, constant has 1.9"]),
    ],
)
def test_what_is_worse_than_its_bound_is_told(task: str, candidate: str, score: float, expected: list[str]) -> None:
    bounds = module("bounds")
    limits = bounds.bounds_of(MEASURED)
    question = "artist" if task == "complete" else "year"
    kept = [entry for entry in MEASURED if entry["seed"] or entry["candidate"] != candidate]
    assert bounds.misses([*kept, answer(task, candidate, score, question)], limits) == expected


def test_a_question_without_an_answer_or_without_a_bound_is_told() -> None:
    bounds = module("bounds")
    limits = bounds.bounds_of(MEASURED)
    failed = {**MEASURED[0], "error": "FloatingPointError: too large"}
    del failed["results"]
    assert bounds.misses([failed, *MEASURED[1:], answer("complete", "ours", 0.9, "medium")], limits) == [
        "artworks ours: FloatingPointError: too large",
        "artworks, complete artist: no answer",
        "artworks, complete medium: has no bound",
    ]
    assert bounds.misses([entry for entry in MEASURED if entry["candidate"] != "constant"], limits) == [
        "artworks, predict year: no answer of constant"
    ]
