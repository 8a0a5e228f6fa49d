"""Matrix completion: the numbers of a matrix A from a few known ones, P(A), by matrices of low rank.

    svd          X <- [X + P(A - X)]_k, the projection on the matrices of rank k, from X = 0 (Jain et al., 2010). Its
                 first step is the truncated singular value decomposition, the best matrix of rank k where all entries
                 are known (Eckart and Young, 1936).
    als          alternating least squares: 1/2 |P(A - U V')|^2 + t/2 (|U|^2 + |V|^2) is solved for U, then for V,
                 u_i = (sum_j v_j v_j' + t I)^-1 sum_j a_ij v_j over the known entries of row i.
    soft_impute  X <- shrink_t(X + P(A - X)), which takes t from each singular value (Mazumder et al., 2010). Its fixed
                 point has the least 1/2 |P(A - X)|^2 + t |X|_*, that of `als` of any higher rank.

X + P(A - X) is never made: it is a sparse matrix and one of low rank, of which products are taken. An entry that comes
several times counts as its mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from feat2vec.arrays import Bools, Floats, Int64s, Integers
from feat2vec.space.geometry import blocks
from feat2vec.space.small_ridges import SmallRidges

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import LinearOperator

MethodName: TypeAlias = Literal["svd", "als", "soft_impute"]
SEED = 0
HELD_OUT = 0.1  # of the known entries, by which rank, shrinkage and steps are chosen
DAMPINGS = (1.0, 2.0, 5.0, 10.0, 20.0)  # what the numbers of a bias' entries are increased by
MOST_STEPS = 40
PATIENCE = 2  # steps, or settings, without a lower error before the next ones are left out
LEAST_GAIN = 1e-4  # of an error, relative to it
BIAS_SWEEPS, BIAS_TOLERANCE = 50, 1e-9
OVERSAMPLED = 8  # singular vectors beyond those that are wanted
TOLERANCE, MOST_ITERATIONS = 1e-4, 30  # of singular values
ENTRIES_AT_ONCE = 1 << 16
RANKS = (1, 2, 4, 8, 16, 32, 64)
SHRINKAGES = (2.0, 1.4, 1.0, 0.7, 0.5, 0.35, 0.25)  # in units of the largest singular value that noise has
FIRST_RANK, OTHER_RANKS = 16, (8, 32, 4)  # of als
MOST_RANK, FIRST_WIDTH = 64, 8  # of soft_impute: the highest rank, and how many singular values are looked for first


class KnownEntries(NamedTuple):
    """The entries of a matrix that are known, each once."""

    rows: Int64s  # [entries]
    columns: Int64s  # [entries]
    numbers: Floats  # [entries]
    shape: tuple[int, int]

    def take(self, kept: Bools) -> KnownEntries:
        """Some of the entries."""
        return KnownEntries(self.rows[kept], self.columns[kept], self.numbers[kept], self.shape)

    def with_numbers(self, numbers: Floats) -> KnownEntries:
        """The same places with other numbers, [entries]."""
        return self._replace(numbers=numbers)

    def sparse(self, numbers: Floats) -> csr_array:
        """A matrix with these numbers [entries] in the known places, and zeros."""
        from scipy import sparse

        return sparse.csr_array((numbers, (self.rows, self.columns)), shape=self.shape)


def known_entries(rows: Integers, columns: Integers, numbers: Floats, shape: tuple[int, int]) -> KnownEntries:
    """Entries in the order of their places; of those of one place the mean.

    >>> known_entries(np.array([0, 0]), np.array([1, 1]), np.array([2.0, 4.0]), (1, 2)).numbers
    array([3.])
    """
    places, entry_of_place = np.unique(rows.astype(np.int64) * shape[1] + columns, return_inverse=True)
    counts = np.bincount(entry_of_place, minlength=len(places))
    means = np.bincount(entry_of_place, numbers, len(places)) / np.maximum(counts, 1)
    return KnownEntries(places // shape[1], places % shape[1], means, shape)


# --- biases ---------------------------------------------------------------------------------------------------------


class Biases(NamedTuple):
    """A number for all entries, for each row and for each column, whose sum is what an entry is without factors."""

    mean: float
    rows: Floats  # [rows]
    columns: Floats  # [columns]

    def at(self, rows: Integers, columns: Integers) -> Floats:
        """The sums at some places, [places]; a row or column that is not known, -1, adds nothing."""
        return self.mean + _known(self.rows, rows) + _known(self.columns, columns)


def _known(biases: Floats, places: Integers) -> Floats:
    """The biases at some places, 0 where a place is -1."""
    padded: Floats = np.append(biases, 0.0)[places]
    return padded


def fit_biases(entries: KnownEntries, damping: float) -> Biases:
    """The biases that make sum (a - mean - r_i - c_j)^2 + damping (|r|^2 + |c|^2) least, the mean being given.

    Args:
        entries: The known entries.
        damping: How much the number of a row's or column's entries is increased by.

    """
    mean = float(entries.numbers.mean())
    numbers = entries.numbers - mean
    row_sizes = np.bincount(entries.rows, minlength=entries.shape[0]) + damping
    column_sizes = np.bincount(entries.columns, minlength=entries.shape[1]) + damping
    rows, columns = np.zeros(entries.shape[0]), np.zeros(entries.shape[1])
    for _ in range(BIAS_SWEEPS):
        rest = numbers - columns[entries.columns]
        new_rows = np.bincount(entries.rows, rest, entries.shape[0]) / row_sizes
        rest = numbers - new_rows[entries.rows]
        columns = np.bincount(entries.columns, rest, entries.shape[1]) / column_sizes
        change, rows = float(np.abs(new_rows - rows).max(initial=0)), new_rows
        if change <= BIAS_TOLERANCE * max(float(np.abs(rows).max(initial=0)), 1.0):
            break
    return Biases(mean, rows, columns)


# --- matrices of low rank -------------------------------------------------------------------------------------------


class LowRank(NamedTuple):
    """The matrix `rows @ columns.T`."""

    rows: Floats  # [rows, width]
    columns: Floats  # [columns, width]

    @property
    def rank(self) -> int:
        """How many columns of `rows` there are up to the last that is not 0."""
        places = np.flatnonzero(np.any(self.rows, axis=0))
        return int(places[-1]) + 1 if len(places) else 0

    def at(self, rows: Integers, columns: Integers) -> Floats:
        """The entries at some places, [places]; 0 where a row or column is not known, -1."""
        rank, entries = self.rank, np.zeros(len(rows))
        of_rows, of_columns = self.rows[:, :rank], self.columns[:, :rank]
        for part in blocks(len(rows), ENTRIES_AT_ONCE):
            entries[part] = np.einsum("ij,ij->i", of_rows[rows[part]], of_columns[columns[part]])
        entries[(rows < 0) | (columns < 0)] = 0
        return entries


class Setting(NamedTuple):
    """What a method has to be told."""

    rank: int
    shrinkage: float = 0.0  # t


Step: TypeAlias = Callable[[KnownEntries, LowRank, Setting], LowRank]


def first_factors(method: MethodName, entries: KnownEntries, setting: Setting) -> LowRank:
    """The matrix 0, and random columns from which singular vectors, or factors, are looked for."""
    width = setting.rank
    if method != "als":
        width = min(setting.rank, FIRST_WIDTH) if method == "soft_impute" else setting.rank
        width += OVERSAMPLED
    width = min(width, *entries.shape)
    columns = with_random_columns(np.zeros((entries.shape[1], 0)), width)
    if method == "als":
        columns *= np.sqrt(entries.shape[1] / width)  # numbers of about the size of what they have to multiply to
    return LowRank(np.zeros((entries.shape[0], width)), columns)


def with_random_columns(columns: Floats, width: int) -> Floats:
    """Orthonormal columns [rows, columns], and after them others, so that there are `width`."""
    rows, known = columns.shape
    more = np.random.default_rng(SEED + known).normal(size=(rows, width - known))
    more -= columns @ (columns.T @ more)
    return np.concatenate([columns, np.linalg.qr(more)[0]], axis=1)


def filled_in(entries: KnownEntries, estimate: LowRank) -> LinearOperator:
    """X + P(A - X), the known entries and elsewhere the estimate X, as what products are taken of."""
    from scipy.sparse.linalg import LinearOperator

    rank = estimate.rank
    rows, columns = estimate.rows[:, :rank], estimate.columns[:, :rank]
    rest = entries.sparse(entries.numbers - estimate.at(entries.rows, entries.columns))
    transposed = rest.T.tocsr()
    return LinearOperator(
        entries.shape,
        matvec=lambda vector: rest @ vector + rows @ (columns.T @ vector),
        rmatvec=lambda vector: transposed @ vector + columns @ (rows.T @ vector),
        matmat=lambda matrix: rest @ matrix + rows @ (columns.T @ matrix),
        rmatmat=lambda matrix: transposed @ matrix + columns @ (rows.T @ matrix),
        dtype=np.float64,
    )


def leading_triplets(
    operator: LinearOperator, start: Floats, rank: int, tolerance: float = TOLERANCE
) -> tuple[Floats, Floats, Floats]:
    """The largest singular values and their vectors, by block power iterations (Halko et al., 2011).

    Args:
        operator: The matrix, [rows, columns].
        start: Orthonormal columns to begin with, [columns, width].
        rank: How many singular values are to be exact; the others of the width are nearly so.
        tolerance: Iterations end when the sum of their squares changes by less, relative to it.

    Returns:
        [rows, width], [width] in descending order and [columns, width].

    """
    right, before = start, 0.0
    for _ in range(MOST_ITERATIONS):
        left, _ = np.linalg.qr(operator.matmat(right))
        right, values, mixed = np.linalg.svd(operator.rmatmat(left), full_matrices=False)
        energy = float(np.square(values[:rank]).sum())
        if abs(energy - before) <= tolerance * energy:
            break
        before = energy
    return left @ mixed.T, values, right


def projection_step(entries: KnownEntries, estimate: LowRank, setting: Setting) -> LowRank:
    """[X + P(A - X)]_k, of the singular values the k largest."""
    left, values, right = leading_triplets(filled_in(entries, estimate), estimate.columns, setting.rank)
    kept = np.where(np.arange(len(values)) < setting.rank, values, 0)
    return LowRank(left * kept, right)


def shrinkage_step(entries: KnownEntries, estimate: LowRank, setting: Setting) -> LowRank:
    """shrink_t(X + P(A - X)), of the singular values what is above t.

    Where nearly all that are looked for are above it, the next step looks for twice as many.
    """
    left, values, right = leading_triplets(filled_in(entries, estimate), estimate.columns, setting.rank)
    width = len(values)
    rows = left * np.where(np.arange(width) < setting.rank, np.maximum(values - setting.shrinkage, 0), 0)
    wider = min(2 * width, setting.rank + OVERSAMPLED, *entries.shape)
    if np.count_nonzero(values > setting.shrinkage) > width - OVERSAMPLED // 2 and wider > width:
        rows = np.concatenate([rows, np.zeros((len(rows), wider - width))], axis=1)
        right = with_random_columns(right, wider)
    return LowRank(rows, right)


def alternating_step(entries: KnownEntries, estimate: LowRank, setting: Setting) -> LowRank:
    """The ridge regression of each row on the factors of its columns, then that of each column."""
    ridge = np.full(estimate.columns.shape[1], setting.shrinkage)
    rows = SmallRidges(entries.rows, entries.columns, entries.shape[0]).solve(estimate.columns, entries.numbers, ridge)
    columns = SmallRidges(entries.columns, entries.rows, entries.shape[1]).solve(rows, entries.numbers, ridge)
    return LowRank(rows, columns)


STEPS: Mapping[MethodName, Step] = {
    "svd": projection_step,
    "als": alternating_step,
    "soft_impute": shrinkage_step,
}


def factorize(method: MethodName, entries: KnownEntries, setting: Setting, steps: int) -> LowRank:
    """So many steps of a method, from the matrix 0.

    Args:
        method: "svd", "als" or "soft_impute".
        entries: The known entries, without biases.
        setting: The rank, and the shrinkage t of the latter two.
        steps: How many.

    """
    estimate = first_factors(method, entries, setting)
    for _ in range(steps):
        estimate = STEPS[method](entries, estimate, setting)
    return estimate


# --- what is best on held-out entries -------------------------------------------------------------------------------


class Chosen(NamedTuple):
    """A setting, and how many steps of it had the least error on the held-out entries; 0 for biases alone."""

    error: float  # the mean square
    setting: Setting
    steps: int


def noise_level(entries: KnownEntries) -> float:
    """About the largest singular value of independent numbers of variance 1 in the known places."""
    rows, columns = entries.shape
    return float(np.sqrt(len(entries.numbers) / (rows * columns)) * (np.sqrt(rows) + np.sqrt(columns)))


def choose(method: MethodName, entries: KnownEntries, held_out: KnownEntries) -> Chosen:
    """The rank, the shrinkage and the number of steps that are best on entries that were held out.

    Args:
        method: "svd", "als" or "soft_impute".
        entries: What is learnt from, without biases and with variance 1.
        held_out: Other entries on the same scale.

    """
    most_rank = min(entries.shape)
    unit, best = noise_level(entries), Chosen(float(np.square(held_out.numbers).mean()), Setting(1), 0)
    if method == "svd":
        return _best_of(method, [Setting(rank) for rank in RANKS if rank <= most_rank], entries, held_out, best)
    rank = min(most_rank, MOST_RANK if method == "soft_impute" else FIRST_RANK)
    best = _best_of(method, [Setting(rank, unit * share) for share in SHRINKAGES], entries, held_out, best)
    if method == "als" and best.steps:
        other_ranks = [other_rank for other_rank in OTHER_RANKS if other_rank <= most_rank]
        settings = [Setting(other_rank, best.setting.shrinkage) for other_rank in other_ranks]
        best = _best_of(method, settings, entries, held_out, best)
    return best


def _best_of(
    method: MethodName, settings: Sequence[Setting], entries: KnownEntries, held_out: KnownEntries, best: Chosen
) -> Chosen:
    """The best of some settings and of what was best before."""
    settings_without_gain, is_better = 0, False
    for setting in settings:
        chosen = _best_steps(method, setting, entries, held_out)
        if chosen.error < best.error * (1 - LEAST_GAIN):
            best, is_better, settings_without_gain = chosen, True, 0
        else:
            settings_without_gain += is_better
        if settings_without_gain == PATIENCE:
            break
    return best


def _best_steps(method: MethodName, setting: Setting, entries: KnownEntries, held_out: KnownEntries) -> Chosen:
    """How many steps of a setting are best."""
    estimate = first_factors(method, entries, setting)
    best = Chosen(np.inf, setting, 0)
    for step in range(1, MOST_STEPS + 1):
        estimate = STEPS[method](entries, estimate, setting)
        error = float(np.square(held_out.numbers - estimate.at(held_out.rows, held_out.columns)).mean())
        if error < best.error * (1 - LEAST_GAIN):
            best = Chosen(error, setting, step)
        elif step - best.steps == PATIENCE:
            break
    return best


class CompletedMatrix(NamedTuple):
    """A matrix of which all entries are known: those of biases and, in units of `deviation`, of factors."""

    biases: Biases
    factors: LowRank
    deviation: float
    chosen: Chosen

    def at(self, rows: Integers, columns: Integers) -> Floats:
        """The entries at some places, [places]; -1 stands for a row or column that is not known."""
        numbers: Floats = self.biases.at(rows, columns) + self.deviation * self.factors.at(rows, columns)
        return numbers


def complete_matrix(method: MethodName, entries: KnownEntries) -> CompletedMatrix:
    """Complete a matrix; what the method has to be told is chosen on a tenth of the known entries.

    Args:
        method: "svd", "als" or "soft_impute".
        entries: The known entries.

    >>> rows, columns = np.divmod(np.arange(400), 20)
    >>> matrix = np.outer(np.arange(20) - 9.0, np.cos(np.arange(20)))
    >>> known = np.arange(400) % 7 != 3
    >>> entries = known_entries(rows[known], columns[known], matrix.reshape(-1)[known], (20, 20))
    >>> completed = complete_matrix("als", entries)
    >>> bool(np.abs(completed.at(rows, columns) - matrix.reshape(-1)).mean() < np.abs(matrix).mean() / 5)
    True

    """
    is_held_out = np.zeros(len(entries.numbers), np.bool_)
    held_count = max(round(HELD_OUT * len(is_held_out)), 1)
    is_held_out[np.random.default_rng(SEED).choice(len(is_held_out), held_count, replace=False)] = True
    if is_held_out.all():
        is_held_out[:] = False
    learnt, held_out = entries.take(~is_held_out), entries.take(is_held_out if is_held_out.any() else ~is_held_out)
    errors = []
    for damping in DAMPINGS:
        biases = fit_biases(learnt, damping)
        errors.append(float(np.square(held_out.numbers - biases.at(held_out.rows, held_out.columns)).mean()))
    damping = DAMPINGS[int(np.argmin(errors))]
    learnt, deviation = _without_biases(learnt, biases := fit_biases(learnt, damping))
    rest = (held_out.numbers - biases.at(held_out.rows, held_out.columns)) / deviation
    chosen = choose(method, learnt, held_out.with_numbers(rest))
    biases = fit_biases(entries, damping)
    entries, deviation = _without_biases(entries, biases)
    factors = factorize(method, entries, chosen.setting, chosen.steps)
    return CompletedMatrix(biases, factors, deviation, chosen)


def _without_biases(entries: KnownEntries, biases: Biases) -> tuple[KnownEntries, float]:
    """What biases leave, in units of its deviation, and this unit."""
    rest = entries.numbers - biases.at(entries.rows, entries.columns)
    deviation = float(np.sqrt(np.square(rest).mean())) or 1.0
    return entries.with_numbers(rest / deviation), deviation
