"""train, finetune, run and tune: a table to a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

import click

from feat2vec.cli.cluster import chosen_cluster, cluster_options
from feat2vec.cli.console import group_names, say, say_text
from feat2vec.cli.process import import_tensorflow
from feat2vec.errors import UserError
from feat2vec.training.fine_tuning_options import HEAD_TYPES, OBJECTIVE_TYPES, HeadType, ObjectiveType

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from feat2vec.run import Run
    from feat2vec.training.run_folder import TrainedRun

Command = TypeVar("Command", bound=Callable[..., None])


@contextmanager
def interruptible_training(out: Path) -> Iterator[None]:
    """Within it an interruption says whether the training can be resumed."""
    from feat2vec.writing import CHECKPOINT, can_go_on, partial_folder

    try:
        yield
    except KeyboardInterrupt:
        partial = partial_folder(out)
        if can_go_on(partial):
            kept = "the checkpoint" if (partial / CHECKPOINT).exists() else "what is encoded"
            say(f"{kept} is kept: --resume goes on with it", error=True)
        raise


def say_trained(run: Run, out: Path, quiet: bool) -> None:
    """Print where a new run is, its size and its loss."""
    if not quiet:
        metrics = run.metrics
        say(f"{out}: {metrics['parameters']:,} weights, {metrics['seconds']:.1f} s, {loss_of_predictions(run)}")


def loss_of_predictions(run: TrainedRun) -> str:
    """The loss of what a run predicts, and of which of its models that is, in words.

    A run of `finetune` may predict the mean of two models, or what the one from scratch says alone.
    """
    from feat2vec.space.mixture import ALL_FROM_SCRATCH, EVEN, LOSS_OF_BOTH, SHARE_FROM_SCRATCH

    scratch, metrics = run.from_scratch, run.metrics
    if scratch is None:
        return loss_of_model(run)
    share = float(metrics.get(SHARE_FROM_SCRATCH, EVEN))
    if share == ALL_FROM_SCRATCH:
        return f"predictions from scratch alone: {loss_of_model(scratch)}"
    if LOSS_OF_BOTH in metrics:
        return f"loss {metrics[LOSS_OF_BOTH]:.4f} of the mean of both on held-out rows"
    return f"the mean of two models: from the run's vectors {loss_of_model(run)}; from scratch {loss_of_model(scratch)}"


def loss_of_model(run: TrainedRun) -> str:
    """The loss of a run's own model, on held-out rows if there are some, in words."""
    metrics = run.metrics
    if "held_out" not in metrics:
        return f"loss {metrics['loss']:.4f}"
    kept = f"epoch {metrics['kept_epoch']} of {run.schema.training.epochs}"
    return f"{kept}, loss {metrics['held_out_loss']:.4f} on {metrics['held_out']:,} held-out rows"


class TrainingOptions(TypedDict):
    """The options that `train` and `finetune` share, `--out` apart, as `feat2vec.train` and `finetune` take them."""

    settings: tuple[str, ...]
    resume: bool
    force: bool
    quiet: bool
    memory: str


def training_options(run: str, schema: str) -> Callable[[Command], Command]:
    """A decorator that adds `--out` and the `TrainingOptions` to a command; `run` and `schema` stand in its help."""
    options = (
        click.option(
            "--out", required=True, type=click.Path(path_type=Path), help=f"{run.capitalize()}: a folder that is made."
        ),
        click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=f"Replace any key of {schema}."),
        click.option("--resume", is_flag=True, help="Go on with a run that was interrupted."),
        click.option("--force", is_flag=True, help=f"Replace {run} if it is there."),
        click.option("--quiet", is_flag=True, help="Print nothing."),
        click.option("--memory", default="1GB", show_default=True, help="What encoding may hold; it needs 700MB."),
    )

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command()
@click.argument("schema", required=False)
@click.option("--data", required=True, help="The rows to learn from.")
@click.option("--target", metavar="COLUMN", help="Without SCHEMA: the column to predict, as for init.")
@click.option(
    "--validation",
    help="Rows whose loss stops training and chooses the epoch. Default: a tenth of --data (training.validation).",
)
@training_options(run="the run", schema="the schema")
@cluster_options
def train(
    schema: str | None,
    data: str,
    target: str | None,
    validation: str | None,
    out: Path,
    cluster: bool,
    local_cluster: str | None,
    sync: bool,
    host: str,
    **options: Unpack[TrainingOptions],
) -> None:
    """Learn a schema's vectors from a table and write them as a run.

    Without SCHEMA it is the one that `feat2vec init` writes, which the run keeps with its comments as proposed.yaml.

    Without --validation a tenth of 200 or more rows is held out: training stops when their loss no longer falls, and up
    to 50,000 rows are then learnt again, all of them, for as many epochs. `--set training.validation=0` holds out none,
    `--set training.refit=false` leaves it at the first training. Rows without a target are left out.

    On a cluster, parameter servers hold the tables and workers compute the steps (`feat2vec node`). Exit status 75
    asks for the same command again, with --resume, once the servers are there again.

    \b
    feat2vec train --data films.parquet --out runs/films
    feat2vec train --data films.parquet --target rating --out runs/rating
    feat2vec train films.yaml --data films.parquet --out runs/films
    feat2vec train films.yaml --data films.parquet --out runs/films --set training.epochs=50 --force
    feat2vec train films.yaml --data films-encoded --out runs/films --local-cluster 2x2
    """
    if schema is not None and target is not None:
        raise click.UsageError("--target is for a training without SCHEMA; remove one of them.")
    with chosen_cluster(cluster=cluster, local_cluster=local_cluster, sync=sync, host=host) as addresses:
        import_tensorflow()
        from feat2vec.run import train

        with interruptible_training(out):
            run = train(schema, data, out, validation, target=target, cluster=addresses, sync=sync, **options)
    say_trained(run, out, options["quiet"])


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--data", required=True, help="Labelled rows.")
@click.option("--target", required=True, help="The column to predict.")
@click.option(
    "--validation",
    help="Labelled rows whose loss chooses the epoch. Default: a tenth of --data (training.validation).",
)
@click.option("--head", type=click.Choice(HEAD_TYPES), default="mlp", show_default=True, help="What predicts.")
@click.option("--freeze", is_flag=True, help="Keep the vectors as they are; linear terms, head and classes learn.")
@click.option(
    "--objective",
    type=click.Choice(OBJECTIVE_TYPES),
    help="Default: logistic for 0 and 1 or booleans, softmax for text, regression for numbers.",
)
@click.option("--groups", help="Predict from these groups alone, with commas between them; default: all.")
@click.option(
    "--scratch/--no-scratch",
    default=True,
    show_default=True,
    help="Predict the mean with what the schema of `init --target` learns from scratch.",
)
@training_options(run="the new run", schema="the new schema")
@cluster_options
def finetune(
    run: Path,
    data: str,
    target: str,
    validation: str | None,
    head: HeadType,
    freeze: bool,
    objective: ObjectiveType | None,
    groups: str | None,
    scratch: bool,
    out: Path,
    cluster: bool,
    local_cluster: str | None,
    sync: bool,
    host: str,
    **options: Unpack[TrainingOptions],
) -> None:
    """Learn to predict a column from a run's vectors, and write a run for `predict` and `evaluate --task predict`.

    Rows are encoded as the run encodes them, and its vectors are where learning begins: first the head learns alone,
    then the vectors too, at half of the rate. Groups that hold the target are left out.

    If the run has a group `training.time`, the last of 1,000 to 50,000 labelled rows by it say how sure predictions for
    later rows may be, as after `init --target`; `--set training.time=null` switches it off.

    The same target is then learnt from scratch, by the schema of `init --target`, and predictions are the mean of both:
    held-out rows say how much each counts, the more of them the more. It takes about as long again; `--no-scratch`
    leaves it out, and with --freeze or `--head fm` there is none. A cluster computes steps as those of `train`.

    \b
    feat2vec finetune runs/films --data labelled.parquet --target decade --out runs/decades
    feat2vec finetune runs/films --data labelled.parquet --target hit --head fm --freeze --out runs/hits
    feat2vec finetune runs/films --data labelled.parquet --target decade --groups title,plot \
        --set training.optimizer.learning_rate=0.01 --out runs/decades
    feat2vec evaluate runs/decades --data test.parquet --task predict
    """
    import_tensorflow()
    from feat2vec.run import finetune, load

    with (
        chosen_cluster(cluster=cluster, local_cluster=local_cluster, sync=sync, host=host) as addresses,
        interruptible_training(out),
    ):
        tuned = finetune(
            load(run),
            data,
            target,
            out,
            validation,
            head=head,
            freeze=freeze,
            objective=objective,
            groups=group_names(groups),
            scratch=scratch,
            cluster=addresses,
            sync=sync,
            **options,
        )
    say_trained(tuned, out, options["quiet"])


@click.command()
@click.argument("recipe")
@click.option("--data", multiple=True, metavar="[NAME=]SOURCE", help="A table that the recipe asks for.")
@click.option("--out", type=click.Path(path_type=Path), help="The run: a folder that is made. Default: runs/NAME.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Replace any key of the recipe's schema.")
@click.option("--rows", type=click.IntRange(min=1), help="A first try: at most so many rows, and nothing is expected.")
@click.option("--resume", is_flag=True, help="Go on with a run that was interrupted.")
@click.option("--force", is_flag=True, help="Replace the run if it is there.")
@click.option("--quiet", is_flag=True, help="Print nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON object, and nothing else.")
def run(
    recipe: str,
    data: tuple[str, ...],
    out: Path | None,
    settings: tuple[str, ...],
    rows: int | None,
    resume: bool,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run a recipe: rows, schema, training, evaluation, export, and what is expected, from one YAML file.

    Exits with 1 if something is not as the recipe expects, and says by how much.

    \b
    feat2vec run recipes/artworks.yaml
    feat2vec run recipes/films.yaml --data films.parquet --out runs/films
    feat2vec run recipes/flights.yaml --rows 5000 --set training.epochs=1 --force
    """
    from feat2vec.recipes.reading import read_recipe

    name = read_recipe(recipe, settings)[0].name  # what is wrong with it is said before TensorFlow is there
    import_tensorflow()
    from feat2vec.recipes.running import MissedError, run_recipe

    with interruptible_training(out or Path("runs", name)):
        try:
            facts = run_recipe(
                recipe,
                out,
                data,
                settings=settings,
                rows=rows,
                resume=resume,
                force=force,
                quiet=quiet or as_json,
                print_lines=say_text,
            )
        except MissedError as error:
            if as_json:
                say(json.dumps(error.results))
            raise
    if as_json:
        say(json.dumps(facts))


TRIALS = 20  # of a schema, if nothing else is asked for


@click.command()
@click.argument("recipe", metavar="SCHEMA|RECIPE")
@click.option(
    "--trials", type=click.IntRange(min=1), help=f"How many, with those of earlier calls; a schema's: {TRIALS}."
)
@click.option("--data", multiple=True, metavar="[NAME=]SOURCE", help="The table; of a recipe, one that it asks for.")
@click.option("--target", help="A schema that predicts: its target, by whose loss trials are judged.")
@click.option("--for", "group", help="Another schema: the group to rank. Default: all lookup groups.")
@click.option("--out", type=click.Path(path_type=Path), help="The study: a folder. Default: runs/NAME-tune.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Replace a key that is not tuned.")
@click.option("--rows", type=click.IntRange(min=1), help="A first try: at most so many rows.")
@click.option("--force", is_flag=True, help="Start anew if the study is there.")
@click.option("--quiet", is_flag=True, help="Print nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON object, and nothing else.")
def tune(
    recipe: str,
    trials: int | None,
    data: tuple[str, ...],
    target: str | None,
    group: str | None,
    out: Path | None,
    settings: tuple[str, ...],
    rows: int | None,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Try values around those of a schema, judged on rows that are held out, and write the best schema.

    The first trial is the schema itself. Trials are judged by the mean reciprocal rank of --for or of all lookup
    groups, or by the loss of the schema's target. A recipe with `tune.ranges` says itself what is tried, and on what it
    is judged; its test part is never looked at.

    Called again, it goes on: trials that ended are kept, one that was interrupted is tried again. Trials that are worse
    than most are pruned. Needs Optuna: pip install 'feat2vec[tune]'.

    \b
    feat2vec tune films.yaml --data train.parquet
    feat2vec tune films.yaml --data train.parquet --for director --trials 40
    feat2vec train runs/films-tune/best.yaml --data train.parquet --out runs/films
    \b
    tune:                                                      # in a recipe
      ranges:
        training.optimizer.learning_rate: {log: [0.01, 1]}     # or uniform, for numbers
        model.dim: {integer: [16, 128]}
        noise.negatives: {choice: [64, 256]}
      measure: {task: rank, target: artist, metric: mpr}       # default: the validation loss
    \b
    feat2vec tune recipes/artworks.yaml --trials 20
    feat2vec run runs/artworks-tune/best.yaml
    """
    from feat2vec.recipes.tuning.plan import is_schema

    of_schema = is_schema(Path(recipe))
    if not of_schema:
        _check_recipe_options(trials, target, group)
    import_tensorflow()
    from feat2vec.recipes.tuning.trials import StudyOptions, tune, tune_schema

    options = StudyOptions(settings, rows, force=force, quiet=quiet or as_json, print_lines=say_text)
    try:
        if of_schema:
            facts = tune_schema(recipe, trials or TRIALS, data, out, target=target, group=group, options=options)
        else:
            facts = tune(recipe, trials or TRIALS, out, data, **options._asdict())
    except KeyboardInterrupt:
        say("the trials that ended are kept: the same command goes on", error=True)
        raise
    if as_json:
        say(json.dumps(facts))


def _check_recipe_options(trials: int | None, target: str | None, group: str | None) -> None:
    """Raise for what is asked of a schema alone, and for what a recipe needs."""
    for option, value in (("--target", target), ("--for", group)):
        if value is not None:
            raise UserError(f"{option}: is for a schema; a recipe says by `tune.measure` what is tuned")
    if trials is None:
        raise click.UsageError("Missing option '--trials'.")
