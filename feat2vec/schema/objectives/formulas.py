"""Formulas that several objectives share: losses of Keras tensors, and links of NumPy arrays.

A loss is [rows]; the mean over the rows and their weights are the caller's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy.typing as npt

    from feat2vec.custom_gradients import Backward

    Array = npt.NDArray[Any]
else:
    Array = Any  # reading a schema does without NumPy

UNIT_EPSILON = 1e-6  # the least square of a norm that a candidate's vector is divided by
Tensor = Any  # a tensor of Keras' backend, which has no static type, or a NumPy array


class Noisy(NamedTuple):
    """A number for a row and one for each of its negatives: scores, logits, or log Q2 of their values.

    Args:
        positive: The number of each row, [rows].
        negatives: Those of its negatives, [rows, k], or [k] where the rows share them.

    Example:
        >>> scores = feat2vec.objectives.Noisy(np.array([3.0]), np.array([[1.0, 2.5]]))
        >>> scores.positive.shape, scores.negatives.shape
        ((1,), (1, 2))

    """

    positive: Tensor
    negatives: Tensor


# --- losses of tensors ----------------------------------------------------------------------------------------------


def log_loss(logits: Tensor, label: Tensor) -> Tensor:
    """Return -y log sigmoid(s) - (1 - y) log(1 - sigmoid(s)).

    Args:
        logits: The scores s, [rows].
        label: The labels y, 0 or 1, [rows].

    Returns:
        The loss of each row, [rows].

    Example:
        >>> from keras import ops
        >>> ops.convert_to_numpy(log_loss(ops.zeros(2), ops.convert_to_tensor([0.0, 1.0]))).round(4)  # log 2
        array([0.6931, 0.6931], dtype=float32)

    """
    from keras import ops

    # Not relu(s) - s y + softplus(-|s|): its gradient at s = 0 is 0 - y, as those of relu and |s| are 0 there.
    return label * ops.softplus(-logits) + (1 - label) * ops.softplus(logits)


def binary_odds(logits: Noisy) -> Tensor:
    """Return the log odds of the truth, that a row is a row and that its negatives are noise: [rows, 1 + k]."""
    from keras import ops

    return ops.concatenate([ops.expand_dims(logits.positive, -1), -logits.negatives], axis=-1)


def soft_log_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Return `log_loss` against the probability sigmoid(target) in place of a label.

    Args:
        logits: The scores, [rows] or [rows, k].
        target: Scores whose sigmoid is the probability, of the same shape.

    Returns:
        The losses, of the same shape.

    Example:
        >>> from keras import ops
        >>> ops.convert_to_numpy(soft_log_loss(ops.zeros(1), ops.convert_to_tensor([3.0]))).round(4)  # log 2
        array([0.6931], dtype=float32)

    """
    from keras import ops

    return ops.sigmoid(target) * ops.softplus(-logits) + ops.sigmoid(-target) * ops.softplus(logits)


def binary_noise_loss(logits: Noisy, above: Noisy | None) -> Tensor:
    """Return -log sigmoid(s(x+)) - sum_i log sigmoid(-s(x_i-)), [rows].

    With `above`, logits of the level above, the loss is taken against their probabilities instead of 1 and 0.
    """
    from keras import ops

    if above is None:
        return ops.softplus(-logits.positive) + ops.sum(ops.softplus(logits.negatives), axis=-1)
    of_positive = soft_log_loss(logits.positive, above.positive)  # [rows]
    of_negatives = soft_log_loss(logits.negatives, above.negatives)  # [rows, k]
    return of_positive + ops.sum(of_negatives, axis=-1)


def soft_cross_entropy(scores: Tensor, probability: Tensor) -> Tensor:
    """Return -sum p log softmax(s). A score may be -inf where p is 0.

    Args:
        scores: The scores s, [rows, classes].
        probability: The probabilities p, [rows, classes]. They have no gradient.

    Returns:
        The loss of each row, [rows].

    Example:
        >>> from keras import ops
        >>> half = ops.convert_to_tensor([[0.5, 0.5]])
        >>> ops.convert_to_numpy(soft_cross_entropy(ops.zeros((1, 2)), half)).round(4)  # log 2
        array([0.6931], dtype=float32)

    """
    from keras import ops

    from feat2vec.custom_gradients import custom_gradient

    def forward(scores: Tensor, probability: Tensor) -> tuple[Tensor, Backward]:
        softmax, top = ops.softmax(scores), largest(scores)
        below = ops.where(probability > 0, scores - ops.expand_dims(top, -1), 0.0)  # 0 times -inf is NaN
        share = ops.sum(probability, axis=-1)  # [rows]
        loss = -share * ops.log(largest(softmax)) - ops.sum(probability * below, axis=-1)

        def gradient(upstream: Tensor) -> tuple[Tensor, None]:
            return (softmax * ops.expand_dims(share, -1) - probability) * ops.expand_dims(upstream, -1), None

        return loss, gradient

    return custom_gradient(forward)(scores, probability)


def largest(values: Tensor) -> Tensor:
    """Return the maximum over the last axis.

    Losses take log sum exp(s) as max s - log max softmax(s): the largest of a softmax is at least 1 / its size.
    """
    from keras import ops

    return ops.max(values, axis=-1, initial=float("-inf"))  # without it Keras refuses a batch without rows


# --- links of arrays ------------------------------------------------------------------------------------------------


def sigmoid(scores: Array) -> Array:
    """Return 1 / (1 + exp(-s)) without overflow, [rows]."""
    import numpy as np

    probability: Array = np.exp(-np.logaddexp(0, -scores))
    return probability


def softmax(scores: Array) -> Array:
    """Return exp(s) / sum exp(s), [rows, classes]."""
    import numpy as np

    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: Array = shifted / shifted.sum(axis=1, keepdims=True)
    return probabilities
