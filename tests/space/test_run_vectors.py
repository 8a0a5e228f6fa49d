"""Vectors at a level, of rows as a whole, and by an index of the run, against sums over the model's weights."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UnknownKeyError, UserError
from feat2vec.space.run_vectors import vectors_of_group
from feat2vec.writing.digests import PARTS, SEAL, sealed
from tests.space.tables import GROUPS, cosine, is_fm, met, parts, table, truncates


@pytest.fixture(scope="module")
def run(vectors_run: feat2vec.Run) -> feat2vec.Run:
    return vectors_run


def test_a_level_is_a_space_of_its_own(run: feat2vec.Run) -> None:
    if is_fm(run):
        with pytest.raises(UserError, match="one level, 1; received level 2"):
            run.vectors("who", level=2)
        return
    for level in (1, 2, 3):
        v = run.vectors("tags", level=level)
        reach = [levels_of_value for levels_of_value in parts(run, "tags") if len(levels_of_value) >= level]
        at = [
            np.concatenate(levels_of_value[:level]) if truncates(run) else levels_of_value[level - 1]
            for levels_of_value in reach
        ]
        np.testing.assert_allclose(v.vectors, at, rtol=1e-6)
        assert v.index_to_key == run.vectors("tags").index_to_key[: len(reach)]
        key = v.index_to_key[0]
        np.testing.assert_allclose(v.most_similar(key, topn=None), [cosine(at[0], b) for b in at], atol=1e-5)
        title = [
            np.concatenate(levels_of_value[:level]) if truncates(run) else levels_of_value[level - 1]
            for levels_of_value in parts(run, "title")
        ]
        across = v.most_similar(key, topn=None, to="title")
        np.testing.assert_allclose(across, [cosine(at[0], b) for b in title], atol=1e-5)
    last = run.vectors("tags").index_to_key[-1]
    with pytest.raises(UnknownKeyError, match=f"'{last}' does not reach level 3; use a lower level"):
        run.vectors("tags", level=3)[last]
    with pytest.raises(UserError, match=r"levels 1 to 3 \(ranks 3, 6, 8\); received level 4"):
        run.vectors("who", level=4)


def test_vectors_can_be_pickled(run: feat2vec.Run) -> None:
    for vectors in (run.vectors("who"), run.row_vectors(table().slice(0, 20))):
        vectors.most_similar(vectors.index_to_key[0], to="tags")  # opens the other group
        for pickled in (pickle.dumps(vectors), pickle.dumps(copy.copy(vectors))):
            assert len(pickled) < 100_000
            again = pickle.loads(pickled)
            np.testing.assert_array_equal(again.vectors, vectors.vectors)
            key = vectors.index_to_key[1]
            assert again.most_similar(key, similarity="score") == vectors.most_similar(key, similarity="score")
            assert again.most_similar(key, to="tags") == vectors.most_similar(key, to="tags")
    assert pickle.loads(pickle.dumps(run)).schema == run.schema


def test_a_pickle_opens_no_other_run_than_its_own(run: feat2vec.Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    opened = feat2vec.load(tmp_path / "run")
    pickled = [pickle.dumps(thing) for thing in (opened, opened.vectors("who"))]
    manifest = {name: value for name, value in opened.manifest.items() if name not in (PARTS, SEAL)}

    def put_another_run(name: str, text: str) -> None:
        (tmp_path / "run" / name).write_text(text)
        (tmp_path / "run" / "manifest.json").unlink()
        (tmp_path / "run" / "manifest.json").write_text(json.dumps(sealed(manifest, tmp_path / "run")))

    put_another_run("metrics.json", '{"seconds": 1e9}')  # the same, trained again
    for content in pickled:
        pickle.loads(content)
    put_another_run("model.keras", "another model")
    for content in pickled:
        with pytest.raises(UserError, match=r"/run: is another run than the one that was pickled"):
            pickle.loads(content)


def test_rows_are_the_sums_of_their_groups(run: feat2vec.Run) -> None:
    data, rng = table(), np.random.default_rng(2)
    rows = data.take(pa.array(rng.permutation(data.num_rows)[:40]))
    rows = rows.set_column(rows.column_names.index("who"), "who", pa.array(["nobody", None] * 20))
    v = run.row_vectors(rows)
    names = rows["name"].to_pylist()
    assert v.index_to_key[0] == names[0]
    levels_of_value = {group: parts(run, group) for group in GROUPS}
    row = 7
    held = []  # the row's values: who is unseen, or missing
    for group in ("title", "score", "both", "image", "year", "tags"):
        w = run.vectors(group)
        given: Any = rows[group if group != "both" else "score"][row].as_py()
        if group == "both":
            votes = rows["votes"][row].as_py()
            given = f"score={given:g}, votes={'missing' if votes is None else f'{votes:g}'}"
        held += [levels_of_value[group][w.get_index(key)] for key in (given if group == "tags" else [given])]
    held += [parts_of_unseen(run)] if rows["who"][row].as_py() else []
    np.testing.assert_allclose(v.vectors[row], sum(value[0] for value in held), atol=1e-5)
    dots = [
        sum(float(np.dot(*met(run, value, other_value))) for value in held) for other_value in levels_of_value["who"]
    ]
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
        expected = [cosine(whole_rows[row], other_value) for other_value in whole_rows]
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


def test_an_index_finds_what_exact_search_finds(run: feat2vec.Run, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    copy = feat2vec.load(shutil.copytree(run.folder, tmp_path / "run", ignore=shutil.ignore_patterns("index")))
    v = vectors_of_group(copy, "image", level=1, min_indexed=2)
    key = v.index_to_key[5]
    for similarity in ("cosine", "dot", "score"):
        exact = v.most_similar(key, similarity=similarity)
        for kind in ("hnsw", "ivf"):
            approximate = v.most_similar(key, similarity=similarity, index=kind)
            np.testing.assert_allclose([s for _, s in approximate], [s for _, s in exact], atol=1e-5)
    assert len(list((tmp_path / "run" / "index").iterdir())) == 6
    if not is_fm(run):
        of_all_levels = vectors_of_group(copy, "image", min_indexed=2)
        assert of_all_levels.most_similar(key, index="hnsw") == of_all_levels.most_similar(key)
        assert len(list((tmp_path / "run" / "index").iterdir())) == 6
