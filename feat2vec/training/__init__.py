"""A schema and a table to a run folder, with checkpoints that resume to the same bytes.

In: a schema, rows, a place. Out: a run folder, which `TrainedRun` reads. Open `train.py` first.
"""
