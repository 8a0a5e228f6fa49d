"""What the contrastive loss says about classes that are equally likely: proposition 3.3 of Merad et al. (2020).

Arora et al. (2019) have it for one negative. `label_bounds` has the lemmas for classes as frequent as they are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Float32s, Floats, Integers
from feat2vec.encode.encoder import Encoder
from feat2vec.errors import UserError, listed, suggest
from feat2vec.evaluation.linear_classifier import best_classifier, classifier_loss
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.space.embed import Embedder
from feat2vec.table.table import Table, open_table
from feat2vec.table.types import is_list

MOST_CLASSES = 1000  # of a label
MOST_TASKS = 50  # sets of classes, for each of which the best linear classifier is searched


def say_nothing(line: str) -> None:
    """Do nothing with a line."""
    del line


class Bound(NamedTuple):
    """Both sides of L_sup,k <= `mean_classifier` <= `bound` = k / (1 - tau) (`contrastive` - tau log(N + 1)).

    Args:
        mean_classifier: The loss of classifying f(x) by f(x) . mu_c among k + 1 classes.
        bound: Its upper bound.
        contrastive: The loss of telling a row's positive from N negatives.
        tau: C^-N, the chance that all negatives have the row's class.
        exact: Whether both losses are enumerated.

    Example:
        >>> bound = contrastive_bound([[1.0], [-1.0]], ["sea", "land"], negatives=2, k=1)
        >>> bound.tau, bound.exact
        (0.25, True)

    """

    mean_classifier: float
    bound: float
    contrastive: float
    tau: float
    exact: bool


def contrastive_bound(
    features: npt.ArrayLike,
    labels: npt.ArrayLike,
    negatives: int,
    k: int,
    draws: int = 200_000,
    seed: int = 0,
) -> Bound:
    """Return both sides of the bound of a classifier's loss by the contrastive loss.

    Each of the C classes counts the same. A row and its positive are two draws from one class, and may be the same row.
    Expectations of at most `draws` terms are enumerated. Others are estimated from that many draws.

    Args:
        features: The encoded rows f(x), [rows, d].
        labels: The class of each row, [rows].
        negatives: N, the number of negatives of a row.
        k: The number of wrong classes that the right one is told from, below C.
        draws: The most terms that are enumerated, and the number of draws otherwise.
        seed: The seed of the draws.

    Returns:
        A `Bound`, in which `mean_classifier` is at most `bound`.

    Raises:
        ValueError: If features are not finite, rows have no label, or a number is out of range.

    Example:
        >>> bound = contrastive_bound([[1.0], [0.9], [-1.0]], ["sea", "sea", "land"], negatives=1, k=1)
        >>> bound.mean_classifier <= bound.bound, bound.tau, bound.exact
        (True, 0.5, True)

    """
    features, labels = np.asarray(features, np.float64), np.asarray(labels)
    if features.ndim != 2 or labels.shape != features.shape[:1] or not np.isfinite(features).all():
        raise ValueError(
            "needs finite features [rows, d] and a label for each row. "
            f"Received: features {features.shape}, labels {labels.shape}"
        )
    names, class_ids = np.unique(labels, return_inverse=True)
    classes = len(names)
    if not 2 <= k + 1 <= classes or negatives < 1 or draws < 1:
        raise ValueError(
            "needs 2 <= k + 1 <= classes, negatives >= 1 and draws >= 1. "
            f"Received: {k=}, {negatives=}, {draws=}, {classes=}"
        )
    rows_of_class = [features[class_ids == c] for c in range(classes)]
    rng = np.random.default_rng(seed)
    even = np.full(classes, 1 / classes)
    contrastive, contrastive_is_exact = contrastive_loss(rows_of_class, even, negatives, draws, rng)
    mean_classifier, classifier_is_exact = _mean_classifier_loss(rows_of_class, k, draws, rng)
    tau = float(classes) ** -negatives
    bound = k / (1 - tau) * (contrastive - tau * math.log(negatives + 1))
    return Bound(mean_classifier, bound, contrastive, tau, contrastive_is_exact and classifier_is_exact)


def contrastive_loss(
    rows_of_class: Sequence[Floats], shares: Floats, negatives: int, draws: int, rng: np.random.Generator
) -> tuple[float, bool]:
    """Return L_un^N = E log(1 + sum_i exp f(x).(f(x_i-) - f(x+))), over classes and then rows of a class.

    Args:
        rows_of_class: The encoded rows of each class, [rows of the class, d].
        shares: The probability of each class, [classes].
        negatives: N.
        draws: The most terms that are enumerated, and the number of draws otherwise.
        rng: What draws.

    Returns:
        The loss, and whether it is enumerated.

    """
    rows = np.concatenate(rows_of_class)  # [rows, d], class by class
    sizes = np.array([len(class_rows) for class_rows in rows_of_class])
    chances = np.repeat(shares / sizes, sizes)  # of a row to be drawn
    if int((sizes**2).sum()) * len(rows) ** negatives <= draws:
        return _enumerated_contrastive_loss(rows_of_class, shares, rows, chances, negatives), True
    starts, total = np.cumsum(sizes) - sizes, 0.0
    for chunk in draws_per_chunk(draws, negatives * rows.shape[1]):
        class_ids = rng.choice(len(sizes), p=shares, size=chunk)
        anchors = rows[starts[class_ids] + rng.integers(sizes[class_ids])]  # [chunk, d]
        positives = rows[starts[class_ids] + rng.integers(sizes[class_ids])]
        rivals = rows[rng.choice(len(rows), p=chances, size=(chunk, negatives))]  # [chunk, N, d]
        total += _log_one_plus(np.einsum("id,ind->in", anchors, rivals - positives[:, None])).sum()
    return float(total / draws), False


def _enumerated_contrastive_loss(
    rows_of_class: Sequence[Floats], shares: Floats, rows: Floats, chances: Floats, negatives: int
) -> float:
    tuples = np.array(list(itertools.product(range(len(rows)), repeat=negatives)))  # [rows^N, N]
    tuple_chances, total = chances[tuples].prod(axis=1), 0.0
    for class_rows, share in zip(rows_of_class, shares, strict=True):
        for anchor, positive in itertools.product(class_rows, repeat=2):
            differences = (rows - positive) @ anchor  # [rows]
            loss = tuple_chances @ _log_one_plus(differences[tuples])
            total += share * loss / len(class_rows) ** 2
    return float(total)


def _mean_classifier_loss(
    rows_of_class: Sequence[Floats], k: int, draws: int, rng: np.random.Generator
) -> tuple[float, bool]:
    """Return E -log softmax of the right class among k + 1, classified by f(x) . mu_c, and whether it is exact."""
    classes = len(rows_of_class)
    means = np.stack([class_rows.mean(axis=0) for class_rows in rows_of_class])  # mu_c, [classes, d]
    exact = math.comb(classes - 1, k) * sum(map(len, rows_of_class)) <= draws
    total = 0.0
    for c, class_rows in enumerate(rows_of_class):
        wrong = np.delete(np.arange(classes), c)
        if exact:
            wrong_sets = np.array(list(itertools.combinations(wrong, k)))  # [sets, k]
        else:
            sets = max(1, draws // classes // len(class_rows))
            wrong_sets = wrong[np.argsort(rng.random((sets, len(wrong))), axis=1)[:, :k]]
        scores = class_rows @ means.T  # [rows of the class, classes]
        total += _log_one_plus(scores[:, wrong_sets] - scores[:, c, None, None]).mean() / classes
    return float(total), exact


def _log_one_plus(differences: Floats) -> Floats:
    """Return log(1 + sum exp d) over the last axis."""
    total: Floats = np.logaddexp(0, np.logaddexp.reduce(differences, axis=-1))
    return total


def draws_per_chunk(draws: int, width: int, limit: int = 1 << 22) -> Iterator[int]:
    """Yield sizes that sum to `draws`, of at most about `limit` numbers if a draw has `width`.

    64 negatives of 50 numbers would otherwise take 5 GB at once.
    """
    size = max(1, limit // max(1, width))
    for start in range(0, draws, size):
        yield min(size, draws - start)


class ClassBound(NamedTuple):
    """Proposition 3.3 for rows and their classes: `bound.mean_classifier` <= `bound.bound`.

    Args:
        label: The column of the classes.
        rows: The number of rows that have a label.
        without_label: The number of rows that have none and are left out.
        classes: The number of classes.
        negatives: N, the number of negatives of a row.
        k: The number of wrong classes that the right one is told from.
        bound: Both sides of the bound.
        best_linear: L_sup,k, the loss of the best linear classifier of each set of classes, as far as it was searched.
        meaning: What follows for the label, in words.

    Example:
        >>> (genres,) = feat2vec.diagnose.class_bounds(run.model, run.fitted, films, "genre")
        >>> genres.rows, genres.classes, genres.negatives, genres.k
        (60, 2, 1, 1)
        >>> genres.best_linear <= genres.bound.mean_classifier <= genres.bound.bound
        True

    """

    label: str
    rows: int
    without_label: int
    classes: int
    negatives: int
    k: int
    bound: Bound
    best_linear: float
    meaning: str


def gain_of_best_linear(vectors: Float32s | Floats, labels: Integers, k: int, seed: int = 0) -> float:
    """Return by how much L_sup,k is below the mean classifier's loss: the mean over sets of k + 1 classes.

    L_sup,k is the least loss of a linear classifier of equally likely classes; each set has a classifier of its own. Of
    more sets than `MOST_TASKS` as many are drawn.

    Args:
        vectors: [rows, d].
        labels: The number of the class of each row, [rows].
        k: The number of wrong classes that the right one is told from.
        seed: The seed of the draws.

    Returns:
        The difference of both losses.

    Example:
        >>> round(gain_of_best_linear(np.eye(2), np.array([0, 1]), k=1), 2)  # log(1 + exp(-1)), and no loss
        0.31

    """
    classes, rng = len(np.unique(labels)), np.random.default_rng(seed)
    if math.comb(classes, k + 1) <= MOST_TASKS:
        tasks = list(itertools.combinations(range(classes), k + 1))
    else:
        tasks = [tuple(np.sort(rng.choice(classes, k + 1, replace=False)).tolist()) for _ in range(MOST_TASKS)]
    gains = []
    for task in tasks:
        chosen = np.isin(labels, task)
        features, class_ids = vectors[chosen].astype(np.float64), np.searchsorted(task, labels[chosen])
        counts = np.bincount(class_ids)  # [k + 1]
        row_weights = 1 / (len(task) * counts[class_ids])
        means = class_means(features, class_ids)
        mean_loss = classifier_loss(features, class_ids, row_weights, means.T)
        gains.append(mean_loss - best_classifier(features, class_ids, row_weights, means.T).loss)
    return float(np.mean(gains))


def class_means(features: Floats, class_ids: Integers) -> Floats:
    """Return mu_c, the mean of each class's rows, [classes, d]."""
    counts = np.bincount(class_ids)
    sums = np.zeros((len(counts), features.shape[1]))
    np.add.at(sums, class_ids, features)
    return sums / counts[:, None]


def right_share(loss: float) -> float:
    """Return which share of rows a classifier is right on at least, given the mean of -log p of the right class.

    Where it is wrong another class is as probable, so p is at most 1/2 and the loss at least log 2.

    Args:
        loss: The mean loss, or what it is at most.

    Returns:
        The share; 0 if nothing follows.

    Example:
        >>> right_share(0.0), right_share(0.7), round(right_share(0.1), 3)
        (1.0, 0.0, 0.856)

    """
    return max(0.0, 1 - loss / math.log(2))


def class_bounds(
    model: Feat2Vec,
    encoder: Encoder,
    data: object,
    label: str,
    settings: Sequence[tuple[int, int | None]] = ((1, 1),),
    draws: int = 200_000,
) -> list[ClassBound]:
    """The contrastive loss of row vectors bounds the loss of the mean classifier (Arora et al. 2019, Proposition 3.3).

    Vectors are sums of the groups that do not hold the label; rows without a label are left out.

    Args:
        model: The model.
        encoder: Its encoder.
        data: Rows with a label column.
        label: That column.
        settings: Pairs of N, the number of negatives, and k; a row is told from k other classes (None: all).
        draws: How many contrastive samples are drawn.

    Returns:
        Both sides of the bound, for each of the settings.

    Raises:
        UserError: The column is missing, holds lists, is in every group, or has one class.

    Example:
        >>> (genres,) = feat2vec.diagnose.class_bounds(run.model, run.fitted, films, "genre", [(2, None)])
        >>> genres.bound.mean_classifier <= genres.bound.bound
        True

    """
    vectors, labels, without_label = labelled_vectors(model, encoder, data, label)
    return bounds_of_vectors(vectors, labels, label, without_label, settings, draws)


def bounds_of_vectors(
    vectors: Float32s | Floats,
    labels: Integers,
    label: str,
    without_label: int,
    settings: Sequence[tuple[int, int | None]] = ((1, 1),),
    draws: int = 200_000,
    say: Callable[[str], None] = say_nothing,
) -> list[ClassBound]:
    """`class_bounds` of vectors that are there already.

    Args:
        vectors: Those of rows with a label, [rows, d].
        labels: The number of the class of each row, [rows].
        label: The column of the classes.
        without_label: How many rows have none.
        settings: Pairs of N, the number of negatives, and k; a row is told from k other classes (None: all).
        draws: How many contrastive samples are drawn.
        say: What is told, in a line, which of the settings is computed.

    Returns:
        Both sides of the bound, for each of the settings.

    Raises:
        UserError: There is one class.

    """
    classes = len(np.unique(labels))
    refuse_few_classes(label, classes)
    bounds: list[ClassBound] = []
    gains: dict[int, float] = {}  # by k
    for negatives, k in settings:
        other_classes = classes - 1 if k is None else k
        say(f"{label}: {len(labels):,} rows of {classes:,} classes, the bound for N {negatives}, k {other_classes:,}")
        bound = contrastive_bound(vectors, labels, negatives, other_classes, draws)
        if other_classes not in gains:
            gains[other_classes] = gain_of_best_linear(vectors, labels, other_classes)
        bounds.append(
            ClassBound(
                label,
                len(labels),
                without_label,
                classes,
                negatives,
                other_classes,
                bound,
                best_linear=max(0.0, bound.mean_classifier - gains[other_classes]),
                meaning=_meaning(label, bound, negatives, other_classes),
            )
        )
    return bounds


def refuse_few_classes(label: str, classes: int) -> None:
    """Raise a `UserError` unless the column of a label has two classes or more."""
    if classes < 2:
        raise UserError(f"--label: column {label!r} has {classes} class{'es' * (classes != 1)}; two or more are needed")


def _meaning(label: str, bound: Bound, negatives: int, k: int) -> str:
    """What a bound says of the label, in a sentence."""
    case, guess = f"N {negatives}, k {k}", math.log(k + 1)
    if bound.bound >= guess:
        return (
            f"{case}: the bound {bound.bound:.3g} is not below {guess:.3g}, the loss of a guess among {k + 1} classes, "
            f"so the contrastive loss proves nothing about {label}."
        )
    proven = f"{case}: the contrastive loss proves that mean vectors tell {label} from {k} other{'s' * (k > 1)} "
    share = right_share(bound.bound)
    return proven + (f"in at least {share:.0%} of the rows." if share else "better than a guess.")


def labelled_vectors(model: Feat2Vec, encoder: Encoder, data: object, label: str) -> tuple[Float32s, Integers, int]:
    """The vectors of the rows that have a label, from the groups that do not hold it.

    Args:
        model: The model.
        encoder: Its encoder.
        data: Rows with a label column.
        label: That column.

    Returns:
        The vectors, [rows, dim]; their labels as numbers, [rows]; and how many rows have no label.

    Raises:
        UserError: The column is missing, holds lists, is in every group, or has more than 1,000 values.

    Example:
        >>> vectors, labels, without_label = feat2vec.diagnose.labelled_vectors(run.model, run.fitted, films, "genre")
        >>> vectors.shape, labels[:3].tolist(), without_label
        ((60, 4), [0, 0, 1], 0)

    """
    table = open_table(data)
    if label not in table.columns:
        near = suggest(label, table.columns) or f"; the columns are {listed(table.columns)}"
        raise UserError(f"--label: {table.name} has no column {label!r}{near}")
    if is_list(table.columns[label]):
        raise UserError(f"--label: column {label!r} of {table.name} holds lists; a row has one class")
    groups = [name for name, group in encoder.schema.groups.items() if label not in group.columns]
    if not groups:
        raise UserError(f"--label: every group holds {label!r} itself; name another column")
    _refuse_many_classes(table, label)
    vector_parts: list[Float32s] = []
    label_chunks: list[pa.StringArray] = []
    for part in Embedder(encoder, model, groups).batches(table, [label]):
        vector_parts.append(part.row_vectors)
        label_column = part.stage.column(label).slice(part.rows.start, len(part.row_vectors)).cast(pa.string())
        label_chunks += label_column.chunks
    labels = pa.chunked_array(label_chunks, pa.string())
    has_label = pc.is_valid(labels).to_numpy()
    codes = labels.combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.concatenate(vector_parts)[has_label], codes[has_label], int((~has_label).sum())


def _refuse_many_classes(table: Table, label: str) -> None:
    """Raise for a column that has as many values as one of numbers, before anything is computed for them."""
    values = pa.chunked_array(
        [pc.unique(batch.data.column(0)).cast(pa.string()) for batch in table.batches([label])], pa.string()
    )
    classes = len(pc.unique(values).drop_null())
    if classes > MOST_CLASSES:
        few = f"a label has at most {MOST_CLASSES:,} classes"
        remedy = "name a column of fewer, such as one of ranges that the numbers fall into"
        raise UserError(f"--label: column {label!r} of {table.name} has {classes:,} values; {few}: {remedy}")
