"""Models without pairs, and who decides the level of a value: what is refused, with its line."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import parse_document
from tests.schema.texts import BASE, cases, problems, read

LINEAR_NEEDS_A_NUMBER = "false leaves a bias and linear terms, for logistic or regression"
WITH_ONE_LINE = """
model: {pairs: false, dim: 8}
objective: {type: logistic, target: y}
    ! model.dim: is of the vectors, which `pairs: false` leaves out; remove one of them

model: {pairs: false, ranks: [2, 4]}
objective: {type: logistic, target: y}
    ! model.ranks: is of the vectors, which `pairs: false` leaves out; remove one of them

model: {pairs: false, together: [[a, b]]}
objective: {type: logistic, target: y}
    ! model.together: is of the vectors, which `pairs: false` leaves out; remove one of them
    ! model.together: has every group in one sum, which leaves no pairs; leave a group out

model: {pairs: false, members: 2}
objective: {type: logistic, target: y}
    ! model.members: is of the vectors, which `pairs: false` leaves out; remove one of them

model: {pairs: false, scale: 0.1}
objective: {type: logistic, target: y}
    ! model.scale: is of the vectors, which `pairs: false` leaves out; remove one of them

model: {pairs: false, levels: {counts: [3]}}
objective: {type: logistic, target: y}
    ! model.levels: is of the vectors, which `pairs: false` leaves out; remove one of them

model: {pairs: false, posterior: gaussian}
objective: {type: regression, target: y}
    ! model.posterior: is of the vectors, which `pairs: false` leaves out; remove one of them

model: {pairs: false, bias: false}
objective: {type: regression, target: y}
    ! model.bias: cannot be off with `pairs: false`, which leaves nothing else; remove one of them

model: {pairs: false}
    ! model.pairs: false leaves a bias and linear terms, for logistic or regression; nce is neither

model: {pairs: false}
objective: {type: softmax, target: y}
    ! model.pairs: false leaves a bias and linear terms, for logistic or regression; softmax is neither

model: {pairs: false}
objective: {type: glove, target: y}
    ! model.pairs: false leaves a bias and linear terms, for logistic or regression; glove is neither

head: mlp
model: {pairs: false}
objective: {type: logistic, target: y}
    ! head: learns from the vectors, which `model.pairs: false` leaves out; remove one of them

training: {l2: 0.1}
model: {pairs: false}
objective: {type: logistic, target: y}
    ! training.l2: is for vectors, which `model.pairs: false` leaves out; use `l2_linear`

training: {interaction_dropout: 0.1}
model: {pairs: false}
objective: {type: logistic, target: y}
    ! training.interaction_dropout: is for vectors, which `model.pairs: false` leaves out; remove it

training: {dependent_rate: 0.1}
model: {pairs: false}
objective: {type: logistic, target: y}
    ! training.dependent_rate: is for vectors, which `model.pairs: false` leaves out; remove it

training: {l2_over: tables}
model: {pairs: false}
objective: {type: logistic, target: y}
    ! training.l2_over: tables is for vectors, which `model.pairs: false` leaves out; remove it

training: {optimizer: {type: ftrl, penalize: tables, l1: 0.1}}
model: {pairs: false}
objective: {type: logistic, target: y}
    ! training.optimizer.penalize: tables are of vectors, which `model.pairs: false` leaves out; remove it

training: {group_dropout: 0.1}
model: {pairs: false}
objective: {type: logistic, target: y}
    ! training.group_dropout: is for vectors, which `model.pairs: false` leaves out; remove it

model: {levels: {counts: [3]}}
    ! model.levels: is for models with `ranks`; remove it, or give ranks

model: {ranks: [2, 4, 8], levels: {counts: [3]}}
    ! model.levels.counts: expected one number for each rank but the first, 2; received 1

model: {ranks: [2, 4, 8], levels: {counts: [9, 3]}}
    ! model.levels.counts: must ascend, received [9, 3]

model: {ranks: [2, 4, 8], levels: {counts: [3, 0]}}
    ! model.levels.counts[1]: must be at least 1, received 0

model: {ranks: [2, 4], levels: {count: [3]}}
    ! model.levels.count: unknown key; did you mean 'counts' or 'columns'?

model: {ranks: [2, 4], levels: {columns: {aa: k}}}
    ! model.levels.columns.aa: names 'aa', which is no group; did you mean 'a'?

model: {ranks: [2, 4], levels: {columns: {a: y}}}
objective: {type: logistic, target: y}
    ! model.levels.columns.a: the column 'y' is also the target, which it would give away; name another column

model: {ranks: [2, 4], level_sharing: all}
    ! model.level_sharing: all is for pairs that tell a number, by logistic, regression or glove; nce is none

model: {ranks: [2, 4], level_sharing: all}
objective: {type: logistic, target: y, implicit: a}
    ! model.level_sharing: all cannot be combined with objective.implicit; remove one of them

model: {ranks: [2, 4], level_sharing: all, members: 2}
objective: {type: logistic, target: y}
    ! model.members: cannot be combined with `ranks`; give `dim`

model: {ranks: [2, 4], level_sharing: all, dependents: strict}
objective: {type: logistic, target: y}
    ! model.dependents: is for values of different levels; with `level_sharing: all` each has all levels

model: {ranks: [2, 4], level_sharing: all, levels: {counts: [5]}}
objective: {type: logistic, target: y}
    ! model.levels: is for values of different levels; with `level_sharing: all` each has all levels

training: {dependent_rate: 0.1}
    ! training.dependent_rate: is of vectors below a value's level, which separate levels of `ranks` have; remove it

training: {dependent_rate: 0.1}
model: {ranks: [2, 4], level_sharing: truncate}
    ! training.dependent_rate: is of vectors below a value's level, which separate levels of `ranks` have; remove it

training: {dependent_rate: 0}
model: {ranks: [2, 4]}
    ! training.dependent_rate: must be more than 0, received 0
"""


@pytest.mark.parametrize(("text", "expected"), cases(WITH_ONE_LINE), ids=count())
def test_what_does_not_fit_is_refused_with_its_line(text: str, expected: list[str]) -> None:
    keys = [message.split(".")[0].split(":")[0] for message in expected]
    lines = [line.split(":")[0] for line in text.splitlines()]
    where = [f"schema:{5 + lines.index(key)}: {message}" for key, message in zip(keys, expected, strict=True)]
    assert problems(f"{BASE}{text}\n") == where


def test_a_network_is_no_whole_model_and_a_bag_tells_no_level() -> None:
    head = "head: mlp\nmodel: {ranks: [2, 4], level_sharing: all}\nobjective: {type: logistic, target: y}\n"
    assert any("level_sharing: all cannot be combined with a network" in problem for problem in problems(BASE + head))
    for extractor in ("{multi: true}", "{bins: 3}", "numeric"):
        groups = f"version: 1\ngroups:\n  a: {{column: a, extractor: {extractor}}}\n  b: {{column: b}}\n"
        (problem,) = problems(groups + "model: {ranks: [2, 4], levels: {columns: {a: k}}}\n")
        expected = (
            "model.levels.columns.a: is for a lookup of one key a row, of which a row tells the level; 'a' is none"
        )
        assert problem == f"schema:5: {expected}"
    groups = "version: 1\ngroups:\n  a: {column: a}\n  b: {column: b, share: a}\n"
    (problem,) = problems(groups + "model: {ranks: [2, 4], levels: {columns: {a: k}}}\n")
    assert problem.endswith("columns.a: is for keys of one group; 'a' shares its vectors with another")


def test_extractors_options_of_vectors_alone_are_refused_without_pairs() -> None:
    linear = "model: {pairs: false}\nobjective: {type: logistic, target: y}\n"
    for key, extractor in (
        ("gain", "{gain: 2}"),
        ("gain", "{type: numeric, gain: 0.5}"),
        ("start", "{type: vector, start: pca}"),
    ):
        groups = f"version: 1\ngroups:\n  a: {{column: a, extractor: {extractor}}}\n  b: {{column: b, share: a}}\n"
        told = f"groups.a.extractor.{key}: is for vectors, which `model.pairs: false` leaves out; remove it"
        assert problems(groups + linear) == [f"schema:3: {told}"]
    assert not read(f"{BASE}{linear}").model.pairs


def test_a_dim_of_null_is_not_given() -> None:
    schema = read_schema(parse_document(BASE + "model: {ranks: [2, 4], dim: 8}\n"), settings=["model.dim=null"])
    assert (schema.model.ranks, schema.model.size_key) == ((2, 4), "ranks")
    assert read(BASE + "model: {dim: null}\n").model.dim == read(BASE).model.dim


MODELS: dict[str, dict[str, Any]] = {
    "{pairs: false}": {"pairs": False, "bias": True},
    "{ranks: [2, 4], level_sharing: all}": {"ranks": (2, 4), "member_dims": (2, 4)},
    "{ranks: [2, 4], levels: {counts: [7]}}": {"ranks": (2, 4)},
    "{ranks: [2, 4], levels: {columns: {a: k}}}": {"ranks": (2, 4)},
    "{ranks: [2, 4]}": {"ranks": (2, 4)},
    "{dim: 6, members: 3}": {"member_dims": (2, 2, 2)},
}


@pytest.mark.parametrize("model", MODELS)
def test_what_is_resolved_is_read_as_the_same(model: str) -> None:
    schema = read(f"{BASE}model: {model}\nobjective: {{type: logistic, target: y}}\n")
    assert read_schema(schema.resolved()) == schema
    for key, value in MODELS[model].items():
        assert getattr(schema.model, key) == value
    assert ("levels:" in schema.resolved()) == (schema.model.ranks is not None and "all" not in model)


def test_a_column_of_levels_is_a_column_of_the_schema() -> None:
    schema = read(f"{BASE}model: {{ranks: [2, 4], levels: {{columns: {{b: depth}}}}}}\n")
    assert schema.columns()["depth"] == ("model", "levels", "columns", "b")
