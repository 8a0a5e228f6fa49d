"""What a benchmark table is: a frame, what its columns hold, and what is asked about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Frame: TypeAlias = Any  # a pandas DataFrame
Series: TypeAlias = Any  # a pandas Series

GroupKind = Literal["key", "list", "text", "number", "date", "time"]
TargetKind = Literal["number", "yes/no", "category"]


class UnavailableError(Exception):
    """A table or a candidate cannot be had here: a package, a file or a feature is missing."""


@dataclass(frozen=True)
class Group:
    """A column as the questions and the peers see it.

    Attributes:
        column: The column.
        kind: What it holds.
        separator: Between the items of a list that is written as text; None if the column holds lists.

    """

    column: str
    kind: GroupKind
    separator: str | None = None


@dataclass(frozen=True)
class Target:
    """A column to predict that is not in the frame, or not in the part of it that predictions are made from.

    Attributes:
        name: The label column's name.
        kind: What it holds: numbers, 0 and 1, or class names.
        label: Gives the label of each row of the frame; missing where the row has none.

    """

    name: str
    kind: TargetKind
    label: Callable[[Frame], Series]


@dataclass(frozen=True)
class Table:
    """A table and its questions.

    Attributes:
        frame: The rows, as a user would have them.
        groups: The columns that questions and peers use; the others (ids) are only in the file that ours gets.
        complete: The groups to complete, each with the columns that are hidden beside it as they say the same.
        targets: What is predicted.
        hidden: The columns that nobody predicts from: those that labels are made of, and what would give them away.
        time: The column to split by; None if there is none.
        file_format: How the file that ours gets is written.

    """

    frame: Frame
    groups: Sequence[Group]
    complete: Mapping[str, Sequence[str]] = field(default_factory=dict)
    targets: Sequence[Target] = ()
    hidden: Sequence[str] = ()
    time: str | None = None
    file_format: Literal["csv", "parquet"] = "csv"

    def __post_init__(self) -> None:
        """Check that the columns that are named are there."""
        columns = set(self.frame.columns)
        named = {group.column for group in self.groups} | set(self.hidden) | ({self.time} - {None})
        for column, beside in self.complete.items():
            named |= {column, *beside}
        if named - columns:
            raise ValueError(f"no such columns: {sorted(map(str, named - columns))}")
        completable = {group.column for group in self.groups if group.kind in ("key", "list")}
        if set(self.complete) - completable:
            raise ValueError(f"neither key nor list: {sorted(set(self.complete) - completable)}")

    def groups_without(self, columns: Sequence[str]) -> list[Group]:
        """The groups of the other columns."""
        return [group for group in self.groups if group.column not in columns]


@dataclass(frozen=True)
class Places:
    """Where tables are that no package brings.

    Attributes:
        films: A Parquet file with the columns title, year, cast, genres, directors and plot.
        frappe: A Parquet file with the columns of Frappe's contexts and `used`.
        wordnet: The folder of WordNet's database files.
        packages: A list of Debian packages, plain or `.lz4`.

    """

    films: str | None = None
    frappe: str | None = None
    wordnet: str | None = None
    packages: str | None = None


@dataclass(frozen=True)
class Source:
    """A table that can be loaded.

    Attributes:
        rows: About how many rows it has; tables are run in this order.
        load: Loads it, or raises UnavailableError.

    """

    rows: int
    load: Callable[[Places], Table]
