"""Norms, isotropy, levels and stability of a space, and the bound for its classes."""

from __future__ import annotations

from feat2vec.evaluation.diagnose import (
    ClassBound,
    Isotropy,
    LevelSize,
    NormBin,
    Stability,
    class_bounds,
    isotropy,
    labelled_vectors,
    levels,
    norms,
    stability,
)

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
