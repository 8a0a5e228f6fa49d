"""Scores and losses: extractors, pair scores, optimizers, and the Keras model that holds them.

In: batches and negatives. Out: a `Feat2Vec` model, and its file `model.keras`. Open `keras_model.py` first.
"""
