"""split, init and check: a table to parts, a table to a schema, a schema against a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click

from feat2vec.cli.console import say, say_text
from feat2vec.errors import listed


class _ListsSources(click.Command):
    """A command whose help lists what DATA can be; the sources are imported only for that."""

    def format_help_text(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        from feat2vec.table.sources.registry import describe_names

        self.help = (self.help or "").replace("SOURCES", describe_names())
        super().format_help_text(context, formatter)


@click.command()
@click.argument("data")
@click.option("--test", type=float, default=0.2, show_default=True, help="The share of the rows to measure on.")
@click.option("--by", help="A column of dates or numbers: the latest rows are the test part. Default: at random.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random draw.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The folder that is made.")
@click.option("--force", is_flag=True, help="Replace an earlier split.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def split(data: str, test: float, by: str | None, seed: int, out: Path, force: bool, as_json: bool) -> None:
    """Write a table's rows as two Parquet files: train.parquet to learn from, test.parquet to measure on.

    Rows of one value of --by stay on one side; rows without a value are training rows. feat2vec reads the parts of a
    CSV as it reads the CSV; for other programs they have numbers where no letter of the text is lost by that.

    \b
    feat2vec split films.csv --out parts
    feat2vec split films.csv --test 0.1 --by year --out parts
    """
    from feat2vec.table.split import write_split

    parts = write_split(data, out, test, by, seed, force=force)
    command = f"feat2vec init {parts.train} -o schema.yaml"
    if as_json:
        facts = {key: str(value) if isinstance(value, Path) else value for key, value in vars(parts).items()}
        say(json.dumps({**facts, "next": command}))
        return
    without = f", {parts.without_value:,} of them without a value of {by}" if parts.without_value else ""
    since = "" if parts.first_test_value is None else f", from {by} {parts.first_test_value} on"
    say(f"{parts.train}: {parts.train_rows:,} rows{without}")
    say(f"{parts.test}: {parts.test_rows:,} rows{since}")
    if parts.left_out:
        say(f"left out, as they cannot be written to Parquet: {listed(parts.left_out)}")
    say(f"next: {command}")


@click.command(cls=_ListsSources)
@click.argument("data")
@click.option("--target", metavar="COLUMN", help="Predict this column; without it, columns are learnt from each other.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Write here instead of standard output.")
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
def init(data: str, target: str | None, out: Path | None, force: bool) -> None:
    """Profile a table and write a commented schema that trains as it is.

    DATA is SOURCES. With --target, the schema learns to predict that column: a probability for two values or for each
    of some categories, a number for numbers. Columns that tell the same as the target are left out.

    \b
    feat2vec init films.parquet -o films.yaml
    feat2vec init films.parquet --target rating -o rating.yaml
    feat2vec init dataset:artworks
    """
    from feat2vec.table.propose import propose_schema
    from feat2vec.table.table import open_table
    from feat2vec.writing import file_place, refuse_inputs_inside, write_text

    if out is None:
        say_text(propose_schema(data, target=target).text)
        return
    file_place(out, force=force)
    refuse_inputs_inside([out], open_table(data).files)
    proposal = propose_schema(data, target=target, path=out)
    write_text(out, proposal.text, force=force)
    if proposal.warning is not None:
        say(f"weak: {proposal.warning}", error=True)
    say(f"{out}: written; next: feat2vec check {out} --data {data}")


@click.command()
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
    from feat2vec.schema.reading import json_schema, read_schema

    if as_json_schema:
        if resolved or data is not None:
            raise click.UsageError("--json-schema stands alone: remove the other options.")
        if schema is not None:
            read_schema(schema)  # its plugins' extractors are part of the JSON Schema
        say_text(json.dumps(json_schema(), indent=2))
        return
    if schema is None:
        raise click.UsageError("Name a schema: feat2vec check SCHEMA (`feat2vec init DATA` writes one).")
    checked = read_schema(schema)
    if resolved:
        say_text(checked.resolved())
    if data is not None:
        from feat2vec.encode.encoder import fit
        from feat2vec.training.memory_estimate import refuse_too_large

        encoded = fit(checked, data)
        refuse_too_large(encoded)
        say(f"{schema} fits {data}", error=resolved)
        say_text(encoded.summary(), error=resolved)
    elif not resolved:
        groups = len(checked.groups)
        say(f"{schema}: no problems, {groups} group{'s' * (groups != 1)}, objective {checked.objective.type}")


@click.command()
@click.argument("schema")
@click.option("--data", required=True, help="The table; for Spark files that all its workers see.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The encoded rows: a folder that is made.")
@click.option(
    "--engine",
    type=click.Choice(["duckdb", "spark"]),
    default="duckdb",
    show_default=True,
    help="What counts: DuckDB here, or Spark (feat2vec[spark] and Java 17).",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Replace any key of the schema.")
@click.option("--resume", is_flag=True, help="Go on with an encoding that was interrupted.")
@click.option("--force", is_flag=True, help="Replace encoded rows that are there.")
@click.option("--memory", default="1GB", show_default=True, help="What encoding may hold; it needs 700MB.")
@click.option("--quiet", is_flag=True, help="Print nothing.")
def encode(
    schema: str,
    data: str,
    out: Path,
    engine: Literal["duckdb", "spark"],
    settings: tuple[str, ...],
    resume: bool,
    force: bool,
    memory: str,
    quiet: bool,
) -> None:
    """Encode a table into a folder that trainings start from: shards of rows, vocabularies and value tables.

    Both engines write the same bytes. The master of Spark is that of SPARK_MASTER or of spark-defaults.conf; without
    one it counts in this process. Options that decide no ids, such as model.dim or training.epochs, may be others when
    a training starts from the folder.

    \b
    feat2vec encode films.yaml --data 'films/*.parquet' --out films-encoded
    feat2vec train films.yaml --data films-encoded --out runs/films
    SPARK_MASTER=spark://host:7077 feat2vec encode films.yaml --data /shared/films --out /shared/encoded --engine spark
    """
    from feat2vec.run import encode_table
    from feat2vec.shards.encoded_folder import EncodedTable

    folder = encode_table(
        schema, data, out, engine=engine, settings=settings, resume=resume, force=force, memory=memory
    )
    if not quiet:
        facts = EncodedTable(folder).manifest
        shards = len(facts["shards"])
        plural = "" if shards == 1 else "s"
        say(f"{out}: {facts['rows']:,} rows in {shards:,} shard{plural}; next: feat2vec train {schema} --data {out}")
