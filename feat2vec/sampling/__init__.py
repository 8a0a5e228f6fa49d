"""Encoded rows to batches, and the noise that they are told apart from.

In: `Encoded` rows. Out: shuffled batches of value ids; negatives drawn by the two-step noise. Open `batches.py` first.
"""
