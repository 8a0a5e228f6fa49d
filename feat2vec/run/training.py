"""From a table to a run: `init` proposes a schema, `encode_table` encodes rows, `train` and `finetune` write runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from feat2vec.encode.workspace import MEMORY
from feat2vec.errors import UserError, naming_arguments
from feat2vec.run.chosen_measures import chosen_functions
from feat2vec.run.fine_tuning import FineTuning
from feat2vec.run.run import Run, write_and_load
from feat2vec.schema.options import Schema
from feat2vec.training.run_folder import TrainedRun

if TYPE_CHECKING:
    import keras

    from feat2vec.cluster.addresses import Addresses
    from feat2vec.training.fine_tuning_options import HeadType, ObjectiveType

PROPOSED = "proposed.yaml"  # the file of a run whose schema was proposed


def init(data: object, target: str | None = None, *, name: str | None = None) -> str:
    """Profile a table over all of its rows, and write a schema for it, as `feat2vec init` does.

    Args:
        data: The table: a file, a folder, a frame, `dataset:NAME`, ...
        target: A column to predict from the others. Without one, columns are learnt from each other.
        name: The name of the schema; by default it follows from the name of the table.

    Returns:
        The text of a schema with comments. `feat2vec.train` and `read_schema` take it.

    Raises:
        UserError: The table cannot be read, or nothing can be learnt from it.

    >>> text = feat2vec.init(films, target="hit")
    >>> feat2vec.read_schema(text).objective.type
    'logistic'

    """
    from feat2vec.table.propose import propose

    return propose(data, name, target=target)


def train(
    schema: Schema | str | Path | Mapping[str, object] | None,
    data: object,
    out: str | Path | None = None,
    validation: object = None,
    *,
    target: str | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    memory: str = MEMORY,
    cluster: Addresses | None = None,
    sync: bool = False,
) -> Run:
    """Train a schema on a table and write a run.

    While it trains, its checkpoints are in `out.partial`.

    Args:
        schema: A schema, its file, its text, or the same as nested mappings. If it is None, the schema is the one that
            `feat2vec.init` writes for the table; the run keeps it, with its comments, as `proposed.yaml`.
        data: The table: a file, a folder, a frame, `dataset:NAME`, ..., or a folder that `encode_table` wrote, whose
            schema is taken if none is given.
        out: The run's folder; a temporary one, which lives as long as the run, if none is given.
        validation: Rows that the loss is measured on after each epoch. Without them, `training.validation` of the rows
            are held out for that, and learnt again with the others if `training.refit` is true.
        target: Without a schema, the column to predict; a schema has a target of its own.
        settings: Values that replace the schema's, such as "training.epochs=5".
        resume: Go on from the checkpoints of a training that was stopped.
        force: Replace the run that is at `out`.
        quiet: Print nothing.
        callbacks: Keras' own callbacks, of both trainings where rows are held out.
        memory: What encoding may hold, such as "2GB".
        cluster: The processes of a cluster, whose chief this one is; see `feat2vec.cluster.addresses.read_addresses`.
        sync: Whether workers of a cluster compute one step after the other.

    Returns:
        The run.

    Raises:
        UserError: Something is wrong with an argument, the schema or the table.
        FailedError: The loss became infinite, or a file could not be written.

    >>> run = feat2vec.train(schema, films, "runs/again", settings=["model.dim=8"], quiet=True)
    >>> run.metrics["rows"], run.embed(films).shape
    (60, (60, 8))

    """
    from feat2vec.schema.reading import read_schema
    from feat2vec.shards.encoded_folder import EncodedTable
    from feat2vec.training.encoding import source_of_rows
    from feat2vec.training.train import TrainingRequest, train_into

    if schema is not None and target is not None:
        raise UserError("target: is for a training without a schema; remove it, or give the schema a target")
    with naming_arguments():
        rows = source_of_rows(data)
    if isinstance(rows, EncodedTable) and target is not None:
        raise UserError(f"target: {rows.name} is encoded by a schema, which says what is learnt; remove it")

    def write(folder: Path) -> None:
        files: dict[str, bytes] = {}
        if schema is None and isinstance(rows, EncodedTable):
            source: Any = rows.schema_text()
        elif schema is None:
            source = _proposed(data, target, folder, quiet=quiet)
            files[PROPOSED] = source.encode()
        else:
            source = schema.resolved() if isinstance(schema, Schema) else schema
        request = TrainingRequest(
            read_schema(source, settings=settings),
            validation,
            resume=resume,
            force=force,
            quiet=quiet,
            callbacks=tuple(callbacks),
            memory=memory,
            files=files,
            on_chosen=chosen_functions(),
        )
        if cluster is None:
            train_into(folder, request, rows)
            return
        from feat2vec.cluster.training import train_on_cluster

        train_on_cluster(folder, request, rows, cluster.jobs, sync=sync)

    return write_and_load(out, write)


def _proposed(data: object, target: str | None, folder: Path, *, quiet: bool) -> str:
    """The text of a schema for a table; what was chosen is printed."""
    from feat2vec.table.propose import propose_schema
    from feat2vec.table.table import open_table
    from feat2vec.training.reporting import Reporter

    proposal = propose_schema(data, target=target, path=folder / PROPOSED)
    reporter = Reporter(1, 1, quiet=quiet)
    reporter.say(f"{open_table(data).name}: no schema is given; these choices are kept as {PROPOSED} in the run:")
    for line in proposal.choices:
        reporter.say(f"  {line}")
    if proposal.warning is not None:
        reporter.say(f"weak: {proposal.warning}")
    return proposal.text


def encode_table(
    schema: Schema | str | Path | Mapping[str, object],
    data: object,
    out: str | Path,
    *,
    engine: Literal["duckdb", "spark"] = "duckdb",
    settings: Sequence[str] = (),
    resume: bool = False,
    force: bool = False,
    memory: str = MEMORY,
) -> Path:
    """Encode a table into a folder, which trainings start from: shards of rows, vocabularies and value tables.

    While it works, what is finished is in `out.partial`.

    Args:
        schema: A schema, its file, its text, or the same as nested mappings.
        data: The table: a file, a folder, a frame, `dataset:NAME`, ...; for Spark files that all its workers see.
        out: The folder.
        engine: What counts: "duckdb" in this process, or "spark", which needs `pip install 'feat2vec[spark]'` and Java
            17. The session's options are those of Spark: `SPARK_MASTER`, `spark-defaults.conf`. Both write the same
            bytes.
        settings: Values that replace the schema's, such as "groups.title.extractor.min_count=5".
        resume: Go on with what a killed process has left.
        force: Replace the folder of encoded rows that is there.
        memory: What encoding may hold, such as "2GB".

    Returns:
        The folder.

    Raises:
        UserError: Something is wrong with an argument, the schema or the table.
        OSError: A file could not be written.

    >>> folder = feat2vec.encode_table(schema, films, "encoded")
    >>> sorted(path.name for path in folder.iterdir() if path.name != ".feat2vec")
    ['_encoder', '_sample', '_shards', 'manifest.json']

    """
    from feat2vec.evaluation.weakness import ROWS_OF_CONSTANT
    from feat2vec.schema.reading import read_schema
    from feat2vec.training.encoding import EncodingRequest, encode_into, engine_named

    with naming_arguments():
        source: Any = schema.resolved() if isinstance(schema, Schema) else schema
        read = read_schema(source, settings=settings)
        rows = 0 if read.target is None else ROWS_OF_CONSTANT
        with engine_named(engine) as counting:
            request = EncodingRequest(read, counting, resume=resume, force=force, memory=memory, training_rows=rows)
            encode_into(Path(out), request, data)
    return Path(out)


def finetune(
    run: TrainedRun,
    data: object,
    target: str,
    out: str | Path | None = None,
    validation: object = None,
    *,
    head: HeadType = "mlp",
    freeze: bool = False,
    objective: ObjectiveType | None = None,
    groups: Sequence[str] | None = None,
    scratch: bool = True,
    settings: Sequence[str] = (),
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
    memory: str = MEMORY,
    cluster: Addresses | None = None,
    sync: bool = False,
) -> Run:
    """Learn a column of labelled rows from a run's vectors and write a new run, for `predict` and `evaluate`.

    The new run encodes rows as the first one does. Its vectors begin as that one's and stay so with `freeze`; without
    it they stay so for a tenth of the epochs, in which the head learns alone, and then learn at half of the
    rate. The held-out rows choose the epoch. Linear terms, the head and the vectors of classes are new, and
    `item_dropout` is 0.

    If the run's schema has `training.time`, the last of 1,000 to 50,000 labelled rows by that group say how sure
    predictions may be for rows of a time that the run has not seen; "training.time=null" switches it off.

    What the schema of `feat2vec.init` for this target learns from scratch is kept beside it, in the folder `scratch` of
    the new run, and `predict` and `evaluate` give the mean of both: it is seldom worse than the better one. The more
    rows are held out, the more they decide what each counts. If the run was trained on the same rows with the target
    among its groups, its vectors give labels away, and the model from scratch predicts alone. Vectors, explanations
    and Keras models are of the model that began with the run's vectors. Frozen vectors, and the head "fm", predict
    alone.

    Args:
        run: The run to begin with, which stays as it is.
        data: Labelled rows.
        target: The column to predict.
        out: The new run's folder; a temporary one if none is given.
        validation: Rows that the loss is measured on after each epoch; without them some are held out, as in `train`.
        head: What turns vectors into a prediction: "mlp", the network that `feat2vec.init` proposes for a target, or
            "fm", the pairs of vectors.
        freeze: Leave the vectors as they are.
        objective: By default logistic for a target of 0, 1 or booleans, softmax for text, regression for numbers.
        groups: Those to learn from, all if it is None; those that hold the target are left out.
        scratch: Learn from scratch too; it takes about as long again.
        settings: Values that replace the new schema's: "training.epochs=5", "head.hidden=[64]".
        resume: Go on from the checkpoints of a training that was stopped.
        force: Replace the run that is at `out`.
        quiet: Print nothing.
        memory: What encoding may hold, such as "2GB".
        cluster: The processes of a cluster, whose chief this one is, as in `train`; it reads the run as a whole.
        sync: Whether workers of a cluster compute one step after the other.

    Returns:
        The new run.

    Raises:
        UserError: Something is wrong with an argument or the table.
        FailedError: The loss became infinite, or a file could not be written.

    >>> tuned = feat2vec.finetune(run, films, "hit", freeze=True, settings=["training.epochs=1"], quiet=True)
    >>> tuned.schema.objective.type, tuned.predict(films)["probability"].shape
    ('logistic', (60,))

    """
    tuning = FineTuning(
        run,
        data,
        target,
        validation,
        head=head,
        freeze=freeze,
        objective=objective,
        groups=groups,
        scratch=scratch,
        settings=settings,
        resume=resume,
        force=force,
        quiet=quiet,
        memory=memory,
        cluster=cluster,
        sync=sync,
    )
    return write_and_load(out, tuning.write)
