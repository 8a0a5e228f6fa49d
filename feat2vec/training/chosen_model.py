"""`ChosenModel`: the model that held-out rows chose, for functions that measure it before its run gets its name.

The completion's calibration and the comparison with peers (`weak:`) are such functions: `run/chosen_measures.py` lists
them, and `TrainingRequest.on_chosen` hands them down. They return what the run gets from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Int64s
from feat2vec.encode.columns import columns_of
from feat2vec.encode.encoder import Encoded
from feat2vec.encode.hashing import row_order
from feat2vec.shards.encoded_folder import EncodedTable
from feat2vec.table.table import Table, marked, open_table, stages
from feat2vec.training.held_out import Split, held_out_places
from feat2vec.training.run_folder import TrainedRun

MOST_MEASURED = 2_000  # held-out rows that are given as they are in the table


@dataclass(frozen=True)
class Additions:
    """What a run gets from a function that measured its chosen model.

    Args:
        metrics: Entries of metrics.json.
        files: Files of the run's folder by their names, which its manifest lists with their digests.
        lines: What is printed when the training ends.

    """

    metrics: Mapping[str, float | str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    lines: Sequence[str] = ()


@dataclass(frozen=True)
class ChosenModel:
    """A model and rows that it was not trained on.

    Args:
        run: The model and its encoder, as a run without a folder.
        held_out: Rows that the model was not trained on, at most 2,000 by the seed, in the order of the table, with the
            columns that the schema names.
        places: Their numbers in that table, ascending.
        later: The same of the last rows by `training.time`, on which the model was not trained either; None without.
        counts: Of each group how often each value occurs in the rows that it was trained on, [values]. It is 0 for a
            value that only held-out rows have: the encoder knows it, and the model has not learnt it.
        table: The table of the training rows.
        learnt: The rows that the model was trained on, encoded.

    """

    run: TrainedRun
    held_out: pa.Table
    places: Int64s
    later: pa.Table | None
    counts: Mapping[str, Int64s]
    table: Table
    learnt: Encoded

    def training_rows(self, most: int) -> pa.Table:
        """Rows that the model was trained on.

        Args:
            most: At most so many, by the seed. The table is read again.

        Returns:
            The rows in the order of the table, with the columns that the schema names.

        """
        return raw_rows(self.table, self.learnt, held_out_places(self.learnt, 1.0, seed_of(self.learnt), most))


OnChosen: TypeAlias = Callable[[ChosenModel], Additions]


def chosen_model(
    run: TrainedRun, table: Table, learnt: Encoded, measured: Encoded, validation: object, split: Split | None
) -> ChosenModel:
    """The chosen model with its held-out rows.

    Args:
        run: The model, as a run without a folder.
        table: The table of the training rows.
        learnt: The rows that it was trained on.
        measured: The rows that the loss was measured on.
        validation: The source of those rows, if they are another table.
        split: What was held out, if they were split off from the table of the training rows.

    Raises:
        UserError: The table can be read only once, and has been.

    """
    if isinstance(table, EncodedTable):
        table.refuse_other_sample(learnt.encoder.schema, splits=split is not None)
    later = None
    if split is None:
        places = held_out_places(measured, 1.0, seed_of(learnt), MOST_MEASURED)
        held_out = raw_rows(open_table(validation), measured, places)
    else:
        places = measured_places(split.places, seed_of(learnt))
        held_out = raw_rows(table, learnt, places)
        if len(split.later):
            later = raw_rows(table, learnt, measured_places(split.later, seed_of(learnt)))
    counts = {name: np.asarray(values.counts) for name, values in learnt.values.items()}
    return ChosenModel(run, held_out, places, later, counts, table, learnt)


def measured_places(held_out: Int64s, seed: int) -> Int64s:
    """Those of the rows that are held out by which the chosen model is measured, ascending."""
    order = np.argsort(row_order(held_out, seed))
    return np.sort(held_out[order[:MOST_MEASURED]])


def seed_of(rows: Encoded) -> int:
    """The seed by which rows are chosen to be measured on.

    Another seed than that by which rows are held out, as those are the first in its order.

    Args:
        rows: Encoded rows.

    """
    return rows.encoder.schema.training.seed + 1


def raw_rows(table: Table, encoded: Encoded, places: Int64s) -> pa.Table:
    """Rows as they are in a table, with the columns that its schema names.

    Args:
        table: The table.
        encoded: Its rows, encoded.
        places: The numbers of the rows that are read, ascending.

    """
    schema = encoded.encoder.schema
    further = [column for column in (schema.id, schema.target, schema.weight) if column is not None]
    columns = columns_of(schema.groups.values(), further, table)
    if isinstance(table, EncodedTable):
        return table.rows_at(places, columns)
    parts: list[pa.Table] = []
    first = 0  # row of the stage
    for stage in stages(table, columns):
        in_stage = places[slice(*np.searchsorted(places, [first, first + stage.rows]))] - first
        of_stage = pa.table({column: stage.column(column) for column in columns})
        parts.append(of_stage.take(pa.array(in_stage)))
        first += stage.rows
    return marked(pa.concat_tables(parts, promote_options="permissive"), table)
