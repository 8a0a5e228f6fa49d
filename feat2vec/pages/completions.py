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
LATER = (
    "By {time}, the last rows were held out of training, too: rows of a time that training has not seen are completed "
    "by numbers fitted to them. Here are these rows beside held-out rows of any time."
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


def completion_parts(facts: JsonObject, time: str | None = None) -> list[str]:
    """A table of the groups, one of how the last rows by time are completed, and a chart of each group, as HTML."""
    rows = []
    for name, group in facts.items():
        error = group["reliability"]["error"]
        rows.append((name, group["values"], group["log_loss"], group["popularity_log_loss"], error))
    columns = ["group", "held-out values", "log loss", "popularity", "expected calibration error"]
    parts = [
        "<h2>Completing rows</h2>",
        f'<p class="note">{escape(NOTE)}</p>',
        charts.table("completion", columns, rows),
        *_later_parts(facts, time),
    ]
    for name, group in facts.items():
        said, true = group["reliability"]["said"], group["reliability"]["true"]
        series = {"said": list(zip(said, said, strict=True)), "true": list(zip(said, true, strict=True))}
        if _is_measured(group["later"]):
            of_last = group["later"]["reliability"]
            series["true of the last rows"] = list(zip(of_last["said"], of_last["true"], strict=True))
        parts.append(charts.lines(f"reliability of {name}", series, group["chart"]))
    return parts


def _later_parts(facts: JsonObject, time: str | None) -> list[str]:
    """How well the last rows by time are completed, beside rows of any time; nothing if none were held out."""
    rows = []
    for name, group in facts.items():
        later = group["later"]
        if _is_measured(later):
            losses = (later["log_loss"], group["log_loss"], later["popularity_log_loss"])
            errors = (later["reliability"]["error"], group["reliability"]["error"])
            rows.append((name, later["values"], *losses, *errors))
    if not rows:
        return []
    columns = ["group", "last values", "log loss", "of any time", "popularity", "calibration error", "of any time"]
    return [
        "<h3>Later rows</h3>",
        charts.note(LATER.format(time=time)),
        charts.table("completion of later rows", columns, rows),
    ]


def _is_measured(later: JsonObject | None) -> bool:
    return later is not None and later["reliability"] is not None
