"""What an objective derives from, as it learns from noise or from targets, and the registry of objectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, TypeVar, get_args

from pydantic import Discriminator, Field, Tag

from feat2vec.schema.extractor_options import Text
from feat2vec.schema.objectives.base import Metric, ObjectiveSpec
from feat2vec.schema.objectives.formulas import Array
from feat2vec.schema.validation import Spec


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


# --- registry ---------------------------------------------------------------------------------------------------------

ObjectiveClass = TypeVar("ObjectiveClass", bound=ObjectiveSpec)
OBJECTIVES: dict[str, type[ObjectiveSpec]] = {}
OBJECTIVE_HOLDERS: list[type[Spec]] = []  # models with a field that takes any registered objective


def objective(name: str) -> Callable[[type[ObjectiveClass]], type[ObjectiveClass]]:
    """Register an objective under the name that schemas give as `type`.

    Args:
        name: Letters, digits and underscores.

    Returns:
        A decorator for a class derived from `NoiseObjective` or `SupervisedObjective`, which it returns unchanged.

    Raises:
        ValueError: If the name is taken, or the class lacks `type: Literal["name"] = "name"` or a loss, or names an
            unknown metric.

    Example:
        >>> @objective("absolute_error")
        ... class AbsoluteError(SupervisedObjective):
        ...     type: Literal["absolute_error"] = "absolute_error"
        ...
        ...     def label_loss(self, scores, label, above=None):
        ...         return abs(scores - (label if above is None else above))
        >>> feat2vec.read_schema({
        ...     "version": 1,
        ...     "groups": {"place": {"column": "place"}},
        ...     "objective": {"type": "absolute_error", "target": "price"},
        ... }).target
        'price'
        >>> unregister("absolute_error")

    """

    def register(spec: type[ObjectiveClass]) -> type[ObjectiveClass]:
        before = OBJECTIVES.get(name, spec)
        if (before.__module__, before.__qualname__) != (spec.__module__, spec.__qualname__):  # a reload is no conflict
            raise ValueError(f"the objective {name!r} is registered already, by {before}. Received: {spec}")
        if not name.isidentifier():
            raise ValueError(f"an objective's name is letters, digits and underscores. Received: {name!r}")
        if not issubclass(spec, ObjectiveSpec):
            raise ValueError(f"{spec.__name__} must derive from NoiseObjective or SupervisedObjective")
        spec.model_rebuild()
        kind = spec.model_fields.get("type")
        if kind is None or kind.default != name or get_args(kind.annotation) != (name,):
            raise ValueError(f'{spec.__name__} needs the field `type: Literal["{name}"] = "{name}"`')
        if spec.noise_loss is ObjectiveSpec.noise_loss and spec.label_loss is ObjectiveSpec.label_loss:
            raise ValueError(f"{spec.__name__} must define noise_loss or label_loss")
        unknown = [metric for metric in spec.metrics if metric not in get_args(Metric)]
        if unknown:
            raise ValueError(f"the metrics are {', '.join(get_args(Metric))}. Received: {', '.join(unknown)}")
        OBJECTIVES[name] = spec
        _rebuild_holders()
        return spec

    return register


def unregister(name: str) -> None:
    """Take an objective out of the registry, as after a test."""
    del OBJECTIVES[name]
    _rebuild_holders()


def _rebuild_holders() -> None:
    for model in OBJECTIVE_HOLDERS:
        model.model_rebuild(force=True)
