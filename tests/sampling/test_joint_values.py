"""Joint sets: the tuples that are counted, and their ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from feat2vec.sampling.joint_values import joint_values
from feat2vec.sampling.noise import Noise
from tests import reference
from tests.sampling.tables import random_rows


@pytest.mark.parametrize("chunk", [1, 7, 1000, 10_000])
@pytest.mark.parametrize("groups", [(0, 2), (2, 0), (1, 0, 2), (0, 1, 2, 3)])
def test_tuples_in_chunks_equal_those_in_one_piece(groups: tuple[int, ...], chunk: int) -> None:
    rows = random_rows(1000 if chunk > 1 else 60, columns=4)
    joint = joint_values(rows, groups, chunk)
    values, counts = reference.joint_tuples(rows, groups)
    np.testing.assert_array_equal(joint.values(), values)
    np.testing.assert_array_equal(joint.counts, counts)
    assert joint.values().dtype == np.int32


def test_a_tuples_id_is_its_place_and_unseen_and_missing_have_their_own() -> None:
    rows = random_rows(300, columns=4)
    joint = joint_values(rows[:150], (3, 0, 1))
    values = joint.values().tolist()
    expected = []
    for row in rows[:, [3, 0, 1]].tolist():
        expected.append(-1 if min(row) < 0 else values.index(row) if row in values else len(values))
    assert {-1, len(values), 0} <= set(expected)
    np.testing.assert_array_equal(joint.ids(rows), expected)
    assert joint.ids(rows).dtype == np.int32


def test_ids_near_the_top_of_int32_and_rows_on_disk(tmp_path: Path) -> None:
    top = 2**31 - 2
    rows = np.memmap(tmp_path / "rows", np.int32, "w+", shape=(6, 3))
    rows[:] = [[top, top, top], [0, top, 1], [top, top, top], [-1, 0, 0], [top, 0, top], [0, top, 0]]
    joint = joint_values(rows, (0, 1, 2), rows_per_pass=2)
    np.testing.assert_array_equal(joint.values(), [[0, top, 0], [0, top, 1], [top, 0, top], [top, top, top]])
    np.testing.assert_array_equal(joint.counts, [1, 1, 1, 2])
    np.testing.assert_array_equal(joint.ids(rows), [3, 1, 3, -1, 2, 0])


def test_rows_without_a_complete_tuple() -> None:
    joint = joint_values(np.array([[0, -1], [-1, 2]], np.int32), (0, 1))
    assert joint.values().shape == (0, 2)
    np.testing.assert_array_equal(joint.ids(np.array([[0, 2], [-1, 1]], np.int32)), [0, -1])
    noise = Noise(
        [np.array([1, 1]), np.array([1, 1, 1]), np.array([1, 1])],
        [1, 1, 1],
        joint=[((0, 1), joint.values(), joint.counts)],
    )
    assert [unit.groups for unit in noise.units] == [(2,)]


@pytest.mark.parametrize("groups", [(1,), (1, 1)])
def test_a_joint_set_of_one_group_is_refused(groups: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"two or more different groups\. Received: groups=\(1"):
        joint_values(random_rows(5), groups)
