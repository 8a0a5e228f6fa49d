"""Which words of a sentence are near each other, and windows beside a centre that is not theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from feat2vec.arrays import Bools, Integers

Reach = Literal["random", "fixed"]
CountWeights = Literal["inverse_distance", "plain"]
FAKE_ALPHA = 0.75  # the power of counts that word2vec draws noise by


class NearPairs(NamedTuple):
    """Pairs of tokens that are as far apart, one direction at a time."""

    distance: int
    centres: slice  # of the tokens, those of pairs and others
    contexts: slice  # those that stand `distance` after the centres, or before them
    is_near: Bools  # which are pairs: of one sentence, and the centre reaches the context


def near_pairs_of(sentence: Integers, reach: Integers, window: int) -> Iterator[NearPairs]:
    """The pairs of a block of tokens, by distance, the later token as the context before the earlier one.

    Args:
        sentence: The number of each token's sentence, [tokens].
        reach: How many tokens each reaches on either side, at most `window`, [tokens].
        window: The largest distance.

    Returns:
        An iterator over the pairs of each distance and direction.

    """
    for distance in range(1, window + 1):
        earlier, later = slice(None, -distance), slice(distance, None)
        for centres, contexts in ((earlier, later), (later, earlier)):
            is_near = (sentence[centres] == sentence[contexts]) & (reach[centres] >= distance)
            yield NearPairs(distance, centres, contexts, is_near)


def label_windows(
    tokens: Integers, fakes: Integers, places: Integers, contexts: Integers
) -> tuple[Integers, Integers, Integers]:
    """The rows of each token's window as they are, and again beside each of its fakes.

    Args:
        tokens: The tokens, each of which is a centre, [tokens].
        fakes: The words that take the centre's place, [tokens, fakes].
        places: Which token is the centre of each pair, [pairs].
        contexts: The other word of each pair, [pairs].

    Returns:
        Word, context and label of each row, [pairs (1 + fakes)]: the first token's window with the label 1, its window
        with the label 0 beside its first fake, and so on, then those of the second token.

    """
    contexts = contexts[np.argsort(places, kind="stable")]  # a centre's window is now in one piece
    window_sizes = np.bincount(places, minlength=len(tokens))  # [tokens]
    window_starts = np.cumsum(window_sizes) - window_sizes  # [tokens]
    centres = np.concatenate([tokens[:, None], fakes], axis=1)  # [tokens, 1 + fakes]
    labels = np.zeros(centres.shape, np.int8)
    labels[:, 0] = 1
    sizes = np.repeat(window_sizes, centres.shape[1])  # of the window of each centre, [tokens (1 + fakes)]
    shifts = np.repeat(window_starts, centres.shape[1]) - (np.cumsum(sizes) - sizes)  # from a row to its context
    context_of_row = np.arange(sizes.sum()) + np.repeat(shifts, sizes)
    return np.repeat(centres.ravel(), sizes), contexts[context_of_row], np.repeat(labels.ravel(), sizes)
