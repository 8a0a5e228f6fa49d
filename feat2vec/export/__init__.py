"""Vectors as files of other tools: one file of code for each format.

In: a `TrainedRun` and the name of a format. Out: a folder of files with a `manifest.json`.
A new format is one file in `formats/`; `parquet.py` there is the shortest example.
Open `export.py` first.
"""
