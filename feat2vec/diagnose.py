"""Norms, isotropy, levels and stability of a space, and the bounds for its classes and levels."""

from __future__ import annotations

from feat2vec.evaluation.bounds import ClassBound, class_bounds, labelled_vectors
from feat2vec.evaluation.label_bounds import LabelBounds, Lemma, label_bounds
from feat2vec.evaluation.level_bounds import LevelBounds, LevelCost, LevelLoss, level_bounds
from feat2vec.evaluation.linear_classifier import Probe, linear_probe
from feat2vec.evaluation.norms_and_isotropy import Isotropy, LevelSize, NormBin, isotropy, levels, norms
from feat2vec.evaluation.stability import Stability, stability

__all__ = [
    "ClassBound",
    "Isotropy",
    "LabelBounds",
    "Lemma",
    "LevelBounds",
    "LevelCost",
    "LevelLoss",
    "LevelSize",
    "NormBin",
    "Probe",
    "Stability",
    "class_bounds",
    "isotropy",
    "label_bounds",
    "labelled_vectors",
    "level_bounds",
    "levels",
    "linear_probe",
    "norms",
    "stability",
]
