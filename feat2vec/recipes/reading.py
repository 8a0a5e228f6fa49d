"""A recipe's file to a `Recipe` and its schema; all problems are reported at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from feat2vec.errors import UserError, suggest
from feat2vec.recipes.cross_checks import recipe_conflicts, unknown_groups
from feat2vec.recipes.ranges import unfit
from feat2vec.recipes.recipe import Recipe
from feat2vec.schema.document import Data, Document
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.schema.validation import validate
from feat2vec.schema.yaml_text import read_document

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
    source = schema_document(document, recipe)
    schema = read_schema(source, settings=settings)
    problems = list(unknown_groups(recipe, schema))
    if recipe.tune is not None:
        problems += unfit(recipe.tune, source, schema, settings)
    if problems:
        raise UserError(*(document.problem(key_path, message) for key_path, message in problems))
    return recipe, schema


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


__all__ = ["read_recipe", "schema_document"]
