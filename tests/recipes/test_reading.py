"""Recipe files: what they say, and what is wrong with one."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from feat2vec.errors import UserError
from feat2vec.recipes.reading import read_recipe, recipe_conflicts, schema_document
from feat2vec.recipes.recipe import Recipe
from feat2vec.schema.options import Group
from feat2vec.schema.validation import validate
from feat2vec.schema.yaml_text import read_document

ROOT = Path(__file__).parents[2]
SPLIT = "split: {validation: 0.2, test: 0.2}"
GOOD = """\
version: 1
name: tiny
data: {rows: rows.csv}
split: {validation: 0.2, test: 0.2}
schema:
  version: 1
  model: {dim: 4}
  groups: {a: {column: a}, b: {column: b}}
evaluate:
  - {task: rank, target: a, beside: [popularity], expect: {mpr: {max: 0.5, of: popularity}}}
"""


def test_every_recipe_is_right() -> None:
    names = sorted(path.stem for path in (ROOT / "recipes").glob("*.yaml"))
    of_one_column = ["glove", "skipgram", "softmax"]
    assert names == sorted(["artworks", "films", "flights", "frappe", "movielens", "ranks", "reviews", *of_one_column])
    for name in names:
        recipe, schema = read_recipe(ROOT / "recipes" / f"{name}.yaml")
        assert recipe.name == name
        assert recipe.evaluate
        assert schema.groups
        is_of_any_table = recipe.compare is not None  # of which nothing can be expected
        expects = any(evaluation.expect for _, evaluation in recipe.evaluations())
        assert expects or is_of_any_table, f"{name} expects nothing"


def test_settings_are_the_schema_s(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(GOOD)
    _, schema = read_recipe(tmp_path / "r.yaml", ["training.epochs=3"])
    assert schema.training.epochs == 3


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("split.test=0.5", r"replaces keys of the schema, and `split` is the recipe's; edit .*r.yaml:4$"),
        ("corpus.window=3", r"replaces keys of the schema, and `corpus` is the recipe's; edit .*r.yaml:1$"),
        ("schema.model.dim=8", r"is of the schema already; leave out `schema.`: --set model.dim=...$"),
    ],
)
def test_settings_of_the_recipe_itself_are_told_apart(setting: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(GOOD)
    with pytest.raises(UserError, match=rf"^--set {setting}: {message}"):
        read_recipe(tmp_path / "r.yaml", [setting])


def test_a_schema_of_its_own_file_is_beside_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("version: 1\ngroups: {a: {column: a}, b: {column: b}}\n")
    (tmp_path / "r.yaml").write_text("version: 1\nname: tiny\ndata: {rows: rows.csv}\nschema: s.yaml\n")
    assert list(read_recipe(tmp_path / "r.yaml")[1].groups) == ["a", "b"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (SPLIT, "split: {test: 0.2, seed: -1}", "r.yaml:4: split.seed: .*at least 0.*received -1"),
        (SPLIT, "corpus: {column: a, seed: -1}", "r.yaml:4: corpus.seed: .*at least 0.*received -1"),
        (SPLIT, "corpus: {column: a, reach: fixd}", "r.yaml:4: corpus.reach: .*received fixd; did you mean 'fixed'"),
        (SPLIT, "corpus: {column: a, fake_centres: 0}", "r.yaml:4: corpus.fake_centres: .*at least 1.*received 0"),
        (SPLIT, "corpus: {column: a, fake_alpha: 1.0}", "corpus.fake_alpha: says how .*; add `fake_centres: 1`, or"),
        (SPLIT, "corpus: {column: a, count_weights: plain}", "corpus.count_weights: says .*; add `counts: true`, or"),
        (
            SPLIT,
            "corpus: {column: a, counts: true, fake_centres: 1}",
            "corpus.fake_centres: labels pairs, and .* remove",
        ),
        ("name: tiny\n", "", "r.yaml:1: the key `name` is missing"),
        ("name: tiny", "name: ../tiny", r"r.yaml:2: name: names files or folders of the run; .*received '../tiny'"),
        (
            "{rows: rows.csv}",
            "{/abs/sales: rows.csv}",
            r"r.yaml:3: data\['/abs/sales'\]: names files .*one part of a path",
        ),
        (
            "evaluate:",
            "finetune: {../../x: {target: b}}\nevaluate:",
            r"r.yaml:9: finetune\['../../x'\]: names files or",
        ),
        ("task: rank", "task: rnk", r"r.yaml:10: evaluate\[0\].task: expected .*received rnk; did you mean 'rank'"),
        ("dim: 4", "dmi: 4", r"r.yaml:7: model.dmi: unknown key; did you mean 'dim'"),
        (SPLIT, "split: {validation: 0.5, test: 0.5}", "r.yaml:4: split: leaves no row"),
        (SPLIT, "split: {tset: 0.5}", "r.yaml:4: split.tset: unknown key; did you mean"),
        (SPLIT, "", "names 'test', which is no part of the rows; there is rows, train"),
        ("test: 0.2", "test: 0.2, of: validation, seed: 1", "is what is split; give the share of `test` alone"),
        ("{rows: rows.csv}", "{train: a.csv, Sales: b.csv, sales: b.csv}", r"data.sales: may be .* as 'Sales' of the"),
        ("{rows: rows.csv}", "{Test: a.csv}\nrows: select 1", r"data.Test: may be the same file or folder as 'test'"),
        (
            "evaluate:",
            "finetune: {\u00e9: {target: b}, e\u0301.partial: {target: b}}\nevaluate:",
            r"finetune.*: may be the same file or folder as '\u00e9' of the run; give it another name",
        ),
        ("{rows: rows.csv}", "{one: a.csv, other: b.csv}", "holds one, other; call one of them `train`, or join them"),
        ("target: a, ", "", r"evaluate\[0\]: the task rank needs a `target`"),
        ("task: rank", "task: predict", r"evaluate\[0\].target: is not for the task predict"),
        ("[popularity]", "[word2vec]", r"beside\[0\]: word2vec is for the task pairs"),
        (
            "[popularity],",
            "[popularity], matrix: [a, b],",
            r"matrix: is for svd, als, soft_impute, none of which is `bes",
        ),
        ("[popularity]", "[]", r"expect.mpr.of: names popularity, which is not `beside`"),
        ("mpr: {max", "mrp: {max", r"expect.mrp: is no metric of the task rank; did you mean 'mrr' or 'mpr'"),
        ("{max: 0.5, of: popularity}", "{}", r"expect.mpr: bounds nothing"),
        (
            "target: a",
            "target: aa",
            r"r.yaml:10: evaluate\[0\].target: names 'aa', which is no group; did you mean 'a'",
        ),
        ("groups: {a: {column: a}, b: {column: b}}", "groups: {a: {column: a}}", "r.yaml:8: groups: one group has"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert GOOD.count(old) == 1
    (tmp_path / "r.yaml").write_text(GOOD.replace(old, new))
    with pytest.raises(UserError, match=message):
        read_recipe(tmp_path / "r.yaml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "{type: regression, target: c}",
            "{type: logistic, target: c}",
            r"beside: svd, als and .*logistic predicts none",
        ),
        ("b: {column: b}}", "b: {columns: [b], extractor: numeric}}", r"beside: a matrix needs .*; the only one is a$"),
        ("svd]", "svd], matrix: [a, bb]", r"r.yaml:11: evaluate\[0\].matrix: there is no group 'bb'; did you mean 'b'"),
        ("svd]", "svd], matrix: [a]", r"evaluate\[0\].matrix: expected two groups"),
    ],
)
def test_a_matrix_that_is_not_there_is_told_before_training(tmp_path: Path, old: str, new: str, message: str) -> None:
    before, _ = GOOD.split("evaluate:")
    objective = "  objective: {type: regression, target: c}\nevaluate:\n"
    recipe = f"{before}{objective}  - {{task: predict, beside: [constant, svd]}}\n"
    (tmp_path / "r.yaml").write_text(recipe)
    assert read_recipe(tmp_path / "r.yaml")[0].evaluate[0].beside == ("constant", "svd")
    assert recipe.count(old) == 1
    (tmp_path / "r.yaml").write_text(recipe.replace(old, new))
    with pytest.raises(UserError, match=message):
        read_recipe(tmp_path / "r.yaml")


def test_a_recipe_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "films.yaml").write_text(GOOD)
    with pytest.raises(UserError, match=r"film.yaml: no such recipe; did you mean 'films.yaml'"):
        read_recipe(tmp_path / "film.yaml")


def test_a_folder_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder; a recipe is a file"):
        read_recipe(tmp_path)


WORDS = """\
version: 1
name: words
data: {corpus: rows.csv}
corpus: {column: text, tied: true}
schema:
  version: 1
  groups: {word: {column: word}, beside: {column: context}}
"""


@pytest.mark.parametrize("schema", ["below", "beside"])
def test_tied_words_share_their_vectors(schema: str, tmp_path: Path) -> None:
    text, path = WORDS, tmp_path / "r.yaml"
    if schema == "beside":
        text, below = WORDS.split("schema:\n")
        (tmp_path / "s.yaml").write_text(textwrap.dedent(below))
        text += "schema: s.yaml\n"
    path.write_text(text)
    document = read_document(path)
    recipe = validate(document, Recipe, recipe_conflicts)
    groups = schema_document(document, recipe).data["groups"]
    assert groups == {"word": {"column": "word"}, "beside": {"column": "context", "share": "word"}}
    if "share" in Group.model_fields:
        assert read_recipe(path)[1].groups["beside"].model_dump()["share"] == "word"
    path.write_text(text.replace(", tied: true", ""))
    assert read_recipe(path)[1].groups["beside"].columns == ("context",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (", beside: {column: context}", "", r"r.yaml:4: corpus.tied: needs one .* `context` in .*, and there is none"),
        ("}, beside", "}, w: {columns: [word]}, beside", r"corpus.tied: needs one .* `word` in .*there are word, w"),
        ("context}", "context, share: other}", r"corpus.tied: lets 'beside' share 'word', and the schema says another"),
    ],
)
def test_what_cannot_be_tied_is_told(old: str, new: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(WORDS.replace(old, new))
    with pytest.raises(UserError, match=message):
        read_recipe(tmp_path / "r.yaml")
