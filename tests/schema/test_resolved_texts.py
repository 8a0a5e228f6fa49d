"""Schemas in use are written and parsed once."""

from __future__ import annotations

import pytest

from feat2vec.schema.document import Document
from feat2vec.schema.reading import read_schema, schema_of
from feat2vec.schema.yaml_text import parse_document
from tests.schema.texts import EXAMPLE


def test_a_schema_in_use_is_written_and_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = read_schema(EXAMPLE)
    text = schema.resolved()
    renamed = schema.model_copy(update={"name": "another"})
    assert "another" in renamed.resolved()
    other_text = text.replace("version: 1", "version:  1")
    assert other_text != text
    parsed: list[str] = []

    def parse(text: str, name: str = "schema") -> Document:
        parsed.append(text)
        return parse_document(text, name)

    monkeypatch.setattr("feat2vec.schema.reading.parse_document", parse)
    monkeypatch.setattr("feat2vec.schema.options.dump_document", lambda _: pytest.fail("written again"))
    assert schema.resolved() is text
    assert schema_of(text) is schema
    assert not parsed
    assert schema_of(other_text) == schema  # any other text, even of the same schema
    assert parsed == [other_text]
    monkeypatch.undo()
    written = renamed.resolved()  # which nobody has checked
    assert schema_of(written) is not renamed
    assert schema_of(written) == renamed
