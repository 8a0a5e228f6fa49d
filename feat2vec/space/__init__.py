"""Vectors of keys, rows and groups: likeness, search, embedding, prediction, Keras models.

In: a `TrainedRun`. Out: `Vectors`, files of embedded or predicted rows, Keras models. Open `vectors.py` first.
"""
