"""Rows to integers: a vocabulary, the distinct entries and one value id a row for each group.

In: a `Table` and a `Schema`. Out: a fitted `Encoder`, and `Encoded` rows on disk. Open `encoder.py` first.
"""
