"""A schema from a file, a text or a mapping; and the JSON Schema of schema files.

`read_schema` parses the YAML, applies `--set` settings, imports plugins, and checks everything at once, so that a
user sees every problem of a file together.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from feat2vec.schema.cross_checks import schema_conflicts
from feat2vec.schema.document import Data, Document
from feat2vec.schema.options import RESOLVED_TEXTS, Schema
from feat2vec.schema.validation import Problem, validate
from feat2vec.schema.yaml_edit import with_settings
from feat2vec.schema.yaml_text import dump_document, parse_document, read_document

# Values for required keys that are missing or wrong, so that the rest of the schema can be checked without them.
STAND_INS: Mapping[str, Data] = {"version": 1, "groups": {"?": {"column": "?"}}}


def read_schema(
    source: str | Path | Document | Mapping[str, object], *, plugins: bool = True, settings: Sequence[str] = ()
) -> Schema:
    """Read and check a schema.

    Args:
        source: The path of a YAML file, YAML text of several lines, a parsed document, or a mapping.
        plugins: Whether to import the modules that the schema names under `plugins`, which runs their code. Use False
            for a schema that is not the user's own.
        settings: Values that replace those of the source, such as "training.epochs=5".

    Returns:
        The schema, with a default for each key that is not given.

    Raises:
        UserError: The source cannot be read, or is not a valid schema. The error holds every problem with its line.

    >>> schema = read_schema({"version": 1, "groups": {"film": {"column": "film"}, "cast": {"column": "cast"}}})
    >>> schema.model.dim, schema.objective.type
    (50, 'nce')

    """
    document = with_settings(_to_document(source), settings)
    plugin_problems = list(_load_plugins(document, allowed=plugins))
    schema = validate(document, Schema, schema_conflicts, STAND_INS, plugin_problems)
    RESOLVED_TEXTS.mark_validated(schema)
    return schema


def schema_of(text: str, name: str = "schema") -> Schema:
    """Read a schema from its text, such as `Schema.resolved` writes.

    The text of a schema that is still in use is not parsed again. Plugins that it names have to be imported already.

    Args:
        text: The schema as YAML.
        name: What messages call the text.

    Returns:
        The schema.

    Raises:
        UserError: The text is not a valid schema.

    """
    known_schema = RESOLVED_TEXTS.schema_of(text)
    if known_schema is not None:
        return known_schema
    return read_schema(parse_document(text, name), plugins=False)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a schema file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Schema.model_json_schema()


def _to_document(source: str | Path | Document | Mapping[str, object]) -> Document:
    if isinstance(source, Document):
        return source
    if isinstance(source, Mapping):
        return parse_document(dump_document(source))
    if isinstance(source, str) and "\n" in source:
        return parse_document(source)
    return read_document(source)


def _load_plugins(document: Document, *, allowed: bool) -> Iterator[Problem]:
    """Import the plugins that a document names; yield a problem for each that cannot or may not be imported."""
    names = document.data.get("plugins")
    for i, name in enumerate(names if isinstance(names, list) else ()):
        if not isinstance(name, str) or not name or name in sys.modules:
            continue
        if not allowed:
            yield ("plugins", i), f"would run the code of {name!r}; import it yourself first if you trust it"
            continue
        search_path = list(sys.path)
        sys.path.insert(0, str(Path(document.name).resolve().parent))  # a plugin may lie beside the schema
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:
            remedy = f"; write {name[:-3]!r}" if name.endswith(".py") else ""
            message = " ".join(f"{type(error).__name__}: {error}".split())
            yield ("plugins", i), f"the plugin {name!r} cannot be imported: {message}{remedy}"
        finally:
            sys.path[:] = search_path
