"""The page as one file: it holds all that it asks for, and nothing in a table harms it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.pages.explore import Atlas, page, write_page
from tests.pages.explore.elements import PageElements
from tests.pages.explore.tables import IMAGE, QUOTES, SCRIPT


def test_the_file_is_whole_and_safe(folder: Path, atlas: Atlas) -> None:
    parts = PageElements((folder / "page.html").read_text(encoding="utf-8"))
    assert parts.loads == ["data:,"]
    assert "img" not in parts.tags
    assert "default-src 'none'" in parts.policy
    assert "connect-src 'none'" in parts.policy
    assert "http" not in parts.policy
    assert json.loads(parts.data["facts"])["title"] == "<b>people</b>"
    wanted = {f"{what}/{i}" for i in range(4) for what in ("points",)} | {f"map/{i}/pca" for i in range(4)}
    wanted |= {f"colour/{i}/{c}" for i in range(4) for c in range(8)}
    wanted |= {f"latent/{i}/{number}" for i in range(4) for number in range(3)}
    wanted |= {f"near/{i}/{j}" for i in range(4) for j in ([0, 1, 2, 3] if i == 0 else [1, 2, 3])}
    assert set(parts.data) == wanted | {"facts"}
    assert parts.tags["script"] == len(wanted) + 3  # the facts, the library and the page's own
    who = json.loads(parts.data["points/1"])
    assert who["keys"] == atlas.points("who").keys
    assert {IMAGE, SCRIPT, QUOTES} <= set(who["keys"])


def test_a_file_is_replaced_only_when_asked(folder: Path, tmp_path: Path) -> None:
    small = Atlas(feat2vec.load(folder / "run"), ["who"])
    lines: list[str] = []
    write_page(small, tmp_path / "page.html", print_line=lines.append)
    assert lines == [f"who: {len(small.points('who').keys)} points"]
    assert set(PageElements((tmp_path / "page.html").read_text()).data) == {
        "facts",
        "points/0",
        "map/0/pca",
        "latent/0/0",
        "latent/0/1",
        "latent/0/2",
        "near/0/0",
    }
    with pytest.raises(UserError, match=r"--html: .*page\.html: exists already; .* --force"):
        write_page(small, tmp_path / "page.html")
    write_page(small, tmp_path / "page.html", force=True)
    with pytest.raises(UserError, match="is a folder"):
        write_page(small, tmp_path, force=True)
    with pytest.raises(UserError, match="there is no folder"):
        write_page(small, tmp_path / "none" / "page.html")
    with pytest.raises(UserError, match=r"would hold [\d,]+ neighbours, 100 is the most; lower --limit \(100,000 "):
        write_page(small, tmp_path / "other.html", neighbours_in_file=100)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, atlas: Atlas) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(UserError, match=r"plotly is not installed: `pip install 'feat2vec\[explore\]'`"):
        page.page(atlas)


def test_the_page_script_puts_no_text_in_as_html() -> None:
    script = Path(page.__file__).with_name("page.js").read_text(encoding="utf-8")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|hovertemplate|https?://(?!www\.w3\.org)", script
    )
