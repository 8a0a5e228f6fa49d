"""What a score, or a similarity of two rows, is the sum of."""

from __future__ import annotations

from feat2vec.pages.explain import explain, explain_score, explain_similarity
from feat2vec.pages.explanation import Contribution as Part
from feat2vec.pages.explanation import Explanation
from feat2vec.pages.row_entries import row_of

__all__ = ["Explanation", "Part", "explain", "explain_score", "explain_similarity", "row_of"]
