"""The public face: what reads, trains and tunes runs, and what a `Run` can do, by functions of the rooms above.

In: what a user calls. Out: a `Run`, and what it answers, measures and writes.
Open `run.py` first, then `answers.py`; `training.py` has `train`, `finetune`, `init` and `encode_table`.
"""

from feat2vec.run.chosen_measures import chosen_functions
from feat2vec.run.run import Run, load
from feat2vec.run.training import encode_table, finetune, init, train

__all__ = ["Run", "chosen_functions", "encode_table", "finetune", "init", "load", "train"]
