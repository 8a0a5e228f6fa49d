"""`BinsFit`: fits an `ItemsCodec` over the quantile bins of a column of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from feat2vec.encode.arrays_on_disk import ArrayFile
from feat2vec.encode.codecs.bins import binned, bins_of
from feat2vec.encode.codecs.entries import Codec, CodecFit, Entries, Facts
from feat2vec.encode.codecs.items import ItemsCodec
from feat2vec.encode.codecs.items_fit import ItemsFit
from feat2vec.encode.codecs.numbers import ColumnFeed, quantiles, shared_kind
from feat2vec.encode.finished_steps import StepRecord
from feat2vec.encode.workspace import Workspace
from feat2vec.schema.extractor_options import ItemsSpec
from feat2vec.schema.options import Group
from feat2vec.table.numbers import numbers_of
from feat2vec.table.table import Stage
from feat2vec.table.types import Kind

MEAN_UNIT = 2.0**64  # numbers are divided by it before they are added up, so that no sum overflows


class BinsFit:
    """Fits an ItemsCodec over the quantile bins of a column of numbers: the numbers are staged."""

    def __init__(self, workspace: Workspace, name: str, group: Group) -> None:
        self.workspace, self.group = workspace, group
        self.path = workspace.staging / f"{name}.npy"
        if workspace.steps is None:  # else `restore` follows, which goes on with the file
            self.numbers_file = self._file()
        self.items_fit = ItemsFit(workspace, name, group)
        self.kind: Kind | None = None
        self.fits = [self]  # this one, and those that share its codec

    def share(self, owner: CodecFit) -> None:
        assert isinstance(owner, BinsFit)
        owner.fits.append(self)
        self.items_fit.share(owner.items_fit)

    def _file(self, kept_rows: int = 0) -> ArrayFile:
        return ArrayFile(self.path, np.float64, 1, self.workspace.sizes.rows_per_piece, kept_rows)

    def record(self) -> StepRecord:
        return StepRecord({"rows": self.numbers_file.rows, "kind": self.kind}, [self.path])

    def restore(self, stages: Sequence[Facts], *, is_fitted: bool) -> None:
        self.numbers_file = self._file(stages[-1]["rows"] if stages and not is_fitted else 0)
        self.kind = stages[-1]["kind"] if stages else None

    def record_fitted(self) -> StepRecord:
        return self.items_fit.record_fitted()

    def restore_fitted(self, codec: Codec, facts: Facts) -> None:
        self.items_fit.restore_fitted(codec, facts)

    @property
    def work(self) -> int:
        """How many numbers are staged."""
        return self.numbers_file.rows

    def stage(self, stage: Stage) -> None:
        numbers, kind = numbers_of(stage, self.group.columns[0], self.kind)
        self.kind = kind if not np.isnan(numbers).all() else self.kind
        self.numbers_file.append(numbers[:, None])

    def finish(self) -> ItemsCodec:
        if self.items_fit.codec is not None:
            return self.items_fit.codec
        assert isinstance(self.group.extractor, ItemsSpec)
        kind = shared_kind({fit.group.columns[0]: fit.kind for fit in self.fits})
        for fit in self.fits:
            fit.numbers_file.close()
        numbers = ColumnFeed([fit.numbers_file for fit in self.fits], 0)
        bins = self.group.extractor.bins or 1
        inner_quantiles = quantiles(self.workspace.connection, numbers, bins + 1)[1:-1]
        edges = tuple((np.unique(inner_quantiles) + 0.0).tolist())  # + 0.0: no edge is -0
        sums, counts = np.zeros(len(edges) + 1), np.zeros(len(edges) + 1)
        for fit in self.fits:
            for piece in ColumnFeed([fit.numbers_file], 0)():
                fit.items_fit.add(binned(piece, edges))
                present = piece[~np.isnan(piece)]
                bins_of_piece = bins_of(present, edges)
                sums += np.bincount(bins_of_piece, present / MEAN_UNIT, len(sums))
                counts += np.bincount(bins_of_piece, minlength=len(sums))
        with np.errstate(invalid="ignore"):
            means = sums / counts * MEAN_UNIT  # of an empty bin NaN
        return self.items_fit.finish(edges, kind, tuple(means.tolist()))

    def release(self) -> None:
        self.fits = []
        self.items_fit.release()

    def entries(self) -> Iterator[Entries]:
        return self.items_fit.entries()
