"""Makes the bundled corpus `dataset:topics` and the judged pairs of its words, `dataset:topics_judged`.

Each word belongs to one of six topics, or to two; a sentence is about one, and has words of it between words that stand
everywhere. Two words are as similar as the cosine of their shares in the topics says, in tenths.

    python tools/make_topics.py FOLDER
"""

from __future__ import annotations

import bisect
import csv
import itertools
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

TOPICS = (
    "king queen prince crown throne knight castle palace",
    "money bank coin price market trade debt tax",
    "ship sail harbour wave anchor captain storm shore",
    "field plough harvest barn cattle meadow wheat shepherd",
    "song violin choir melody drum concert tune dance",
    "bread oven kitchen soup butter salt spoon recipe",
)
EVERYWHERE = ("the", "of", "and", "a", "in", "to", "with", "was", "by", "for")
MAIN_SHARES = (1.0, 0.8, 0.6)  # of a word in its own topic, by turns; the rest is that of the topic after it
EVERYWHERE_SHARE = 0.4  # of the words of a sentence
SENTENCES, SHORTEST, LONGEST = 600, 8, 14
JUDGED_PAIRS = 300


def topic_shares() -> dict[str, list[float]]:
    """The shares of each word in the topics."""
    shares: dict[str, list[float]] = {}
    for topic, words in enumerate(TOPICS):
        for place, word in enumerate(words.split()):
            main_share = MAIN_SHARES[place % len(MAIN_SHARES)]
            shares[word] = [0.0] * len(TOPICS)
            shares[word][topic] = main_share
            shares[word][(topic + 1) % len(TOPICS)] = 1 - main_share
    return shares


def draw(random: Random, words: Sequence[str], weights: Sequence[float]) -> str:
    """One of the words, in proportion to its weight."""
    cumulative = list(itertools.accumulate(weights))
    return words[min(bisect.bisect(cumulative, random.random() * cumulative[-1]), len(words) - 1)]


def sentences(random: Random) -> list[str]:
    """Sentences about one topic each."""
    shares = topic_shares()
    words = list(shares)
    falling = [1 / (place + 1) for place in range(len(EVERYWHERE))]
    texts: list[str] = []
    for _ in range(SENTENCES):
        topic = int(random.random() * len(TOPICS))
        of_topic = [shares[word][topic] for word in words]
        length = SHORTEST + int(random.random() * (LONGEST - SHORTEST + 1))
        tokens: list[str] = []
        for _ in range(length):
            is_everywhere = random.random() < EVERYWHERE_SHARE
            tokens.append(draw(random, EVERYWHERE, falling) if is_everywhere else draw(random, words, of_topic))
        texts.append(" ".join(tokens))
    return texts


def judged_pairs(random: Random) -> list[tuple[str, str, float]]:
    """Pairs of words that belong to topics, and how similar they are, from 0 to 10."""
    shares = topic_shares()
    drawn = sorted(itertools.combinations(shares, 2), key=lambda _: random.random())[:JUDGED_PAIRS]
    return [(first, second, round(10 * cosine(shares[first], shares[second]), 1)) for first, second in sorted(drawn)]


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    """The cosine of two vectors."""
    return sum(x * y for x, y in zip(first, second, strict=True)) / (math.hypot(*first) * math.hypot(*second))


def main(folder: Path) -> None:
    """Write both tables into a folder."""
    random = Random(0)
    tables: dict[str, tuple[Sequence[str], Sequence[Sequence[object]]]] = {
        "topics": (["text"], [[text] for text in sentences(random)]),
        "topics_judged": (["word", "other", "similarity"], judged_pairs(random)),
    }
    for name, (columns, rows) in tables.items():
        with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([columns, *rows])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
