"""`explore`: a page to look at a learnt space and search it, from a local server or as one file."""

from __future__ import annotations

from feat2vec.pages.explore.atlas import Atlas
from feat2vec.pages.explore.page import write_page
from feat2vec.pages.explore.server import Server

__all__ = ["Atlas", "Server", "write_page"]
