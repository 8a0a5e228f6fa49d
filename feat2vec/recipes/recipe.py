"""A recipe: data, schema, training, evaluation, export and what is expected of them, in one YAML file."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from feat2vec.errors import UserError, listed, suggest
from feat2vec.evaluation.options import Measurement, measurement_conflicts, no_metric
from feat2vec.export.formats import FormatName
from feat2vec.recipes.ranges import Tune, tune_conflicts, unfit
from feat2vec.schema.document import Data, Document, KeyPath
from feat2vec.schema.extractor_options import Count, Many, Share, Text
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.schema.validation import Findings, Problem, Spec, validate
from feat2vec.schema.yaml_text import read_document
from feat2vec.training.fine_tuning_options import HeadType, ObjectiveType
from feat2vec.writing import is_component

Peer = Literal["popularity", "gradient_boosting", "word2vec"]
PEERS: Mapping[str, str] = {"popularity": "rank", "gradient_boosting": "predict", "word2vec": "pairs"}  # their tasks
PARTS = ("train", "validation", "test")


class Ask(Spec):
    """A table that the user gives, by `--data`; `ask` says what it is."""

    ask: Text


class CorpusSpec(Spec):
    """Rows of texts become rows of a word and a word near it: pairs, or (with `counts`) how often."""

    column: Text
    window: Count = 5
    min_count: Count = 5
    subsample: Annotated[float, Field(ge=0, le=1)] = 0.0
    counts: bool = False
    seed: int = 0


class Split(Spec):
    """Shares of a part's rows, drawn at random, that become the other parts."""

    of: Literal["train", "validation"] = "train"
    validation: Share = 0.0
    test: Share = 0.0
    seed: int = 0


class Bound(Spec):
    """What a number may be; with `of`, in units of what that peer reaches."""

    min: float | None = None
    max: float | None = None
    of: Peer | None = None


class Evaluation(Measurement):
    """A measurement on a part of the rows, the peers beside it, and what is expected."""

    data: Text = "test"
    beside: Annotated[tuple[Peer, ...], Many] = ()
    expect: dict[str, Bound] = Field(default_factory=dict)


class Neighbours(Spec):
    """The values nearest to one, printed."""

    group: Text
    key: Text
    to: Text | None = None
    n: Count = 5


class ExportSpec(Spec):
    """An export, into the run's folder `exports`."""

    format: FormatName
    groups: Annotated[tuple[Text, ...], Many] | None = None
    level: Count | None = None
    normalise: bool = False


class PageSpec(Spec):
    """The page of `feat2vec explore`, as the file map.html of the run's folder."""

    groups: Annotated[tuple[Text, ...], Many] = ()
    data: Text | None = None
    colour: Text | None = None
    map: Literal["pca", "umap", "tsne"] = "pca"


class Finetuning(Spec):
    """A run that predicts a column, learnt from the vectors of the first one."""

    target: Text
    head: HeadType = "fm"
    freeze: bool = False
    objective: ObjectiveType | None = None
    groups: Annotated[tuple[Text, ...], Many] | None = None
    set: dict[str, Any] = Field(default_factory=dict)
    evaluate: Annotated[tuple[Evaluation, ...], Many] = ()


class Recipe(Spec):
    """The whole file."""

    version: Literal[1]
    name: Text
    about: str = ""
    data: Annotated[dict[str, Text | Ask], Field(min_length=1)]
    rows: Text | None = None
    corpus: CorpusSpec | None = None
    split: Split = Split()
    schema_: Text | dict[str, Any] = Field(alias="schema")
    evaluate: Annotated[tuple[Evaluation, ...], Many] = ()
    similar: Annotated[tuple[Neighbours, ...], Many] = ()
    export: Annotated[tuple[ExportSpec, ...], Many] = ()
    page: PageSpec | None = None
    finetune: dict[str, Finetuning] = Field(default_factory=dict)
    tune: Tune | None = None

    def evaluations(self) -> Iterator[tuple[tuple[str | int, ...], Evaluation]]:
        """Every measurement, and where it stands."""
        yield from ((("evaluate", i), evaluation) for i, evaluation in enumerate(self.evaluate))
        for name, finetuning in self.finetune.items():
            yield from (
                (("finetune", name, "evaluate", i), evaluation) for i, evaluation in enumerate(finetuning.evaluate)
            )

    def named_exports(self) -> dict[str, ExportSpec]:
        """The exports by the names of their folders: the format, with a number from the second of a format on."""
        named: dict[str, ExportSpec] = {}
        for spec in self.export:
            count = sum(earlier.format == spec.format for earlier in named.values()) + 1
            named[spec.format if count == 1 else f"{spec.format}-{count}"] = spec
        return named

    def parts(self) -> set[str]:
        """The names that a measurement can have as its `data`."""
        names = {"train"} | {part for part in ("validation", "test") if getattr(self.split, part)}
        return names | set(self.data)


def read_recipe(path: str | Path, settings: Sequence[str] = ()) -> tuple[Recipe, Schema]:
    """Read a recipe and its schema; `settings` such as "training.epochs=5" replace what the schema says."""
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path}: is a folder; a recipe is a file, such as recipes/artworks.yaml")
    if not path.exists():
        suggestion = suggest(path.name, [file.name for file in path.parent.glob("*.yaml")])
        raise UserError(f"{path}: no such recipe{suggestion or '; the repository of feat2vec has some in recipes/'}")
    document = read_document(path)
    recipe = validate(document, Recipe, _conflicts, {"version": 1, "name": "?", "data": {"?": "?"}, "schema": "?"})
    source = schema_document(document, recipe)
    schema = read_schema(source, settings=settings)
    problems = list(_unknown_groups(recipe, schema))
    if recipe.tune is not None:
        problems += unfit(recipe.tune, source, schema, settings)
    if problems:
        raise UserError(*(document.problem(key_path, message) for key_path, message in problems))
    return recipe, schema


def _unknown_groups(recipe: Recipe, schema: Schema) -> Iterator[Problem]:
    """Names that are no group of the schema: training may take hours, and they would be found after it."""
    named: list[tuple[KeyPath, str | None]] = []
    for path, evaluation in recipe.evaluations():
        named.append(((*path, "target"), evaluation.target))
        named += [((*path, "given", i), name) for i, name in enumerate(evaluation.given or ())]
    for i, neighbours in enumerate(recipe.similar):
        named += [(("similar", i, "group"), neighbours.group), (("similar", i, "to"), neighbours.to)]
    for i, export in enumerate(recipe.export):
        named += [(("export", i, "groups", k), name) for k, name in enumerate(export.groups or ())]
    for key, tuning in recipe.finetune.items():
        named += [(("finetune", key, "groups", k), name) for k, name in enumerate(tuning.groups or ())]
    if recipe.page is not None:
        rows = ("row",) if recipe.page.data is not None else ()
        named += [(("page", "groups", k), name) for k, name in enumerate(recipe.page.groups) if name not in rows]
    for key_path, group in named:
        if group is not None and group not in schema.groups:
            remedy = suggest(group, schema.groups) or f"; the groups are {listed(schema.groups)}"
            yield key_path, f"names {group!r}, which is no group{remedy}"


def schema_document(document: Document, recipe: Recipe) -> Document:
    """The recipe's schema, which is a file of its own or a part of the recipe."""
    if isinstance(recipe.schema_, str):
        return read_document(Path(document.name).parent / recipe.schema_)
    return _below(document, "schema")


def _below(document: Document, key: str) -> Document:
    """What stands below a key, as a document of its own that remembers its lines."""
    data: Data = document.data[key]
    return Document(
        document.name,
        data if isinstance(data, dict) else {},
        {path[1:]: line for path, line in document.lines.items() if path[:1] == (key,)},
        {path[1:]: text for path, text in document.spelled.items() if path[:1] == (key,)},
        (),
    )


def _conflicts(recipe: Recipe, findings: Findings) -> Iterator[Problem]:
    """What is wrong although each key is right by itself."""
    names: list[tuple[KeyPath, str]] = [(("name",), recipe.name)]
    names += [(("data", name), name) for name in recipe.data]
    names += [(("finetune", name), name) for name in recipe.finetune]
    for path, name in names:
        if findings.sound(path[0]) and not is_component(name):
            what = "expected one part of a path, of letters, digits, spaces, `-`, `_` or `.`"
            yield path, f"names files or folders of the run; {what}; received {name!r}"
    parts = ["train", *(part for part in PARTS[1:] if getattr(recipe.split, part))] if recipe.rows is not None else []
    for key, recipe_names, taken_names in (("data", recipe.data, parts), ("finetune", recipe.finetune, [])):
        if findings.sound(key):
            for name, earlier_name in _same_names(
                taken_names, list(recipe_names), ".partial" if key == "finetune" else ""
            ):
                yield (
                    (key, name),
                    f"may be the same file or folder as {earlier_name!r} of the run; give it another name",
                )
    if findings.sound("data"):
        has_one_training_table = len(recipe.data) == 1 or "train" in recipe.data
        if recipe.rows is None and not has_one_training_table and findings.sound("rows"):
            yield ("data",), f"holds {listed(recipe.data)}; call one of them `train`, or join them by `rows`"
        if recipe.rows is not None and "train" in recipe.data:
            yield ("data", "train"), "is also what `rows` makes; give the table another name"
    if findings.sound("split"):
        shares = recipe.split.validation + recipe.split.test
        if shares >= 1:
            yield ("split",), f"leaves no row: validation and test are {shares:g} of them"
        if recipe.split.of == "validation" and recipe.split.validation:
            yield ("split", "validation"), "is what is split; give the share of `test` alone"
        for part in ("validation", "test"):
            if getattr(recipe.split, part) and part in recipe.data:
                yield ("split", part), "is a table of `data` too; remove one of them"
        if recipe.split.of == "validation" and "validation" not in recipe.data and findings.sound("data"):
            yield ("split", "of"), "is no table of `data`"
    page = recipe.page
    if page is not None and page.data is not None and findings.sound("page") and page.data not in recipe.parts():
        yield ("page", "data"), f"names {page.data!r}, which is no part of the rows"
    for path, evaluation in recipe.evaluations():
        if findings.sound(*path):
            yield from _evaluation_conflicts(recipe, path, evaluation, findings)
    if recipe.tune is not None:
        yield from tune_conflicts(recipe.tune, findings)
        if findings.sound("data") and findings.sound("split") and "validation" not in recipe.parts():
            remedy = "add `split: {validation: 0.1}`, or a table `validation` to `data`"
            yield ("tune",), f"judges trials by rows that they do not learn from: {remedy}"


def _same_names(taken_names: Sequence[str], names: Sequence[str], work_suffix: str) -> Iterator[tuple[str, str]]:
    """Names that DuckDB or a file system may not tell from earlier ones: case, and the form of Unicode, may not count.

    A run is trained in a folder of its name and `work`.
    """
    known = {name: name for name in taken_names}  # folded: as it is written
    for name in names:
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())
        earlier_name = known.get(folded, known.get(folded + work_suffix, name))
        if earlier_name != name:
            yield name, earlier_name
        known |= {folded: name, folded + work_suffix: name}


def _evaluation_conflicts(
    recipe: Recipe, path: KeyPath, evaluation: Evaluation, findings: Findings
) -> Iterator[Problem]:
    yield from measurement_conflicts(path, evaluation)
    if findings.sound("data") and findings.sound("split") and evaluation.data not in recipe.parts():
        known = sorted(recipe.parts())
        suggestion = suggest(evaluation.data, known) or f"; there is {listed(known)}"
        yield (*path, "data"), f"names {evaluation.data!r}, which is no part of the rows{suggestion}"
    for i, baseline in enumerate(evaluation.beside):
        if PEERS[baseline] != evaluation.task:
            yield (*path, "beside", i), f"{baseline} is for the task {PEERS[baseline]}"
        if baseline == "word2vec" and recipe.corpus is None:
            yield (*path, "beside", i), "word2vec learns from a `corpus`, and there is none"
    for metric, bound in evaluation.expect.items():
        metric_path = (*path, "expect", metric)
        if problem := no_metric(metric, evaluation.task):
            yield metric_path, problem
        if bound.min is None and bound.max is None:
            yield metric_path, "bounds nothing; give `min`, `max` or both"
        if bound.of is not None and bound.of not in evaluation.beside:
            yield (*metric_path, "of"), f"names {bound.of}, which is not `beside` the run here"
