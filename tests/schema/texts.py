"""Texts of schemas, and what reading them gives: what the tests of this room share."""

from __future__ import annotations

from typing import Any

import pytest

from feat2vec.errors import UserError
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import parse_document

EXAMPLE = """\
version: 1
name: movies
id: film                                 # optional: the column that names a row
model:    {dim: 50}
groups:
  director: {column: directors, extractor: {type: lookup, multi: true, max_items: 5}}
  cast:     {column: cast,      extractor: {type: lookup, multi: true, max_items: 10, min_count: 1}}
  title:    {column: title,     extractor: {type: text_cnn, max_tokens: 16, filters: 64, widths: [2, 3, 4]}}
  words:    {column: title,     extractor: {type: lookup, split: words, max_items: 8}}
  rating:   {columns: [score, votes], extractor: {type: numeric, hidden: [50, 50]}}
  image:    {column: vector,    extractor: {type: vector}}         # a pretrained vector, projected
noise:     {alpha_groups: 0.25, alpha_values: 0.75, negatives: 5, sharing: record, joint: [[director, cast]]}
objective: {type: nce}
training:  {epochs: 20, batch_size: 2048, optimizer: {type: adagrad, learning_rate: 0.1}, l2: 0.0, group_dropout: 0.0, \
seed: 0}
"""


BASE = "version: 1\ngroups:\n  a: {column: a}\n  b: {column: b}\n"
EXTRACTOR_DEFAULTS: dict[str, dict[str, Any]] = {
    "lookup": {
        "type": "lookup",
        "gain": 1.0,
        "multi": False,
        "split": None,
        "max_items": 16,
        "min_count": 1,
        "max_size": None,
        "max_share": 1.0,
        "weights": None,
        "bins": None,
        "parts": [],
        "dates": None,
        "combiner": "sum",
        "item_dropout": 0.0,
    },
    "text_cnn": {
        "type": "text_cnn",
        "gain": 1.0,
        "max_tokens": 32,
        "min_count": 1,
        "max_size": None,
        "token_dim": 64,
        "filters": 64,
        "widths": [2, 3, 4],
        "dropout": 0.0,
    },
    "text_attention": {
        "type": "text_attention",
        "gain": 1.0,
        "max_tokens": 32,
        "min_count": 1,
        "max_size": None,
        "token_dim": 64,
        "heads": 4,
        "blocks": 1,
        "units": 128,
        "positions": "sinusoidal",
        "dropout": 0.0,
    },
    "numeric": {
        "type": "numeric",
        "gain": 1.0,
        "scale": "standard",
        "nan": "error",
        "written": None,
        "dates": None,
        "hidden": [],
        "pieces": None,
        "start": "random",
    },
    "vector": {"type": "vector", "gain": 1.0, "start": "random"},
}


def read(text: str) -> Schema:
    """The schema that a text is."""
    return read_schema(parse_document(text))


def problems(text: str) -> list[str]:
    """The messages for a text that is no schema."""
    with pytest.raises(UserError) as caught:
        read(text)
    return list(caught.value.problems)


def cases(block: str) -> list[tuple[str, list[str]]]:
    """A schema's text and, behind `!`, the problems it has."""
    parsed_cases = []
    for case in block.strip().split("\n\n"):
        text, *messages = case.split("\n    ! ")
        parsed_cases.append((text, messages))
    return parsed_cases


def group_text(text: str) -> str:
    """A schema in which this is the group `a`."""
    return f"version: 1\ngroups:\n  b: {{column: b}}\n  a: {{{text}}}\n"
