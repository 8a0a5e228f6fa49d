"""Charts as SVG and a page of HTML that holds them: self-contained, light or dark as the reader's system is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

WIDTH, ROW = 720, 22  # of a chart, and of a bar, in pixels
LABEL, NUMBER = 300, 80  # room for what a bar is called and for its number
SHOWN = 44  # letters of a label
DOTTED = 20  # points of a line that are also dots

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


def bars(title: str, values: Sequence[tuple[str, float]]) -> str:
    """A horizontal bar for each number, to the left of the middle line for those below 0."""
    low, high = min([0.0, *(value for _, value in values)]), max([0.0, *(value for _, value in values)])
    room = WIDTH - LABEL - NUMBER
    scale = room / ((high - low) or 1.0)
    zero = LABEL - low * scale
    parts = [f'<line class="grid" x1="{zero:.1f}" x2="{zero:.1f}" y1="4" y2="{len(values) * ROW + 4}"/>']
    for i, (name, value) in enumerate(values):
        y = 4 + i * ROW
        left, width = zero + min(value, 0.0) * scale, max(abs(value) * scale, 0.5)
        label, full_name, kind = escape(_short(name)), escape(name), "less" if value < 0 else "more"
        parts += [
            f'<text x="{LABEL - 10}" y="{y + 15}" text-anchor="end">{label}<title>{full_name}</title></text>',
            f'<rect class="{kind}" x="{left:.1f}" y="{y + 3}" width="{width:.1f}" height="{ROW - 6}"/>',
            f'<text class="quiet" x="{left + width + 6:.1f}" y="{y + 15}">{value:+.4f}</text>',
        ]
    return _svg(title, len(values) * ROW + 8, parts)


def lines(
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    x_name: str,
    *,
    x_log: bool = False,
    band: Sequence[tuple[float, float, float]] = (),
) -> str:
    """A line for each series of (x, y), with a band of (x, low, high) behind them."""
    points = [point for series_points in series.values() for point in series_points if all(map(math.isfinite, point))]
    if not points:
        return _svg(title, 40, ['<text class="quiet" x="10" y="24">nothing to show</text>'])
    xs = [_place(x, x_log) for x, _ in points]
    ys = [y for _, y in points] + [y for _, low, high in band for y in (low, high)]
    left, top, height, bottom = 70, 38, 264, 314
    x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
    y0, y1 = (y0, y1) if y1 > y0 else (y0 - 0.5, y1 + 0.5)

    def x_of(x: float) -> float:
        return left + (_place(x, x_log) - x0) / ((x1 - x0) or 1.0) * (WIDTH - left - 20)

    def y_of(y: float) -> float:
        return top + (y1 - y) / (y1 - y0) * (height - top)

    parts = [f'<text x="{left}" y="18">{escape(title)}</text>']
    for i in range(5):
        y = y0 + (y1 - y0) * i / 4
        parts += [
            f'<line class="grid" x1="{left}" x2="{WIDTH - 20}" y1="{y_of(y):.1f}" y2="{y_of(y):.1f}"/>',
            f'<text class="quiet" x="{left - 8}" y="{y_of(y) + 4:.1f}" text-anchor="end">{number(y)}</text>',
        ]
    ends = {min(points)[0], max(points)[0]}
    for x in sorted(ends):
        anchor = "start" if len(ends) > 1 and x == min(ends) else "end"
        parts.append(
            f'<text class="quiet" x="{x_of(x):.1f}" y="{height + 18}" text-anchor="{anchor}">{number(float(x))}</text>'
        )
    parts.append(f'<text class="quiet" x="{WIDTH / 2}" y="{height + 18}" text-anchor="middle">{escape(x_name)}</text>')
    if band:
        band_outline = [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in reversed(band)]
        parts.append(f'<polygon class="band" points="{_points(band_outline, x_of, y_of)}"/>')
    legend_x = left
    for i, (name, series_points) in enumerate(series.items()):
        parts.append(f'<polyline class="s{i % 4}" points="{_points(series_points, x_of, y_of)}"/>')
        if len(series_points) <= DOTTED:
            dots = (point for point in series_points if all(map(math.isfinite, point)))
            parts += [f'<circle class="s{i % 4}" cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3"/>' for x, y in dots]
        y = height + 36
        parts.append(
            f'<line class="s{i % 4}" stroke-width="2" x1="{legend_x}" x2="{legend_x + 18}" y1="{y}" y2="{y}"/>'
        )
        parts.append(f'<text x="{legend_x + 24}" y="{y + 4}">{escape(_short(name))}</text>')
        legend_x += 44 + 8 * len(_short(name))
    return _svg(title, bottom, parts)


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


def _place(x: float, log: bool) -> float:
    return math.log(x) if log else x


def _points(
    points: Sequence[tuple[float, float]], x_of: Callable[[float], float], y_of: Callable[[float], float]
) -> str:
    return " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points if math.isfinite(x) and math.isfinite(y))


def _short(name: str) -> str:
    return name if len(name) <= SHOWN else f"{name[: SHOWN - 3]}..."
