"""The rows that a run was trained on are known again, and told from rows that are equal by chance."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.encode.hashing import entry_hashes
from feat2vec.errors import UserError
from feat2vec.training.trained_rows import (
    TRAINED_ROWS,
    Overlap,
    groups_without_values,
    hashes_of_encoded,
    hashes_of_table,
    read_trained_rows,
    trained_rows,
    warning_of_trained_rows,
)
from tests.commands import feat2vec as command
from tests.short_trainings import train

GROUPS: dict[str, Any] = {
    "who": {"column": "who"},
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True, "split": " "}},
    "text": {"column": "text", "extractor": {"type": "text_cnn", "max_tokens": 6}},
    "size": {"column": "size", "extractor": "numeric"},
}


def films(rows: int, seed: int = 0) -> pa.Table:
    """Rows that are all different, each of which lacks something now and then."""
    rng = np.random.default_rng(seed)
    who = [None if i % 7 == 0 else f"w{int(x)}" for i, x in enumerate(rng.integers(0, 9, rows))]
    tags = [" ".join(f"t{int(x)}" for x in rng.integers(0, 12, 1 + i % 4)) for i in range(rows)]
    text = [f"a b{int(x)} c{int(y)}" for x, y in rng.integers(0, 9, (rows, 2))]
    size = [None if i % 11 == 0 else float(x) for i, x in enumerate(rng.normal(50, 20, rows))]
    return pa.table({"who": who, "tags": tags, "text": text, "size": size})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    schema = {"version": 1, "model": {"dim": 2}, "groups": GROUPS, "training": {"epochs": 1}}
    return train(schema, films(300), tmp_path_factory.mktemp("runs") / "run", quiet=True)


def test_a_hash_does_not_depend_on_padding_and_is_that_of_its_numbers() -> None:
    ids = np.array([[5, 7, 0], [7, 5, 0], [5, 0, 0], [0, 5, 0]], np.int32)
    hashes = entry_hashes(ids)
    assert len(set(hashes.tolist())) == 4
    np.testing.assert_array_equal(entry_hashes(np.pad(ids, ((0, 0), (0, 2)))), hashes)
    numbers = np.array([[0.0], [-0.0], [1e-30]], np.float32)
    assert [int(value == entry_hashes(numbers)[0]) for value in entry_hashes(numbers)] == [1, 1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_rows_of_training_are_known_again_in_any_order_and_file(form: str, run: feat2vec.Run, tmp_path: Path) -> None:
    """Also those that were held out, as the run has learnt them after that."""
    rows = films(300).take(pa.array(np.random.default_rng(1).permutation(300)))
    path = tmp_path / f"rows.{form}"
    pq.write_table(rows, path) if form == "parquet" else pyarrow.csv.write_csv(rows, path)
    known = read_trained_rows(run)
    assert known is not None
    assert known.overlap(hashes_of_table(run, path)) == Overlap(300, 300, 0.0, 300)
    assert known.overlap(hashes_of_table(run, films(100, 5))) == Overlap(100, 0, 0.0, 100)
    assert warning_of_trained_rows(run, films(100, 5)) is None
    mixed = pa.concat_tables([films(300).slice(0, 71), films(29, 5)])
    assert warning_of_trained_rows(run, mixed) == (
        "the table: 71 of 100 rows are among those the run was trained on: the result is too good; "
        "`feat2vec split` makes a test part"
    )
    assert "1 of 1 row is among" in str(warning_of_trained_rows(run, films(300).slice(5, 1)))


def test_hashes_of_encoded_rows_are_those_of_the_table(run: feat2vec.Run) -> None:
    encoded = feat2vec.fit({"version": 1, "groups": GROUPS}, films(300))
    expected = np.concatenate(list(hashes_of_table(run, films(300))))
    for rows_per_piece in (7, 1000):
        pieces = list(hashes_of_encoded(encoded, rows_per_piece))
        np.testing.assert_array_equal(np.concatenate(pieces), expected)
    assert sum(map(len, hashes_of_table(run, films(300), most=120))) == 120


def test_the_smallest_hashes_are_kept_with_all_of_their_rows() -> None:
    hashes = np.random.default_rng(0).integers(0, 50, 400).astype(np.uint64)
    counts = Counter(hashes.tolist())
    kept = trained_rows([hashes[:13], hashes[13:200], hashes[200:]], most=20)
    assert kept.hashes.tolist() == sorted(counts)[:20]
    assert kept.counts.tolist() == [counts[value] for value in sorted(counts)[:20]]
    assert kept.bound == sorted(counts)[19]
    new = np.arange(0, 100, 2, dtype=np.uint64)
    overlap = kept.overlap([new])
    below = [value for value in new.tolist() if value <= int(kept.bound)]
    assert overlap.compared == len(below)
    assert overlap.trained == round(50 * sum(value in counts for value in below) / len(below))


@pytest.mark.parametrize("distinct", [300, 3000])
def test_rows_that_are_equal_by_chance_are_expected(distinct: int) -> None:
    """New rows of a table whose rows repeat are found among the old ones as often as Good and Turing say."""
    rng = np.random.default_rng(0)
    draws = rng.zipf(1.5, 20_000) % distinct
    known = trained_rows([draws[:10_000].astype(np.uint64)])
    overlap = known.overlap([draws[10_000:].astype(np.uint64)])
    assert overlap.trained > 5000
    assert overlap.trained == pytest.approx(overlap.by_chance, rel=0.02)
    assert not overlap.is_suspicious
    assert known.overlap([draws[:10_000].astype(np.uint64)]).is_suspicious is (distinct == 3000)


def test_the_commands_warn(run: feat2vec.Run, tmp_path: Path) -> None:
    pq.write_table(films(300).slice(0, 30), tmp_path / "rows.parquet")
    words = ["evaluate", str(run.folder), "--data", "rows.parquet", "--task", "rank", "--target", "who"]
    said = "rows.parquet: 30 of 30 rows are among those the run was trained on: the result is too good; "
    assert said in command(*words, folder=tmp_path).stderr
    done = command("predict", str(run.folder), "--data", "rows.parquet", "--out", "out.parquet", folder=tmp_path)
    assert said in done.stderr
    pq.write_table(films(30, 5), tmp_path / "rows.parquet")
    assert "trained on" not in command(*words, folder=tmp_path).stderr


def test_python_warns(run: feat2vec.Run) -> None:
    with pytest.warns(UserWarning, match=r"^data: the table: 30 of 30 rows are among those the run was trained on"):
        run.evaluate(films(300).slice(0, 30), target="who", given=["tags"])
    with pytest.warns(UserWarning, match=r"^rows: the table: 30 of 30 rows are among"):
        run.predict(films(300).slice(0, 30))
    rows = films(300).slice(0, 30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.predict(films(30, 5))
        run.predict(pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches()))  # can be read only once


def test_groups_that_training_had_no_value_of_are_no_part_of_hashes(run: feat2vec.Run) -> None:
    """As in a fine-tuning on rows without the columns of a group."""
    without_tags = run.fitted.encode(films(300).drop_columns(["tags"]))
    assert groups_without_values(without_tags) == ["tags"]
    known = trained_rows(hashes_of_encoded(without_tags), valueless=["tags"])
    for table in (films(300), films(300).drop_columns(["tags"])):
        assert known.overlap(hashes_of_table(run, table, valueless=known.valueless)).trained == 300
    assert known.overlap(hashes_of_table(run, films(300))).trained == 0
    assert known.overlap(hashes_of_table(run, films(100, 5), valueless=known.valueless)).trained == 0


def test_groups_without_values_are_kept_with_the_hashes(tmp_path: Path) -> None:
    groups = {name: GROUPS[name] for name in ("who", "size", "tags")}
    schema = {"version": 1, "model": {"dim": 2}, "groups": groups, "training": {"epochs": 1}}
    other = train(schema, films(40), tmp_path / "run", quiet=True)
    assert other.manifest["unused_columns"] == ["text"]
    hashes = hashes_of_encoded(other.fitted.encode(films(40).drop_columns(["tags"])))
    path = other.folder / TRAINED_ROWS
    path.write_bytes(trained_rows(hashes, valueless=["tags"]).as_file())
    assert "40 of 40 rows are among" in str(warning_of_trained_rows(other, films(40)))


def test_a_run_without_hashes_says_nothing_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    other = train({"version": 1, "groups": {"who": GROUPS["who"], "tags": GROUPS["tags"]}}, films(30), tmp_path / "run",
                  quiet=True, settings=["training.epochs=1"])  # fmt: skip
    path = other.folder / TRAINED_ROWS
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(UserError, match=r"trained_rows\.parquet: is not the file that this run was trained with"):
        feat2vec.load(other.folder)
    with pytest.raises(UserError, match=r"trained_rows\.parquet: holds no hashes that can be read"):
        warning_of_trained_rows(other, films(30))
    path.unlink()
    assert warning_of_trained_rows(other, films(30)) is None


def test_the_commands_say_which_columns_are_missing(run: feat2vec.Run, tmp_path: Path) -> None:
    pq.write_table(films(30, 5).drop_columns(["text"]), tmp_path / "rows.parquet")
    said = "rows.parquet: has no column 'text', which is treated as missing in every row\n"
    words = ["evaluate", str(run.folder), "--data", "rows.parquet", "--task", "rank", "--target", "who"]
    assert said in command(*words, folder=tmp_path).stderr
    assert said not in command(*words, "--given", "tags", folder=tmp_path).stderr
    for name in ("predict", "embed"):
        done = command(name, str(run.folder), "--data", "rows.parquet", "--out", f"{name}.parquet", folder=tmp_path)
        assert done.stderr.endswith(said)
