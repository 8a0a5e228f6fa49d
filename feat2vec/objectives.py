"""Losses of scores and the bound of contrastive learning, as functions of TensorFlow tensors and NumPy arrays."""

from __future__ import annotations

from feat2vec.model.losses import (
    Bound,
    contrastive_bound,
    cross_entropy,
    glove,
    log_loss,
    n_pair,
    nce_logit,
    self_supervised,
    soft_cross_entropy,
    soft_log_loss,
    supervised,
)

__all__ = [
    "Bound",
    "contrastive_bound",
    "cross_entropy",
    "glove",
    "log_loss",
    "n_pair",
    "nce_logit",
    "self_supervised",
    "soft_cross_entropy",
    "soft_log_loss",
    "supervised",
]
