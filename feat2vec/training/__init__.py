"""A schema and a table to a run folder: fitting, averaging, early stopping, checkpoints that resume to the same bytes.

In: a schema, a source of rows, a place. Out: a run folder, which `run_folder.TrainedRun` reads.
Open `train.py` first, then `fitting.py`; the callbacks (`averaging.py`, `patience.py`, ...) are a file each.
"""
