"""The coupon collector: how probable it is that draws from classes hit every class, and how many draws that takes."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import gammaln

MORE_POINTS = 64  # of the circle, beyond two for each draw: what is left out is below the rounding


def chance_of_all(shares: npt.ArrayLike, draws: int) -> float:
    """Return the probability that independent draws hit every class.

    With rho_c the share of class c it is N! times the coefficient of t^N in prod_c (exp(rho_c t) - 1). Cauchy's
    integral has it as a mean over a circle. With the radius of the saddle point all of the mean comes from one side of
    the circle, nothing cancels, and the result is exact to about 1e-10 of itself: inclusion and exclusion have 2^C
    terms that do.

    Args:
        shares: The share of each class, above 0, [classes]; they are divided by their sum.
        draws: N, the number of draws.

    Returns:
        The probability; 0 for fewer draws than classes.

    Example:
        >>> round(chance_of_all([0.5, 0.5], 2), 6), round(chance_of_all([1, 1, 2], 3), 6), chance_of_all([1, 1], 1)
        (0.5, 0.1875, 0.0)

    """
    all_shares = np.asarray(shares, np.float64)
    classes = len(all_shares)
    if draws < classes:
        return 0.0
    distinct, repeats = np.unique(all_shares / all_shares.sum(), return_counts=True)  # [distinct shares] each
    if draws == classes:
        return float(np.exp(gammaln(draws + 1) + repeats @ np.log(distinct)))

    def excess(log_radius: float) -> float:
        """How far the mean number of draws, if it were Poisson's and all classes were hit, is above N."""
        expected = distinct * math.exp(log_radius)
        return float(repeats @ (expected / -np.expm1(-expected))) - draws

    radius = math.exp(brentq(excess, math.log(draws - classes) - 1e-9, math.log(draws) + 1e-9))
    half = draws + MORE_POINTS // 2  # of the circle's points
    angles = np.pi * np.arange(half + 1) / half
    points = radius * np.exp(1j * angles)[:, None] * distinct  # [half + 1, distinct shares]
    is_right = points.real >= 0
    with np.errstate(divide="ignore"):  # a factor may be 0
        log_factors = np.log(np.where(is_right, -np.expm1(np.where(is_right, -points, 0)), np.expm1(_left(points))))
    log_sizes = (log_factors.real + np.where(is_right, points.real, 0)) @ repeats
    phases = (log_factors.imag + np.where(is_right, points.imag, 0)) @ repeats - draws * angles
    terms = np.exp(log_sizes - log_sizes[0]) * np.cos(phases)  # [half + 1], even in the angle
    mean = (terms[0] + 2 * terms[1:-1].sum() + terms[-1]) / (2 * half)
    log_scale = gammaln(draws + 1) - draws * math.log(radius) + log_sizes[0]
    return float(min(1.0, np.exp(log_scale + np.log(mean))))


def _left(points: npt.NDArray[np.complex128]) -> npt.NDArray[np.complex128]:
    """The points of the left half plane; -1 in place of others, whose exponentials would overflow."""
    return np.where(points.real < 0, points, -1)


def draws_for(shares: npt.ArrayLike, chance: float, most: int) -> int | None:
    """Return the smallest number of draws that hit every class with a probability of at least `chance`.

    Args:
        shares: The share of each class, above 0, [classes].
        chance: The probability, below 1.
        most: The most draws that are of interest.

    Returns:
        The number, or None if it is above `most`.

    Example:
        >>> draws_for([0.5, 0.5], 0.9, most=100), draws_for([0.999, 0.001], 0.9, most=100)
        (5, None)

    """
    low = high = len(np.asarray(shares))
    while chance_of_all(shares, high) < chance:
        if high >= most:
            return None
        low, high = high + 1, min(2 * high, most)
    while low < high:
        middle = (low + high) // 2
        if chance_of_all(shares, middle) < chance:
            low = middle + 1
        else:
            high = middle
    return high
