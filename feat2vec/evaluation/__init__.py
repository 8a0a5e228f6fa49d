"""How good a run is: ranks, neighbours, pairs, predictions, and the shape of its space.

In: a `TrainedRun` and rows. Out: metrics as plain numbers. Open `tasks.py` first: it lists the tasks, each of which is
a function of its own module.
"""
