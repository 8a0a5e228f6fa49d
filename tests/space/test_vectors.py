"""Vectors by key against float64 loops over a model's weights, and against the model's own scores."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.encode.vocabulary import FIRST
from feat2vec.errors import UnknownKeyError, UserError
from feat2vec.run import train
from feat2vec.space import search
from feat2vec.space.geometry import dense
from feat2vec.space.vectors import Vectors
from tests.commands import Done
from tests.commands import feat2vec as command

MODELS: dict[str, dict[str, Any]] = {
    "fm": {"dim": 6, "bias": True},
    "rafm": {"ranks": [3, 6, 8], "bias": True},
    "difacto": {"ranks": [3, 6, 8], "bias": True, "level_sharing": "truncate"},
}
GROUPS: dict[str, Any] = {
    "who": {"column": "who", "extractor": {"type": "lookup", "gain": 2.0}},
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
    "year": {"column": "year"},
    "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 4, "widths": [2]}},
    "score": {"column": "score", "extractor": "numeric"},
    "both": {"columns": ["score", "votes"], "extractor": {"type": "numeric", "nan": "missing"}},
    "image": {"column": "image", "extractor": "vector"},
}
NAMES = ["Ørsted", "李安", "Жанна", "Agnès Varda", "a b", "🎬 studio", "Christopher Nolan", "x'y\"z", "O\\n"]


def table(rows: int = 300) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "name": [f"row {i // 2 if i < 4 else i}" for i in range(rows)],
            "who": [None if i % 11 == 0 else NAMES[min(rng.zipf(1.7) - 1, 8)] for i in range(rows)],
            "tags": [[f"t{x % 20}" for x in rng.zipf(1.3, i % 4)] for i in range(rows)],
            "year": 1990 + rng.integers(0, 20, rows),
            "title": [f"The {rng.integers(0, 6)} of Tōkyō {rng.integers(0, 3)}" for _ in range(rows)],
            "score": rng.integers(0, 9, rows) / 8,
            "votes": [None if i % 7 == 0 else float(rng.integers(1, 4)) for i in range(rows)],
            "image": [rng.integers(0, 3, 6).astype(np.float32) for _ in range(rows)],
        }
    )


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=() if name == "rafm" else pytest.mark.slow) for name in MODELS]
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    schema = {
        "version": 1, "id": "name", "model": MODELS[request.param], "groups": GROUPS,
        "training": {"epochs": 1, "batch_size": 100, "optimizer": {"type": "adam", "learning_rate": 0.05}},
    }  # fmt: skip
    out = tmp_path_factory.mktemp("runs") / "run"
    return feat2vec.load(train(schema, table(), out, quiet=True).folder)


def is_fm(run: feat2vec.Run) -> bool:
    return run.schema.model.ranks is None


def truncates(run: feat2vec.Run) -> bool:
    return run.schema.model.level_sharing == "truncate"


def parts(run: feat2vec.Run, group: str) -> list[list[Any]]:
    """Each value's vectors at its levels 1..k, float64, by definition."""
    layer = run.model.extractors[run.model.groups.index(group)]
    if group in ("who", "tags", "year"):
        gain = 2.0 if group == "who" else 1.0
        tables = [table.numpy().astype(float) * gain for table in layer.tables]
        tables[0] = tables[0][1:]
        return [[table[i] for table in tables if i < len(table)] for i in range(len(tables[0]))]
    found = run.model.vectors(group, np.asarray(run.fitted.values[group].entries)).levels
    whole = [level.free.numpy() + (0 if level.dependent is None else level.dependent.numpy()) for level in found]
    return [[level[i].astype(float) for level in whole] for i in range(len(whole[0]))]


def met(run: feat2vec.Run, a: list[Any], b: list[Any]) -> tuple[Any, Any]:
    """The two vectors by which a pair meets."""
    level = min(len(a), len(b))
    return (np.concatenate(a[:level]), np.concatenate(b[:level])) if truncates(run) else (a[level - 1], b[level - 1])


def cosine(a: Any, b: Any) -> float:
    return float(a @ b / np.sqrt(a @ a * (b @ b)))


@pytest.mark.parametrize(("group", "to"), [("who", "who"), ("who", "tags"), ("tags", "title"), ("both", "who")])
def test_each_pair_is_compared_at_its_own_level(run: feat2vec.Run, group: str, to: str) -> None:
    v = run.vectors(group)
    own, others = parts(run, group), parts(run, to)
    assert len(v) == len(own)
    names = run.vectors(to).index_to_key
    for i in (0, len(own) // 2, len(own) - 1):
        expected = [cosine(*met(run, own[i], other)) for other in others]
        key = v.index_to_key[i]
        np.testing.assert_allclose(v.most_similar(key, topn=None, to=to), expected, atol=1e-5)
        order = [j for j in np.argsort(-np.array(expected), kind="stable") if (group, i) != (to, j)][:5]
        hits = v.most_similar(key, topn=5, to=to)
        np.testing.assert_allclose([score for _, score in hits], [expected[j] for j in order], atol=1e-5)
        assert all(abs(expected[names.index(name)] - score) < 1e-5 for name, score in hits)
        dots = [float(np.dot(*met(run, own[i], other))) for other in others]
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
    v, own = run.vectors("tags"), parts(run, "tags")
    some = [0, len(v) - 1]
    expected = []
    for other in own:
        query: dict[int, Any] = {}
        for i in some:
            level = min(len(own[i]), len(other))
            whole = np.concatenate(own[i]) if truncates(run) else own[i][level - 1]
            for at in range(level) if truncates(run) else [level - 1]:
                query[at] = query.get(at, 0) + own[i][at] / np.linalg.norm(whole)
        a, b = (np.concatenate([side[at] for at in query]) for side in (query, other))
        expected.append(cosine(a, b))
    np.testing.assert_allclose(v.most_similar([v.index_to_key[i] for i in some], topn=None), expected, atol=1e-5)


def test_a_level_is_a_space_of_its_own(run: feat2vec.Run) -> None:
    if is_fm(run):
        with pytest.raises(UserError, match="one level, 1; received level 2"):
            run.vectors("who", level=2)
        return
    for level in (1, 2, 3):
        v = run.vectors("tags", level=level)
        reach = [own for own in parts(run, "tags") if len(own) >= level]
        at = [np.concatenate(own[:level]) if truncates(run) else own[level - 1] for own in reach]
        np.testing.assert_allclose(v.vectors, at, rtol=1e-6)
        assert v.index_to_key == run.vectors("tags").index_to_key[: len(reach)]
        key = v.index_to_key[0]
        np.testing.assert_allclose(v.most_similar(key, topn=None), [cosine(at[0], b) for b in at], atol=1e-5)
        title = [np.concatenate(own[:level]) if truncates(run) else own[level - 1] for own in parts(run, "title")]
        across = v.most_similar(key, topn=None, to="title")
        np.testing.assert_allclose(across, [cosine(at[0], b) for b in title], atol=1e-5)
    last = run.vectors("tags").index_to_key[-1]
    with pytest.raises(UnknownKeyError, match=f"'{last}' does not reach level 3; use a lower level"):
        run.vectors("tags", level=3)[last]
    with pytest.raises(UserError, match=r"levels 1 to 3 \(ranks 3, 6, 8\); received level 4"):
        run.vectors("who", level=4)


def test_values_that_are_no_keys_have_spellings(run: feat2vec.Run) -> None:
    data = table()
    title = run.vectors("title")
    assert set(title.index_to_key) == {text.casefold() for text in data["title"].to_pylist()}
    assert title.get_index("THE 0, of Tōkyō: 1!") == title.key_to_index["the 0 of tōkyō 1"]
    counts = [text.casefold() for text in data["title"].to_pylist()].count("the 0 of tōkyō 1")
    assert title.get_vecattr("The 0 of Tōkyō 1", "count") == counts
    score = run.vectors("score")
    assert set(score.index_to_key) == {f"{x:g}" for x in data["score"].to_pylist()}
    assert score.get_index("0.50") == score.get_index(0.5) == score.key_to_index["0.5"]
    both = run.vectors("both")
    votes = data["votes"].to_pylist()
    pairs = {(s, v) for s, v in zip(data["score"].to_pylist(), votes, strict=True)}
    assert set(both.index_to_key) == {f"score={s:g}, votes={'missing' if v is None else f'{v:g}'}" for s, v in pairs}
    image = run.vectors("image")
    assert len(set(image.index_to_key)) == len(image)
    entry = run.fitted.values["image"].entries[0]
    assert image.index_to_key[0] == f"[{', '.join(f'{x:g}' for x in entry[:4])}, ...] #1"
    assert image.get_index(str(entry.tolist())) == 0
    assert run.vectors("year").get_index(1995) == run.vectors("year").get_index("1995")
    for v in (title, score, both, image):
        for i in (0, len(v) - 1):
            assert v.get_index(v.index_to_key[i]) == i
        assert v._keys.at([1, 0]) == [v.index_to_key[1], v.index_to_key[0]]
    for v, key in ((title, "words"), (score, "fast"), (score, "0.51"), (both, "0.5"), (image, "[1, 2]")):
        with pytest.raises(KeyError, match="has no"):
            v.get_index(key)


def test_an_unknown_key_names_the_nearest(run: feat2vec.Run) -> None:
    v = run.vectors("who")
    with pytest.raises(KeyError, match="the group 'who' has no 'nolan'; did you mean 'Christopher Nolan'") as caught:
        v["nolan"]
    assert isinstance(caught.value, UserError)
    assert str(caught.value).startswith("the group")
    with pytest.raises(UnknownKeyError, match="has no 'Nolan, Christoper'; did you mean 'Christopher Nolan'"):
        v["Nolan, Christoper"]
    with pytest.raises(UnknownKeyError, match="has no 'Agnes Varda'; did you mean 'Agnès Varda'"):
        v.most_similar("Agnes Varda")
    with pytest.raises(UnknownKeyError, match=r"has no '\\udcff'; it has 9, such as '"):
        v["\udcff"]
    with pytest.raises(UserError, match="there is no group 'tag'; did you mean 'tags'"):
        v.most_similar("李安", to="tag")
    with pytest.raises(UserError, match="similarity is one of cosine, dot, score; received 'cosin'"):
        v.most_similar("李安", similarity="cosin")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="index is one of exact, hnsw, ivf; received 'flat'"):
        v.most_similar("李安", index="flat")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="needs a key or a vector"):
        v.most_similar()
    with pytest.raises(UserError, match=r"vectors of \d dimensions; received \(2,\)"):
        v.similar_by_vector([1, 2])


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
    with pytest.raises(UserError, match=r"--target: .* has no column"):
        run.finetune(table(20), wrong)
    levels: list[Any] = ["1", True, 1.0, wrong]
    for level in levels:
        if level is not None:
            with pytest.raises(UserError, match="received level"):
                run.vectors("who", level)


def test_rows_are_the_sums_of_their_groups(run: feat2vec.Run) -> None:
    data, rng = table(), np.random.default_rng(2)
    rows = data.take(pa.array(rng.permutation(data.num_rows)[:40]))
    rows = rows.set_column(rows.column_names.index("who"), "who", pa.array(["nobody", None] * 20))
    v = run.row_vectors(rows)
    names = rows["name"].to_pylist()
    assert v.index_to_key[0] == names[0]
    own = {group: parts(run, group) for group in GROUPS}
    row = 7
    held = []  # the row's values: who is unseen, or missing
    for group in ("title", "score", "both", "image", "year", "tags"):
        w = run.vectors(group)
        given: Any = rows[group if group != "both" else "score"][row].as_py()
        if group == "both":
            votes = rows["votes"][row].as_py()
            given = f"score={given:g}, votes={'missing' if votes is None else f'{votes:g}'}"
        held += [own[group][w.get_index(key)] for key in (given if group == "tags" else [given])]
    held += [parts_of_unseen(run)] if rows["who"][row].as_py() else []
    np.testing.assert_allclose(v.vectors[row], sum(value[0] for value in held), atol=1e-5)
    dots = [sum(float(np.dot(*met(run, value, other))) for value in held) for other in own["who"]]
    np.testing.assert_allclose(v.most_similar(names[row], topn=None, to="who", similarity="dot"), dots, atol=1e-4)
    hits = v.most_similar(names[row], topn=3)
    assert names[row] not in [key for key, _ in hits]
    if not is_fm(run):
        level = run.row_vectors(rows, level=3)
        whole = [np.concatenate(x) if truncates(run) else x[-1] for x in held if len(x) == 3]
        if truncates(run):
            width = sum(run.model.dims)
            padded = [np.pad(np.concatenate(x), (0, width - sum(map(len, x)))) for x in held]
            np.testing.assert_allclose(level.vectors[row], sum(padded), atol=1e-5)
        else:
            np.testing.assert_allclose(level.vectors[row], sum(whole), atol=1e-5)
    else:
        whole_rows = v.vectors.astype(float)
        expected = [cosine(whole_rows[row], other) for other in whole_rows]
        np.testing.assert_allclose(v.most_similar(names[row], topn=None), expected, atol=1e-5)


def parts_of_unseen(run: feat2vec.Run) -> list[Any]:
    return [2.0 * run.model.extractors[0].tables[0].numpy()[0].astype(float)]


def test_rows_of_one_name_and_of_none(run: feat2vec.Run) -> None:
    v = run.row_vectors(table().slice(0, 6))
    assert v.index_to_key == ["row 0", "row 0 #2", "row 1", "row 1 #2", "row 4", "row 5"]
    with pytest.raises(UserError, match="no column 'name', the schema's `id`"):
        run.row_vectors(table().drop_columns(["name"]))
    with pytest.raises(UnknownKeyError, match=r"has no 'row 9'; did you mean 'row \d'"):
        v["row 9"]
    with pytest.raises(UserError, match=r"no group 'row'.*run\.row_vectors\(data\)"):
        run.vectors("row")


def test_an_index_finds_what_exact_search_finds(run: feat2vec.Run, monkeypatch: Any, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr(search, "INDEXED", 2)
    monkeypatch.setattr("feat2vec.space.vectors.INDEXED", 2)
    copy = feat2vec.load(shutil.copytree(run.folder, tmp_path / "run", ignore=shutil.ignore_patterns("index")))
    v = copy.vectors("image", level=1)
    key = v.index_to_key[5]
    for similarity in ("cosine", "dot", "score"):
        exact = v.most_similar(key, similarity=similarity)
        for kind in ("hnsw", "ivf"):
            found = v.most_similar(key, similarity=similarity, index=kind)
            np.testing.assert_allclose([s for _, s in found], [s for _, s in exact], atol=1e-5)
    assert len(list((tmp_path / "run" / "index").iterdir())) == 6
    if not is_fm(run):
        assert copy.vectors("image").most_similar(key, index="hnsw") == copy.vectors("image").most_similar(key)
        assert len(list((tmp_path / "run" / "index").iterdir())) == 6


# --- the command ----------------------------------------------------------------------------------------------------


def similar(run: feat2vec.Run, *words: str, code: int = 0) -> Done[str]:
    return command("similar", run.folder, *words, code=code)


@pytest.mark.parametrize("run", ["rafm"], indirect=True)
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


@pytest.mark.parametrize("run", ["rafm"], indirect=True)
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
