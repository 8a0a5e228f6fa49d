"""Models that are trained on the same rows: what each is measured by, and which of several is the best."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from feat2vec.errors import UserError
from feat2vec.evaluation.tasks import evaluate
from feat2vec.model.sizes import level_costs
from feat2vec.recipes.recipe import Compare
from feat2vec.recipes.rows import RowParts
from feat2vec.run import Run, load, train
from feat2vec.schema.document import Document
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.writing import refuse_links_inside
from feat2vec.writing.files import JsonObject


@dataclass(frozen=True)
class Measured:
    """A model on the part of the rows that it is measured on.

    Attributes:
        name: Its name in the recipe.
        rank: The dimensions of its largest vectors; 0 of a linear model.
        loss: The log loss, or the square loss of numbers.
        auc: The area under the curve; None for numbers.
        rmse: The root of the square loss; None for labels.
        validation_loss: The loss that chose its epoch.
        parameters: The number of its weights.
        cost: sum_k D_k n(F_k), the numbers that the pairs of a row take (corollary 4 of Chen et al., 2019).
        epoch_seconds: The time of an epoch in training: the middle one's.
        seconds: That of the training, to its end.
        test_seconds: That of the measurement.

    """

    name: str
    rank: int
    loss: float
    auc: float | None
    rmse: float | None
    validation_loss: float
    parameters: int
    cost: float
    epoch_seconds: float
    seconds: float
    test_seconds: float

    @classmethod
    def measure(cls, name: str, run: Run, parts: RowParts, part: str, level: int | None = None) -> Measured:
        """Measure a run.

        Args:
            name: What tables call it.
            run: The run.
            parts: The parts of the rows.
            part: The one that is measured.
            level: The submodel of a model with ranks.

        """
        began = time.perf_counter()
        metrics = evaluate(run, parts.tables[part], "predict", level=level)
        test_seconds = time.perf_counter() - began
        rmse = None if "log_loss" in metrics else float(metrics["rmse"])
        facts = run.metrics
        costs = level_costs(run.fitted, int(facts["rows"]))
        return cls(
            name,
            max(run.schema.model.levels.ranks),
            float(metrics["log_loss"]) if rmse is None else rmse**2,
            metrics.get("auc"),
            rmse,
            float(facts["val_loss"]),
            int(facts["parameters"]),
            sum(costs if level is None else costs[:level]),
            statistics.median(epoch["seconds"] for epoch in run.history),
            float(facts["seconds"]),
            test_seconds,
        )

    def facts(self) -> JsonObject:
        """The numbers, for `results.json`."""
        return asdict(self)


def compared_schemas(compare: Compare, document: Document) -> dict[str, Schema]:
    """The schema of each compared model: the recipe's own with the model's settings.

    Args:
        compare: What the recipe compares.
        document: The recipe's own schema.

    Raises:
        UserError: The settings of a model make no schema; the message begins with its name.

    """
    schemas = {}
    for name, changes in compare.models.items():
        settings = [f"{key}={json.dumps(value)}" for key, value in changes.items()]
        try:
            schemas[name] = read_schema(document, settings=settings)
        except UserError as error:
            raise UserError(*(f"compare.models.{name}: {problem}" for problem in error.problems)) from None
    return schemas


def compared_runs(
    compare: Compare,
    schemas: Mapping[str, Schema],
    run: Run,
    parts: RowParts,
    *,
    quiet: bool,
    say: Callable[[str], None],
) -> dict[str, Run]:
    """Train each compared model into the run's folder; one without settings is the run itself.

    A model whose training has ended in an earlier session is not trained again.

    Args:
        compare: What the recipe compares.
        schemas: The schema of each model.
        run: The recipe's run.
        parts: The parts of the rows.
        quiet: Whether trainings print nothing.
        say: What is called with the name of each model that is trained.

    """
    runs, tables = {}, parts.tables
    for name, schema in schemas.items():
        if not compare.models[name]:
            runs[name] = run
            continue
        say(name)
        out = refuse_links_inside(run.folder, f"compared/{name}")
        trained = train(schema, tables["train"], out, tables.get("validation"), resume=True, quiet=quiet)
        runs[name] = load(trained.folder)  # without the model in memory
    return runs


def best_of(candidates: Sequence[str], measured: Mapping[str, Measured]) -> Measured:
    """The model of the least validation loss among several."""
    return min((measured[name] for name in candidates), key=lambda model: model.validation_loss)
