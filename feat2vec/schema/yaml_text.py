"""YAML text to plain data that remembers the line of every key.

Scalars follow YAML 1.2 (`true`, `12`, `1e-3`); what YAML 1.1 and 1.2 read differently (`010`, `1:30`, `2020-01-01`)
is a problem to be settled with quotes, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from feat2vec.errors import UserError, suggest

Data = None | bool | int | float | str | list["Data"] | dict[str, "Data"]
KeyPath = tuple[str | int, ...]

YAML_TAG = "tag:yaml.org,2002:"
SCALAR_TAGS = {"str", "int", "float", "bool", "null", "timestamp", "value", "merge"}
INIT = "`feat2vec init DATA -o SCHEMA` writes a schema"
MAX_BYTES = 16 << 20
MAX_DEPTH = 50
MAX_NODES = 100_000  # aliases of aliases can describe more nodes than fit in memory
MAX_SHOWN = 60  # characters of a value in a message

WORDS: Mapping[str, bool | None] = {
    **{word: True for base in ("true", "yes", "on") for word in (base, base.title(), base.upper())},
    **{word: False for base in ("false", "no", "off") for word in (base, base.title(), base.upper())},
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
AMBIGUOUS = (
    (re.compile(r"[-+]?[0-9]{301,}"), "a number too long for some readers"),
    (re.compile(r"[-+]?0[0-9]+|[-+]?0o[0-7]+"), "an octal number to some readers"),
    (re.compile(r"[-+]?0[xb][0-9a-fA-F_]+"), "a hexadecimal or binary number to some readers"),
    (re.compile(r"[-+]?\.?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?"), "a number with underscores to some readers"),
    (re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"), "a number of base 60 to some readers"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"), "a date to some readers"),
)
HINTS = (  # what PyYAML says, and what to do about it
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


@dataclass(frozen=True)
class Flaw:
    """What the text itself has wrong at a path, where `data` holds nothing."""

    line: int
    path: KeyPath
    message: str


@dataclass(frozen=True)
class Document:
    """Data with the line of each of its keys, and how plain scalars were spelled.

    `flaws` are for `validate` to report, together with what is wrong with the data. `settings` are the paths whose
    values were given beside the text, and how.
    """

    name: str
    data: dict[str, Data]
    lines: dict[KeyPath, int]
    spelled: dict[KeyPath, str]
    flaws: tuple[Flaw, ...] = ()
    settings: Mapping[KeyPath, str] = field(default_factory=dict)

    def line(self, path: KeyPath) -> int:
        """The line of a path, or of its nearest ancestor that is in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def problem(self, path: KeyPath, message: str, line: int | None = None) -> str:
        """`file:line: path: message`, or `--set key=value: path: message`."""
        where = f"{self.name}:{line or self.line(path)}"
        for place, setting in self.settings.items():
            made = path not in self.lines and place[: len(path)] == path  # a key that only the setting has
            if path and (made or path[: len(place)] == place):
                where = f"--set {setting}"
        return ": ".join([where, *([dotted(path)] if path else []), message])

    def with_settings(self, settings: Sequence[str]) -> Document:
        """The document with values replaced, each setting being `key.below.key=value`, the value in YAML."""
        document = self
        for setting in settings:
            key, equals, text = setting.partition("=")
            if not equals or not all(key.split(".")):
                raise UserError(f"--set {setting}: expected key=value, such as training.epochs=5")
            try:
                value = parse_document(f"value: {text}", "--set")
            except UserError as error:
                said = str(error).split(": ", 1)[1]
                raise UserError(f"--set {setting}: {said}") from None
            if len(value.data) > 1:  # a line of its own below the value
                raise UserError(f"--set {setting}: expected key=value, such as training.epochs=5")
            document = document._set(tuple(key.split(".")), setting, value)
        return document

    def _set(self, path: KeyPath, setting: str, value: Document) -> Document:
        def put(data: Data, path: KeyPath) -> Data:
            if not path:
                return value.data.get("value")
            holder = data if isinstance(data, dict) else {"type": data} if isinstance(data, str) else {}
            return {**holder, str(path[0]): put(holder.get(str(path[0])), path[1:])}

        data = put(self.data, path)
        if not isinstance(data, dict):
            raise UserError(f"--set {setting}: expected key=value, such as training.epochs=5")
        kept = {at: text for at, text in self.spelled.items() if at[: len(path)] != path}
        spelled = kept | {(*path, *at[1:]): text for at, text in value.spelled.items()}
        flaws = [flaw for flaw in self.flaws if flaw.path[: len(path)] != path]
        flaws += [replace(flaw, path=(*path, *flaw.path[1:]), line=0) for flaw in value.flaws]
        settings = {**self.settings, path: setting}
        return replace(self, data=data, spelled=spelled, flaws=tuple(flaws), settings=settings)


def dotted(path: KeyPath) -> str:
    """A path as it is shown: keys that are not words stand in brackets.

    >>> dotted(("groups", "cast", "columns", 0)), dotted(("groups", "a: b", "column"))
    ('groups.cast.columns[0]', "groups['a: b'].column")
    """
    words = (
        f".{key}" if isinstance(key, str) and re.fullmatch(rf"[\w-]{{1,{MAX_SHOWN}}}", key) else f"[{shown(key)}]"
        for key in path
    )
    return "".join(words).removeprefix(".")


def read_document(path: str | Path) -> Document:
    """Read a YAML file."""
    return parse_document(read_text(path), str(path))


def read_text(path: str | Path) -> str:
    """The text of a YAML file."""
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
    """Parse YAML text. What cannot be parsed at all is raised, what can be skipped is among the document's `flaws`."""
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
        found = "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
        raise UserError(f"{name}:{line}: expected keys such as `version:` and `groups:`, received {found}; {INIT}")
    reader = _Reader()
    data = reader.value(root, ())
    flaws = tuple(dict.fromkeys(reader.flaws))
    return Document(name, data if isinstance(data, dict) else {}, reader.lines, reader.spelled, flaws)


def _not_yaml(error: yaml.MarkedYAMLError, name: str) -> str:
    said = " ".join(str(error.problem or error.context).split())
    late = any(sign in said for sign in ("end of stream", "<stream end>", "expected ':'"))  # noticed after its line
    mark = (error.context_mark if late else error.problem_mark) or error.problem_mark or error.context_mark
    where = f"{name}:{mark.line + 1 if mark else 1}"
    for sign, instead, remedy in HINTS:
        if sign in said:
            return f"{where}: is not YAML: {instead or said}; {remedy}"
    return f"{where}: is not YAML: {f'{error.context}, ' if error.context and error.problem else ''}{said}"


def _neighbours(path: Path) -> str:
    """A suggestion for a file that is not there."""
    try:
        return suggest(path.name, sorted(entry.name for entry in path.parent.iterdir() if entry.is_file()))
    except (OSError, ValueError):
        return ""


class _Loader(yaml.SafeLoader):
    """Nodes with their lines; nesting that would exhaust the stack is refused."""

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
class _Reader:
    """Nodes to data."""

    lines: dict[KeyPath, int] = field(default_factory=dict)
    spelled: dict[KeyPath, str] = field(default_factory=dict)
    flaws: list[Flaw] = field(default_factory=list)
    above: list[yaml.Node] = field(default_factory=list)
    nodes: int = 0

    def complain(self, node: yaml.Node, path: KeyPath, message: str) -> None:
        self.flaws.append(Flaw(node.start_mark.line + 1, path, message))

    def value(self, node: yaml.Node, path: KeyPath) -> Data:
        self.nodes += 1
        if node in self.above or self.nodes > MAX_NODES or len(self.above) > MAX_DEPTH:
            if self.nodes <= MAX_NODES + 1:
                self.complain(node, path, "this alias refers to itself or repeats too much; write the value out")
            return None
        self.above.append(node)
        try:
            if isinstance(node, yaml.ScalarNode):
                return self.scalar(node, path)
            if node.tag not in (f"{YAML_TAG}map", f"{YAML_TAG}seq"):
                self.complain(node, path, f"tags are not supported, received {shown(node.tag)}; remove it")
                return None
            if isinstance(node, yaml.MappingNode):
                return dict(self.items(node, path))
            return [self.item(item, (*path, i)) for i, item in enumerate(node.value)]
        finally:
            self.above.pop()

    def item(self, node: yaml.Node, path: KeyPath) -> Data:
        self.lines[path] = node.start_mark.line + 1
        return self.value(node, path)

    def items(self, node: yaml.MappingNode, path: KeyPath) -> Iterator[tuple[str, Data]]:
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            if self.nodes > MAX_NODES:
                return
            key = self.key(key_node, path)
            if key is None:
                continue
            if key in first:
                self.complain(key_node, (*path, key), f"is here twice (first in line {first[key]}); keep one")
                continue
            first[key] = self.lines[(*path, key)] = key_node.start_mark.line + 1
            yield key, self.value(value_node, (*path, key))

    def key(self, node: yaml.Node, path: KeyPath) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self.complain(node, path, "a key must be text, received a list or keys and values")
        elif node.tag == f"{YAML_TAG}merge":
            self.complain(node, path, "merge keys (`<<`) are not supported; repeat the keys")
        elif _foreign(node):
            self.complain(node, path, f"tags are not supported, received {shown(node.tag)}; remove it")
        elif node.style is None and (plain(node.value) != node.value or _ambiguous(node)):
            text = shown(node.value, node.value)
            self.complain(node, path, f'a key must be text, received {text or "nothing"}; put it in quotes: "{text}"')
        else:
            return str(node.value)
        return None

    def scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Data:
        text = str(node.value)
        if _foreign(node):
            self.complain(node, path, f"tags are not supported, received {shown(node.tag)}; remove it")
            return None
        if node.style is not None:
            return text
        if reading := _ambiguous(node):
            remedy = f'write "{shown(text, text)}" in quotes for the text, or a plain decimal number'
            self.complain(node, path, f"received {shown(text, text)}, which is {reading}; {remedy}")
            return None
        self.spelled[path] = text
        return plain(text)


def _foreign(node: yaml.ScalarNode) -> bool:
    """Whether the node has a tag that is not of plain YAML."""
    return node.tag.removeprefix(YAML_TAG) not in SCALAR_TAGS


def _ambiguous(node: yaml.ScalarNode) -> str | None:
    """What some readers take an unquoted scalar for, where we and others read something else."""
    for pattern, reading in AMBIGUOUS:
        if pattern.fullmatch(node.value):
            return reading
    text = isinstance(plain(node.value), str)
    return "a number to some readers" if text and node.tag in (f"{YAML_TAG}int", f"{YAML_TAG}float") else None


def plain(text: str) -> Data:
    """What an unquoted scalar means.

    >>> [plain(word) for word in ("12", "1e-3", "no", "north")]
    [12, 0.001, False, 'north']
    """
    if text in WORDS:
        return WORDS[text]
    if INTEGER.fullmatch(text) and len(text) <= 301:
        return int(text)
    if FLOAT.fullmatch(text):
        return float(text)
    if NOT_FINITE.fullmatch(text):
        return float(text.replace(".", "", 1).lower())
    return text


def dump_document(data: Mapping[str, object]) -> str:
    """Data as YAML text that `parse_document` and every other YAML reader take back as it was."""
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
    def ignore_aliases(self, data: object) -> bool:
        del data  # whatever it is, it is written out
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    node = dumper.represent_scalar(f"{YAML_TAG}str", str(text))
    if plain(text) != text or _ambiguous(node) or text in ("y", "Y", "n", "N", "=") or not text.isprintable():
        node.style = '"'
    return node


_Dumper.add_multi_representer(str, _represent_text)
_Dumper.add_representer(str, _represent_text)


def shown(value: object, spelled: str | None = None) -> str:
    """A value as a message shows it, in one line: a scalar as it was spelled, of anything larger only the kind."""
    if isinstance(value, (list, tuple, Mapping)):
        return kind_of(value) if value else f"an empty {'mapping' if isinstance(value, Mapping) else 'list'}"
    if spelled == "" or (value is None and spelled is None):
        return "nothing"
    text = repr(value) if spelled is None or not spelled.isprintable() else spelled
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def kind_of(value: object) -> str:
    """What a value is called in a message."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "a whole number"
    if isinstance(value, float):
        return "a number"
    if isinstance(value, str):
        return "text"
    if value is None:
        return "nothing"
    return "a list" if isinstance(value, Sequence) else "keys and values"
