"""The options of `noise`, `head` and `training`: what a model learns against, adds to its scores, and how it learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from feat2vec.schema.extractor_options import Count, Many, NotNegative, Share, Text
from feat2vec.schema.optimizer_options import Adagrad, OptimizerOptions
from feat2vec.schema.typed_fields import ShortForm
from feat2vec.schema.validation import Spec

BLOCK_ROWS = 1 << 20  # rows that training reads and shuffles at a time


def _list_or_mapping(value: object) -> str:
    return "mapping" if isinstance(value, Mapping) else "list"


Targets = Annotated[
    Annotated[tuple[Text, ...], Many, Tag("list")]
    | Annotated[dict[Text, Annotated[float, Field(gt=0)]], Tag("mapping")],
    Discriminator(_list_or_mapping),
]


class Noise(Spec):
    """Two-step noise: Q1 chooses the group that is replaced, Q2 a value of it."""

    alpha_groups: Annotated[float, Field(ge=0, le=10)] = 0.25  # the exponent of Q1
    alpha_values: Annotated[float, Field(ge=0, le=10)] = 0.75  # the exponent of the values' counts in Q2
    negatives: Annotated[int, Field(ge=1, le=1_000_000)] = 5  # for each row; those that a batch shares, for each unit
    sharing: Literal["record", "batch"] = "record"  # whether a row has its own negatives, or a batch shares them
    joint: Annotated[tuple[Annotated[tuple[Text, ...], Many], ...], Many] = ()  # groups that are replaced jointly
    # The groups that may be replaced; empty for all. With a number for each, Q1 is in proportion to these.
    targets: Targets = ()
    # What of a list is told from noise: the list, or an item of it at a time, drawn by the items' counts.
    lists: Literal["whole", "items"] = "whole"


class Fm(Spec):
    """Nothing beside the pairs' score."""

    type: Literal["fm"] = "fm"


class Mlp(Spec):
    """A network beside the pairs' score: layers of `hidden` units on `inputs`, then a linear one.

    Inputs are the groups' vectors side by side (as in DeepFM), the interaction vector (as in NFM), or both; `normalize`
    brings the units of each layer to mean 0 and variance 1 over the batch. Several `members` are networks that share
    the layers' matrices, and whose mean is the prediction (TabM; Gorishniy et al., 2024). Without `pairs`, the groups'
    vectors reach the score through the network and linear terms alone.
    """

    type: Literal["mlp"] = "mlp"
    hidden: Annotated[tuple[Count, ...], Many, Field(min_length=1)] = (256, 128)
    inputs: Annotated[tuple[Literal["vectors", "interactions"], ...], Many, Field(min_length=1)] = (
        "vectors",
        "interactions",
    )
    dropout: Share = 0.0
    normalize: bool = False
    members: Annotated[int, Field(ge=1, le=256)] = 1
    pairs: bool = True


Head = Annotated[Fm | Mlp, Field(discriminator="type")]


class Training(Spec):
    """How long a model is trained, in which steps, and how it is regularized."""

    epochs: Count = 20
    batch_size: Count = 2048
    optimizer: Annotated[OptimizerOptions, ShortForm("adagrad")] = Adagrad()
    # The weight of the squared vectors in the loss. With `posterior: gaussian`, the precision of the prior of a value's
    # coordinates, which counts once a value and not once an occurrence.
    l2: NotNegative = 0.0
    # The same for groups that have a weight of their own.
    l2_groups: dict[Text, NotNegative] = Field(default_factory=dict)
    # The learning rate of dependent vectors, those of a value below its own level; by default that of the optimizer, of
    # which it keeps its share where that decays.
    dependent_rate: Annotated[float, Field(gt=0)] | None = None
    l2_linear: NotNegative = 0.0  # the same for linear terms; with `posterior: gaussian`, 0 is learnt from the terms
    l2_over: Literal["occurrences", "tables"] = "occurrences"  # the squares of the rows that a step reads, or of all
    group_dropout: Share = 0.0  # the share of groups that training leaves out of a row at random
    interaction_dropout: Share = 0.0  # the share of coordinates of the interaction vector that are dropped
    # If above 0, a running average of the weights at the ends of epochs is measured and kept; the weights of an epoch
    # are multiplied by this factor with each later epoch. Training itself goes on from its own weights.
    averaging: Share = 0.0
    # The share of rows that are held out where no validation table is given, to choose the epoch by their loss; 0 for
    # none. Tables of fewer than 200 rows are used whole, and no more than 20,000 rows are held out.
    validation: Annotated[float, Field(ge=0, le=0.5)] = 0.1
    # A group of one column of numbers, years or dates that grows with time, for a table to which new rows come. About
    # as many of the last rows by it are held out, too, and say how rows of a time are completed that training has not
    # seen, or how sure predictions for them may be: what held-out rows of any time bear out may not last. All rows are
    # learnt in the end; if they are not (see `refit`), the last rows are not held out.
    time: Text | None = None
    # Whether up to 50,000 rows are then learnt from the beginning with those held out, for as many epochs; `continue`:
    # the training goes on with all rows, however many, for a quarter of the epochs.
    refit: bool | Literal["continue"] = True
    # With validation rows: training stops after so many epochs without improvement; 0 for never. The default is that of
    # the objective: 5, and 0 of contrastive, whose ranks get better after its loss has begun to rise.
    patience: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    # How many training rows the run keeps as the numbers of their values, so that `complete` also asks the nearest of
    # them; 0 for none. Held-out rows say how much these know, so none are kept without.
    neighbours: Annotated[int, Field(ge=0, le=10_000_000)] = 50_000
    checkpoint_minutes: Annotated[float, Field(gt=0)] = 10.0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    def l2_of(self, group: str) -> float:
        """The weight of a group's squared vectors in the loss."""
        return self.l2_groups.get(group, self.l2)
