"""YAML text to a document: each key's line, what unquoted scalars mean, and whether other readers of YAML agree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from feat2vec.errors import UserError, suggest
from feat2vec.schema.document import Data, Document, Flaw, KeyPath, shown

MAX_DIGITS = 300  # of an integer; some readers do not take longer ones
WORDS: Mapping[str, bool | None] = {
    **{word: True for base in ("true", "yes", "on") for word in (base, base.title(), base.upper())},
    **{word: False for base in ("false", "no", "off") for word in (base, base.title(), base.upper())},
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
AMBIGUOUS = (
    (re.compile(rf"[-+]?[0-9]{{{MAX_DIGITS + 1},}}"), "a number too long for some readers"),
    (re.compile(r"[-+]?0[0-9]+|[-+]?0o[0-7]+"), "an octal number to some readers"),
    (re.compile(r"[-+]?0[xb][0-9a-fA-F_]+"), "a hexadecimal or binary number to some readers"),
    (re.compile(r"[-+]?\.?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?"), "a number with underscores to some readers"),
    (re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"), "a number of base 60 to some readers"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"), "a date to some readers"),
)


def scalar_value(text: str) -> bool | int | float | str | None:
    """The value of an unquoted scalar.

    >>> [scalar_value(word) for word in ("12", "1e-3", "no", "north")]
    [12, 0.001, False, 'north']
    """
    if text in WORDS:
        return WORDS[text]
    if INTEGER.fullmatch(text) and len(text) <= MAX_DIGITS + 1:
        return int(text)
    if FLOAT.fullmatch(text):
        return float(text)
    if NOT_FINITE.fullmatch(text):
        return float(text.replace(".", "", 1).lower())
    return text


def other_reading(text: str) -> str | None:
    """What some readers take an unquoted scalar for, if they do not agree; else None.

    >>> other_reading("010"), other_reading("10")
    ('an octal number to some readers', None)
    """
    for pattern, reading in AMBIGUOUS:
        if pattern.fullmatch(text):
            return reading
    return None


YAML_TAG = "tag:yaml.org,2002:"
SCALAR_TAGS = {"str", "int", "float", "bool", "null", "timestamp", "value", "merge"}
INIT = "`feat2vec init DATA -o SCHEMA` writes a schema"
MAX_BYTES = 16 << 20
MAX_DEPTH = 50
MAX_NODES = 100_000  # aliases of aliases can describe more nodes than fit in memory

HINTS = (  # a part of PyYAML's message, the cause (empty: the message itself), and the remedy
    ("another document", "holds several documents", "keep one, and remove the `---` between them"),
    ("'\\t'", "a tab where only spaces may stand", "indent with spaces"),
    (
        "mapping values are not allowed",
        "a `: ` where no key may stand",
        "indent keys alike, put text with `: ` in quotes",
    ),
    ("end of stream", "a quote is opened here and not closed", "close it"),
    ("<stream end>", "a bracket is opened here and not closed", "close it"),
    ("could not find expected ':'", "a line without `: `", "write `key: value`"),
    ("undefined alias", "", "put text that starts with `*` in quotes"),
    ("cannot start any token", "", "put text that starts with it in quotes"),
)


def read_document(path: str | Path) -> Document:
    """Read and parse a YAML file; a UserError says why it cannot be read."""
    return parse_document(read_text(path), str(path))


def read_text(path: str | Path) -> str:
    """Read the text of a YAML file; a UserError says why it cannot be read."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        remedy = _neighbours(path) or f"; {INIT}"
        raise UserError(f"{path}: cannot be read: {reason}{remedy}") from None
    if len(content) > MAX_BYTES:  # a table, or a device without an end
        raise UserError(f"{path}: is larger than {MAX_BYTES >> 20} MB, which no schema or recipe is; {INIT}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def parse_document(text: str, name: str = "schema") -> Document:
    """Parse YAML text.

    Args:
        text: The text of one document, a mapping.
        name: What messages call it.

    Returns:
        The document. What could be skipped is among its `flaws`.

    Raises:
        UserError: The text cannot be parsed at all.

    >>> parse_document("model: {dim: 50}").data
    {'model': {'dim': 50}}

    """
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise UserError(_not_yaml(error, name)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(
            f"{name}:{line}: is not YAML: it has the character {chr(error.character)!r}; remove it"
        ) from None
    except (ValueError, OverflowError) as error:  # `\UFFFFFFFF`: PyYAML lets these pass
        raise UserError(f"{name}:1: is not YAML: an escape or number that names nothing ({error})") from None
    if root is None or (isinstance(root, yaml.ScalarNode) and root.value == "" and root.style is None):
        raise UserError(f"{name}:1: the file is empty; {INIT}")
    line = root.start_mark.line + 1
    if not isinstance(root, yaml.MappingNode):
        kind = "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
        raise UserError(f"{name}:{line}: expected keys such as `version:` and `groups:`, received {kind}; {INIT}")
    reader = _NodeReader()
    data = reader.value(root, ())
    flaws = tuple(dict.fromkeys(reader.flaws))
    return Document(name, data if isinstance(data, dict) else {}, reader.lines, reader.spelled, flaws)


def _not_yaml(error: yaml.MarkedYAMLError, name: str) -> str:
    """The message for one of PyYAML's errors, with a remedy where its cause is known."""
    problem = " ".join(str(error.problem or error.context).split())
    is_late = any(sign in problem for sign in ("end of stream", "<stream end>", "expected ':'"))  # after its line
    mark = (error.context_mark if is_late else error.problem_mark) or error.problem_mark or error.context_mark
    origin = f"{name}:{mark.line + 1 if mark else 1}"
    for sign, cause, remedy in HINTS:
        if sign in problem:
            return f"{origin}: is not YAML: {cause or problem}; {remedy}"
    return f"{origin}: is not YAML: {f'{error.context}, ' if error.context and error.problem else ''}{problem}"


def _neighbours(path: Path) -> str:
    """A suggestion of files in the same folder, for one that is not there."""
    try:
        return suggest(path.name, sorted(entry.name for entry in path.parent.iterdir() if entry.is_file()))
    except (OSError, ValueError):
        return ""


class _Loader(yaml.SafeLoader):
    """PyYAML's loader of nodes, which refuses nesting that would exhaust the stack."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            message = f"more than {MAX_DEPTH} levels of nesting"
            raise yaml.MarkedYAMLError(problem=message, problem_mark=parent.start_mark if parent else None)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


@dataclass
class _NodeReader:
    """Reads data from PyYAML's nodes, and collects lines, spellings and flaws."""

    lines: dict[KeyPath, int] = field(default_factory=dict)
    spelled: dict[KeyPath, str] = field(default_factory=dict)
    flaws: list[Flaw] = field(default_factory=list)
    ancestors: list[yaml.Node] = field(default_factory=list)  # of the node that is being read
    nodes: int = 0  # that were read, those behind aliases each time

    def add_flaw(self, node: yaml.Node, path: KeyPath, message: str) -> None:
        self.flaws.append(Flaw(node.start_mark.line + 1, path, message))

    def value(self, node: yaml.Node, path: KeyPath) -> Data:
        self.nodes += 1
        if node in self.ancestors or self.nodes > MAX_NODES or len(self.ancestors) > MAX_DEPTH:
            if self.nodes <= MAX_NODES + 1:
                self.add_flaw(node, path, "this alias refers to itself or repeats too much; write the value out")
            return None
        self.ancestors.append(node)
        try:
            if isinstance(node, yaml.ScalarNode):
                return self.scalar(node, path)
            if node.tag not in (f"{YAML_TAG}map", f"{YAML_TAG}seq"):
                self.add_flaw(node, path, f"tags are not supported, received {shown(node.tag)}; remove it")
                return None
            if isinstance(node, yaml.MappingNode):
                return dict(self.items(node, path))
            return [self.item(item, (*path, i)) for i, item in enumerate(node.value)]
        finally:
            self.ancestors.pop()

    def item(self, node: yaml.Node, path: KeyPath) -> Data:
        self.lines[path] = node.start_mark.line + 1
        return self.value(node, path)

    def items(self, node: yaml.MappingNode, path: KeyPath) -> Iterator[tuple[str, Data]]:
        first_lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if self.nodes > MAX_NODES:
                return
            key = self.key(key_node, path)
            if key is None:
                continue
            if key in first_lines:
                self.add_flaw(key_node, (*path, key), f"is here twice (first in line {first_lines[key]}); keep one")
                continue
            first_lines[key] = self.lines[(*path, key)] = key_node.start_mark.line + 1
            yield key, self.value(value_node, (*path, key))

    def key(self, node: yaml.Node, path: KeyPath) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self.add_flaw(node, path, "a key must be text, received a list or keys and values")
        elif node.tag == f"{YAML_TAG}merge":
            self.add_flaw(node, path, "merge keys (`<<`) are not supported; repeat the keys")
        elif _has_foreign_tag(node):
            self.add_flaw(node, path, f"tags are not supported, received {shown(node.tag)}; remove it")
        elif node.style is None and (scalar_value(node.value) != node.value or _other_reading(node)):
            text = shown(node.value, node.value)
            self.add_flaw(node, path, f'a key must be text, received {text or "nothing"}; put it in quotes: "{text}"')
        else:
            return str(node.value)
        return None

    def scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Data:
        text = str(node.value)
        if _has_foreign_tag(node):
            self.add_flaw(node, path, f"tags are not supported, received {shown(node.tag)}; remove it")
            return None
        if node.style is not None:
            return text
        if reading := _other_reading(node):
            remedy = f'write "{shown(text, text)}" in quotes for the text, or a plain decimal number'
            self.add_flaw(node, path, f"received {shown(text, text)}, which is {reading}; {remedy}")
            return None
        self.spelled[path] = text
        return scalar_value(text)


def _has_foreign_tag(node: yaml.ScalarNode) -> bool:
    """Whether the node has a tag that is not of plain YAML."""
    return node.tag.removeprefix(YAML_TAG) not in SCALAR_TAGS


def _other_reading(node: yaml.ScalarNode) -> str | None:
    """What some readers, PyYAML among them, take an unquoted scalar for, if not for what `scalar_value` gives."""
    reading = other_reading(node.value)
    if reading is not None:
        return reading
    is_number_to_pyyaml = node.tag in (f"{YAML_TAG}int", f"{YAML_TAG}float")
    is_text_to_us = isinstance(scalar_value(node.value), str)
    return "a number to some readers" if is_number_to_pyyaml and is_text_to_us else None


def dump_document(data: Mapping[str, object]) -> str:
    r"""Write data as YAML text that `parse_document` and other readers of YAML read back the same.

    Args:
        data: Keys and values, lists, text and numbers.

    Returns:
        The text.

    Raises:
        UserError: The data hold something else, or themselves.

    >>> dump_document({"name": "010", "dims": [8, 64]})
    'name: "010"\ndims: [8, 64]\n'

    """
    try:
        dumped = yaml.dump(
            data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None
        )
    except yaml.representer.RepresenterError as error:
        received = error.args[-1]
        raise UserError(f"expected text, numbers, lists, keys and values, received {shown(received)}") from None
    except (RecursionError, ValueError):
        raise UserError("the data holds itself, or a number too long to write; write it out") from None
    return str(dumped)


class _Dumper(yaml.SafeDumper):
    """PyYAML's dumper, without anchors and aliases."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    node = dumper.represent_scalar(f"{YAML_TAG}str", str(text))
    is_surprising = scalar_value(text) != text or _other_reading(node) or text in ("y", "Y", "n", "N", "=")
    if is_surprising or not text.isprintable():
        node.style = '"'
    return node


_Dumper.add_multi_representer(str, _represent_text)
_Dumper.add_representer(str, _represent_text)
