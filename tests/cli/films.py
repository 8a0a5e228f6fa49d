"""A small table and its schema."""

from __future__ import annotations

SCHEMA = """\
version: 1
name: films
groups:
  director: {column: director, extractor: lookup}
  cast:     {column: cast, extractor: {type: lookup, split: "|"}}
  score:    {column: score, extractor: numeric}
"""
CSV = "director,cast,score\nAna,x|y,1.5\nBo,y,2\nAna,,3\nCy,x,\n"
