"""Recipes run at small size, each that is shipped; what is expected, and how far it was missed."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import FailedError, UserError
from feat2vec.evaluation.tasks import evaluate
from feat2vec.recipes import running
from feat2vec.recipes.running import run_recipe
from feat2vec.schema.options import Group
from feat2vec.writing import folder_place, mark_folder, new_folder
from tests.commands import feat2vec as command
from tests.test_tools import tool

pytestmark = pytest.mark.usefixtures("trainings_without_graphs")

RECIPES = Path(__file__).parents[2] / "recipes"
ROWS = 240
WORDS = ["king", "queen", "money", "bank", "river", "water", "house", "door", "dog", "cat"]


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


def draw(words: list[str], rows: int = ROWS, seed: int = 0) -> list[str]:
    return [words[i] for i in np.random.default_rng(seed).integers(len(words), size=rows)]


def films() -> pa.Table:
    return table(
        title=[" ".join(draw(WORDS, 3, i)) for i in range(ROWS)],
        year=[1990 + i % 20 for i in range(ROWS)],
        cast=[[f"c{i % 17}", f"c{i % 5}"] for i in range(ROWS)],
        genres=[[g] for g in draw(["Drama", "Comedy"])],
        directors=[[f"d{i % 12}"] for i in range(ROWS)],
        plot=[f"w{i % 40} w{i % 41} {' '.join(draw(WORDS, 12, i))}" for i in range(ROWS)],  # some words are not common
    )


def uses(seed: int) -> pa.Table:
    columns = ("user", "item", "daytime", "weekday", "isweekend", "homework", "cost", "weather", "country", "city")
    drawn = {name: draw([f"{name}{i}" for i in range(8)], ROWS, seed + k) for k, name in enumerate(columns)}
    drawn["weather"] = draw(["sunny", "rainy", "cloudy"], ROWS, seed)
    return table(**drawn, used=[int(item[-1] in "123") for item in drawn["item"]])


def ratings() -> pa.Table:
    stars = draw(["1", "2", "3", "4", "5"])
    return table(
        user_id=draw([f"u{i}" for i in range(9)]),
        movie_id=draw(["1", "2", "3"]),
        movie_title=draw(["Star Wars (1977)", "Toy Story (1995)", "Jaws (1975)"]),
        movie_genres=[[g] for g in draw(["Musical", "Drama"])],
        user_occupation_text=draw(["writer", "none"]),
        bucketized_user_age=pa.array([float(age) for age in draw(["18", "25"])], pa.float32()),
        user_gender=[i % 2 == 0 for i in range(ROWS)],
        user_rating=pa.array([float(star) for star in stars], pa.float32()),
    )


def flights() -> dict[str, pa.Table]:
    flights = table(
        year=[2013] * ROWS,
        month=[1 + i % 12 for i in range(ROWS)],
        day=[1 + i % 28 for i in range(ROWS)],
        hour=[5 + i % 15 for i in range(ROWS)],
        carrier=draw(["UA", "HA"]),
        tailnum=draw(["N1", "N2", "N3"]),
        origin=draw(["JFK", "EWR"]),
        dest=draw(["SFO", "MIA", "HNL", "LAX"]),
        distance=[300 + i for i in range(ROWS)],
        arr_delay=[None if i % 50 == 0 else float(i % 40) for i in range(ROWS)],
    )
    weather = flights.select(["origin", "month", "day", "hour"]).group_by(["origin", "month", "day", "hour"])
    there = weather.aggregate([])
    numbers = {name: np.arange(len(there)) % 9 * 1.0 for name in ("temp", "wind_speed", "precip", "visib", "pressure")}
    return {
        "flights": flights,
        "planes": table(tailnum=["N1", "N2"], model=["A", "B"]),
        "airports": table(faa=["SFO", "MIA", "LAX"], tzone=["west", "east", "west"]),
        "airlines": table(carrier=["UA", "HA"], name=["United Air Lines Inc.", "Hawaiian Airlines Inc."]),
        "weather": table(**{name: there[name] for name in there.column_names}, **numbers),
    }


def corpus() -> dict[str, pa.Table]:
    judged = table(one=["king", "King", "dog", "cat"], other=["queen", "bank", "cat", "unheard"], score=[9.0, 2, 8, 1])
    return {"corpus": table(text=[" ".join(draw(WORDS, 20, i)) for i in range(60)]), "judged": judged}


DATA: dict[str, Any] = {
    "artworks": dict,
    "films": lambda: {"films": films()},
    "flights": flights,
    "frappe": lambda: {"train": uses(0), "validation": uses(1)},
    "glove": corpus,
    "movielens": lambda: {"ratings": ratings()},
    "ranks": lambda: {"rows": tool("make_tags").tags(ROWS)},
    "reviews": lambda: {
        "reviews": table(text=[" ".join(draw(WORDS, 9, i)) for i in range(ROWS)], label=draw(["1", "2"]))
    },
    "skipgram": corpus,
    "softmax": dict,
}


def given(name: str, folder: Path) -> list[str]:
    """The tables as files, as `--data` gives them."""
    for key, rows in DATA[name]().items():
        pq.write_table(rows, folder / f"{key}.parquet")
    return [f"{path.stem}={path}" for path in sorted(folder.glob("*.parquet"))]


def test_each_recipe_has_a_test() -> None:
    assert sorted(DATA) == sorted(path.stem for path in RECIPES.glob("*.yaml"))


SLOW = ("flights", "frappe", "movielens", "ranks", "reviews", "skipgram")  # as others are but for the rows


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in DATA])
def test_a_recipe_runs_at_small_size(name: str, tmp_path: Path) -> None:
    settings = ["training.epochs=1"]
    lines: list[str] = []
    facts = run_recipe(
        RECIPES / f"{name}.yaml",
        tmp_path / "run",
        given(name, tmp_path),
        settings=settings,
        rows=ROWS,
        print_lines=lines.append,
    )
    run = feat2vec.load(tmp_path / "run")
    assert run.schema.training.epochs == 1
    assert json.loads((run.folder / "results.json").read_text()) == facts
    for export in facts["export"]:
        assert (run.folder / export["folder"] / "manifest.json").exists()
    for tuned in facts["finetune"]:
        assert feat2vec.load(run.folder / "finetuned" / tuned).schema.target
    for entry in facts["evaluate"]:
        if entry["task"] == "predict" or entry["data"] != "test":
            continue
        again = evaluate(
            run, str(run.folder / "data" / "test.parquet"), entry["task"], target=entry["target"], given=entry["given"],
            similarity=entry["similarity"],
        )  # fmt: skip
        assert {key: entry[key] for key in again} == again
    assert not list(tmp_path.glob("run.*"))
    assert any("feat2vec" in line for line in lines)


TIED = """\
version: 1
name: tied
data: {corpus: dataset:topics}
corpus: {column: text, window: 2, min_count: 1, tied: true}
schema:
  version: 1
  model: {dim: 4}
  groups: {word: {column: word}, context: {column: context}}
  noise: {targets: [context]}
  objective: negative_sampling
  training: {validation: 0, epochs: 1, batch_size: 1024}
"""


@pytest.mark.skipif("share" not in Group.model_fields, reason="groups cannot share vectors yet")
@pytest.mark.parametrize("tied", [True, False])
def test_tied_words_and_contexts_have_the_same_vectors(tied: bool, tmp_path: Path) -> None:
    path = tmp_path / "tied.yaml"
    path.write_text(TIED if tied else TIED.replace(", tied: true", ""))
    run_recipe(path, tmp_path / "run", rows=100, quiet=True)
    run = feat2vec.load(tmp_path / "run")
    words, contexts = run.vectors("word"), run.vectors("context")
    assert np.array_equal(words["king"], contexts["king"]) == tied
    assert len(words) == len(contexts) > 20


TINY = """\
version: 1
name: tiny
data: {{rows: {source}}}
split: {{validation: 0.1, test: 0.2}}
schema:
  version: 1
  model: {{dim: 4}}
  groups: {{a: {{column: a}}, b: {{column: b}}}}
  objective: {{type: contrastive}}
  noise: {{sharing: batch, negatives: 8}}
  training: {{epochs: 2, batch_size: 32}}
evaluate:
  - {{task: rank, target: a, beside: [popularity], expect: {expect}}}
"""


def recipe(folder: Path, expect: str = "{}") -> Path:
    rows = pa.table({"a": [f"a{i % 7}" for i in range(150)], "b": [f"b{i % 14}" for i in range(150)]})
    pq.write_table(rows, folder / "rows.parquet")
    path = folder / "tiny.yaml"
    path.write_text(TINY.format(source=folder / "rows.parquet", expect=expect))
    return path


def test_what_is_not_as_expected_is_told_and_written_all_the_same(tmp_path: Path) -> None:
    path = recipe(tmp_path, "{mpr: {max: -1.5}, mrr: {min: 5, of: popularity}, top1: {min: 0}}")
    with pytest.raises(FailedError) as failure:
        run_recipe(path, tmp_path / "run", quiet=True)
    facts = json.loads((tmp_path / "run" / "results.json").read_text())
    (measured,) = facts["evaluate"]
    lines = str(failure.value).splitlines()
    assert lines[0] == f"{path}: 2 things not as expected:"
    assert lines[1] == f"rank a: mpr is {measured['mpr']:.4g}, expected <= -1.5, by {measured['mpr'] + 1.5:.4g}"
    limit = 5 * measured["beside"]["popularity"]["mrr"]
    assert (
        lines[2] == f"rank a: mrr is {measured['mrr']:.4g}, expected >= {limit:.4g}, by {limit - measured['mrr']:.4g}"
    )
    assert facts["missed"] == lines[1:]
    assert (tmp_path / "run" / "data" / "test.parquet").exists()


@pytest.mark.slow
def test_json_has_the_results_also_where_something_is_missed(tmp_path: Path) -> None:
    done = command("run", recipe(tmp_path, "{mpr: {max: -1}}"), "--out", tmp_path / "run", "--json", code=1)
    assert json.loads(done.stdout)["missed"]
    assert "expected <= -1" in done.stderr


@pytest.mark.slow
def test_numbers_of_a_csv_are_numbers_after_a_query(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b,n\n" + "".join(f"a{i % 3},b{i % 5},{i % 7}\n" for i in range(60)))
    path = recipe(tmp_path)
    text = path.read_text().replace(
        f"data: {{rows: {tmp_path / 'rows.parquet'}}}", "data: {all: rows.csv}\nrows: FROM all_"
    )
    text = text.replace("data: {all: rows.csv}", f"data: {{all_: {tmp_path / 'rows.csv'}}}")
    path.write_text(text + "finetune:\n  n: {target: n, objective: regression, set: {training.epochs: 1}}\n")
    facts = run_recipe(path, tmp_path / "run", quiet=True)
    assert feat2vec.load(tmp_path / "run" / "finetuned" / "n").schema.objective.type == "regression"
    assert "n" in facts["finetune"]


@pytest.mark.slow
def test_popularity_ranks_by_the_counts_of_training(tmp_path: Path) -> None:
    """a0 to a6 are equally frequent to within the draw: the ranks are those of a loop over counts."""
    facts = run_recipe(recipe(tmp_path), tmp_path / "run", quiet=True)
    run = feat2vec.load(tmp_path / "run")
    counts = {key: run.vectors("a").get_vecattr(key, "count") for key in run.vectors("a").index_to_key}
    ranks = []
    for key in pq.read_table(tmp_path / "run" / "data" / "test.parquet")["a"].to_pylist():
        above = sum(other > counts[key] for other in counts.values())
        ties = sum(other == counts[key] for other in counts.values()) - 1
        ranks.append(above + ties / 2)
    assert facts["evaluate"][0]["beside"]["popularity"]["mpr"] == pytest.approx(np.mean(ranks) / len(counts))


def test_an_earlier_run_is_not_replaced_unless_asked_and_resume_goes_on(tmp_path: Path) -> None:
    path = recipe(tmp_path)
    first = run_recipe(path, tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match="is there already; --force replaces it, --resume goes on"):
        run_recipe(path, tmp_path / "run", quiet=True)
    again = run_recipe(path, tmp_path / "run", quiet=True, resume=True)  # training is not done again, the rest is
    assert again["evaluate"] == first["evaluate"]
    assert again["train"] == first["train"]


@pytest.mark.slow
def test_what_lies_in_the_way_of_a_run_stays(tmp_path: Path) -> None:
    """A folder beside the run, called as its work folder or as that of an earlier version."""
    path = recipe(tmp_path)
    for name in ("run.data", "run.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("mine")
    with pytest.raises(UserError, match=r"run\.partial: is where the run would train, but was not made by feat2vec"):
        run_recipe(path, tmp_path / "run", quiet=True)
    (tmp_path / "run.partial").rename(tmp_path / "else")
    run_recipe(path, tmp_path / "run", quiet=True)
    assert (tmp_path / "run.data" / "mine").exists()
    assert (tmp_path / "else" / "mine").exists()
    inside = tmp_path / "run" / "data" / "train.parquet"
    for place in (inside, tmp_path / "run.partial" / "data" / "train.parquet"):
        if place != inside:
            mark_folder(tmp_path / "run.partial", "training", ["data/"])
            place.parent.mkdir()
            place.write_bytes(inside.read_bytes())
        with pytest.raises(UserError, match=r"train\.parquet: lies in .*run(\.partial)?, which is replaced"):
            run_recipe(path, tmp_path / "run", [f"rows={place}"], force=True, quiet=True)
        assert place.exists()


@pytest.mark.parametrize("name", ["data", "results.json", "exports/npz", "map.html", "finetuned/f"])
def test_what_lies_in_a_finished_run_is_told_before_any_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recipe(tmp_path)
    more = "export: [{format: npz, groups: [a]}]\npage: {groups: [a]}\nfinetune: {f: {target: b, head: mlp}}\n"
    path.write_text(path.read_text() + more)
    with new_folder(folder_place(tmp_path / "run", "run")):
        pass
    in_the_way = tmp_path / "run" / name
    if in_the_way.suffix:
        in_the_way.write_text("mine")
    else:
        (in_the_way / "mine").mkdir(parents=True)
    monkeypatch.delattr(running, "_write_parts")
    with pytest.raises(UserError, match=rf"{name}: is (no|in the way)"):
        run_recipe(path, tmp_path / "run", quiet=True, resume=True)
    assert in_the_way.exists()


@pytest.mark.slow
def test_exports_of_one_format_have_folders_of_their_own(tmp_path: Path) -> None:
    path = recipe(tmp_path)
    path.write_text(path.read_text() + "export:\n  - {format: npz, groups: [a]}\n  - {format: npz, groups: [b]}\n")
    facts = run_recipe(path, tmp_path / "run", quiet=True)
    assert [entry["folder"] for entry in facts["export"]] == ["exports/npz", "exports/npz-2"]
    for folder, group in (("npz", "a"), ("npz-2", "b")):
        assert (tmp_path / "run" / "exports" / folder / f"{group}.npz").exists()
    (tmp_path / "else").mkdir()
    shutil.rmtree(tmp_path / "run" / "exports")
    (tmp_path / "run" / "exports").symlink_to(tmp_path / "else")
    with pytest.raises(UserError, match="exports: is a link, which feat2vec neither follows nor replaces"):
        run_recipe(path, tmp_path / "run", quiet=True, resume=True)
    assert not list((tmp_path / "else").iterdir())


@pytest.mark.slow
def test_a_finetuned_model_has_the_same_bytes_when_the_run_is_gone_on_with(tmp_path: Path) -> None:
    """Keras counts up the names of what it makes in a process; no part of a saved model depends on them."""
    path = recipe(tmp_path)
    path.write_text(path.read_text() + "finetune:\n  f: {target: b, head: mlp, set: {training.epochs: 1}}\n")
    run_recipe(path, tmp_path / "run", quiet=True)
    before = parts_of(tmp_path / "run" / "finetuned" / "f" / "model.keras")
    run_recipe(path, tmp_path / "run", quiet=True, resume=True)
    assert parts_of(tmp_path / "run" / "finetuned" / "f" / "model.keras") == before


def parts_of(path: Path) -> dict[str, bytes]:
    """What a saved model holds, but for the time at which it was saved."""
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist() if name != "metadata.json"}


def test_nothing_is_left_of_rows_that_cannot_be_made(tmp_path: Path) -> None:
    path = recipe(tmp_path)
    with pytest.raises(UserError, match="no such file"):
        run_recipe(path, tmp_path / "run", [f"rows={tmp_path / 'other.parquet'}"], quiet=True)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["rows.parquet", "tiny.yaml"]
