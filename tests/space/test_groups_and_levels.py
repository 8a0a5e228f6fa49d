"""Names of groups as names of columns."""

from __future__ import annotations

from feat2vec.space.groups_and_levels import distinct_column_names


def test_a_name_that_is_taken_gets_an_underscore() -> None:
    assert distinct_column_names(["a", "row", "id", "row_"]) == ["a", "row_", "id_", "row__"]
    assert distinct_column_names(["self"], taken=["self"]) == ["self_"]
