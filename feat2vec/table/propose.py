"""A first schema for any table: every column is profiled over all of its rows, and every choice says why.

What a column becomes (NAMED are names such as id, film_id, zip_code; a share is of the rows that have a value):

- nothing: no value, one value, values that cannot be read; identifiers, which are words of which 95 % are distinct,
  whole numbers that are all distinct and counted from 0 or 1, or 1,000 and more, and NAMED ones of which
  95 % are distinct;
- numeric: numbers, but for NAMED ones, and at most 20 distinct whole numbers or 150 years that come twice on average;
- lookup: these, booleans, other text; with `split` where text is a list, with `multi` where the column holds lists;
- lookup with `parts`: dates, by those of year, month, weekday and hour that differ; numeric where none does;
- text_cnn: text of several words, some of which several rows have, while the texts are mostly distinct;
- vector: fractions in lists of one size.

Values are read by the functions that the encoder uses, so that what is chosen can be encoded.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import textwrap
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np
import pyarrow as pa

from feat2vec.errors import UserError
from feat2vec.schema.yaml_text import AMBIGUOUS, plain
from feat2vec.table.profile import NUMBER, Column, profile_table
from feat2vec.table.sources.csv import DELIMITERS
from feat2vec.table.sources.registry import scheme_of
from feat2vec.table.stages import MISSING_NUMBERS
from feat2vec.table.table import open_table

FEW, MANY_NUMBERS = 20, 12
REMEDY = "add columns whose values come again, or write a schema by hand and give it an objective with a target"
HUGE = 1e150  # its square is not a float64
NAMED = re.compile(
    r"(?:^|[^A-Za-z])(?i:ids?|key|code|zip|zipcode|postcode|uuid|guid|index|rownames|nr)$|[a-z](?:Id|ID|Key|Code)$"
    r"|^Unnamed: \d+$"
)
TARGET = re.compile(r"(?i)^(target|label|class|y|outcome|survived|churn|clicked|bought|rating|score|price|sales?)$")
AMOUNT = re.compile(r"\W*\d{1,3}(,\d{3})*([.,]\d+)?\W*")  # 1,234 or 3,5
DATE = re.compile(r"\s*\d{1,4}[/.-]\d{1,2}[/.-]\d{1,4}.*")


def propose(source: object, name: str | None = None) -> str:
    """Profile a table and return the text of a commented schema that fits it."""
    table = open_table(source)
    columns, left_out = profile_table(table)
    choices = [_choose(column) for column in columns]
    left_out |= {choice.columns[0]: choice.comment for choice in choices if choice.extractor is None}
    groups = _groups([choice for choice in choices if choice.extractor is not None])
    if len(groups) < 2:
        why = [f"  {_shown(column)}: {reason}" for column, reason in left_out.items()]
        alone = not table.typed and len(table.columns) == 1
        raise UserError(
            f"{table.name}: {len(groups) or 'no'} of {len(table.columns)} columns can be a group, and a schema needs "
            f"two, or one and a target{'; left out:' if why else ''}",
            *(why if len(why) < 4 else [*why[:2], f"  and {len(why) - 2} more"]),
            DELIMITERS if alone else REMEDY,
        )
    id_ = _row_names(columns, left_out)
    if id_ in left_out:
        left_out[id_] += "; it names the rows"
    rows, (data, title) = columns[0].rows, _titles(source)
    copies = _copies(columns, groups)
    single = {  # a target's copy would give it away
        name: choice
        for name, choice in groups.items()
        if len(choice.columns) == 1 and name not in copies and choice.columns[0] not in copies.values()
    }
    reasons = [_comment(f"{_shown(column)}: {reason}", "#   ") for column, reason in left_out.items()]
    lines = [
        *_header(data, f"{rows:,} rows, {len(table.columns)} columns"), "",
        "version: 1", f"name: {_yaml(name or title)}", *([f"id: {_yaml(id_)}  # names every row"] if id_ else []),
        f"model: {{dim: {50 if rows >= 5000 else 32 if rows >= 500 else 16}}}",
        "groups:", *_group_lines(groups, copies), "",
        *(["# Left out:", *chain(*reasons), ""] if reasons else []),
        *_learning(rows, single, {column.name: column for column in columns}),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


# --- choosing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Choice:
    """What becomes of columns: a group, or (no extractor) nothing, and why."""

    columns: tuple[str, ...]
    extractor: dict[str, Any] | None
    comment: str


def _out(c: Column, reason: str) -> _Choice:
    return _Choice((c.name,), None, reason)


def _choose(c: Column) -> _Choice:
    if c.refused:
        return _out(c, c.refused)
    if not c.present:
        return _out(c, "no value in any row")
    nested = pa.types.is_nested(c.type)
    if not (c.varies if nested else c.distinct > 1 and (c.kind == "text" or c.low != c.high)):
        return _out(c, "one value in every row" if not c.missing else "one value, or none")
    if nested:
        return _choose_lists(c)
    if c.kind == "date":
        return _choose_date(c)
    return _choose_number(c) if c.kind == "number" else _choose_text(c)


def _group(c: Column, extractor: dict[str, Any], fact: str) -> _Choice:
    key = extractor["type"] == "lookup" and c.kind == "number" and not c.typed  # there NA is one
    gone = 100 * (c.missing - c.absent * key) / c.rows
    missing = f", {'under 1' if gone < 1 else f'{gone:.0f}'} % missing" if gone else ""
    return _Choice((c.name,), extractor, fact + missing)


def _choose_lists(c: Column) -> _Choice:
    if c.size is not None:
        return _group(c, {"type": "vector"}, f"vectors of {c.size}")
    most = int(np.ceil(np.percentile(c.lengths, 99)))
    return _group(
        c,
        {"type": "lookup", "multi": True, "max_items": most},
        f"{c.distinct:,} keys, 99 % of rows have {most} or fewer",
    )


def _choose_date(c: Column) -> _Choice:
    first, last = (str(np.datetime64(int(day * 86_400e6), "us"))[:10] for day in (c.low, c.high))
    found = Counter(part.split("=")[0] for part in c.parts or ())
    wanted = {
        "year": c.high - c.low > 2 * 365,
        "month": found["month"] > 1,
        "weekday": found["day"] > 1 and found["weekday"] > 1,
        "hour": found["hour"] > 1,
    }
    parts = [part for part, chosen in wanted.items() if chosen and found[part] > 1]
    extractor = {"type": "lookup", "parts": parts} if parts else {"type": "numeric", "hidden": [32]}
    return _group(c, extractor, f"{first} to {last}" if first != last else f"times on {first}")


def _choose_number(c: Column) -> _Choice:
    if max(-c.low, c.high) > HUGE:
        return _out(c, f"numbers from {c.low:g} to {c.high:g}, too far apart to be scaled")
    named = NAMED.search(c.name) is not None
    years = c.low >= 1800 and c.high <= 2100
    dense = c.high - c.low < 2 * c.distinct and not years
    span = f"{c.low:.15g} to {c.high:.15g}" if c.whole else f"{c.low:.4g} to {c.high:.4g}"
    counted = dense and (c.low in (0, 1) or named)  # from 0 or 1 on, as rows are counted
    unique = c.distinct == c.present and (counted or c.present >= 1000)
    if c.whole and (unique or (named and c.share >= 0.95)):
        return _out(c, f"an identifier: {c.distinct:,} numbers in {c.present:,} rows")
    exact = c.whole and not (c.absent and c.typed)  # a lookup takes no NaN
    few = c.distinct <= FEW or (years and c.distinct <= 150)
    if exact and (named or (few and 2 * c.distinct <= c.present)):
        return _group(c, {"type": "lookup"}, f"{c.distinct:,} numbers, {span}{_na(c)}")
    extractor: dict[str, Any] = {"type": "numeric", "hidden": [32]}
    if c.low >= 0 and c.high >= max(100, 50 * c.middle):
        extractor["scale"] = "log1p"
    if c.absent and c.typed:
        extractor["nan"] = "missing"
    return _group(c, extractor, span + (", NaN counts as missing" if c.absent and c.typed else ""))


def _choose_text(c: Column) -> _Choice:
    cells = [str(cell) for cell in c.sample]
    if c.vector and c.size:
        return _group(c, {"type": "vector"}, f"vectors of {c.size}")
    mark = _delimiter(cells) if pa.types.is_string(c.type) else None
    if mark is not None:
        most = int(np.ceil(np.percentile([cell.count(mark) + 1 for cell in cells], 99)))
        return _group(
            c, {"type": "lookup", "split": mark, "max_items": most}, f"lists, 99 % of them of {most} or fewer{_na(c)}"
        )
    tokens = [re.findall(r"\w+", cell.casefold()) for cell in cells]
    if pa.types.is_string(c.type) and _is_prose(cells, tokens, c.share):
        most = int(np.clip(np.ceil(np.percentile([len(words) for words in tokens], 95)), 4, 128))
        words = np.mean([len(words) for words in tokens])
        return _group(
            c, {"type": "text_cnn", "max_tokens": most}, f"{c.distinct:,} texts, {words:.1f} words on average"
        )
    if c.share >= 0.95:
        return _out(c, f"an identifier: {c.distinct:,} values in {c.present:,} rows{_hint(c, cells)}")
    return _group(c, {"type": "lookup"}, f"{c.distinct:,} keys in {c.rows:,} rows{_na(c)}{_hint(c, cells)}")


def _na(c: Column) -> str:
    """A note when the encoder takes for a key what may be meant as missing."""
    absent = [cell for cell in c.sample if cell in MISSING_NUMBERS] if not c.typed else []
    return f", {absent[0]} counts as a key" if absent else ""


def _hint(c: Column, cells: Sequence[str]) -> str:
    """What text nearly is."""
    numbers = [re.fullmatch(rf"\s*{NUMBER}\s*", cell) is not None for cell in cells]
    if all(numbers):
        return "; cast it if these are numbers" if c.typed and pa.types.is_string(c.type) else ""
    if np.mean(numbers) >= 0.9:
        return f"; numbers, but for {_shown(cells[numbers.index(False)])}"
    return "; write dates as 2024-01-31 to use them" if all(map(DATE.fullmatch, cells)) else ""


def _delimiter(cells: Sequence[str]) -> str | None:
    """What separates the items of cells that are lists of short items, most of which come again."""
    for mark in "|;,/":
        lists = [[item.strip() for item in cell.split(mark) if item.strip()] for cell in cells if mark in cell]
        lists = [items for items in lists if len(items) > 1]
        if len(lists) < max(3, len(cells) / 5):
            continue
        counts = Counter(chain.from_iterable(lists))
        total = sum(counts.values())
        short = sum(len(item) <= 40 and item.count(" ") < 4 for item in counts)
        if short < 0.9 * len(counts) or len(counts) > 0.75 * total:
            continue
        if mark in ",/":  # "Surname, Name", 1,234 and 31/12/2024 are no lists: there an item has its place
            first, later = {items[0] for items in lists}, {item for items in lists for item in items[1:]}
            anywhere = sum(counts[item] for item in first & later)
            figures = np.mean([(AMOUNT if mark == "," else DATE).fullmatch(cell) is not None for cell in cells])
            if anywhere < 0.3 * total or figures > 0.5:
                continue
        return mark
    return None


def _is_prose(cells: Sequence[str], tokens: Sequence[Sequence[str]], share: float) -> bool:
    """Whether texts say more than that they differ: they have words, and share some of them."""
    words = np.mean([len(cell.split()) for cell in cells])
    letters = np.mean([any(map(str.isalpha, cell)) for cell in cells])
    in_texts = Counter(chain.from_iterable(map(set, tokens)))
    shared = sum(count for count in in_texts.values() if count > 1)
    several = (words >= 2 and share >= 0.8) or (words >= 3 and share >= 0.5) or (words >= 5 and share >= 0.2)
    return bool(len(cells) >= 10 and several and letters >= 0.5 and shared >= 0.2 * sum(in_texts.values()))


def _groups(choices: Sequence[_Choice]) -> dict[str, _Choice]:
    """The groups by name; very many numbers become a few groups, by the start of their names."""
    numbers = [choice for choice in choices if choice.extractor and choice.extractor["type"] == "numeric"]
    alone = [choice for choice in choices if choice not in numbers]
    stems: dict[str, list[_Choice]] = defaultdict(list)
    for choice in numbers:
        stems[re.split(r"(?<=\w)(?:[\W_]|\d+$)", choice.columns[0])[0]].append(choice)
    merged: dict[str, list[_Choice]] = defaultdict(list)
    for stem, members in stems.items():
        merged[stem if len(members) > 2 else "numbers"] += members
    if len(numbers) <= MANY_NUMBERS or len(merged) + len(alone) < 2:
        merged, alone = {}, list(choices)
    named = [(choice.columns[0], choice) for choice in alone]
    named += [(stem, _together(members)) for stem, members in merged.items()]
    groups: dict[str, _Choice] = {}
    taken: set[str] = set()  # names are those of files, which some systems hold to be the same in either case
    for name, choice in named:
        short = _readable(name)
        several = (f"{short}_{i}" for i in count(2))
        unique = short if short.casefold() not in taken else next(n for n in several if n.casefold() not in taken)
        taken.add(unique.casefold())
        groups[unique] = choice
    return groups


def _together(members: Sequence[_Choice]) -> _Choice:
    if len(members) == 1:
        return members[0]
    options = [choice.extractor or {} for choice in members]
    scales = {option.get("scale") for option in options}
    extractor: dict[str, Any] = {"type": "numeric", "hidden": [64]}
    if scales != {None}:
        extractor["scale"] = "quantile" if None in scales else "log1p"
    if any("nan" in option for option in options):
        extractor["nan"] = "missing"
    return _Choice(tuple(choice.columns[0] for choice in members), extractor, f"{len(members)} columns of numbers")


def _copies(columns: Sequence[Column], groups: Mapping[str, _Choice]) -> dict[str, str]:
    """Groups that are recodings of a column before them, one to one."""
    known = {c.name: c for c in columns if c.distinct > 2 and c.share <= 0.9 and c.rows >= FEW}
    first: dict[tuple[bytes, int], str] = {}
    copies: dict[str, str] = {}
    for name, choice in groups.items():
        c = known.get(choice.columns[0])
        if c is not None and len(choice.columns) == 1 and not pa.types.is_nested(c.type):
            original = first.setdefault((c.codes.digest(), c.distinct), c.name)
            copies |= {name: original} if original != c.name else {}
    return copies if len(groups) - len(copies) > 1 else {}


def _row_names(columns: Sequence[Column], left_out: Mapping[str, str]) -> str | None:
    """The column that names every row; best one that is called so, then one that is no group."""
    unique = [
        c for c in columns
        if c.distinct == c.rows > 2 and c.sample and (c.kind in ("text", "date") or (c.kind == "number" and c.whole))
        and max(len(str(value)) for value in c.sample) <= 80 and not c.absent and not c.refused
    ]  # fmt: skip
    named = {c.name: NAMED.search(c.name) is not None for c in unique}
    rank = {c.name: (not named[c.name], c.name not in left_out, not named[c.name] and c.kind != "text") for c in unique}
    return min(rank, key=rank.__getitem__, default=None)


# --- writing --------------------------------------------------------------------------------------------------------


def _titles(source: object) -> tuple[str, str]:
    """What a source is called in a command, and in a schema."""
    if not isinstance(source, (str, os.PathLike)):
        return "DATA", "table"
    name = os.fsdecode(source)
    if scheme_of(name) is not None:
        return name, _readable(name.partition(":")[2], "table")
    base = os.path.basename(name.rstrip("/"))
    return base if os.path.isabs(name) else name, _readable(base.partition(".")[0], "table")


def _header(data: str, size: str) -> list[str]:
    shown = data if data.isprintable() else _yaml(data)
    return [
        f"# Written by `feat2vec init` from {shown}: {size}.",
        f"# Next: feat2vec check schema.yaml --data {shlex.quote(shown)}",
    ]


def _group_lines(groups: Mapping[str, _Choice], copies: Mapping[str, str]) -> list[str]:
    width = min(max(len(_yaml(name)) for name in groups) + 1, 24)
    lines = []
    for name, choice in groups.items():
        options = dict(choice.extractor or {})
        extractor = options["type"] if len(options) == 1 else options
        one = len(choice.columns) == 1
        data = {"column": choice.columns[0]} if one else {"columns": list(choice.columns)}
        comment = f"tells what {_shown(copies[name])} tells, one to one" if name in copies else choice.comment
        key, start = f"{_yaml(name)}:", "  # " if name in copies else "  "
        line = f"{start}{key:<{width}} {_yaml({**data, 'extractor': extractor})}"
        if len(line) + len(comment) <= 116:
            lines.append(f"{line}  # {comment}")
        elif len(line) <= 120:
            lines += [*_comment(comment, "  # "), line]
        else:
            listed = [f"  column: {_yaml(choice.columns[0])}"] if one else _list_lines(choice.columns)
            block = [key, *listed, f"  extractor: {_yaml(extractor)}"]
            lines += [*_comment(comment, "  # "), *(start + part for part in block)]
    return lines


def _list_lines(columns: Sequence[str]) -> list[str]:
    lines = ["  columns: ["]
    for column in map(_yaml, columns):
        if len(lines[-1]) + len(column) > 114:
            lines.append(" " * 12)
        lines[-1] += f"{column}, "
    return [line.rstrip() for line in [*lines[:-1], lines[-1][:-2] + "]"]]


def _learning(rows: int, groups: Mapping[str, _Choice], columns: Mapping[str, Column]) -> list[str]:
    """How to learn: for fewer rows more epochs, in smaller batches."""
    batch = 16
    while batch < 2048 and batch * 2 <= rows / 8:
        batch *= 2
    training = {"epochs": 0, "batch_size": batch, "optimizer": {"type": "adagrad", "learning_rate": 0.1}, "seed": 0}
    training["epochs"] = 100 if rows < 1000 else 50 if rows < 10_000 else 20 if rows < 2_000_000 else 5
    full = [
        (name, columns[choice.columns[0]], str((choice.extractor or {})["type"]))
        for name, choice in groups.items()
        if not {"split", "multi", "parts"} & set(choice.extractor or {})
    ]
    full = [item for item in full if item[2] != "text_cnn" and item[2] != "vector" and not item[1].missing]
    full.sort(key=lambda item: TARGET.match(item[1].name) is not None)
    advice = [
        "# To learn from labels instead: objective: {type: regression, target: COLUMN}, and no group of that column"
    ]
    if full:
        name, c, extractor = full[-1]
        binary = pa.types.is_boolean(c.type) or (c.kind == "number" and c.distinct == 2 and (c.low, c.high) == (0, 1))
        kind = "regression" if extractor == "numeric" else "logistic" if binary else "softmax"
        target = _yaml({"type": kind, "target": c.name})
        advice = [
            f"# objective: {target}",
            f"#   to learn from labels: this line instead, and without the group {_yaml(name)}",
        ]
    return [
        "noise: {alpha_groups: 0.25, alpha_values: 0.75, negatives: 5}",
        "objective: {type: nce}",
        *advice,
        f"training: {_yaml(training)}",
    ]


def _comment(text: str, start: str) -> list[str]:
    return textwrap.wrap(text, 118, initial_indent=start, subsequent_indent=start + "  ", break_on_hyphens=False)


def _readable(name: str, otherwise: str = "column") -> str:
    """A column's name as one that is easy to type, and whose file's name is not too long."""
    plain_name = re.sub(r"[^\w.-]+", "_", name).strip("_.-")
    return plain_name.encode()[:60].decode(errors="ignore") or otherwise


def _shown(text: str) -> str:
    return _yaml(text if len(text) <= 60 else f"{text[:59]}…")


def _yaml(value: object) -> str:
    """A value on one line; `dump_document` folds long text, and a comment follows on this line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_yaml(key)}: {_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_yaml, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    bare = re.fullmatch(r"[^\W\d][\w.-]*( [\w.-]+)*", value) and plain(value) == value
    if bare and not any(pattern.fullmatch(value) for pattern, _ in AMBIGUOUS):
        return value
    hidden = (char for char in set(value) if not char.isprintable() and ord(char) > 126)
    quoted = json.dumps(value, ensure_ascii=False)
    for char in hidden:
        quoted = quoted.replace(char, f"\\U{ord(char):08x}")
    return quoted
