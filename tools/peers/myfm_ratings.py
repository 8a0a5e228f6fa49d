"""myFM learns ratings by Gibbs sampling, and predicts those of other rows as the mean over its samples.

python tools/peers/myfm_ratings.py TRAIN.parquet TEST.parquet PREDICTED.npy [--features]

Its columns are users and films; with --features also a film's genres, each one over the root of their number, and its
year in bins of three. It predicts in the same command, as its samples take longer to write than to use.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

os.environ.setdefault("TQDM_DISABLE", "1")  # read by the bar of myFM

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp
from myfm import MyFMRegressor, RelationBlock

YEARS = 3  # of a bin
RATINGS = (0.5, 5.0)


Values = list[list[Hashable]]  # of a column: those of each row


def columns_of(path: str, features: bool) -> tuple[dict[str, Values], dict[str, Values]]:
    """What a table's rows say of the user, and of the film."""
    table = pq.read_table(path).to_pydict()
    user, film = ({name: [[value] for value in table[name]]} for name in ("user", "film"))
    if features:
        film["genres"] = table["genres"]
        film["year"] = [[None if year is None else year // YEARS] for year in table["year"]]
    return user, film


def indices(values: Iterable[Hashable]) -> dict[Hashable, int]:
    """An index for each value, in the order of their first occurrence."""
    return {value: i for i, value in enumerate(dict.fromkeys(values))}


class Block:
    """Columns that belong together, as myFM takes them: rows which say the same are held once.

    Args:
        columns: The columns of the training rows, whose values get an index.

    """

    def __init__(self, columns: Mapping[str, Values]) -> None:
        self.index = {name: indices(v for row in rows for v in row) for name, rows in columns.items()}
        self.sizes = [len(index) for index in self.index.values()]

    def relation(self, columns: Mapping[str, Values]) -> RelationBlock:
        """The columns of some rows."""
        rows = [tuple(map(tuple, row)) for row in zip(*columns.values(), strict=True)]
        place = indices(rows)
        distinct = zip(*place, strict=True)  # [columns][distinct rows]: values
        parts = [weights(values, index) for values, index in zip(distinct, self.index.values(), strict=True)]
        return RelationBlock(np.array([place[row] for row in rows]), sp.hstack(parts).tocsr())


def weights(rows: Sequence[Sequence[Hashable]], index: Mapping[Hashable, int]) -> Any:
    """One over the root of their number for each row's values that have an index, [rows, values]."""
    known = [[index[value] for value in values if value in index] for values in rows]
    coordinates = ([i for i, row in enumerate(known) for _ in row], [column for row in known for column in row])
    entries = [len(row) ** -0.5 for row in known for _ in row]
    return sp.csr_matrix((entries, coordinates), shape=(len(known), len(index)), dtype=np.float64)


def main() -> None:
    """Train, and write the predicted ratings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("predicted")
    parser.add_argument("--features", action="store_true")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--kept", type=int, default=180)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train = columns_of(options.train, options.features)
    blocks = [Block(columns) for columns in train]
    relations = [block.relation(columns) for block, columns in zip(blocks, train, strict=True)]
    ratings = pq.read_table(options.train, columns=["rating"])["rating"].to_numpy()
    model = MyFMRegressor(rank=options.rank, random_seed=options.seed)
    print("training", flush=True)
    model.fit(
        None,
        ratings,
        X_rel=relations,
        group_shapes=[size for block in blocks for size in block.sizes],
        n_iter=options.iterations,
        n_kept_samples=options.kept,
    )
    print(f"epoch {options.iterations}/{options.iterations}", flush=True)
    test = columns_of(options.test, options.features)
    predicted = model.predict(None, [block.relation(columns) for block, columns in zip(blocks, test, strict=True)])
    np.save(options.predicted, predicted.clip(*RATINGS))


if __name__ == "__main__":
    main()
