"""`encode`: a table to a folder of encoded rows, and a training's rows from such a folder.

What is finished stays in OUT.partial when the process is killed: each stage of the table that is read, each group that
is fitted, the fitted rows, then each shard.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from feat2vec.arrays import Int64s
from feat2vec.encode.codecs import Tally
from feat2vec.encode.columns import check_columns
from feat2vec.encode.encoded_rows import open_encoded, with_keys_in_files
from feat2vec.encode.encoder import Encoded, Encoder, fit
from feat2vec.encode.left_out import LeftOut
from feat2vec.encode.process_memory import release_memory
from feat2vec.encode.targets import no_target
from feat2vec.encode.value_tables import open_values
from feat2vec.encode.workspace import MEMORY, check_memory
from feat2vec.errors import UserError, writing
from feat2vec.sampling.joint_values import Joint, joint_values
from feat2vec.schema.options import Schema
from feat2vec.shards.encoded_folder import (
    MANIFEST,
    EncodedTable,
    encoding_facts,
    is_encoded_folder,
    write_manifest,
    write_parts,
    write_sample,
)
from feat2vec.shards.records import SHARD_BYTES
from feat2vec.table.table import Table, open_table
from feat2vec.training.chosen_model import measured_places, raw_rows, seed_of
from feat2vec.training.fingerprints import first_difference
from feat2vec.training.held_out import held_out_places, split_places, why_none_is_held_out
from feat2vec.writing import new_id, publish_folder, record_files, refuse_inputs_inside
from feat2vec.writing.digests import PARTS
from feat2vec.writing.encoding_folder import (
    ENCODED,
    encoded_place,
    encoding_folder,
    kept_work,
    remove_steps,
    whole_folder,
)
from feat2vec.writing.files import JsonObject, read_json
from feat2vec.writing.folder_marks import MARK, write_mark
from feat2vec.writing.folders import FolderPlace
from feat2vec.writing.training_folder import partial_folder

FITTED, FINISHED, STEPS = "fitted", "encoded", "stages"
LEAST_KEPT_BYTES = 64 << 20  # of the files of a training whose encoding is kept; fewer are encoded in seconds
FitRows = Callable[[Schema, Table, Path, str], Encoded]  # schema, table, folder, memory
CountJoint = Callable[[Encoded, tuple[int, ...]], Joint]


@dataclass(frozen=True)
class Engine:
    """What counts and numbers the values of a table.

    Args:
        fit: Fits an encoder to a table, and encodes its rows into a folder.
        count_joint: Counts the tuples of a joint set of groups.

    """

    fit: FitRows
    count_joint: CountJoint


def _count_joint(encoded: Encoded, groups: tuple[int, ...]) -> Joint:
    return joint_values(encoded.rows, groups, left_out=encoded.left_out)


def _fit_by_duckdb(schema: Schema, table: Table, out: Path, memory: str) -> Encoded:
    """Fit an encoder; stages that are read and groups that are fitted are kept in a folder beside the one above `out`.

    Rows of an object may be others in another process, so that only those of files are gone on with.
    """
    steps = out.parent.parent / STEPS if table.files else None
    return fit(schema, table, out, memory, steps=steps)


DUCKDB = Engine(_fit_by_duckdb, _count_joint)


@contextmanager
def engine_named(name: str) -> Iterator[Engine]:
    """An engine, for as long as it is needed.

    Args:
        name: `duckdb` or `spark`.

    Raises:
        UserError: There is no such engine, or what it needs is not there.

    """
    if name == "duckdb":
        yield DUCKDB
        return
    if name != "spark":
        raise UserError(f"--engine: is duckdb or spark; received {name!r}")
    from feat2vec.shards.spark_fit import SparkEngine
    from feat2vec.shards.spark_session import spark_session

    with spark_session() as session:
        engine = SparkEngine(session)
        yield Engine(engine.fit, engine.count_joint)


@dataclass(frozen=True)
class EncodingRequest:
    """What `feat2vec.encode_table` is asked for, except for the rows and the place.

    Args:
        schema: The schema.
        engine: What counts.
        resume: Go on with what a killed process has left.
        force: Replace the encoded rows that are there.
        memory: What the engine may hold.
        training_rows: How many rows that are not held out are kept as they are in the table.
        shard_bytes: The size of a shard, about.

    """

    schema: Schema
    engine: Engine = DUCKDB
    resume: bool = False
    force: bool = False
    memory: str = MEMORY
    training_rows: int = 0
    shard_bytes: int = SHARD_BYTES


def encode_into(out: Path, request: EncodingRequest, data: object) -> None:
    """Encode a table into the folder `out`: see `feat2vec.encode_table`.

    Args:
        out: The folder.
        request: What is asked for.
        data: The table.

    Raises:
        UserError: Something is wrong with the request, the place or the table.
        OSError: The folder could not be written; what is finished stays.

    """
    check_memory(request.memory)
    place = encoded_place(out, resume=request.resume, force=request.force)
    if place is None:
        _check_finished(out, request.schema)
        return
    table = open_table(data)
    check_columns(request.schema, table)
    refuse_inputs_inside([out, partial_folder(out)], table.files)
    remedy = "make room and add --resume, what is finished is kept"
    plan = {**_plan(request.schema, table), "sizes of shards": request.shard_bytes}
    with encoding_folder(out, plan, resume=request.resume, force=request.force) as work, writing(work, remedy):
        _encode(work, place, request, table)


def _check_finished(out: Path, schema: Schema) -> None:
    """Raise if what is there was encoded by another schema, or is no encoded table."""
    if not is_encoded_folder(out):
        raise UserError(f"{out}: exists, and holds no encoded rows; choose another folder")
    before, now = EncodedTable(out).manifest["encoding"], json.loads(json.dumps(encoding_facts(schema)))
    if before != now:
        raise UserError(f"{out}: was encoded by another schema:", f"  {first_difference(before, now)}", _ANEW)


_ANEW = "  start with --force"


def _plan(schema: Schema, table: Table) -> JsonObject:
    """What an encoding follows from: it may only go on with the same."""
    files = {file: [Path(file).stat().st_size, Path(file).stat().st_mtime_ns] for file in table.files}
    return {"options of the schema": schema.resolved(), "rows": files}


def _encode(work: Path, place: FolderPlace, request: EncodingRequest, table: Table) -> None:
    encoded = _fitted(work / FITTED, request.engine, request.schema, table, request.memory)
    if not encoded.learnt_rows:
        raise no_target(table.name, str(request.schema.target))
    names = list(encoded.values)
    joints = [
        request.engine.count_joint(encoded, tuple(names.index(name) for name in groups))
        for groups in request.schema.noise.joint
    ]
    finished = work / FINISHED
    if not (finished / MARK).exists():
        finished.mkdir(exist_ok=True)
        write_mark(finished, ENCODED, new_id())
    write_parts(finished, encoded, joints, request.shard_bytes)
    places = sample_places(encoded, request.training_rows)
    write_sample(finished, raw_rows(table, encoded, places), places)
    write_manifest(finished, encoded, joints, table, request.shard_bytes)
    digests = read_json(finished / MANIFEST)[PARTS]
    record_files(finished, {name: finished / name for name in (*digests, MANIFEST)}, {**digests})
    publish_folder(finished, place)


def _fitted(folder: Path, engine: Engine, schema: Schema, table: Table, memory: str) -> Encoded:
    """The rows as the engine encodes them; those that a killed process has left whole are read, with their encoder."""
    rows, facts, encoder = folder / "rows", folder / "tallies.json", None
    if not folder.exists():
        with whole_folder(folder) as unfinished:
            encoded = engine.fit(schema, table, unfinished / "rows", memory)
            (unfinished / "encoder").mkdir()
            encoded.encoder.write(unfinished / "encoder")
            tallies = {name: asdict(tally) for name, tally in encoded.tallies.items()}
            (unfinished / facts.name).write_text(json.dumps(tallies), encoding="utf-8")
            encoder = encoded.encoder
            del encoded
    remove_steps(folder.with_name(STEPS))
    if encoder is None:
        encoder = Encoder.load(folder / "encoder")
        encoder = replace(encoder, codecs=with_keys_in_files(encoder.codecs, rows))
    encoder = replace(encoder, values={name: open_values(rows, name) for name in encoder.codecs})
    release_memory()  # what fitting, or reading the keys, has left
    known = {name: len(values.entries) for name, values in encoder.values.items()}
    tallies_read = {name: Tally(**tally) for name, tally in read_json(facts).items()}
    return open_encoded(encoder, rows, known, tallies_read, is_temporary=False)


def rows_of_training(partial: Path, schema: Schema, table: Table, memory: str) -> Encoded:
    """Encode the rows of a training into its work folder. Those of large files go on after a kill, as `encode` does.

    Args:
        partial: The work folder.
        schema: The schema.
        table: The rows.
        memory: What encoding may hold.

    """
    if sum(Path(file).stat().st_size for file in table.files) < LEAST_KEPT_BYTES:
        return fit(schema, table, partial / "rows", memory)
    check_columns(schema, table)
    work = kept_work(partial, _plan(schema, table))
    return _fitted(work / FITTED, DUCKDB, schema, table, memory)


def sample_places(encoded: Encoded, training_rows: int) -> Int64s:
    """The rows that are kept as they are in the table: those by which a training of the schema measures itself.

    Args:
        encoded: All rows.
        training_rows: How many rows that are not held out are kept.

    """
    seed = seed_of(encoded)
    places = [held_out_places(encoded, 1.0, seed, training_rows)]  # of a training with validation rows of their own
    if why_none_is_held_out(encoded) is None:
        held_out, later = split_places(encoded)
        is_left_out = np.union1d(encoded.left_out.places, np.union1d(held_out, later))
        learnt = replace(encoded, left_out=LeftOut(is_left_out))
        places += [measured_places(held_out, seed), measured_places(later, seed)]
        places.append(held_out_places(learnt, 1.0, seed, training_rows))
    return np.unique(np.concatenate(places))


def source_of_rows(data: object) -> object:
    """The source of a training's rows: a folder of encoded rows as an `EncodedTable`, all else as it is."""
    return EncodedTable(Path(str(data))) if is_encoded_folder(data) else data
