"""YAML text to data with lines: no surprise of YAML's is ever a guess, and no text is ever a traceback."""

from __future__ import annotations

import re
from collections import OrderedDict
from itertools import count, pairwise
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from feat2vec.errors import UserError
from feat2vec.schema.document import Data
from feat2vec.schema.yaml_text import (
    MAX_DIGITS,
    dump_document,
    other_reading,
    parse_document,
    read_document,
    scalar_value,
)


def flaws(text: str) -> list[str]:
    document = parse_document(text)
    return [document.problem(flaw.path, flaw.message, flaw.line) for flaw in document.flaws]


def error(text: str) -> str:
    with pytest.raises(UserError) as caught:
        parse_document(text)
    return str(caught.value)


# --- what is right --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", 12),
        ("-3", -3),
        ("+3", 3),
        ("0", 0),
        ("1e-3", 0.001),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-.inf", float("-inf")),
        ("true", True),
        ("Yes", True),
        ("ON", True),
        ("off", False),
        ("no", False),
        ("~", None),
        ("", None),
        ("Null", None),
        ("north", "north"),
        ("y", "y"),
        ("tRUE", "tRUE"),
        ("1.2.3", "1.2.3"),
        ("=", "="),
        ("<<", "<<"),
        ("'12'", "12"),
        ('"no"', "no"),
        ('"010"', "010"),
        ("'2020-01-01'", "2020-01-01"),
        ("|-\n  12", "12"),
        ("Ünï 🎬", "Ünï 🎬"),
    ],
)
def test_scalars(text: str, expected: Data) -> None:
    document = parse_document(f"key: {text}\n")
    assert document.flaws == ()
    value = document.data["key"]
    assert (value, type(value)) == (expected, type(expected))


def test_lines_of_block_and_flow_style() -> None:
    document = parse_document("# first\na:\n  b: 1\n  c: [x,\n\n      {d: 2}]\ne: {f: 1,\n    g: 2}\n")
    assert document.lines == {
        ("a",): 2,
        ("a", "b"): 3,
        ("a", "c"): 4,
        ("a", "c", 0): 4,
        ("a", "c", 1): 6,
        ("a", "c", 1, "d"): 6,
        ("e",): 7,
        ("e", "f"): 7,
        ("e", "g"): 8,
    }
    assert document.line(("a", "c", 7, "z")) == 4
    assert document.line(("z",)) == document.line(()) == 1
    assert document.problem(("a", "c", 1, "d"), "wrong") == "schema:6: a.c[1].d: wrong"
    assert document.problem((), "wrong") == "schema:1: wrong"


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_line_ends(line_end: str) -> None:
    document = parse_document(line_end.join(["a: 1", "b:", "  - x", ""]))
    assert document.data == {"a": 1, "b": ["x"]}
    assert document.lines["b", 0] == 3


def test_aliases_are_read_with_the_lines_of_what_they_repeat() -> None:
    document = parse_document("a: &x\n  - 1\nb: *x\n")
    assert document.data == {"a": [1], "b": [1]}
    assert document.lines["b", 0] == 2


def test_spelling_is_remembered() -> None:
    assert parse_document("a: YES\nb: 'no'\nc: [1e3]\n").spelled == {("a",): "YES", ("c", 0): "1e3"}


# --- YAML's surprises -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("010", "an octal number"),
        ("-07", "an octal number"),
        ("08", "an octal number"),
        ("0o17", "an octal number"),
        ("0x1F", "a hexadecimal or binary number"),
        ("0b101", "a hexadecimal or binary number"),
        ("1_000", "a number with underscores"),
        ("1_0.5", "a number with underscores"),
        ("1.5_0", "a number"),
        ("12:30", "a number of base 60"),
        ("190:20:30.15", "a number of base 60"),
        ("2020-01-01", "a date"),
        ("2001-12-14t21:59:43.10-05:00", "a date"),
        ("2001-12-14 21:59:43", "a date"),
        ("9" * 5000, "a number too long"),
    ],
)
def test_ambiguous_scalars_are_settled_with_quotes(text: str, reading: str) -> None:
    (problem,) = flaws(f"a: 1\nkey:\n  - x\n  - {text}\n")
    assert problem.startswith(f"schema:4: key[1]: received {text[:20]}")
    assert f"which is {reading} " in problem
    assert "in quotes for the text, or a plain decimal number" in problem
    assert len(problem) < 300
    assert flaws(f"key: '{text}'\n") == []


NUMBERISH = st.text("0123456789_.:-+eExXobBnNaAiIfFtTyYsS~ ", min_size=1, max_size=12)


@given(NUMBERISH)
@example("1.5_0")
@example("._1")
@example("0b_")
@example("1__0")
@example("-0b1")
@example("1:30.5")
@settings(derandomize=True, deadline=None, max_examples=500)
def test_no_text_of_ours_is_another_readers_number(text: str) -> None:
    """An unquoted scalar that we read as text is text for YAML 1.1 as well, or is refused."""
    try:
        document = parse_document(f"key: {text}\n")
        theirs = yaml.safe_load(f"key: {text}\n")
    except (UserError, yaml.YAMLError, ValueError):
        return
    if not document.flaws and isinstance(document.data["key"], str) and isinstance(theirs, dict):
        assert theirs["key"] == document.data["key"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", ["schema:3: a: is here twice (first in line 1); keep one"]),
        ("g: {a: 1, b: 2,\n  a: 3, a: 4}\n", ["schema:2: g.a: is here twice (first in line 1); keep one"] * 2),
        ("a: 1\n1: 2\n", ['schema:2: a key must be text, received 1; put it in quotes: "1"']),
        ("g:\n  no: 2\n", ['schema:2: g: a key must be text, received no; put it in quotes: "no"']),
        ("g:\n  010: 2\n", ['schema:2: g: a key must be text, received 010; put it in quotes: "010"']),
        ("g: {12:30: 2}\n", ['schema:1: g: a key must be text, received 12:30; put it in quotes: "12:30"']),
        ("~: 2\n", ['schema:1: a key must be text, received ~; put it in quotes: "~"']),
        ("? [a]\n: 2\n", ["schema:1: a key must be text, received a list or keys and values"]),
        ("? {a: 010}\n: 2\n", ["schema:1: a key must be text, received a list or keys and values"]),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", ["schema:3: c: merge keys (`<<`) are not supported; repeat the keys"]),
        ("a: !mine x\n", ["schema:1: a: tags are not supported, received '!mine'; remove it"]),
        ("!mine a: x\n", ["schema:1: tags are not supported, received '!mine'; remove it"]),
        ("a: !!binary x\n", ["schema:1: a: tags are not supported, received 'tag:yaml.org,2002:binary'; remove it"]),
        ("a: !!set {x}\n", ["schema:1: a: tags are not supported, received 'tag:yaml.org,2002:set'; remove it"]),
        ("a: !!omap [x: 1]\n", ["schema:1: a: tags are not supported, received 'tag:yaml.org,2002:omap'; remove it"]),
    ],
)
def test_flaws(text: str, expected: list[str]) -> None:
    assert flaws(text) == list(dict.fromkeys(expected))


@pytest.mark.parametrize(
    "tag", ["name:os.system", "object/apply:os.system [x]", "tuple [1, 2]", "object:builtins.dict {}"]
)
def test_no_tag_of_pythons_is_obeyed(tag: str) -> None:
    (problem,) = flaws(f"a: !!python/{tag}\n")
    assert problem.startswith("schema:1: a: tags are not supported, received 'tag:yaml.org,2002:python/")
    assert parse_document(f"a: !!python/{tag}\n").data == {"a": None}


def test_a_tag_of_the_whole_document() -> None:
    assert flaws("!!python/object:builtins.dict {a: 1}\n")[0].startswith("schema:1: tags are not supported")


def test_all_flaws_are_found() -> None:
    assert len(flaws("a: 010\nb: !x 1\nb: 0x1\nc: [1_0, {no: 1, 2: x}]\n")) == 6


@pytest.mark.parametrize(("text", "path"), [("a: &x [1, *x]\n", "a[1]"), ("a: &x\n  b: *x\n", "a.b")])
def test_an_alias_inside_itself(text: str, path: str) -> None:
    (problem,) = flaws(text)
    assert problem == f"schema:1: {path}: this alias refers to itself or repeats too much; write the value out"


def test_billions_of_laughs_are_cut_short() -> None:
    names = "abcdefghijklmnop"
    lines = [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in pairwise(names)]
    problems = flaws("\n".join(["a: &a [x, x, x]", *lines, ""]))
    assert len(problems) == 1
    assert "repeats too much" in problems[0]


def test_aliases_do_not_nest_deeper_than_brackets_may() -> None:
    text = "a0: &a0 x\n" + "".join(f"a{i + 1}: &a{i + 1} {'[' * 40}*a{i}{']' * 40}\n" for i in range(100))
    assert all("repeats too much" in problem for problem in flaws(text))
    assert flaws(text)


@pytest.mark.parametrize(
    "text", ["[" * 10_000, "{a: " * 10_000, "- " * 10_000, "? " * 10_000, "a: " + "[" * 99 + "]" * 99]
)
def test_deep_nesting(text: str) -> None:
    assert error(text) == "schema:1: is not YAML: more than 50 levels of nesting"


def test_deep_nesting_in_block_style() -> None:
    text = "".join(f"{' ' * i}a:\n" for i in range(300))
    assert error(text) == "schema:50: is not YAML: more than 50 levels of nesting"


# --- what is no YAML ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1: the file is empty; `feat2vec init DATA -o SCHEMA` writes a schema"),
        ("# only this\n", "1: the file is empty; `feat2vec init DATA -o SCHEMA` writes a schema"),
        ("---\n", "1: the file is empty; `feat2vec init DATA -o SCHEMA` writes a schema"),
        ("\n- a\n", "2: expected keys such as `version:` and `groups:`, received a list"),
        ("words\n", "1: expected keys such as `version:` and `groups:`, received a single value"),
        ("a: 1\n---\nb: 1\n", "2: is not YAML: holds several documents; keep one, and remove the `---` between them"),
        ("a:\n\t- 1\n", "2: is not YAML: a tab where only spaces may stand; indent with spaces"),
        ("a: b: c\n", "1: is not YAML: a `: ` where no key may stand; indent keys alike, put text with `: ` in quotes"),
        ("a: 1\nb\n", "2: is not YAML: a line without `: `; write `key: value`"),
        ("a: *x\n", "1: is not YAML: found undefined alias 'x'; put text that starts with `*` in quotes"),
        ("a: @x", "1: is not YAML: found character '@' that cannot start any token; put text that starts with it"),
        ("a: 1\nb: 'x\nc: 1\n", "2: is not YAML: a quote is opened here and not closed; close it"),
        ("a: 1\nb: [x\n", "2: is not YAML: a bracket is opened here and not closed; close it"),
        ("a: x\nb: \x07\n", "2: is not YAML: it has the character '\\x07'; remove it"),
        ("a: \x00\n", "1: is not YAML: it has the character '\\x00'; remove it"),
        ("a:\n  b: 1\n c: 2\n", "3: is not YAML: while parsing a block mapping, expected <block end>, but found '<bl"),
    ],
)
def test_what_cannot_be_parsed(text: str, expected: str) -> None:
    assert error(text).startswith(f"schema:{expected}")


def test_an_impossible_escape() -> None:
    assert error('a: "\\UFFFFFFFF"\n').startswith("schema:1: is not YAML: an escape or number that names nothing")


@given(st.text("ab:-[]{},&*!|>'\"%@`#?~<0.1 \n\t\r\\Ux\ufeff\x85\u2028é🎬", max_size=60))
@settings(derandomize=True, deadline=None, max_examples=1000)
def test_any_text_is_a_document_or_a_users_mistake(text: str) -> None:
    try:
        document = parse_document(text)
    except UserError as caught:
        problems = caught.problems
    else:
        problems = tuple(document.problem(flaw.path, flaw.message, flaw.line) for flaw in document.flaws)
    assert all(re.match(r"schema:[1-9]\d*: ", problem) and "\n" not in problem for problem in problems)


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"a: \xc3\xa9\r\n", b"\xef\xbb\xbfa: \xc3\xa9\n"])
def test_files_with_and_without_byte_order_mark(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(content)
    for name in (path, str(path)):
        document = read_document(name)
        assert (document.name, document.data) == (str(path), {"a": "é"})


def test_a_file_without_an_end(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # of zeros, none of which is on the disk
    with pytest.raises(UserError, match=r"s\.yaml: is larger than 16 MB, which no schema or recipe is; `feat2vec init"):
        read_document(path)


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(b"a: 1\nb: \xe9t\xe9\n")
    with pytest.raises(UserError) as caught:
        read_document(path)
    assert str(caught.value) == f"{path}:2: is not UTF-8 text (byte 8); save it as UTF-8"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_file_of_wide_characters(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes("a: 1\n".encode(encoding))
    with pytest.raises(UserError, match="is not UTF-8 text"):
        read_document(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "movies.yaml").write_text("a: 1\n")
    for path, expected in [
        (tmp_path / "movie.yaml", "cannot be read: No such file or directory; did you mean 'movies.yaml'?"),
        (tmp_path / "zzz", "cannot be read: No such file or directory; `feat2vec init DATA -o SCHEMA` writes a schema"),
        (
            tmp_path / "no" / "folder.yaml",
            "cannot be read: No such file or directory; `feat2vec init DATA -o SCHEMA` writes a schema",
        ),
        (tmp_path, "cannot be read: Is a directory; `feat2vec init DATA -o SCHEMA` writes a schema"),
        (
            tmp_path / "movies.yaml" / "x",
            "cannot be read: Not a directory; `feat2vec init DATA -o SCHEMA` writes a schema",
        ),
        (tmp_path / "nul\0", "cannot be read: embedded null byte; `feat2vec init DATA -o SCHEMA` writes a schema"),
    ]:
        with pytest.raises(UserError) as caught:
            read_document(path)
        assert str(caught.value) == f"{path}: {expected}"


# --- data to text ---------------------------------------------------------------------------------------------------

HOSTILE = [
    "no", "Yes", "y", "N", "on", "null", "~", "", "010", "0o17", "0x1f", "1_000", "1e3", "1.5e3", ".5", "+.5", ".inf",
    ".nan", "2020-01-01", "12:30", " x", "x ", "a: b", "a:", "#x", "x #y", "- x", "-", "?", "? x", "[x", "{x", "x]",
    "&x", "*x", "!x", "|", ">", "%x", "@x", "`x`", "'", '"', "\\", "a\nb", "a\n\nb ", "\n", "\t", "a\tb", "\r", "\x85",
    "\u2028", "\u200b", "\ufeff", "é", "e\u0301", "東京", "🎬", "👩\u200d👧", "=", "<<", "---", "...", "--- x",
    "a" * 300, "a b " * 99, "\x00", "\x07", "\ufffe", "1.", "1:2", "0", "00", "-0", "9" * 400,
]  # fmt: skip
TEXTS = st.sampled_from(HOSTILE) | st.text(max_size=20)
SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | TEXTS
DATA = st.dictionaries(
    TEXTS,
    st.recursive(SCALARS, lambda parts: st.lists(parts) | st.dictionaries(TEXTS, parts), max_leaves=8),
    min_size=1,
    max_size=4,
)


def same(a: object, b: object) -> bool:
    return repr(a) == repr(b)  # tells 1 from 1.0 and True


@given(DATA)
@settings(derandomize=True, deadline=None, max_examples=150)
def test_dump_and_parse_are_inverse(data: dict[str, Data]) -> None:
    text = dump_document(data)
    document = parse_document(text)
    assert document.flaws == ()
    assert same(document.data, data)
    assert same(yaml.safe_load(text), data)


@pytest.mark.parametrize("text", HOSTILE, ids=count())
def test_hostile_text_is_read_back(text: str) -> None:
    data: dict[str, Data] = {text: [text, {text: text}], "z": text}
    assert parse_document(dump_document(data)).data == data
    assert yaml.safe_load(dump_document(data)) == data


@pytest.mark.parametrize(
    "text", ["no", "010", "1e3", "2020-01-01", "12:30", "~", "y", "N", "=", "1_0", "0o7", "9" * 400]
)
def test_surprising_text_is_quoted(text: str) -> None:
    assert dump_document({"key": text, text: 1}) == (
        f'key: "{text}"\n"{text}": 1\n' if len(text) < 100 else f'key: "{text}"\n? "{text}"\n: 1\n'
    )


def test_tuples_and_shared_values_are_written_out() -> None:
    shared = [1, 2]
    assert dump_document({"a": shared, "b": shared, "c": (3,)}) == "a: [1, 2]\nb: [1, 2]\nc: [3]\n"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "received <object object"),
        (OrderedDict(a=1), "received keys and values"),
        (10**5000, "holds itself, or a number too long"),
    ],
    ids=count(),
)
def test_data_that_is_not_plain(value: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        dump_document({"key": value})


def test_data_that_holds_itself() -> None:
    data: dict[str, object] = {}
    data["key"] = data
    with pytest.raises(UserError, match="the data holds itself"):
        dump_document(data)


def test_not_a_number_is_read() -> None:
    value = scalar_value(".nan")
    assert isinstance(value, float)
    assert value != value


@pytest.mark.parametrize(
    ("text", "value"), [("12", 12), ("-0", 0), ("1e3", 1000.0), ("-.inf", float("-inf")), ("~", None), ("on", True)]
)
def test_what_is_no_text_is_read_as_its_type(text: str, value: object) -> None:
    read = scalar_value(text)
    assert (read, type(read)) == (value, type(value))
    assert other_reading(text) is None


@pytest.mark.parametrize("text", ["north", "1.2.3", "oN", "1e", "nulL", "-", "e5"])
def test_what_is_text(text: str) -> None:
    assert scalar_value(text) == text
    assert other_reading(text) is None


@pytest.mark.parametrize("text", ["010", "0o7", "0x1f", "1_000", "1:30", "2020-01-01", "9" * (MAX_DIGITS + 1)])
def test_what_readers_do_not_agree_on(text: str) -> None:
    assert other_reading(text) is not None
