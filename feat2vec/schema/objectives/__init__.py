"""Objectives: what a model learns, one file for each.

An objective is the class of its options, registered by `@objective("name")`. The class also answers every question that
other modules ask about it (`base.py` lists them), so that a new objective is one file, imported below. Reading a schema
imports none of NumPy, Keras and PyArrow: the functions that need them import them.
"""

from __future__ import annotations

from feat2vec.schema.objectives.base import ObjectiveSpec, self_supervised, supervised
from feat2vec.schema.objectives.formulas import Noisy, Tensor
from feat2vec.schema.objectives.kinds import (
    OBJECTIVES,
    ClassWeights,
    NoiseObjective,
    SupervisedObjective,
    WeightedClasses,
    objective,
)

# Not sorted: messages and the JSON Schema list the objectives in the order of their registration.
# isort: off
from feat2vec.schema.objectives.nce import Nce
from feat2vec.schema.objectives.negative_sampling import NegativeSampling
from feat2vec.schema.objectives.contrastive import Contrastive
from feat2vec.schema.objectives.logistic import Logistic
from feat2vec.schema.objectives.regression import Regression
from feat2vec.schema.objectives.softmax import Softmax
from feat2vec.schema.objectives.glove import Glove
# isort: on

__all__ = [
    "OBJECTIVES",
    "ClassWeights",
    "Contrastive",
    "Glove",
    "Logistic",
    "Nce",
    "NegativeSampling",
    "NoiseObjective",
    "Noisy",
    "ObjectiveSpec",
    "Regression",
    "Softmax",
    "SupervisedObjective",
    "Tensor",
    "WeightedClasses",
    "objective",
    "self_supervised",
    "supervised",
]
