"""Scores and losses as a Keras model: extractors, pair scores, losses, optimizers, the model and its file.

In: batches and negatives. Out: a `Feat2Vec` model, and its file `model.keras`. Open `keras_model.py` first: how weights
are trained. `loss_model.py` has the loss of a batch, `score_model.py` the score of a row, `vector_model.py` the groups'
vectors.
"""
