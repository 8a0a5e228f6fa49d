"""Vectors by key against float64 loops over a model's weights, and against the model's own scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.encode.vocabulary import FIRST
from feat2vec.errors import UserError
from feat2vec.space.geometry import dense
from feat2vec.space.vectors import Vectors
from tests.commands import Done
from tests.commands import feat2vec as command
from tests.space.tables import NAMES, cosine, is_fm, met, parts, table, truncates


@pytest.fixture(scope="module")
def run(vectors_run: feat2vec.Run) -> feat2vec.Run:
    return vectors_run


@pytest.mark.parametrize(("group", "to"), [("who", "who"), ("who", "tags"), ("tags", "title"), ("both", "who")])
def test_each_pair_is_compared_at_its_own_level(run: feat2vec.Run, group: str, to: str) -> None:
    v = run.vectors(group)
    values, other_values = parts(run, group), parts(run, to)
    assert len(v) == len(values)
    names = run.vectors(to).index_to_key
    for i in (0, len(values) // 2, len(values) - 1):
        expected = [cosine(*met(run, values[i], other_value)) for other_value in other_values]
        key = v.index_to_key[i]
        np.testing.assert_allclose(v.most_similar(key, topn=None, to=to), expected, atol=1e-5)
        order = [j for j in np.argsort(-np.array(expected), kind="stable") if (group, i) != (to, j)][:5]
        hits = v.most_similar(key, topn=5, to=to)
        np.testing.assert_allclose([score for _, score in hits], [expected[j] for j in order], atol=1e-5)
        assert all(abs(expected[names.index(name)] - score) < 1e-5 for name, score in hits)
        dots = [float(np.dot(*met(run, values[i], other_value))) for other_value in other_values]
        np.testing.assert_allclose(v.most_similar(key, topn=None, to=to, similarity="dot"), dots, atol=1e-5)
        assert v.similarity(key, names[2], to=to) == pytest.approx(expected[2], abs=1e-5)


@pytest.mark.parametrize(("group", "to"), [("who", "tags"), ("tags", "title"), ("score", "who"), ("who", "year")])
def test_a_score_is_the_models_own(run: feat2vec.Run, group: str, to: str) -> None:
    """Of a row that holds the two values and nothing else."""
    model, encoder = run.model, run.fitted
    model.bias.assign(0.3)
    for extractor in model.extractors:
        for weight in (extractor.linear,) if hasattr(extractor.linear, "value") else extractor.linear.weights:
            weight.assign(np.random.default_rng(1).standard_normal(weight.shape))

    def entries(name: str, count: int) -> Any:
        if name in ("who", "tags", "year"):
            width = encoder.codecs[name].width
            return np.pad(np.arange(FIRST, FIRST + count, dtype=np.int32)[:, None], [(0, 0), (0, width - 1)])
        return np.asarray(encoder.values[name].entries[:count])

    v, w = run.vectors(group), run.vectors(to)
    (missing,) = encoder.entries(pa.table({"who": pa.nulls(1, pa.string())}))
    inputs = {name: np.repeat(dense(missing[name]), len(w), axis=0) for name in model.groups}
    inputs[to] = entries(to, len(w))
    for i in (0, len(v) - 1):
        inputs[group] = np.repeat(entries(group, len(v))[i : i + 1], len(w), axis=0)
        scores = model.call(inputs).numpy()
        key = v.index_to_key[i]
        np.testing.assert_allclose(v.most_similar(key, topn=None, to=to, similarity="score"), scores, atol=1e-4)
        hits = v.most_similar(key, topn=3, to=to, similarity="score")
        np.testing.assert_allclose([score for _, score in hits], np.sort(scores)[::-1][:3], atol=1e-4)
        assert v.similarity(key, w.index_to_key[1], to=to, similarity="score") == pytest.approx(scores[1], abs=1e-4)


def test_it_has_gensims_habits(run: feat2vec.Run) -> None:
    v = run.vectors("who")
    vocabulary = run.fitted.codecs["who"].vocabulary
    assert vocabulary is not None
    assert v.index_to_key == list(v) == vocabulary.keys.to_pylist()
    assert set(v.index_to_key) == set(NAMES)
    assert v.key_to_index == {key: i for i, key in enumerate(v.index_to_key)}
    assert v.vectors.shape == (len(v), v.vector_size) == (9, 6 if is_fm(run) else 3)
    assert not v.vectors.flags.writeable
    for i, key in enumerate(v.index_to_key):
        np.testing.assert_allclose(v[key], parts(run, "who")[i][0], rtol=1e-6)
        assert v.get_vecattr(key, "count") == vocabulary.counts[i]
        assert v.get_vecattr(key, "level") == len(parts(run, "who")[i])
    np.testing.assert_array_equal(v[["李安", "Ørsted"]], [v["李安"], v["Ørsted"]])
    assert np.linalg.norm(v.get_vector("李安", norm=True)) == pytest.approx(1)
    assert "李安" in v
    assert "" not in v
    assert None not in v
    assert v.most_similar("李安", topn=0) == []
    assert v.most_similar("李安") == v.similar_by_key("李安") == v.most_similar(positive=["李安"], topn=10)
    assert len(v.most_similar("李安", topn=100)) == len(v) - 1
    with pytest.raises(UserError, match="has a 'count' and a 'level'; received 'cout'; did you mean 'count'"):
        v.get_vecattr("李安", "cout")


def test_most_similar_averages_unit_vectors(run: feat2vec.Run) -> None:
    v = run.vectors("who", level=1)
    whole = v.vectors.astype(float)
    unit = whole / np.linalg.norm(whole, axis=1, keepdims=True)
    a, b, c = (v.key_to_index[key] for key in ("Ørsted", "李安", "Жанна"))
    mean = (unit[a] + 0.5 * unit[b] - unit[c]) / 2.5
    expected = unit @ mean / np.linalg.norm(mean)
    np.testing.assert_allclose(v.most_similar(["Ørsted", ("李安", 0.5)], ["Жанна"], topn=None), expected, atol=1e-5)
    hits = v.most_similar(["Ørsted", ("李安", 0.5)], ["Жанна"])
    order = [i for i in np.argsort(-expected) if i not in (a, b, c)]
    assert [key for key, _ in hits] == [v.index_to_key[i] for i in order]
    np.testing.assert_allclose([score for _, score in hits], expected[order], atol=1e-5)
    by_vector = v.similar_by_vector(v["Ørsted"], topn=2)
    assert by_vector[0] == ("Ørsted", pytest.approx(1, abs=1e-5))  # vectors leave nothing out
    mixed = v.most_similar([v["Ørsted"], "李安"], topn=None)
    np.testing.assert_allclose(mixed, unit @ (unit[a] + unit[b]) / np.linalg.norm(unit[a] + unit[b]), atol=1e-5)


def test_several_keys_of_several_levels(run: feat2vec.Run) -> None:
    """Each key's vector has length 1 where it meets the candidate; with truncation, as a whole."""
    v, values = run.vectors("tags"), parts(run, "tags")
    positions = [0, len(v) - 1]
    expected = []
    for other_value in values:
        query: dict[int, Any] = {}
        for i in positions:
            level = min(len(values[i]), len(other_value))
            whole = np.concatenate(values[i]) if truncates(run) else values[i][level - 1]
            for at in range(level) if truncates(run) else [level - 1]:
                query[at] = query.get(at, 0) + values[i][at] / np.linalg.norm(whole)
        a, b = (np.concatenate([side[at] for at in query]) for side in (query, other_value))
        expected.append(cosine(a, b))
    np.testing.assert_allclose(v.most_similar([v.index_to_key[i] for i in positions], topn=None), expected, atol=1e-5)


@pytest.mark.parametrize("wrong", [None, 5, b"who", [], {}, np.zeros(3), pa.table({"a": [1]})], ids=repr)
def test_what_is_no_group_and_no_level_is_named(run: feat2vec.Run, wrong: Any, tmp_path: Path) -> None:
    v = run.vectors("who")
    no_group: list[Callable[[], object]] = [lambda: run.vectors(wrong)]
    if wrong is not None:
        no_group += [lambda: v.most_similar(v.index_to_key[0], to=wrong)]
    for call in no_group:
        with pytest.raises(UserError, match="there is no group "):
            call()
    with pytest.raises(UserError, match="similarity is one of"):
        v.most_similar(v.index_to_key[0], similarity=wrong)
    with pytest.raises(UserError, match="format is one of"):
        run.export(wrong, tmp_path / "out")
    with pytest.raises(UserError, match=r"^target: .* has no column"):
        run.finetune(table(20), wrong)
    levels: list[Any] = ["1", True, 1.0, wrong]
    for level in levels:
        if level is not None:
            with pytest.raises(UserError, match="received level"):
                run.vectors("who", level)


# --- the command ----------------------------------------------------------------------------------------------------


def similar(run: feat2vec.Run, *words: str, code: int = 0) -> Done[str]:
    return command("similar", run.folder, *words, code=code)


@pytest.mark.parametrize("vectors_run", ["rafm"], indirect=True)
def test_the_command_prints_an_object_a_line(tmp_path: Path, run: feat2vec.Run) -> None:
    done = similar(run, "who", "🎬 studio", "--to", "tags", "-n", "4", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    hits = [json.loads(line) for line in done.stdout.splitlines()]
    v = feat2vec.load(run.folder).vectors("who")
    expected = v.most_similar("🎬 studio", topn=4, to="tags")
    assert [list(hit) for hit in hits] == [["group", "key", "score", "count"]] * 4
    assert [(hit["key"], pytest.approx(hit["score"])) for hit in hits] == expected
    assert [hit["count"] for hit in hits] == [run.vectors("tags").get_vecattr(key, "count") for key, _ in expected]
    assert {hit["group"] for hit in hits} == {"tags"}
    pq.write_table(table(), tmp_path / "rows.parquet")
    done = similar(run, "row", "row 9", "--data", str(tmp_path / "rows.parquet"), "-n", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 3
    done = similar(run, "who", "nolan", "--json", code=2)
    assert done.stdout == ""
    assert done.stderr == "the group 'who' has no 'nolan'; did you mean 'Christopher Nolan'?\n"


@pytest.mark.parametrize("vectors_run", ["rafm"], indirect=True)
def test_the_command_refuses_rows_that_do_not_fit(run: feat2vec.Run) -> None:
    for words, message in (
        (["row", "x"], "a run keeps no rows; name those to search in by --data"),
        (["who", "x", "--data", "y"], "'who' is no `row`; remove --data"),
    ):
        assert message in similar(run, *words, code=2).stderr


def test_vectors_show_what_they_are(run: feat2vec.Run) -> None:
    v = run.vectors("who", level=1)
    assert isinstance(v, Vectors)
    assert repr(v) == f"<Vectors of 'who': 9 of {v.vector_size} dimensions, level 1>"
