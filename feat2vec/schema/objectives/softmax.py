"""Multinomial logistic regression: a category out of several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from feat2vec.schema.objectives.formulas import Array, Tensor, soft_cross_entropy, softmax
from feat2vec.schema.objectives.kinds import WeightedClasses, objective


@objective("softmax")
class Softmax(WeightedClasses):
    """Cross-entropy of a category."""

    has_classes = True
    metrics = ("accuracy", "log_loss")

    type: Literal["softmax"] = "softmax"

    def problem_of_targets(self, targets: Array | None, class_names: Sequence[str] | None) -> str | None:
        del targets
        if class_names is None or len(class_names) > 1:
            return None
        return f"is {class_names[0]!r} in every row; give rows of two or more classes"

    def starting_bias(self, targets: Array) -> float:
        del targets
        return 0.0  # each class has a bias of its own

    def label_loss(self, scores: Tensor, label: Tensor, above: Tensor | None = None) -> Tensor:
        from keras import ops

        return cross_entropy(scores, label) if above is None else soft_cross_entropy(scores, ops.softmax(above))

    def prediction_columns(self, scores: Array, class_names: Sequence[str] | None) -> Mapping[str, Array]:
        import numpy as np
        import pyarrow as pa

        probabilities = softmax(scores)  # [rows, classes]
        best = probabilities.argmax(axis=1) if len(scores) else np.zeros(0, np.int64)  # [rows]
        names = pa.array(class_names, pa.string()).take(pa.array(best))
        chosen = np.take_along_axis(probabilities, best[:, None], axis=1)[:, 0]
        return {"prediction": names, "probability": chosen, "probabilities": probabilities}


def cross_entropy(scores: Tensor, classes: Tensor) -> Tensor:
    """Return -log softmax(s)[class].

    Args:
        scores: The scores s, [rows, classes].
        classes: The class of each row, [rows]. The loss of -1, a class that training has not seen, is infinite.

    Returns:
        The loss of each row, [rows].

    Example:
        >>> from keras import ops
        >>> ops.convert_to_numpy(cross_entropy(ops.zeros((1, 2)), ops.convert_to_tensor([1]))).round(4)  # log 2
        array([0.6931], dtype=float32)

    """
    from keras import ops

    classes = ops.cast(classes, "int32")
    loss = -ops.take_along_axis(ops.log_softmax(scores), ops.expand_dims(classes, -1), axis=-1)[..., 0]
    return ops.where(classes < 0, math.inf, loss)  # Keras counts -1 from the end
