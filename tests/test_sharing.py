"""A run whose groups share vectors, from its training to what is made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.model.stored_model import StoredModel
from feat2vec.pages.explore.atlas import Atlas
from feat2vec.run import train as train_with_graph
from feat2vec.space.completer import Completer
from feat2vec.training.memory_estimate import estimate
from tests.commands import feat2vec as command
from tests.short_trainings import finetune, train
from tests.training.callbacks import StopAt, StopError
from tests.training.tables import same

SCHEMA: dict[str, Any] = {
    "version": 1,
    "name": "games",
    "model": {"dim": 4, "bias": True},
    "groups": {
        "away": {"column": "away", "share": "home"},
        "place": {"column": "place"},
        "home": {"column": "home"},
        "said": {"column": "said", "extractor": {"type": "text_cnn", "token_dim": 3, "filters": 3, "widths": [1]}},
        "answer": {"column": "answer", "share": "said"},
    },
    "noise": {"negatives": 3},
    "training": {"epochs": 2, "batch_size": 80, "validation": 0, "neighbours": 0},
}
WORDS = ["good", "bad", "game", "weather"]


def games(rows: int = 160) -> pa.Table:
    """Some teams play at home alone, and some away alone."""
    rng = np.random.default_rng(0)
    home, away = rng.integers(0, 8, rows), rng.integers(3, 11, rows)
    return pa.table(
        {
            "home": [f"t{team}" for team in home],
            "away": [None if i % 13 == 0 else f"t{team}" for i, team in enumerate(away)],
            "place": [f"p{team % 4}" for team in home],
            "said": [" ".join(rng.choice(WORDS, 2)) for _ in range(rows)],
            "answer": [" ".join(rng.choice(WORDS, 1)) for _ in range(rows)],
            "goals": (home + away).astype(np.float64),
        }
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    """A run that is read from its folder."""
    out = tmp_path_factory.mktemp("runs") / "run"
    return feat2vec.load(train(SCHEMA, games(), out, quiet=True).folder)


def test_a_run_has_one_vocabulary_and_one_table_of_the_groups(run: feat2vec.Run) -> None:
    files = {path.stem for path in (run.folder / "vocabulary").iterdir()}
    assert files == {"home", "place", "said"}
    keys = pq.read_table(run.folder / "vocabulary" / "home.parquet")
    assert sorted(keys["key"].to_pylist()) == sorted(f"t{team}" for team in range(11))
    teams = games().select(["home", "away"])
    assert sum(keys["count"].to_pylist()) == sum(len(column.drop_null()) for column in teams.columns)
    weights = [int(np.prod(variable.shape)) for variable in run.model.trainable_variables]
    assert run.metrics["parameters"] == sum(weights)
    uses = [use.description for use in estimate(run.fitted.encode(games()))]
    of_groups = [description.split("'")[1] for description in uses if description.startswith("the group")]
    assert of_groups == ["home", "place", "said"]


def test_either_group_answers_with_the_vectors_of_both(run: feat2vec.Run) -> None:
    home, away = run.vectors("home"), run.vectors("away")
    np.testing.assert_array_equal(home.vectors, away.vectors)
    assert home.index_to_key == away.index_to_key
    assert home.most_similar("t5", topn=3) == away.most_similar("t5", topn=3)
    assert home.get_vecattr("t5", "count") == away.get_vecattr("t5", "count")
    said, answer = run.vectors("said"), run.vectors("answer")  # a network: each has the values of its own column
    assert set(answer.index_to_key) <= set(WORDS)
    assert len(said) > len(answer)


def test_tables_are_read_from_the_file_by_either_name(run: feat2vec.Run) -> None:
    source = StoredModel(run.folder / "model.keras", run.fitted, sealed=True)
    for name in ("home", "away"):
        np.testing.assert_array_equal(source.lookup(name).tables[0], run.model.lookup("home").tables[0])
        np.testing.assert_array_equal(source.table(name, 0), run.model.lookup("home").tables[0])
    assert source.model_of_group("answer") is source.model_of_group("said")
    text = np.asarray(run.fitted.values["said"].entries)
    for name in ("said", "answer"):
        vectors = source.model_of_group(name).vectors(name, text).levels[0].free
        np.testing.assert_allclose(vectors, run.model.vectors("said", text).levels[0].free, rtol=1e-5)


def test_rows_are_embedded_by_the_shared_vectors(run: feat2vec.Run) -> None:
    rows = pa.table({"home": ["t1", "t10"], "away": ["t10", "t1"], "said": ["good", "bad"], "answer": ["bad", "good"]})
    embedded = run.embed(rows, by_group=True)
    np.testing.assert_array_equal(embedded["home"], embedded["away"][::-1])
    np.testing.assert_allclose(embedded["said"], embedded["answer"][::-1], rtol=1e-5)
    lookups = run.embed(rows, ["home", "away"], by_group=True)  # by NumPy, without TensorFlow
    np.testing.assert_array_equal(lookups["home"], lookups["away"][::-1])
    np.testing.assert_allclose(lookups["home"], embedded["home"], rtol=1e-6)


def test_a_keras_file_keeps_what_is_shared(run: feat2vec.Run, tmp_path: Path) -> None:
    run.model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.extractors[0] is loaded.extractors[2]
    assert loaded.extractors[3] is loaded.extractors[4]
    for variable, value in zip(loaded.weights, run.model.weights, strict=True):
        np.testing.assert_array_equal(variable, value)
    copy = keras.models.load_model(run.folder / "model.keras")
    np.testing.assert_array_equal(copy.extractors[0].tables[0], run.model.extractors[0].tables[0])


def test_an_encoder_for_keras_shares_weights(run: feat2vec.Run, tmp_path: Path) -> None:
    encoder = run.encoder(trainable=True)
    table, network = 1, 4  # of the teams; tokens, a convolution with its bias, and a head with its bias
    assert len(encoder.trainable_weights) == 2 * table + network + 1
    inputs = {name: np.array([[3], [2]]) for name in ("home", "away")} | {"place": np.array([[2], [2]])}
    inputs |= {name: np.array([[2, 3], [4, 0]]) for name in ("said", "answer")}
    vectors = encoder(inputs)
    np.testing.assert_array_equal(vectors["home"], vectors["away"])
    encoder.save(tmp_path / "encoder.keras")
    again = keras.models.load_model(tmp_path / "encoder.keras")(inputs)
    np.testing.assert_allclose(again["row"], vectors["row"], rtol=1e-6)
    alone = run.encoder(groups=["away"])
    np.testing.assert_array_equal(alone({"away": inputs["away"]})["away"], vectors["away"])


def test_a_shared_table_is_exported_once(run: feat2vec.Run, tmp_path: Path) -> None:
    facts = run.export("npz", tmp_path / "all")
    assert list(facts["groups"]) == ["place", "home", "said", "answer"]
    assert facts["groups"]["home"]["also_of"] == ["away"]
    assert "also_of" not in facts["groups"]["said"] | facts["groups"]["place"]
    assert not (tmp_path / "all" / "away.npz").exists()
    named = run.export("npz", tmp_path / "away", ["away"])
    assert list(named["groups"]) == ["away"]
    arrays = [np.load(tmp_path / folder) for folder in ("all/home.npz", "away/away.npz")]
    np.testing.assert_array_equal(arrays[0]["vectors"], arrays[1]["vectors"])
    np.testing.assert_array_equal(arrays[0]["counts"], arrays[1]["counts"])


@pytest.mark.slow
def test_a_saved_model_takes_the_columns_of_all_groups(run: feat2vec.Run, tmp_path: Path) -> None:
    import tensorflow as tf

    rows = {"home": ["t1", "t10", "?"], "away": ["t10", "t1", ""], "place": ["p1", "p2", "p0"]}
    rows |= {"said": ["good game", "bad", ""], "answer": ["bad", "good game", "weather"]}
    facts = run.export("saved_model", tmp_path / "model")
    assert list(facts["groups"]) == list(SCHEMA["groups"])
    served = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    vectors = served(**{name: tf.constant(column) for name, column in rows.items()})
    expected = run.embed(pa.table(rows), by_group=True)
    for name in SCHEMA["groups"]:
        np.testing.assert_allclose(vectors[name], expected[name], rtol=1e-4, atol=1e-6)


def test_a_group_is_completed_by_how_frequent_values_are_in_its_own_column(run: feat2vec.Run) -> None:
    columns = games()
    for name in ("home", "away"):
        completer = Completer(run.fitted, run.vector_source, name)
        keys = completer.hidden.names(range(len(completer.hidden)))
        counts = [columns[name].to_pylist().count(key) for key in keys]
        assert completer.hidden.counts.tolist() == counts
        assert 0 in counts  # a team of the other column is a candidate, too
    (row,) = run.complete({"home": "t1", "place": "p1"}, "away", n=20)
    assert len(row.values) == 11


def test_a_value_that_never_stands_in_a_column_does_not_complete_it(run: feat2vec.Run) -> None:
    """Teams 8 to 10 play away alone: NCE never sees them at home, and so does not learn that they are improbable."""
    completer = run.completer("home")
    log_p = completer.log_probabilities(completer.queries_of_table(games(20)))
    names = list(completer.hidden.names(np.arange(len(completer.hidden))))
    at_home = np.array([name in set(games()["home"].to_pylist()) for name in names])
    assert np.isneginf(log_p[:, ~at_home]).all()
    np.testing.assert_allclose(np.exp(log_p[:, at_home]).sum(axis=1), 1)


def test_the_value_that_is_most_popular_in_its_column_is_ranked_first(run: feat2vec.Run) -> None:
    measured = run.evaluate(games(), "rank", "away", beside="popularity")
    counts = games()["away"].drop_null().value_counts().to_pylist()
    most = max(record["counts"] for record in counts)
    popularity = measured["beside"]["popularity"]
    assert popularity["top1"] == pytest.approx(most / sum(record["counts"] for record in counts), abs=0.05)
    assert measured["candidates"] == 11


def test_pages_show_a_shared_table_once(run: feat2vec.Run, tmp_path: Path) -> None:
    facts = json.loads(command("report", run.folder, "--out", tmp_path / "report.html", "--json").stdout)
    assert list(facts["groups"]) == ["place", "home", "said", "answer"]
    assert "These are also the vectors of away." in (tmp_path / "report.html").read_text()
    assert Atlas(run).names == ["place", "home", "said", "answer"]
    assert Atlas(run, ["away"]).names == ["away"]


def test_a_row_is_explained_group_by_group(run: feat2vec.Run) -> None:
    explanation = run.explain({"home": "t1", "away": "t10", "place": "p1", "said": "good", "answer": "bad"})
    groups = {name for part in explanation.parts for name in part.groups}
    assert groups == set(SCHEMA["groups"])


def test_commands_take_groups_that_share_vectors(run: feat2vec.Run, tmp_path: Path) -> None:
    by_command = [command("similar", run.folder, name, "t5", "--json").stdout for name in ("home", "away")]
    hits = [[json.loads(line) for line in text.splitlines()] for text in by_command]
    assert [hit["group"] for hit in hits[1]] == ["away"] * 10
    assert [{**hit, "group": "home"} for hit in hits[1]] == hits[0]

    (tmp_path / "games.yaml").write_text((run.folder / "schema.yaml").read_text())
    pq.write_table(games(20), tmp_path / "games.parquet")
    assert command("check", tmp_path / "games.yaml", "--data", tmp_path / "games.parquet").stdout
    resolved = command("check", tmp_path / "games.yaml", "--resolved").stdout
    assert feat2vec.read_schema(resolved) == run.schema
    (tmp_path / "games.yaml").write_text(resolved.replace("share: home", "share: hom"))
    done = command("check", tmp_path / "games.yaml", code=2)
    assert done.stderr.endswith(": groups.away.share: names 'hom', which is no group; did you mean 'home'?\n")


# --- training again -------------------------------------------------------------------------------------------------


QUICK: dict[str, Any] = {"settings": ["training.epochs=1"], "quiet": True}


@pytest.mark.slow
def test_fine_tuned_groups_go_on_sharing(run: feat2vec.Run) -> None:
    tuned = finetune(run, games(80), "goals", objective="regression", **QUICK)
    assert tuned.schema.groups["away"].share == "home"
    assert tuned.model.extractors[0] is tuned.model.extractors[2]
    assert all(len(column) == 20 for column in tuned.predict(games(20)).values())


@pytest.mark.slow
def test_where_the_owner_is_left_out_another_group_owns_the_vectors(run: feat2vec.Run) -> None:
    tuned = finetune(run, games(80), "goals", objective="regression", groups=["away", "place"], freeze=True, **QUICK)
    assert tuned.schema.groups["away"].share is None
    np.testing.assert_array_equal(tuned.vectors("away").vectors, run.vectors("home").vectors)
    settings = [*QUICK["settings"], "groups.home.share=place"]
    with pytest.raises(UserError, match=r"groups\.home\.share: the run's groups share vectors, or not"):
        finetune(run, games(80), "goals", objective="regression", groups=["home", "place"], settings=settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [{}, {"objective": {"type": "regression", "target": "goals"}, "model": {"ranks": [2, 4], "bias": True}}],
    ids=["noise", "labels, ranks"],
)
def test_an_interrupted_training_resumes_to_the_same_bytes(case: dict[str, Any], tmp_path: Path) -> None:
    schema = {**SCHEMA, **case}
    options: Any = {"settings": ["training.checkpoint_minutes=1e-9", "training.batch_size=40"], "quiet": True}
    whole = train(schema, games(), tmp_path / "whole", **options)
    with pytest.raises(StopError):
        train(schema, games(), tmp_path / "run", callbacks=[StopAt(1)], **options)
    assert same(whole, train(schema, games(), tmp_path / "run", resume=True, **options))


@pytest.mark.slow
def test_a_training_goes_on_with_all_rows(tmp_path: Path) -> None:
    settings = ["training.validation=0.2", "training.refit=continue", "training.patience=0", "training.epochs=4"]
    run = train_with_graph(SCHEMA, games(400), tmp_path / "run", settings=settings, quiet=True)
    assert run.metrics["refit_epochs"] == 1
    np.testing.assert_array_equal(run.vectors("home").vectors, run.vectors("away").vectors)


# --- planted structure ----------------------------------------------------------------------------------------------


def first_and_return_games(teams: int, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    """Games with the goals of both teams; the return games have home and away exchanged."""
    openness = rng.normal(size=teams)
    first, second = np.triu_indices(teams, 1)
    chosen = rng.permutation(len(first))[: 4 * teams]  # eight games of each team
    home, away = first[chosen], second[chosen]
    goals = 3 + openness[home] + openness[away]

    def table(home: Any, away: Any) -> pa.Table:
        noisy = goals + rng.normal(0, 0.3, len(goals))
        names = {"home": home, "away": away}
        return pa.table({**{name: [f"t{team}" for team in column] for name, column in names.items()}, "goals": noisy})

    return table(home, away), table(away, home)


@pytest.mark.slow
def test_what_a_team_does_at_home_is_known_of_it_away() -> None:
    """In the first games some teams are nearly always at home: without sharing, little is known of them away."""
    train_rows, test_rows = first_and_return_games(20, np.random.default_rng(0))
    errors = {}
    for share in ({}, {"share": "home"}):
        schema = {
            "version": 1,
            "groups": {"home": {"column": "home"}, "away": {"column": "away", **share}},
            "model": {"dim": 1, "bias": True},
            "objective": {"type": "regression", "target": "goals"},
            "training": {"epochs": 40, "batch_size": 40, "validation": 0, "optimizer": {"learning_rate": 0.3}},
        }
        run = train_with_graph(schema, train_rows, quiet=True)
        errors[bool(share)] = run.evaluate(test_rows, "predict")["rmse"]
    deviation = float(np.std(test_rows["goals"].to_numpy()))
    assert errors[True] < 0.42  # of which 0.3 is noise
    assert errors[True] < 0.6 * errors[False] < 0.6 * deviation  # 0.75, and 1.25 for the mean of all games
