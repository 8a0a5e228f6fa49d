"""What is asked of everybody: which rows are split off, what is hidden in them, and how an answer is scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tables.encoding import Encoded, Floats, Ints, items_of
from tables.spec import Frame, Table, Target, TargetKind

TEST_SHARE = 0.2
COMPLETED_ROWS = 2_000  # of the test rows
PREDICTED_ROWS = 20_000  # of the test rows
SCORES_IN_MEMORY = 1 << 24
SMALLEST_PROBABILITY = 1e-7
LABELS = {"": None, "@10%": 0.1, "@200": 200}  # how many labelled rows a candidate gets, by the end of its name


@dataclass(frozen=True)
class Split:
    """A table's training and test rows.

    Attributes:
        name: "random" or "time".
        seed: The seed of the split and of the candidates.
        train: The training rows.
        test: The test rows.

    """

    name: str
    seed: int
    train: Frame
    test: Frame


def split_rows(table: Table, name: str, seed: int, most_rows: int) -> Split:
    """Split a table 80 / 20, at random or so that the test rows are the last; of these at most `most_rows` are kept."""
    rng = np.random.default_rng(seed)
    total = len(table.frame)
    order = rng.permutation(total)
    if name == "time":
        order = table.frame[table.time].reset_index(drop=True).sort_values(kind="stable").index.to_numpy()
    cut = total - round(total * TEST_SHARE)
    test = order[cut:]
    if len(test) > most_rows:
        test = rng.choice(test, most_rows, replace=False)
    train = rng.permutation(order[:cut])
    frames = [table.frame.iloc[rows].reset_index(drop=True) for rows in (train, test)]
    return Split(name, seed, *frames)


# --- complete -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompleteQuestion:
    """A group that is hidden in the test rows.

    Attributes:
        column: The group.
        hidden: It, and the columns that say the same.
        given: The groups that it is found by.
        values: The candidates: all values that training has seen.
        counts: In how many training rows each is.
        query_rows: The test row of each query, in ascending order.
        query_values: The true value of each query.
        unseen: How many true values training has not seen; they are no queries.

    """

    column: str
    hidden: tuple[str, ...]
    given: Sequence[str]
    values: Sequence[str]
    counts: Floats
    query_rows: Ints
    query_values: Ints
    unseen: int


def complete_questions(table: Table, split: Split, encoded: Encoded) -> list[CompleteQuestion]:
    """The questions about a split's test rows that have an answer and something to choose between."""
    questions = []
    for column, beside in table.complete.items():
        hidden = (column, *beside)
        group = encoded[column]
        test = group.test.sorted_indices()
        query_rows = np.repeat(np.arange(test.shape[0]), np.diff(test.indptr))
        unseen = sum(map(len, items_of(group.group, split.test[column]))) - len(query_rows)
        if len(query_rows) and len(group.names) > 1:
            counts = np.asarray((group.train > 0).sum(axis=0)).ravel().astype(np.float64)
            given = [name for name in encoded if name not in hidden]
            questions.append(
                CompleteQuestion(column, hidden, given, group.names, counts, query_rows, test.indices, unseen)
            )
    return questions


ScoresOfRows = Callable[[Ints], Floats]  # test rows -> their scores [rows, values]; higher is more probable


def ranks_of_queries(question: CompleteQuestion, scores_of: ScoresOfRows) -> Floats:
    """The rank of each query's true value, from 0: how many values score higher, plus half of the ties.

    The row's other true values are left out of the ranking.
    """
    ranks = np.zeros(len(question.query_rows))
    rows = np.unique(question.query_rows)
    at_once = max(SCORES_IN_MEMORY // len(question.values), 1)
    for begin in range(0, len(rows), at_once):
        block = rows[begin : begin + at_once]
        scores_of_block = scores_of(block)
        for row, scores in zip(block, scores_of_block, strict=True):
            queries = slice(*np.searchsorted(question.query_rows, [row, row + 1]))
            true_values = question.query_values[queries]
            true_scores = scores[true_values]  # [true values]
            higher = (scores > true_scores[:, None]).sum(axis=1)
            ties = (scores == true_scores[:, None]).sum(axis=1) - 1
            if len(true_values) > 1:
                higher = higher - (true_scores > true_scores[:, None]).sum(axis=1)
                ties = ties - ((true_scores == true_scores[:, None]).sum(axis=1) - 1)
            ranks[queries] = higher + ties / 2
    return ranks


def complete_metrics(question: CompleteQuestion, ranks: Floats) -> dict[str, Any]:
    """The question and how well its queries are answered."""
    total = len(question.values)
    return {
        "question": question.column, "values": total, "queries": len(ranks), "unseen": question.unseen,
        "mrr": _rounded((1 / (ranks + 1)).mean()), "mpr": _rounded(ranks.mean() / total),
        "top1": _rounded((ranks < 1).mean()), "top10": _rounded((ranks < 10).mean()),
    }  # fmt: skip


# --- predict --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PredictQuestion:
    """A label of the training and test rows.

    Attributes:
        target: The label.
        train_rows: The training rows that have it, fewer if few are labelled.
        test_rows: The test rows that have it; of classes those that training has seen.
        train_labels: Numbers, 0 and 1, or places in `classes`.
        test_labels: The same of the test rows.
        classes: The names of the classes; of yes/no and numbers there are none.

    """

    target: Target
    train_rows: Ints
    test_rows: Ints
    train_labels: Floats
    test_labels: Floats
    classes: Sequence[str]

    @property
    def kind(self) -> TargetKind:
        """What the label holds."""
        return self.target.kind


def predict_question(target: Target, split: Split, labelled: float | None) -> PredictQuestion:
    """The label of a split's rows.

    Args:
        target: The label.
        split: The rows.
        labelled: The number or share of the training rows that have a label; None are all.

    Returns:
        The question.

    """
    train, test = target.label(split.train), target.label(split.test)
    train_rows = np.flatnonzero(train.notna().to_numpy())
    test_rows = np.flatnonzero(test.notna().to_numpy())
    if labelled is not None:
        wanted = min(round(labelled * len(train_rows)) if labelled < 1 else int(labelled), len(train_rows))
        train_rows = np.sort(np.random.default_rng(split.seed).choice(train_rows, wanted, replace=False))
    if target.kind != "category":
        train_labels, test_labels = (
            labels.to_numpy(dtype=np.float64)[rows] for labels, rows in ((train, train_rows), (test, test_rows))
        )
        return PredictQuestion(target, train_rows, test_rows, train_labels, test_labels, [])
    # The classes are those of all training rows, so that every number of labels answers the same question.
    classes = sorted(train.dropna().astype(str).unique())
    place = {name: i for i, name in enumerate(classes)}
    test_rows = np.array([row for row in test_rows if str(test.iloc[row]) in place], int)
    train_labels, test_labels = (
        np.array([place[str(labels.iloc[row])] for row in rows], float)
        for labels, rows in ((train, train_rows), (test, test_rows))
    )
    return PredictQuestion(target, train_rows, test_rows, train_labels, test_labels, classes)


def predict_metrics(question: PredictQuestion, answers: Floats) -> dict[str, Any]:
    """The question and the errors of answers: numbers, probabilities of a 1, or of each class [rows, classes].

    Raises:
        ValueError: There is not a finite answer for each test row.

    """
    labels = question.test_labels
    if len(answers) != len(labels) or not np.isfinite(answers).all():
        raise ValueError(f"{question.target.name}: {len(answers)} answers for {len(labels)} rows, or not finite")
    facts: dict[str, Any] = {
        "question": question.target.name, "kind": question.kind,
        "labelled": len(question.train_rows), "rows": len(labels),
    }  # fmt: skip
    if question.kind == "number":
        return {**facts, "rmse": _rounded(np.sqrt(np.square(answers - labels).mean()))}
    if question.kind == "yes/no":
        right = np.where(labels > 0, answers, 1 - answers)
        facts |= {"log_loss": _log_loss(right), "auc": auc(answers, labels)}
        return facts
    answers = answers / answers.sum(axis=1, keepdims=True)
    right = answers[np.arange(len(labels)), labels.astype(int)]
    return {**facts, "log_loss": _log_loss(right), "accuracy": _rounded((answers.argmax(axis=1) == labels).mean())}


def _log_loss(right: Floats) -> float:
    """The mean of -log p, given the probabilities of what is true."""
    return _rounded(-np.log(np.clip(right, SMALLEST_PROBABILITY, 1)).mean())


def auc(scores: Floats, labels: Floats) -> float | None:
    """The share of pairs of a 1 and a 0 in which the 1 scores higher, ties counting half; None without a pair."""
    from scipy.stats import rankdata

    ones = labels > 0
    pairs = int(ones.sum()) * int((~ones).sum())
    if not pairs:
        return None
    above = rankdata(scores)[ones].sum() - ones.sum() * (ones.sum() + 1) / 2
    return _rounded(above / pairs)


def _rounded(number: Any) -> float:
    """Six significant digits: what JSON lines hold."""
    return float(f"{float(number):.6g}")
