"""What can be wrong with a recipe although each of its keys is right by itself."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from feat2vec.errors import UserError, listed, suggest
from feat2vec.evaluation.baselines import BASELINES
from feat2vec.evaluation.baselines.matrices import problem_of_matrix
from feat2vec.evaluation.options import measurement_conflicts, no_metric
from feat2vec.recipes.proposed import asks_for_groups, proposed_document, read_without_groups
from feat2vec.recipes.ranges import tune_conflicts, unfit
from feat2vec.recipes.recipe import Compare, CorpusSpec, Evaluation, Recipe
from feat2vec.schema.document import Data, Document, KeyPath
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.schema.validation import Findings, Problem, validate
from feat2vec.schema.yaml_edit import with_settings
from feat2vec.schema.yaml_text import read_document
from feat2vec.table.table import Table
from feat2vec.writing import is_component


def recipe_conflicts(recipe: Recipe, findings: Findings) -> Iterator[Problem]:
    """Problems of keys that do not fit each other. Keys that are wrong by themselves are not looked at again."""
    yield from _names_of_no_file(recipe, findings)
    yield from _names_of_one_file(recipe, findings)
    if findings.sound("data"):
        yield from _data_conflicts(recipe, findings)
    if findings.sound("split"):
        yield from _split_conflicts(recipe, findings)
    if recipe.corpus is not None and findings.sound("corpus"):
        yield from _corpus_conflicts(recipe.corpus)
    page = recipe.page
    if page is not None and page.data is not None and findings.sound("page") and page.data not in recipe.parts():
        yield ("page", "data"), f"names {page.data!r}, which is no part of the rows"
    for path, evaluation in recipe.evaluations():
        if findings.sound(*path):
            yield from _evaluation_conflicts(recipe, path, evaluation, findings)
    if recipe.compare is not None and findings.sound("compare"):
        yield from _compare_conflicts(recipe, recipe.compare, findings)
    if recipe.tune is not None:
        yield from tune_conflicts(recipe.tune, findings)
        if findings.sound("data") and findings.sound("split") and "validation" not in recipe.parts():
            remedy = "add `split: {validation: 0.1}`, or a table `validation` to `data`"
            yield ("tune",), f"judges trials by rows that they do not learn from: {remedy}"


def _names_of_no_file(recipe: Recipe, findings: Findings) -> Iterator[Problem]:
    """Names that cannot be those of files or folders."""
    names: list[tuple[KeyPath, str]] = [(("name",), recipe.name)]
    names += [(("data", name), name) for name in recipe.data]
    names += [(("finetune", name), name) for name in recipe.finetune]
    if recipe.compare is not None:
        names += [(("compare", "models", name), name) for name in recipe.compare.models]
    for path, name in names:
        if findings.sound(path[0]) and not is_component(name):
            rule = "expected one part of a path, of letters, digits, spaces, `-`, `_` or `.`"
            yield path, f"names files or folders of the run; {rule}; received {name!r}"


def _names_of_one_file(recipe: Recipe, findings: Findings) -> Iterator[Problem]:
    """Names of tables, or of fine-tuned runs, that a file system may not tell from each other."""
    made_parts = ["train", *recipe.split.parts()] if recipe.rows is not None else []
    if findings.sound("data"):
        for name, earlier_name in _same_names(made_parts, list(recipe.data)):
            yield ("data", name), _same_file(earlier_name)
    if findings.sound("finetune"):
        for name, earlier_name in _same_names([], list(recipe.finetune), work_suffix=".partial"):
            yield ("finetune", name), _same_file(earlier_name)
    if recipe.compare is not None and findings.sound("compare"):
        for name, earlier_name in _same_names([], list(recipe.compare.models), work_suffix=".partial"):
            yield ("compare", "models", name), _same_file(earlier_name)


def _same_file(earlier_name: str) -> str:
    return f"may be the same file or folder as {earlier_name!r} of the run; give it another name"


def _same_names(taken_names: Sequence[str], names: Sequence[str], work_suffix: str = "") -> Iterator[tuple[str, str]]:
    """Pairs (name, earlier name) that may name one file: case, and the form of Unicode, may not count.

    A run is trained in a folder of its name and `work_suffix`.
    """
    known = {name: name for name in taken_names}  # folded name: the name as it is written
    for name in names:
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())
        earlier_name = known.get(folded, known.get(folded + work_suffix, name))
        if earlier_name != name:
            yield name, earlier_name
        known |= {folded: name, folded + work_suffix: name}


def _data_conflicts(recipe: Recipe, findings: Findings) -> Iterator[Problem]:
    has_one_training_table = len(recipe.data) == 1 or "train" in recipe.data
    if recipe.rows is None and not has_one_training_table and findings.sound("rows"):
        yield ("data",), f"holds {listed(recipe.data)}; call one of them `train`, or join them by `rows`"
    if recipe.rows is not None and "train" in recipe.data:
        yield ("data", "train"), "is also what `rows` makes; give the table another name"


def _split_conflicts(recipe: Recipe, findings: Findings) -> Iterator[Problem]:
    split = recipe.split
    sum_of_shares = split.validation + split.test
    if sum_of_shares >= 1:
        yield ("split",), f"leaves no row: validation and test are {sum_of_shares:g} of them"
    if split.of == "validation" and split.validation:
        yield ("split", "validation"), "is what is split; give the share of `test` alone"
    for part in split.parts():
        if part in recipe.data:
            yield ("split", part), "is a table of `data` too; remove one of them"
    if split.of == "validation" and "validation" not in recipe.data and findings.sound("data"):
        yield ("split", "of"), "is no table of `data`"


def _corpus_conflicts(corpus: CorpusSpec) -> Iterator[Problem]:
    """Options that would do nothing."""
    if corpus.counts and corpus.fake_centres is not None:
        yield ("corpus", "fake_centres"), "labels pairs, and `counts: true` makes counts of them; remove one of the two"
    if corpus.count_weights is not None and not corpus.counts:
        yield ("corpus", "count_weights"), "says what counts are; add `counts: true`, or remove it"
    if corpus.fake_alpha is not None and corpus.fake_centres is None:
        yield ("corpus", "fake_alpha"), "says how fake centres are drawn; add `fake_centres: 1`, or remove it"


def _evaluation_conflicts(
    recipe: Recipe, path: KeyPath, evaluation: Evaluation, findings: Findings
) -> Iterator[Problem]:
    yield from measurement_conflicts(path, evaluation)
    if findings.sound("data") and findings.sound("split") and evaluation.data not in recipe.parts():
        known = sorted(recipe.parts())
        suggestion = suggest(evaluation.data, known) or f"; there is {listed(known)}"
        yield (*path, "data"), f"names {evaluation.data!r}, which is no part of the rows{suggestion}"
    for i, name in enumerate(evaluation.beside):
        baseline = BASELINES[name]
        if baseline.task != evaluation.task:
            yield (*path, "beside", i), f"{name} is for the task {baseline.task}"
        if baseline.needs_corpus and recipe.corpus is None:
            yield (*path, "beside", i), f"{name} learns from a `corpus`, and there is none"
    if evaluation.matrix is not None and not any(BASELINES[name].completes_matrix for name in evaluation.beside):
        completing = listed(name for name, baseline in BASELINES.items() if baseline.completes_matrix)
        yield (*path, "matrix"), f"is for {completing}, none of which is `beside` the run here; remove it"
    for metric, bound in evaluation.expect.items():
        metric_path = (*path, "expect", metric)
        if problem := no_metric(metric, evaluation.task):
            yield metric_path, problem
        if bound.min is None and bound.max is None:
            yield metric_path, "bounds nothing; give `min`, `max` or both"
        if bound.of is not None and bound.of not in evaluation.beside:
            yield (*metric_path, "of"), f"names {bound.of}, which is not `beside` the run here"


def _compare_conflicts(recipe: Recipe, compare: Compare, findings: Findings) -> Iterator[Problem]:
    """Names of compared models that there are not, and parts of the rows that a comparison needs."""
    if findings.sound("data") and findings.sound("split"):
        parts = recipe.parts()
        if compare.data not in parts:
            suggestion = suggest(compare.data, sorted(parts)) or f"; there is {listed(sorted(parts))}"
            yield ("compare", "data"), f"names {compare.data!r}, which is no part of the rows{suggestion}"
        if "validation" not in parts:
            remedy = "add `split: {validation: 0.1}`, or a table `validation` to `data`"
            yield ("compare",), f"chooses epochs and models by rows that are not learnt from: {remedy}"
    named: list[tuple[KeyPath, str]] = []
    for title, rows in compare.tables.items():
        for label, names in rows.items():
            named += [(("compare", "tables", title, label, i), name) for i, name in enumerate(names)]
    if compare.figure is not None:
        named += [(("compare", "figure", "line", i), name) for i, name in enumerate(compare.figure.line)]
        named += [(("compare", "figure", "beside", key), mark.model) for key, mark in compare.figure.beside.items()]
    for path, name in named:
        if name not in compare.models:
            yield path, f"names {name!r}, which is no compared model{suggest(name, compare.models)}"


def unknown_groups(recipe: Recipe, schema: Schema) -> Iterator[Problem]:
    """Names that are no group of the schema: training may take hours, and they would be found after it."""
    named: list[tuple[KeyPath, str | None]] = []
    for path, evaluation in recipe.evaluations():
        named.append(((*path, "target"), evaluation.target))
        named += [((*path, "given", i), name) for i, name in enumerate(evaluation.given or ())]
    for i, neighbours in enumerate(recipe.similar):
        named += [(("similar", i, "group"), neighbours.group), (("similar", i, "to"), neighbours.to)]
    for i, export in enumerate(recipe.export):
        named += [(("export", i, "groups", k), name) for k, name in enumerate(export.groups or ())]
    for key, finetuning in recipe.finetune.items():
        named += [(("finetune", key, "groups", k), name) for k, name in enumerate(finetuning.groups or ())]
    if recipe.page is not None:
        rows = ("row",) if recipe.page.data is not None else ()
        named += [(("page", "groups", k), name) for k, name in enumerate(recipe.page.groups) if name not in rows]
    for key_path, group in named:
        if group is not None and group not in schema.groups:
            remedy = suggest(group, schema.groups) or f"; the groups are {listed(schema.groups)}"
            yield key_path, f"names {group!r}, which is no group{remedy}"


def impossible_matrices(recipe: Recipe, schema: Schema) -> Iterator[Problem]:
    """Measurements of the recipe's own schema whose baselines complete a matrix that it does not have."""
    for i, evaluation in enumerate(recipe.evaluate):
        completing = [name for name in evaluation.beside if BASELINES[name].completes_matrix]
        if completing and (problem := problem_of_matrix(schema, evaluation.matrix)):
            key = "beside" if evaluation.matrix is None else "matrix"
            yield ("evaluate", i, key), problem


STAND_INS: Mapping[str, Data] = {
    "version": 1,
    "name": "?",
    "data": {"?": "?"},
    "schema": "?",
}  # for required keys that are wrong


def read_recipe(path: str | Path, settings: Sequence[str] = ()) -> tuple[Recipe, Schema]:
    """Read a recipe and its schema; `settings` such as "training.epochs=5" replace what the schema says."""
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path}: is a folder; a recipe is a file, such as recipes/artworks.yaml")
    if not path.exists():
        suggestion = suggest(path.name, [file.name for file in path.parent.glob("*.yaml")])
        raise UserError(f"{path}: no such recipe{suggestion or '; the repository of feat2vec has some in recipes/'}")
    document = read_document(path)
    recipe = validate(document, Recipe, recipe_conflicts, STAND_INS)
    _refuse_settings_of_recipe(document, settings)
    source = schema_document(document, recipe)
    if asks_for_groups(source):
        if recipe.tune is not None:
            raise UserError(document.problem(("tune",), "is for a schema with its own groups; name them"))
        return recipe, read_without_groups(source, settings)
    schema = read_schema(source, settings=settings)
    problems = [*unknown_groups(recipe, schema), *impossible_matrices(recipe, schema)]
    if recipe.tune is not None:
        problems += unfit(recipe.tune, source, schema, settings)
    if problems:
        raise UserError(*(document.problem(key_path, message) for key_path, message in problems))
    return recipe, schema


def _refuse_settings_of_recipe(document: Document, settings: Sequence[str]) -> None:
    """Raise for settings of the recipe's own keys: those of its schema alone can be replaced."""
    of_recipe = {field.alias or name for name, field in Recipe.model_fields.items()} - set(Schema.model_fields)
    problems = []
    for setting in settings:
        key = setting.partition("=")[0]
        first, _, below = key.partition(".")
        if first == "schema" and below:
            problems.append(f"--set {setting}: is of the schema already; leave out `schema.`: --set {below}=...")
        elif first in of_recipe:
            place = f"{document.name}:{document.line(tuple(key.split('.')))}"
            problems.append(
                f"--set {setting}: replaces keys of the schema, and `{first}` is the recipe's; edit {place}"
            )
    if problems:
        raise UserError(*problems)


def document_for_rows(path: str | Path, recipe: Recipe, settings: Sequence[str], rows: Table) -> Document:
    """The document of the recipe's schema, with groups that are proposed for its rows if it leaves them to these.

    Args:
        path: The recipe's file.
        recipe: What it says.
        settings: Such as "training.epochs=5".
        rows: The rows to learn from.

    """
    source = schema_document(read_document(Path(path)), recipe)
    return proposed_document(source, settings, rows) if asks_for_groups(source) else with_settings(source, settings)


def schema_document(document: Document, recipe: Recipe) -> Document:
    """The recipe's schema, which is a file of its own or a part of the recipe; `corpus.tied` adds a `share` to it."""
    if isinstance(recipe.schema_, str):
        source = read_document(Path(document.name).parent / recipe.schema_)
    else:
        source = _below(document, "schema")
    return _tied(source, document) if recipe.corpus is not None and recipe.corpus.tied else source


def _tied(source: Document, document: Document) -> Document:
    """A schema with a `share`: the group of the column `context` has the vectors of that of `word`.

    Raises:
        UserError: There is not one such group of each; the message names the recipe's `document`.

    """
    path = ("corpus", "tied")
    groups = source.data.get("groups")
    groups = groups if isinstance(groups, dict) else {}
    names_of_column: dict[str, list[str]] = {"word": [], "context": []}
    for name, group in groups.items():
        columns = group.get("column", group.get("columns")) if isinstance(group, dict) else None
        for column, names in names_of_column.items():
            if columns in (column, [column]):
                names.append(name)
    for column, names in names_of_column.items():
        if len(names) != 1:
            number = f"there are {listed(names)}" if names else "there is none"
            message = f"needs one group of the column `{column}` in the schema, and {number}"
            raise UserError(document.problem(path, message))
    (word,), (context,) = names_of_column["word"], names_of_column["context"]
    group = groups[context]
    assert isinstance(group, dict)
    if group.get("share", word) != word:
        message = f"lets {context!r} share {word!r}, and the schema says another group; remove one of the two"
        raise UserError(document.problem(path, message))
    tied_groups: dict[str, Data] = {**groups, context: {**group, "share": word}}
    return replace(source, data={**source.data, "groups": tied_groups})


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
