"""What is wrong with a key by itself: every mistake at once, and no message that only follows from another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from itertools import count
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from feat2vec.errors import UserError
from feat2vec.schema.document import dotted
from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import dump_document
from tests.schema.strategies import QUICK, schemas
from tests.schema.texts import BASE, EXAMPLE, cases, group_text, problems


def test_all_problems_at_once_sorted_by_line() -> None:
    text = """\
version: 2
groups:
  a: {column: 010}
  a: {column: b}
  b:
    colum: x
    extractor: {tpe: text_cnn,
      filters: 3}
  no: {column: x}
  c:
    columns:
      - x
      - 5
    extractor: nummeric
model: {ranks: [3, 2],
        level_sharing: x}
noise: {joint: [[a, c],
                [b, no]]}
objective: {type: nce, target: y}
training:
  optimizer: adm
  epochs: 0
trainin: {}
"""
    assert problems(text) == [
        "schema:1: version: expected 1, received 2",
        "schema:3: groups.a.column: received 010, which is an octal number to some readers; "
        'write "010" in quotes for the text, or a plain decimal number',
        "schema:4: groups.a: is here twice (first in line 3); keep one",
        "schema:6: groups.b.colum: unknown key; did you mean 'column' or 'columns'?",
        "schema:7: groups.b.extractor.tpe: unknown key; did you mean 'type'?",
        'schema:9: groups: a key must be text, received no; put it in quotes: "no"',
        'schema:13: groups.c.columns[1]: expected text, received 5, a whole number; put it in quotes: "5"',
        "schema:14: groups.c.extractor: unknown type 'nummeric'; did you mean 'numeric'?",
        "schema:15: model.ranks: must ascend, received [3, 2]",
        "schema:16: model.level_sharing: expected 'separate', 'truncate' or 'all', received x",
        'schema:18: noise.joint[1][1]: expected text, received no, a boolean; put it in quotes: "no"',
        "schema:19: objective.target: unknown key for the type 'nce'; glove, logistic, regression, softmax have it",
        "schema:21: training.optimizer: unknown type 'adm'; did you mean 'adam'?",
        "schema:22: training.epochs: must be at least 1, received 0",
        "schema:23: trainin: unknown key; did you mean 'training'?",
    ]


IN_A_GROUP = """
column: x, columns: [x]
    ! column: cannot be given beside `columns`, which means the same; remove one of them

columns: []
    ! columns: needs at least 1 entry, received an empty list

column: []
    ! column: needs at least 1 entry, received an empty list

column: ''
    ! column: expected text that is not empty, received ''

column: {x: 1}
    ! column: expected a list, received keys and values

column: {}
    ! column: expected a list, received an empty mapping

column: [[x]]
    ! column[0]: expected text, received a list

? column
    ! column: expected text, received nothing

column: ~
    ! column: expected text, received ~

column: no
    ! column: expected text, received no, a boolean; put it in quotes: "no"

column: 12
    ! column: expected text, received 12, a whole number; put it in quotes: "12"

column: 1e3
    ! column: expected text, received 1e3, a number; put it in quotes: "1e3"

column: 1_0
    ! column: received 1_0, which is a number with underscores to some readers; write "1_0" in quotes for the text, \
or a plain decimal number

extractor: lookup
    ! the key `column` is missing

column: x, extractor: lokup
    ! extractor: unknown type 'lokup'; did you mean 'lookup'?

column: x, extractor: zzz
    ! extractor: unknown type 'zzz'; known here: lookup, numeric, text_attention, text_cnn, vector

column: x, extractor: {type: NUMERIC}
    ! extractor.type: unknown type 'NUMERIC'; did you mean 'numeric'?

column: x, extractor: 3
    ! extractor: expected a type, or keys and values, received 3

column: x, extractor: null
    ! extractor: expected a type, or keys and values, received null

column: x, extractor: []
    ! extractor: expected a type, or keys and values, received an empty list

column: x, extractor: {type: yes}
    ! extractor.type: expected one of lookup, numeric, text_attention, text_cnn, vector, received yes

column: x, extractor: {mutli: true}
    ! extractor.mutli: unknown key; did you mean 'multi'?

column: x, extractor: {tpe: numeric, scale: none}
    ! extractor.tpe: unknown key; did you mean 'type'?

column: x, extractor: {widths: [2]}
    ! extractor.widths: unknown key for the type 'lookup'; text_cnn has it

column: x, extractor: {type: vector, zzz: 1}
    ! extractor.zzz: unknown key; known here: type, gain, start

column: x, extractor: {type: vector, vector: 1}
    ! extractor.vector: unknown key; known here: type, gain, start

column: x, extractor: {multi: 1}
    ! extractor.multi: expected true or false, received 1

column: x, extractor: {multi: 'yes'}
    ! extractor.multi: expected true or false, received 'yes'

column: x, extractor: {max_items: 0}
    ! extractor.max_items: must be at least 1, received 0

column: x, extractor: {max_items: -3}
    ! extractor.max_items: must be at least 1, received -3

column: x, extractor: {max_items: 2147483648}
    ! extractor.max_items: must be at most 2147483647, received 2147483648

column: x, extractor: {max_items: 1.0}
    ! extractor.max_items: expected a whole number, received 1.0

column: x, extractor: {max_items: on}
    ! extractor.max_items: expected a whole number, received on

column: x, extractor: {max_items: '3'}
    ! extractor.max_items: expected a whole number, received '3'

column: x, extractor: {gain: 0}
    ! extractor.gain: must be more than 0, received 0

column: x, extractor: {type: vector, gain: -1}
    ! extractor.gain: must be more than 0, received -1

column: x, extractor: {item_dropout: 1}
    ! extractor.item_dropout: must be less than 1, received 1

column: x, extractor: {type: text_cnn, item_dropout: 0.1}
    ! extractor.item_dropout: unknown key for the type 'text_cnn'; lookup has it

column: x, extractor: {max_share: 0}
    ! extractor.max_share: must be more than 0, received 0

column: x, extractor: {max_share: 1.5}
    ! extractor.max_share: must be at most 1, received 1.5

column: x, extractor: {bins: 1}
    ! extractor.bins: must be at least 2, received 1

column: x, extractor: {parts: [yaer]}
    ! extractor.parts[0]: expected 'year', 'quarter', 'month', 'day', 'weekday' or 'hour', received yaer; did you \
mean 'year'?

column: x, extractor: {parts: year}
    ! extractor.parts: expected a list, received year

column: x, extractor: {combiner: men}
    ! extractor.combiner: expected 'sum', 'mean' or 'sqrtn', received men; did you mean 'mean'?

column: x, extractor: {type: text_cnn, widths: []}
    ! extractor.widths: needs at least 1 entry, received an empty list

column: x, extractor: {type: text_cnn, widths: [0]}
    ! extractor.widths[0]: must be at least 1, received 0

column: x, extractor: {type: text_attention, positions: none}
    ! extractor.positions: expected 'sinusoidal' or 'learned', received none

column: x, extractor: {type: text_attention, blocks: 0}
    ! extractor.blocks: must be at least 1, received 0

column: x, extractor: {type: text_attention, max_tokens: 5000}
    ! extractor.max_tokens: must be at most 4096, received 5000

column: x, extractor: {type: vector, start: PCA}
    ! extractor.start: expected 'random' or 'pca', received PCA; did you mean 'pca'?

column: x, extractor: {type: text_cnn, dropout: 1}
    ! extractor.dropout: must be less than 1, received 1

column: x, extractor: {type: text_cnn, dropout: .nan}
    ! extractor.dropout: expected a finite number, received .nan

column: x, extractor: {type: numeric, hidden: 50}
    ! extractor.hidden: expected a list, received 50

column: x, extractor: {type: numeric, hidden: [65537]}
    ! extractor.hidden[0]: must be at most 65536, received 65537

column: x, extractor: {type: numeric, scale: no}
    ! extractor.scale: expected 'standard', 'minmax', 'log1p', 'quantile' or 'none', received no

colum: x
    ! colum: unknown key; did you mean 'column' or 'columns'?

column: x, extrator: lookup
    ! extrator: unknown key; did you mean 'extractor'?

column: x, column: y
    ! column: is here twice (first in line 4); keep one
"""


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("text", "expected"), cases(IN_A_GROUP), ids=count())
def test_one_problem_of_a_group(text: str, expected: list[str]) -> None:
    """Exactly one: nothing that only follows from it."""
    (message,) = expected
    separator = ": " if message.startswith("the key") else "."
    assert problems(group_text(text)) == [f"schema:4: groups.a{separator}{message}"]


OUTSIDE_THE_GROUPS = """
zzz: 1
    ! zzz: unknown key; known here: version, name, id, plugins, model, groups, noise, objective, head, training

nois: {}
    ! nois: unknown key; did you mean 'noise'?

name: ''
    ! name: expected text that is not empty, received ''

name: on
    ! name: expected text, received on, a boolean; put it in quotes: "on"

name:
    ! name: expected text, received nothing

id: 7
    ! id: expected text, received 7, a whole number; put it in quotes: "7"

id: {}
    ! id: expected text, received an empty mapping

model:
    ! model: expected keys and values, received nothing

model: 50
    ! model: expected keys and values, received 50

model: {dmi: 3}
    ! model.dmi: unknown key; did you mean 'dim'?

model: {dim: 0}
    ! model.dim: must be at least 1, received 0

model: {dim: -1}
    ! model.dim: must be at least 1, received -1

model: {dim: 70000}
    ! model.dim: must be at most 65536, received 70000

model: {dim: .inf}
    ! model.dim: expected a whole number, received .inf

model: {dim: 0x10}
    ! model.dim: received 0x10, which is a hexadecimal or binary number to some readers; write "0x10" in quotes for \
the text, or a plain decimal number

model: {bias: 1}
    ! model.bias: expected true or false, received 1

model: {ranks: []}
    ! model.ranks: needs at least 1 entry, received an empty list

model: {ranks: 16}
    ! model.ranks: expected a list, received 16

model: {ranks: [16, x, 8]}
    ! model.ranks[1]: expected a whole number, received x

model: {ranks: [x], level_sharing: truncate}
    ! model.ranks[0]: expected a whole number, received x

model: {rank: [1, 2], level_sharing: truncate}
    ! model.rank: unknown key; did you mean 'ranks'?

model: {ranks: [1], dependents: strit}
    ! model.dependents: expected 'joint' or 'strict', received strit; did you mean 'strict'?

noise: {alpha_groups: -0.5}
    ! noise.alpha_groups: must be at least 0, received -0.5

noise: {alpha_values: 11}
    ! noise.alpha_values: must be at most 10, received 11

noise: {negatives: 0}
    ! noise.negatives: must be at least 1, received 0

noise: {negatives: 5.5}
    ! noise.negatives: expected a whole number, received 5.5

noise: {sharing: bacth}
    ! noise.sharing: expected 'record' or 'batch', received bacth; did you mean 'batch'?

training: {averaging: 1}
    ! training.averaging: must be less than 1, received 1

noise: {joint: [a]}
    ! noise.joint[0]: expected a list, received a

noise: {targets: a}
    ! noise.targets: expected a list, received a

noise: {targets: [a, 5]}
    ! noise.targets[1]: expected text, received 5, a whole number; put it in quotes: "5"

noise: {targets: {a: 0}}
    ! noise.targets.a: must be more than 0, received 0

noise: {targets: {a: much}}
    ! noise.targets.a: expected a number, received much

noise: {targets: {b: [1]}}
    ! noise.targets.b: expected a number, received a list

noise: {targets: {a: .inf}}
    ! noise.targets.a: expected a finite number, received .inf

noise: {targets: {'': 1}}
    ! noise.targets['']: expected text that is not empty, received ''

noise: {joint: [a, [b]]}
    ! noise.joint[0]: expected a list, received a

objective: nec
    ! objective: unknown type 'nec'; did you mean 'nce'?

objective: {type: negative_samplng}
    ! objective.type: unknown type 'negative_samplng'; did you mean 'negative_sampling'?

objective: logistic
    ! objective: the key `target` is missing

objective: {type: softmax}
    ! objective: the key `target` is missing

objective: {type: glove, targt: n}
    ! objective.targt: unknown key; did you mean 'target'?

objective: {type: logistic, target: 1}
    ! objective.target: expected text, received 1, a whole number; put it in quotes: "1"

objective: {type: nce, target: y}
    ! objective.target: unknown key for the type 'nce'; glove, logistic, regression, softmax have it

objective: {type: contrastive, weight: y}
    ! objective.weight: unknown key for the type 'contrastive'; glove, logistic, regression, softmax have it

objective: {type: contrastive, temperature: 0}
    ! objective.temperature: must be more than 0, received 0

objective: {type: contrastive, unit: 1}
    ! objective.unit: expected true or false, received 1

objective: {type: nce, unit: true}
    ! objective.unit: unknown key for the type 'nce'; contrastive has it

objective: {type: nce, correction: true}
    ! objective.correction: unknown key for the type 'nce'; contrastive has it

objective: {type: glove, target: n, n_max: 0}
    ! objective.n_max: must be more than 0, received 0

objective: [nce]
    ! objective: expected a type, or keys and values, received a list

training: []
    ! training: expected keys and values, received an empty list

training: {epoch: 3}
    ! training.epoch: unknown key; did you mean 'epochs'?

training: {epochs: 1e3}
    ! training.epochs: expected a whole number, received 1e3

training: {batch_size: off}
    ! training.batch_size: expected a whole number, received off

training: {l2: -1}
    ! training.l2: must be at least 0, received -1

training: {l2: 1e999}
    ! training.l2: expected a finite number, received 1e999

training: {l2: .nan}
    ! training.l2: expected a finite number, received .nan

training: {l2: high}
    ! training.l2: expected a number, received high

model: {dim: 6, members: 4}
objective: {type: logistic, target: c}
    ! model.members: must divide `dim`: 6 dimensions are no 4 parts of the same size

model: {ranks: [2, 4], members: 2}
objective: {type: logistic, target: c}
    ! model.members: cannot be combined with `ranks`; give `dim`

model: {dim: 6, members: 2}
    ! model.members: is for pairs that tell a number, by logistic, regression or glove; nce is none

model: {dim: 6, members: 2}
objective: {type: logistic, target: c}
head: {type: mlp}
    ! model.members: cannot be combined with a network, which has `head.members` of its own; remove one of them

model: {dim: 6, members: 2}
objective: {type: logistic, target: c, implicit: a}
    ! model.members: cannot be combined with objective.implicit; remove one of them

model: {posterior: normal}
    ! model.posterior: expected 'point' or 'gaussian', received normal

objective: {type: logistic, target: c, zero_as: 0.5}
    ! objective.zero_as: must be less than 0.5, received 0.5

training: {l2_groups: {aa: 1}}
    ! training.l2_groups.aa: names 'aa', which is no group; did you mean 'a'?

training: {l2_groups: {a: -1}}
    ! training.l2_groups.a: must be at least 0, received -1

training: {l2_groups: {a: 1}, l2_over: tables}
    ! training.l2_groups: cannot be combined with `l2_over: tables`, which weighs all weights alike; remove one of them

training: {group_dropout: 1.0}
    ! training.group_dropout: must be less than 1, received 1.0

training: {seed: -1}
    ! training.seed: must be at least 0, received -1

training: {seed: 99999999999999999999}
    ! training.seed: must be less than 2147483648, received 99999999999999999999

training: {optimizer: adm}
    ! training.optimizer: unknown type 'adm'; did you mean 'adam'?

training: {optimizer: {type: rmsprop}}
    ! training.optimizer.type: unknown type 'rmsprop'; known here: adagrad, adam, ftrl, sgd

training: {optimizer: {type: adam, l1: 0.1}}
    ! training.optimizer.l1: unknown key for the type 'adam'; ftrl has it

training: {optimizer: {type: ftrl, l1: -1}}
    ! training.optimizer.l1: must be at least 0, received -1

training: {optimizer: {type: sgd, momentum: 1}}
    ! training.optimizer.momentum: must be less than 1, received 1

model: {activation: 10}
    ! model.activation: expected keys and values, received 10

model: {activation: {count: 0}}
    ! model.activation.count: must be at least 1, received 0

training: {optimizer: {adam: 1}}
    ! training.optimizer.adam: unknown key; known here: type, learning_rate, decay

training: {optimizer: {type: adam, adam: 1}}
    ! training.optimizer.adam: unknown key; known here: type, learning_rate, decay

training: {optimizer: {lr: 0.1}}
    ! training.optimizer.lr: unknown key; known here: type, learning_rate, decay

training: {optimizer: {decay: zigzag}}
    ! training.optimizer.decay: expected 'linear' or 'none', received zigzag

training: {patience: -1}
    ! training.patience: must be at least 0, received -1

model: {scale: 0}
    ! model.scale: must be more than 0, received 0

training: {l2_over: rows}
    ! training.l2_over: expected 'occurrences' or 'tables', received rows

head: {type: mlp, hidden: []}
    ! head.hidden: needs at least 1 entry, received an empty list

head: {type: tree}
    ! head.type: unknown type 'tree'; known here: fm, mlp

objective: {type: logistic, target: y, class_weights: even}
    ! objective.class_weights: expected 'balanced', received even

objective: {type: regression, target: y, class_weights: balanced}
    ! objective.class_weights: unknown key for the type 'regression'; logistic, softmax have it

training: {checkpoint_minutes: 0}
    ! training.checkpoint_minutes: must be more than 0, received 0

training: {optimizer: {learning_rate: 0}}
    ! training.optimizer.learning_rate: must be more than 0, received 0

plugins: x
    ! plugins: expected a list, received x

plugins: [3]
    ! plugins[0]: expected text, received 3, a whole number; put it in quotes: "3"

plugins: ['']
    ! plugins[0]: expected text that is not empty, received ''
"""


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("text", "expected"), cases(OUTSIDE_THE_GROUPS), ids=count())
def test_one_problem_outside_the_groups(text: str, expected: list[str]) -> None:
    assert problems(f"{BASE}{text}\n") == [f"schema:5: {message}" for message in expected]


WITHOUT_FOLLOWING = """
groups: {a: {column: a}, b: {column: b}}
    ! 1: the key `version` is missing; add `version: 1`

version: 1
    ! 1: the key `groups` is missing

vresion: 1
groups: {a: {column: a}, b: {column: b}}
    ! 1: vresion: unknown key; did you mean 'version'?

version: 1
gruops: {a: {column: a}}
    ! 2: gruops: unknown key; did you mean 'groups'?

version: 1
groups: {}
    ! 2: groups: needs at least 1 entry, received an empty mapping

version: 1
groups:
    ! 2: groups: expected keys and values, received nothing

version: 1
groups: [a]
    ! 2: groups: expected keys and values, received a list

version: 1
groups: {a: , b: {column: b}}
    ! 2: groups.a: expected keys and values, received nothing

version: 1
groups: {a: x, b: {column: b}}
    ! 2: groups.a: expected keys and values, received x

version: 1
groups: {'': {column: b}, b: {column: b}}
    ! 2: groups['']: expected text that is not empty, received ''

version: 1
groups: {no: {column: b}}
    ! 2: groups: a key must be text, received no; put it in quotes: "no"

version: 1
groups: {<<: {a: {column: b}}}
    ! 2: groups: merge keys (`<<`) are not supported; repeat the keys

version: true
groups: {a: {column: a}, b: {column: b}}
    ! 1: version: expected 1, received true

version: 1.0
groups: {a: {column: a}, b: {column: b}}
    ! 1: version: expected 1, received 1.0

version: '1'
groups: {a: {column: a}, b: {column: b}}
    ! 1: version: expected 1, received '1'

version:
groups: {a: {column: a}, b: {column: b}}
    ! 1: version: expected 1, received nothing

version: [1]
groups: {a: {column: a}, b: {column: b}}
    ! 1: version: expected 1, received a list

version: 1
groups: {a: {column: a}}
objective: logistc
    ! 3: objective: unknown type 'logistc'; did you mean 'logistic'?

version: 1
groups: {a: {column: a}}
objective: logistic
    ! 3: objective: the key `target` is missing

version: 1
groups: {a: {column: a}}
objektive: logistic
    ! 3: objektive: unknown key; did you mean 'objective'?

version: 1
groups: {a: {colum: a}, b: {column: b}}
noise: {joint: [[a, b]]}
    ! 2: groups.a.colum: unknown key; did you mean 'column' or 'columns'?

version: 2
groups: 3
model: {ranks: [2, 1]}
    ! 1: version: expected 1, received 2
    ! 2: groups: expected keys and values, received 3
    ! 3: model.ranks: must ascend, received [2, 1]

version: 1
groups: 3
noise: {joint: [[a, b]]}
    ! 2: groups: expected keys and values, received 3

version: 1
groups: {a: {column: x, extractor: {multi: yess, weights: w}}, b: {column: b}}
    ! 2: groups.a.extractor.multi: expected true or false, received yess

version: 1
groups: {a: {column: x, extractor: {mutli: yes, weights: w}}, b: {column: b}}
    ! 2: groups.a.extractor.mutli: unknown key; did you mean 'multi'?

version: 1
groups: {a: {column: x, extractor: {type: text_cnn, max_tokens: 99x, widths: [40]}}, b: {column: b}}
    ! 2: groups.a.extractor.max_tokens: expected a whole number, received 99x
"""


@pytest.mark.parametrize(("text", "expected"), cases(WITHOUT_FOLLOWING), ids=count())
def test_problems_do_not_bring_others(text: str, expected: list[str]) -> None:
    assert problems(f"{text}\n") == [f"schema:{message}" for message in expected]


def test_lines_of_values_in_flow_style_over_several_lines() -> None:
    text = (
        "{version: 1,\n groups: {a: {column: a,\n   extractor: {type: text_cnn,\n"
        "     widths: [2,\n       0]}},\n  b: {column: 5}}}"
    )
    assert problems(text) == [
        "schema:5: groups.a.extractor.widths[1]: must be at least 1, received 0",
        'schema:6: groups.b.column: expected text, received 5, a whole number; put it in quotes: "5"',
    ]


def test_a_mistake_in_an_anchor_is_told_at_the_anchor() -> None:
    text = "version: 1\ngroups:\n  a: &x\n    column: 5\n  b: *x\n"
    assert [problem.split(": expected")[0] for problem in problems(text)] == [
        "schema:4: groups.a.column",
        "schema:4: groups.b.column",
    ]


def test_values_in_messages_are_short_and_in_one_line() -> None:
    for text in (
        f"{BASE}model: {{dim: {'x' * 9999}}}",
        f"{BASE}name: 3\n\n{'z' * 9999}: 1",
        f'{BASE}objective: "a\\nb"',
    ):
        for problem in problems(f"{text}\n"):
            assert len(problem) < 250
            assert "\n" not in problem


def test_many_problems_are_told_quickly() -> None:
    lines = [f"  g{i}: {{column: {i}, colum: x, extractor: lokup}}" for i in range(1000)]
    assert len(problems("\n".join(["version: 1", "groups:", *lines, ""]))) == 3000


THEIRS = re.compile(
    r"input|pydantic|\bvalid\b|tuple|dict|instance|model_|Field required|permitted|should|NoneType|Traceback|\bstr\b"
    r"|\bint\b|literal|Error\b|discriminator|object at"
)


SURPRISES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**63, 10**30, -(10**400), 1.5, 1e308, float("inf"), float("nan"), -0.0]),
    st.sampled_from(["", "x", "lookup", "nce", "numeric", "adam", "type", "a b", "\n", "\ud800", "no", "logistic"]),
    st.just([]),
    st.just({}),
    st.lists(st.sampled_from([1, "x", None, [], {}, "year"]), max_size=3),
    st.dictionaries(st.sampled_from(["type", "x", "column", "", "multi"]), st.sampled_from([1, "lookup", None, []])),
)


KEYS = st.sampled_from(
    ["x", "tpe", "colum", "column", "columns", "target", "ranks", "type", "", "lookup", "nce", "[key]"]
)


def nodes(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    for key in data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield (*path, key)
        yield from nodes(data[key], (*path, key))


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A schema of which a few nodes are replaced, removed, renamed or joined by another one."""
    data: dict[str, Any] = deepcopy(draw(schemas() | st.just(yaml.safe_load(EXAMPLE))))
    for _ in range(draw(st.integers(1, 4))):
        paths = list(nodes(data))
        if not paths:
            break
        path = draw(st.sampled_from(paths))
        holder: Any = data
        for key in path[:-1]:
            holder = holder[key]
        change = draw(st.sampled_from(["replace", "remove", "rename", "add"]))
        if change == "replace":
            holder[path[-1]] = deepcopy(draw(SURPRISES))
        elif change == "remove" or not isinstance(holder, dict):
            del holder[path[-1]]
        elif change == "rename":
            holder[draw(KEYS)] = holder.pop(path[-1])
        else:
            holder[draw(KEYS)] = deepcopy(draw(SURPRISES))
    return data


@pytest.mark.parametrize("examples", [50, pytest.param(150, marks=pytest.mark.slow)])
def test_any_mutation_is_a_schema_or_told_in_our_words(examples: int) -> None:
    settings(QUICK, max_examples=examples)(given(mutated())(assert_in_our_words))()


def assert_in_our_words(data: dict[str, Any]) -> None:
    messages = mistakes(data)
    assert all(re.match(r"^schema:[1-9]\d*: ", problem) for problem in messages)
    assert not [problem for problem in messages if THEIRS.search(problem) or "\n" in problem]
    assert len(set(messages)) == len(messages)
    lines = [int(problem.split(":")[1]) for problem in messages]
    assert lines == sorted(lines)


def mistakes(data: dict[str, Any]) -> tuple[str, ...]:
    """The problems of the data, or none when it is a schema that can be read back."""
    try:
        schema = read_schema(data)
    except UserError as caught:
        return caught.problems
    assert read_schema(schema.resolved()) == schema
    return ()


PLACES = [path for path in nodes(yaml.safe_load(EXAMPLE)) if len(path) != 2 or path[0] != "groups"]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("path", PLACES, ids=dotted)
def test_keys_that_are_unknown_are_told_where_they_are(path: tuple[str | int, ...]) -> None:
    """Each node of the example, replaced by a mapping that no part knows."""
    data: Any = yaml.safe_load(EXAMPLE)
    holder = data
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = {"zzzz": 1}
    messages = [problem.split(": ")[1] for problem in problems(dump_document(data))]
    assert dotted(path) in messages or f"{dotted(path)}.zzzz" in messages
    assert all(where.startswith(dotted(path)) or where.startswith("noise.joint") for where in messages)
