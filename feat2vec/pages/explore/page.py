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

from feat2vec.errors import UserError
from feat2vec.pages.explore.atlas import NEIGHBOURS, Answer, Atlas
from feat2vec.writing import file_place, write_text

NEIGHBOURS_IN_FILE = 6_000_000  # at most: they take 64 MB
PrintLine = Callable[[str], None]


def page(atlas: Atlas, answers: Iterator[tuple[str, Answer]] | None = None) -> str:
    """The page; with `answers` to all that it can ask for it needs no server."""
    folder = files("feat2vec.pages.explore")
    html = folder.joinpath("page.html").read_text(encoding="utf-8")
    style = folder.joinpath("page.css").read_text(encoding="utf-8")
    script = folder.joinpath("page.js").read_text(encoding="utf-8")
    facts = {**atlas.facts(), "alone": answers is not None}
    if answers is not None:
        facts["made"] = {name: atlas.kinds(name) for name in atlas.names}
    plotly = plotly_js()
    placeholders = {
        "policy": escape(policy([plotly, script], alone=answers is not None)),
        "title": escape(facts["title"]),
        "css": style,
        "plotly": plotly,
        "js": script,
        "facts": as_json(facts),
        "answers": "\n".join(_block(path, answer) for path, answer in answers or ()),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: placeholders[match[1]], html)


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
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    rules = ["default-src 'none'", f"script-src {allowed} 'unsafe-eval'", "style-src 'unsafe-inline'"]
    rules += ["img-src data: blob:", "connect-src 'none'" if alone else "connect-src 'self'"]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def as_json(facts: object) -> str:
    """JSON that can stand inside a script element."""
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _block(path: str, answer: Answer) -> str:
    return f'<script type="application/json" data-path="{escape(path)}">{as_json(answer)}</script>'


def print_nothing(line: str) -> None:
    """Print nothing."""
    del line


def write_page(
    atlas: Atlas,
    out: str | Path,
    *,
    force: bool = False,
    print_line: PrintLine = print_nothing,
    neighbours_in_file: int = NEIGHBOURS_IN_FILE,
) -> None:
    """Write the page as one file, whole or not at all.

    Args:
        atlas: What the page shows.
        out: The file.
        force: Replace the file if it is there.
        print_line: Called with a line for each group.
        neighbours_in_file: How many neighbours the file may hold.

    Raises:
        UserError: The file cannot be written there, or would be too large.

    """
    out = Path(out)
    try:
        file_place(out, force=force)
    except UserError as error:
        raise UserError(f"--html: {error}") from None
    searches = sum(len(atlas.points(name).places) * len(atlas.targets(name)) for name in atlas.names)
    neighbours = NEIGHBOURS * searches
    if neighbours > neighbours_in_file:
        raise UserError(
            f"--html: the file would hold {neighbours:,} neighbours, {neighbours_in_file:,} is the most; lower --limit"
            f" ({atlas.limit:,} points of a map now), name fewer groups by --group, or use the server"
        )
    write_text(out, page(atlas, answers(atlas, print_line)), force=force)


def answers(atlas: Atlas, print_line: PrintLine = print_nothing) -> Iterator[tuple[str, Answer]]:
    """Everything that the page can ask for: pairs of a path and its answer."""
    for i, name in enumerate(atlas.names):
        print_line(f"{name}: {len(atlas.points(name).places):,} points")
        paths = [f"points/{i}"]
        paths += [f"map/{i}/{kind}" for kind in atlas.kinds(name)]
        paths += [f"colour/{i}/{column}" for column in range(len(atlas.columns))]
        paths += [f"latent/{i}/{number}" for number in range(len(atlas.latent.names))]
        paths += [f"near/{i}/{atlas.names.index(target)}" for target in atlas.targets(name)]
        for path in paths:
            yield path, atlas.answer(path)


__all__ = ["NEIGHBOURS_IN_FILE", "answers", "page", "policy", "write_page"]
