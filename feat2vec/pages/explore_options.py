"""The maps of the explorer. The command line imports this when it starts, so it imports nothing heavy."""

from __future__ import annotations

from typing import Literal, get_args

MapKind = Literal["pca", "umap", "tsne"]
MAP_KINDS: tuple[MapKind, ...] = get_args(MapKind)
POINTS_PER_MAP = 100_000  # at most, if nothing else is asked for

__all__ = ["MAP_KINDS", "POINTS_PER_MAP", "MapKind"]
