"""Encoded tables as folders: shards of rows of fixed length with a manifest, that a training starts from.

In: encoded rows, of DuckDB or counted by Spark. Out: a folder, and encoded rows again.
Open `encoded_folder.py` first.
"""
