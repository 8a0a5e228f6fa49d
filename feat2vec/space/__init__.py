"""What a run's model says: vectors of keys and rows, their similarity and search, predictions, Keras models.

In: a `TrainedRun`, and any rows. Out: `Vectors`, files of embedded or predicted rows, Keras models.
`geometry.py` has the formulas, `embed.py` and `predict.py` what is done with rows.
Open `vectors.py` first.
"""
