"""A measurement beside its baselines: as lines of a table, and against what the recipe expects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from feat2vec.errors import listed
from feat2vec.evaluation.baselines import Metrics
from feat2vec.evaluation.options import METRICS
from feat2vec.recipes.recipe import Bound, Evaluation
from feat2vec.terminal import printable


@dataclass(frozen=True)
class Comparison:
    """The metrics of a run, those of each baseline, and the bounds that are checked.

    Attributes:
        evaluation: What the recipe says of the measurement.
        metrics: Those of the run.
        baseline_metrics: Those of each baseline, by its name.
        expected: A bound for each metric that is checked.

    """

    evaluation: Evaluation
    metrics: Metrics
    baseline_metrics: Mapping[str, Metrics]
    expected: Mapping[str, Bound]

    def lines(self) -> Iterator[str]:
        """A title, the names of the methods, and a line for each metric."""
        evaluation, metrics = self.evaluation, self.metrics
        title = " ".join(filter(None, [evaluation.task, evaluation.target]))
        given = f" by {listed(metrics['given'])}" if "given" in metrics else ""
        yield "\n" + printable(f"{title}{given}: {metrics['n']:,} of {evaluation.data}")
        yield f"{'':14}{'feat2vec':>12}" + "".join(f"{name:>20}" for name in self.baseline_metrics)
        for metric, value in metrics.items():
            if metric in METRICS[evaluation.task]:
                yield self._line(metric, value)

    def _line(self, metric: str, value: object) -> str:
        line = f"{metric:14}{metric_text(value):>12}"
        for metrics in self.baseline_metrics.values():
            line += f"{metric_text(metrics.get(metric)):>20}"
        if metric in self.expected:
            limits = [f"{sign} {metric_text(limit)}" for sign, limit in self._limits(metric)]
            line += f"   expected {' and '.join(limits)}"
        return line

    def misses(self, target: str | None) -> Iterator[str]:
        """A message for each limit that the run does not keep; `target` is what it was measured on."""
        title = " ".join(filter(None, [self.evaluation.task, target]))
        for metric in self.expected:
            value = self.metrics.get(metric)
            for sign, limit in self._limits(metric):
                is_kept = value is not None and (value >= limit if sign == ">=" else value <= limit)
                if not is_kept:
                    by = "" if value is None else f", by {abs(value - limit):.4g}"
                    yield f"{title}: {metric} is {metric_text(value)}, expected {sign} {metric_text(limit)}{by}"

    def _limits(self, metric: str) -> Iterator[tuple[str, float]]:
        """Pairs of ">=" or "<=" and a limit; that of a bound `of` a baseline is in units of the baseline's metric."""
        bound = self.expected[metric]
        unit = 1.0 if bound.of is None else float(self.baseline_metrics[bound.of][metric])
        if bound.min is not None:
            yield ">=", bound.min * unit
        if bound.max is not None:
            yield "<=", bound.max * unit


def metric_text(value: object) -> str:
    """A metric as tables and messages show it; `-` if there is none."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, (int, float)) else json.dumps(value)


__all__ = ["Comparison", "metric_text"]
