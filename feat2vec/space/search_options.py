"""How vectors are compared and searched. The command line imports this when it starts, so it imports nothing heavy."""

from __future__ import annotations

from typing import Literal, get_args

VectorSimilarity = Literal["cosine", "dot"]  # what follows from vectors alone
Similarity = Literal["cosine", "dot", "score"]
RankSimilarity = Literal["probability", "cosine", "dot"]  # the first as `complete` gives it
IndexKind = Literal["exact", "hnsw", "ivf"]

VECTOR_SIMILARITIES: tuple[VectorSimilarity, ...] = get_args(VectorSimilarity)
RANK_SIMILARITIES: tuple[RankSimilarity, ...] = get_args(RankSimilarity)
SIMILARITIES: tuple[Similarity, ...] = get_args(Similarity)
INDEX_KINDS: tuple[IndexKind, ...] = get_args(IndexKind)
