"""A run as a TensorFlow graph that works without feat2vec: what a SavedModel needs.

Raw strings and numbers become the entries that `encode` makes of them. Read `words`, `dates`, `keys`, `numbers`, then
`readers`, which is what reads a group, and `saved_model`.
"""
