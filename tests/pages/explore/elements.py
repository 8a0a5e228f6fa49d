"""What a page of HTML consists of."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser


class PageElements(HTMLParser):
    """The elements of a page, and what its scripts hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.loads: list[str | None] = []
        self.data: dict[str, str] = {}
        self.policy, self.inside = "", ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        given = dict(attrs)
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        self.inside = (given.get("data-path") or given.get("id") or "") if tag == "script" else ""
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.data[self.inside] = self.data.get(self.inside, "") + data
