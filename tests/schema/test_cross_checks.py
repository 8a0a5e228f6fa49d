"""Options that are right by themselves and wrong together."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from feat2vec.errors import UserError
from feat2vec.schema.reading import read_schema
from tests.schema.texts import BASE, cases, group_text, problems, read

IN_A_GROUP = """
column: [x, x], extractor: numeric
    ! column: the column 'x' is here twice; keep one

columns: [x, y]
    ! columns: lookup takes one column, received 2; make a group for each

columns: [x, y], extractor: text_cnn
    ! columns: text_cnn takes one column, received 2; make a group for each

columns: [x, y], extractor: vector
    ! columns: vector takes one column, received 2; make a group for each

column: x, extractor: {bins: 3, multi: true}
    ! extractor.bins: bins are for a column of single numbers; remove `multi`

column: x, extractor: {bins: 3, split: ','}
    ! extractor.bins: cannot be combined with `split`; keep one of them

column: x, extractor: {bins: 3, parts: [year]}
    ! extractor.parts: cannot be combined with `bins`; keep one of them

column: x, extractor: {dates: seconds}
    ! extractor.dates: says how dates are written, for `parts` of them; add `parts`, or remove it

column: x, extractor: {parts: [day], dates: hours}
    ! extractor.dates: is `seconds`, `milliseconds`, or a pattern of %Y %m %d %H %M %S and the like

column: x, extractor: {type: numeric, dates: hours}
    ! extractor.dates: is `seconds`, `milliseconds`, or a pattern of %Y %m %d %H %M %S and the like

column: x, extractor: {type: numeric, written: 97 min}
    ! extractor.written: is an example of how 1.5 or 1000.5 is written, such as `1,5`, `$1,000.5` or `1.5 min`

column: x, extractor: {type: numeric, written: '1,5', dates: seconds}
    ! extractor.dates: cannot be combined with `written`; keep one of them

column: x, extractor: {split: ',', parts: [day]}
    ! extractor.parts: cannot be combined with `split`; keep one of them

column: x, extractor: {multi: true, split: ',', weights: w}
    ! extractor.weights: cannot be combined with `split`; keep one of them

column: x, extractor: {multi: true, parts: [day], weights: w}
    ! extractor.weights: cannot be combined with `parts`; keep one of them

column: x, extractor: {weights: w}
    ! extractor.weights: weights are for a bag, one number an item; set `multi: true`

column: x, extractor: {type: text_cnn, widths: [33, 2]}
    ! extractor.widths: 33 is wider than max_tokens, 32; make it narrower

column: x, extractor: {type: text_cnn, max_tokens: 3}
    ! extractor.widths: 4 is wider than max_tokens, 3; make it narrower

column: x, extractor: {type: text_attention, heads: 5}
    ! extractor.heads: token_dim, 64, has no 5 equal parts; make it 60

column: x, extractor: {type: text_attention, heads: 8, token_dim: 6}
    ! extractor.heads: token_dim, 6, has no 8 equal parts; make it 8

columns: [x, y], extractor: text_attention
    ! columns: text_attention takes one column, received 2; make a group for each

column: x, extractor: {type: numeric, hidden: [8], start: pca}
    ! extractor.start: pca is for a linear map of the numbers themselves; remove it, or `hidden`

column: x, extractor: {type: numeric, scale: quantile, pieces: 8, start: pca}
    ! extractor.start: pca is for a linear map of the numbers themselves; remove it, or `pieces`
"""


@pytest.mark.parametrize(("text", "expected"), cases(IN_A_GROUP), ids=count())
def test_one_problem_of_a_group(text: str, expected: list[str]) -> None:
    """Exactly one: nothing that only follows from it."""
    (message,) = expected
    separator = ": " if message.startswith("the key") else "."
    assert problems(group_text(text)) == [f"schema:4: groups.a{separator}{message}"]


OUTSIDE_THE_GROUPS = """
model: {ranks: [64, 16]}
    ! model.ranks: must ascend, received [64, 16]

model: {ranks: [16, 16]}
    ! model.ranks: must ascend, received [16, 16]

model: {ranks: [16], dim: 50}
    ! model.dim: cannot be combined with `ranks`; keep one of them

model: {level_sharing: separate}
    ! model.level_sharing: is for models with `ranks`; remove it, or give ranks

model: {dependents: joint}
    ! model.dependents: is for models with `ranks`; remove it, or give ranks

model: {together: [[a]]}
objective: {type: logistic, target: y}
    ! model.together[0]: names 1 of the groups; a sum needs two or more

model: {together: [[a, a], [b, c]]}
objective: {type: logistic, target: y}
    ! model.together[0][1]: names 'a' again; a group is added up once
    ! model.together[1][1]: names 'c', which is no group

model: {together: [[b, a]]}
objective: {type: logistic, target: y}
    ! model.together: has every group in one sum, which leaves no pairs; leave a group out

model: {together: [[a, b]]}
    ! model.together: is for pairs that tell a number, by logistic, regression or glove; nce is none

model: {together: [[a, b]]}
objective: {type: softmax, target: y}
    ! model.together: is for pairs that tell a number, by logistic, regression or glove; softmax is none

model: {together: [[a, b]]}
objective: {type: logistic, target: y, implicit: a}
    ! model.together: cannot be combined with objective.implicit; remove one of them

noise: {joint: [[a]]}
    ! noise.joint[0]: names 1 of the groups; joint noise needs two or more

noise: {joint: [[]]}
    ! noise.joint[0]: names 0 of the groups; joint noise needs two or more

noise: {joint: [[a, a]]}
    ! noise.joint[0][1]: names 'a' again; a group is drawn once

noise: {joint: [[a, c]]}
    ! noise.joint[0][1]: names 'c', which is no group

noise: {targets: [a, c]}
    ! noise.targets[1]: names 'c', which is no group

noise: {targets: [b, a, b]}
    ! noise.targets[2]: names 'b' again; keep one

noise: {targets: [a, bb]}
    ! noise.targets[1]: names 'bb', which is no group; did you mean 'b'?

noise: {targets: {a: 1, bb: 2}}
    ! noise.targets.bb: names 'bb', which is no group; did you mean 'b'?

noise: {joint: [[a, b]], targets: {b: 2}}
    ! noise.targets.b: names 'b' without 'a', which is drawn with it; name both or neither

noise: {joint: [[a, b]], targets: [b]}
    ! noise.targets[0]: names 'b' without 'a', which is drawn with it; name both or neither

model: {activation: {count: 5, linear: true}}
    ! model.activation.linear: asks for linear terms, and the model has none; add `bias: true`

model: {bias: true, activation: {count: 5, linear: true}}
objective: contrastive
    ! model.activation.linear: asks for linear terms that learn, and contrastive only compares the scores of one row; \
remove it, or use another objective

model: {activation: {count: 1}}
    ! model.activation.count: 1 gives a vector to every key; give more, or `linear: true`

training: {optimizer: {type: ftrl, l1: 1}}
    ! training.optimizer.l1: is of linear terms, and the model has none; add `bias: true` to the model, \
or `penalize: tables` for vectors

training: {optimizer: {type: ftrl, penalize: tables}}
    ! training.optimizer.penalize: says what l1 and l2 are of; give one of them, or remove it

training: {optimizer: {type: sgd, nesterov: true}}
    ! training.optimizer.nesterov: is a form of momentum; add `momentum: 0.9`

head: mlp
    ! head: mlp is for objectives with a target; noise is told by the pairs of groups alone

head: {type: mlp, members: 4, normalize: true}
objective: {type: logistic, target: y}
    ! head.normalize: cannot be combined with `members`; keep one of them

head: {type: mlp, pairs: false}
objective: {type: logistic, target: y}
model: {ranks: [2, 4]}
    ! head.pairs: cannot be off with `model.ranks`, whose levels learn from pairs; give `dim`

objective: {type: logistic, target: y, class_weights: {'2': 1}}
    ! objective.class_weights.2: is no class of a logistic target; those are 0 and 1

objective: {type: logistic, target: y, implicit: aa}
    ! objective.implicit: names 'aa', which is no group; did you mean 'a'?
"""


@pytest.mark.parametrize(("text", "expected"), cases(OUTSIDE_THE_GROUPS), ids=count())
def test_problems_outside_the_groups(text: str, expected: list[str]) -> None:
    assert problems(f"{BASE}{text}\n") == [f"schema:5: {message}" for message in expected]


OF_SEVERAL_PARTS = """
version: 1
groups: {a: {column: a}}
    ! 2: groups: one group has nothing to be learnt from; add a second one, or an objective with a target

version: 1
groups: {a: {column: x, extractor: {bins: 3, weights: w}}, b: {column: b}}
    ! 2: groups.a.extractor.weights: cannot be combined with `bins`; keep one of them
    ! 2: groups.a.extractor.weights: weights are for a bag, one number an item; set `multi: true`

version: 1
groups: {a: {column: a, extractor: {multi: true, weights: y}}}
objective: {type: regression, target: y}
    ! 2: groups.a.extractor.weights: the column 'y' is also the target; name another column

version: 1
groups: {a: {column: a}}
objective: {type: regression, target: y, weight: y}
    ! 3: objective.weight: the column 'y' is also the target; name another column

version: 1
id: y
groups: {a: {column: a}}
objective: {type: regression, target: y}
    ! 2: id: the column 'y' is also the target; name another column
"""


@pytest.mark.parametrize(("text", "expected"), cases(OF_SEVERAL_PARTS), ids=count())
def test_problems_of_several_parts(text: str, expected: list[str]) -> None:
    assert problems(f"{text}\n") == [f"schema:{message}" for message in expected]


SHARES = """
a: {column: a}
b: {column: b, share: b}
    ! b.share: names the group itself; name another group, or remove it

name: {column: a}
b: {column: b, share: nam}
    ! b.share: names 'nam', which is no group; did you mean 'name'?

a: {column: a, share: b}
b: {column: b, share: c}
c: {column: c}
    ! a.share: names 'b', which shares 'c' itself; write `share: c`

a: {column: a, share: b}
b: {column: b, share: a}
    ! a.share: names 'b', which shares 'a' itself; remove one of the two
    ! b.share: names 'a', which shares 'b' itself; remove one of the two

a: {column: a}
b: {column: b, share: a, extractor: text_cnn}
    ! b.extractor: is text_cnn, and 'a', whose vectors it shares, has lookup; remove the extractor

a: {column: a, extractor: {multi: true, max_items: 3}}
b: {column: b, share: a, extractor: {max_items: 3}}
    ! b.extractor.multi: differs from that of 'a', whose vectors it shares; write the same, or remove the extractor

a: {column: a, extractor: {multi: true, weights: w}}
b: {column: b, share: a, extractor: {multi: true}}
    ! b.extractor.weights: differs from that of 'a', whose vectors it shares; write the same, or remove the extractor

a: {columns: [a, c], extractor: numeric}
b: {column: b, share: a}
    ! b.columns: shares vectors of as many columns, received 1 of its own and 2 of 'a'

a: {column: a, extractor: {bins: 3, multi: true}}
b: {column: b, share: a}
    ! a.extractor.bins: bins are for a column of single numbers; remove `multi`

a: {column: a, extractor: {bins: 0}}
b: {column: b, share: a}
    ! a.extractor.bins: must be at least 2, received 0

a: {column: a, extractor: {bins: 0}}
b: {column: b, share: a, extractor: numeric}
    ! a.extractor.bins: must be at least 2, received 0

a: {column: a}
b: {column: b, share: 3}
    ! b.share: expected text, received 3, a whole number; put it in quotes: "3"
"""


@pytest.mark.parametrize(("text", "expected"), cases(SHARES), ids=count())
def test_problems_of_a_group_that_shares_vectors(text: str, expected: list[str]) -> None:
    """Each is told once, where it is."""
    lines = text.split("\n")
    line_of_group = {line.partition(":")[0]: i for i, line in enumerate(lines, start=3)}
    schema = "version: 1\ngroups:\n" + "".join(f"  {line}\n" for line in lines)
    located = [f"schema:{line_of_group[message.partition('.')[0]]}: groups.{message}" for message in expected]
    assert problems(schema) == located


def test_weights_of_items_may_be_a_column_of_each_group_that_shares_vectors() -> None:
    lists = [f"{{multi: true, weights: {column}}}" for column in ("w", "v")]
    text = f"a: {{column: a, extractor: {lists[0]}}}, b: {{column: b, share: a, extractor: {lists[1]}}}"
    assert list(read(f"version: 1\ngroups: {{{text}}}\n").columns()) == ["a", "w", "b", "v"]


def test_the_l2_of_shared_vectors_is_that_of_their_owner() -> None:
    text = "version: 1\ngroups: {a: {column: a}, b: {column: b, share: a}}\ntraining: {l2_groups: {b: 1}}\n"
    assert problems(text) == [
        "schema:3: training.l2_groups.b: names 'b', which has the vectors of 'a'; name 'a'",
    ]


def test_one_group_is_enough_for_an_objective_with_a_target() -> None:
    assert read("version: 1\ngroups: {a: {column: a}}\nobjective: {type: logistic, target: y}\n").target == "y"


def test_the_target_may_not_be_a_groups_column() -> None:
    text = "version: 1\ngroups:\n  a: {columns: [x, y], extractor: numeric}\nobjective: {type: regression, target: y}\n"
    assert problems(text) == [
        "schema:3: groups.a.columns: the column 'y' is also the target, which it would give away; remove the group"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("noise: {targets: [b]}", "noise.targets: cannot be combined with objective.implicit"),
        ("noise: {joint: [[a, b]]}", "noise.joint: holds 'a', which objective.implicit draws alone"),
        ("training: {interaction_dropout: 0.2}", "training.interaction_dropout: cannot be combined with"),
        ("head: mlp", "head: cannot be mlp with objective.implicit"),
    ],
)
def test_what_implicit_negatives_cannot_be_combined_with(text: str, expected: str) -> None:
    (message,) = problems(f"{BASE}objective: {{type: logistic, target: y, implicit: a}}\n{text}\n")
    assert expected in message


GAUSSIAN = {
    "model": {"dim": 4, "bias": True, "posterior": "gaussian"},
    "objective": {"type": "regression", "target": "y"},
    "training": {"l2": 2.0, "optimizer": "adam"},
}
ALONE = "cannot be combined with `posterior: gaussian`; remove one of them"


@pytest.mark.parametrize(
    ("section", "given", "expected"),
    [
        (
            "objective",
            {"type": kind},
            f"model.posterior: gaussian is for numbers whose errors are normal, by regression; {kind} is none",
        )
        for kind in ("logistic", "glove")
    ]
    + [
        (
            "model",
            {"dim": None, "ranks": [2, 4]},
            "model.posterior: gaussian cannot be combined with `ranks`; give `dim`",
        ),
        (
            "model",
            {"together": [["a", "b"]]},
            "model.posterior: gaussian cannot be combined with `together`; remove one of them",
        ),
        ("model", {"bias": False}, "model.posterior: gaussian needs the linear terms; add `bias: true`"),
        ("head", {"type": "mlp"}, "model.posterior: gaussian cannot be combined with a network; remove one of them"),
        (
            "groups",
            {"c": {"column": "c", "extractor": "numeric"}},
            "groups.c.extractor: numeric has no `posterior: gaussian`; use lookup",
        ),
        ("groups", {"c": {"column": "c", "extractor": {"gain": 2}}}, f"groups.c.extractor.gain: {ALONE}"),
        (
            "groups",
            {"c": {"column": "c", "extractor": {"item_dropout": 0.1, "multi": True}}},
            f"groups.c.extractor.item_dropout: {ALONE}",
        ),
        (
            "training",
            {"optimizer": "adagrad"},
            "training.optimizer: `posterior: gaussian` learns its means by adam; write `adam`",
        ),
        ("training", {"l2_over": "tables"}, f"training.l2_over: {ALONE}"),
        ("training", {"interaction_dropout": 0.5}, f"training.interaction_dropout: {ALONE}"),
        (
            "training",
            {"l2": 0.0, "l2_groups": {"a": 1.0, "d": 2.0}},
            "training.l2: `posterior: gaussian` needs a precision above 0, for 'b', too",
        ),
    ],
)
def test_what_a_gaussian_posterior_cannot_be_combined_with(section: str, given: dict[str, Any], expected: str) -> None:
    groups = {name: {"column": name} for name in "abd"}
    data: dict[str, Any] = {"version": 1, "groups": groups, **GAUSSIAN}
    read_schema(data)
    of_section = {**data.get(section, {}), **given}
    data[section] = {key: value for key, value in of_section.items() if value is not None}
    with pytest.raises(UserError) as caught:
        read_schema(data)
    (message,) = str(caught.value).splitlines()
    assert message.partition(": ")[2] == expected


@pytest.mark.parametrize(("given", "wrong"), [({"0": 0, "1": 0}, True), ({"0": 0}, False), ({"1": 0, "0": 2}, False)])
def test_classes_that_both_weigh_nothing_are_a_mistake(given: dict[str, float], wrong: bool) -> None:
    objective = {"type": "logistic", "target": "y", "class_weights": given}
    schema = {"version": 1, "groups": {"a": {"column": "a"}}, "objective": objective}
    if wrong:
        with pytest.raises(UserError, match=r"objective\.class_weights: is 0 for both classes"):
            read_schema(schema)
    else:
        read_schema(schema)


def test_activation_and_penalties_are_of_keys_whose_weights_are_numbers() -> None:
    numbers = "version: 1\ngroups: {a: {column: a, extractor: numeric}}\nobjective: {type: regression, target: y}\n"
    assert problems(f"{numbers}model: {{activation: {{}}}}\n") == [
        "schema:4: model.activation: is of the keys of lookups, and no group is one; remove it"
    ]
    penalty = "model: {bias: true}\ntraining: {optimizer: {type: ftrl, l1: 1}}\n"
    assert problems(numbers + penalty) == [
        "schema:5: training.optimizer.l1: is of the linear terms of keys, and no group is a lookup; remove it"
    ]
    keys = "version: 1\ngroups: {a: {column: a}}\nobjective: {type: regression, target: y}\n"
    normal = "model: {bias: true, posterior: gaussian, activation: {}}\ntraining: {l2: 1.0, optimizer: adam}\n"
    assert problems(keys + normal) == [f"schema:4: model.activation: {ALONE}"]


@pytest.mark.parametrize(
    ("groups", "rest", "expected"),
    [
        ("", "{time: c}", "names 'c', which is no group"),
        ("", "{time: aa}", "names 'aa', which is no group; did you mean 'a'?"),
        ("  c: {column: c, extractor: {bins: 3}}\n", "{time: c}", "NO_TIME"),
        ("  c: {column: c, extractor: {split: ','}}\n", "{time: c}", "NO_TIME"),
        ("  c: {columns: [c, d], extractor: numeric}\n", "{time: c}", "NO_TIME"),
        ("  c: {column: c, extractor: vector}\n", "{time: c}", "NO_TIME"),
    ],
)
def test_the_time_is_a_group_of_one_column_of_numbers_or_dates(groups: str, rest: str, expected: str) -> None:
    expected = expected.replace(
        "NO_TIME", "is a group of one column of numbers, years or dates, and 'c' is none; remove it"
    )
    line = BASE.count("\n") + groups.count("\n") + 1
    assert problems(f"{BASE}{groups}training: {rest}\n") == [f"schema:{line}: training.time: {expected}"]


def test_what_excludes_a_time_is_told_where_it_is_set() -> None:
    def with_time(options: str) -> str:
        return f"{BASE}training: {{time: a{options}}}\n"

    remedy = "remove it, or set `time: null`"
    of_refit = f"training.refit: false never learns the last rows, which `time` holds out; {remedy}"
    of_validation = f"training.validation: 0 holds no rows out, which `time` needs; {remedy}"
    assert problems(with_time(", refit: false")) == [f"schema:{BASE.count(chr(10)) + 1}: {of_refit}"]
    with pytest.raises(UserError) as caught:
        read_schema(with_time(""), settings=["training.refit=false", "training.validation=0"])
    assert caught.value.problems == (
        f"--set training.refit=false: {of_refit}",
        f"--set training.validation=0: {of_validation}",
    )


@pytest.mark.parametrize(
    "objective", ["{type: logistic, target: y, class_weights: balanced}", "{type: logistic, target: y, implicit: b}"]
)
def test_a_time_is_for_objectives_that_complete_rows_or_have_a_temperature(objective: str) -> None:
    lines = problems(f"{BASE}objective: {objective}\ntraining: {{time: a}}\n")
    assert lines == [
        "schema:6: training.time: is for completing rows, or for how sure predictions may be, "
        "and logistic has neither with these options; set `time: null`"
    ]
    assert read(f"{BASE}objective: {{type: regression, target: y}}\ntraining: {{time: a}}\n").training.time == "a"
    for extractor in ("lookup", "numeric", "{parts: [year, month]}"):
        assert read(f"{BASE}  c: {{column: c, extractor: {extractor}}}\ntraining: {{time: c}}\n").training.time == "c"
