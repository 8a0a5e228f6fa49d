"""The commands predict, embed, similar and export: what is done with a trained run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from feat2vec.cli.console import group_names, name_on_a_line, say, say_missing_columns, warn_of_trained_rows
from feat2vec.cli.process import import_tensorflow
from feat2vec.errors import UserError, listed
from feat2vec.export.formats import FORMATS, FormatName
from feat2vec.space.search_options import INDEX_KINDS, SIMILARITIES, IndexKind, Similarity

if TYPE_CHECKING:
    from feat2vec.space.fold_in import FoldedIn


@click.command()
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
    from feat2vec.run import load

    opened = load(run)
    if not opened.reads_scores():
        import_tensorflow()
    rows = opened.predictor(level).write(data, out, force=force)
    say_missing_columns(opened, data)
    warn_of_trained_rows(opened, data)
    say(f"{out}: {rows:,} rows")


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--data", required=True, help="Any rows: new values, and columns that are not there, are fine.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The Parquet file that is written.")
@click.option("--groups", help="Use these groups alone, with commas between them; default: all.")
@click.option(
    "--level",
    type=int,
    help="The level, of a model with ranks. Default: 1, where every value is; if truncated, the last.",
)
@click.option(
    "--fold-in",
    multiple=True,
    metavar="GROUP",
    help="Solve --data for vectors of the values that GROUP has not seen; may be given again.",
)
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
def embed(
    run: Path, data: str, out: Path, groups: str | None, level: int | None, fold_in: tuple[str, ...], force: bool
) -> None:
    """Write the vectors of rows: one for each row and each of its groups.

    Columns: `id` (if the schema names one that the rows have), `row` (the sum of the row's groups), and each group's
    vector, null where the row has none.

    With --fold-in director, a director that training has not seen gets the vector that solves its own rows of --data
    by the run's objective, with all else held. If the run has a target, --data has to have it.

    \b
    feat2vec embed runs/films --data new.parquet --out vectors.parquet
    feat2vec embed runs/films --data new.parquet --out vectors.parquet --fold-in director
    feat2vec embed runs/films --data new.parquet --out vectors.parquet --groups title,plot
    """
    from feat2vec.run import load

    opened, names = load(run), group_names(groups)
    if not opened.reads_lookups(None if fold_in else names):
        import_tensorflow()
    folded: Sequence[FoldedIn] = ()
    if fold_in:
        from feat2vec.space.fold_in import fold_in_groups

        folded = fold_in_groups(opened, data, fold_in)
    embedder = opened.embedder(names, level, folded)
    rows = embedder.write(data, out, force=force)
    say_missing_columns(opened, data, names)
    new_values = [f", {len(of_group.keys):,} new values of {of_group.group} folded in" for of_group in folded]
    say(f"{out}: {rows:,} rows, {embedder.dim} dimensions{''.join(new_values)}")


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("group")
@click.argument("value")
@click.option("--to", help="The group to search in; default: the value's own.")
@click.option("-n", "count", type=click.IntRange(min=1), default=10, show_default=True, help="How many to print.")
@click.option(
    "--similarity",
    type=click.Choice(SIMILARITIES),
    default="cosine",
    show_default=True,
    help="score is the model's own, biases included.",
)
@click.option("--level", type=int, help="In a model with ranks, compare the values that reach this level, there.")
@click.option(
    "--index",
    type=click.Choice(INDEX_KINDS),
    default="exact",
    show_default=True,
    help="Search by an index, which is made once and kept in the run (10,000 values or more, of one level).",
)
@click.option("--data", help="The rows to search in, where GROUP is `row`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def similar(
    run: Path,
    group: str,
    value: str,
    to: str | None,
    count: int,
    similarity: Similarity,
    level: int | None,
    index: IndexKind,
    data: str | None,
    as_json: bool,
) -> None:
    """The values that are most similar to one.

    GROUP `row` stands for rows as a whole, by the name in the schema's `id` column, unless a group is called so.

    \b
    feat2vec similar runs/films director "Agnès Varda"
    feat2vec similar runs/films director "Agnès Varda" --to cast -n 20
    feat2vec similar runs/films title "the gleaners and i" --to director --similarity score --json
    feat2vec similar runs/films row tt0247380 --data films.parquet
    feat2vec similar runs/films year -- -44
    """
    from feat2vec.run import load

    opened = load(run)
    schema_groups = opened.schema.groups
    extractors = {schema_groups[name].extractor.type for name in (group, to) if name in schema_groups}
    if data is not None or extractors - {"lookup"}:
        import_tensorflow()  # a lookup's vectors are read without it
    if data is not None and (group != "row" or "row" in schema_groups):
        conflict = "a group is called 'row', and it wins" if group == "row" else f"{group!r} is no `row`"
        raise UserError(f"--data: is for rows as a whole, but {conflict}; remove --data, or use run.row_vectors(data)")
    if group == "row" and data is None and "row" not in schema_groups:
        raise UserError("row: a run keeps no rows; name those to search in by --data")
    vectors = opened.vectors(group, level) if data is None else opened.row_vectors(data, level)
    hits = vectors.search([value], topn=count, to=to, similarity=similarity, index=index)
    if as_json:
        for hit in hits:
            say(json.dumps({"group": hit.group, "key": hit.key, "score": hit.score, "count": hit.count}))
    else:
        say("   score    count  key")
        for hit in hits:
            say(f"{hit.score:8.4f} {hit.count:8,}  {name_on_a_line(hit.key)}")


_SUMMARIES = "\n".join(f"{name:11}  {export_format.summary}" for name, export_format in FORMATS.items())
EXPORT_HELP = f"""Write a run's vectors for other tools: files for each group, and a manifest.json that describes them.

\b
{_SUMMARIES}

\b
feat2vec export runs/films --format parquet --out vectors
feat2vec export runs/films --format word2vec --group director --group cast --out words
feat2vec export runs/films --format saved_model --normalise --out model
"""


@click.command(help=EXPORT_HELP)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--format", "kind", required=True, type=click.Choice(list(FORMATS)), help="What to write.")
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
    kind: FormatName,
    groups: tuple[str, ...],
    level: int | None,
    normalise: bool,
    out: Path,
    force: bool,
) -> None:
    """Write a run's vectors for other tools."""
    from feat2vec.run import load

    opened = load(run)
    if kind == "saved_model" or not opened.reads_lookups(groups or None):
        import_tensorflow()
    facts = opened.export(kind, out, groups or None, level=level, normalise=normalise, force=force)
    rows = sum(group.get("rows", 0) for group in facts["groups"].values())
    vectors = f"{rows:,} vectors of {facts['dimension']} dimensions" if rows else f"{facts['dimension']} dimensions"
    say(f"{out}: {kind}, {vectors}: {listed(facts['groups'])}")
    without_vector = {name: group.get("without_vector", 0) for name, group in facts["groups"].items()}
    zeros = [f"{keys:,} of {name}" for name, keys in without_vector.items() if keys]
    if zeros:
        say(f"keys without a vector, which are zeros: {listed(zeros)}")
