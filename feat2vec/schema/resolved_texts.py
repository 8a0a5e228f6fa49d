"""The resolved YAML texts of the schemas in use, so that a schema is written and parsed once.

Writing or parsing a schema with many groups takes about a second, and a training run does either five times.
"""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from feat2vec.schema.validation import Spec

SchemaClass = TypeVar("SchemaClass", bound=Spec)


class ResolvedTexts(Generic[SchemaClass]):
    """A cache from resolved texts to the schemas they came from, and back. It keeps no schema alive."""

    def __init__(self) -> None:
        self._validated: WeakValueDictionary[int, SchemaClass] = WeakValueDictionary()  # by id(schema)
        self._by_text: WeakValueDictionary[str, SchemaClass] = WeakValueDictionary()

    def mark_validated(self, schema: SchemaClass) -> None:
        """Allow a schema to be cached: all checks have passed, so that parsing its text gives an equal schema."""
        self._validated[id(schema)] = schema

    def remember(self, schema: SchemaClass, text: str) -> None:
        """Store a schema's text, unless the schema was made without the checks, such as by `model_copy`."""
        if self._validated.get(id(schema)) is schema:
            self._by_text[text] = schema

    def text_of(self, schema: SchemaClass) -> str | None:
        """Return the stored text of a schema, or None."""
        for text, stored in list(self._by_text.items()):
            if stored is schema:
                return text
        return None

    def schema_of(self, text: str) -> SchemaClass | None:
        """Return the schema in use that was written as this text, or None."""
        return self._by_text.get(text)
