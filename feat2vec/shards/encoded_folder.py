"""A folder of encoded rows: its manifest, and what is written into it and read from it.

    manifest.json         what the folder holds: rows, groups, the numbers of a record, shards, digests of all files
    _encoder/             the encoder: schema, vocabularies and value tables, as in a run
    _joint/0.parquet      the distinct tuples of a joint set of groups, and how often each occurs
    _shards/              rows-00000.bin, ...: records of value ids, tuple ids, target and weight
    _left_out.npy         the numbers of the rows without a target, if there are some
    _sample/              some rows as they are in the table, by which a training measures what it has learnt

Nothing in it depends on the engine that made it. Names begin with `_`, so that no file is taken for a table.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Int64s
from feat2vec.encode.arrays_on_disk import ArrayFile, file_name, read_parquet, write_parquet
from feat2vec.encode.codecs import Tally
from feat2vec.encode.encoded_rows import open_encoded, with_keys_in_files
from feat2vec.encode.encoder import Encoded, Encoder
from feat2vec.encode.left_out import LEFT_OUT
from feat2vec.encode.value_tables import Values, open_values
from feat2vec.errors import UserError, in_a_line
from feat2vec.sampling.joint_values import Joint
from feat2vec.schema.extractor_options import ItemsSpec, NumbersSpec, TokensSpec, VectorSpec
from feat2vec.schema.options import Group, Schema
from feat2vec.schema.yaml_text import parse_document
from feat2vec.shards.records import (
    NUMBER_BYTES,
    SHARD_BYTES,
    STORED,
    RecordColumn,
    ShardReader,
    places_of_groups,
    record_columns,
    rows_of_shards,
    shard_name,
    write_shard,
)
from feat2vec.table.table import Table
from feat2vec.table.types import TablePart
from feat2vec.writing import folder_place, new_folder
from feat2vec.writing.digests import PARTS, SEAL, sealed
from feat2vec.writing.files import JsonObject, read_json
from feat2vec.writing.signatures import digest_of

KIND, FORMAT = "encoded rows", 1
MANIFEST = "manifest.json"
ENCODER, SHARDS, JOINT, SAMPLE, PLACES = "_encoder", "_shards", "_joint", "_sample", "_sample/places.npy"
SAMPLE_ROWS, LEFT_OUT_ROWS = "_sample/rows.parquet", "_left_out.npy"
AGAIN = "encode the table again, by feat2vec encode"

# --- what the encoding follows from ---------------------------------------------------------------------------------

WITHOUT_EFFECT = ("version", "name", "plugins", "noise", "head", "training", "objective")  # keys of a schema
VECTORS = (
    *("dim", "scale", "ranks", "bias", "together", "members", "posterior", "dependents", "level_sharing"),
    *("pairs", "activation"),
)  # keys of a model
ENCODING_SPECS = (ItemsSpec, TokensSpec, NumbersSpec, VectorSpec)


def encoding_facts(schema: Schema) -> JsonObject:
    """What of a schema decides how a table is encoded; all else may change before a training starts from the rows.

    Args:
        schema: The schema.

    """
    data: JsonObject = parse_document(schema.resolved()).data
    facts = {key: value for key, value in data.items() if key not in WITHOUT_EFFECT}
    facts["model"] = {key: value for key, value in data["model"].items() if key not in VECTORS}
    if schema.model.level_source.columns:  # whose levels are as many as there are ranks
        facts["model"]["ranks"] = data["model"]["ranks"]
    facts["groups"] = {name: _facts_of_group(group, data["groups"][name]) for name, group in schema.groups.items()}
    objective = schema.objective
    facts["objective"] = {
        "target": schema.target,
        "weight": schema.weight,
        "classes": objective.has_classes,
        "targets": None if schema.target is None else objective.valid_targets,
    }
    return facts


def _facts_of_group(group: Group, data: JsonObject) -> JsonObject:
    """The options of a group that its encoding follows from: those that every extractor of its kind has."""
    spec = group.extractor
    base = next(base for base in ENCODING_SPECS if isinstance(spec, base))
    options = {key: value for key, value in data["extractor"].items() if key in base.model_fields}
    for key in ("type", "gain"):
        options.pop(key, None)
    return {**data, "extractor": {"encoding": spec.encoding, **options}}


# --- writing --------------------------------------------------------------------------------------------------------


def write_parts(folder: Path, encoded: Encoded, joints: Sequence[Joint], shard_bytes: int = SHARD_BYTES) -> None:
    """Write encoder, joint tuples and shards into a folder that exists; shards that are there already are left.

    Args:
        folder: The folder.
        encoded: The rows.
        joints: The joint sets of groups.
        shard_bytes: The size of a shard, about.

    """
    for name in (ENCODER, JOINT):
        shutil.rmtree(folder / name, ignore_errors=True)  # a part of them, of a process that was killed
    (folder / ENCODER).mkdir()
    encoded.encoder.write(folder / ENCODER)
    for i, joint in enumerate(joints):
        members = pa.FixedSizeListArray.from_arrays(pa.array(joint.values().reshape(-1)), len(joint.groups))
        write_parquet(pa.table({"values": members, "count": joint.counts}), folder / JOINT / f"{i}.parquet")
    if len(encoded.left_out):
        shutil.copyfile(encoded.folder / LEFT_OUT, folder / LEFT_OUT_ROWS)
    (folder / SHARDS).mkdir(exist_ok=True)
    width = len(record_columns(encoded, joints))
    for i, rows in enumerate(rows_of_shards(len(encoded), width, shard_bytes)):
        write_shard(folder / SHARDS / shard_name(i), encoded, joints, rows)


def write_sample(folder: Path, rows: pa.Table, places: Int64s) -> None:
    """Write some rows as they are in the table.

    Args:
        folder: The folder.
        rows: The rows, with the columns that the schema names.
        places: Their numbers in the table, ascending, [rows].

    """
    write_parquet(rows, folder / SAMPLE_ROWS)
    np.save(folder / PLACES, places)


def write_manifest(
    folder: Path, encoded: Encoded, joints: Sequence[Joint], table: Table, shard_bytes: int = SHARD_BYTES
) -> None:
    """Write the manifest, once all other files are there.

    Args:
        folder: The folder.
        encoded: The rows.
        joints: The joint sets of groups.
        table: The table that was encoded.
        shard_bytes: The size of a shard, about.

    """
    schema, columns = encoded.encoder.schema, record_columns(encoded, joints)
    groups = {}
    for name, values in encoded.values.items():
        vocabulary = encoded.encoder.codecs[name].vocabulary
        keys = None if vocabulary is None else len(vocabulary.keys)
        groups[name] = {"values": len(values.entries), "keys": keys, "tally": asdict(encoded.tallies[name])}
    names = list(encoded.values)
    facts = {
        "kind": KIND,
        "format": FORMAT,
        "rows": len(encoded),
        "left_out": len(encoded.left_out),
        "encoding": encoding_facts(schema),
        "groups": groups,
        "joint": [
            {"groups": [names[g] for g in joint.groups], "tuples": len(joint.counts), "file": f"{JOINT}/{i}.parquet"}
            for i, joint in enumerate(joints)
        ],
        "record": [column._asdict() for column in columns],
        "record_bytes": len(columns) * NUMBER_BYTES,
        "shards": [
            {"file": f"{SHARDS}/{shard_name(i)}", "rows": len(rows)}
            for i, rows in enumerate(rows_of_shards(len(encoded), len(columns), shard_bytes))
        ],
        "sample": {
            "seed": schema.training.seed,
            "validation": schema.training.validation,
            "time": schema.training.time,
        },
        "table": {"columns": list(table.columns), "typed": table.typed},
    }
    text = json.dumps(sealed(facts, folder), indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


# --- reading --------------------------------------------------------------------------------------------------------


def is_encoded_folder(source: object) -> bool:
    """Whether a source of rows is a folder of encoded rows, or what is left of one.

    Args:
        source: A path, or anything else that is none.

    """
    if not isinstance(source, str | Path) or not (Path(source) / MANIFEST).is_file():
        return False
    with suppress(OSError, ValueError):
        return read_json(Path(source) / MANIFEST).get("kind") == KIND
    return (Path(source) / SHARDS).is_dir()


class EncodedTable(Table):
    """A table of which a folder holds the encoded rows, and some rows as they were.

    Args:
        folder: The folder.

    Raises:
        UserError: The manifest is damaged, or was written by another version.

    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.manifest = folder, _read_manifest(folder)
        try:
            facts = self.manifest["table"]
            types = {str(name): pa.null() for name in facts["columns"]}
            self._check_part(SAMPLE_ROWS)
            self.sample = read_parquet(folder / SAMPLE_ROWS)
            self._check_part(PLACES)
            self.places: Int64s = np.load(folder / PLACES, allow_pickle=False)
        except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise UserError(f"{folder}: cannot be read as encoded rows ({in_a_line(error)}); {AGAIN}") from None
        types |= {field.name: _plain_type(field.type) for field in self.sample.schema}
        super().__init__(str(folder), [TablePart(str(folder), types, self._refuse_to_read, facts["typed"])])
        self.typed = bool(facts["typed"])

    @property
    def files(self) -> list[str]:
        """A file of the folder, by which what would replace the folder is noticed."""
        return [str(self.folder / MANIFEST)]

    def schema_text(self) -> str:
        """The schema that the rows were encoded by, as YAML."""
        self._check_part(f"{ENCODER}/schema.yaml")
        return (self.folder / ENCODER / "schema.yaml").read_text(encoding="utf-8")

    def _refuse_to_read(self, columns: list[str]) -> NoReturn:
        del columns
        raise UserError(f"{self.folder}: holds encoded rows, which `feat2vec train` starts from; give the table itself")

    def refuse_other_sample(self, schema: Schema, *, splits: bool) -> None:
        """Raise if the rows that are kept as they were are not those by which a training measures itself.

        Args:
            schema: The schema of the training.
            splits: Whether it holds out rows of this table.

        Raises:
            UserError: The seed, or what says which rows are held out, is another one.

        """
        kept, training = self.manifest["sample"], schema.training
        if training.seed != kept["seed"] or (splits and training.validation != kept["validation"]):
            raise UserError(
                f"{self.folder} keeps rows for training.seed={kept['seed']} and "
                f"training.validation={kept['validation']:g}; received {training.seed} and {training.validation:g}"
            )
        if splits and training.time != kept.get("time"):
            of_folder, received = _time_in_words(kept.get("time")), _time_in_words(training.time)
            raise UserError(f"{self.folder} keeps rows for {of_folder}; received {received}")

    def rows_at(self, places: Int64s, columns: Sequence[str]) -> pa.Table:
        """Rows as they were in the table.

        Args:
            places: Their numbers in the table, ascending.
            columns: The columns.

        Raises:
            UserError: One of them was not kept.

        """
        kept = np.minimum(np.searchsorted(self.places, places), max(len(self.places) - 1, 0))
        if len(places) and (not len(self.places) or (self.places[kept] != places).any()):
            raise UserError(f"{self.folder}: does not keep all rows that are asked for; {AGAIN}")
        return self.sample.select(list(columns)).take(pa.array(kept))

    def encoded(self, schema: Schema, out: Path | None, different: Callable[[JsonObject, JsonObject], str]) -> Encoded:
        """The rows, as `fit` would have encoded the table.

        Args:
            schema: The schema of a training, which encodes as that of the folder.
            out: A new folder for the arrays of the training; None for a temporary one.
            different: Says how what two schemas encode by differs.

        Raises:
            UserError: The schema encodes in another way, or a file is missing or was changed.

        """
        self.refuse_other_schema(schema, different)
        self._check_all_but_shards()
        encoder = Encoder.load(self.folder / ENCODER)
        codecs = {name: encoder.codecs[name] for name in schema.groups}  # in the order of this schema
        in_order = {name: encoder.values[name] for name in schema.groups}
        encoder = replace(encoder, schema=schema, codecs=codecs, values=in_order)
        columns, shards = self.record(), self.shards()
        try:
            tallies = {name: Tally(**facts["tally"]) for name, facts in self.manifest["groups"].items()}
        except (KeyError, TypeError) as error:
            raise UserError(f"{self.folder}: cannot be read as encoded rows ({in_a_line(error)}); {AGAIN}") from None
        with new_folder(None if out is None else folder_place(out, None)) as folder:
            self._write_arrays(folder, columns, shards, list(schema.groups))
            if (self.folder / LEFT_OUT_ROWS).exists():
                shutil.copyfile(self.folder / LEFT_OUT_ROWS, folder / LEFT_OUT)
            for name, values in encoder.values.items():
                _write_values(folder, name, values)
            encoder = replace(encoder, codecs=with_keys_in_files(encoder.codecs, folder))
        place = folder if out is None else out
        encoder = replace(encoder, values={name: open_values(place, name) for name in encoder.codecs})
        known = {name: len(values.entries) for name, values in encoder.values.items()}
        return open_encoded(encoder, place, known, tallies, is_temporary=out is None)

    def refuse_other_schema(self, schema: Schema, different: Callable[[JsonObject, JsonObject], str]) -> None:
        """Raise if a schema encodes in another way than that of the folder.

        Args:
            schema: The schema of a training.
            different: Says how what two schemas encode by differs.

        Raises:
            UserError: It does.

        """
        before, now = self.manifest["encoding"], json.loads(json.dumps(encoding_facts(schema)))
        if before != now:
            raise UserError(
                f"{self.folder}: was encoded by another schema:", f"  {different(before, now)}", f"  {AGAIN}"
            )

    def record(self) -> list[RecordColumn]:
        """The numbers of a record, in their order."""
        try:
            return [RecordColumn(**column) for column in self.manifest["record"]]
        except (KeyError, TypeError) as error:
            raise UserError(f"{self.folder}: cannot be read as encoded rows ({in_a_line(error)}); {AGAIN}") from None

    def shards(self) -> list[tuple[str, int]]:
        """The name of each shard's file in the folder, and its rows."""
        try:
            return [(str(shard["file"]), int(shard["rows"])) for shard in self.manifest["shards"]]
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{self.folder}: cannot be read as encoded rows ({in_a_line(error)}); {AGAIN}") from None

    def _write_arrays(
        self, folder: Path, columns: list[RecordColumn], shards: list[tuple[str, int]], groups: list[str]
    ) -> None:
        """Write rows.npy, target.npy and weight.npy from the shards, whose digests are compared on the way."""
        group_places = places_of_groups(columns, groups)
        rows_file = ArrayFile(folder / "rows.npy", np.int32, len(groups))
        label_files = {
            place: ArrayFile(folder / f"{column.kind}.npy", np.dtype(column.type))
            for place, column in enumerate(columns)
            if column.kind in ("target", "weight")
        }
        for name, rows in shards:
            path = self.folder / name
            if not path.is_file():
                raise UserError(f"{path}: is missing; copy it again, or {AGAIN}")
            reader, rows_before = ShardReader(path, len(columns)), rows_file.rows
            for block in reader.blocks():
                rows_file.append(block[:, group_places])
                for place, file in label_files.items():
                    file.append(np.ascontiguousarray(block[:, place]).view(STORED[columns[place].type]))
            is_other = reader.digest.hexdigest() != self.manifest[PARTS].get(name)
            if is_other or rows_file.rows - rows_before != rows:
                raise UserError(f"{path}: {_changed(path)}")
        for file in (rows_file, *label_files.values()):
            file.close()

    def _check_all_but_shards(self) -> None:
        for name in self.manifest[PARTS]:
            if not name.startswith(f"{SHARDS}/"):
                self._check_part(name)

    def _check_part(self, name: str) -> None:
        path = self.folder / name
        if not path.is_file():
            raise UserError(f"{path}: is missing; copy it again, or {AGAIN}")
        if digest_of(path) != self.manifest[PARTS].get(name):
            raise UserError(f"{path}: {_changed(path)}")


def _changed(path: Path) -> str:
    return f"is not the file that was encoded into {path.parents[1].name}; copy it again, or {AGAIN}"


def _plain_type(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _write_values(folder: Path, group: str, values: Values) -> None:
    """Write a group's value table and its counts as arrays."""
    name = f"{file_name(group)}.npy"
    entries = ArrayFile(folder / "values" / name, values.entries.dtype, values.entries.shape[1])
    counts = ArrayFile(folder / "counts" / name, np.int64)
    entries.append(values.entries)
    counts.append(values.counts)
    entries.close()
    counts.close()


def read_joint(folder: Path, place: int) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.int32]], Int64s]:
    """The distinct tuples of a joint set, [tuples, members], and how often each occurs, [tuples].

    Args:
        folder: A folder of encoded rows.
        place: The place of the set in `noise.joint`.

    """
    table = read_parquet(folder / JOINT / f"{place}.parquet")
    members = table["values"].combine_chunks()
    width = table.schema.field("values").type.list_size
    return members.flatten().to_numpy().reshape(-1, width), table["count"].to_numpy()


def _time_in_words(time: str | None) -> str:
    return "no training.time" if time is None else f"training.time={time}"


def _read_manifest(folder: Path) -> JsonObject:
    path = folder / MANIFEST
    try:
        manifest = read_json(path)
        if manifest.get("format") != FORMAT:
            received = repr(manifest.get("format"))[:20]
            raise UserError(f"{folder}: was encoded in format {received}; this feat2vec reads {FORMAT}; {AGAIN}")
        unsealed = {key: value for key, value in manifest.items() if key != SEAL}
        digest = hashlib.sha256(json.dumps(unsealed, sort_keys=True).encode()).hexdigest()
        if manifest.get(SEAL) != digest or not isinstance(manifest[PARTS], Mapping):
            raise UserError(f"{path}: was changed after encoding; copy it again, or {AGAIN}")
    except (OSError, KeyError, ValueError, RecursionError) as error:
        raise UserError(f"{folder}: cannot be read as encoded rows ({in_a_line(error)}); {AGAIN}") from None
    return manifest


__all__ = ["EncodedTable", "encoding_facts", "is_encoded_folder", "read_joint", "write_manifest"]
