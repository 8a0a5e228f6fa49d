"""Clusters and topics as colours of points; scikit-learn is imported when one of them is asked for."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Int64s
from feat2vec.encode.encoder import Encoded
from feat2vec.pages.clusters import clusters_of, require_sklearn
from feat2vec.pages.explore import colours
from feat2vec.pages.topics import Topics, groups_with_topics
from feat2vec.space.groups_and_levels import ROW
from feat2vec.space.vectors import Vectors
from feat2vec.training.run_folder import TrainedRun

CLUSTER, TOPIC_OF = "cluster", "topic of "


class LatentColours:
    """The clusters of each group's vectors, and the topics of groups of lists and texts; each is learnt once.

    Args:
        run: The run.
        seed: Of what is drawn at random.

    """

    def __init__(self, run: TrainedRun, seed: int = 0) -> None:
        self.run, self.seed = run, seed
        self._topic_groups = {f"{TOPIC_OF}{name}": name for name in groups_with_topics(run.schema)}
        self._clusters: dict[str, colours.Classes] = {}
        self._topics: dict[str, Topics] = {}

    @property
    def names(self) -> list[str]:
        """The colours that there are: none without scikit-learn."""
        return [] if find_spec("sklearn") is None else [CLUSTER, *self._topic_groups]

    def has(self, colour: str) -> bool:
        """Whether a colour is one of these; `UserError` if it needs scikit-learn, which is not installed."""
        is_latent = colour == CLUSTER or colour in self._topic_groups
        if is_latent:
            require_sklearn(f"--colour {colour}")
        return is_latent

    def topic_group(self, colour: str) -> str | None:
        """The group of lists or texts that a colour is about; None for clusters."""
        return self._topic_groups.get(colour)

    def clusters(self, name: str, vectors: Vectors, places: Int64s) -> colours.Classes:
        """The clusters of a group's points."""
        if name not in self._clusters:
            is_number = name == ROW and name not in self.run.schema.groups and self.run.schema.id is None
            what = f"{ROW} " if is_number else ""  # a number alone says nothing of a row
            clusters = clusters_of(
                vectors.vectors[places],
                vectors.counts[places],
                lambda points: [f"{what}{key}" for key in vectors.strings.take(pa.array(places[points])).to_pylist()],
                self.seed,
            )
            self._clusters[name] = colours.classes(clusters.codes, clusters.names)
        return self._clusters[name]

    def topics(self, group: str) -> Topics:
        """The topics of a group of lists or texts."""
        if group not in self._topics:
            self._topics[group] = Topics(self.run.fitted, group, self.seed)
        return self._topics[group]

    def topics_of_values(self, group: str, places: Int64s, *, keyed: bool) -> colours.Classes:
        """The topics of a group's own points: of its words if it is `keyed`, else of its texts."""
        topics = self.topics(group)
        if keyed:
            return colours.classes(topics.of_words()[places], topics.names)
        entries = np.asarray(self.run.fitted.values[group].entries[places])
        return colours.classes(topics.of_bags(entries), topics.names)


def topics_of_rows(topics: Topics, encoded: Encoded, group: str) -> colours.Categories:
    """The topics of rows as a column of categories."""
    value_ids = np.asarray(encoded.rows[:, list(encoded.encoder.codecs).index(group)])  # [rows], -1 where missing
    codes_of_values = np.append(topics.of_bags(encoded.values[group].entries), -1)  # the last is that of -1
    codes = codes_of_values[value_ids]
    rows = np.flatnonzero(codes >= 0)
    return colours.Categories(rows, codes[rows], topics.names)


__all__ = ["LatentColours", "topics_of_rows"]
