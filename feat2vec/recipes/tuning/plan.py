"""What a study tries and how it judges: as a recipe says, or around the values of a schema alone."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from feat2vec.errors import UserError, listed, suggest
from feat2vec.recipes.ranges import Measure, Range, Tune, unfit
from feat2vec.recipes.reading import read_recipe, schema_document
from feat2vec.recipes.recipe import Recipe, Split
from feat2vec.recipes.rows import sources_of
from feat2vec.recipes.tuning.schema_ranges import ranges_around
from feat2vec.recipes.tuning.study import BEST, BestRecipe
from feat2vec.schema.document import Document
from feat2vec.schema.extractor_options import ItemsSpec
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import read_document
from feat2vec.table.table import open_table
from feat2vec.writing import is_component
from feat2vec.writing.signatures import SIGNATURE_LINE

VALIDATION_SHARE = 0.2  # of the rows of a table that a schema is tuned on
MOST_VALIDATION_ROWS = 10_000
FEWEST_ROWS = 200


@dataclass(frozen=True)
class Plan:
    """What a study is made of.

    Attributes:
        kind: "recipe" or "schema", for messages.
        recipe: The recipe; of a schema alone one that splits its only table.
        schema: The schema with the values that are not tuned.
        tune: The ranges, and what trials are judged by.
        sources: Of each table, where it is.
        source: The document of the schema.
        files: The files that are read, tables apart.
        best: The best recipe or schema, which is written.
        command: What to do with it next.

    """

    kind: str
    recipe: Recipe
    schema: Schema
    tune: Tune
    sources: Mapping[str, str]
    source: Document
    files: Sequence[Path]
    best: BestRecipe
    command: str


def is_schema(path: Path) -> bool:
    """Whether a file is a schema and no recipe: it has `groups` at its top. What is wrong with it is said later."""
    if not path.is_file():
        return False
    try:
        data = read_document(path).data
    except UserError:
        return False
    return "groups" in data and "schema" not in data


def plan_of_recipe(path: Path, out: Path | None, data: Sequence[str], settings: Sequence[str]) -> tuple[Plan, Path]:
    """The plan of a recipe with `tune`, and the folder of the study."""
    recipe, schema = read_recipe(path, settings)
    if recipe.tune is None:
        example = "tune: {ranges: {training.optimizer.learning_rate: {log: [0.01, 1]}}}"
        raise UserError(f"{path}: says nothing of what to tune; add it, such as `{example}`")
    _refuse_settings_of_tuned_keys(recipe.tune, settings)
    sources = sources_of(recipe, data)
    folder = Path("runs", f"{recipe.name}-tune") if out is None else out
    source = schema_document(read_document(path), recipe)
    below = {"schema": Path(source.name).read_text(encoding="utf-8-sig")} if source.name != str(path) else None
    best = BestRecipe(path.read_text(encoding="utf-8-sig"), below, settings, folder / BEST)
    options = [word for name in data for word in ("--data", name)]
    command = _command(["run", str(best.path), *options], folder, path.parent if schema.plugins else None)
    return Plan(
        "recipe", recipe, schema, recipe.tune, sources, source, [path, Path(source.name)], best, command
    ), folder


def plan_of_schema(
    path: Path,
    out: Path | None,
    data: Sequence[str],
    settings: Sequence[str],
    target: str | None = None,
    group: str | None = None,
) -> tuple[Plan, Path]:
    """The plan of a schema alone: ranges around its own values, on a part of the table that it splits off.

    Args:
        path: The schema.
        out: The folder of the study; by default runs/NAME-tune.
        data: The table: one.
        settings: Values that replace the schema's, and are not tuned.
        target: The column that the schema predicts, if it does.
        group: The group whose values are ranked; by default all lookup groups.

    """
    source = read_document(path)
    schema = read_schema(source, settings=settings)
    if len(data) != 1:
        raise UserError(f"--data: a schema is tuned on one table; received {len(data)}")
    measure = _measure(path, schema, target, group)
    ranges = {key: tried for key, tried in ranges_around(schema).items() if not _is_set(key, settings)}
    fitting: dict[str, Range] = {}
    for key, tried in ranges.items():
        if not list(unfit(Tune(ranges={key: tried}), source, schema, settings)):
            fitting[key] = tried
    if not fitting:
        raise UserError(f"{path}: nothing is left to tune; give fewer settings by --set")
    tune = Tune(ranges=fitting, measure=measure)
    name = path.stem if is_component(path.stem) else "schema"
    folder = Path("runs", f"{name}-tune") if out is None else out
    split = Split(validation=_validation_share(data[0]))
    recipe = Recipe(version=1, name=name, data={"rows": data[0]}, split=split, schema=str(path), tune=tune)
    text = SIGNATURE_LINE.sub(b"", path.read_bytes()).decode("utf-8-sig")  # the best schema gets one of its own
    best = BestRecipe(text, None, settings, folder / BEST, ())
    modules = path.parent if schema.plugins else None
    command = _command(["train", str(best.path), "--data", data[0]], folder, modules)
    return Plan("schema", recipe, schema, tune, {"rows": data[0]}, source, [path], best, command), folder


def _measure(path: Path, schema: Schema, target: str | None, group: str | None) -> Measure:
    """What trials of a schema are judged by."""
    if schema.target is not None:
        if group is not None:
            raise UserError(f"--for: {path} predicts {schema.target!r}, whose loss is what is tuned; remove it")
        if target not in (None, schema.target):
            raise UserError(f"--target: {path} predicts {schema.target!r}; received {target!r}")
        metrics = schema.objective.metrics
        metric = "log_loss" if "log_loss" in metrics else metrics[0]
        return Measure(task="predict", metric=metric)
    if target is not None:
        remedy = f"give it `objective: {{type: ..., target: {target}}}`, or name a group by --for"
        raise UserError(f"--target: {path} learns without a target; {remedy}")
    if group is not None and group not in schema.groups:
        remedy = suggest(group, schema.groups) or f"; the groups are {listed(schema.groups)}"
        raise UserError(f"--for: there is no group {group!r}{remedy}")
    if group is None and not any(isinstance(known.extractor, ItemsSpec) for known in schema.groups.values()):
        raise UserError(f"--for: no group of {path} is a lookup; name the one to rank: {listed(schema.groups)}")
    return Measure(task="rank", target=group, metric="mrr")


def _validation_share(source: str) -> float:
    """A fifth of the rows, of many rows less."""
    table = open_table(source)
    total: int = sum(batch.data.num_rows for batch in table.batches([next(iter(table.columns))]))
    if total < FEWEST_ROWS:
        raise UserError(f"{source}: has {total} rows, and tuning needs {FEWEST_ROWS} to tell trials apart; give more")
    return min(VALIDATION_SHARE, MOST_VALIDATION_ROWS / total)


def _is_set(key: str, settings: Sequence[str]) -> bool:
    """Whether a setting gives a key, or one above or below it."""
    set_keys = [setting.split("=")[0] for setting in settings]
    return any(f"{key}.".startswith(f"{name}.") or f"{name}.".startswith(f"{key}.") for name in set_keys)


def _refuse_settings_of_tuned_keys(tune: Tune, settings: Sequence[str]) -> None:
    """Raise for a setting of a tuned key, or of a key above or below one."""
    for setting in settings:
        if any(_is_set(tuned_key, [setting]) for tuned_key in tune.ranges):
            raise UserError(f"--set {setting}: is what the recipe tunes; remove one of the two")


def _command(words: Sequence[str], folder: Path, module_folder: Path | None) -> str:
    """The command that uses what was found; plugins are imported from `module_folder`, if there are any."""
    command = shlex.join(["feat2vec", *words, "--out", f"{folder}-run"])
    return command if module_folder is None else f"PYTHONPATH={shlex.quote(str(module_folder))} {command}"
