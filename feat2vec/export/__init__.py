"""Vectors as files of other tools, with a manifest.

In: a model and its encoder. Out: a folder of files. Open `export.py` first.
"""
