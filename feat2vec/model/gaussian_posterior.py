"""A factorization machine of normal weights (`model.posterior: gaussian`), by variational inference.

A weight has a mean m, which is the number in the ordinary tables, and a variance s. Weights are independent (mean
field). The prior of a weight is normal with mean u, that of its group at the coordinate (0 for linear terms), and
precision p; the errors of labels y are normal with variance v. Training makes the sum over the rows of (y - f)^2 +
Var f small, with f the score of the means, and over values, each once, that of v p (m - u)^2.

At each coordinate let M and S be the sums of a group's means and variances in a row, and H and R those of the other
groups' M and S. With M' and S' the linear terms' sums,

    f = bias + sum of M' + 1/2 sum of M H over groups and coordinates
    Var f = sum of S' + sum of S H^2 + 1/2 S R over groups and coordinates

The means learn by the gradient. A variance needs none, as its best value follows from the curvature, H^2 + R times the
square of what the value is multiplied by in the row: if A is the mean curvature of a value's n occurrences,

    s = v / (v p + n A)

A step brings the A of its own keys nearer to what it finds. So a table of A is all that is kept beside the means.

With `model.members` the coordinates are those of several such models side by side, each of which learns the labels by
itself, with the pairs of its own coordinates; bias and linear terms are theirs in common. Their mean predicts: its
vectors, which are in the tables, are the members' vectors over the root of their number. What is said of vectors here,
of their means, variances and prior, is said of the members'.

After each pass over the rows v is the mean of what the rows have, u the mean of a group's m, and a group's precision of
linear terms, where the schema has none, the inverse of the mean of m^2 + s. The vector of values that no row has is u.
Groups that share their weights have one posterior, which the occurrences in all of them tell. An item that is in a list
twice, or in two such groups of a row, counts as two independent ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from feat2vec.arrays import Integers
from feat2vec.model.extractors import LookupExtractor
from feat2vec.model.extractors.base import UNSEEN
from feat2vec.model.extractors.lookup import Bags, sum_bags
from feat2vec.model.group_vectors import join_entries
from feat2vec.model.large_variables import RowStart
from feat2vec.model.optimizers import Rows, by_row
from feat2vec.model.optimizers.base import Gradient, exclusive
from feat2vec.model.optimizers.row_updates import RowsOfTable, rows_by_part
from feat2vec.model.pair_scores import Tensor
from feat2vec.schema.options import Schema

KEPT_CURVATURE = 0.5  # the share of a value's mean curvature that is as it was before a pass over the rows
FIRST_LINEAR_PRECISION = 4.0  # where it is learnt
FIRST_NOISE = 0.5  # of labels in units of their deviation
# v is this times the mean of what rows have, as colder posteriors predict better (Wenzel et al., 2020).
TEMPERATURE = 0.8


class Moments(NamedTuple):
    """What the rows of a batch have of each group: coordinates of the vectors, and last the linear term."""

    means: Tensor  # [groups, batch, D + 1]
    variances: Tensor  # [groups, batch, D + 1]


class ExpectedErrors(NamedTuple):
    """The expected squared errors of rows, and what half of them has by the moments."""

    errors: Tensor  # [batch], the label less the score of the means
    squares: Tensor  # [batch], the square of the error plus the variance of the score, the mean of those of members
    # The gradient of half of `squares` by the means, and twice that by the variances: [groups, batch, D + 1]; of a
    # coordinate those of its own member's squares.
    slopes: Tensor
    curvatures: Tensor


class PosteriorStep(NamedTuple):
    """What a batch changes."""

    loss: Tensor  # scalar, the mean expected squared error
    gradients: list[tuple[Gradient, keras.Variable]]  # of the means and the bias
    rows: Tensor  # [keys], rows of the table of curvatures
    curvatures: Tensor  # [keys, D + 1], their means in this batch
    nearer: Tensor  # [keys, 1], the share of the way to these that the kept ones go
    squares: Tensor  # [2], the sum of expected squared errors times the rows' weights, and of the weights
    batch: Tensor  # the number of rows
    # Sums of m^2 + s of linear terms, of how many values they are, and of the means of vectors: [groups, 2 + D].
    group_sums: Tensor


class CurvatureStart(RowStart):
    """What curvatures begin with: those of vectors with a number, those of linear terms with 1.

    Args:
        of_vectors: The number.

    """

    def __init__(self, of_vectors: float) -> None:
        self.of_vectors = of_vectors

    def table(self, shape: Sequence[int], dtype: tf.DType) -> Tensor:
        """The numbers of a whole table."""
        return tf.cast(self.rows(slice(0, shape[0]), shape[1]), dtype)

    def rows(self, rows: slice, dim: int) -> Tensor:
        """Some rows of it, [rows, dim]."""
        return tf.tile(tf.constant([[self.of_vectors] * (dim - 1) + [1.0]]), [rows.stop - rows.start, 1])


class GaussianPosterior:
    """The state that training has beside the means, and what a batch does to both.

    What is said of a group holds for all groups that share its weights: of these it is the first, `schema.owners`.

    Args:
        schema: The schema, whose `posterior` is gaussian.
        sizes: The number of rows of each group's table.
        counts: How often each of them occurs in the training rows, [rows of the table] of each group.
        rows: The number of training rows.

    """

    def __init__(self, schema: Schema, sizes: Sequence[int], counts: Sequence[Integers], rows: int) -> None:
        training, dim, scale = schema.training, schema.model.dim, schema.model.scale
        self.dim, self.row_count, self.members = dim, rows, schema.model.members
        self.unit = self.members**0.5  # what the tables' vectors are multiplied by to be the members'
        self.starts = np.cumsum([0, *sizes])[:-1]  # [groups], where a group's rows begin in the table of curvatures
        self.precisions = tf.constant([schema.l2_of(name) for name in schema.owners], tf.float32)  # of vectors
        self.learns_linear = not training.l2_linear
        self.counts = tf.Variable(np.concatenate(counts).astype(np.float32), trainable=False)
        self.curvatures = by_row(
            keras.Variable(
                CurvatureStart((self.unit * scale) ** 2),
                shape=(sum(sizes), dim + 1),
                dtype="float32",
                trainable=False,
                name="curvatures",
            )
        )
        first_linear = training.l2_linear or FIRST_LINEAR_PRECISION
        self.noise = _variable(FIRST_NOISE, "noise")  # v; labels are in units of their deviation
        self.linear_precisions = _variable(np.full(len(sizes), first_linear), "linear_precisions")  # [groups]
        self.squares = _variable(np.zeros(2), "squares")  # of this pass over the rows; see `PosteriorStep`
        self.prior_means = _variable(np.zeros((len(sizes), dim)), "prior_means")  # u, [groups, D]
        self.group_sums = _variable(np.zeros((len(sizes), 2 + dim)), "group_sums")  # of this pass, too
        # The groups of which no training row has a value that was left out of the vocabulary.
        self.knows_unseen = [bool(of_group[0]) for of_group in counts]
        self.rows_of_pass = keras.Variable(np.int64(0), dtype="int64", trainable=False, name="rows_of_pass")

    @property
    def variables(self) -> list[keras.Variable]:
        """All that training changes, for checkpoints."""
        return [
            self.curvatures,
            self.noise,
            self.linear_precisions,
            self.prior_means,
            self.squares,
            self.group_sums,
            self.rows_of_pass,
        ]

    def variances(self, rows: Tensor, precisions: Tensor) -> Tensor:
        """The variances of weights.

        Args:
            rows: Rows of the table of curvatures, [keys].
            precisions: The precisions of their prior, [keys, D + 1].

        Returns:
            [keys, D + 1], those of linear terms last.

        """
        counts = tf.gather(self.counts, rows)[:, None]
        noise = self.noise.value
        return noise / (noise * precisions + counts * tf.gather(self.curvatures.value, rows))

    def step(
        self,
        extractors: Sequence[LookupExtractor],
        entries: Sequence[Sequence[Tensor]],
        bias: keras.Variable,
        labels: Tensor,
        weights: Tensor | None,
    ) -> PosteriorStep:
        """What a batch changes, computed from the state before it.

        Args:
            extractors: The layer of each group.
            entries: The entries of each group and of those that share it, [batch, width] each.
            bias: What every score has.
            labels: In units of their deviation, [batch].
            weights: What the errors of the rows are multiplied by, [batch]; None where each is 1.

        Returns:
            The loss, gradients and new curvatures.

        """
        bags = [extractor.bags(join_entries(parts)) for extractor, parts in zip(extractors, entries, strict=True)]
        columns = [len(parts) for parts in entries]  # of each group, side by side in a row
        sizes = tf.stack([tf.size(group.ids) for group in bags])  # [groups], of keys
        table_rows = [group.ids - UNSEEN for group in bags]
        units = tf.constant([self.unit] * self.dim + [1.0])  # [D + 1]
        table_means = [_means(*read) for read in zip(extractors, table_rows, strict=True)]
        means = tf.concat(table_means, axis=0) * units  # [keys, D + 1]
        places = [tf.cast(rows, tf.int64) + start for rows, start in zip(table_rows, self.starts, strict=True)]
        rows = tf.concat(places, axis=0)  # [keys]
        precisions = self._precisions_of_keys(sizes)
        variances = self.variances(rows, precisions)

        moments = [
            sum_moments(group, *of_group)
            for group, *of_group in zip(bags, tf.split(means, sizes), tf.split(variances, sizes), strict=True)
        ]
        all_columns = (sum(columns), tf.shape(labels)[0], self.dim + 1)  # [columns, batch, D + 1]
        below_each_other = [tf.concat(parts, axis=0) for parts in zip(*moments, strict=True)]
        in_rows = Moments(*(tf.reshape(part, all_columns) for part in below_each_other))
        expected = expected_errors(in_rows, bias.value, labels, self.members)
        slopes, curvatures, row_weights = expected.slopes, expected.curvatures, tf.ones_like(expected.squares)
        if weights is not None:
            row_weights = tf.cast(weights, labels.dtype)
            slopes, curvatures = slopes * row_weights[:, None], curvatures * row_weights[:, None]
        of_groups = [
            [tf.reshape(part, (-1, self.dim + 1)) for part in tf.split(of_columns, columns)]
            for of_columns in (slopes, curvatures)
        ]
        of_keys = [
            add_to_keys(group, slope, curvature) for group, slope, curvature in zip(bags, *of_groups, strict=True)
        ]
        of_keys = tf.concat(of_keys, axis=0)  # [keys, 2 (D + 1)]

        counts = tf.concat([group.counts for group in bags], axis=0)[:, None]  # [keys, 1], in this batch
        shares = counts / tf.maximum(tf.gather(self.counts, rows)[:, None], counts)  # of all occurrences
        prior_means = tf.pad(tf.repeat(self.prior_means.value, sizes, axis=0), [[0, 0], [0, 1]])  # [keys, D + 1]
        of_prior = shares * self.noise.value * precisions * (means - prior_means)
        gradients = units * (of_keys[:, : self.dim + 1] + of_prior) / counts
        of_batch = of_keys[:, self.dim + 1 :] / counts
        nearer = 1 - tf.pow(KEPT_CURVATURE, shares)

        linear_squares = shares * (tf.square(means[:, self.dim :]) + variances[:, self.dim :])  # [keys, 1]
        sums_of_keys = tf.concat([linear_squares, shares, shares * means[:, : self.dim]], axis=1)  # [keys, 2 + D]
        group_of_key = tf.repeat(tf.range(len(bags)), sizes)
        squares = expected.squares * row_weights
        pairs: list[tuple[Gradient, keras.Variable]] = []
        for extractor, ids, gradient in zip(extractors, table_rows, tf.split(gradients, sizes), strict=True):
            of_tables = (Rows(ids, gradient[:, : self.dim]), Rows(ids, gradient[:, self.dim :]))
            for table, of_table in zip((extractor.tables[0], extractor.linear), of_tables, strict=True):
                pairs += [(of_part, part) for part, of_part in rows_by_part(table, of_table)]
        pairs.append((-tf.reduce_mean(expected.errors * row_weights), bias))
        return PosteriorStep(
            tf.reduce_mean(squares),
            [(gradient, variable) for gradient, variable in pairs if variable.trainable],
            rows,
            of_batch,
            nearer,
            tf.stack([tf.reduce_sum(squares), tf.reduce_sum(row_weights)]),
            tf.shape(labels, tf.int64)[0],
            tf.math.unsorted_segment_sum(sums_of_keys, group_of_key, len(bags)),
        )

    def update(
        self, step: PosteriorStep, extractors: Sequence[LookupExtractor], optimizer: keras.optimizers.Optimizer
    ) -> None:
        """Take the new curvatures, and after a pass over the training rows what they say of the noise and the priors.

        Args:
            step: What a batch changes.
            extractors: The layer of each group, which gets the vector of values that no row has.
            optimizer: That of the means, which says where updates are computed, and whether steps wait for each other.

        """
        numbers = tf.concat([step.nearer, step.curvatures], axis=1)  # [keys, D + 2]
        for part, rows in rows_by_part(self.curvatures, tf.IndexedSlices(numbers, step.rows)):
            with exclusive(optimizer, part, [rows.ids, rows.values], is_beside=True):
                nearer, of_batch = rows.values[:, :1], rows.values[:, 1:]
                RowsOfTable(part, rows.ids).update(_brought_nearer(of_batch, nearer))
        with exclusive(optimizer, self.rows_of_pass, [step.squares, step.group_sums, step.batch]):
            self._end_step(step, extractors)

    def _end_step(self, step: PosteriorStep, extractors: Sequence[LookupExtractor]) -> None:
        """Add what a batch says of the noise and the priors, which are taken from it after a pass over the rows."""
        squares, group_sums = self.squares.value + step.squares, self.group_sums.value + step.group_sums
        rows_of_pass = self.rows_of_pass.value + step.batch
        is_over = rows_of_pass >= self.row_count
        noise = tf.minimum(TEMPERATURE * squares[0] / squares[1], 1.0)
        self.noise.assign(tf.where(is_over, noise, self.noise.value))
        if self.learns_linear:
            linear_precisions = tf.math.divide_no_nan(group_sums[:, 1], group_sums[:, 0])
            self.linear_precisions.assign(tf.where(is_over, linear_precisions, self.linear_precisions.value))
        prior_means = tf.math.divide_no_nan(group_sums[:, 2:], group_sums[:, 1:2])
        self.prior_means.assign(tf.where(is_over, prior_means, self.prior_means.value))
        for extractor, knows_unseen, mean in zip(extractors, self.knows_unseen, tf.unstack(prior_means), strict=True):
            if not knows_unseen:
                unseen = RowsOfTable(extractor.tables[0], tf.constant([0]))
                unseen.update(_replaced_where(is_over, mean[None] / self.unit))
        self.squares.assign(tf.where(is_over, tf.zeros_like(squares), squares))
        self.group_sums.assign(tf.where(is_over, tf.zeros_like(group_sums), group_sums))
        self.rows_of_pass.assign(tf.where(is_over, tf.zeros_like(rows_of_pass), rows_of_pass))

    def _precisions_of_keys(self, sizes: Tensor) -> Tensor:
        """The precisions of the prior of each key's weights, [keys, D + 1]; `sizes` is how many keys a group has."""
        of_vectors = tf.repeat(self.precisions[:, None], self.dim, axis=1)  # [groups, D]
        of_groups = tf.concat([of_vectors, self.linear_precisions.value[:, None]], axis=1)
        return tf.repeat(of_groups, sizes, axis=0)


def expected_errors(moments: Moments, bias: Tensor, labels: Tensor, members: int = 1) -> ExpectedErrors:
    """The expected squared errors of rows; see above for the formulas.

    Args:
        moments: Of the groups' sums.
        bias: Scalar.
        labels: [batch].
        members: How many models the coordinates are of, side by side.

    Returns:
        The means over the members, and how the moments change what each of them has.

    """
    dim = moments.means.shape[2] - 1

    def of_members(coordinates: Tensor) -> Tensor:  # [groups, batch, D] -> [batch, members]
        return tf.reduce_sum(tf.reshape(coordinates, [coordinates.shape[0], -1, members, dim // members]), axis=[0, 3])

    mean_sums, variance_sums = tf.reduce_sum(moments.means, axis=0), tf.reduce_sum(moments.variances, axis=0)
    means, variances = moments.means[..., :dim], moments.variances[..., :dim]  # [groups, batch, D]
    other_means = mean_sums[:, :dim] - means  # H
    other_variances = variance_sums[:, :dim] - variances  # R
    curvatures = tf.square(other_means) + other_variances
    without_pairs = labels - bias - mean_sums[:, dim]  # [batch]
    errors = without_pairs[:, None] - 0.5 * of_members(means * other_means)  # [batch, members]
    # S H^2 + 1/2 S R
    of_pairs = of_members(variances * (curvatures - 0.5 * other_variances))  # [batch, members]
    squares = tf.reduce_mean(tf.square(errors) + of_pairs, axis=1) + variance_sums[:, dim]
    by_means = variances * other_means
    of_coordinates = tf.repeat(errors, dim // members, axis=1)  # [batch, D]
    slopes = tf.reduce_sum(by_means, axis=0) - by_means - of_coordinates * other_means
    mean_errors = tf.reduce_mean(errors, axis=1)
    linear = tf.repeat(mean_errors[None, :, None], moments.means.shape[0], axis=0)  # [groups, batch, 1]
    return ExpectedErrors(
        mean_errors,
        squares,
        tf.concat([slopes, -linear], axis=2),
        tf.concat([curvatures, tf.ones_like(linear)], axis=2),
    )


def sum_moments(bags: Bags, means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """The means and variances of a group's sums.

    Args:
        bags: The bags of a batch.
        means: Of the keys' weights, [keys, n].
        variances: Of the keys' weights, [keys, n].

    Returns:
        Means and variances, [batch, n] each.

    """
    width, weights = means.shape[1], bags.items.weights
    if weights is None:
        sums = sum_bags(tf.concat([means, variances], axis=1), bags.items, bags.batch)
        of_means, of_variances = sums[:, :width], sums[:, width:]
    else:
        of_means = sum_bags(means, bags.items, bags.batch)
        of_variances = sum_bags(variances, bags.items._replace(weights=tf.square(weights)), bags.batch)
    if bags.scale is None:
        return of_means, of_variances
    return of_means * bags.scale, of_variances * tf.square(bags.scale)


def add_to_keys(bags: Bags, slopes: Tensor, curvatures: Tensor) -> Tensor:
    """What the keys of a group get from what the rows of a batch say of the group's sums.

    Args:
        bags: The bags of the batch.
        slopes: By the means of the sums, [batch, n].
        curvatures: By their variances, [batch, n].

    Returns:
        The sums over the occurrences of each key, [keys, 2 n]: slopes, then curvatures.

    """
    if bags.scale is not None:
        slopes, curvatures = slopes * bags.scale, curvatures * tf.square(bags.scale)
    weights = bags.items.weights
    if weights is None:
        of_items = tf.gather(tf.concat([slopes, curvatures], axis=1), bags.items.bags)
    else:
        of_slopes, of_curvatures = (tf.gather(part, bags.items.bags) for part in (slopes, curvatures))
        of_items = tf.concat([of_slopes * weights, of_curvatures * tf.square(weights)], axis=1)
    return tf.math.unsorted_segment_sum(of_items, bags.items.keys, tf.size(bags.ids))


def _means(extractor: LookupExtractor, rows: Tensor) -> Tensor:
    """The means of keys' weights, [keys, D + 1]."""
    parts = [tf.gather(table.value, rows) for table in (extractor.tables[0], extractor.linear)]
    return tf.concat(parts, axis=1)


def _brought_nearer(of_batch: Tensor, nearer: Tensor) -> Callable[[Tensor], Tensor]:
    """What kept curvatures become: they go a share of the way to those of a batch."""
    return lambda kept: kept + nearer * (of_batch - kept)


def _replaced_where(is_over: Tensor, new_rows: Tensor) -> Callable[[Tensor], Tensor]:
    """What rows become: the new ones after a pass over the training rows, and themselves within it."""
    return lambda rows: tf.where(is_over, new_rows, rows)


def _variable(value: object, name: str) -> keras.Variable:
    start = np.asarray(value, np.float32)
    return keras.Variable(
        lambda _, dtype: tf.constant(start, dtype), shape=start.shape, dtype="float32", trainable=False, name=name
    )
