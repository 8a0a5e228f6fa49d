"""The part of a report that says how far the probabilities of `complete` can be trusted."""

from __future__ import annotations

from dataclasses import asdict
from html import escape

from feat2vec.pages import charts
from feat2vec.space.hidden_group import has_quantiles
from feat2vec.space.run_completion import completion_of_run
from feat2vec.training.run_folder import TrainedRun
from feat2vec.writing.files import JsonObject

NOTE = (
    "Each group was hidden in rows that were held out of training, and completed from the others. Log loss is the mean "
    "of -log p of the true value, beside that of its share of the training rows (popularity). The expected calibration "
    "error is the mean distance of what was said from what was true. Each half was measured by weights that "
    "were fitted to the other half. In a chart both lines are one where the probabilities are right."
)
ANSWERS = "probability of the likeliest values, against the share that was true"
QUANTILES = "quantile of the number, against the share of true numbers below it"


def completion_facts(run: TrainedRun) -> JsonObject:
    """What the run has stored of the completion of each group; nothing if nothing was held out of its training."""
    facts: JsonObject = {}
    for name, calibration in completion_of_run(run).items():
        if calibration.reliability is not None:
            kind = QUANTILES if has_quantiles(run.fitted, name) else ANSWERS
            facts[name] = {**asdict(calibration), "chart": kind}
    return facts


def completion_parts(facts: JsonObject) -> list[str]:
    """A table of the groups, and a chart of each, as HTML and SVG."""
    rows = []
    for name, group in facts.items():
        error = group["reliability"]["error"]
        rows.append((name, group["values"], group["log_loss"], group["popularity_log_loss"], error))
    columns = ["group", "held-out values", "log loss", "popularity", "expected calibration error"]
    parts = [
        "<h2>Completing rows</h2>",
        f'<p class="note">{escape(NOTE)}</p>',
        charts.table("completion", columns, rows),
    ]
    for name, group in facts.items():
        said, true = group["reliability"]["said"], group["reliability"]["true"]
        series = {"said": list(zip(said, said, strict=True)), "true": list(zip(said, true, strict=True))}
        parts.append(charts.lines(f"reliability of {name}", series, group["chart"]))
    return parts
