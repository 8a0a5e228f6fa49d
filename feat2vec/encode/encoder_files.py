"""An encoder as files: the schema as YAML, facts as JSON, vocabularies and values as Parquet. Nothing is executed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from feat2vec.encode.array_files import file_name
from feat2vec.encode.codecs import Codec, check_entries, codec_from_facts
from feat2vec.encode.distinct_entries import Values, read_values, write_values
from feat2vec.encode.parquet_files import write_parquet
from feat2vec.encode.vocabulary import Vocabulary, read_vocabulary
from feat2vec.errors import UserError, in_a_line
from feat2vec.schema.options import Group, Schema
from feat2vec.schema.reading import schema_of
from feat2vec.schema.yaml_text import read_text
from feat2vec.writing.json_files import read_json

FORMAT = 1


@dataclass(frozen=True)
class EncoderParts:
    """What an encoder is made of, and what its files hold."""

    schema: Schema
    codecs: Mapping[str, Codec]
    values: Mapping[str, Values]  # the distinct entries of the training rows
    classes: Vocabulary | None = None  # of a softmax target


def write_encoder(parts: EncoderParts, folder: Path) -> None:
    """Write the files of an encoder into a folder that exists."""
    (folder / "schema.yaml").write_text(parts.schema.resolved(), encoding="utf-8")
    ranks = parts.schema.model.levels.ranks
    for name, codec in parts.codecs.items():
        parquet_name = f"{file_name(name)}.parquet"
        if codec.vocabulary is not None:
            write_parquet(codec.vocabulary.table(ranks), folder / "vocabulary" / parquet_name)
        write_values(parts.values[name], folder / "values" / parquet_name)
    if parts.classes is not None:
        write_parquet(parts.classes.table((1,)), folder / "classes.parquet")
    facts = {
        "format": FORMAT,
        "groups": {name: codec.facts() for name, codec in parts.codecs.items()},
        "classes": None if parts.classes is None else parts.classes.kind,
    }
    (folder / "encoder.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False), encoding="utf-8")


def read_encoder(folder: Path) -> EncoderParts:
    """Read what `write_encoder` wrote.

    Raises:
        UserError: If the files are damaged, altered, or do not belong together.

    """
    try:
        return _read_parts(folder)
    except (OSError, KeyError, TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise UserError(f"{folder}: holds no encoder that can be read ({in_a_line(error)})") from None


def _read_parts(folder: Path) -> EncoderParts:
    facts = read_json(folder / "encoder.json")
    if facts["format"] != FORMAT:
        received = repr(facts["format"])[:20]
        raise UserError(f"{folder}: was written in format {received}; this feat2vec reads {FORMAT}")
    schema = schema_of(read_text(folder / "schema.yaml"), str(folder / "schema.yaml"))
    if list(schema.groups) != list(facts["groups"]):
        raise ValueError("schema.yaml has other groups than encoder.json")
    if schema.objective.has_classes != (facts["classes"] is not None):
        raise ValueError("schema.yaml has another objective than encoder.json")
    codecs, values = {}, {}
    for name, group in schema.groups.items():
        codecs[name] = _read_codec(folder, name, group, facts["groups"][name])
        values_path = folder / "values" / f"{file_name(name)}.parquet"
        values[name] = read_values(values_path, codecs[name].dtype, codecs[name].training_width)
        check_entries(codecs[name], values[name].entries)
    classes = None
    if facts["classes"] is not None:
        classes = Vocabulary.from_table(read_vocabulary(folder / "classes.parquet"), 0, facts["classes"])
    return EncoderParts(schema, codecs, values, classes)


def _read_codec(folder: Path, name: str, group: Group, facts: Mapping[str, object]) -> Codec:
    keys = None
    if group.extractor.encoding in ("items", "tokens"):
        keys = read_vocabulary(folder / "vocabulary" / f"{file_name(name)}.parquet")
    return codec_from_facts(group, facts, keys)
