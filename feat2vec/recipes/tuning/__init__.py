"""The best values among a recipe's ranges.

In: a recipe with `tune`. Out: a study folder and the best recipe. Open `trials.py` first.
"""
