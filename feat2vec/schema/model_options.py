"""The options of `model`: the space of the vectors, and the terms of a score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from feat2vec.schema.activation import Activation
from feat2vec.schema.extractor_options import Count, Dim, Many, Text
from feat2vec.schema.levels import Levels
from feat2vec.schema.validation import Spec


class LevelSource(Spec):
    """Which values reach which level of `model.ranks`; what neither key decides follows from counts by equation 17."""

    # How often a value has to occur among the training rows to reach the second level, the third and so on.
    counts: Annotated[tuple[Count, ...], Many, Field(min_length=1)] | None = None
    # By group, the column of the training rows that holds the level of the row's value, from 1. Of several the highest
    # counts; a value of rows without one has the level of its count.
    columns: dict[Text, Text] = Field(default_factory=dict)


class ModelSpec(Spec):
    """The space of the vectors, and the terms of a score."""

    # Whether scores have the pairs of the groups' vectors. Without, they are the bias and the linear terms alone (LR),
    # and there are no vectors: `bias` is then on.
    pairs: bool = True
    dim: Dim = 50  # the dimensions of every vector
    scale: Annotated[float, Field(gt=0, le=10)] = 0.1  # the standard deviation of the initial normal weights
    # The dimensions of each level, instead of `dim` (RaFM; Chen et al., 2019): rare values have few. See `levels.py`.
    ranks: Annotated[tuple[Dim, ...], Many, Field(min_length=1)] | None = None
    bias: bool = False  # whether scores have a constant and a linear term for each value
    # Sets of groups that describe one thing, such as a film's id and its title. The vectors of a set are added up, and
    # the sum is paired with the other groups; there are no pairs within a set.
    together: Annotated[tuple[Annotated[tuple[Text, ...], Many], ...], Many] = ()
    # The coordinates are those of so many members side by side: each member learns the labels by the pairs of its own
    # coordinates alone, `members` times, and their mean, which has the pairs of all, predicts.
    members: Annotated[int, Field(ge=1, le=256)] = 1
    # What is learnt of a weight. point: a number; gaussian: the mean and the variance of a normal distribution, as
    # variational inference has them. The mean is the vector; `l2` and `l2_linear` are then the precisions of the prior.
    posterior: Literal["point", "gaussian"] = "point"
    # How a value's vectors below its own level learn. strict: from their level's loss alone (Algorithm 1 of RaFM);
    # joint: also from the top level's loss, as in the code of its authors.
    dependents: Literal["joint", "strict"] = "joint"
    activation: Activation | None = None  # which keys have a vector; all of them without it. See `activation.py`.
    level_sharing: Literal["separate", "truncate", "all"] = "separate"  # see `levels.py`
    # The option `levels`; the attribute of that name is what follows from it.
    level_source: LevelSource = Field(default_factory=LevelSource, alias="levels")

    @model_validator(mode="before")
    @classmethod
    def _with_what_follows(cls, data: object) -> object:
        """Switch `bias` on where a score has nothing else; `dim: null`, as a setting beside `ranks`, gives no `dim`."""
        if not isinstance(data, Mapping):
            return data
        given = {key: value for key, value in data.items() if (key, value) != ("dim", None)}
        return {"bias": True, **given} if given.get("pairs") is False else given

    @model_serializer(mode="wrap")
    def _by_keys(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The options by their keys in a schema."""
        data: dict[str, Any] = handler(self)
        return {"levels" if name == "level_source" else name: value for name, value in data.items()}

    @property
    def levels(self) -> Levels:
        """The levels of the space; a model without `ranks` has one, as has one whose levels stand side by side."""
        if not self.pairs:
            return Levels((0,))
        if self.ranks is None:
            return Levels((self.dim,))
        if self.level_sharing == "all":
            return Levels((sum(self.ranks),))
        return Levels(self.ranks, self.level_sharing == "truncate", self.level_source.counts)

    @property
    def member_dims(self) -> tuple[int, ...]:
        """The coordinates of each member, side by side; of one where the whole space learns the labels at once."""
        if self.level_sharing == "all" and self.ranks is not None:
            return self.ranks
        return (self.levels.ranks[0] // self.members,) * self.members

    @property
    def unused_keys(self) -> tuple[str, ...]:
        """The keys that have no meaning beside the others, and are refused if they are given."""
        of_ranks = ("ranks", "level_sharing", "dependents", "levels")
        if not self.pairs:
            return (*of_ranks, "dim", "scale", "together", "members", "posterior", "activation")
        if self.ranks is None:
            return of_ranks
        return ("dim", "dependents", "levels", "members") if self.level_sharing == "all" else ("dim",)

    @property
    def size_key(self) -> str:
        """The key that says how large the space is."""
        return "dim" if self.ranks is None else "ranks"
