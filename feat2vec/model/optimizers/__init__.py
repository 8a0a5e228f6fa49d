"""Row-sparse Adagrad, Adam, FTRL and SGD: a step gathers, updates and scatters only the rows that it touches.

Keras' own optimizers touch every row of every table in every step. Here a gradient that arrives as
`tf.IndexedSlices` (what a `tf.gather` on a variable gives) has its duplicate ids summed first, and costs what its
distinct ids cost. A dense gradient takes Keras' dense update, number for number; FTRL is that of the paper.

A row is *touched* when its id is in the gradient, even with a gradient of zeros. An untouched row keeps its bytes,
and so do its slots. A row of zeros that only ever gets gradients of zeros stays zero, so padding needs no care.

`tables.py` says what a table is, `row_gradients.py` and `row_updates.py` what a step reads and writes of it. Open
`base.py` first; then `adagrad.py`, `adam.py`, `ftrl.py` or `sgd.py`. Another optimizer is a file like these and a
line in `OPTIMIZERS`.
"""

from __future__ import annotations

from feat2vec.model.optimizers.adagrad import SparseAdagrad, adagrad_rows
from feat2vec.model.optimizers.adam import SparseAdam, adam_rows
from feat2vec.model.optimizers.base import LearningRate, RowSparse, require
from feat2vec.model.optimizers.ftrl import SparseFtrl, ftrl_rows
from feat2vec.model.optimizers.row_gradients import Rows, distinct, read_rows, sum_duplicates
from feat2vec.model.optimizers.sgd import SparseSgd, sgd_rows
from feat2vec.model.optimizers.tables import BY_ROW, by_row, is_by_row, is_linear_terms, linear_terms, resource_of

OPTIMIZERS: dict[str, type[RowSparse]] = {
    "adagrad": SparseAdagrad,
    "adam": SparseAdam,
    "ftrl": SparseFtrl,
    "sgd": SparseSgd,
}
IN_ROWS = ("adagrad", "ftrl")  # optimizers that measure the gradients of tables in those of one row of data


def named(name: str, learning_rate: LearningRate, batch_size: int = 1, **arguments: float | str) -> RowSparse:
    """Return the optimizer that a schema calls `name`, for batches of a size.

    Args:
        name: `adagrad`, `adam`, `ftrl` or `sgd`.
        learning_rate: a number or a Keras schedule.
        batch_size: rows of a batch, over which the loss is a mean. It is the unit of what Adagrad and FTRL accumulate.
        **arguments: others of the optimizer's class.

    Raises:
        ValueError: if there is no optimizer of that name, or an argument has no meaning.

    Returns:
        The optimizer.

    Example:
        >>> named("adagrad", 0.05, batch_size=100).row_scale
        0.01

    """
    require(name in OPTIMIZERS, f"optimizer.type: use one of {', '.join(OPTIMIZERS)}", repr(name))
    rate = learning_rate if callable(learning_rate) else float(learning_rate)  # Keras takes no int
    if name in IN_ROWS:
        arguments = {"row_scale": 1 / batch_size, **arguments}
    return OPTIMIZERS[name](rate, **arguments)


__all__ = [
    "BY_ROW",
    "OPTIMIZERS",
    "RowSparse",
    "Rows",
    "SparseAdagrad",
    "SparseAdam",
    "SparseFtrl",
    "SparseSgd",
    "adagrad_rows",
    "adam_rows",
    "by_row",
    "distinct",
    "ftrl_rows",
    "is_by_row",
    "is_linear_terms",
    "linear_terms",
    "named",
    "read_rows",
    "resource_of",
    "sgd_rows",
    "sum_duplicates",
]
