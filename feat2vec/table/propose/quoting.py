"""Values as YAML on one line, and names that are easy to type."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from feat2vec.schema.yaml_text import other_reading, scalar_value

LONGEST_NAME_BYTES = 60  # of a group, which becomes the name of a file
LONGEST_SHOWN = 60


def to_yaml(value: object) -> str:
    """Return a value as YAML on one line, so that a comment can follow it.

    >>> to_yaml({"column": "no", "extractor": {"type": "lookup", "max_items": 3}})
    '{column: "no", extractor: {type: lookup, max_items: 3}}'

    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{to_yaml(key)}: {to_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(to_yaml, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    return value if _needs_no_quotes(value) else _quote(value)


def _needs_no_quotes(text: str) -> bool:
    looks_bare = re.fullmatch(r"[^\W\d][\w.-]*( [\w.-]+)*", text) is not None and scalar_value(text) == text
    return looks_bare and other_reading(text) is None


def _quote(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    for char in set(text):
        if not char.isprintable() and ord(char) > 126:  # `json` has escaped the others
            quoted = quoted.replace(char, f"\\U{ord(char):08x}")
    return quoted


def quote_short(text: str) -> str:
    """Return text as YAML, cut if it is long."""
    return to_yaml(text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…")


def readable_name(name: str, default: str = "column") -> str:
    """Return a name that is easy to type, and not too long for the name of a file.

    >>> readable_name("release year (UTC)")
    'release_year_UTC'

    """
    typeable = re.sub(r"[^\w.-]+", "_", name).strip("_.-")
    return typeable.encode()[:LONGEST_NAME_BYTES].decode(errors="ignore") or default
