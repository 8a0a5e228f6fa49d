"""One module for each kind of source.

In: a path, a frame or a name. Out: a `Part`: column types and a stream of batches. Open `files.py` first.
"""
