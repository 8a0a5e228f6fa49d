"""Rows to integers: every group gets a vocabulary, its distinct entries (values), and one value id a row.

In: a `Table` and a `Schema`. Out: a fitted `Encoder`, and `Encoded` rows on disk.
The way of a row: `encoder.py`, one file of `codecs/`, `value_tables.py`; then `sampling/batches.py`.
Open `encoder.py` first.
"""
