"""Checkpoints: what is written is read, and a failed write leaves the one before."""

from __future__ import annotations

import errno
import io
import json
import random
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feat2vec.arrays import Array
from feat2vec.errors import UserError
from feat2vec.training import checkpoint_file
from feat2vec.training.checkpoint_checks import ExpectedCheckpoint, check_checkpoint
from feat2vec.training.checkpoint_file import (
    Streamed,
    commit_changes,
    fill_changes,
    fill_checkpoint,
    open_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from tests.altered_runs import mutated, with_another_value


def test_facts_and_arrays_come_back(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"facts": np.arange(3), "file": np.zeros((0, 2), np.float32), "b": np.array(2.5)}
    write_checkpoint(tmp_path / "c.npz", {"epoch": 3, "note": "ä"}, arrays)
    with open_checkpoint(tmp_path / "c.npz") as checkpoint, np.load(tmp_path / "c.npz") as file:
        assert checkpoint.facts == {"epoch": 3, "note": "ä"}
        assert list(checkpoint.headers) == list(arrays)
        for name, array in arrays.items():
            same = checkpoint.array(name)
            np.testing.assert_array_equal(same, array)
            assert same.dtype == array.dtype
            np.testing.assert_array_equal(file[f"array {name}"], array)  # numpy reads it too


def test_arrays_are_written_and_read_in_pieces(tmp_path: Path) -> None:
    array = np.arange(70, dtype=np.float32).reshape(10, 7)
    streamed = Streamed(array.shape, array.dtype, (array[at : at + 3] for at in range(0, 10, 3)))
    write_checkpoint(tmp_path / "c.npz", {}, {"a": streamed})
    with open_checkpoint(tmp_path / "c.npz", bytes_per_read=64) as checkpoint:
        pieces = list(checkpoint.pieces("a"))
    assert [rows for rows, _ in pieces] == [slice(at, at + 2) for at in range(0, 10, 2)]
    np.testing.assert_array_equal(np.concatenate([piece for _, piece in pieces]), array)


def test_an_altered_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    write_checkpoint(path, {}, {"a": np.zeros(1000, np.float32)})
    data = bytearray(path.read_bytes())
    data[data.index(b"\0" * 4000) + 2000] = 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="Bad CRC"), open_checkpoint(path) as checkpoint:
        checkpoint.array("a")


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "c.npz"
    write_checkpoint(path, {"epoch": 1}, {})

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint_file, "_write_array", full)
    with pytest.raises(
        OSError, match=r"No space left on device; the checkpoint before is intact: make room and add --resume"
    ) as caught:
        write_checkpoint(path, {"epoch": 2}, {})
    assert caught.value.filename == str(path)
    assert [file.name for file in tmp_path.iterdir()] == ["c.npz"]
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.facts == {"epoch": 1}


def test_what_is_no_checkpoint_is_said(tmp_path: Path) -> None:
    for content in (b"", b"PK\x03\x04 half", b"words"):
        (tmp_path / "c.npz").write_bytes(content)
        with (
            pytest.raises(UserError, match=r"c\.npz: is no checkpoint that can be read"),
            open_checkpoint(tmp_path / "c.npz"),
        ):
            pass
    np.savez(tmp_path / "c.npz", facts=np.array([{"a": 1}], dtype=object))
    with pytest.raises(UserError, match="is no checkpoint"), open_checkpoint(tmp_path / "c.npz"):
        pass


@pytest.mark.parametrize("shape", [(10**12,), (10**6, 10**6), (2**62, 4), (3,)])
def test_a_declared_shape_is_refused_before_room_is_made(
    shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header says so, the file is small."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    path = tmp_path / "c.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("facts.npy", npy(np.frombuffer(b"{}", np.uint8)))
        archive.writestr("array state 0.npy", header.getvalue() + bytes(48))
    monkeypatch.setattr(checkpoint_file, "_read_numbers", lambda *_: pytest.fail("it was read"))
    with pytest.raises(UserError, match="has not the shape"):
        read_checkpoint(path)


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_a_pickle_and_a_compressed_checkpoint_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    np.savez(path, facts=np.array([{}], dtype=object))
    with pytest.raises(UserError, match="no numbers"):
        read_checkpoint(path)
    np.savez_compressed(path, facts=np.zeros(10**7, np.uint8))
    with pytest.raises(UserError, match="is compressed"):
        read_checkpoint(path)


VARIABLES: list[Array] = [np.arange(12, dtype=np.float32).reshape(4, 3), np.array(19, np.int64), np.ones(2, np.float32)]
ARRAYS: dict[str, Any] = {f"state {i}": variable for i, variable in enumerate(VARIABLES)}
ARRAYS |= {"best 0": VARIABLES[0], "best 1": VARIABLES[2]}
EXPECTED = ExpectedCheckpoint(
    VARIABLES, [VARIABLES[0], VARIABLES[2]], epochs=5, steps=8, validates=True, counter=VARIABLES[1]
)
PROGRESS: dict[str, Any] = {
    "schema": "version: 1\n", "data": {"rows": 4}, "epoch": 2, "step": 3, "best": 0.5, "waited": 1, "stopped": False,
    "history": [
        {"epoch": i, "loss": 0.5, "seconds": 0.1, "rows_per_second": 9, "val_loss": float("nan")} for i in (1, 2)
    ],
    "seconds_of_epoch": 0.5, "timed": [1.5, 40], "seconds_before": 2.5,
}  # fmt: skip


def checked(path: Path) -> str:
    """What a checkpoint of this training says."""
    with open_checkpoint(path) as checkpoint:
        check_checkpoint(checkpoint, EXPECTED)
    facts, arrays = read_checkpoint(path)
    return repr((facts, {name: (array.dtype, array.tolist()) for name, array in arrays.items()}))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"epoch": 6}, "`epoch` is no whole number up to 5"),
        ({"epoch": "2"}, "`epoch`"),
        ({"epoch": True}, "`epoch`"),
        ({"step": 8}, "`step` is no whole number up to 7"),
        ({"step": -1}, "`step`"),
        ({"step": 4}, "state 1 counts other steps than `epoch` and `step`"),
        ({"waited": 10**12}, "`waited`"),
        ({"epoch": 1}, "`history` has not as many"),
        ({"history": [{}, {}]}, "`history` holds no numbers"),
        ({"history": [{**PROGRESS["history"][0], "loss": "x"}] * 2}, "`history` holds no numbers"),
        ({"history": [PROGRESS["history"][0]] * 2}, "`history` does not count the epochs"),
        ({"history": [{**row, "more": 1} for row in PROGRESS["history"]]}, "`history` holds no numbers, or other ones"),
        ({"best": [1]}, "`best`"),
        ({"best": None}, "5 arrays in place of 3"),
        ({"timed": [1.5]}, "times"),
        ({"timed": 5}, "times"),
        ({"seconds_before": float("inf")}, "times"),
        ({"stopped": 1}, "`stopped`"),
        ({"epoch": 0, "history": [], "stopped": True}, "`stopped`"),
    ],
)
def test_facts_that_no_training_writes_are_refused(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    write_checkpoint(path, PROGRESS, ARRAYS)
    checked(path)
    write_checkpoint(path, {**PROGRESS, **change}, ARRAYS)
    with pytest.raises(UserError, match=rf"was altered or belongs to another training \(.*{problem}.*; start anew"):
        checked(path)
    for name in change:
        write_checkpoint(path, {key: value for key, value in PROGRESS.items() if key != name}, ARRAYS)
        with pytest.raises(UserError, match="was altered"):
            checked(path)


@pytest.mark.parametrize(
    "arrays",
    [
        {name: array for name, array in ARRAYS.items() if name != "state 1"},
        {**ARRAYS, "more": VARIABLES[0]},
        {name: array for name, array in ARRAYS.items() if name != "best 1"},
        {**ARRAYS, "state 0": np.zeros((3, 4), np.float32)},
        {**ARRAYS, "state 0": np.zeros((4, 3))},
        {**ARRAYS, "state 2": np.ones(2, np.int32)},
        {name: array for name, array in ARRAYS.items() if not name.startswith("best")},
        {**ARRAYS, "aside 0": VARIABLES[0], "aside 1": VARIABLES[2]},
        {**ARRAYS, "best 1": np.array([1, np.nan], np.float32)},
        {**ARRAYS, "state 2": np.array([1, np.inf], np.float32)},
        {**ARRAYS, "state 1": np.array(2**63 - 1)},
    ],
)
def test_arrays_that_are_none_of_the_trainings_are_refused(arrays: dict[str, Any], tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c.npz", PROGRESS, arrays)
    with pytest.raises(UserError, match="was altered or belongs to another training"):
        checked(tmp_path / "c.npz")


def test_averaged_weights_are_there_from_the_first_epoch_on(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    for epoch, arrays in ((1, ARRAYS), (0, {**ARRAYS, "aside 0": VARIABLES[0], "aside 1": VARIABLES[2]})):
        write_checkpoint(path, {**PROGRESS, "epoch": epoch, "history": PROGRESS["history"][:epoch]}, arrays)
        with open_checkpoint(path) as checkpoint, pytest.raises(UserError, match="arrays in place of"):
            check_checkpoint(checkpoint, replace(EXPECTED, averages=True))


def test_an_altered_checkpoint_reads_as_the_same_or_is_refused(tmp_path: Path) -> None:
    path, rng = tmp_path / "c.npz", random.Random(0)
    write_checkpoint(path, PROGRESS, ARRAYS)
    content, unaltered = path.read_bytes(), checked(path)
    for _ in range(300):
        path.write_bytes(mutated(content, path.name, rng))
        try:
            same = checked(path) == unaltered
        except UserError as error:
            same = len(str(error).replace(str(path), "").splitlines()) == 1
        assert same


def test_facts_are_altered_at_random(tmp_path: Path) -> None:
    """With sums that match, as whoever alters a checkpoint can have them."""
    path, rng = tmp_path / "c.npz", random.Random(0)
    for _ in range(300):
        facts = with_another_value(json.loads(json.dumps(PROGRESS)), rng)
        write_checkpoint(path, facts, ARRAYS)
        with suppress(UserError):
            checked(path)


# --- changes --------------------------------------------------------------------------------------------------------

LARGE = np.random.default_rng(0).random((5000, 16)).astype(np.float32)  # 320 kB
WHOLE: dict[str, Any] = {"state 0": LARGE, "state 1": np.array(3), "best 0": LARGE * 2, "aside 0": LARGE * 3}
AFTER = {**WHOLE, "state 0": np.where(np.arange(5000)[:, None] % 50 == 7, LARGE + 1, LARGE), "state 1": np.array(4)}


def contents(path: Path, bytes_per_read: int = 4 << 20) -> tuple[Any, dict[str, bytes]]:
    with open_checkpoint(path, bytes_per_read) as checkpoint:
        return checkpoint.facts, {name: checkpoint.array(name).tobytes() for name in checkpoint.headers}


def bytes_of(arrays: dict[str, Any]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in arrays.items()}


def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    path, changes = tmp_path / "c.npz", tmp_path / "c.npz.changes"
    write_checkpoint(path, {"epoch": 1}, WHOLE)
    whole = path.read_bytes()
    assert fill_changes(path, {"epoch": 2}, AFTER, len(whole))
    assert contents(path) == ({"epoch": 1}, bytes_of(WHOLE)), "until it is committed"
    commit_changes(path)
    for bytes_per_read in (1, 100, 4 << 20):
        assert contents(path, bytes_per_read) == ({"epoch": 2}, bytes_of(AFTER))
    assert path.read_bytes() == whole
    changed = 100 * 64  # rows of 64 bytes
    assert changed < changes.stat().st_size < changed + 5000
    # Changes count from the whole checkpoint on; arrays may be new, others be gone.
    more = {**WHOLE, "best 1": LARGE[:2000], "best 0": LARGE[:100]}
    assert fill_changes(path, {"epoch": 3}, more, len(whole))
    commit_changes(path)
    assert contents(path) == ({"epoch": 3}, bytes_of(more))
    write_checkpoint(path, {"epoch": 4}, ARRAYS)
    assert contents(path) == ({"epoch": 4}, bytes_of(ARRAYS))
    assert not changes.exists()


def test_changes_of_nearly_all_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    assert not fill_changes(path, {}, WHOLE, 10**9), "there is none to compare with"
    write_checkpoint(path, {"epoch": 1}, WHOLE)
    much = {name: array + 1 for name, array in WHOLE.items()}
    assert not fill_changes(path, {"epoch": 2}, much, path.stat().st_size / 2)
    assert [file.name for file in tmp_path.iterdir()] == ["c.npz"]
    path.write_bytes(path.read_bytes()[:-30])
    assert not fill_changes(path, {"epoch": 2}, AFTER, 10**9), "what is there is damaged"


@pytest.mark.parametrize("killed_after", ["fill changes", "fill whole", "rename whole"])
def test_a_process_that_is_killed_between_leaves_a_checkpoint(tmp_path: Path, killed_after: str) -> None:
    path = tmp_path / "c.npz"
    write_checkpoint(path, {"epoch": 1}, WHOLE)
    fill_changes(path, {"epoch": 2}, AFTER, 10**9)
    expected = ({"epoch": 1}, bytes_of(WHOLE))
    if killed_after != "fill changes":
        commit_changes(path)
        fill_checkpoint(path, {"epoch": 3}, ARRAYS)
        expected = ({"epoch": 2}, bytes_of(AFTER))
    if killed_after == "rename whole":
        (tmp_path / "c.npz.new").replace(path)  # and the changes of the one before are still there
        expected = ({"epoch": 3}, bytes_of(ARRAYS))
    assert contents(path) == expected
    assert fill_changes(path, {"epoch": 4}, AFTER, 10**9)
    commit_changes(path)
    assert contents(path) == ({"epoch": 4}, bytes_of(AFTER))


def test_altered_changes_read_as_the_same_or_are_refused(tmp_path: Path) -> None:
    path, changes, rng = tmp_path / "c.npz", tmp_path / "c.npz.changes", random.Random(0)
    write_checkpoint(path, PROGRESS, WHOLE)
    fill_changes(path, {**PROGRESS, "epoch": 2}, AFTER, 10**9)
    commit_changes(path)
    content, unaltered = changes.read_bytes(), contents(path)
    before = (json.loads(json.dumps(PROGRESS)), bytes_of(WHOLE))  # changes of another checkpoint count for nothing
    for _ in range(100):
        changes.write_bytes(mutated(content, changes.name, rng))
        try:
            same = contents(path) in (unaltered, before)
        except UserError as error:
            same = len(str(error).replace(str(path), "").splitlines()) == 1
        assert same


def test_a_full_disk_leaves_the_changes_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.npz"
    write_checkpoint(path, {"epoch": 1}, WHOLE)
    fill_changes(path, {"epoch": 2}, AFTER, 10**9)
    commit_changes(path)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint_file, "write_changes", full)
    with pytest.raises(OSError, match="the checkpoint before is intact: make room and add --resume"):
        fill_changes(path, {"epoch": 3}, AFTER, 10**9)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["c.npz", "c.npz.changes"]
    assert contents(path) == ({"epoch": 2}, bytes_of(AFTER))
