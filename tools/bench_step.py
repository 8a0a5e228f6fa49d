"""The cost of a training step against the size of the vocabulary, against Keras, and of RaFM against FM, in one run.

python tools/bench_step.py [--small 10000] [--large 5000000] [--steps 96] [--repeats 3] > step.json

The step runs through `model.fit` with steps_per_execution=16: batch 2048, 5 lookup groups of 4 ids (Zipf), rank 50, 64
shared negatives, the contrastive objective, SparseAdagrad. The peer is the same model on `keras.layers.Embedding` with
`keras.optimizers.Adam`. RaFM has ranks [16, 64, 256] on a vocabulary of which 2 % of the values reach level 3; its time
is compared with what sum_k D_k n(F_k) predicts from the FM of rank 256. Each side runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

GROUPS, IDS, BATCH, ROWS, VALUES = 5, 4, 2048, 2048 * 32, 200_000
RANKS = (16, 64, 256)


def zipf(rng: np.random.Generator, size: int, shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """Indices 0..size-1, the frequent ones first."""
    sums = np.cumsum(1 / np.arange(1, size + 1))
    return np.searchsorted(sums, rng.random(shape) * sums[-1]).astype(np.int32)


def level_sizes(keys: int, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """|F_k|: of the keys, 20 % reach level 2 and 2 % level 3; level 1 has the unseen key as well."""
    return (keys + 1, *(int(keys * share) for share in (0.2, 0.02)))[: len(ranks)]


def build(keys: int, ranks: tuple[int, ...], keras_peer: bool) -> Any:
    """The model and its batches."""
    import keras
    import tensorflow as tf

    from feat2vec.model import extractors
    from feat2vec.model.keras_model import Feat2Vec
    from feat2vec.schema.yaml_text import dump_document

    keras.utils.set_random_seed(0)
    names = [f"g{i}" for i in range(GROUPS)]
    schema = {
        "version": 1,
        "model": {"ranks": list(ranks)},
        "groups": {name: {"column": name, "extractor": {"type": "lookup", "multi": True}} for name in names},
        "noise": {"sharing": "batch", "negatives": 64},
        "objective": "contrastive",
    }
    if keras_peer:
        extractors.LAYERS["lookup"] = embedding_layer()
    model = Feat2Vec(dump_document(schema), {name: (IDS, level_sizes(keys, ranks), False) for name in names})
    model.build()
    rng = np.random.default_rng(0)
    tables = [np.concatenate([np.zeros((1, IDS), np.int32), zipf(rng, keys, (VALUES, IDS)) + 2]) for _ in names]
    rows = rng.integers(0, VALUES, (ROWS, GROUPS)).astype(np.int32)
    model.take_values(tables, [np.bincount(column, minlength=VALUES) for column in rows.T])
    model.compile(keras.optimizers.Adam() if keras_peer else None, steps_per_execution=16)
    held, entries = tf.constant(rows), [tf.constant(table) for table in tables]

    def batch(start: Any) -> Any:
        some = held[start * BATCH : (start + 1) * BATCH]
        return {name: tf.gather(entries[g], some[:, g] + 1) for g, name in enumerate(names)}, some

    return model, tf.data.Dataset.range(ROWS // BATCH).repeat().map(batch).prefetch(2)


def embedding_layer() -> Any:
    """The lookup extractor as Keras users write it."""
    import keras
    import tensorflow as tf

    from feat2vec.model.extractors import Extracted, Extractor
    from feat2vec.model.pair_scores import Level

    class Embedding(Extractor):
        def build(self, input_shape: Any = None) -> None:
            self.table = keras.layers.Embedding(self.shape.sizes[0] + 1, self.dims[0])
            self.table.build(input_shape)
            super().build(None)

        def call(self, entries: Any, training: bool = False, seed: Any = None) -> Any:
            del training, seed
            vectors = tf.reduce_sum(self.table(entries), axis=1)
            return Extracted((Level(vectors),), None, tf.zeros(()))

    return Embedding


def run(side: str, keys: int, steps: int) -> dict[str, float]:
    """Milliseconds a step of one side."""
    ranks = {"feat2vec": (50,), "keras": (50,), "fm": (256,), "rafm": RANKS}[side]
    model, batches = build(keys, ranks, side == "keras")
    warm = 16 if side == "keras" else 32
    model.fit(batches, steps_per_epoch=warm, epochs=1, verbose=0)
    start = time.perf_counter()
    model.fit(batches, steps_per_epoch=steps, epochs=1, verbose=0)
    facts = {"ms": (time.perf_counter() - start) / steps * 1e3}
    facts["parameters"] = model.count_params()
    facts["peak_rss_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return facts


def measure(side: str, keys: int, steps: int, repeats: int) -> dict[str, float]:
    """Medians over processes."""
    command = [sys.executable, __file__, "--side", side, "--keys", str(keys), "--steps", str(steps)]
    runs = []
    for _ in range(repeats):
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: round(statistics.median(one[key] for one in runs), 3) for key in runs[0]}


def predicted(keys: int) -> float:
    """sum_k D_k n(F_k) / (D_m n(F)) of the data that `build` draws."""
    ids = zipf(np.random.default_rng(0), keys, (1_000_000,))
    sizes = (keys, *level_sizes(keys, RANKS)[1:])
    return float(sum(rank * (ids < size).mean() for rank, size in zip(RANKS, sizes, strict=True)) / RANKS[-1])


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=5_000_000)
    parser.add_argument("--rafm-keys", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--keys", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(run(options.side, options.keys, options.steps)))
        return
    small = measure("feat2vec", options.small, options.steps, options.repeats)
    large = measure("feat2vec", options.large, options.steps, options.repeats)
    peer = measure("keras", options.large, 16, 1)
    fm = measure("fm", options.rafm_keys, options.steps, options.repeats)
    rafm = measure("rafm", options.rafm_keys, options.steps, options.repeats)
    share = predicted(options.rafm_keys)
    result: Mapping[str, Any] = {
        "keys": {"small": options.small, "large": options.large, "rafm": options.rafm_keys},
        "feat2vec_small": small,
        "feat2vec_large": large,
        "keras_large": peer,
        "large_over_small": round(large["ms"] / small["ms"], 2),
        "keras_over_feat2vec": round(peer["ms"] / large["ms"], 2),
        "fm_256": fm,
        "rafm": rafm,
        "rafm_over_fm": round(rafm["ms"] / fm["ms"], 3),
        "predicted_rafm_over_fm": round(share, 3),
        "rafm_over_predicted": round(rafm["ms"] / fm["ms"] / share, 3),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
