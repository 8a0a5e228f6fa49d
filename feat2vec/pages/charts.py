"""Charts as SVG and a page of HTML that holds them: self-contained, light or dark as the reader's system is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

# In pixels:
WIDTH = 720  # of a chart
RIGHT_MARGIN = 20
BAR_HEIGHT = 22
LABEL_WIDTH, NUMBER_WIDTH = 300, 80  # beside a bar

LABEL_LENGTH = 44  # letters
MOST_DOTS = 20  # a line of more points is drawn without dots

Point = tuple[float, float]
BandPoint = tuple[float, float, float]  # x, low, high

STYLE = """
.f2v { --back: #ffffff; --text: #1f2328; --quiet: #656d76; --line: #d0d7de;
  --one: #0969da; --two: #bc4c00; --three: #1a7f37; --four: #8250df; color: var(--text); }
@media (prefers-color-scheme: dark) { .f2v { --back: #0d1117; --text: #e6edf3; --quiet: #8d96a0; --line: #30363d;
  --one: #4493f8; --two: #f0883e; --three: #3fb950; --four: #ab7df8; } }
.f2v text { font: 12px system-ui, sans-serif; fill: var(--text); } .f2v .quiet { fill: var(--quiet); }
.f2v .back { fill: var(--back); } .f2v .grid { stroke: var(--line); }
.f2v .more { fill: var(--one); } .f2v .less { fill: var(--two); } .f2v .band { fill: var(--one); opacity: 0.2; }
.f2v polyline { fill: none; stroke-width: 2; }
.f2v .s0 { stroke: var(--one); } .f2v .s1 { stroke: var(--two); } .f2v .s2 { stroke: var(--three); }
.f2v .s3 { stroke: var(--four); } .f2v circle { fill: var(--back); stroke-width: 1.5; }
"""
PAGE = """
body { margin: 0; } .f2v.page { background: var(--back); font: 15px/1.5 system-ui, sans-serif; min-height: 100vh;
  padding: 2rem max(1rem, calc(50vw - 30rem)); box-sizing: border-box; }
.f2v h1, .f2v h2, .f2v h3 { line-height: 1.2; } .f2v h2 { margin-top: 2.5rem; }
.f2v svg { max-width: 100%; height: auto; } .f2v .scroll { overflow-x: auto; }
.f2v table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.f2v th, .f2v td { border-bottom: 1px solid var(--line); padding: 0.2rem 0.8rem 0.2rem 0; text-align: left; }
.f2v th, .f2v td { vertical-align: baseline; } .f2v td.n, .f2v th.n { text-align: right; white-space: nowrap; }
.f2v caption { color: var(--quiet); text-align: left; } .f2v .scroll { margin: 0.8rem 0; }
.f2v .note { color: var(--quiet); }
"""


def number(value: object, digits: int = 4) -> str:
    """A number to be read: `1,234`, `0.1235`.

    >>> number(1234), number(0.123456), number(None), number("a")
    ('1,234', '0.1235', '', 'a')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
            return f"{int(value):,}"
        return f"{value:.{digits}g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def note(text: str) -> str:
    """A paragraph of text."""
    return f'<p class="note">{escape(text)}</p>'


def bars(title: str, values: Sequence[tuple[str, float]]) -> str:
    """A horizontal bar for each number, to the left of the middle line for those below 0."""
    low, high = min([0.0, *(value for _, value in values)]), max([0.0, *(value for _, value in values)])
    room = WIDTH - LABEL_WIDTH - NUMBER_WIDTH
    scale = room / ((high - low) or 1.0)
    zero = LABEL_WIDTH - low * scale
    parts = [f'<line class="grid" x1="{zero:.1f}" x2="{zero:.1f}" y1="4" y2="{len(values) * BAR_HEIGHT + 4}"/>']
    for i, (name, value) in enumerate(values):
        y = 4 + i * BAR_HEIGHT
        left, width = zero + min(value, 0.0) * scale, max(abs(value) * scale, 0.5)
        label, full_name, kind = escape(_short(name)), escape(name), "less" if value < 0 else "more"
        parts += [
            f'<text x="{LABEL_WIDTH - 10}" y="{y + 15}" text-anchor="end">{label}<title>{full_name}</title></text>',
            f'<rect class="{kind}" x="{left:.1f}" y="{y + 3}" width="{width:.1f}" height="{BAR_HEIGHT - 6}"/>',
            f'<text class="quiet" x="{left + width + 6:.1f}" y="{y + 15}">{value:+.4f}</text>',
        ]
    return _svg(title, len(values) * BAR_HEIGHT + 8, parts)


class _Axes(NamedTuple):
    """The plane of a chart of lines: the smallest and largest x and y, and the pixels that they stand for."""

    low_x: float  # a logarithm if `x_log`
    high_x: float
    low_y: float
    high_y: float
    x_log: bool
    left: int = 70
    top: int = 38
    bottom: int = 264

    @classmethod
    def around(cls, points: Sequence[Point], band: Sequence[BandPoint], *, x_log: bool) -> _Axes:
        """The axes that show all points and the whole band."""
        xs = [_log_or_same(x, x_log) for x, _ in points]
        ys = [y for _, y in points] + [y for _, low, high in band for y in (low, high)]
        low_y, high_y = min(ys), max(ys)
        if low_y == high_y:
            low_y, high_y = low_y - 0.5, high_y + 0.5
        return cls(min(xs), max(xs), low_y, high_y, x_log)

    def pixel_x(self, x: float) -> float:
        share = (_log_or_same(x, self.x_log) - self.low_x) / ((self.high_x - self.low_x) or 1.0)
        return self.left + share * (WIDTH - self.left - RIGHT_MARGIN)

    def pixel_y(self, y: float) -> float:
        return self.top + (self.high_y - y) / (self.high_y - self.low_y) * (self.bottom - self.top)

    def outline(self, points: Sequence[Point]) -> str:
        """Points as SVG writes them, without those that are not finite."""
        return " ".join(f"{self.pixel_x(x):.1f},{self.pixel_y(y):.1f}" for x, y in _finite_points(points))


def lines(
    title: str,
    series: Mapping[str, Sequence[Point]],
    x_name: str,
    *,
    x_log: bool = False,
    band: Sequence[BandPoint] = (),
) -> str:
    """A line for each series of (x, y), with a band of (x, low, high) behind them."""
    points = [point for series_points in series.values() for point in _finite_points(series_points)]
    if not points:
        return _svg(title, 40, ['<text class="quiet" x="10" y="24">nothing to show</text>'])
    axes = _Axes.around(points, band, x_log=x_log)
    parts = [f'<text x="{axes.left}" y="18">{escape(title)}</text>']
    parts += _axis_labels(axes, points, x_name)
    if band:
        band_outline = [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in reversed(band)]
        parts.append(f'<polygon class="band" points="{axes.outline(band_outline)}"/>')
    legend_x = axes.left
    for i, (name, series_points) in enumerate(series.items()):
        parts += _series(axes, name, series_points, f"s{i % 4}", legend_x)
        legend_x += 44 + 8 * len(_short(name))
    return _svg(title, 314, parts)


def _axis_labels(axes: _Axes, points: Sequence[Point], x_name: str) -> list[str]:
    """Five horizontal lines with their numbers, the smallest and the largest x, and what x is."""
    parts = []
    for i in range(5):
        y = axes.low_y + (axes.high_y - axes.low_y) * i / 4
        pixel_y = axes.pixel_y(y)
        parts += [
            f'<line class="grid" x1="{axes.left}" x2="{WIDTH - RIGHT_MARGIN}" y1="{pixel_y:.1f}" y2="{pixel_y:.1f}"/>',
            f'<text class="quiet" x="{axes.left - 8}" y="{pixel_y + 4:.1f}" text-anchor="end">{number(y)}</text>',
        ]
    below = axes.bottom + 18
    ends = {min(points)[0], max(points)[0]}
    for x in sorted(ends):
        anchor = "start" if len(ends) > 1 and x == min(ends) else "end"
        pixel_x = axes.pixel_x(x)
        parts.append(
            f'<text class="quiet" x="{pixel_x:.1f}" y="{below}" text-anchor="{anchor}">{number(float(x))}</text>'
        )
    parts.append(f'<text class="quiet" x="{WIDTH / 2}" y="{below}" text-anchor="middle">{escape(x_name)}</text>')
    return parts


def _series(axes: _Axes, name: str, points: Sequence[Point], css_class: str, legend_x: int) -> list[str]:
    """A line, dots on it if they are few, and its place in the legend."""
    parts = [f'<polyline class="{css_class}" points="{axes.outline(points)}"/>']
    if len(points) <= MOST_DOTS:
        for x, y in _finite_points(points):
            parts.append(f'<circle class="{css_class}" cx="{axes.pixel_x(x):.1f}" cy="{axes.pixel_y(y):.1f}" r="3"/>')
    y = axes.bottom + 36
    parts += [
        f'<line class="{css_class}" stroke-width="2" x1="{legend_x}" x2="{legend_x + 18}" y1="{y}" y2="{y}"/>',
        f'<text x="{legend_x + 24}" y="{y + 4}">{escape(_short(name))}</text>',
    ]
    return parts


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; numbers stand to the right."""
    numeric = [
        bool(rows) and all(isinstance(row[i], (int, float)) or row[i] is None for row in rows)
        for i in range(len(columns))
    ]
    kind = [' class="n"' if right else "" for right in numeric]
    head = "".join(f"<th{mark}>{escape(name)}</th>" for mark, name in zip(kind, columns, strict=True))
    body = "\n".join(
        "<tr>" + "".join(f"<td{mark}>{escape(number(x))}</td>" for mark, x in zip(kind, row, strict=True)) + "</tr>"
        for row in rows
    )
    caption = f"<caption>{escape(title)}</caption>"
    return f'<div class="scroll"><table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def page(title: str, parts: Sequence[str]) -> str:
    """A page of HTML with nothing from elsewhere."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE}{PAGE}</style>\n</head>\n"
        f'<body class="f2v page">\n<h1>{escape(title)}</h1>\n' + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def alone(svg: str) -> str:
    """A chart as a file of its own."""
    opening, rest = svg.split(">", 1)
    return f'{opening} xmlns="http://www.w3.org/2000/svg"><style>{STYLE}</style>{rest}\n'


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    inside = "\n".join(parts)
    box = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    back = f'<rect class="back" width="{WIDTH}" height="{height}"/>'
    return f'<svg class="f2v" role="img" {box}><title>{escape(title)}</title>{back}\n{inside}</svg>'


def _log_or_same(x: float, log: bool) -> float:
    return math.log(x) if log else x


def _finite_points(points: Sequence[Point]) -> list[Point]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def _short(name: str) -> str:
    return name if len(name) <= LABEL_LENGTH else f"{name[: LABEL_LENGTH - 3]}..."
