"""The heads and objectives of `finetune`. The command line imports this when it starts, so it imports nothing heavy."""

from __future__ import annotations

from typing import Literal, get_args

HeadType = Literal["fm", "mlp"]
ObjectiveType = Literal["logistic", "regression", "softmax"]

HEAD_TYPES: tuple[HeadType, ...] = get_args(HeadType)
OBJECTIVE_TYPES: tuple[ObjectiveType, ...] = get_args(ObjectiveType)

__all__ = ["HEAD_TYPES", "OBJECTIVE_TYPES", "HeadType", "ObjectiveType"]
