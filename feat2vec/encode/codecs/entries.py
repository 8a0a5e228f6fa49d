"""What codecs give and take: entries, the tally of what policies did, and the two protocols."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from feat2vec.arrays import Array, Bools
from feat2vec.encode.finished_steps import StepRecord
from feat2vec.encode.vocabulary import Vocabulary
from feat2vec.schema.options import Group
from feat2vec.table.table import Stage
from feat2vec.writing.files import JsonObject

Present = Bools


@dataclass
class Tally:
    """How often policies were applied to the rows of a group."""

    missing: int = 0  # rows without an entry
    truncated: int = 0  # rows with more items than max_items or max_tokens
    unseen: int = 0  # items that are no key of the vocabulary
    filled: int = 0  # missing numbers that count as the training mean

    def add(self, tally: Tally) -> None:
        self.missing += tally.missing
        self.truncated += tally.truncated
        self.unseen += tally.unseen
        self.filled += tally.filled


@dataclass(frozen=True)
class Entries:
    """A group's entries in some rows."""

    present: Present  # [rows], whether a row has an entry
    rows: Array  # [present rows, width], the entries of those that have one
    tally: Tally


class Codec(Protocol):
    """Turns a group's columns into entries and back."""

    dtype: ClassVar[type[np.generic]]

    @property
    def width(self) -> int:
        """Numbers in an entry, at most."""

    @property
    def training_width(self) -> int:
        """Numbers in an entry of the training rows."""

    @property
    def bits(self) -> int:
        """Enough bits for each number of an entry."""

    @property
    def vocabulary(self) -> Vocabulary | None:
        """What the ids of an entry stand for, where it has ids."""

    def encode(self, stage: Stage, group: Group) -> Entries:
        """The entries of a stage's rows."""

    def decode(self, entries: Array) -> list[Any]:
        """What each entry stands for."""

    def facts(self) -> dict[str, object]:
        """What a saved codec needs besides its vocabulary, as JSON."""

    def check(self, entries: Array) -> None:
        """Raise a ValueError for entries that the codec cannot give: such as ids without a key."""

    def of_columns(self, columns: Sequence[str]) -> Codec:
        """The same codec for the columns of another group, which shares it."""


class CodecFit(Protocol):
    """Fits a codec: `stage` sees the training rows once, `entries` gives them back encoded."""

    @property
    def work(self) -> int:
        """How many numbers are staged: about in proportion to the time that `finish` and `entries` take."""

    def share(self, owner: CodecFit) -> None:
        """Let the fit of another group, of the same kind, fit the codec for the rows of both, before any stage."""

    def stage(self, stage: Stage) -> None:
        """Keep what is needed of a stage's rows."""

    def record(self) -> StepRecord:
        """What restores the last stage in a process that goes on."""

    def restore(self, stages: Sequence[Facts], *, is_fitted: bool) -> None:
        """Go on after the stages of a process that was killed.

        Args:
            stages: The facts of their records.
            is_fitted: Whether `restore_fitted` follows.

        """

    def finish(self) -> Codec:
        """The codec, fitted to all stages; those that share it are fitted by their owner, which is finished first."""

    def record_fitted(self) -> StepRecord:
        """What `entries` needs, beside the codec, in a process that goes on."""

    def restore_fitted(self, codec: Codec, facts: Facts) -> None:
        """Have the codec that a process has fitted that was killed.

        Args:
            codec: The codec.
            facts: Those of `record_fitted`.

        """

    def release(self) -> None:
        """Let go of what nothing but `finish` and, where steps are not kept, `entries` needs."""

    def entries(self) -> Iterator[Entries]:
        """The entries of the staged rows in their order, once `finish` has run."""


Facts = JsonObject  # of a codec, as JSON holds them
