"""What a report says of classes and of levels: losses beside the bounds that theory has for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from feat2vec.pages import charts
from feat2vec.writing.files import JsonObject

Facts = JsonObject


def plain(record: Any) -> Any:
    """Return named tuples within each other as plain data.

    Args:
        record: A named tuple, or what is in one.

    Returns:
        Dicts, lists, numbers and texts; None for a number that is not finite, which JSON has no word for.

    Example:
        >>> from feat2vec.evaluation.level_bounds import LevelLoss
        >>> plain((LevelLoss(1, 0.5, 0.75, 0.625),))
        [{'level': 1, 'loss': 0.5, 'bound': 0.75, 'row_by_row': 0.625}]

    """
    if hasattr(record, "_asdict"):
        return {name: plain(value) for name, value in record._asdict().items()}
    if isinstance(record, (tuple, list)):
        return [plain(value) for value in record]
    return None if isinstance(record, float) and not math.isfinite(record) else record


def class_parts(bounds: Sequence[Facts], label: Facts) -> list[str]:
    """The losses of linear classifiers of a label's classes, and what the contrastive loss bounds them by.

    Args:
        bounds: Those of proposition 3.3, for classes that count the same.
        label: What `label_bounds` says, of classes as frequent as they are.

    Returns:
        The parts of the page.

    """
    first = bounds[0]
    counts = f"{first['rows']:,} rows of {first['classes']:,} classes of {first['label']}"
    note = (
        f"{counts}; {first['without_label']:,} had none. "
        "A classifier whose weights are the classes' mean vectors tells a row's class from k others with the loss "
        "L_mu, which is at most k / (1 - tau) (L_un - tau log(N + 1)): L_un is the contrastive loss with N negatives, "
        "tau = C^-N the chance that all of them are of the row's class, classes being equally likely "
        "(Proposition 3.3). L_sup is the loss of the best linear classifier."
    )
    columns = ["N", "k", "L_un", "tau", "bound", "L_mu, measured", "L_sup, measured", "exact"]
    rows = []
    for class_bound in bounds:
        sides = class_bound["bound"]
        measures = [sides[name] for name in ("contrastive", "tau", "bound", "mean_classifier")]
        exact = "yes" if sides["exact"] else "drawn"
        rows.append((class_bound["negatives"], class_bound["k"], *measures, class_bound["best_linear"], exact))
    return [
        "<h2>What the vectors say of classes</h2>",
        charts.note(note),
        charts.table("bound", columns, rows),
        *(charts.note(class_bound["meaning"]) for class_bound in bounds),
        *_label_parts(label),
    ]


def label_sentences(label: Facts) -> list[str]:
    """What the losses, the frequencies, the lemmas and the probe mean for a label, a sentence or two each.

    Args:
        label: What `label_bounds` says.

    Returns:
        The sentences.

    """
    lemmas = [lemma["meaning"] for lemma in label["lemmas"]]
    return [label["meaning"], label["frequencies"], *lemmas, label["probe_meaning"]]


def _label_parts(label: Facts) -> list[str]:
    """Classes as frequent as they are."""
    losses = [
        ("a guess, log C", label["guess"]),
        ("the classes' shares", label["shares_loss"]),
        ("mean classifier, L_mu", label["mean_classifier"]),
        ("best linear classifier, L_sup", label["best_linear"]),
    ]
    if label["probe"] is not None:
        losses.append(("linear probe, on other rows", label["probe"]["log_loss"]))
    lemmas = []
    for lemma in label["lemmas"]:
        exact = "" if lemma["contrastive"] is None else "yes" if lemma["exact"] else "drawn"
        lemmas.append((lemma["name"], lemma["negatives"], lemma["contrastive"], lemma["chance"], lemma["bound"], exact))
    note = (
        "With the classes as frequent as they are: L_mu <= L_un / (share of the rarest class) + log C (lemma 3.1), and "
        "L_mu <= L_un / p, p being the chance that N negatives are of all classes (lemma 3.2)."
    )
    return [
        f"<h3>{escape(label['label'])} as frequent as it is</h3>",
        charts.note(note),
        charts.table("losses of classifiers", ["classifier", "loss"], losses),
        charts.table("lemmas", ["lemma", "N", "L_un", "divided by", "bound of L_mu", "exact"], lemmas),
        *(charts.note(sentence) for sentence in label_sentences(label)),
    ]


def level_parts(levels: Facts) -> list[str]:
    """What each level costs, and with rows what it loses and what theorem S1 bounds that by.

    Args:
        levels: What `level_bounds` says.

    Returns:
        The parts of the page.

    """
    costs = levels["costs"]
    total = sum(cost["multiplications"] for cost in costs)
    note = (
        "A row's score takes a multiple of the sum of D_k n(F_k) multiplications, n(F_k) being how many values of "
        f"level k or higher a row has (corollary 4 of the RaFM paper): {charts.number(total)} here, "
        f"{charts.number(levels['fm_multiplications'])} for a model whose values all have the highest rank."
    )
    columns = ["level", "rank", "values that reach it", "of them in a row", "weights", "rank times these"]
    names = ("level", "rank", "values", "occurrences", "weights", "multiplications")
    parts = [
        "<h3>What levels cost</h3>",
        charts.note(note),
        charts.table("cost of levels", columns, [[cost[name] for name in names] for cost in costs]),
    ]
    return parts + (_loss_parts(levels) if levels["losses"] else [])


def _loss_parts(levels: Mapping[str, Any]) -> list[str]:
    measure, losses = levels["measure"], levels["losses"]
    note = (
        f"The {measure} of each level's model on {levels['rows']:,} rows. It is at most that of the whole model and "
        "how far the levels between are from one another (theorem S1 of the RaFM paper); for log losses also row by "
        "row (proposition S3), which is tighter."
    )
    rows = [[loss[name] for name in ("level", "loss", "row_by_row", "bound")] for loss in losses]
    columns = ["level", measure, "bound, row by row", "bound of S1"]
    return ["<h3>What levels lose</h3>", charts.note(note), charts.table("loss of levels", columns, rows)]
