"""Columns of small tables such as people have: names, amounts, dates and texts, drawn by a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np

ROWS = 400
FIRST = [
    "Anna", "Ben", "Carla", "David", "Eva", "Frank", "Gina", "Henry", "Iris", "Jon", "Kate", "Leo", "Mary", "Nick",
    "Olga", "Paul", "Rosa", "Sam", "Tina", "Victor",
]  # fmt: skip
LAST = ["Smith", "Jones", "Garcia", "Kim", "Novak", "Rossi", "Weber", "Dubois", "Silva", "Ivanov", "Sato", "Brown"]
WORDS = [
    "red", "old", "quiet", "house", "river", "night", "war", "love", "garden", "king", "blue", "stone", "winter",
    "light", "road", "small", "good", "clean", "broken", "fast", "room", "service", "price", "very", "was", "and",
]  # fmt: skip
TOWNS = ["Springfield", "Riverton", "Oakdale", "Lakeside", "Hillview", "Greenport", "Weston", "Easton", "Milford"]
STATES = ["Texas", "Ohio", "Utah", "Maine", "Iowa", "Idaho", "Nevada", "Oregon"]
COUNTRIES = ["Germany", "France", "Spain", "Japan", "Brazil", "Canada", "Norway"]
CODES = dict(zip(COUNTRIES, ["DE", "FR", "ES", "JP", "BR", "CA", "NO"], strict=True))


class Maker:
    """Draws columns of ROWS values.

    Args:
        seed: Of the draws.

    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def pick(self, values: Sequence[Any], skew: float = 1.0) -> list[Any]:
        """One of some values for each row, the first ones more often."""
        weights = 1 / np.arange(1, len(values) + 1) ** skew
        return [values[i] for i in self.rng.choice(len(values), ROWS, p=weights / weights.sum())]

    def numbers(self, mean: float, deviation: float, digits: int = 2) -> list[float]:
        """Normal numbers."""
        return [round(float(x), digits) for x in self.rng.normal(mean, deviation, ROWS)]

    def amounts(self, median: float, spread: float = 1.0, digits: int = 0) -> list[Any]:
        """Log-normal numbers, integers if they have no digits."""
        drawn = median * np.exp(spread * self.rng.normal(size=ROWS))
        return [int(x) if not digits else round(float(x), digits) for x in drawn]

    def integers(self, low: int, high: int) -> list[int]:
        """Integers from `low` to `high`."""
        return self.rng.integers(low, high + 1, ROWS).tolist()

    def text(self, low: int, high: int) -> list[str]:
        """So many words."""
        return [" ".join(self.rng.choice(WORDS, self.rng.integers(low, high + 1))).capitalize() for _ in range(ROWS)]

    def lists(self, values: Sequence[str], delimiter: str, most: int = 3) -> list[str]:
        """One to `most` of some values."""
        counts = self.rng.integers(1, most + 1, ROWS)
        return [delimiter.join(self.rng.choice(values, count, replace=False)) for count in counts]

    def dates(self, form: str, days: int = 1500) -> list[str]:
        """Times from 2015 on, written so."""
        begin = datetime(2015, 3, 1)
        return [(begin + timedelta(seconds=int(x))).strftime(form) for x in self.rng.integers(0, days * 86_400, ROWS)]

    def days(self, days: int = 1500) -> list[datetime]:
        """Days from 2015 on."""
        return [datetime(2015, 3, 1) + timedelta(days=int(x)) for x in self.rng.integers(0, days, ROWS)]

    def epochs(self, factor: int = 1) -> list[int]:
        """Seconds since 1970, times a factor."""
        return (self.rng.integers(1_400_000_000, 1_600_000_000, ROWS) * factor).tolist()

    def people(self) -> list[str]:
        """Full names, nearly all of them distinct."""
        return [f"{self.rng.choice(FIRST)} {chr(65 + i % 26)}. {self.rng.choice(LAST)}" for i in range(ROWS)]

    def codes(self, prefix: str) -> list[str]:
        """Distinct codes."""
        return [f"{prefix}{number:06}" for number in self.rng.permutation(900_000)[:ROWS]]

    def hex(self) -> list[str]:
        """Distinct hexadecimal ids."""
        return [self.rng.bytes(8).hex() for _ in range(ROWS)]

    def gaps(self, values: Sequence[Any], share: float) -> list[Any]:
        """The values, of which a share is missing."""
        return [None if self.rng.random() < share else value for value in values]


def same(values: Sequence[Any], name: Callable[[Any], object]) -> list[object]:
    """Other names for values."""
    return [name(value) for value in values]
