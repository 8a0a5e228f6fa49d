"""Pretrained vectors: their codec and its fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array
from feat2vec.encode.arrays_on_disk import SpilledArray, is_finite
from feat2vec.encode.codecs.entries import Codec, CodecFit, Entries, Facts, Present, Tally
from feat2vec.encode.finished_steps import StepRecord
from feat2vec.encode.vocabulary import is_count
from feat2vec.encode.workspace import Workspace
from feat2vec.errors import UserError
from feat2vec.schema.options import Group
from feat2vec.table.numbers import vectors_of
from feat2vec.table.table import Stage

MOST_NUMBERS = 2**31  # of an entry


@dataclass(frozen=True)
class VectorCodec:
    """A pretrained vector as it is."""

    width: int
    dtype: ClassVar[type[np.generic]] = np.float32
    bits: ClassVar[int] = 32
    vocabulary: None = None

    @property
    def training_width(self) -> int:
        """The same: vectors have one size."""
        return self.width

    def encode(self, stage: Stage, group: Group) -> Entries:
        present, vectors = vectors_of(stage, group.columns[0], self.width)
        return _entries(present, vectors)

    def decode(self, entries: Array) -> list[list[float]]:
        """The vector of each entry."""
        decoded: list[list[float]] = entries.tolist()
        return decoded

    def facts(self) -> dict[str, object]:
        return {"width": self.width}

    @classmethod
    def from_facts(cls, group: Group, facts: Facts, keys: pa.Table | None) -> VectorCodec:
        del group, keys
        if not is_count(facts["width"]) or not 0 < facts["width"] < MOST_NUMBERS:
            raise ValueError("the size of vectors is no size")
        return cls(facts["width"])

    def check(self, entries: Array) -> None:
        if not is_finite(entries):
            raise ValueError("entries hold numbers that are not finite")

    def of_columns(self, columns: Sequence[str]) -> VectorCodec:
        del columns
        return self


class VectorFit:
    """Fits a VectorCodec: the vectors are staged."""

    def __init__(self, workspace: Workspace, name: str, group: Group) -> None:
        self.workspace, self.name, self.group = workspace, name, group
        self.staged: list[tuple[SpilledArray, SpilledArray]] = []  # of each stage: present, vectors
        self.work = 0
        self.size: int | None = None  # of a vector; None before a stage has one
        self.fits = [self]  # this one, and those that share its codec
        self.codec: VectorCodec | None = None

    def share(self, owner: CodecFit) -> None:
        assert isinstance(owner, VectorFit)
        owner.fits.append(self)

    def stage(self, stage: Stage) -> None:
        present, vectors = vectors_of(stage, self.group.columns[0], self.size)
        self.size = vectors.shape[1] if len(vectors) else self.size
        self.work += vectors.size
        name = f"{self.name}_{len(self.staged)}"
        self.staged.append((self.workspace.spill(present, name), self.workspace.spill(vectors, f"{name}.rows")))

    def record(self) -> StepRecord:
        stage = self.staged[-1]
        return StepRecord({"stage": [array.facts() for array in stage]}, [array.path for array in stage])

    def restore(self, stages: Sequence[Facts], *, is_fitted: bool) -> None:
        if is_fitted:
            return
        for facts in stages:
            present, vectors = (SpilledArray.from_facts(array, self.workspace.staging) for array in facts["stage"])
            self.staged.append((present, vectors))
            self.size = vectors.shape[1] if vectors.shape[0] else self.size
            self.work += int(np.prod(vectors.shape))

    def record_fitted(self) -> StepRecord:
        return StepRecord({}, [])

    def restore_fitted(self, codec: Codec, facts: Facts) -> None:
        del facts
        assert isinstance(codec, VectorCodec)
        self.codec = codec

    def finish(self) -> VectorCodec:
        if self.codec is None:
            sizes: dict[int, str] = {}  # the first column of vectors of each size
            for fit in self.fits:
                if fit.size is not None:
                    sizes.setdefault(fit.size, fit.group.columns[0])
            if len(sizes) > 1:
                held = " and ".join(f"{size:,} in {column!r}" for size, column in sizes.items())
                raise UserError(f"vectors that are shared have one size; received {held}: remove `share`")
            codec = VectorCodec(next(iter(sizes), 1))
            for fit in self.fits:
                fit.codec = codec
        assert self.codec is not None
        return self.codec

    def release(self) -> None:
        self.fits = []  # a reference to itself would keep it until the garbage is collected

    def entries(self) -> Iterator[Entries]:
        assert self.codec is not None
        for present, vectors in self.staged:
            # a stage without vectors did not know their size
            yield _entries(present.take(), vectors.take().reshape(-1, self.codec.width))


def _entries(present: Present, vectors: Array) -> Entries:
    """Entries of vectors, in which -0 and 0 are one value."""
    return Entries(present, vectors + np.float32(0), Tally(missing=int((~present).sum())))
