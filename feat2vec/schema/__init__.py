"""Schemas: what a user asks for, from YAML to frozen options, with every problem of a file at once.

In: a YAML file, text or mapping, and settings such as `training.epochs=5`. Out: a `Schema`, by `read_schema` in
`reading.py`; or a `UserError` with a line for each problem. Open `options.py` first.
"""
