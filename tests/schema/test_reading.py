"""Sources, settings, plugins and the JSON Schema."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings

import feat2vec
from feat2vec.errors import UserError
from feat2vec.schema.extractor_options import EXTRACTORS, Lookup, NumbersSpec
from feat2vec.schema.optimizer_options import Adam
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import json_schema, read_schema
from feat2vec.schema.training_options import Training
from feat2vec.schema.yaml_text import parse_document
from tests.schema.strategies import QUICK, schemas
from tests.schema.texts import BASE, EXAMPLE, group_text, problems, read


def test_every_source_gives_the_same_schema(tmp_path: Path) -> None:
    path = tmp_path / "schema.yaml"
    path.write_text(EXAMPLE, encoding="utf-8")
    expected = read(EXAMPLE)
    mapping = yaml.safe_load(EXAMPLE)
    before = deepcopy(mapping)
    for source in (path, str(path), EXAMPLE, expected.resolved(), mapping, parse_document(EXAMPLE)):
        assert read_schema(source) == expected
    only_of_ranks = {"level_sharing", "dependents", "level_source"}
    assert read_schema(expected.model_dump(mode="json", exclude={"model": only_of_ranks})) == expected
    assert mapping == before
    assert feat2vec.read_schema(path) == expected


def test_the_example_with_crlf_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "schema.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + EXAMPLE.replace("\n", "\r\n").encode())
    assert read_schema(path) == read(EXAMPLE)


def test_problems_of_a_file_start_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "my schema.yaml"
    path.write_text("version: 1\ngroups:\n  a:\n    colum: x\n  b: {column: b}\n", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_schema(path)
    assert caught.value.problems == (f"{path}:4: groups.a.colum: unknown key; did you mean 'column' or 'columns'?",)


def test_a_folder_and_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Is a directory"):
        read_schema(tmp_path)
    with pytest.raises(UserError, match="No such file"):
        read_schema(tmp_path / "schema.yaml")


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", 1j, float("nan"), {1: 2}, "\ud800"], ids=count())
def test_mappings_that_are_not_plain(value: object) -> None:
    with pytest.raises(UserError):
        read_schema({"version": 1, "groups": {"a": {"column": "a"}, "b": {"column": "b"}}, "name": value})


SETTABLE = """\
version: 1
groups:
  a: {column: a}
  b: {column: b}
training:
  optimizer: adam
  epochs: many
"""


def set_to(*given: str, text: str = SETTABLE) -> Schema:
    return read_schema(parse_document(text), settings=given)


def test_settings_replace_what_the_file_says_even_what_is_wrong() -> None:
    with pytest.raises(UserError, match=r"schema:7: training\.epochs: expected a whole number, received many"):
        set_to()
    schema = set_to(
        "training.epochs=7",
        "training.optimizer.learning_rate=0.5",
        "objective=negative_sampling",
        "model.dim=3",
        "groups.a.extractor.multi=true",
        "noise.targets.b=2",
    )
    assert schema.training == Training(epochs=7, optimizer=Adam(learning_rate=0.5))
    assert schema.objective.type == "negative_sampling"
    assert schema.model.dim == 3
    assert schema.groups["a"].extractor == Lookup(multi=True)
    assert schema.noise.targets == {"b": 2.0}
    assert set_to("training.epochs=010", "training.epochs=2").training.epochs == 2
    flawed = SETTABLE.replace("many", "010\n  epochs: 3")
    assert set_to("training.epochs=2", text=flawed).training.epochs == 2
    assert set_to("training=2", "training={seed: 4}").training == Training(seed=4)


def test_settings_reach_a_schema_of_any_source(tmp_path: Path) -> None:
    path = tmp_path / "schema.yaml"
    path.write_text(EXAMPLE, encoding="utf-8")
    for source in (path, EXAMPLE, yaml.safe_load(EXAMPLE), parse_document(EXAMPLE)):
        assert read_schema(source, settings=["training.epochs=3"]).training.epochs == 3
    assert read_schema(path).training.epochs == 20


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.seed=1.5", "training.seed: expected a whole number, received 1.5"),
        ("training.seed='7'", "training.seed: expected a whole number, received '7'"),
        ("training.seed=", "training.seed: expected a whole number, received nothing"),
        (
            "training.seed=0x1F",
            'training.seed: received 0x1F, which is a hexadecimal or binary number to some readers; write "0x1F" in '
            "quotes for the text, or a plain decimal number",
        ),
        ("training.sede=1", "training.sede: unknown key; did you mean 'seed'?"),
        ("trainin.seed=1", "trainin: unknown key; did you mean 'training'?"),
        ("training.optimizer.lr=1", "training.optimizer.lr: unknown key; known here: type, learning_rate, decay"),
        (
            "training.optimizer=adm",
            "training.optimizer: unknown type 'adm'; did you mean 'adam'?",
        ),
        ("training.optimizer={learning_rate: 0}", "training.optimizer.learning_rate: must be more than 0, received 0"),
        ("name=12", 'name: expected text, received 12, a whole number; put it in quotes: "12"'),
        ("objective=logistic", "objective: the key `target` is missing"),
        ("objective.type=logistic", "objective: the key `target` is missing"),
        ("groups.a.extractor=lokup", "groups.a.extractor: unknown type 'lokup'; did you mean 'lookup'?"),
        ("noise.targets=[a, bb]", "noise.targets[1]: names 'bb', which is no group; did you mean 'b'?"),
        ("noise.targets.bb=2", "noise.targets.bb: names 'bb', which is no group; did you mean 'b'?"),
        ("noise={joint: [[a]]}", "noise.joint[0]: names 1 of the groups; joint noise needs two or more"),
        ("version=2", "version: expected 1, received 2"),
    ],
)
def test_problems_of_settings_are_told_beside_those_of_the_file(setting: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        set_to(setting)
    assert sorted(caught.value.problems) == [
        f"--set {setting}: {message}",
        "schema:7: training.epochs: expected a whole number, received many",
    ]


JSON_SCHEMA = json_schema()


KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


NOTES = {"title", "description", "default", "discriminator", "$defs", "$schema"}


def accepts(schema: Any, value: Any) -> bool:
    """A JSON Schema validator for the words that ours uses; any other word is a mistake of the test."""
    if isinstance(schema, bool):
        return schema
    checks: dict[str, Callable[[Any], bool]] = {
        "$ref": lambda ref: accepts(JSON_SCHEMA["$defs"][ref.removeprefix("#/$defs/")], value),
        "anyOf": lambda options: any(accepts(option, value) for option in options),
        "oneOf": lambda options: sum(accepts(option, value) for option in options) == 1,
        "type": lambda kind: isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool)),
        "enum": lambda values: value in values,
        "const": lambda expected: value == expected,
        "required": lambda keys: not isinstance(value, dict) or all(key in value for key in keys),
        "properties": lambda known: (
            not isinstance(value, dict) or all(accepts(known[key], value[key]) for key in known if key in value)
        ),
        "additionalProperties": lambda rest_schema: (
            not isinstance(value, dict)
            or all(accepts(rest_schema, value[key]) for key in value if key not in schema.get("properties", {}))
        ),
        "propertyNames": lambda names: not isinstance(value, dict) or all(accepts(names, key) for key in value),
        "items": lambda item: not isinstance(value, list) or all(accepts(item, option) for option in value),
        "minItems": lambda n: not isinstance(value, list) or len(value) >= n,
        "minProperties": lambda n: not isinstance(value, dict) or len(value) >= n,
        "minLength": lambda n: not isinstance(value, str) or len(value) >= n,
        "minimum": lambda n: not isinstance(value, (int, float)) or value >= n,
        "maximum": lambda n: not isinstance(value, (int, float)) or value <= n,
        "exclusiveMinimum": lambda n: not isinstance(value, (int, float)) or value > n,
        "exclusiveMaximum": lambda n: not isinstance(value, (int, float)) or value < n,
    }
    return all(checks[word](wanted) for word, wanted in schema.items() if word not in NOTES)


@given(schemas())
@settings(QUICK, max_examples=100)
def test_json_schema_accepts_every_schema_and_its_resolved_text(data: dict[str, Any]) -> None:
    assert accepts(JSON_SCHEMA, data)
    assert accepts(JSON_SCHEMA, yaml.safe_load(read_schema(data).resolved()))


def test_json_schema_is_json_and_names_everything() -> None:
    text = json.dumps(JSON_SCHEMA)
    assert json.loads(text) == JSON_SCHEMA
    assert JSON_SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert list(JSON_SCHEMA["properties"]) == list(Schema.model_fields)
    assert JSON_SCHEMA["required"] == ["version", "groups"]
    group = JSON_SCHEMA["$defs"]["Group"]
    assert list(group["properties"]) == ["column", "columns", "extractor", "share"]
    for name in EXTRACTORS:
        assert f'"const": "{name}"' in text
        assert name in group["properties"]["extractor"]["anyOf"][0]["enum"]
    references = set(re.findall(r'"#/\$defs/(\w+)"', text))
    assert references == set(JSON_SCHEMA["$defs"])


def test_json_schema_accepts_the_example_and_short_forms() -> None:
    assert accepts(JSON_SCHEMA, yaml.safe_load(EXAMPLE))
    assert accepts(JSON_SCHEMA, yaml.safe_load(f"{BASE}objective: nce\ntraining: {{optimizer: adam}}\n"))
    short = {"column": "x", "extractor": "text_cnn"}
    assert accepts(JSON_SCHEMA, {"version": 1, "groups": {"a": short, "b": {"columns": ["x"]}}})


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"extra": 1},
        {"groups": {}},
        {"groups": {"a": {}}},
        {"groups": {"a": {"column": "x", "columns": ["x"]}}},
        {"groups": {"a": {"columns": []}}},
        {"groups": {"a": {"column": "x", "extractor": "lokup"}}},
        {"groups": {"a": {"column": "x", "extractor": {"type": "lookup", "widths": [2]}}}},
        {"objective": "logistic"},
        {"objective": {"type": "nce", "target": "y"}},
        {"training": {"optimizer": "rmsprop"}},
        {"training": {"optimizer": {"type": "adam", "l1": 1}}},
        {"noise": {"targets": "a"}},
        {"noise": {"targets": {"a": 0}}},
        {"noise": {"targets": {"a": "much"}}},
        {"training": {"group_dropout": 1}},
        {"training": {"optimizer": {"learning_rate": 0}}},
    ],
    ids=str,
)
def test_json_schema_refuses_what_we_refuse(change: dict[str, Any]) -> None:
    data = {"version": 1, "groups": {"a": {"column": "a"}, "b": {"column": "b"}}} | change
    assert not accepts(JSON_SCHEMA, data)
    with pytest.raises(UserError):
        read_schema(data)


PLUGIN = """\
from typing import Literal

import feat2vec
from feat2vec.specs import NumbersSpec


@feat2vec.extractor("{name}")
class Wave(NumbersSpec):
    type: Literal["{name}"] = "{name}"
    waves: int = 8
"""


def plugin_schema(folder: Path, plugin: str, extractor: str = "wave") -> Path:
    path = folder / "schema.yaml"
    path.write_text(
        f"version: 1\nplugins:\n  - {plugin}\ngroups:\n  a: {{column: a}}\n"
        f"  b: {{columns: [b, c], extractor: {{type: {extractor}, waves: 3}}}}\n",
        encoding="utf-8",
    )
    return path


@pytest.mark.usefixtures("clean_registry")
def test_a_plugin_beside_the_schema(tmp_path: Path) -> None:
    (tmp_path / "waves_beside.py").write_text(PLUGIN.format(name="wave"), encoding="utf-8")
    path = plugin_schema(tmp_path, "waves_beside")
    before = list(sys.path)
    schema = read_schema(path)
    assert sys.path == before
    spec = schema.groups["b"].extractor
    assert isinstance(spec, NumbersSpec)
    numbers = {"scale": "standard", "nan": "error", "written": None, "dates": None}
    assert spec.model_dump() == {"type": "wave", "gain": 1.0, **numbers, "waves": 3}
    assert schema.plugins == ("waves_beside",)
    assert read_schema(schema.resolved()) == schema
    assert read_schema(path, plugins=False) == schema  # imported already: nothing is run
    assert '"const": "wave"' in json.dumps(json_schema())
    assert "wave" in json_schema()["$defs"]["Group"]["properties"]["extractor"]["anyOf"][0]["enum"]
    assert "type 'wav'; did you mean 'wave'?" in problems(group_text("column: x, extractor: wav"))[0]
    assert problems(group_text("column: x, extractor: {type: wave, wavs: 1}")) == [
        "schema:4: groups.a.extractor.wavs: unknown key; did you mean 'waves'?"
    ]
    assert problems(group_text("column: x, extractor: {type: lookup, waves: 1}")) == [
        "schema:4: groups.a.extractor.waves: unknown key for the type 'lookup'; wave has it"
    ]


@pytest.mark.usefixtures("clean_registry")
def test_a_plugin_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waves_on_path.py").write_text(PLUGIN.format(name="wave"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert read_schema(yaml.safe_load(plugin_schema(tmp_path, "waves_on_path").read_text())).plugins == (
        "waves_on_path",
    )


def test_the_registry_is_clean_again() -> None:
    assert list(EXTRACTORS) == ["lookup", "text_cnn", "text_attention", "numeric", "vector"]
    assert json_schema() == JSON_SCHEMA


@pytest.mark.usefixtures("clean_registry")
def test_plugins_of_others_are_not_imported(tmp_path: Path) -> None:
    (tmp_path / "waves_evil.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    path = plugin_schema(tmp_path, "waves_evil")
    with pytest.raises(UserError) as caught:
        read_schema(path, plugins=False)
    assert caught.value.problems == (
        f"{path}:3: plugins[0]: would run the code of 'waves_evil'; import it yourself first if you trust it",
    )
    assert "waves_evil" not in sys.modules


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def x(:", "SyntaxError: "),
        ("import waves_no_such_module", "ModuleNotFoundError: No module named 'waves_no_such_module'"),
        (
            "from typing import Literal\nimport feat2vec\nfrom feat2vec.specs import NumbersSpec\n"
            "@feat2vec.extractor('lookup')\nclass Mine(NumbersSpec):\n    type: Literal['lookup'] = 'lookup'\n",
            "ValueError: the extractor 'lookup' is registered already",
        ),
    ],
    ids=count(),
)
def test_a_plugin_that_fails(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "waves_fail.py").write_text(code, encoding="utf-8")
    path = plugin_schema(tmp_path, "waves_fail")
    path.write_text(path.read_text() + "nam: x\n", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_schema(path)
    plugin_problem, key_problem = caught.value.problems  # the unknown extractor only follows; the misspelt key does not
    assert plugin_problem.startswith(f"{path}:3: plugins[0]: the plugin 'waves_fail' cannot be imported: {message}")
    assert key_problem == f"{path}:7: nam: unknown key; did you mean 'name'?"


def test_a_plugin_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r":3: plugins\[0\]: the plugin 'waves_none' cannot be imported: ModuleNotFound"
    ):
        read_schema(plugin_schema(tmp_path, "waves_none"))
    with pytest.raises(UserError, match=r"'waves_none\.py' cannot be imported: .*; write 'waves_none'"):
        read_schema(plugin_schema(tmp_path, "waves_none.py"))


def test_reading_a_schema_imports_nothing_heavy(tmp_path: Path) -> None:
    path = tmp_path / "schema.yaml"
    path.write_text(EXAMPLE, encoding="utf-8")
    code = (
        "import sys, feat2vec.schema.reading as s; s.read_schema(sys.argv[1]); s.json_schema();"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "feat2vec" in loaded
    assert not {"tensorflow", "keras", "pyarrow", "duckdb", "pandas", "polars", "numpy", "rich", "click"} & set(loaded)
