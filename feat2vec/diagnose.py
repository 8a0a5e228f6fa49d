"""Norms, isotropy, levels and stability of a space, and the bound for its classes."""

from __future__ import annotations

from feat2vec.evaluation.bounds import ClassBound, class_bounds, labelled_vectors
from feat2vec.evaluation.norms_and_isotropy import Isotropy, LevelSize, NormBin, isotropy, levels, norms
from feat2vec.evaluation.stability import Stability, stability

__all__ = [
    "ClassBound",
    "Isotropy",
    "LevelSize",
    "NormBin",
    "Stability",
    "class_bounds",
    "isotropy",
    "labelled_vectors",
    "levels",
    "norms",
    "stability",
]
