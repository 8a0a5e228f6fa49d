"""Clusters and topics as colours of the page's points."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.pages.clusters import clusters_of
from feat2vec.pages.explore import Atlas
from feat2vec.pages.explore.latent_colours import LatentColours
from feat2vec.pages.topics import Topics
from tests.pages.explore.answers import unpacked
from tests.pages.explore.tables import table


def names_of_points(atlas: Atlas, group: str, colour: str) -> list[str | None]:
    """The name of each point's colour, None for points without one."""
    answer = latent_answer(atlas, group, colour)
    codes = unpacked(answer["codes"], "<i1").tolist()
    return [answer["names"][code] if code >= 0 else None for code in codes]


def latent_answer(atlas: Atlas, group: str, colour: str) -> dict[str, Any]:
    return atlas.answer(f"latent/{atlas.names.index(group)}/{atlas.latent.names.index(colour)}")


def test_every_group_of_lists_or_texts_has_topics_as_a_colour(atlas: Atlas) -> None:
    assert atlas.facts()["latent"] == ["cluster", "topic of a <group>", "topic of title"]
    for number in ("3", "9a"):
        with pytest.raises(LookupError):
            atlas.answer(f"latent/0/{number}")


@pytest.mark.parametrize("group", ["row", "who", "a <group>", "title"])
def test_clusters_are_those_of_the_points(group: str, atlas: Atlas) -> None:
    vectors = atlas.vectors(group)
    keys = vectors.index_to_key
    clusters = clusters_of(vectors.vectors, vectors.counts, lambda places: [keys[place] for place in places])
    assert names_of_points(atlas, group, "cluster") == [clusters.names[code] for code in clusters.codes]


def test_clusters_of_rows_without_names_are_named_by_their_numbers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = feat2vec.load(folder / "run")
    rows, schema = run.row_vectors(table()), run.schema.model_copy(update={"id": None})
    monkeypatch.setattr(type(run), "schema", property(lambda _: schema))
    colours = LatentColours(run).clusters("row", rows, np.arange(len(rows)))
    assert all(re.fullmatch(r"\d: row r\d+(, row r\d+)*", name) for name in colours.names)


def test_topics_of_words_and_of_the_rows_that_points_come_in(atlas: Atlas, folder: Path) -> None:
    topics = Topics(feat2vec.load(folder / "run").fitted, "a <group>")
    topic_of_word = dict(zip(topics.keys.to_pylist(), topics.of_words().tolist(), strict=True))
    words = names_of_points(atlas, "a <group>", "topic of a <group>")
    assert words == [
        topics.names[topic_of_word[word]] if topic_of_word[word] >= 0 else None
        for word in atlas.points("a <group>").keys
    ]
    encoded = atlas.run.fitted.encode(str(folder / "rows.parquet"))
    of_bags = topics.of_bags(encoded.values["a <group>"].entries)
    rows = [topics.names[of_bags[value]] if value >= 0 else None for value in encoded.rows[:, 1].tolist()]
    assert names_of_points(atlas, "row", "topic of a <group>") == rows
    people = names_of_points(atlas, "who", "topic of a <group>")
    for key, name in zip(atlas.points("who").keys, people, strict=True):
        seen = Counter(topic for topic, who in zip(rows, table()["who"].to_pylist(), strict=True) if who == key)
        del seen[None]
        best = max(((number, -topics.names.index(topic)) for topic, number in seen.items()), default=None)
        assert name is None if best is None else (seen[name], -topics.names.index(str(name))) == best


def test_without_rows_other_groups_have_no_topic(folder: Path) -> None:
    alone = Atlas(feat2vec.load(folder / "run"), colour="topic of a <group>")
    assert alone.facts()["colour"] == "latent/1"
    assert set(names_of_points(alone, "who", "topic of a <group>")) == {None}
    assert Atlas(feat2vec.load(folder / "run"), colour="cluster").facts()["colour"] == "latent/0"


def test_without_scikit_learn_there_are_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = feat2vec.load(folder / "run")
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert Atlas(run).facts()["latent"] == []
    with pytest.raises(UserError) as caught:
        Atlas(run, colour="cluster")
    assert str(caught.value) == "--colour cluster: scikit-learn is not installed: `pip install 'feat2vec[explore]'`"
