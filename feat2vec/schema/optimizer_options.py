"""The options of optimizers, and how many numbers each keeps beside a weight."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from feat2vec.schema.extractor_options import NotNegative, Share
from feat2vec.schema.validation import Spec


class OptimizerSpec(Spec):
    """The base of the options of an optimizer, which updates only the rows that a step reads."""

    type: str
    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    decay: Literal["linear", "none"] = "linear"  # linear: the learning rate falls to 0 over the run

    @property
    def arguments(self) -> dict[str, float | str]:
        """The arguments of the optimizer's class beside the learning rate."""
        return {name: getattr(self, name) for name in type(self).model_fields if name not in OptimizerSpec.model_fields}

    @property
    def slots(self) -> int:
        """How many numbers it keeps for each number of a vector."""
        return 1

    @property
    def makes_zeros(self) -> bool:
        """Whether weights become exactly zero."""
        return False


class Adagrad(OptimizerSpec):
    """Adagrad (Duchi, Hazan and Singer, 2011)."""

    type: Literal["adagrad"] = "adagrad"


class Adam(OptimizerSpec):
    """Adam (Kingma and Ba, 2015)."""

    type: Literal["adam"] = "adam"

    @property
    def slots(self) -> int:
        """The means of gradients and of their squares."""
        return 2


class Sgd(OptimizerSpec):
    """Stochastic gradient descent on the mean loss of a batch: with `batch_size: 1` the update of a single row."""

    type: Literal["sgd"] = "sgd"
    momentum: Share = 0.0  # the share of the velocity that a step keeps (heavy ball)
    nesterov: bool = False  # whether the gradient is that of the point that momentum leads to

    @property
    def slots(self) -> int:
        """The velocity, if there is one."""
        return 1 if self.momentum else 0


class Ftrl(OptimizerSpec):
    """FTRL-Proximal (McMahan et al., 2013), in which weights become exactly zero.

    In the unit of one row's gradient, a weight stays zero until its rows push it by more than `l1`. Both penalties
    count once in the whole training, as a prior does, and no gradient has them; `training.l2` counts at each occurrence
    of a key, and is a part of the gradient.
    """

    type: Literal["ftrl"] = "ftrl"
    beta: Annotated[float, Field(gt=0)] = 1.0  # a step is learning_rate / (beta + the root of the squared gradients)
    l1: NotNegative = 0.0  # the weight of |w|
    l2: NotNegative = 0.0  # the weight of w^2 / 2
    # What the penalties are of: the keys' linear terms, or all tables, of vectors too. Vectors that begin near zero and
    # are all pulled there by l1 stay there, as each only learns from the others.
    penalize: Literal["linear", "tables"] = "linear"

    @property
    def slots(self) -> int:
        """The sum of squares; what the penalties leave over, too, if vectors have penalties."""
        return 2 if self.penalize == "tables" and (self.l1 or self.l2) else 1

    @property
    def makes_zeros(self) -> bool:
        """Whether weights become exactly zero."""
        return self.l1 > 0


OptimizerOptions = Annotated[Adagrad | Adam | Ftrl | Sgd, Field(discriminator="type")]
