"""A generated table like MovieLens Tag: who gave which film which tag, and tags that nobody gave.

python tools/make_tags.py TAGS.parquet [--rows 60000] [--seed 0]
feat2vec run recipes/ranks.yaml --data TAGS.parquet

Columns: user, film, tag, and the label, 1 for a tag that was given and 0 for one that was not: each given one has two
of the others, drawn alike. Users, films and tags occur by Zipf's law, so most of them are rare. Whether a tag suits a
film and a user depends on their kinds alone where they are rare, and on themselves where they are frequent. So rare
ones need few dimensions, and frequent ones many.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

USERS, FILMS, TAGS = 2_000, 4_000, 6_000
KINDS, DIM = 8, 24
FREQUENT = 100  # of each, which have a vector of their own
NEGATIVES = 2
CANDIDATES = 50  # of which a user gives the one that suits best
EXPONENT = 0.9

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def tags(rows: int, seed: int = 0) -> pa.Table:
    """The table; every third row is a tag that was given.

    Args:
        rows: How many rows, about.
        seed: Decides what is drawn.

    """
    rng = np.random.default_rng(seed)
    given = rows // (1 + NEGATIVES)
    users, films = _drawn(rng, USERS, (given,)), _drawn(rng, FILMS, (given,))
    of_users, of_films, of_tags = (_vectors(rng, size) for size in (USERS, FILMS, TAGS))
    suiting = of_users[users] + of_films[films]  # [given, DIM]
    given_tags = np.empty(given, np.int64)
    for first in range(0, given, 1024):
        block = slice(first, first + 1024)
        candidates = _drawn(rng, TAGS, (len(given_tags[block]), CANDIDATES))
        scores = np.einsum("nd,ncd->nc", suiting[block], of_tags[candidates])
        given_tags[block] = np.take_along_axis(candidates, scores.argmax(axis=1)[:, None], axis=1)[:, 0]
    others = _drawn(rng, TAGS, (given, NEGATIVES))
    tag_ids = np.concatenate([given_tags[:, None], others], axis=1)  # [given, 1 + NEGATIVES]
    labels = np.zeros_like(tag_ids)
    labels[:, 0] = 1
    return pa.table(
        {
            "user": [f"u{i}" for i in np.repeat(users, 1 + NEGATIVES)],
            "film": [f"f{i}" for i in np.repeat(films, 1 + NEGATIVES)],
            "tag": [f"t{i}" for i in tag_ids.ravel()],
            "label": labels.ravel(),
        }
    )


def _drawn(rng: np.random.Generator, size: int, shape: tuple[int, ...]) -> Ints:
    """Numbers below `size` by Zipf's law."""
    shares = 1 / np.arange(1, size + 1) ** EXPONENT
    ends = np.cumsum(shares / shares.sum())
    return np.minimum(np.searchsorted(ends, rng.random(shape)), size - 1)


def _vectors(rng: np.random.Generator, size: int) -> Floats:
    """Of each its kind's vector, and of the frequent ones also one of their own: [size, DIM]."""
    kinds = rng.normal(size=(KINDS, DIM)) * (np.arange(DIM) < 3)
    vectors = kinds[rng.integers(0, KINDS, size)]
    vectors[:FREQUENT] += rng.normal(size=(FREQUENT, DIM))
    return vectors


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pq.write_table(tags(options.rows, options.seed), options.out)


if __name__ == "__main__":
    main()
