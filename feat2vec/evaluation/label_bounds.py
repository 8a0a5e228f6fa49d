"""What the vectors say of a label whose classes are as frequent as they are: lemmas 3.1 and 3.2, linear classifiers.

With rho_c the shares of the C classes, mu_c the mean vector of a class and L_un^N the contrastive loss with N negatives
(Merad et al., 2020):

    L_sup <= L_sup^mu <= L_un^1 / min_c rho_c + log C        lemma 3.1
    L_sup <= L_sup^mu <= (L_un^1 - log 2 sum_c rho_c^2) / min_c rho_c    the same without its slack
    L_sup <= L_sup^mu <= L_un^N / p_cc(N)                    lemma 3.2

L_sup is the loss of the best linear classifier f(x) . w_c, L_sup^mu that of the weights w_c = mu_c, and p_cc(N) the
coupon collector's probability that N negatives are of all classes. The second line is not in the paper: as 1 + sum e^a
is at most the product of 1 + e^a, a softmax loss is at most the sum of the losses of pairs, which L_un^1 has by their
shares; those of a class with itself are log 2 each. It is an equality for two classes of one row each.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Float32s, Floats, Integers
from feat2vec.encode.encoder import Encoder
from feat2vec.evaluation.bounds import class_means, contrastive_loss, labelled_vectors, refuse_few_classes, right_share
from feat2vec.evaluation.coupons import chance_of_all, draws_for
from feat2vec.evaluation.linear_classifier import Probe, best_classifier, classifier_loss, linear_probe
from feat2vec.model.keras_model import Feat2Vec

SURE = 0.9  # the probability of all classes among the negatives with which lemma 3.2 is computed
MOST_NEGATIVES = 10_000
LEAST_CHANCE = 1e-6  # of all classes among the negatives: with less, the bound is without meaning
MOST_NUMBERS, FEWEST_DRAWS = 200_000_000, 200  # of the vectors of negatives that are drawn
NEXT_TO_NOTHING = 0.02  # of the loss that the shares of the classes have


class Lemma(NamedTuple):
    """A bound of the mean classifier's loss for classes as frequent as they are.

    Args:
        name: "lemma 3.1", "lemma 3.1, tighter" or "lemma 3.2".
        negatives: N, the number of negatives of a row.
        contrastive: L_un^N; None if the chance is next to 0 and it was not computed.
        chance: What it is divided by: the share of the rarest class, or the probability that all classes are among N.
        bound: What the mean classifier's loss is at most; None if there is no bound.
        exact: Whether the contrastive loss is enumerated.
        meaning: What follows for the label, in words.

    Example:
        >>> lemma = feat2vec.diagnose.label_bounds(run.model, run.fitted, films, "genre").lemmas[2]
        >>> lemma.name, lemma.negatives, round(lemma.chance, 3)  # five films are of both genres: 1 - (2/3)^5 - (1/3)^5
        ('lemma 3.2', 5, 0.864)

    """

    name: str
    negatives: int
    contrastive: float | None
    chance: float
    bound: float | None
    exact: bool
    meaning: str


class LabelBounds(NamedTuple):
    """How well vectors tell the classes of a label, which count as much as they have rows.

    Args:
        label: The column of the classes.
        rows: The number of rows that have a label.
        classes: C, the number of classes.
        rarest: The share of the rarest class.
        most_frequent: The share of the most frequent one.
        guess: log C, the loss of scores of 0.
        shares_loss: The loss of the classes' shares.
        best_linear: L_sup, the loss of the best linear classifier on these rows, as far as it was searched.
        mean_classifier: L_sup^mu, that of the classes' mean vectors.
        meaning: What these losses mean for the label, in words.
        frequencies: What it means that classes are not uniform, in words.
        lemmas: Lemma 3.1, what is tighter, and lemma 3.2 for the negatives of the schema and for as many as it takes.
        probe: A linear classifier on rows that it has not learnt from, None without such rows.
        probe_meaning: What it means, in words.

    Example:
        >>> genres = feat2vec.diagnose.label_bounds(run.model, run.fitted, films, "genre")
        >>> genres.best_linear <= genres.mean_classifier <= genres.lemmas[0].bound
        True
        >>> [(lemma.name, lemma.negatives) for lemma in genres.lemmas]
        [('lemma 3.1', 1), ('lemma 3.1, tighter', 1), ('lemma 3.2', 5), ('lemma 3.2', 6)]

    """

    label: str
    rows: int
    classes: int
    rarest: float
    most_frequent: float
    guess: float
    shares_loss: float
    best_linear: float
    mean_classifier: float
    meaning: str
    frequencies: str
    lemmas: tuple[Lemma, ...]
    probe: Probe | None
    probe_meaning: str


def label_bounds(
    model: Feat2Vec, encoder: Encoder, data: object, label: str, draws: int = 50_000, seed: int = 0
) -> LabelBounds:
    """The losses of linear classifiers of row vectors, and the lemmas that bound them by the contrastive loss.

    Vectors are sums of the groups that do not hold the label; rows without a label are left out.

    Args:
        model: The model.
        encoder: Its encoder.
        data: Rows with a label column.
        label: That column.
        draws: How many contrastive samples are drawn.
        seed: The seed of the draws.

    Returns:
        The losses and bounds, each with a sentence of what it means.

    Raises:
        UserError: The column is missing, holds lists, is in every group, or has one class.

    Example:
        >>> feat2vec.diagnose.label_bounds(run.model, run.fitted, films, "genre").classes
        2

    """
    vectors, labels, _ = labelled_vectors(model, encoder, data, label)
    return label_bounds_of_vectors(vectors, labels, label, model.schema.noise.negatives, draws, seed)


def label_bounds_of_vectors(
    vectors: Floats | Float32s, labels: Integers, label: str, negatives: int, draws: int = 50_000, seed: int = 0
) -> LabelBounds:
    """`label_bounds` of vectors that are there already.

    Args:
        vectors: Those of rows with a label, [rows, d].
        labels: The number of the class of each row, [rows].
        label: The column of the classes.
        negatives: The negatives of a row, with which lemma 3.2 is computed, too, if they are at most 10,000.
        draws: How many contrastive samples are drawn.
        seed: The seed of the draws.

    Returns:
        The losses and bounds.

    Raises:
        UserError: There is one class.

    """
    features = vectors.astype(np.float64)
    names, class_ids = np.unique(labels, return_inverse=True)
    classes, rows = len(names), len(labels)
    refuse_few_classes(label, classes)
    counts = np.bincount(class_ids)  # [classes]
    shares, even = counts / rows, np.full(rows, 1 / rows)
    means = class_means(features, class_ids)  # [classes, d]
    mean_loss = classifier_loss(features, class_ids, even, means.T)
    best = best_classifier(features, class_ids, even, means.T).loss
    rng = np.random.default_rng(seed)
    rows_of_class = [features[class_ids == c] for c in range(classes)]
    lemmas = [*lemma_3_1(rows_of_class, shares, label, mean_loss, draws, rng)]
    wanted = draws_for(shares, SURE, MOST_NEGATIVES)
    numbers = {min(negatives, MOST_NEGATIVES)} | (set() if wanted is None else {wanted})
    for number in sorted(numbers):
        lemmas.append(lemma_3_2(rows_of_class, shares, label, number, draws, rng))
    probe = linear_probe(features, class_ids, seed)
    guess, shares_loss = math.log(classes), float(-shares @ np.log(shares))
    return LabelBounds(
        label,
        rows,
        classes,
        float(shares.min()),
        float(shares.max()),
        guess,
        shares_loss,
        best,
        mean_loss,
        meaning=_meaning_of_losses(label, best, mean_loss, guess, shares_loss),
        frequencies=_meaning_of_frequencies(label, shares, wanted),
        lemmas=tuple(lemmas),
        probe=probe,
        probe_meaning=_meaning_of_probe(label, probe),
    )


def lemma_3_1(
    rows_of_class: list[Floats], shares: Floats, label: str, mean_loss: float, draws: int, rng: np.random.Generator
) -> tuple[Lemma, Lemma]:
    """Return L_un / min_c rho_c + log C, and the bound without the slack of its proof.

    Args:
        rows_of_class: The encoded rows of each class, [rows of the class, d].
        shares: The share of each class, [classes].
        label: The column of the classes.
        mean_loss: The loss of the mean classifier, of which the lemma says what it is at most.
        draws: The most terms that are enumerated, and the number of draws otherwise.
        rng: What draws.

    Returns:
        The bounds and what each means.

    """
    loss, exact = contrastive_loss(rows_of_class, shares, 1, draws, rng)
    rarest, guess = float(shares.min()), math.log(len(shares))
    bound = loss / rarest + guess
    meaning = (
        f"Lemma 3.1: mean vectors cannot be worse than a guess by more than {loss / rarest:.3g}; they are "
        f"{_better_or_worse(guess - mean_loss)}. The bound is never below {guess:.3g}, that of a guess among "
        f"{len(shares)} classes, and as loose as the rarest one is rare ({rarest:.2%} of the rows)."
    )
    tighter = (loss - math.log(2) * float(shares @ shares)) / rarest
    first = Lemma("lemma 3.1", 1, loss, rarest, bound, exact, meaning)
    begin = "Lemma 3.1 without the slack of its proof: "
    return first, Lemma("lemma 3.1, tighter", 1, loss, rarest, tighter, exact, begin + _proven(tighter, guess, label))


def lemma_3_2(
    rows_of_class: list[Floats], shares: Floats, label: str, negatives: int, draws: int, rng: np.random.Generator
) -> Lemma:
    """Return L_un^N / p_cc(N).

    Args:
        rows_of_class: The encoded rows of each class, [rows of the class, d].
        shares: The share of each class, [classes].
        label: The column of the classes.
        negatives: N.
        draws: The most terms that are enumerated, and the number of draws otherwise; fewer if N is large.
        rng: What draws.

    Returns:
        The bound and what it means.

    """
    classes, chance = len(shares), chance_of_all(shares, negatives)
    begin = f"Lemma 3.2, N {negatives:,}: all {classes:,} classes are among the negatives with a probability of"
    if chance < LEAST_CHANCE:
        meaning = f"{begin} {chance:.2g}, so it says nothing about {label}."
        return Lemma("lemma 3.2", negatives, None, chance, None, False, meaning)
    width = negatives * rows_of_class[0].shape[1]
    loss, exact = contrastive_loss(rows_of_class, shares, negatives, _draws(draws, width), rng)
    bound, guess = loss / chance, math.log(classes)
    meaning = f"{begin} {chance:.2g}; {_proven(bound, guess, label)}"
    return Lemma("lemma 3.2", negatives, loss, chance, bound, exact, meaning)


def _proven(bound: float, guess: float, label: str) -> str:
    """What it says of a label that the mean classifier's loss is at most so much."""
    if bound >= guess:
        return f"the bound {bound:.3g} is not below a guess's {guess:.3g}, so it proves nothing about {label}."
    share = right_share(bound)
    how = f"in at least {share:.0%} of the rows" if share else "better than a guess"
    return f"the bound {bound:.3g} proves that mean vectors tell {label} {how}."


def _draws(draws: int, width: int) -> int:
    """As many draws of so many numbers as are worth their time."""
    return max(min(draws, FEWEST_DRAWS), min(draws, MOST_NUMBERS // width))


def _better_or_worse(gain: float) -> str:
    return f"better by {gain:.3g}" if gain >= 0 else f"worse by {-gain:.3g}"


def _meaning_of_losses(label: str, best: float, mean_loss: float, guess: float, shares_loss: float) -> str:
    losses = f"The best linear classifier of the vectors has the loss {best:.3g}, mean vectors {mean_loss:.3g}"
    nothing = min(guess, shares_loss)
    if best > (1 - NEXT_TO_NOTHING) * nothing:
        return f"{losses}: the classes' frequencies alone have {nothing:.3g}; vectors say next to nothing of {label}."
    if mean_loss >= guess:
        return (
            f"{losses}, which is no better than a guess ({guess:.3g}): the vectors tell {label}, but their lengths or "
            "directions do not suit mean vectors; learn a head on them."
        )
    reached = (guess - mean_loss) / (guess - best)
    return f"{losses}: of what a learnt linear head gains over a guess ({guess:.3g}), mean vectors have {reached:.0%}."


def _meaning_of_frequencies(label: str, shares: Floats, wanted: int | None) -> str:
    rarest, most_frequent = float(shares.min()), float(shares.max())
    if rarest == most_frequent:
        begin = f"The classes of {label} are equally frequent, as proposition 3.3 has them"
    else:
        begin = (
            f"The classes of {label} have {rarest:.2%} to {most_frequent:.2%} of the rows; proposition 3.3 counts them "
            "the same, the lemmas as they are"
        )
    needed = f"more than {MOST_NEGATIVES:,}" if wanted is None else f"{wanted:,}"
    return f"{begin}. It takes {needed} negatives to have all of them among those with a probability of {SURE}."


def _meaning_of_probe(label: str, probe: Probe | None) -> str:
    if probe is None:
        return f"There are too few rows to hold some out for a linear probe for {label}, or too many classes."
    begin = (
        f"A linear probe, learnt on {probe.learnt:,} rows, tells {label} in {probe.accuracy:.1%} of {probe.measured:,} "
        f"others (the most frequent class: {probe.most_frequent:.1%})"
    )
    if probe.log_loss < probe.shares_log_loss:
        return f"{begin}, with the log loss {probe.log_loss:.3g} in place of the shares' {probe.shares_log_loss:.3g}."
    return f"{begin}; its log loss {probe.log_loss:.3g} is no better than the shares' {probe.shares_log_loss:.3g}."
