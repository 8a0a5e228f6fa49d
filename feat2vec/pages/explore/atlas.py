"""Answers to the page as JSON, in which arrays are the text of their bytes."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Bools, Float32s, Int8s, Int64s
from feat2vec.encode.encoder import Encoded
from feat2vec.errors import UserError, listed, suggest
from feat2vec.pages.explore import colours
from feat2vec.pages.explore.colours import Classes, Pairs
from feat2vec.pages.explore.latent_colours import LatentColours, topics_of_rows
from feat2vec.pages.explore.maps import LEAST_VECTORS, Map, draw
from feat2vec.pages.explore_options import MAP_KINDS, POINTS_PER_MAP, MapKind
from feat2vec.space.geometry import is_keyed
from feat2vec.space.groups_and_levels import ROW, groups_once
from feat2vec.space.run_vectors import vectors_of_group, vectors_of_rows
from feat2vec.space.vectors import Vectors
from feat2vec.table.table import Table, open_table
from feat2vec.training.run_folder import TrainedRun
from feat2vec.writing.files import JsonObject

Answer = JsonObject  # of the explorer


def colour_answer(point_colours: colours.Scale | colours.Classes) -> Answer:
    """Colours of points, as the page reads them."""
    facts = dict(colours.as_dict(point_colours))
    for name, kind in (("values", "<f4"), ("codes", "<i1")):
        if name in facts:
            facts[name] = pack(facts[name], kind)
    return facts


def pack(array: Array, kind: str) -> str:
    """The bytes of an array, as text."""
    return base64.b64encode(np.ascontiguousarray(array.astype(kind)).tobytes()).decode()


NEIGHBOURS = 10  # in each group
DIGITS = 4  # of a similarity, as `similar` prints it
ROUNDING = 5e-7  # by how much a similarity may change if its sum is taken in another order
POINTS_PER_SEARCH = 1024  # whose neighbours are searched at a time


@dataclass(frozen=True)
class Points:
    """Those of a group's vectors that are on its map: the most frequent, or some rows by chance.

    `without_vector` values have zeros in place of a vector, and are on no map.
    """

    places: Int64s
    keys: list[str]
    counts: Int64s
    levels: Int8s
    total: int
    without_vector: int


class Atlas:
    """A run's groups, and the rows of `data`, to be looked at; safe to ask from several threads.

    The page speaks of groups, columns and points by their numbers, and asks for `points/GROUP`, `map/GROUP/KIND`,
    `colour/GROUP/COLUMN`, `latent/GROUP/NUMBER` (clusters and topics), `neighbours/GROUP/PLACE`, `near/GROUP/GROUP`
    (the neighbours of all points) and `find/GROUP` with a key.
    """

    def __init__(
        self,
        run: TrainedRun,
        groups: Sequence[str] = (),
        data: object = None,
        colour: str | None = None,
        kind: MapKind = "pca",
        limit: int = POINTS_PER_MAP,
        seed: int = 0,
    ) -> None:
        self.run, self.kind, self.limit, self.seed = run, kind, limit, seed
        self.table: Table | None = None if data is None else open_table(data)
        self._data = data
        group_names = list(run.schema.groups) if groups else groups_once(run.schema)
        self.rows = self.table is not None and ROW not in run.schema.groups
        self.names = _chosen([*([ROW] if self.rows else []), *group_names], groups, data)
        self.columns = [] if self.table is None else colours.colourable(self.table)
        self.latent = LatentColours(run, seed)
        self.levels = len(run.schema.model.levels)
        self.colour = self._first_colour(colour)
        self._reading, self._mapping = threading.RLock(), threading.RLock()
        self._vectors: dict[str, Vectors] = {}
        self._points: dict[str, Points] = {}
        self._maps: dict[tuple[str, str], Map] = {}
        self._columns: dict[str, colours.Numbers | colours.Categories] = {}

    def _first_colour(self, colour: str | None) -> str:
        """What points are coloured by at first."""
        if colour is None:
            if self.names[0] != ROW or not self.rows:
                return "count"
            return next((name for name in self.columns if name != self.run.schema.id), "none")
        if colour in self.columns or colour == "count" or (colour == "level" and self.levels > 1):
            return colour
        if self.latent.has(colour):
            return colour
        if self.table is None:
            raise UserError(
                f"--colour: {colour!r} is a column of --data, which is not given; name the rows, or `count`"
            )
        if colour in self.table.columns:
            raise UserError(f"--colour: column {colour!r} holds {self.table.columns[colour]}, which is no colour")
        suggestion = suggest(colour, self.columns) or f"; the columns are {listed(self.columns)}"
        raise UserError(f"--colour: {self.table.name} has no column {colour!r}{suggestion}")

    # --- answers to the page ------------------------------------------------------------------------------------------

    def facts(self) -> Answer:
        """What the page begins with."""
        return {
            "title": self.run.schema.name,
            "groups": self.names,
            "columns": self.columns,
            "levels": self.levels,
            "rows": self.names.index(ROW) if self.rows and ROW in self.names else -1,
            "kinds": list(MAP_KINDS),
            "few": LEAST_VECTORS,
            "kind": self.kind,
            "near": NEIGHBOURS,
            "digits": DIGITS,
            "limit": self.limit,
            "latent": self.latent.names,
            "colour": self._colour_of_page(),
        }

    def _colour_of_page(self) -> int | str:
        """The first colour as the page calls it."""
        if self.colour in self.columns:
            return self.columns.index(self.colour)
        return f"latent/{self.latent.names.index(self.colour)}" if self.colour in self.latent.names else self.colour

    def answer(self, path: str, key: str = "") -> Answer:
        """The answer to a path of the page, as JSON; `key` is what `find` looks for.

        Raises:
            LookupError: The page has no such path.

        """
        question, *arguments = path.split("/")
        name = self.names[_index(arguments[0])]
        match question, *arguments[1:]:
            case ["points"]:
                return self._points_answer(self.points(name))
            case ["map", str(kind)] if kind in MAP_KINDS:
                drawn_map = self.map(name, kind)
                return {"xy": pack(drawn_map.xy, "<f4"), "note": drawn_map.note}
            case ["colour", str(column)]:
                return colour_answer(self.colours(name, self.columns[_index(column)]))
            case ["latent", str(number)]:
                return colour_answer(self.latent_colours(name, self.latent.names[_index(number)]))
            case ["neighbours", str(place)]:
                return self.neighbours(name, _index(place))
            case ["near", str(target)]:
                return self.near(name, self.names[_index(target)])
            case ["find"]:
                with self._reading:
                    return {"id": self.vectors(name).get_index(key)}
        raise LookupError(path)

    def _is_rows(self, name: str) -> bool:
        """Whether a name stands for rows as a whole, and not for a group that is called so."""
        return name == ROW and self.rows

    def vectors(self, name: str) -> Vectors:
        """A group's vectors, or those of rows."""
        with self._reading:
            if name not in self._vectors:
                if self._is_rows(name):
                    self._vectors[name] = vectors_of_rows(self.run, self._data)
                else:
                    self._vectors[name] = vectors_of_group(self.run, name)
            return self._vectors[name]

    def points(self, name: str) -> Points:
        """What is on a group's map."""
        with self._reading:
            if name not in self._points:
                vectors = self.vectors(name)
                places = self._map_ids(vectors, drawn_at_random=self._is_rows(name))
                self._points[name] = Points(
                    places,
                    vectors.strings.take(pa.array(places)).to_pylist(),
                    vectors.counts[places],
                    vectors.levels[places],
                    len(vectors),
                    int(self._without_vector(vectors).sum()),
                )
            return self._points[name]

    def _map_ids(self, vectors: Vectors, *, drawn_at_random: bool) -> Int64s:
        """The vectors that are on the map: all of them, or `limit`."""
        shown = np.flatnonzero(~self._without_vector(vectors))
        if len(shown) <= self.limit:
            return shown
        if drawn_at_random:  # rows are often sorted: the first ones would be of one kind
            return np.sort(np.random.default_rng(self.seed).choice(shown, self.limit, replace=False))
        return np.sort(shown[np.argsort(-vectors.counts[shown], kind="stable")[: self.limit]])

    def _without_vector(self, vectors: Vectors) -> Bools:
        """Which values of a group have no vector; of a group without any vector they are shown all the same."""
        is_row = self._is_rows(vectors.name)
        without_vector = np.zeros(len(vectors), np.bool_) if is_row else vectors.without_vector
        return without_vector if not without_vector.all() else np.zeros_like(without_vector)

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
        return ["pca"] if self.kind == "pca" or len(self.points(name).places) < LEAST_VECTORS else ["pca", self.kind]

    def colours(self, name: str, column: str) -> colours.Scale | colours.Classes:
        """A column as colours of a group's points."""
        places = self.points(name).places
        with self._reading:
            if column not in self._columns:
                assert self.table is not None
                self._columns[column] = colours.read(self.table, column, self.run.schema)
            return colours.colour(self._columns[column], self._pairs(name, places), places)

    def latent_colours(self, name: str, colour: str) -> Classes:
        """The clusters of a group's points, or the topics of a group of lists or texts that they are seen with."""
        with self._mapping:
            places = self.points(name).places
            topic_group = self.latent.topic_group(colour)
            if topic_group is None:
                with self._reading:
                    vectors = self.vectors(name)
                    return self.latent.clusters(name, vectors, places)
            if topic_group == name:
                return self.latent.topics_of_values(name, places, keyed=is_keyed(self.run.model, name))
            if self.table is None:
                return colours.classes(np.full(len(places), -1), [])
            with self._reading:
                column = topics_of_rows(self.latent.topics(topic_group), self._encoded, topic_group)
                return colours.colour_by_category(column, self._pairs(name, places), places)

    def _pairs(self, name: str, places: Int64s) -> Pairs:
        """The rows of --data that the points of a group come in."""
        if self._is_rows(name):
            return Pairs(places, places)
        return colours.pairs_of(self._encoded, name, keyed=is_keyed(self.run.model, name))

    @cached_property
    def _encoded(self) -> Encoded:
        return self.run.fitted.encode(self._data)

    # --- neighbours -------------------------------------------------------------------------------------------------

    def targets(self, name: str) -> list[str]:
        """Where neighbours are sought: the group itself, then the others; rows have no place in another group."""
        return [name, *(target for target in self.names if target != name and not self._is_rows(target))]

    def neighbours(self, name: str, place: int) -> Answer:
        """The nearest values of a point in each group, as `similar` finds them."""
        with self._reading:
            vectors = self.vectors(name)
            if not 0 <= place < len(vectors):
                raise LookupError(f"{name}/{place}")
            vectors.refuse_without_vector(place)
            groups = []
            for target in self.targets(name):
                hits = vectors.nearest(np.array([place]), NEIGHBOURS, to=None if target == name else target)
                described = self._described(target, hits.ids[0])
                scores = hits.scores[0].tolist()
                groups.append({"group": self.names.index(target), "scores": scores, **described})
            return {**self._described(name, np.array([place])), "groups": groups}

    def near(self, name: str, target: str) -> Answer:
        """The neighbours in the group `target` of all points of a group: those of `neighbours`, for a file."""
        with self._reading:
            vectors, to = self.vectors(name), None if target == name else target
            places = self.points(name).places
            id_blocks: list[Int64s] = []
            score_blocks: list[Float32s] = []
            for start in range(0, len(places), POINTS_PER_SEARCH):
                block_ids, block_scores = _nearest(vectors, places[start : start + POINTS_PER_SEARCH], to)
                id_blocks.append(block_ids)
                score_blocks.append(block_scores)
            ids, scores = np.concatenate(id_blocks), np.concatenate(score_blocks)  # [points, neighbours]
            hidden_ids = np.setdiff1d(ids, self.points(target).places)  # neighbours that the map does not show
            return {
                "ids": pack(ids, "<i4"),
                "scores": pack(scores, "<f4"),
                "width": ids.shape[1],
                "more": self._described(target, hidden_ids),
            }

    def _described(self, name: str, places: Int64s) -> Answer:
        """What stands at some places."""
        vectors = self.vectors(name)
        keys = vectors.strings.take(pa.array(places)).to_pylist()
        facts = {"ids": places.tolist(), "keys": keys, "counts": vectors.counts[places].tolist()}
        return {**facts, "levels": vectors.levels[places].tolist()}

    def _points_answer(self, points: Points) -> Answer:
        return {
            "total": points.total,
            "without_vector": points.without_vector,
            "keys": points.keys,
            "counts": pack(points.counts, "<f8"),
            "ids": pack(points.places, "<i4"),
            "levels": pack(points.levels, "<i1"),
            "scale": colour_answer(colours.scale(np.maximum(points.counts, 1).astype(np.float64), log=True)),
        }


def _nearest(vectors: Vectors, places: Int64s, to: str | None) -> tuple[Int64s, Float32s]:
    """The neighbours of points and their similarities [points, neighbours], exactly as a search for each point alone.

    All points are searched at once. This may change the last bits of a similarity: a point is searched again, alone, if
    that could change the order of its neighbours or a digit that is shown.
    """
    hits = vectors.nearest(places, NEIGHBOURS + 1, to=to)
    ids, scores = hits.ids[:, :NEIGHBOURS].copy(), hits.scores[:, :NEIGHBOURS].copy()
    is_uncertain = (hits.scores[:, :-1] - hits.scores[:, 1:] < 2 * ROUNDING).any(axis=1)
    last_digit = np.abs(scores.astype(np.float64)) * 10**DIGITS
    is_uncertain |= (np.abs(last_digit - np.floor(last_digit) - 0.5) < ROUNDING * 10**DIGITS).any(axis=1)
    for i in np.flatnonzero(is_uncertain):
        exact_hits = vectors.nearest(places[i : i + 1], NEIGHBOURS, to=to)
        ids[i], scores[i] = exact_hits.ids[0], exact_hits.scores[0]
    return ids, scores


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
