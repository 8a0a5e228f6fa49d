"""What `report` says of clusters and topics."""

from __future__ import annotations

from html import escape

import numpy as np
import pyarrow as pa

from feat2vec.errors import UserError
from feat2vec.pages import charts
from feat2vec.pages.clusters import Clusters, clusters_of, require_sklearn
from feat2vec.pages.explore_options import POINTS_PER_MAP
from feat2vec.pages.topics import Topics, groups_with_topics
from feat2vec.space.groups_and_levels import groups_once
from feat2vec.space.run_vectors import vectors_of_group
from feat2vec.training.run_folder import TrainedRun
from feat2vec.writing.files import JsonObject

FEWEST_VALUES = 10  # of a group whose clusters are told


def latent_facts(run: TrainedRun) -> JsonObject:
    """The clusters and topics of each group as plain data; `missing`, a sentence, without scikit-learn."""
    try:
        require_sklearn("clusters and topics")
    except UserError as error:
        return {"missing": str(error)}
    clusters: dict[str, list[JsonObject]] = {}
    for name in groups_once(run.schema):
        clusters_of_group = _clusters(run, name)
        if clusters_of_group is not None:
            sizes = np.bincount(clusters_of_group.codes, minlength=len(clusters_of_group.names))
            clusters[name] = [
                {"name": cluster, "values": int(size), "share": float(size / sizes.sum())}
                for cluster, size in zip(clusters_of_group.names, sizes, strict=True)
            ]
    topics: dict[str, list[JsonObject]] = {}
    for name in groups_with_topics(run.schema):
        topics_of_group = Topics(run.fitted, name)
        if topics_of_group.names:
            topics[name] = [
                {"name": topic, "share": share}
                for topic, share in zip(topics_of_group.names, topics_of_group.shares, strict=True)
            ]
    return {"clusters": clusters, "topics": topics}


def _clusters(run: TrainedRun, name: str) -> Clusters | None:
    """The clusters of a group's most frequent values; None of few values."""
    vectors = vectors_of_group(run, name)
    if len(vectors) < FEWEST_VALUES:
        return None
    places = np.argsort(-vectors.counts, kind="stable")[:POINTS_PER_MAP]
    return clusters_of(
        vectors.vectors[places],
        vectors.counts[places],
        lambda values: vectors.strings.take(pa.array(places[values])).to_pylist(),
    )


def latent_parts(facts: JsonObject) -> list[str]:
    """The facts as HTML."""
    heading = "<h2>Clusters and topics</h2>"
    if "missing" in facts:
        return [heading, f'<p class="note">{escape(facts["missing"])}</p>']
    cluster_rows, topic_rows = [], []
    for group, clusters in facts["clusters"].items():
        cluster_rows += [(group, cluster["name"], cluster["values"], f"{cluster['share']:.1%}") for cluster in clusters]
    for group, topics in facts["topics"].items():
        topic_rows += [(group, topic["name"], f"{topic['share']:.1%}") for topic in topics]
    note = (
        "Clusters are a mixture of Gaussians over the vectors of a group's values, as many as the Bayesian information "
        "criterion asks for, up to six; their names are values near the middle of each. Topics are a non-negative "
        "factorization of the words of lists and texts; their names are the most probable words of each."
    )
    parts = [heading, f'<p class="note">{note}</p>']
    if cluster_rows:
        parts.append(charts.table("clusters", ["group", "cluster", "values", "share of values"], cluster_rows))
    if topic_rows:
        parts.append(charts.table("topics", ["group", "topic", "share of words"], topic_rows))
    return parts


__all__ = ["latent_facts", "latent_parts"]
