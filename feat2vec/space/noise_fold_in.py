"""Vectors of new values of a run without a target: they solve their rows among the candidates that are known.

Without a target a run learns how probable a value v is in the context C of its row, the sum of the other groups'
vectors:

    p(v | C) = exp(e_v) / sum over values u of exp(e_u),    e_v = (v . C + l_v) / T + b log(count_v + 1)

with b = 0 where scores are learnt as log p (see `ObjectiveSpec.missing_popularity`), and v of length 1 if the objective
has `unit`. With all else held, Z(C) = sum of exp(e_u) over the known values is given, and of a new value d the
multinomial loss of all rows is, but for a constant,

    sum over its own rows of log(1 + Z / exp(e_d)) + sum over the other rows of log(1 + exp(e_d) / Z)

The first sum draws the value to its contexts. The second keeps it from being found in the rows of others. A run does
not have these rows; but a new value is improbable in nearly all of them, and then the terms are exp(e_d) / Z, whose sum
over N contexts that are normal, with the mean m and covariance S when each is weighted by 1 / Z, has a closed form:

    N E[1 / Z] exp((d . m + l_d) / T + d' S d / (2 T^2) + b log(count_d + 1))

Both sums are convex in (d, l_d). Where d is improbable in its own rows, too, and l_d is free, the minimum is that of a
least-squares problem, d = T S^-1 (mean of its contexts - m). The whole is solved by descent whose matrix is that of
this problem, the same for all values; of length 1, d goes down on the sphere. m, S and E[1 / Z] come from rows that the
run has kept, or else from rows that are made of values of each group by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feat2vec.arrays import Array, Float32s, Floats, Int64s
from feat2vec.encode.codecs import ItemsCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.vocabulary import FIRST
from feat2vec.errors import UserError, listed
from feat2vec.model.lookup_arrays import BagSums
from feat2vec.schema.objectives.formulas import UNIT_EPSILON, sigmoid
from feat2vec.schema.options import Schema
from feat2vec.space.geometry import Candidates, Model, Queries, blocks, similarities
from feat2vec.space.neighbours import KeptRows
from feat2vec.space.new_values import NewRows, context_queries, entries_of_keys, partners_of, sums_of_groups

SEED = 0
REFERENCE_ROWS = 1024  # contexts that other rows are known by
MOST_CANDIDATES = 4096  # of which Z is the sum; of more, half are the most frequent, and the others stand for the rest
SCORES_AT_ONCE = 1 << 21
MOST_STEPS, TOLERANCE = 200, 1e-9
LONGER, SHORTER = 1.5, 0.4  # what a step is multiplied by after one that lowered the loss, and one that did not
LEAST_CURVATURE = 1e-3  # relative to the mean of S
LARGEST_EXPONENT = 60.0


@dataclass(frozen=True)
class KnownCandidates:
    """What a new value competes with in any row.

    Args:
        candidates: Known values, as scores meet them.
        offsets: l / T + b log(count + 1) of each, and the log of how many it stands for, [candidates].
        temperature: T.
        popularity: b.
        mean: m, [D_1].
        covariance: S, [D_1, D_1].
        log_mass: log(N E[1 / Z]).
        length: The mean length of known vectors of the first level.

    """

    candidates: Candidates
    offsets: Floats
    temperature: float
    popularity: float
    mean: Floats
    covariance: Floats
    log_mass: float
    length: float

    def log_partition(self, contexts: Queries) -> Floats:
        """Log Z in contexts, [rows]."""
        return log_partition(contexts, self.candidates, self.offsets, self.temperature)


def log_partition(contexts: Queries, values: Candidates, offsets: Floats, temperature: float) -> Floats:
    """The log of the sum over values of exp(v . C / T + offset) in contexts, [rows]; `offsets` are [values]."""
    sums = np.zeros(len(contexts.free[0]))
    for block in blocks(len(sums), max(SCORES_AT_ONCE // len(offsets), 1)):
        exponents = similarities(contexts.take(block), values, "dot") / temperature + offsets  # [rows, values]
        largest = exponents.max(axis=1, keepdims=True)
        sums[block] = largest[:, 0] + np.log(np.exp(exponents - largest).sum(axis=1))
    return sums


def known_candidates(model: Model, encoder: Encoder, group: str, kept_rows: KeptRows | None = None) -> KnownCandidates:
    """Read what new values of a group compete with.

    Args:
        model: The run's model.
        encoder: The run's encoder.
        group: A lookup group.
        kept_rows: Training rows that the run has kept.

    """
    schema = encoder.schema
    temperature = schema.objective.score_scale
    popularity = schema.objective.missing_popularity(schema.noise.alpha_values)
    codec = encoder.codecs[group]
    assert isinstance(codec, ItemsCodec)
    places, shares = _chosen_candidates(len(codec.vocabulary.keys))
    counts = codec.vocabulary.counts[places]
    sums = sums_of_groups(model, {group: entries_of_keys(codec, places + FIRST)})[group]
    values = _candidates_of(schema, sums, counts)
    length = float(np.sqrt(values.squares[0]).mean())
    if schema.objective.unit_candidates:
        values = Candidates([table / _lengths(table) for table in values.tables])
    offsets = sums.linear / temperature + popularity * np.log(counts + 1.0) + np.log(shares)
    contexts = reference_contexts(model, encoder, group, kept_rows)
    log_sums = log_partition(contexts, values, offsets, temperature)
    weights = np.exp(log_sums.min() - log_sums)  # in proportion to 1 / Z
    rows = max(int(np.sum(of_group.counts)) for of_group in encoder.values.values())
    log_mass = float(np.log(rows) + np.log(weights.mean()) - log_sums.min())
    weights /= weights.sum()
    vectors = (contexts.free[0] + contexts.dependent[0]).astype(np.float64)  # [rows, D_1]
    mean = weights @ vectors
    covariance = (vectors - mean).T @ ((vectors - mean) * weights[:, None])
    return KnownCandidates(values, offsets, temperature, popularity, mean, covariance, log_mass, length)


def _candidates_of(schema: Schema, sums: BagSums, counts: Int64s) -> Candidates:
    """Keys with their vectors at the levels that they reach, given those of all levels and how often each occurs."""
    levels = schema.model.levels.of_counts(counts)  # [keys], descending as the counts
    tables = []
    for level, (free, dependent) in enumerate(zip(sums.free, sums.dependent, strict=True), start=1):
        tables.append((free + dependent)[: int(np.count_nonzero(levels >= level))])
    return Candidates(tables)


def _lengths(vectors: Float32s) -> Float32s:
    """The lengths of vectors [n, dim] as scores divide by them: [n, 1]."""
    squares = np.einsum("ij,ij->i", vectors, vectors)
    lengths: Float32s = np.sqrt(np.maximum(squares, np.float32(UNIT_EPSILON)))[:, None]
    return lengths


def _chosen_candidates(total: int) -> tuple[Int64s, Floats]:
    """The candidates that Z is made of, ascending, and how many values each stands for."""
    if total <= MOST_CANDIDATES:
        return np.arange(total), np.ones(total)
    frequent = MOST_CANDIDATES // 2
    drawn = np.random.default_rng(SEED).choice(total - frequent, MOST_CANDIDATES - frequent, replace=False)
    shares = np.ones(MOST_CANDIDATES)
    shares[frequent:] = (total - frequent) / len(drawn)
    return np.concatenate([np.arange(frequent), np.sort(drawn) + frequent]), shares


def reference_contexts(model: Model, encoder: Encoder, group: str, kept_rows: KeptRows | None) -> Queries:
    """Contexts of a group in rows that the run has kept, or that values of each other group make."""
    rng, partners = np.random.default_rng(SEED), partners_of(encoder.schema, group)
    if kept_rows is not None and len(kept_rows.value_ids) >= REFERENCE_ROWS:
        places = rng.choice(len(kept_rows.value_ids), REFERENCE_ROWS, replace=False)
        entries = {name: kept_rows.entries(name, places) for name in partners}
    else:
        rows = max(int(np.sum(values.counts)) for values in encoder.values.values())
        entries = {name: _drawn_entries(encoder, name, rows, rng) for name in partners}
    return context_queries(encoder.schema, group, sums_of_groups(model, entries))


def _drawn_entries(encoder: Encoder, group: str, rows: int, rng: np.random.Generator) -> Array:
    """Entries of a group as often as the training rows have them, [REFERENCE_ROWS, width]; missing ones are missing."""
    values = encoder.values[group]
    counts = np.asarray(values.counts, np.float64)
    places = rng.choice(len(counts), REFERENCE_ROWS, p=counts / counts.sum())
    entries = np.array(values.entries[places])
    entries[rng.random(REFERENCE_ROWS) >= counts.sum() / rows] = np.nan if entries.dtype == np.float32 else 0
    return entries


def check_target_of_noise(schema: Schema, group: str) -> None:
    """Raise a `UserError` unless values of a group are told from others, which is what a new one is solved for."""
    targets = schema.noise.targets
    if targets and group not in targets:
        raise UserError(
            f"--fold-in: {group!r} is no target of the noise, so that no score finds its values; "
            f"the targets are {listed(targets)}"
        )


# --- the loss and its least value -----------------------------------------------------------------------------------


class NewCandidates:
    """The loss of new values as a function of their vectors and terms, all at once.

    Args:
        known: What they compete with.
        new: Their rows.
        penalties: What half of the squares of vectors and of terms is multiplied by for each row of a value.

    """

    def __init__(self, known: KnownCandidates, new: NewRows, penalties: tuple[float, float]) -> None:
        self.known, self.items, self.penalties = known, new.items, penalties
        self.contexts = new.contexts[new.items.rows]  # [items, D_1]
        self.log_sums = known.log_partition(new.queries)[new.items.rows]  # [items]
        self.counts = np.bincount(new.items.values, minlength=len(new.keys)).astype(np.float64)  # [values]
        self.offsets = known.popularity * np.log(self.counts + 1)  # [values]

    def loss(self, vectors: Floats, terms: Floats) -> tuple[Floats, Floats, Floats]:
        """The loss of each value divided by its rows [values], and its gradient [values, D_1] and [values]."""
        known, values = self.known, self.items.values
        scores = np.einsum("ij,ij->i", vectors[values], self.contexts) + terms[values]
        logits = scores / known.temperature + self.offsets[values] - self.log_sums  # [items], log(exp(e_d) / Z)
        pull = sigmoid(-logits) / known.temperature  # [items]
        spread = vectors @ known.covariance / known.temperature  # [values, D_1]
        exponents = (vectors @ known.mean + terms + np.einsum("ij,ij->i", spread, vectors) / 2) / known.temperature
        mass = np.exp(np.minimum(known.log_mass + exponents + self.offsets, LARGEST_EXPONENT))  # [values]
        push = mass / known.temperature / self.counts
        of_vectors, of_terms = self.penalties
        losses = np.bincount(values, np.logaddexp(0, -logits), len(vectors)) / self.counts + mass / self.counts
        losses += of_vectors / 2 * np.square(vectors).sum(axis=1) + of_terms / 2 * np.square(terms)
        pulls = np.zeros(vectors.shape)
        np.add.at(pulls, values, pull[:, None] * self.contexts)
        slopes = push[:, None] * (known.mean + spread) - pulls / self.counts[:, None] + of_vectors * vectors
        term_slopes = push - np.bincount(values, pull, len(vectors)) / self.counts + of_terms * terms
        return losses, slopes, term_slopes


def solve_by_noise(known: KnownCandidates, schema: Schema, group: str, new: NewRows) -> tuple[Floats, Floats]:
    """The vectors [values, D_1], without the group's gain, and the linear terms [values] of new values.

    Where vectors have length 1 in scores, the length that they get is the mean of the known ones.

    Args:
        known: What the values compete with.
        schema: That of the run.
        group: The group.
        new: Their rows.

    """
    gain, training = schema.groups[group].extractor.gain, schema.training
    is_unit, has_terms = schema.objective.unit_candidates, schema.model.bias
    of_vectors = 0.0 if is_unit else training.l2_of(group) / gain**2
    candidates_of_rows = NewCandidates(known, new, (of_vectors, training.l2_linear))
    matrix = known.covariance / known.temperature**2
    least = LEAST_CURVATURE * float(np.trace(matrix)) / len(matrix) + 1e-9
    inverse = np.linalg.inv(matrix + (of_vectors + least) * np.eye(len(matrix)))
    of_term = 1 / (1 / known.temperature**2 + training.l2_linear)
    vectors, terms = np.zeros((len(new.keys), len(matrix))), np.zeros(len(new.keys))
    if is_unit:
        vectors = _unit(candidates_of_rows.loss(vectors, terms)[1] * -1)
    rates = np.full(len(vectors), 0.5)  # of the steps of each value
    losses, slopes, term_slopes = candidates_of_rows.loss(vectors, terms)
    for _ in range(MOST_STEPS):
        if is_unit:
            along = slopes - np.einsum("ij,ij->i", slopes, vectors)[:, None] * vectors
            steps = along * known.temperature**2
        else:
            steps = slopes @ inverse
        new_vectors = vectors - rates[:, None] * steps
        new_vectors = _unit(new_vectors) if is_unit else new_vectors
        new_terms = terms - rates * of_term * term_slopes if has_terms else terms
        new_losses, new_slopes, new_term_slopes = candidates_of_rows.loss(new_vectors, new_terms)
        is_lower = new_losses <= losses
        gain_of_step = np.where(is_lower, losses - new_losses, 0).max(initial=0)
        vectors, terms = np.where(is_lower[:, None], new_vectors, vectors), np.where(is_lower, new_terms, terms)
        slopes = np.where(is_lower[:, None], new_slopes, slopes)
        term_slopes, losses = np.where(is_lower, new_term_slopes, term_slopes), np.where(is_lower, new_losses, losses)
        rates = np.where(is_lower, rates * LONGER, rates * SHORTER)
        if gain_of_step <= TOLERANCE * np.abs(losses).max(initial=1) and is_lower.any():
            break
    return vectors * (known.length if is_unit else 1.0) / gain, terms


def _unit(vectors: Floats) -> Floats:
    """Vectors [values, D_1] of length 1."""
    squares: Floats = np.maximum(np.square(vectors).sum(axis=1, keepdims=True), 1e-30)
    scaled: Floats = vectors / np.sqrt(squares)
    return scaled
