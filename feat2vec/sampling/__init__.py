"""Encoded rows to batches, and the noise that training tells them apart from.

In: `Encoded` rows. Out: shuffled batches of value ids with their entries; negatives drawn by the two-step noise.
The noise replaces a unit of a row, drawn by Q1, by other values of it, drawn by Q2.
Open `batches.py` first.
"""
