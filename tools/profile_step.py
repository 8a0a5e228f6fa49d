"""Where a training step's time goes: milliseconds of each kind of TensorFlow operation, summed over threads.

python tools/profile_step.py SCHEMA DATA [--set KEY=VALUE]... > profile.json

Operations run side by side, so they add up to more than a step's time. Those of the input pipeline are among them.
"""

from __future__ import annotations

import argparse
import collections
import json
import tempfile
import time
from pathlib import Path
from typing import Any

EPOCHS = 3


def operations(folder: Path, steps: int) -> dict[str, float]:
    """Milliseconds a step of each kind of operation, from the profiler's file."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(next(folder.rglob("*.xplane.pb")).read_bytes())
    total: collections.Counter[str] = collections.Counter()
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name, _, kind = plane.event_metadata[event.metadata_id].name.rpartition(":")
                if name and not name.endswith(":") and " " not in f"{name}{kind}":  # "path/of/op:Kind"
                    total[kind] += event.duration_ps / 1e9 / steps
    return {kind: round(ms, 2) for kind, ms in total.most_common(20)}


def main() -> None:
    """Print the profile as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schema")
    parser.add_argument("data")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    options = parser.parse_args()
    import tensorflow as tf

    from feat2vec.encode.encoder import fit
    from feat2vec.model.keras_model import Feat2Vec
    from feat2vec.schema.reading import read_schema
    from feat2vec.training.execution import share_cores

    schema = read_schema(options.schema, settings=options.settings)
    share_cores(schema)
    rows = fit(schema, options.data)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.learn_from(rows)
    batches = model.batches(rows, groups_at_once=schema.target is not None)
    model.compile(steps_per_execution=batches.steps_at_once)
    data: dict[str, Any] = {"x": batches.dataset(endless=True), "steps_per_epoch": batches.steps, "verbose": 0}
    model.fit(epochs=1, **data)
    steps = batches.steps * EPOCHS
    start = time.perf_counter()
    model.fit(epochs=EPOCHS, **data)
    seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        model.fit(epochs=EPOCHS, **data)
        tf.profiler.experimental.stop()
        found = operations(Path(folder), steps)
    facts = {"rows_a_step": len(rows) // batches.steps, "ms_a_step": round(seconds / steps * 1e3, 2)}
    print(json.dumps({**facts, "rows_per_second": round(len(rows) * EPOCHS / seconds), "operations": found}, indent=1))


if __name__ == "__main__":
    main()
