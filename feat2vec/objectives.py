"""Losses of tensors, the bound of contrastive learning, and what an objective of one's own derives from."""

from __future__ import annotations

from feat2vec.evaluation.bounds import Bound, contrastive_bound
from feat2vec.schema.objectives import (
    NoiseObjective,
    Noisy,
    ObjectiveSpec,
    SupervisedObjective,
    objective,
    self_supervised,
    supervised,
)
from feat2vec.schema.objectives.contrastive import n_pair
from feat2vec.schema.objectives.formulas import log_loss, soft_cross_entropy, soft_log_loss
from feat2vec.schema.objectives.glove import glove
from feat2vec.schema.objectives.nce import nce_logit
from feat2vec.schema.objectives.softmax import cross_entropy

__all__ = [
    "Bound",
    "NoiseObjective",
    "Noisy",
    "ObjectiveSpec",
    "SupervisedObjective",
    "contrastive_bound",
    "cross_entropy",
    "glove",
    "log_loss",
    "n_pair",
    "nce_logit",
    "objective",
    "self_supervised",
    "soft_cross_entropy",
    "soft_log_loss",
    "supervised",
]
