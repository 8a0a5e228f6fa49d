"""The page: HTML with its style, its script, the plotting library and, if it is to stand alone, its data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from feat2vec.errors import UserError
from feat2vec.pages.explore.atlas import NEAR, Atlas
from feat2vec.writing import file_place, write_text

LARGEST = 6_000_000  # neighbours in a file: 64 MB of it
Progress = Callable[[str], None]


def page(atlas: Atlas, answers: Iterator[tuple[str, dict[str, Any]]] | None = None) -> str:
    """The page; with `answers` to all that it can ask for it needs no server."""
    folder = files("feat2vec.pages.explore")
    parts = {name: folder.joinpath(f"page.{name}").read_text(encoding="utf-8") for name in ("html", "css", "js")}
    facts = {**atlas.facts(), "alone": answers is not None}
    if answers is not None:
        facts["made"] = {name: atlas.kinds(name) for name in atlas.names}
    plotly = plotly_js()
    fill = {
        "policy": escape(policy([plotly, parts["js"]], alone=answers is not None)),
        "title": escape(facts["title"]),
        "css": parts["css"],
        "plotly": plotly,
        "js": parts["js"],
        "facts": as_json(facts),
        "answers": "\n".join(_block(path, answer) for path, answer in answers or ()),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: fill[found[1]], parts["html"])


def plotly_js() -> str:
    """The plotting library that the page contains."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise UserError("explore: plotly is not installed: `pip install 'feat2vec[explore]'`") from None
    return str(get_plotlyjs())


def policy(scripts: list[str], *, alone: bool) -> str:
    """A content security policy: these scripts, and nothing from elsewhere.

    The plotting library compiles its shaders' drawing code (`unsafe-eval`) and writes styles.
    """
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    rules = ["default-src 'none'", f"script-src {allowed} 'unsafe-eval'", "style-src 'unsafe-inline'"]
    rules += ["img-src data: blob:", "connect-src 'none'" if alone else "connect-src 'self'"]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def as_json(facts: Any) -> str:
    """JSON that can stand inside a script element."""
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _block(path: str, answer: dict[str, Any]) -> str:
    return f'<script type="application/json" data-path="{escape(path)}">{as_json(answer)}</script>'


def write_page(atlas: Atlas, out: str | Path, *, force: bool = False, say: Progress = lambda _: None) -> None:
    """Write the page as one file, whole or not at all."""
    out = Path(out)
    try:
        file_place(out, force=force)
    except UserError as error:
        raise UserError(f"--html: {error}") from None
    sought = {name: len(atlas.points(name).places) * len(atlas.targets(name)) for name in atlas.names}
    total = NEAR * sum(sought.values())
    if total > LARGEST:
        raise UserError(
            f"--html: the file would hold {total:,} neighbours, {LARGEST:,} is the most; lower --limit"
            f" ({atlas.limit:,} points of a map now), name fewer groups by --group, or use the server"
        )
    write_text(out, page(atlas, answers(atlas, say)), force=force)


def answers(atlas: Atlas, say: Progress = lambda _: None) -> Iterator[tuple[str, dict[str, Any]]]:
    """All that the page can ask for, and what it is told."""
    for i, name in enumerate(atlas.names):
        say(f"{name}: {len(atlas.points(name).places):,} points")
        yield from ((path, atlas.answer(path)) for path in (f"points/{i}", *_drawn(atlas, i, name)))
        for to in atlas.targets(name):
            path = f"near/{i}/{atlas.names.index(to)}"
            yield path, atlas.answer(path)


def _drawn(atlas: Atlas, i: int, name: str) -> list[str]:
    return [*(f"map/{i}/{kind}" for kind in atlas.kinds(name)), *(f"colour/{i}/{c}" for c in range(len(atlas.columns)))]


__all__ = ["LARGEST", "answers", "page", "policy", "write_page"]
