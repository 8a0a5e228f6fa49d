"""What a page is told of a run: its points, and their neighbours as `similar` finds them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

import feat2vec
from feat2vec.pages.explore import Atlas
from feat2vec.pages.explore.atlas import DIGITS
from tests.pages.explore.answers import colour_answer, unpacked
from tests.pages.explore.tables import ROWS, table
from tests.short_trainings import train


def test_points_are_all_values_or_the_most_frequent(atlas: Atlas, folder: Path) -> None:
    run = feat2vec.load(folder / "run")
    assert atlas.names == ["row", "who", "a <group>", "title"]
    for name in atlas.names[1:]:
        vectors, points = run.vectors(name), atlas.points(name)
        assert points.keys == vectors.index_to_key
        assert points.counts.tolist() == vectors.counts.tolist()
        assert points.levels.tolist() == vectors.levels.tolist()
    few = Atlas(run, data=str(folder / "rows.parquet"), limit=5)
    title, counts = few.points("title"), run.vectors("title").counts
    assert sorted(title.counts.tolist()) == sorted(counts.tolist())[-5:]
    assert title.total == len(counts)
    assert title.keys == [run.vectors("title").index_to_key[i] for i in title.places]
    rows = few.points("row")
    assert (len(rows.keys), rows.total) == (5, ROWS)
    assert rows.keys == [f"r{i}" for i in rows.places]
    assert few.map("row", "pca").xy.shape == (5, 2)
    assert [Atlas(run, kind="umap", limit=limit).kinds("who") for limit in (5, 50)] == [["pca"], ["pca", "umap"]]


def test_neighbours_are_those_of_similar(atlas: Atlas, folder: Path) -> None:
    run = feat2vec.load(folder / "run")
    for i, name in enumerate(atlas.names):
        vectors = run.row_vectors(table()) if name == "row" else run.vectors(name)
        points = atlas.points(name)
        for place, key in list(enumerate(points.keys))[::7]:
            answer = atlas.answer(f"neighbours/{i}/{place}")
            assert (answer["keys"], answer["counts"]) == ([key], [points.counts[place]])
            assert [atlas.names[to["group"]] for to in answer["groups"]] == atlas.targets(name)
            for to in answer["groups"]:
                target = atlas.names[to["group"]]
                hits = vectors.search([key], topn=10, to=None if target == name else target)
                assert list(zip(to["keys"], to["scores"], to["counts"], strict=True)) == [
                    (hit.key, hit.score, hit.count) for hit in hits
                ]


def test_the_file_has_the_same_neighbours(atlas: Atlas) -> None:
    for i, name in enumerate(atlas.names):
        places = atlas.points(name).places
        for to in atlas.targets(name):
            j = atlas.names.index(to)
            near = atlas.answer(f"near/{i}/{j}")
            ids = unpacked(near["ids"], "<i4").reshape(-1, near["width"])
            scores = unpacked(near["scores"], "<f4").reshape(-1, near["width"])
            for place in places.tolist():
                alone = next(x for x in atlas.answer(f"neighbours/{i}/{place}")["groups"] if x["group"] == j)
                assert ids[place].tolist() == alone["ids"]
                assert [f"{x:.4f}" for x in scores[place]] == [f"{x:.4f}" for x in alone["scores"]]


def test_neighbours_beyond_the_limit_are_named(folder: Path) -> None:
    few = Atlas(feat2vec.load(folder / "run"), ["who"], limit=4)
    near = few.answer("near/0/0")
    ids = unpacked(near["ids"], "<i4")
    assert set(ids.tolist()) - set(few.points("who").places.tolist()) == set(near["more"]["ids"])
    vectors = few.vectors("who")
    assert near["more"]["keys"] == [vectors.index_to_key[i] for i in near["more"]["ids"]]


def test_a_group_called_row_is_that_group(tmp_path: Path) -> None:
    schema = {"version": 1, "name": "rows", "groups": {"row": {"column": "who"}, "b": {"column": "good"}}}
    run = train({**schema, "training": {"validation": 0, "epochs": 1}}, table(), tmp_path / "run", quiet=True)
    pq.write_table(table(), tmp_path / "rows.parquet")
    atlas = Atlas(run, data=str(tmp_path / "rows.parquet"))
    assert atlas.names == ["row", "b"]
    assert (atlas.facts()["rows"], atlas.facts()["colour"]) == (-1, "count")
    assert atlas.points("row").keys == run.vectors("row").index_to_key
    assert len(colour_answer(atlas, "row", "good")["names"]) == 2


def test_similarities_have_the_digits_of_similar() -> None:
    assert DIGITS == 4
