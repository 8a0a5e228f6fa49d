"""The weights of classes: what the loss of a row of each class is multiplied by."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from feat2vec.arrays import Array, Float32s
from feat2vec.encode.vocabulary import Vocabulary
from feat2vec.errors import UserError, suggest
from feat2vec.schema.objectives import ObjectiveSpec


def class_weights(objective: ObjectiveSpec, classes: Vocabulary | None, target: Array | None) -> Float32s | None:
    """The weight of each class, [classes]; None where the schema weighs none.

    Args:
        objective: The schema's objective. Its balanced classes have equal sums of weights in the training rows.
        classes: The classes of a softmax target; None for a target of 0 and 1.
        target: The targets of the training rows, [rows].

    Raises:
        UserError: The schema weighs a class that there is not.

    """
    weighting, names = objective.class_weighting, _class_names(classes)
    if weighting == "balanced":
        targets = np.ones(1) if target is None else target  # all of them are known
        counts = np.bincount(np.asarray(targets, np.int32), minlength=len(names))
        return np.asarray(counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1)), np.float32)
    for name in weighting or ():
        if name not in names:
            raise UserError(f"objective.class_weights: there is no class {name!r}{suggest(name, names)}")
    return named_class_weights(objective, classes)


def named_class_weights(objective: ObjectiveSpec, classes: Vocabulary | None) -> Float32s | None:
    """The weight that the schema gives each class by its name, [classes]; None where it names none."""
    weighting = objective.class_weighting
    if not isinstance(weighting, Mapping):
        return None
    return np.array([weighting.get(name, 1.0) for name in _class_names(classes)], np.float32)


def weights_of_rows(of_classes: Float32s, targets: Array) -> Float32s:
    """The weight of each row's class, [rows]; 0 in rows without one, or of a class that training has not seen."""
    class_ids = np.nan_to_num(targets, nan=-1.0).astype(np.int32)
    return np.where(class_ids >= 0, of_classes[class_ids], np.float32(0))


def _class_names(classes: Vocabulary | None) -> list[str]:
    return ["0", "1"] if classes is None else list(classes.keys.to_pylist())
