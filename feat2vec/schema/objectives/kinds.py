"""The kinds of objectives, which learn from noise or from targets: what an objective derives from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from feat2vec.schema.extractor_options import Text
from feat2vec.schema.objectives.base import Metric, ObjectiveSpec
from feat2vec.schema.objectives.formulas import Array


class NoiseObjective(ObjectiveSpec):
    """An objective without a target: a row is told from copies of it in which a group is drawn anew.

    Its `noise_loss` has to be defined.

    Example:
        >>> class Margin(feat2vec.objectives.NoiseObjective):
        ...     type: Literal["margin"] = "margin"
        ...
        ...     def noise_loss(self, scores, log_q, hits, offset, above=None):
        ...         return abs(scores.positive - scores.negatives.max(axis=1) - 1)
        >>> scores = feat2vec.objectives.Noisy(np.array([3.0]), np.array([[1.0, 2.5]]))
        >>> feat2vec.objectives.self_supervised(Margin(), scores, log_q=scores, hits=None, offset=0.0)
        array([0.5])

    """

    @property
    def needs_noise(self) -> bool:
        return True

    @property
    def completes_rows(self) -> bool:
        return True


ClassWeights = Annotated[
    Annotated[Literal["balanced"], Tag("name")] | Annotated[dict[Text, Annotated[float, Field(ge=0)]], Tag("mapping")],
    Discriminator(lambda value: "mapping" if isinstance(value, Mapping) else "name"),
]


class SupervisedObjective(ObjectiveSpec):
    """An objective with a target, by default a number, in a column of the table.

    Its `label_loss` has to be defined, and `link` and `inverse_link` where scores are not on the scale of targets.

    Args:
        target: The column that is learnt.
        weight: The column with a weight for each row, if there is one.

    Example:
        >>> class AbsoluteError(feat2vec.objectives.SupervisedObjective):
        ...     type: Literal["absolute_error"] = "absolute_error"
        ...
        ...     def label_loss(self, scores, label, above=None):
        ...         return abs(scores - (label if above is None else above))
        >>> options = AbsoluteError(target="price")
        >>> feat2vec.objectives.supervised(options, np.array([1.0]), np.array([3.0]))
        array([2.])
        >>> options.starting_bias(np.array([2.0, 4.0]))
        3.0

    """

    metrics: ClassVar[tuple[Metric, ...]] = ("rmse", "mae")

    target: Text
    weight: Text | None = None

    @property
    def target_column(self) -> str | None:
        return self.target

    @property
    def weight_column(self) -> str | None:
        return self.weight

    def inverse_link(self, scores: Array) -> Array:
        """Return the targets that scores stand for, so that `inverse_link(link(y))` is y.

        Args:
            scores: The scores, [rows].

        Returns:
            The predicted targets, [rows].

        """
        return scores

    def starting_bias(self, targets: Array) -> float:
        import numpy as np

        return float(np.mean(self.link(targets), dtype=np.float64))

    def prediction_columns(self, scores: Array, class_names: Sequence[str] | None) -> Mapping[str, Array]:
        del class_names
        return {"prediction": self.inverse_link(scores)}


class WeightedClasses(SupervisedObjective):
    """An objective whose target is a class."""

    # What a row's loss is multiplied by: a number for each class, 1 for those not named; `balanced` gives rows of every
    # class together the same weight.
    class_weights: ClassWeights | None = None

    @property
    def class_weighting(self) -> Mapping[str, float] | Literal["balanced"] | None:
        return self.class_weights
