"""The signatures of files that feat2vec wrote."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feat2vec.errors import UserError
from feat2vec.writing import SIGNATURE, file_place, is_signed, new_file, signed_parquet, write_text


def written(name: str) -> Path:
    """A file as a command writes it."""
    if name.endswith(".parquet"):
        schema = pa.schema({"a": pa.int64()})
        with new_file(name) as file, signed_parquet(file, schema) as writer:
            writer.write_table(pa.table({"a": range(1000)}, schema=schema))
    else:
        write_text(name, f"# ours\n{'#' * 9999}")
    return Path(name)


def edited(path: Path) -> Path:
    """A user's version of a file that feat2vec wrote, with what marks it as written by feat2vec kept."""
    if path.suffix == ".parquet":
        table, metadata = pq.read_table(path), pq.read_metadata(path).metadata
        assert SIGNATURE.encode() in metadata
        signature = {SIGNATURE.encode(): metadata[SIGNATURE.encode()]}
        pq.write_table(table.append_column("mine", [range(1000)]).replace_schema_metadata(signature), path)
        assert pq.read_metadata(path).metadata[SIGNATURE.encode()] == metadata[SIGNATURE.encode()]
    else:
        path.write_text(path.read_text().replace("# ours", "# mine"))
    return path


@pytest.mark.parametrize("name", ["a.parquet", "a.yaml", "a.html", "a.svg"])
def test_force_replaces_a_file_as_feat2vec_wrote_it_and_no_other_version(name: str) -> None:
    assert is_signed(written(name))
    with new_file(name, force=True) as file:
        file.write_text("new")
    assert Path(name).read_text() == "new"
    with pytest.raises(UserError, match="is no file as feat2vec wrote it"), new_file(name, force=True):
        pass
    Path(name).unlink()
    mine = edited(written(name))
    assert not is_signed(mine)
    before = mine.read_bytes()
    with pytest.raises(UserError, match="is no file as feat2vec wrote it"), new_file(name, force=True):
        pass
    assert mine.read_bytes() == before


def test_a_users_file_that_speaks_of_feat2vec_is_not_replaced() -> None:
    pq.write_table(pa.table({"written by feat2vec": ["written by feat2vec"]}), "mine.parquet")
    Path("notes.html").write_text("<p>vectors written by feat2vec</p>\n<!-- written by feat2vec -->\n")
    for name in ("mine.parquet", "notes.html"):
        with pytest.raises(UserError, match=f"{name}: is no file as feat2vec wrote it"):
            file_place(name, force=True)


def test_a_parquet_file_is_signed_whatever_its_size() -> None:
    schema = pa.schema({"a": pa.float64()})
    for rows in (0, 1, 300_000):
        with signed_parquet(Path(f"{rows}.parquet"), schema) as writer:
            for part in (rows // 2, rows - rows // 2):
                writer.write_table(pa.table({"a": [0.5] * part}, schema=schema))
        assert is_signed(Path(f"{rows}.parquet"))
        assert pq.read_table(f"{rows}.parquet").num_rows == rows


def test_a_signed_file_in_a_folder_called_tilde_is_not_sought_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("~").mkdir()
    path = Path("~/a.parquet")
    with signed_parquet(path, pa.schema({"a": pa.int64()})):
        pass
    assert is_signed(path)
