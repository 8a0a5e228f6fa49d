"""The bases of objectives that learn a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from feat2vec.schema.extractor_options import Text
from feat2vec.schema.objectives.base import Metric, ObjectiveSpec
from feat2vec.schema.objectives.formulas import Array

ClassWeights = Annotated[
    Annotated[Literal["balanced"], Tag("name")] | Annotated[dict[Text, Annotated[float, Field(ge=0)]], Tag("mapping")],
    Discriminator(lambda value: "mapping" if isinstance(value, Mapping) else "name"),
]


class SupervisedObjective(ObjectiveSpec):
    """An objective with a target, by default a number, in a column of the table.

    Its `label_loss` has to be defined, and `link` and `inverse_link` where scores are not on the scale of targets.
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
        """Return the targets that scores stand for, so that `inverse_link(link(y))` is y."""
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
