"""`LossModel`: the loss of a batch as a function of the weights, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import keras
import tensorflow as tf

from feat2vec.model.answer_scale import LARGEST_SQUARE
from feat2vec.model.extractors import Extracted
from feat2vec.model.extractors.base import ShapeData
from feat2vec.model.gaussian_posterior import GaussianPosterior, PosteriorStep
from feat2vec.model.group_vectors import split_rows
from feat2vec.model.labelled_loss import implicit_losses, labelled_losses, mean_over_labelled
from feat2vec.model.many_groups import (
    ENTRIES,
    MIN_GROUPS,
    MIN_LABELLED_GROUPS,
    JoinedValues,
    ManyLookups,
    ReadBatch,
    are_plain,
    many_groups_noise_loss,
    many_groups_penalties,
    read_rows,
    read_rows_and_negatives,
    row_scores,
)
from feat2vec.model.noise_loss import BatchVectors, context_mask, noise_loss
from feat2vec.model.optimizers.base import Gradient
from feat2vec.model.optimizers.tables import parts_of
from feat2vec.model.pair_scores import Tensor
from feat2vec.model.score_model import ScoreModel
from feat2vec.model.single_items import (
    groups_by_item,
    item_entries,
    item_ids,
    join_lists,
    with_drawn_items,
    without_own_items,
)
from feat2vec.model.sizes import BYTES_OF_WEIGHT
from feat2vec.model.table_decay import penalty_of_tables, with_decay
from feat2vec.model.vector_model import Inputs
from feat2vec.sampling.noise import Draw, Noise

Gradients: TypeAlias = list[tuple[Gradient, keras.Variable]]
Truth: TypeAlias = Tensor | tuple[Tensor, Tensor]  # what `step_loss` takes
Required = TypeVar("Required")

NO_TRAINING_ROWS = "the model has not learnt from rows yet; call model.learn_from(encoded) with the training rows first"
MAX_NEGATIVE_BYTES = 256 << 20  # of the vectors of rows and of the negatives that they share


class LossModel(ScoreModel):
    """A model whose loss of a batch is a function of its weights. `Feat2Vec` says how it is trained.

    Args:
        schema: The schema as YAML, every default filled in.
        shapes: What each group's layer has to know of the data.
        classes: The number of classes of a softmax objective.
        **kwargs: Those of `keras.Model`.

    """

    def __init__(self, schema: str, shapes: Mapping[str, ShapeData], classes: int = 0, **kwargs: Any) -> None:
        super().__init__(schema, shapes, classes, **kwargs)
        self.noise: Noise | None = None
        self.new_noise: Callable[..., Noise] = Noise  # its class, or a function with its arguments
        # For each group the entries of the values that the noise draws, [values + 1, width]; see `take_values`.
        self.value_tables: list[tf.Variable] = []
        self.posterior: GaussianPosterior | None = None  # with `model.posterior: gaussian`
        self.joined_values: JoinedValues | None = None  # the same of all groups, where a step reads them at once
        self.groups_by_item = groups_by_item(self.schema, self.extractors)
        # With as many groups, a step reads all of them at once.
        self.min_many_groups = MIN_GROUPS if self.schema.target is None else MIN_LABELLED_GROUPS

    def step_loss(self, inputs: Inputs, truth: Truth, weights: Tensor | None, seed: Tensor, training: bool) -> Tensor:
        """The loss of a batch, a pure function of the model's weights.

        Args:
            inputs: Entries [batch, width] by group, or one array of all groups; see `batches`.
            truth: The targets [batch]; without a target value ids [batch, columns]; with implicit negatives both,
                (value ids, targets).
            weights: What the losses of the rows are multiplied by, [batch].
            seed: Two integers, which decide the negatives and what is dropped.
            training: Whether the loss is to learn from: with dropout, L2 and the losses of lower levels; of normal
                weights the expected one.

        Returns:
            A scalar.

        """
        loss = self._loss_of_batch(inputs, truth, weights, seed, training)
        return loss + self._penalty_of_tables() if training and self.penalizes_tables else loss

    @property
    def penalizes_tables(self) -> bool:
        """Whether the loss has the squares of all rows of tables, so that each row has a gradient in every step."""
        return self.schema.training.l2 > 0 and self.schema.training.l2_over == "tables"

    def _penalty_of_tables(self) -> Tensor:
        """What L2 over tables adds to the loss, a scalar."""
        return penalty_of_tables(self.trainable_variables, self.schema.training.l2)

    def _loss_of_batch(
        self, inputs: Inputs, truth: Truth, weights: Tensor | None, seed: Tensor, training: bool
    ) -> Tensor:
        """As `step_loss`, without the squares of whole tables."""
        if training and self.has_posterior:
            return self.posterior_step(inputs, truth, weights).loss
        if ENTRIES in inputs:
            batch = self._read_many_groups(inputs[ENTRIES], truth, seed)
            return self._many_groups_loss(batch, truth, weights, seed, training)
        if self.schema.target is None:
            loss, row_vectors = self._noise_loss(inputs, truth, seed, training)
        else:
            loss, row_vectors = self._labelled_loss(inputs, truth, weights, seed, training)
        if training:
            for penalty in self._penalties(row_vectors, rows_of(truth)):
                loss += penalty
        return loss

    def standardized(self, labels: Tensor) -> Tensor:
        """Bring labels to the scale of scores.

        Args:
            labels: In the target's unit, [batch].

        Returns:
            In units of their deviation from the mean of the training rows, if the objective learns them so.

        """
        if not self.schema.objective.standardizes:
            return labels
        shift, unit = self.answer_scale.value[0], self.answer_scale.value[1]
        return (tf.cast(labels, shift.dtype) - shift) / unit

    def unit_of_loss(self) -> Tensor | float:
        """What a loss is multiplied by to be in the target's unit.

        Returns:
            The square of the unit of labels that are standardized, 1 for others.

        """
        if not self.schema.objective.standardizes:
            return 1.0
        return tf.cast(tf.minimum(tf.square(self.answer_scale.value[1]), LARGEST_SQUARE), self.compute_dtype)

    def _penalties(self, row_vectors: Sequence[Extracted], rows: Tensor) -> list[Tensor]:
        """What L2 of what was read adds to the loss: a scalar for the vectors, and one for the linear terms."""
        options, penalties = self.schema.training, []
        weights = [self.schema.l2_of(name) for name in self.groups]
        if any(weights) and not self.penalizes_tables:
            squares = sum(weight * group.square for weight, group in zip(weights, row_vectors, strict=True) if weight)
            penalties.append(squares / 2 / tf.cast(rows, self.compute_dtype))
        if options.l2_linear:
            squares = sum(group.linear_square for group in row_vectors)
            penalties.append(options.l2_linear / 2 * squares / tf.cast(rows, self.compute_dtype))
        return penalties

    def _labelled_loss(
        self, inputs: Inputs, truth: Truth, weights: Tensor | None, seed: Tensor, training: bool
    ) -> tuple[Tensor, Sequence[Extracted]]:
        """The mean loss over the rows that have a label, and the rows' vectors."""
        if self.implicit is None:
            labels = self.standardized(truth)
            row_vectors = self.extract(inputs, training, keyed=self.is_keyed)
            losses = labelled_losses(self.schema, self.score(row_vectors, training), labels, training=training)
            return mean_over_labelled(self.schema, losses, labels, weights), row_vectors
        rows, labels = truth
        (draw,) = require(self.noise).sample(rows, seed)
        vectors = self._extract_with_negatives(inputs, {self.implicit: draw.values[0]}, training)
        negative_vectors, bias = vectors.negatives[self.implicit], self.bias_or_zero()
        of_negatives = implicit_losses(
            self.schema, self.implicit, draw, vectors.rows, negative_vectors, bias, training=training
        )  # [batch]
        losses = labelled_losses(self.schema, self.score(vectors.rows, training), labels, training=training)
        losses += tf.where(labels > 0, of_negatives, 0)
        return mean_over_labelled(self.schema, losses, labels, weights), vectors.rows

    def _noise_loss(
        self, inputs: Inputs, rows: Tensor, seed: Tensor, training: bool
    ) -> tuple[Tensor, Sequence[Extracted]]:
        """The mean loss over the rows, each against drawn values of its target unit, and the rows' vectors."""
        noise = require(self.noise)
        if not self.groups_by_item:
            return self.noise_loss_of_draws(inputs, noise.sample(rows, seed), seed, training)
        lists = {g: self._list_ids(g, inputs[self.groups[g]]) for g in self.groups_by_item}
        draws = noise.sample(with_drawn_items(rows, lists, seed), seed)
        return self.noise_loss_of_draws(inputs, without_own_items(noise.units, draws, lists), seed, training)

    def _list_ids(self, group: int, entries: Tensor) -> Tensor:
        """The ids of a group's lists, [batch, width]."""
        return item_ids(entries, weighted=self.extractors[group].shape.weighted)

    def noise_loss_of_draws(
        self, inputs: Inputs, draws: Sequence[Draw], seed: Tensor, training: bool
    ) -> tuple[Tensor, Sequence[Extracted]]:
        """The mean loss of rows against given negatives, without L2, and the rows' vectors.

        Args:
            inputs: Entries [batch, width] by group.
            draws: For each unit of the noise its rows of the batch, in the order of the batch, and their negatives.
            seed: Two integers, which decide what is dropped.
            training: Whether the loss is to learn from.

        Returns:
            The loss, a scalar, and the vectors of each group.

        """
        units = require(self.noise).units
        negative_values: dict[int, Tensor] = {}
        positive_items: dict[int, Tensor] = {}
        for unit, draw in zip(units, draws, strict=True):
            negative_values.update(zip(unit.groups, draw.values, strict=True))
            if unit.groups[0] in self.groups_by_item:
                positive_items[unit.groups[0]] = draw.rows[:, unit.column]
        vectors = self._extract_with_negatives(inputs, negative_values, training, positive_items)
        unit_sizes = tf.stack([tf.shape(draw.rows)[0] for draw in draws])  # [units]
        keep = self._context_mask(unit_sizes, seed, training)  # [batch, groups]
        loss = noise_loss(
            self.schema, units, draws, vectors, keep, self.bias_or_zero(), self._offsets_or_none(), training=training
        )
        return loss, vectors.rows

    def _context_mask(self, unit_sizes: Tensor, seed: Tensor, training: bool) -> Tensor:
        """The groups that are each row's context, [batch, groups]; see `noise_loss.context_mask`."""
        dropout = self.schema.training.group_dropout if training else 0.0
        units = require(self.noise).units
        return context_mask(units, unit_sizes, len(self.groups), self.compute_dtype, group_dropout=dropout, seed=seed)

    def _offsets_or_none(self) -> Tensor | None:
        """What noise-contrastive estimation adds to scores, [groups]."""
        return self.offsets if self.schema.objective.has_offsets else None

    def _extract_with_negatives(
        self,
        inputs: Inputs,
        negative_values: Mapping[int, Tensor],
        training: bool,
        positive_items: Mapping[int, Tensor] | None = None,
    ) -> BatchVectors:
        """The vectors of the rows, of the groups' drawn value ids, and of the drawn items of lists.

        An extractor is called once for all, also for all groups that share it, so that it reads each distinct key once.
        """
        row_vectors: dict[int, Extracted] = {}
        negative_vectors: dict[int, Extracted] = {}
        positive_vectors: dict[int, Extracted] = {}
        for members in self.sharing:
            entries: dict[int, list[Tensor]] = {}
            for g in members:
                of_rows = inputs[self.groups[g]]
                if positive_items and g in positive_items:
                    of_items = self._extract_items(g, of_rows, negative_values[g], positive_items[g], training)
                    row_vectors[g], negative_vectors[g], positive_vectors[g] = of_items
                    continue
                entries[g] = [of_rows]
                if g in negative_values:
                    value_ids = tf.reshape(negative_values[g], [-1])
                    entries[g].append(tf.gather(self.value_tables[g], value_ids + 1))
            if not entries:
                continue
            for g, parts in self.extract_shared(entries, training=training).items():
                row_vectors[g] = parts[0]
                if g in negative_values:
                    negative_vectors[g] = parts[1]
        in_order = [row_vectors[g] for g in range(len(self.groups))]
        return BatchVectors(in_order, negative_vectors, positive_vectors)

    def _extract_items(
        self, group: int, lists: Tensor, negatives: Tensor, positives: Tensor, training: bool
    ) -> list[Extracted]:
        """The vectors of lists [batch, width], of which training drops items, and of single items, which stay."""
        extractor = self.extractors[group]
        is_weighted = extractor.shape.weighted
        if training:
            lists = self.drop_items(group, lists)
        entries = [lists, *(item_entries(items, weighted=is_weighted) for items in (negatives, positives))]
        vectors = self.extract_group(group, join_lists(entries, weighted=is_weighted), training=False)
        return split_rows(vectors, tf.stack([tf.shape(part)[0] for part in entries]))

    def loss_and_gradients(
        self, inputs: Inputs, truth: Truth, weights: Tensor | None, seed: Tensor
    ) -> tuple[Tensor, Gradients]:
        """The loss of a batch, and the gradients of the variables that it depends on.

        Args:
            inputs: Entries as `step_loss` takes them.
            truth: Targets or value ids as `step_loss` takes them.
            weights: What the losses of the rows are multiplied by, [batch].
            seed: Two integers, which decide the negatives and what is dropped.

        Returns:
            The loss, a scalar, and pairs of a gradient and its variable.

        """
        if self.has_posterior:
            step = self.posterior_step(inputs, truth, weights)
            return step.loss, step.gradients
        if ENTRIES in inputs:
            return self._many_groups_gradients(inputs[ENTRIES], truth, weights, seed)
        variables = [part for variable in self.trainable_variables for part in parts_of(variable)]
        with tf.GradientTape() as tape:
            loss = self._loss_of_batch(inputs, truth, weights, seed, True)
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        if self.penalizes_tables:
            loss += self._penalty_of_tables()
            gradients = [
                with_decay(gradient, variable, self.schema.training.l2)
                for gradient, variable in zip(gradients, variables, strict=True)
            ]
        return loss, _with_gradient(gradients, variables)

    # --- normal weights ---------------------------------------------------------------------------------------------

    @property
    def has_posterior(self) -> bool:
        """Whether weights have a mean and a variance; see `gaussian_posterior.py`."""
        return self.schema.model.posterior == "gaussian"

    def posterior_step(self, inputs: Inputs, labels: Tensor, weights: Tensor | None) -> PosteriorStep:
        """What a batch changes in a model of normal weights.

        Args:
            inputs: Entries [batch, width] by group.
            labels: In the target's unit, [batch].
            weights: What the losses of the rows are multiplied by, [batch].

        Returns:
            The loss, the gradients of the means, and what becomes of the variances.

        """
        entries = [[inputs[self.groups[g]] for g in members] for members in self.sharing]
        extractors, labels = self.distinct_extractors(), self.standardized(labels)
        return require(self.posterior).step(extractors, entries, self.bias, labels, weights)

    # --- many groups ------------------------------------------------------------------------------------------------

    @property
    def has_many_groups(self) -> bool:
        """Whether a step can read all groups at once: plain lookups, of which only pairs are needed."""
        schema, noise = self.schema, self.schema.noise
        if self.head is not None or self.implicit is not None or schema.objective.has_classes or self.has_posterior:
            return False
        if len(self.groups) < self.min_many_groups or schema.training.l2_over == "tables":
            return False
        if schema.target is None:
            if len(self.dims) > 1 or schema.model.activation is not None:
                return False
            of_units = len(self.groups) * noise.negatives if noise.sharing == "batch" else 0
            size = (schema.training.batch_size + of_units) * self.dims[-1] * BYTES_OF_WEIGHT
            if noise.joint or size > MAX_NEGATIVE_BYTES:
                return False
        return are_plain(self.extractors)

    def _read_many_groups(self, entries: Tensor, truth: Truth, seed: Tensor) -> ReadBatch:
        """Read the vectors of entries [batch, groups] and, without a target, of negatives."""
        lookups = ManyLookups(self.extractors, self.schema.model.bias)
        if self.schema.target is not None:
            return read_rows(lookups, entries)
        noise, values = require(self.noise), require(self.joined_values)
        return read_rows_and_negatives(lookups, entries, truth, noise, values, seed)

    def _many_groups_loss(
        self,
        batch: ReadBatch,
        truth: Truth,
        weights: Tensor | None,
        seed: Tensor,
        training: bool,
        draws: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """The loss of a batch whose vectors are read; `draws` are its `interaction_draws`, if they are there."""
        size = rows_of(truth)
        if batch.negatives is not None:
            keep = self._context_mask(batch.negatives.draws.sizes, seed, training)  # [batch, groups]
            loss = many_groups_noise_loss(self.schema, batch, keep, self.bias_or_zero(), self._offsets_or_none())
        else:
            masks = self.interaction_masks(size, draws) if training else None
            scores = row_scores(self.schema, batch, self.bias_or_zero(), masks, training=training)
            losses = labelled_losses(self.schema, scores, self.standardized(truth), training=training)
            loss = mean_over_labelled(self.schema, losses, truth, weights)
            if batch.fixed_size is not None:
                loss *= tf.cast(size, loss.dtype) / tf.cast(batch.fixed_size, loss.dtype)
                size = batch.fixed_size
        if training:
            for penalty in many_groups_penalties(self.schema, batch.keys, size):
                loss += penalty
        return loss

    def scores_of_batch(self, inputs: Inputs) -> Tensor:
        """Score a labelled batch, as the loss has scores.

        Args:
            inputs: Entries [batch, width] by group, or one array of all groups; see `batches`.

        Returns:
            The scores, [batch] or [batch, classes].

        """
        if ENTRIES not in inputs:
            return self.submodels(inputs).scores[-1]
        batch = read_rows(ManyLookups(self.extractors, self.schema.model.bias), inputs[ENTRIES])
        return row_scores(self.schema, batch, self.bias_or_zero(), None).scores[-1]

    def _many_groups_gradients(
        self, entries: Tensor, truth: Truth, weights: Tensor | None, seed: Tensor
    ) -> tuple[Tensor, Gradients]:
        """The loss, and each variable's gradient; those of tables are taken of the vectors that were read."""
        lookups = ManyLookups(self.extractors, self.schema.model.bias)
        batch = self._read_many_groups(entries, truth, seed)
        return self._gradients_of_batch(
            lookups, batch, lambda: self._many_groups_loss(batch, truth, weights, seed, True)
        )

    def _gradients_of_batch(
        self, lookups: ManyLookups, batch: ReadBatch, loss_of_batch: Callable[[], Tensor]
    ) -> tuple[Tensor, Gradients]:
        """The loss of a batch whose vectors are read, and each variable's gradient."""
        table_ids = {id(table) for table in lookups.all_tables}
        dense_variables = [variable for variable in self.trainable_variables if id(variable) not in table_ids]
        vectors = [level.vectors for level in batch.keys.levels]
        vectors_and_terms = [*vectors, *([] if batch.keys.terms is None else [batch.keys.terms])]
        with tf.GradientTape() as tape:
            tape.watch(vectors_and_terms)
            loss = loss_of_batch()
        sources = [*vectors_and_terms, *(variable.value for variable in dense_variables)]
        gradients = tape.gradient(loss, sources)
        of_vectors, dense_gradients = gradients[: len(vectors)], gradients[len(vectors) :]
        of_terms = None if batch.keys.terms is None else dense_gradients.pop(0)
        pairs: Gradients = list(lookups.gradients(batch.keys, of_vectors, of_terms))
        pairs += _with_gradient(dense_gradients, dense_variables)
        return loss, pairs

    def can_read_at_once(self, tables: Sequence[tf.Variable]) -> bool:
        """Whether a step can read the entries of these value tables as one array.

        Args:
            tables: The value table of each group.

        Returns:
            True if there are many lookups, and entries are single ids.

        """
        return self.has_many_groups and all(table.shape[1] == 1 for table in tables)


def require(value: Required | None) -> Required:
    """A part that `learn_from` makes."""
    if value is None:
        raise ValueError(NO_TRAINING_ROWS)
    return value


def _with_gradient(gradients: Sequence[Gradient], variables: Sequence[keras.Variable]) -> Gradients:
    """The gradients that are not None, with their variables."""
    pairs = zip(gradients, variables, strict=True)
    return [(gradient, variable) for gradient, variable in pairs if gradient is not None]


def rows_of(truth: Truth) -> Tensor:
    """The number of rows of a batch."""
    return tf.shape(truth[0] if isinstance(truth, tuple) else truth)[0]
