"""The command line: words to calls. Nothing is imported before the command that needs it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from feat2vec.errors import FailedError, UserError

if TYPE_CHECKING:
    from feat2vec.run import Run


class _Commands(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        """In the order in which they are used."""
        del context
        return list(self.commands)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="feat2vec")
def feat2vec() -> None:
    """One vector space for every column of a table.

    \b
    feat2vec init films.parquet -o films.yaml
    feat2vec check films.yaml --data films.parquet
    """


@feat2vec.command()
@click.argument("data")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Write here instead of standard output.")
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
def init(data: str, out: Path | None, force: bool) -> None:
    """Profile a table and write a commented schema that trains as it is.

    DATA is a file (Parquet, CSV, TSV, JSON lines, Arrow), a folder, a glob, tfds:NAME or dataset:artworks.

    \b
    feat2vec init films.parquet -o films.yaml
    feat2vec init dataset:artworks
    """
    from feat2vec.propose import propose

    if out is not None and out.exists() and not force:
        raise UserError(f"{out}: exists already; choose another name, or add --force to replace it")
    text = propose(data)
    if out is None:
        say(text, end="")
    else:
        out.write_text(text, encoding="utf-8", errors="backslashreplace")
        say(f"{out}: written; next: feat2vec check {out} --data {data}")


@feat2vec.command()
@click.argument("schema", required=False)
@click.option("--data", help="Check the schema against this table: its columns, types and every row.")
@click.option("--resolved", is_flag=True, help="Print the schema with every default filled in.")
@click.option("--json-schema", "as_json_schema", is_flag=True, help="Print the JSON Schema of schemas, for editors.")
def check(schema: str | None, data: str | None, resolved: bool, as_json_schema: bool) -> None:
    """Check a schema, and a table against it. All problems are reported at once.

    \b
    feat2vec check films.yaml
    feat2vec check films.yaml --data films.parquet
    feat2vec check films.yaml --resolved > full.yaml
    feat2vec check --json-schema > feat2vec.schema.json
    """
    from feat2vec.schema import json_schema, read_schema

    if as_json_schema:
        if resolved or data is not None:
            raise click.UsageError("--json-schema stands alone: remove the other options.")
        if schema is not None:
            read_schema(schema)  # its plugins' extractors are part of the JSON Schema
        click.echo(json.dumps(json_schema(), indent=2))
        return
    if schema is None:
        raise click.UsageError("Name a schema: feat2vec check SCHEMA (`feat2vec init DATA` writes one).")
    checked = read_schema(schema)
    if resolved:
        say(checked.resolved(), end="")
    if data is not None:
        from feat2vec.encode import fit

        encoded = fit(checked, data)
        say(f"{schema} fits {data}\n{encoded.summary()}", error=resolved)
    elif not resolved:
        groups = len(checked.groups)
        say(f"{schema}: no problems, {groups} group{'s' * (groups != 1)}, objective {checked.objective.type}")


@feat2vec.command()
@click.argument("schema")
@click.option("--data", required=True, help="The rows to learn from.")
@click.option("--validation", help="Rows to hold out: a loss each epoch, early stopping, the best weights kept.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The run: a folder that is made.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Replace any key of the schema.")
@click.option("--resume", is_flag=True, help="Go on with a run that was interrupted.")
@click.option("--force", is_flag=True, help="Replace the run if it is there.")
@click.option("--quiet", is_flag=True, help="Print nothing.")
@click.option("--memory", default="1GB", show_default=True, help="What encoding may hold before it spills to disk.")
def train(
    schema: str, data: str, validation: str | None, out: Path, settings: tuple[str, ...], resume: bool, force: bool,
    quiet: bool, memory: str,
) -> None:  # fmt: skip
    """Learn a schema's vectors from a table and write them as a run.

    \b
    feat2vec train films.yaml --data films.parquet --out runs/films
    feat2vec train films.yaml --data films.parquet --out runs/films --set training.epochs=50 --force
    """
    _import_tensorflow()
    from feat2vec.trainer import train

    with _interruptible(out):
        run = train(
            schema, data, out, validation, settings=settings, resume=resume, force=force, quiet=quiet, memory=memory
        )
    _trained(run, out, quiet)


@feat2vec.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--data", required=True, help="Labelled rows.")
@click.option("--target", required=True, help="The column to predict.")
@click.option("--validation", help="Labelled rows to hold out: early stopping, the best weights kept.")
@click.option("--head", type=click.Choice(["fm", "mlp"]), default="fm", show_default=True, help="What predicts.")
@click.option("--freeze", is_flag=True, help="Keep the vectors as they are; linear terms, head and classes learn.")
@click.option(
    "--objective", type=click.Choice(["logistic", "regression", "softmax"]),
    help="Default: logistic for 0 and 1 or booleans, softmax for text, regression for numbers.",
)  # fmt: skip
@click.option("--groups", help="Predict from these groups alone, with commas between them; default: all.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The new run: a folder that is made.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Replace any key of the new schema.")
@click.option("--resume", is_flag=True, help="Go on with a run that was interrupted.")
@click.option("--force", is_flag=True, help="Replace the new run if it is there.")
@click.option("--quiet", is_flag=True, help="Print nothing.")
@click.option("--memory", default="1GB", show_default=True, help="What encoding may hold before it spills to disk.")
def finetune(
    run: Path, data: str, target: str, validation: str | None, head: Literal["fm", "mlp"], freeze: bool,
    objective: Literal["logistic", "regression", "softmax"] | None, groups: str | None, out: Path,
    settings: tuple[str, ...], resume: bool, force: bool, quiet: bool, memory: str,
) -> None:  # fmt: skip
    """Learn to predict a column from a run's vectors, and write a run for `predict` and `evaluate --task predict`.

    Rows are encoded as the run encodes them, and its vectors are where learning begins. Groups that hold the target are
    left out.

    \b
    feat2vec finetune runs/films --data labelled.parquet --target decade --out runs/decades
    feat2vec finetune runs/films --data labelled.parquet --target hit --head mlp --freeze --out runs/hits
    feat2vec finetune runs/films --data labelled.parquet --target decade --groups title,plot \
        --set training.optimizer.learning_rate=0.01 --out runs/decades
    feat2vec evaluate runs/decades --data test.parquet --task predict
    """
    _import_tensorflow()
    from feat2vec.run import load
    from feat2vec.tuner import finetune

    with _interruptible(out):
        tuned = finetune(
            load(run), data, target, out, validation, head=head, freeze=freeze, objective=objective,
            groups=_names(groups), settings=settings, resume=resume, force=force, quiet=quiet, memory=memory,
        )  # fmt: skip
    _trained(tuned, out, quiet)


@feat2vec.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--data", required=True, help="Rows that training has not seen.")
@click.option("--task", type=click.Choice(["rank", "nearest", "predict"]), required=True, help="What to measure.")
@click.option("--target", help="rank, nearest: the group to find.")
@click.option("--given", help="rank, nearest: the groups to find it by, with commas between them; default: all others.")
@click.option("--similarity", type=click.Choice(["cosine", "dot"]), help="rank, nearest: default cosine.")
@click.option("--level", type=int, help="predict: the submodel of a level, in a model with ranks; default: the whole.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def evaluate(
    run: Path, data: str, task: str, target: str | None, given: str | None,
    similarity: Literal["cosine", "dot"] | None, level: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Measure a run on rows that it has not seen.

    rank: where a row's true values of the target stand among all, by their similarity with the groups given.
    nearest: a number read off the target's value that is nearest to the groups given, against the row's own.
    predict: the schema's target; log loss and AUC, RMSE and MAE, or accuracy and log loss.

    \b
    feat2vec evaluate runs/films --data test.parquet --task rank --target director --given cast,genre
    feat2vec evaluate runs/films --data test.parquet --task nearest --target year
    feat2vec evaluate runs/apps --data test.parquet --task predict
    """
    _import_tensorflow()
    from feat2vec import evaluate as tasks
    from feat2vec.run import load

    ranking = {"--target": target, "--given": given, "--similarity": similarity}
    others: Mapping[str, object] = ranking if task == "predict" else {"--level": level}
    for option, value in others.items():
        if value is not None:
            raise UserError(f"{option}: is not for --task {task}; remove it")
    if task == "predict":
        facts = tasks.predict(load(run), data, level)
    else:
        if target is None:
            raise UserError(f"--task {task} needs --target, the group to find")
        names = None if given is None else [name.strip() for name in given.split(",")]
        facts = getattr(tasks, task)(load(run), data, target, names, similarity or "cosine")
    if as_json:
        say(json.dumps(facts))
        return
    for name, value in facts.items():
        shown = ", ".join(value) if isinstance(value, list) else f"{value:.4g}" if isinstance(value, float) else value
        say(f"{name:15} {shown}")


@feat2vec.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--data", required=True, help="Any rows: new values, and columns that are not there, are fine.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The Parquet file that is written.")
@click.option("--level", type=int, help="The submodel of a level, in a model with ranks; default: the whole.")
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
def predict(run: Path, data: str, out: Path, level: int | None, force: bool) -> None:
    """Write what a run says of rows, in their order.

    Columns: `id` (if the schema names one that the rows have), and for a logistic objective `score` and `probability`,
    for a regression `prediction`, for a softmax `prediction` (the class), its `probability` and all `probabilities`
    (the classes are in the file's metadata), for glove `prediction` (the count); else `score`.

    \b
    feat2vec predict runs/apps --data new.parquet --out scores.parquet
    """
    _import_tensorflow()
    from feat2vec.run import load

    rows = load(run).predictor(level).write(data, out, force=force)
    say(f"{out}: {rows:,} rows")


@feat2vec.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--data", required=True, help="Any rows: new values, and columns that are not there, are fine.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The Parquet file that is written.")
@click.option("--groups", help="Use these groups alone, with commas between them; default: all.")
@click.option(
    "--level",
    type=int,
    help="The level, of a model with ranks. Default: 1, where every value is; if truncated, the last.",
)
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
def embed(run: Path, data: str, out: Path, groups: str | None, level: int | None, force: bool) -> None:
    """Write the vectors of rows: one for each row and each of its groups.

    Columns: `id` (if the schema names one that the rows have), `row` (the sum of the row's groups), and each group's
    vector, null where the row has none.

    \b
    feat2vec embed runs/films --data new.parquet --out vectors.parquet
    feat2vec embed runs/films --data new.parquet --out vectors.parquet --groups title,plot
    """
    _import_tensorflow()
    from feat2vec.run import load

    names = None if groups is None else [name.strip() for name in groups.split(",")]
    embedder = load(run).embedder(names, level)
    rows = embedder.write(data, out, force=force)
    say(f"{out}: {rows:,} rows, {embedder.dim} dimensions")


@feat2vec.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("group")
@click.argument("value")
@click.option("--to", help="The group to search in; default: the value's own.")
@click.option("-n", "count", type=click.IntRange(min=1), default=10, show_default=True, help="How many to print.")
@click.option(
    "--similarity", type=click.Choice(["cosine", "dot", "score"]), default="cosine", show_default=True,
    help="score is the model's own, biases included.",
)  # fmt: skip
@click.option("--level", type=int, help="In a model with ranks, compare the values that reach this level, there.")
@click.option(
    "--index", type=click.Choice(["exact", "hnsw", "ivf"]), default="exact", show_default=True,
    help="Search by an index, which is made once and kept in the run (10,000 values or more, of one level).",
)  # fmt: skip
@click.option("--data", help="The rows to search in, where GROUP is `row`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def similar(
    run: Path, group: str, value: str, to: str | None, count: int, similarity: Literal["cosine", "dot", "score"],
    level: int | None, index: Literal["exact", "hnsw", "ivf"], data: str | None, as_json: bool,
) -> None:  # fmt: skip
    """The values that are most similar to one.

    GROUP `row` stands for rows as a whole, by the name in the schema's `id` column, unless a group is called so.

    \b
    feat2vec similar runs/films director "Agnès Varda"
    feat2vec similar runs/films director "Agnès Varda" --to cast -n 20
    feat2vec similar runs/films title "the gleaners and i" --to director --similarity score --json
    feat2vec similar runs/films row tt0247380 --data films.parquet
    feat2vec similar runs/films year -- -44
    """
    _import_tensorflow()
    from feat2vec.run import load

    opened = load(run)
    if data is not None and (group != "row" or "row" in opened.schema.groups):
        what = "a group is called 'row', and it wins" if group == "row" else f"{group!r} is no `row`"
        raise UserError(f"--data: is for rows as a whole, but {what}; remove --data, or use run.row_vectors(data)")
    if group == "row" and data is None and "row" not in opened.schema.groups:
        raise UserError("row: a run keeps no rows; name those to search in by --data")
    vectors = opened.vectors(group, level) if data is None else opened.row_vectors(data, level)
    found = vectors.search([value], topn=count, to=to, similarity=similarity, index=index)
    for hit in found if as_json else ():
        say(json.dumps({"group": hit.group, "key": hit.key, "score": hit.score, "count": hit.count}))
    if not as_json:
        say("   score    count  key")
        for hit in found:
            say(f"{hit.score:8.4f} {hit.count:8,}  {hit.key}")


@feat2vec.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--format", "kind", required=True,
    type=click.Choice(["parquet", "npz", "word2vec", "projector", "faiss", "saved_model", "sql"]),
    help="What to write.",
)  # fmt: skip
@click.option("--group", "groups", multiple=True, help="Write this group alone; may be given again. Default: all.")
@click.option(
    "--level",
    type=int,
    help="The level, of a model with ranks. Default: 1, where every value is; if truncated, the whole space.",
)
@click.option("--normalise", is_flag=True, help="Make every vector one of length 1.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The folder that is made.")
@click.option("--force", is_flag=True, help="Replace an earlier export.")
def export(
    run: Path,
    kind: Literal["parquet", "npz", "word2vec", "projector", "faiss", "saved_model", "sql"],
    groups: tuple[str, ...],
    level: int | None,
    normalise: bool,
    out: Path,
    force: bool,
) -> None:
    """Write a run's vectors for other tools: files for each group, and a manifest.json that describes them.

    \b
    parquet      key, vector, count and level: DuckDB, pandas, polars
    npz          the arrays keys, vectors, counts and levels: numpy
    word2vec     text and binary: gensim and others
    projector    what `tensorboard --logdir OUT` shows
    faiss        an index of the vectors at length 1, and the keys of its ids
    saved_model  raw strings and numbers in, vectors out: TensorFlow, without feat2vec
    sql          a script for PostgreSQL with pgvector

    \b
    feat2vec export runs/films --format parquet --out vectors
    feat2vec export runs/films --format word2vec --group director --group cast --out words
    feat2vec export runs/films --format saved_model --normalise --out model
    """
    _import_tensorflow()
    from feat2vec.run import load

    facts = load(run).export(kind, out, groups or None, level=level, normalise=normalise, force=force)
    rows = sum(group.get("rows", 0) for group in facts["groups"].values())
    names = ", ".join(facts["groups"])
    vectors = f"{rows:,} vectors of {facts['dimension']} dimensions" if rows else f"{facts['dimension']} dimensions"
    say(f"{out}: {kind}, {vectors}: {names}")


@feat2vec.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--row", metavar="JSON", help="A row, columns to values; those that are left out are missing.")
@click.option("--data", help="A table that has the row ...")
@click.option("--index", type=int, help="... and the row's number in it, from 1.")
@click.option("--to", metavar="JSON", help="Another row: explain the two rows' similarity, not a score.")
@click.option("--to-index", type=int, help="The same, by its number in --data.")
@click.option("--class", "class_name", help="softmax: the class whose score is explained; default: the likeliest.")
@click.option("--level", type=int, help="With --to, in a model with ranks: the level; default as in `embed`.")
@click.option("--plot", type=click.Path(path_type=Path), help="Write a chart, FILE.svg or FILE.html.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain(
    run: Path, row: str | None, data: str | None, index: int | None, to: str | None, to_index: int | None,
    class_name: str | None, level: int | None, plot: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """A row's score as the sum of its parts: bias, linear terms, pairs of groups, and what an mlp head adds.

    With --to or --to-index: the similarity of two rows (the cosine of their vectors) as the sum of what each pair of
    groups, one of each row, adds to it.

    \b
    feat2vec explain runs/films --row '{"directors": ["Agnès Varda"], "genres": ["Drama"], "year": 1985}'
    feat2vec explain runs/films --data films.parquet --index 17 --plot row.svg
    feat2vec explain runs/films --data films.parquet --index 17 --to-index 42 --json
    feat2vec explain runs/films --row '{"title": "The Gleaners and I"}' --to '{"title": "Faces Places"}'
    """
    if (row is None) == (data is None):
        raise UserError("explain: give the row by --row, or by --data and --index")
    if (data is None) != (index is None):
        raise UserError("--index: says which row of --data; give both or neither")
    if to_index is not None and (data is None or to is not None):
        raise UserError("--to-index: is a row of --data; give --data, and no --to")
    if plot is not None and plot.suffix not in (".svg", ".html"):
        raise UserError(f"--plot: writes .svg or .html; received {plot}")
    if plot is not None and not plot.parent.is_dir():
        raise UserError(f"--plot: there is no folder {plot.parent}; make it first")
    rows, other = (None if text is None else _json_row(name, text) for name, text in (("--row", row), ("--to", to)))
    _import_tensorflow()
    from feat2vec.charts import alone
    from feat2vec.run import load

    found = load(run).explain(
        data if rows is None else rows,
        index=index or 1,
        to=other,
        to_index=to_index,
        class_name=class_name,
        level=level,
    )
    if plot is not None:
        plot.write_text(alone(found.svg()) if plot.suffix == ".svg" else found.page(), encoding="utf-8")
    say(json.dumps(found.facts()) if as_json else found.text())


def _json_row(option: str, text: str) -> dict[str, object]:
    try:
        row = json.loads(text)
    except ValueError as error:
        raise UserError(f"{option}: is no JSON ({error}); received {text[:60]!r}") from None
    if not isinstance(row, dict):
        raise UserError(f'{option}: expected columns and values, such as {{"year": 1985}}; received {text[:60]!r}')
    return row


@feat2vec.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--data", help="Rows: to measure a run that predicts, and for --label.")
@click.option("--label", help="A column of --data: what the vectors say of its classes (Proposition 3.3).")
@click.option("--other", type=click.Path(path_type=Path), help="A run of another seed: how many neighbours stay.")
@click.option("--out", type=click.Path(path_type=Path), default="report.html", show_default=True, help="The page.")
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@click.option("--json", "as_json", is_flag=True, help="Print what the page says as one JSON object.")
def report(
    run: Path, data: str | None, label: str | None, other: Path | None, out: Path, force: bool, as_json: bool
) -> None:
    """Write a page about a run: losses, metrics, norms by frequency, isotropy, levels, neighbours.

    It is one file of HTML, with nothing from elsewhere.

    \b
    feat2vec report runs/films
    feat2vec report runs/films --data films.parquet --label year --other runs/films-seed-1 --out films.html
    """
    _import_tensorflow()
    from feat2vec.report import report
    from feat2vec.run import load

    facts = report(load(run), out, data, label, None if other is None else load(other), force=force)
    if as_json:
        say(json.dumps(facts))
        return
    for one in facts.get("bounds", ()):
        bound = one["bound"]
        say(
            f"{label}: N {one['negatives']}, k {one['k']}: L_un {bound['contrastive']:.4f}, tau {bound['tau']:.4g}, "
            f"bound {bound['bound']:.4f}, mean classifier {bound['mean_classifier']:.4f}"
        )
    for name, shared in facts.get("stability", {}).get("groups", {}).items():
        say(f"{name}: {shared['overlap']:.4f} of the {shared['topn']} nearest neighbours are shared")
    say(f"{out}: written")


@contextmanager
def _interruptible(out: Path) -> Iterator[None]:
    """Training; one that is interrupted says whether it can go on."""
    from feat2vec.run import partial_folder

    try:
        yield
    except KeyboardInterrupt:
        if (partial_folder(out) / "checkpoint.npz").exists():
            say("the checkpoint is kept: --resume goes on with it", error=True)
        raise


def _trained(run: Run, out: Path, quiet: bool) -> None:
    if not quiet:
        metrics = run.metrics
        say(f"{out}: {metrics['parameters']:,} weights, {metrics['seconds']:.1f} s, loss {metrics['loss']:.4f}")


def _names(given: str | None) -> list[str] | None:
    """Groups with commas between them."""
    return None if given is None else [name.strip() for name in given.split(",")]


def _import_tensorflow() -> None:
    """TensorFlow's libraries write of the processor and of missing devices to standard error; nobody asked."""
    sys.stderr.flush()
    errors, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        import tensorflow as tf

        tf.config.list_physical_devices()
    finally:
        os.dup2(errors, 2)
        os.close(errors)
        os.close(nothing)


def say(text: str, *, error: bool = False, end: str = "\n") -> None:
    """Print text; what no encoding can express, such as a file's name of stray bytes, is escaped."""
    click.echo(text.encode("utf-8", "backslashreplace").decode(), err=error, nl=end != "")


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 the user's mistake."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an error, so that folders are cleaned up
    try:
        feat2vec(standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except UserError as error:
        say(str(error), error=True)
        sys.exit(2)
    except FailedError as error:
        say(str(error), error=True)
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        say("interrupted", error=True)
        sys.exit(130)
    except BrokenPipeError:  # `feat2vec init DATA | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        say(f"{error.filename or 'feat2vec'}: {error.strerror or error}", error=True)
        sys.exit(1)
