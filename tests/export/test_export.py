"""An export is complete or not there; its levels, and what is in the way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.export.export import export
from feat2vec.export.exported_group import exported_group
from feat2vec.export.formats import FORMATS
from feat2vec.model import stored_table
from feat2vec.model.stored_table import StoredTable
from feat2vec.training.run_folder import TrainedRun, read_facts
from feat2vec.writing import MARK
from tests.commands import feat2vec as command
from tests.export.tables import NAMES


def test_a_model_with_ranks_is_exported_at_one_level(ranked: feat2vec.Run, tmp_path: Path) -> None:
    truncate = ranked.schema.model.level_sharing == "truncate"
    facts = ranked.export("npz", tmp_path / "whole")
    at_default_level = ranked.vectors("who")
    assert (facts["level"], facts["dimension"]) == ((3, 8) if truncate else (1, 3))
    with np.load(tmp_path / "whole" / "who.npz") as file:
        assert file["keys"].tolist() == at_default_level.index_to_key
        expected = at_default_level.vectors
        if truncate:  # the vectors of single values
            expected = ranked.embed(pa.table({"who": at_default_level.index_to_key}))
        np.testing.assert_array_equal(file["vectors"], expected)
        np.testing.assert_array_equal(file["levels"], at_default_level.levels)
    facts = ranked.export("npz", tmp_path / "second", ["who"], level=2)
    at_level_2 = ranked.vectors("who", level=2)
    assert 0 < len(at_level_2) < len(at_default_level)
    assert (facts["level"], facts["groups"]["who"]["rows"]) == (2, len(at_level_2))
    assert facts["dimension"] == at_level_2.vector_size == 6
    with np.load(tmp_path / "second" / "who.npz") as file:
        assert file["keys"].tolist() == at_level_2.index_to_key
        np.testing.assert_array_equal(file["vectors"], at_level_2.vectors)
    with pytest.raises(UserError, match=r"^level: there is no level 4; the levels are 1 to 3$"):
        ranked.export("npz", tmp_path / "fourth", level=4)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("kind", ["npz", "parquet", "word2vec"])
def test_a_table_that_stays_in_its_file_is_exported_a_few_rows_at_a_time(
    run: feat2vec.Run, tmp_path: Path, kind: str, normalise: bool
) -> None:
    run.export(kind, tmp_path / "whole", ["who"], normalise=normalise)
    with (
        mock.patch.object(stored_table, "LEAST_STORED_BYTES", 0),
        mock.patch.object(StoredTable, "__array__", side_effect=AssertionError("it was read whole")),
    ):
        in_file = TrainedRun(run.folder, *read_facts(run.folder))
        few_rows = replace(FORMATS[kind], bytes_per_block=100)  # type: ignore[type-var]
        export(in_file, few_rows, tmp_path / "blocks", ["who"], normalise=normalise)
        assert isinstance(exported_group(in_file, "who", None, unit_length=False).vectors, StoredTable)
    if kind == "parquet":
        assert pq.read_table(tmp_path / "blocks" / "who.parquet") == pq.read_table(tmp_path / "whole" / "who.parquet")
    for file in (tmp_path / "whole").iterdir():
        if kind != "parquet" and file.name != MARK:
            assert (tmp_path / "blocks" / file.name).read_bytes() == file.read_bytes(), file.name


@pytest.mark.parametrize("kind", FORMATS)
def test_an_export_is_whole_or_not_there(
    run: feat2vec.Run,
    tmp_path: Path,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    run.export("npz", out, ["who"])
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    dumps = json.dumps

    def fail(facts: Any, **options: Any) -> str:
        if isinstance(facts, dict) and "metric" in facts:
            raise OSError(28, "No space left on device")
        return dumps(facts, **options)

    monkeypatch.setattr(json, "dumps", fail)
    with pytest.raises(OSError, match="No space left"):
        run.export(kind, out, ["who"], force=True)
    with pytest.raises(OSError, match="No space left"):
        run.export(kind, tmp_path / "new", ["who"])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_what_is_in_the_way(run: feat2vec.Run, tmp_path: Path) -> None:
    run.export("parquet", tmp_path / "out", ["who"])
    with pytest.raises(UserError, match=r"out: exists already; choose another folder, or add force=True to"):
        run.export("npz", tmp_path / "out", ["who"])
    run.export("npz", tmp_path / "out", ["who"], force=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [MARK, "manifest.json", "who.npz"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (tmp_path / "empty").mkdir()
    run.export("npz", tmp_path / "empty", ["who"], force=True)
    for mine in (tmp_path, run.folder):
        with pytest.raises(UserError, match=r"is no export, and force=True replaces nothing else"):
            run.export("npz", mine, ["who"], force=True)


def test_mistakes(run: feat2vec.Run, tmp_path: Path) -> None:
    format_: Any = "parket"
    message = r"^format is one of faiss, npz, parquet, .*; received 'parket'; did you mean 'parquet'\?$"
    with pytest.raises(UserError, match=message):
        run.export(format_, tmp_path / "out")
    with pytest.raises(UserError, match=r"^groups: there is no group 'whom'; did you mean 'who'\?$"):
        run.export("npz", tmp_path / "out", ["whom"])
    assert not list(tmp_path.iterdir())


def test_the_command(run: feat2vec.Run, tmp_path: Path) -> None:
    out = tmp_path / "words"
    words = ["export", run.folder, "--format", "npz", "--out", out]
    done = command(*words, "--group", "score", "--group", "who", "--normalise")
    assert done.stdout == f"{out}: npz, {len(NAMES) + 9} vectors of 6 dimensions: who, score\n"
    assert not done.stderr
    assert sorted(path.name for path in out.iterdir()) == [MARK, "manifest.json", "score.npz", "who.npz"]
    done = command(*words, code=2)
    assert done.stdout == ""
    assert done.stderr == f"{out}: exists already; choose another folder, or add --force to replace it\n"
