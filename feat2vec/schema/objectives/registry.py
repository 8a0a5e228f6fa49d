"""The registry of objectives, by the name that schemas give as `type`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, get_args

from feat2vec.schema.objectives.base import Metric, ObjectiveSpec
from feat2vec.schema.validation import Spec

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
        >>> from feat2vec.schema.objectives import SupervisedObjective
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
