"""An explanation: a score or a similarity as the sum of its parts, shown as text, JSON, bars or a page of HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from feat2vec.pages import charts
from feat2vec.terminal import printable, shortened
from feat2vec.writing.files import JsonObject


@dataclass(frozen=True)
class Contribution:
    """A part of a score or of a similarity.

    Args:
        kind: "bias", "linear", "pair", "head", or "limit" for what lies outside of the range of the training targets.
        groups: The groups that the part comes from: none, one or two.
        value: What it adds.

    Example:
        >>> part = feat2vec.explain.Part("pair", ("director", "genre"), 0.25)
        >>> part.name
        'director x genre'

    """

    kind: Literal["bias", "linear", "pair", "head", "limit"]
    groups: tuple[str, ...]
    value: float

    @property
    def name(self) -> str:
        """`linear of genre`, `director x cast`."""
        return " x ".join(self.groups) if self.kind == "pair" else " of ".join([self.kind, *self.groups])


@dataclass(frozen=True)
class Explanation:
    """A score or a similarity as the sum of its parts.

    Args:
        what: What is explained: "score", "score of genre = drama" or "similarity".
        total: Its value.
        parts: Its parts, the largest first.
        rows: What each row holds of each group, None where the group is missing.

    Example:
        >>> part = feat2vec.explain.Part("pair", ("director", "genre"), 0.25)
        >>> explanation = feat2vec.explain.Explanation("score", 0.25, [part], [{"director": "Ozu", "genre": "drama"}])
        >>> print(explanation.text())
        director:         Ozu
        genre:            drama
        <BLANKLINE>
        director x genre     +0.2500
        score                +0.2500
        >>> explanation.facts()["total"]
        0.25

    """

    what: str
    total: float
    parts: Sequence[Contribution]
    rows: Sequence[Mapping[str, str | None]]

    def facts(self) -> JsonObject:
        """The explanation as plain data, as `feat2vec explain --json` prints it.

        Returns:
            The fields of the explanation, made of mappings, lists, texts and numbers.

        """
        parts = [{**asdict(part), "groups": list(part.groups)} for part in self.parts]
        return {"what": self.what, "total": self.total, "parts": parts, "rows": [dict(row) for row in self.rows]}

    def text(self) -> str:
        """The explanation as tables for a terminal.

        Returns:
            Lines with what the rows hold, the parts and the total.

        """
        names = [f"{_cut(name)}:" for name in self.rows[0]]
        width = max([len(name) for name in names] + [len(_cut(part.name)) for part in self.parts])
        lines = []
        for i, row in enumerate(self.rows):
            lines += [f"row {i + 1}"] if len(self.rows) > 1 else []
            lines += [f"{name:{width}}  {_cut(value)}" for name, value in zip(names, row.values(), strict=True)]
            lines.append("")
        parts = [f"{_cut(part.name):{width}}  {part.value:+10.4f}" for part in self.parts]
        return "\n".join([*lines, *parts, f"{_cut(self.what):{width}}  {self.total:+10.4f}"])

    def svg(self) -> str:
        """The explanation as a chart of bars.

        Returns:
            An SVG image.

        """
        return charts.bars(self.what, [*((part.name, part.value) for part in self.parts), (self.what, self.total)])

    def page(self) -> str:
        """The chart, the parts and what the rows hold, as a page.

        Returns:
            A complete HTML document.

        """
        has_two_rows = len(self.rows) > 1
        columns = ["group", *([f"row {i + 1}" for i in range(len(self.rows))] if has_two_rows else ["value"])]
        row_values = [(name, *(row[name] or "missing" for row in self.rows)) for name in self.rows[0]]
        parts = [(part.name, part.value) for part in self.parts]
        return charts.page(
            self.what,
            [
                self.svg(),
                charts.table("the parts", ["part", "adds"], parts),
                charts.table("the rows", columns, row_values),
            ],
        )


def _cut(value: str | None, most: int = 80) -> str:
    """A name or a value on a line of a table."""
    return "missing" if value is None else shortened(printable(value), most)


__all__ = ["Contribution", "Explanation"]
