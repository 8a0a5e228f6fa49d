"""What a score, or a similarity of two rows, is the sum of."""

from __future__ import annotations

from feat2vec.pages.explain import explain, explain_score, explain_similarity, row_of
from feat2vec.pages.explanation_views import Contribution as Part
from feat2vec.pages.explanation_views import Explanation

__all__ = ["Explanation", "Part", "explain", "explain_score", "explain_similarity", "row_of"]
