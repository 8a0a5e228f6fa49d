"""The sources of tables, one module each; `registry.py` lists them.

In: a path, a name or an object. Out: a `TablePart`: column types and a stream of batches. Open `registry.py` first.

A new source is a new module here that registers itself, and a row in `tests/table/sources/test_registry.py`.
"""
