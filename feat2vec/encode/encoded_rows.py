"""An encoder as files: the schema as YAML, facts as JSON, vocabularies and values as Parquet. Nothing is executed."""

from __future__ import annotations

import json
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Int64s
from feat2vec.encode.arrays_on_disk import file_name, open_array, read_parquet, write_parquet
from feat2vec.encode.codecs import Codec, ItemsCodec, Tally, check_entries, codec_from_facts
from feat2vec.encode.left_out import LEFT_OUT, LeftOut
from feat2vec.encode.value_tables import Values, open_values, read_values, write_values
from feat2vec.encode.vocabulary import Vocabulary, read_vocabulary
from feat2vec.errors import UserError, in_a_line
from feat2vec.schema.options import Group, Schema
from feat2vec.schema.reading import schema_of
from feat2vec.schema.yaml_text import read_text
from feat2vec.terminal import printable
from feat2vec.writing import discard_temporary
from feat2vec.writing.digests import LARGE_BYTES
from feat2vec.writing.files import JsonObject, read_json

if TYPE_CHECKING:
    from feat2vec.encode.encoder import Encoder


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
    for name, codec in parts.codecs.items():
        parquet_name = f"{file_name(name)}.parquet"
        if codec.vocabulary is not None and parts.schema.owner(name) == name:  # a shared one is written once
            write_parquet(codec.vocabulary.table(parts.schema.model.levels), folder / "vocabulary" / parquet_name)
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
    with _damage_as_user_error(folder):
        return _read_parts(folder)


@contextmanager
def _damage_as_user_error(folder: Path) -> Iterator[None]:
    """Raise a `UserError` in place of what reading damaged files raises."""
    try:
        yield
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
    codecs = _read_codecs(folder, schema, facts["groups"])
    values = ValuesInFiles(folder, codecs)
    for name in schema.groups:
        _check_levels(schema, name, codecs[name].vocabulary)
        values.read_if_small(name)
    classes = None
    if facts["classes"] is not None:
        classes = Vocabulary.from_table(read_vocabulary(folder / "classes.parquet"), 0, facts["classes"])
    return EncoderParts(schema, codecs, values, classes)


class ValuesInFiles(Mapping[str, Values]):
    """The values of each group; those in large files are read, and checked, when they are first asked for.

    Args:
        folder: The encoder's folder.
        codecs: The codec of each group.
        known: The values that are read already.

    """

    def __init__(self, folder: Path, codecs: Mapping[str, Codec], known: dict[str, Values] | None = None) -> None:
        self.folder, self.codecs = folder, codecs
        self.known: dict[str, Values] = {} if known is None else known

    def __iter__(self) -> Iterator[str]:
        return iter(self.codecs)

    def __len__(self) -> int:
        return len(self.codecs)

    def __getitem__(self, name: str) -> Values:
        codec = self.codecs[name]
        if name not in self.known:
            with _damage_as_user_error(self.folder):
                self.known[name] = self._read(name, codec)
        return self.known[name]

    def only(self, groups: Sequence[str]) -> ValuesInFiles:
        """The values of some groups, in this order."""
        return ValuesInFiles(self.folder, {name: self.codecs[name] for name in groups}, self.known)

    def read_if_small(self, name: str) -> None:
        """Read the values of a group now, unless their file is large."""
        if self._path(name).stat().st_size <= LARGE_BYTES:
            self.known[name] = self._read(name, self.codecs[name])

    def _path(self, name: str) -> Path:
        return self.folder / "values" / f"{file_name(name)}.parquet"

    def _read(self, name: str, codec: Codec) -> Values:
        values = read_values(self._path(name), codec.dtype, codec.training_width)
        check_entries(codec, values.entries)
        if values.entries.nbytes > LARGE_BYTES:
            pa.default_memory_pool().release_unused()  # what reading has left, which may be three times as much
        return values


def _read_codecs(folder: Path, schema: Schema, facts: JsonObject) -> dict[str, Codec]:
    """The codec of each group, in the schema's order; one that is shared is read once."""
    of_owners = {name: _read_codec(folder, name, schema.groups[name], facts[name]) for name in schema.owners}
    codecs = {}
    for name, group in schema.groups.items():
        owner = schema.owner(name)
        if owner == name:
            codecs[name] = of_owners[owner]
            continue
        codecs[name] = of_owners[owner].of_columns(group.columns)
        if json.loads(json.dumps(codecs[name].facts())) != facts[name]:
            raise ValueError(f"the groups {name[:60]!r} and {owner[:60]!r} share a codec, and two are written")
    return codecs


def _read_codec(folder: Path, name: str, group: Group, facts: JsonObject) -> Codec:
    keys = None
    if group.extractor.encoding in ("items", "tokens"):
        keys = read_vocabulary(folder / "vocabulary" / f"{file_name(name)}.parquet")
    return codec_from_facts(group, facts, keys)


def _check_levels(schema: Schema, name: str, vocabulary: Vocabulary | None) -> None:
    """Raise a ValueError if keys have levels of their own although the schema has none for them, or the other way."""
    levels = None if vocabulary is None else vocabulary.levels
    if (levels is not None) is not (name in schema.model.level_source.columns):
        raise ValueError("the schema and the encoder differ about levels")
    if levels is not None and levels.max(initial=1) > len(schema.model.levels):
        raise ValueError("the vocabulary has a level that the schema has not")


MOST_SUMMARY_GROUPS = 20  # that have a line of their own in a summary


@dataclass(frozen=True, repr=False)
class Encoded:
    """Rows as value ids, in a folder; `values` hold what the ids stand for.

    The values of rows other than the training rows begin with the training values, of which there are `known`; the
    new ones follow, and have the count 0.
    """

    encoder: Encoder
    folder: Path
    rows: Array  # int32 [rows, groups], -1 where a group is missing
    values: Mapping[str, Values]
    known: Mapping[str, int]
    tallies: Mapping[str, Tally]
    target: Array | None = None  # float32 [rows], or int32 classes
    weight: Array | None = None  # float32 [rows]
    left_out: LeftOut = field(default_factory=LeftOut)  # rows that nothing is learnt from: they have no target

    def __len__(self) -> int:
        """The number of rows, also of those that are left out."""
        return len(self.rows)

    @property
    def learnt_rows(self) -> int:
        """The number of rows that are learnt from, or measured."""
        return len(self.rows) - len(self.left_out)

    @property
    def learnt_target(self) -> Array | None:
        """The targets of the rows that are learnt from, [learnt rows]."""
        return None if self.target is None else self.left_out.all_of(self.target)

    def only(self, places: Int64s) -> Encoded:
        """A few of the rows, in memory.

        Args:
            places: Their numbers.

        """
        target = None if self.target is None else np.asarray(self.target[places])
        weight = None if self.weight is None else np.asarray(self.weight[places])
        return replace(self, rows=np.asarray(self.rows[places]), target=target, weight=weight, left_out=LeftOut())

    def without(self, places: Int64s, path: Path) -> Encoded:
        """The same rows, of which more are left out. Values count without those.

        Args:
            places: The numbers of a few rows, ascending.
            path: A new file for the rows that are left out, if some have been before.

        """
        rows = np.asarray(self.rows[places])  # [places, groups]
        values = {}
        for g, (group, of_group) in enumerate(self.values.items()):
            fewer = np.bincount(rows[:, g][rows[:, g] >= 0], minlength=len(of_group.counts))
            values[group] = replace(of_group, counts=np.asarray(of_group.counts) - fewer)
        return replace(self, values=values, left_out=self.left_out.with_more(places, path))

    def names(self) -> pa.Table | None:
        """The rows' names, from the schema's `id` column; None without one."""
        path = self.folder / "names.parquet"
        return read_parquet(path) if path.exists() else None

    def summary(self) -> str:
        """What was encoded and what the policies did, a line for each group; of many groups for the first ones."""
        groups = list(self.tallies)
        lines = [f"{len(self):,} rows"]
        for group in groups[:MOST_SUMMARY_GROUPS]:
            lines.append(f"{printable(group)}: {self._summary_of([group])}")
        if more_groups := groups[MOST_SUMMARY_GROUPS:]:
            lines.append(f"and {len(more_groups):,} more groups: {self._summary_of(more_groups)}")
        return "\n".join([*lines, *self._lines_of_nothing_shared()])

    def _lines_of_nothing_shared(self) -> Iterator[str]:
        """A line for each group that shares a vocabulary, and has no key of it that its owner has."""
        for name in self.tallies:
            owner, vocabulary = self.encoder.schema.owner(name), self.encoder.codecs[name].vocabulary
            if owner == name or vocabulary is None:
                continue
            counts, of_owner = (self.encoder.key_counts(group) for group in (name, owner))
            if not (counts.any() and of_owner.any()) or (counts.astype(bool) & of_owner.astype(bool)).any():
                continue
            examples = [repr(vocabulary.keys[int(of_keys.argmax())].as_py()) for of_keys in (counts, of_owner)]
            lacks = f"has no key of {owner!r}, whose vectors it shares"
            yield printable(f"note: {name!r} {lacks}: {examples[0]} is in the one, {examples[1]} in the other")

    def _summary_of(self, groups: Sequence[str]) -> str:
        """How many values and keys the groups have together, and how often each policy was applied to them."""
        values = sum(len(self.values[group].entries) for group in groups)
        vocabularies = [self.encoder.codecs[group].vocabulary for group in groups]
        keys_of = {id(vocabulary): len(vocabulary.keys) for vocabulary in vocabularies if vocabulary is not None}
        applied: Counter[str] = Counter()
        for group in groups:
            applied.update(asdict(self.tallies[group]))
        parts = [f"{values:,} values"]
        if keys_of:
            parts.append(f"{sum(keys_of.values()):,} keys")
        parts += [f"{count:,} {policy}" for policy, count in applied.items() if count]
        return ", ".join(parts)


LARGE_KEY_BYTES = 16 << 20  # of a vocabulary that stays in a file while a model is trained
KEYS = "keys"  # the folder of such files


def with_keys_in_files(codecs: Mapping[str, Codec], folder: Path, least_bytes: int | None = None) -> dict[str, Codec]:
    """The same codecs, whose large vocabularies stay in files: training reads ids, and keys when the run is written.

    Args:
        codecs: The codec of each group.
        folder: The folder of the encoded rows, while it is made.
        least_bytes: Of the keys of a vocabulary that is large.

    """
    least_bytes = LARGE_KEY_BYTES if least_bytes is None else least_bytes
    moved_codecs, moved = dict(codecs), dict[int, Vocabulary]()
    for name, codec in codecs.items():
        vocabulary = codec.vocabulary
        if not isinstance(codec, ItemsCodec) or vocabulary is None or vocabulary.keys.nbytes < least_bytes:
            continue
        if id(vocabulary) not in moved:  # groups may share it
            (folder / KEYS).mkdir(exist_ok=True)
            moved[id(vocabulary)] = vocabulary.moved_to(folder / KEYS / f"{file_name(name)}.arrow")
        moved_codecs[name] = replace(codec, vocabulary=moved[id(vocabulary)])
    return moved_codecs


def open_encoded(
    encoder: Encoder, folder: Path, known: Mapping[str, int], tallies: Mapping[str, Tally], *, is_temporary: bool
) -> Encoded:
    """Open the arrays of a folder of encoded rows; a temporary one is removed with them."""
    arrays: dict[str, Array] = {}
    for name in ("rows", "target", "weight"):
        path = folder / f"{name}.npy"
        if path.exists():
            arrays[name] = open_array(path)
    values = {name: open_values(folder, name) for name in encoder.codecs}
    left_out = LeftOut(open_array(folder / LEFT_OUT)) if (folder / LEFT_OUT).exists() else LeftOut()
    encoded = Encoded(
        encoder,
        folder,
        arrays["rows"],
        values,
        known,
        tallies,
        target=arrays.get("target"),
        weight=arrays.get("weight"),
        left_out=left_out,
    )
    if is_temporary:
        weakref.finalize(encoded, discard_temporary, folder)
    return encoded
