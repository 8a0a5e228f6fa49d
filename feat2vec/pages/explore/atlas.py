"""What a page about a run shows: points, maps, colours and neighbours, each made when it is asked for."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from feat2vec.encode.encoder import Encoded
from feat2vec.errors import UserError, listed, suggest
from feat2vec.pages.explore import colours
from feat2vec.pages.explore.maps import FEW, KINDS, Map, MapKind, draw
from feat2vec.space.geometry import is_keyed
from feat2vec.space.groups_and_levels import ROW
from feat2vec.space.run_vectors import vectors_of_group, vectors_of_rows
from feat2vec.space.vectors import Vectors
from feat2vec.table.table import Table, open_table
from feat2vec.training.run_folder import TrainedRun

Ints = npt.NDArray[np.int64]
LIMIT = 100_000  # points of a map
NEAR = 10  # neighbours in each group
DIGITS = 4  # of a similarity, as `similar` prints it
TIED = 5e-7  # what sums in another order may change


@dataclass(frozen=True)
class Points:
    """Those of a group's vectors that are on its map: the most frequent, or some rows by chance."""

    places: Ints
    keys: list[str]
    counts: Ints
    levels: Ints
    total: int


class Atlas:
    """A run's groups, and the rows of `data`, to be looked at; safe to ask from several threads.

    The page speaks of groups, columns and points by their numbers, and asks for `points/GROUP`, `map/GROUP/KIND`,
    `colour/GROUP/COLUMN`, `neighbours/GROUP/PLACE`, `near/GROUP/GROUP` (the neighbours of all points) and
    `find/GROUP` with a key.
    """

    def __init__(
        self,
        run: TrainedRun,
        groups: Sequence[str] = (),
        data: object = None,
        colour: str | None = None,
        kind: MapKind = "pca",
        limit: int = LIMIT,
        seed: int = 0,
    ) -> None:
        self.run, self.kind, self.limit, self.seed = run, kind, limit, seed
        self.table: Table | None = None if data is None else open_table(data)
        self._data = data
        group_names = list(run.schema.groups)
        self.rows = self.table is not None and ROW not in group_names
        self.names = _chosen([*([ROW] if self.rows else []), *group_names], groups, data)
        self.columns = [] if self.table is None else colours.colourable(self.table)
        self.levels = len(run.schema.model.levels)
        self.colour = self._first_colour(colour)
        self._reading, self._mapping = threading.RLock(), threading.RLock()
        self._vectors: dict[str, Vectors] = {}
        self._points: dict[str, Points] = {}
        self._maps: dict[tuple[str, str], Map] = {}
        self._read: dict[str, colours.Numbers | colours.Categories] = {}

    def _first_colour(self, colour: str | None) -> str:
        """What points are coloured by at first."""
        if colour is None:
            if self.names[0] != ROW or not self.rows:
                return "count"
            return next((name for name in self.columns if name != self.run.schema.id), "none")
        if colour in self.columns or colour == "count" or (colour == "level" and self.levels > 1):
            return colour
        if self.table is None:
            raise UserError(
                f"--colour: {colour!r} is a column of --data, which is not given; name the rows, or `count`"
            )
        if colour in self.table.columns:
            raise UserError(f"--colour: column {colour!r} holds {self.table.columns[colour]}, which is no colour")
        suggestion = suggest(colour, self.columns) or f"; the columns are {listed(self.columns)}"
        raise UserError(f"--colour: {self.table.name} has no column {colour!r}{suggestion}")

    # --- what is asked for ------------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """What the page begins with."""
        return {
            "title": self.run.schema.name,
            "groups": self.names,
            "columns": self.columns,
            "levels": self.levels,
            "rows": self.names.index(ROW) if self.rows and ROW in self.names else -1,
            "kinds": list(KINDS),
            "few": FEW,
            "kind": self.kind,
            "near": NEAR,
            "digits": DIGITS,
            "limit": self.limit,
            "colour": self.columns.index(self.colour) if self.colour in self.columns else self.colour,
        }

    def answer(self, path: str, key: str = "") -> dict[str, Any]:
        """What the page asks for, as JSON; LookupError if it is nothing."""
        what, *rest = path.split("/")
        name = self.names[_index(rest[0])]
        match what, *rest[1:]:
            case ["points"]:
                return self._points_facts(self.points(name))
            case ["map", str(kind)] if kind in KINDS:
                drawn_map = self.map(name, kind)
                return {"xy": pack(drawn_map.xy, "<f4"), "note": drawn_map.note}
            case ["colour", str(column)]:
                return _colour_facts(self.colours(name, self.columns[_index(column)]))
            case ["neighbours", str(place)]:
                return self.neighbours(name, _index(place))
            case ["near", str(to)]:
                return self.near(name, self.names[_index(to)])
            case ["find"]:
                with self._reading:
                    return {"id": self.vectors(name).get_index(key)}
        raise LookupError(path)

    def vectors(self, name: str) -> Vectors:
        """A group's vectors, or those of rows."""
        with self._reading:
            if name not in self._vectors:
                is_row = name == ROW and self.rows
                self._vectors[name] = (
                    vectors_of_rows(self.run, self._data) if is_row else vectors_of_group(self.run, name)
                )
            return self._vectors[name]

    def points(self, name: str) -> Points:
        """What is on a group's map."""
        with self._reading:
            if name not in self._points:
                vectors = self.vectors(name)
                places = self._shown(vectors, by_chance=name == ROW and self.rows)
                self._points[name] = Points(
                    places,
                    vectors.strings.take(pa.array(places)).to_pylist(),
                    vectors.counts[places],
                    vectors.levels[places],
                    len(vectors),
                )
            return self._points[name]

    def _shown(self, vectors: Vectors, *, by_chance: bool) -> Ints:
        if len(vectors) <= self.limit:
            return np.arange(len(vectors))
        if by_chance:  # rows are often sorted: the first ones would be of one kind
            return np.sort(np.random.default_rng(self.seed).choice(len(vectors), self.limit, replace=False))
        return np.sort(np.argsort(-vectors.counts, kind="stable")[: self.limit])

    def map(self, name: str, kind: MapKind) -> Map:
        """A group's points on a plane."""
        points = self.points(name)
        with self._mapping:
            if (name, kind) not in self._maps:
                with self._reading:
                    vectors = self.vectors(name).vectors[points.places]
                self._maps[name, kind] = draw(vectors, kind, self.seed)
            return self._maps[name, kind]

    def kinds(self, name: str) -> list[MapKind]:
        """The maps that a file holds of a group."""
        return ["pca"] if self.kind == "pca" or len(self.points(name).places) < FEW else ["pca", self.kind]

    def colours(self, name: str, column: str) -> colours.Scale | colours.Classes:
        """A column as colours of a group's points."""
        places = self.points(name).places
        with self._reading:
            if column not in self._read:
                assert self.table is not None
                self._read[column] = colours.read(self.table, column, self.run.schema)
            if name == ROW and self.rows:
                pairs = colours.Pairs(places, places)
            else:
                pairs = colours.pairs_of(self._encoded, name, keyed=is_keyed(self.run.model, name))
            return colours.colour(self._read[column], pairs, places)

    @cached_property
    def _encoded(self) -> Encoded:
        return self.run.fitted.encode(self._data)

    # --- neighbours -------------------------------------------------------------------------------------------------

    def targets(self, name: str) -> list[str]:
        """Where neighbours are sought: the group itself, then the others; rows have no place in another group."""
        return [
            name,
            *(other_name for other_name in self.names if other_name != name and not (other_name == ROW and self.rows)),
        ]

    def neighbours(self, name: str, place: int) -> dict[str, Any]:
        """What is nearest to a point, as `similar` finds it."""
        with self._reading:
            vectors = self.vectors(name)
            if not 0 <= place < len(vectors):
                raise LookupError(f"{name}/{place}")
            groups = []
            for to in self.targets(name):
                hits = vectors.nearest(np.array([place]), NEAR, to=None if to == name else to)
                described = self._described(to, hits.ids[0])
                scores = hits.scores[0].tolist()
                groups.append({"group": self.names.index(to), "scores": scores, **described})
            return {**self._described(name, np.array([place])), "groups": groups}

    def near(self, name: str, to: str) -> dict[str, Any]:
        """The neighbours in `to` of all points of a group: the same, computed ahead for a file."""
        with self._reading:
            vectors, target = self.vectors(name), None if to == name else to
            places = self.points(name).places
            parts = []
            for start in range(0, len(places), 1024):
                parts.append(self._near(vectors, places[start : start + 1024], target))
            ids, scores = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            hidden_ids = np.setdiff1d(ids, self.points(to).places)  # what the map does not show
            return {
                "ids": pack(ids, "<i4"),
                "scores": pack(scores, "<f4"),
                "width": ids.shape[1],
                "more": self._described(to, hidden_ids),
            }

    def _near(self, vectors: Vectors, places: Ints, to: str | None) -> tuple[Any, Any]:
        """Many at once; those alone whose order, or a digit that is shown, could differ from a search of its own."""
        hits = vectors.nearest(places, NEAR + 1, to=to)
        ids, scores = hits.ids[:, :NEAR].copy(), hits.scores[:, :NEAR].copy()
        uncertain = (hits.scores[:, :-1] - hits.scores[:, 1:] < 2 * TIED).any(axis=1)
        last_digit = np.abs(scores.astype(np.float64)) * 10**DIGITS
        uncertain |= (np.abs(last_digit - np.floor(last_digit) - 0.5) < TIED * 10**DIGITS).any(axis=1)
        for i in np.flatnonzero(uncertain):
            exact_hits = vectors.nearest(places[i : i + 1], NEAR, to=to)
            ids[i], scores[i] = exact_hits.ids[0], exact_hits.scores[0]
        return ids, scores

    def _described(self, name: str, places: Ints) -> dict[str, Any]:
        """What stands at some places."""
        vectors = self.vectors(name)
        keys = vectors.strings.take(pa.array(places)).to_pylist()
        facts = {"ids": places.tolist(), "keys": keys, "counts": vectors.counts[places].tolist()}
        return {**facts, "levels": vectors.levels[places].tolist()}

    def _points_facts(self, points: Points) -> dict[str, Any]:
        return {
            "total": points.total,
            "keys": points.keys,
            "counts": pack(points.counts, "<f8"),
            "ids": pack(points.places, "<i4"),
            "levels": pack(points.levels, "<i1"),
            "scale": _colour_facts(colours.scale(np.maximum(points.counts, 1).astype(np.float64), log=True)),
        }


def _chosen(group_names: list[str], groups: Sequence[str], data: object) -> list[str]:
    """The groups that are asked for, in that order."""
    for name in groups:
        if name == ROW and name not in group_names and data is None:
            raise UserError("--group row: a run keeps no rows; name those to look at by --data")
        if name not in group_names:
            suggestion = suggest(name, group_names) or f"; the groups are {listed(group_names)}"
            raise UserError(f"--group: there is no group {name!r}{suggestion}")
    return list(dict.fromkeys(groups)) or group_names


def _index(text: str) -> int:
    """A number from a path."""
    if not re.fullmatch("[0-9]{1,9}", text):
        raise LookupError(text)
    return int(text)


def _colour_facts(point_colours: colours.Scale | colours.Classes) -> dict[str, Any]:
    facts = dict(colours.facts(point_colours))
    for name, kind in (("values", "<f4"), ("codes", "<i1")):
        if name in facts:
            facts[name] = pack(facts[name], kind)
    return facts


def pack(array: npt.NDArray[Any], kind: str) -> str:
    """The bytes of an array, as text."""
    return base64.b64encode(np.ascontiguousarray(array.astype(kind)).tobytes()).decode()


__all__ = ["LIMIT", "Atlas", "Points"]
