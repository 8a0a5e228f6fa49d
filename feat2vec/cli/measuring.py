"""evaluate, compare, explain and report: what a run is worth, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from feat2vec.cli.console import group_names, json_row, say, say_missing_columns, say_text, warn_of_trained_rows
from feat2vec.cli.process import import_tensorflow
from feat2vec.errors import UserError, listed
from feat2vec.evaluation.task_names import TASK_NAMES, TaskName
from feat2vec.space.search_options import RANK_SIMILARITIES, RankSimilarity

if TYPE_CHECKING:
    from feat2vec.pages.explanation_views import Explanation


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--data", required=True, help="Rows that training has not seen.")
@click.option("--task", type=click.Choice(TASK_NAMES), help="Default: predict if the run has a target, else rank.")
@click.option(
    "--target",
    help="rank, nearest: the group to find; default of rank: each lookup group. pairs: the group of the keys.",
)
@click.option("--given", help="rank, nearest: the groups to find it by, with commas; default: all of other columns.")
@click.option(
    "--similarity",
    type=click.Choice(RANK_SIMILARITIES),
    help="rank: default probability, or cosine if the run predicts a target; nearest, pairs: default cosine.",
)
@click.option("--level", type=int, help="predict: the submodel of a level, in a model with ranks; default: the whole.")
@click.option("--beside", metavar="NAMES", help="Others on the same rows, with commas between them: see below.")
@click.option("--train", "train_data", help="The rows that the run was trained on, for --beside.")
@click.option("--matrix", metavar="GROUPS", help="The rows and columns for svd, als and soft_impute: user,film.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def evaluate(
    run: Path,
    data: str,
    task: TaskName | None,
    target: str | None,
    given: str | None,
    similarity: RankSimilarity | None,
    level: int | None,
    beside: str | None,
    train_data: str | None,
    matrix: str | None,
    as_json: bool,
) -> None:
    """Measure a run on rows that it has not seen.

    rank: where a row's true values of the target stand among all, by their probability beside the groups given (as
    `complete` tells it), or by the similarity of vectors.
    nearest: a number read off the target's value that is nearest to the groups given, against the row's own.
    pairs: how similar two keys are, against what people say; --data has two keys and a number in its first columns.
    predict: the schema's target; log loss and AUC, RMSE and MAE, or accuracy and log loss.

    --beside for rank: popularity (the most frequent values), tfidf (the values of the 50 nearest training rows) and pca
    (the same by principal components); for predict: constant, linear, pca_linear (on principal components) and boosting
    (scikit-learn's), and for numbers svd, als and soft_impute, the completion of the matrix whose rows and columns are
    two lookup groups; for pairs: pmi_svd (singular vectors of what keys stand beside in rows). All but popularity learn
    from the rows of --train.

    \b
    feat2vec evaluate runs/films --data test.parquet
    feat2vec evaluate runs/films --data test.parquet --beside popularity,tfidf --train train.parquet
    feat2vec evaluate runs/films --data test.parquet --task rank --target director --given cast,genre
    feat2vec evaluate runs/films --data test.parquet --task nearest --target year
    feat2vec evaluate runs/apps --data test.parquet --task predict
    """
    from feat2vec.evaluation.beside import TaskOptions, evaluate_beside, lines_beside, task_of, warning_of_other_rows
    from feat2vec.run import load

    opened = load(run)
    task = task or task_of(opened)
    if not (opened.reads_scores() if task == "predict" else opened.reads_lookups()):
        import_tensorflow()
    options = TaskOptions(group_names(given), similarity, level)
    names = group_names(beside) or []
    facts = evaluate_beside(opened, data, task, target, names, train_data, options, group_names(matrix))
    if task != "pairs":
        groups = group_names(given)
        say_missing_columns(opened, data, None if groups is None or target is None else [target, *groups])
        warn_of_trained_rows(opened, data)
    if beside is not None and train_data is not None and (warning := warning_of_other_rows(opened, train_data)):
        say(warning, error=True)
    if as_json:
        say(json.dumps(facts))
    elif "groups" in facts or "beside" in facts:
        for line in lines_beside(facts):
            say(line)
    else:
        for name, value in facts.items():
            say(f"{name:15} {_metric_text(value)}")


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("other_run", metavar="RUN2", type=click.Path(path_type=Path))
@click.option("--data", help="Rows that neither has seen, to measure both on.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compare(run: Path, other_run: Path, data: str | None, as_json: bool) -> None:
    """Two runs side by side: settings that differ, metrics, and how many nearest neighbours they share.

    Neighbours are the ten nearest by cosine, among the 1,000 most frequent keys that both runs have.

    \b
    feat2vec compare runs/films runs/films-dim-64 --data test.parquet
    """
    from feat2vec.evaluation.run_comparison import compare_runs, comparison_lines
    from feat2vec.run import load

    opened, other_opened = load(run), load(other_run)
    if not all(part.reads_lookups() for part in (opened, other_opened)):
        import_tensorflow()
    facts = compare_runs(opened, other_opened, data)
    if data is not None:
        for part in (opened, other_opened):
            warn_of_trained_rows(part, data)
    if as_json:
        say(json.dumps(facts))
        return
    for line in comparison_lines(facts):
        say(line)


def _metric_text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return listed(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@click.command()
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
    run: Path,
    row: str | None,
    data: str | None,
    index: int | None,
    to: str | None,
    to_index: int | None,
    class_name: str | None,
    level: int | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """A row's score as the sum of its parts: bias, linear terms, pairs of groups, and what an mlp head adds.

    With --to or --to-index: the similarity of two rows (the cosine of their vectors) as the sum of what each pair of
    groups, one of each row, adds to it.

    \b
    feat2vec explain runs/films --row '{"directors": ["Agnès Varda"], "genres": ["Drama"], "year": 1985}'
    feat2vec explain runs/films --data films.parquet --index 17 --plot row.svg
    feat2vec explain runs/films --data films.parquet --index 17 --to-index 42 --json
    feat2vec explain runs/films --row '{"title": "The Gleaners and I"}' --to '{"title": "Faces Places"}'
    """
    _check_rows_to_explain(row, data, index, to, to_index)
    if plot is not None:
        _check_plot(plot)
    row_values = None if row is None else json_row("--row", row)
    other_row = None if to is None else json_row("--to", to)
    import_tensorflow()
    from feat2vec.run import load

    explanation = load(run).explain(
        data if row_values is None else row_values,
        index=1 if index is None else index,
        to=other_row,
        to_index=to_index,
        class_name=class_name,
        level=level,
    )
    if plot is not None:
        _write_plot(plot, explanation)
    if as_json:
        say(json.dumps(explanation.facts()))
    else:
        say_text(explanation.text())


def _check_rows_to_explain(
    row: str | None, data: str | None, index: int | None, to: str | None, to_index: int | None
) -> None:
    """Raise unless exactly one row is given, and at most one to compare it with."""
    if (row is None) == (data is None):
        raise UserError("explain: give the row by --row, or by --data and --index")
    if (data is None) != (index is None):
        raise UserError("--index: says which row of --data; give both or neither")
    if to_index is not None and (data is None or to is not None):
        raise UserError("--to-index: is a row of --data; give --data, and no --to")


def _check_plot(plot: Path) -> None:
    from feat2vec.writing import file_place

    if plot.suffix not in (".svg", ".html"):
        raise UserError(f"--plot: writes .svg or .html; received {plot}")
    file_place(plot, force=True)


def _write_plot(plot: Path, explanation: Explanation) -> None:
    from feat2vec.pages.charts import alone
    from feat2vec.writing import write_text

    text = alone(explanation.svg()) if plot.suffix == ".svg" else explanation.page()
    write_text(plot, text, force=True)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--data", help="Rows: to measure the run on, or for --label.")
@click.option("--beside", metavar="NAMES", help="Baselines on --data, as in `evaluate`, with commas between them.")
@click.option("--train", "train_data", help="The rows that the run was trained on, for --beside.")
@click.option("--label", help="A column of --data: what the vectors say of its classes, and what theory does.")
@click.option(
    "--other", "other_run", type=click.Path(path_type=Path), help="A run of another seed: how many neighbours stay."
)
@click.option("--out", type=click.Path(path_type=Path), default="report.html", show_default=True, help="The page.")
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@click.option("--json", "as_json", is_flag=True, help="Print what the page says as one JSON object.")
def report(
    run: Path,
    data: str | None,
    beside: str | None,
    train_data: str | None,
    label: str | None,
    other_run: Path | None,
    out: Path,
    force: bool,
    as_json: bool,
) -> None:
    """Write a page about a run: losses, metrics, norms by frequency, isotropy, levels, neighbours.

    It is one file of HTML, with nothing from elsewhere. --label says how well linear classifiers of the vectors tell
    a column's classes, and what the contrastive loss proves of that. With `model.ranks` the page has what each level
    costs and, with --data, what it loses and what theory bounds that by.

    \b
    feat2vec report runs/films
    feat2vec report runs/films --data test.parquet --beside popularity,tfidf --train train.parquet
    feat2vec report runs/films --data films.parquet --label year --other runs/films-seed-1 --out films.html
    """
    import_tensorflow()
    from feat2vec.evaluation.beside import better_of
    from feat2vec.pages.bound_parts import label_sentences
    from feat2vec.pages.charts import number
    from feat2vec.pages.report import report
    from feat2vec.run import load

    opened = load(run)
    loaded_other_run = None if other_run is None else load(other_run)
    names = group_names(beside) or ()
    facts = report(
        opened,
        out,
        data,
        label,
        loaded_other_run,
        beside=names,
        train=train_data,
        force=force,
        say=lambda line: say(line, error=True),
    )
    if {"evaluation", "ranked", "beside"} & set(facts):
        warn_of_trained_rows(opened, data)
    if as_json:
        say(json.dumps(facts))
        return
    for class_bound in facts.get("bounds", ()):
        bound = class_bound["bound"]
        say(
            f"{label}: N {class_bound['negatives']}, k {class_bound['k']}: L_un {bound['contrastive']:.4f}, "
            f"tau {bound['tau']:.4g}, bound {bound['bound']:.4f}, mean classifier {bound['mean_classifier']:.4f}, "
            f"best linear {class_bound['best_linear']:.4f}"
        )
    if "label" in facts:
        for sentence in label_sentences(facts["label"]):
            say(f"{label}: {sentence}")
    for level in facts.get("levels", {}).get("losses", ()):
        measure = facts["levels"]["measure"]
        say(
            f"level {level['level']}: {measure} {number(level['loss'])}, at most {number(level['row_by_row'])} row by "
            f"row, {number(level['bound'])} by theorem S1"
        )
    for name, stability in facts.get("stability", {}).get("groups", {}).items():
        say(f"{name}: {stability['overlap']:.4f} of the {stability['topn']} nearest neighbours are shared")
    for sentence in better_of(facts.get("beside", {})):
        say(sentence)
    say(f"{out}: written")
