"""A whole experiment from one YAML file: rows, training, evaluation, baselines, export, tuning.

In: a recipe file. Out: a run folder with `results.json`; tuned values. Open `running.py` first.
"""
