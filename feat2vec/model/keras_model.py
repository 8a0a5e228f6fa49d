"""`Feat2Vec`: a schema's scores with how they are learnt, as a Keras model.

`learn_from` takes what training rows say: the noise, the weights of classes, the start of the bias. `batches` makes the
rows into batches. `train_step` takes the gradient of `step_loss`, which is one of

    noise_loss.py      rows without a target, against drawn values
    labelled_loss.py   rows with a target
    many_groups.py     either of them, where all groups are read at once
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from feat2vec.encode.encoder import Encoded, Encoder
from feat2vec.errors import UserError, suggest
from feat2vec.model import optimizers
from feat2vec.model.extractors import Extracted
from feat2vec.model.group_vectors import join_entries, split_rows
from feat2vec.model.labelled_loss import has_label, implicit_losses, labelled_losses, mean_over_labelled
from feat2vec.model.many_groups import (
    JoinedValues,
    ReadBatch,
    join_values,
    many_groups_noise_loss,
    many_groups_penalties,
    read_rows,
    read_rows_and_negatives,
    row_scores,
)
from feat2vec.model.many_lookups import ENTRIES, MANY, ManyLookups, are_plain
from feat2vec.model.network import Inputs, ScoreModel, SeedOf, shapes_of
from feat2vec.model.noise_loss import BatchVectors, context_mask, noise_loss
from feat2vec.model.optimizers import sum_duplicates
from feat2vec.model.pair_scores import Tensor
from feat2vec.model.sizes import BYTES_OF_WEIGHT
from feat2vec.sampling.batches import Batches, value_tables
from feat2vec.sampling.joint_values import Joint, joint_values
from feat2vec.sampling.noise import Draw, Noise
from feat2vec.schema.objectives import ObjectiveSpec

Floats: TypeAlias = npt.NDArray[np.float32]
Gradients: TypeAlias = list[tuple[Any, keras.Variable]]  # a gradient is a tensor, `tf.IndexedSlices` or `Rows`
Truth: TypeAlias = Tensor | tuple[Tensor, Tensor]  # what `step_loss` takes
Required = TypeVar("Required")

MAX_NEGATIVE_BYTES = 256 << 20  # of the negatives' vectors, where each row has a copy of those that rows share


@keras.saving.register_keras_serializable(package="feat2vec")
class Feat2Vec(ScoreModel):
    """A schema fitted to a table, as a Keras model: `call` takes {group: entries} and returns each row's score.

    Build one by `Feat2Vec.from_encoder(encoder)`, and batches for `fit` by `model.dataset(encoded, ...)`.

    Args:
        schema: The schema as YAML, every default filled in.
        shapes: What each group's layer has to know of the data.
        classes: The number of classes of a softmax objective.
        **kwargs: Those of `keras.Model`.

    Example:
        >>> encoded = feat2vec.fit(schema, films)
        >>> model = feat2vec.Feat2Vec.from_encoder(encoded.encoder)
        >>> model.compile()
        >>> history = model.fit(model.dataset(encoded), epochs=1, verbose=0)
        >>> inputs, _ = next(iter(model.dataset(encoded, batch_size=60, shuffle=False)))
        >>> model(inputs).shape
        TensorShape([60])

    """

    def __init__(self, schema: str, shapes: Mapping[str, Sequence[Any]], classes: int = 0, **kwargs: Any) -> None:
        super().__init__(schema, shapes, classes, **kwargs)
        self.training_rows: Encoded | None = None
        self.class_weights: Floats | None = None  # [classes]
        self.noise: Noise | None = None
        self.value_tables: list[tf.Variable] = []  # of each group: the training rows' entries, as `value_tables` says
        self.joined_values: JoinedValues | None = None  # the same of all groups, where a step reads them at once
        self.joints: list[Joint] = []
        self.min_many_groups = MANY  # with as many groups, a step reads all of them at once
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self._batches_seen = tf.Variable(0, trainable=False, dtype=tf.int64)
        # The first train step whose loss was not finite, -1 for none; from it on the weights stay as they were.
        self.failed_at = tf.Variable(-1, trainable=False, dtype=tf.int64)

    @classmethod
    def from_encoder(cls, encoder: Encoder) -> Feat2Vec:
        """A new model for a fitted encoder."""
        classes = 0 if encoder.classes is None else len(encoder.classes.keys)
        keras.utils.set_random_seed(encoder.schema.training.seed)
        model = cls(encoder.schema.resolved(), shapes_of(encoder), classes)
        model.encoder = encoder
        model.build()
        return model

    # --- the loss of a step -----------------------------------------------------------------------------------------

    def step_loss(self, inputs: Inputs, truth: Truth, weights: Tensor | None, seed: Tensor, training: bool) -> Tensor:
        """The loss of a batch, a pure function of the model's weights.

        Args:
            inputs: Entries [batch, width] by group, or those of all groups together; see `batches`.
            truth: The targets [batch]; without a target value ids [batch, columns]; with implicit negatives both,
                (value ids, targets).
            weights: What the losses of the rows are multiplied by, [batch].
            seed: Two integers, which decide the negatives and what is dropped.
            training: Whether the loss is to learn from: with dropout, L2 and the losses of lower levels.

        Returns:
            A scalar.

        """
        if ENTRIES in inputs:
            batch = self._read_many_groups(inputs[ENTRIES], truth, seed)
            return self._many_groups_loss(batch, truth, weights, seed, training)
        if self.schema.target is None:
            loss, row_vectors = self._noise_loss(inputs, truth, seed, training)
        else:
            loss, row_vectors = self._labelled_loss(inputs, truth, weights, seed, training)
        if training:
            for penalty in self._penalties(row_vectors, _rows_of(truth)):
                loss += penalty
        return loss

    def _penalties(self, row_vectors: Sequence[Extracted], rows: Tensor) -> list[Tensor]:
        """What L2 adds to the loss: a scalar for the vectors, and one for the linear terms."""
        options, penalties = self.schema.training, []
        if options.l2 and options.l2_over == "tables":
            tables = [variable for variable in self.trainable_variables if optimizers.is_by_row(variable)]
            penalties.append(options.l2 / 2 * tf.add_n([tf.reduce_sum(tf.square(table.value)) for table in tables]))
        elif options.l2:
            squares = sum(group.square for group in row_vectors)
            penalties.append(options.l2 / 2 * squares / tf.cast(rows, self.compute_dtype))
        if options.l2_linear:
            squares = sum(group.linear_square for group in row_vectors)
            penalties.append(options.l2_linear / 2 * squares / tf.cast(rows, self.compute_dtype))
        return penalties

    def _labelled_loss(
        self, inputs: Inputs, truth: Truth, weights: Tensor | None, seed: Tensor, training: bool
    ) -> tuple[Tensor, Sequence[Extracted]]:
        """The mean loss over the rows that have a label, and the rows' vectors."""
        if self.implicit is None:
            labels = truth
            row_vectors = self.extract(inputs, training, keyed=self.is_keyed)
            losses = labelled_losses(self.schema, self.score(row_vectors, training), labels, training=training)
            return mean_over_labelled(self.schema, losses, labels, weights), row_vectors
        rows, labels = truth
        (draw,) = _required(self.noise).sample(rows, seed)
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
        draws = _required(self.noise).sample(rows, seed)
        return self.noise_loss_of_draws(inputs, draws, seed, training)

    def noise_loss_of_draws(
        self, inputs: Inputs, draws: Sequence[Draw], seed: Tensor, training: bool
    ) -> tuple[Tensor, Sequence[Extracted]]:
        """The mean loss of rows against given negatives, without L2, and the rows' vectors.

        Args:
            inputs: Entries [batch, width] by group.
            draws: For each unit of the noise its rows of the batch, in the order of the batch, and their negatives.
            seed: Two integers, which decide what is dropped.
            training: Whether the loss is to learn from.

        """
        units = _required(self.noise).units
        negative_values: dict[int, Tensor] = {}
        for unit, draw in zip(units, draws, strict=True):
            negative_values.update(zip(unit.groups, draw.values, strict=True))
        vectors = self._extract_with_negatives(inputs, negative_values, training)
        unit_sizes = tf.stack([tf.shape(draw.rows)[0] for draw in draws])  # [units]
        keep = self._context_mask(unit_sizes, seed, training)  # [batch, groups]
        loss = noise_loss(
            self.schema, units, draws, vectors, keep, self.bias_or_zero(), self._offsets_or_none(), training=training
        )
        return loss, vectors.rows

    def _context_mask(self, unit_sizes: Tensor, seed: Tensor, training: bool) -> Tensor:
        """The groups that are each row's context, [batch, groups]; see `noise_loss.context_mask`."""
        dropout = self.schema.training.group_dropout if training else 0.0
        units = _required(self.noise).units
        return context_mask(units, unit_sizes, len(self.groups), self.compute_dtype, group_dropout=dropout, seed=seed)

    def _offsets_or_none(self) -> Tensor | None:
        """What noise-contrastive estimation adds to scores, [groups]."""
        return self.offsets if self.schema.objective.has_offsets else None

    def _extract_with_negatives(
        self, inputs: Inputs, negative_values: Mapping[int, Tensor], training: bool
    ) -> BatchVectors:
        """The vectors of the rows, and of the groups' drawn value ids.

        An extractor is called once for both, so that it reads each distinct key once.
        """
        row_vectors, negative_vectors = [], {}
        for g, name in enumerate(self.groups):
            entries = [inputs[name]]
            if g in negative_values:
                value_ids = tf.reshape(negative_values[g], [-1])
                entries.append(tf.gather(self.value_tables[g], value_ids + 1))
            vectors = self.extract_group(g, join_entries(entries), training=training)
            parts = split_rows(vectors, tf.stack([tf.shape(part)[0] for part in entries]))
            row_vectors.append(parts[0])
            if g in negative_values:
                negative_vectors[g] = parts[1]
        return BatchVectors(row_vectors, negative_vectors)

    # --- many groups ------------------------------------------------------------------------------------------------

    @property
    def has_many(self) -> bool:
        """Whether a step can read all groups at once: many plain lookups, of which only pairs are needed."""
        schema, noise = self.schema, self.schema.noise
        if self.head is not None or self.implicit is not None or schema.objective.has_classes:
            return False
        if not len(self.partners) == len(self.groups) >= self.min_many_groups or schema.training.l2_over == "tables":
            return False
        if schema.target is None:
            copies = 1 if noise.sharing == "record" else noise.negatives  # of each negative that rows share
            size = schema.training.batch_size * copies * self.dims[-1] * BYTES_OF_WEIGHT
            if noise.joint or size > MAX_NEGATIVE_BYTES:
                return False
        return are_plain(self.extractors)

    def _read_many_groups(self, entries: Tensor, truth: Truth, seed: Tensor) -> ReadBatch:
        """Read the vectors of entries [batch, groups] and, without a target, of negatives."""
        lookups = ManyLookups(self.extractors, self.schema.model.bias)
        if self.schema.target is not None:
            return read_rows(lookups, entries)
        noise, values = _required(self.noise), _required(self.joined_values)
        return read_rows_and_negatives(lookups, entries, truth, noise, values, seed)

    def _many_groups_loss(
        self, batch: ReadBatch, truth: Truth, weights: Tensor | None, seed: Tensor, training: bool
    ) -> Tensor:
        """The loss of a batch whose vectors are read."""
        if batch.negatives is not None:
            keep = self._context_mask(batch.negatives.draws.sizes, seed, training)  # [batch, groups]
            loss = many_groups_noise_loss(self.schema, batch, keep, self.bias_or_zero(), self._offsets_or_none())
        else:
            masks = self.interaction_masks(tf.shape(batch.slots)[0]) if training else None
            scores = row_scores(self.schema, batch, self.bias_or_zero(), masks)
            losses = labelled_losses(self.schema, scores, truth, training=training)
            loss = mean_over_labelled(self.schema, losses, truth, weights)
        if training:
            for penalty in many_groups_penalties(self.schema, batch.keys, _rows_of(truth)):
                loss += penalty
        return loss

    def _many_groups_gradients(
        self, entries: Tensor, truth: Truth, weights: Tensor | None, seed: Tensor
    ) -> tuple[Tensor, Gradients]:
        """The loss, and each variable's gradient; those of tables are taken of the vectors that were read."""
        lookups = ManyLookups(self.extractors, self.schema.model.bias)
        table_ids = {id(table) for table in (*lookups.tables, *(lookups.linear or ()))}
        dense_variables = [variable for variable in self.trainable_variables if id(variable) not in table_ids]
        batch = self._read_many_groups(entries, truth, seed)
        vectors_and_terms = [batch.keys.vectors, *([] if batch.keys.terms is None else [batch.keys.terms])]
        with tf.GradientTape() as tape:
            tape.watch(vectors_and_terms)
            loss = self._many_groups_loss(batch, truth, weights, seed, True)
        sources = [*vectors_and_terms, *(variable.value for variable in dense_variables)]
        of_vectors, *dense_gradients = tape.gradient(loss, sources)
        of_terms = None if batch.keys.terms is None else dense_gradients.pop(0)
        pairs: Gradients = list(lookups.gradients(batch.keys, of_vectors, of_terms))
        pairs += _with_gradient(dense_gradients, dense_variables)
        return loss, pairs

    # --- Keras ------------------------------------------------------------------------------------------------------

    def compile(self, optimizer: Any = None, **kwargs: Any) -> None:
        """As that of Keras, with the schema's optimizer as the default, and without XLA.

        Args:
            optimizer: Any optimizer of Keras. Those of `feat2vec.optimizers` update the rows of a batch alone.
            **kwargs: Those of `keras.Model.compile`. `jit_compile` is ignored: XLA has no row-sparse updates.

        """
        if optimizer is None:
            options = self.schema.training.optimizer
            optimizer = optimizers.named(options.type, options.learning_rate, self.schema.training.batch_size)
        super().compile(optimizer=optimizer, **{**kwargs, "jit_compile": False})

    def compile_from_config(self, config: Mapping[str, Any]) -> None:
        """Compile as the saved model was, and make room for its optimizer's slots."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def fit(self, x: Any = None, y: Any = None, *, shuffle: bool = False, **kwargs: Any) -> keras.callbacks.History:
        """As that of Keras; batches are not shuffled here, as `dataset` shuffles rows."""
        return super().fit(x, y, shuffle=shuffle, **kwargs)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """The mean loss."""
        return [self.loss_tracker]

    def train_step(self, data: Any) -> dict[str, Tensor]:
        """Update the weights by a batch; returns the mean loss of the epoch."""
        inputs, truth, weights = keras.utils.unpack_x_y_sample_weight(data)
        loss, gradients = self._loss_and_gradients(inputs, truth, weights, self.step_seed(SeedOf.NOISE))
        if self.schema.training.l2 and self.schema.training.l2_over == "tables":  # every row has a gradient
            gradients = [(tf.convert_to_tensor(gradient), variable) for gradient, variable in gradients]
        if isinstance(self.optimizer, optimizers.RowSparse):
            # Here and not in the optimizer: inside of `tf.cond`, ids cannot be known to be distinct.
            gradients = [
                (sum_duplicates(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient, variable)
                for gradient, variable in gradients
            ]
        step = tf.cast(self.optimizer.iterations.value, tf.int64)
        failed_at = tf.where((self.failed_at < 0) & ~tf.math.is_finite(loss), step, self.failed_at)
        self.failed_at.assign(failed_at)
        tf.cond(failed_at < 0, lambda: self._apply(gradients), lambda: False)
        self.loss_tracker.update_state(loss, sample_weight=_rows_of(truth))
        return {"loss": self.loss_tracker.result()}

    def _loss_and_gradients(
        self, inputs: Inputs, truth: Truth, weights: Tensor | None, seed: Tensor
    ) -> tuple[Tensor, Gradients]:
        """The loss of a batch, and the gradients of the variables that it depends on."""
        if ENTRIES in inputs:
            return self._many_groups_gradients(inputs[ENTRIES], truth, weights, seed)
        with tf.GradientTape() as tape:
            loss = self.step_loss(inputs, truth, weights, seed, True)
        gradients = tape.gradient(loss, [variable.value for variable in self.trainable_variables])
        return loss, _with_gradient(gradients, self.trainable_variables)

    def _apply(self, gradients: Gradients) -> bool:
        """Update the weights; True, as the branches of a `tf.cond` return something."""
        self.optimizer.apply_gradients(gradients)
        return True

    def test_step(self, data: Any) -> dict[str, Tensor]:
        """Add the loss of a batch; returns the mean loss. Each validation has the same negatives."""
        inputs, truth, weights = keras.utils.unpack_x_y_sample_weight(data)
        seed = self.step_seed(SeedOf.VALIDATION, self._batches_seen)
        self._batches_seen.assign_add(1)
        loss = self.step_loss(inputs, truth, weights, seed, False)
        if self.implicit is not None:
            rows = _rows_of(truth)
        else:
            rows = tf.math.count_nonzero(has_label(self.schema, truth), dtype=tf.int32)
        self.loss_tracker.update_state(loss, sample_weight=rows)
        return {"loss": self.loss_tracker.result()}

    def reset_metrics(self) -> None:
        """Begin an epoch, or a validation."""
        super().reset_metrics()
        self._batches_seen.assign(0)

    # --- training rows ----------------------------------------------------------------------------------------------

    def learn_from(self, encoded: Encoded) -> None:
        """Take from the training rows what does not change by steps.

        That is the start of the bias, at the target's mean; the weights of classes; and the noise, which draws values
        of these rows.

        Args:
            encoded: The training rows.

        Raises:
            UserError: If the schema weighs a class that there is not, or draws from groups of one value each.

        """
        self.training_rows = encoded
        self.class_weights = _class_weights(self.schema.objective, encoded)
        if self.schema.model.bias and encoded.target is not None and not float(self.bias):
            self.bias.assign(self.schema.objective.starting_bias(encoded.target))
        if not self.schema.objective.needs_noise:
            return
        joints = [
            joint_values(encoded.rows, [self.groups.index(name) for name in names]) for names in self.schema.noise.joint
        ]
        self.take_values(value_tables(encoded), [encoded.values[name].counts for name in self.groups], joints)

    def take_values(
        self,
        tables: Sequence[npt.NDArray[Any]],
        counts: Sequence[npt.NDArray[np.integer[Any]]],
        joints: Sequence[Joint] = (),
    ) -> None:
        """Make the noise, which draws values of these tables.

        Args:
            tables: Each group's entries with value id v in row v + 1, as `value_tables` gives them.
            counts: Of each group how often each value occurs, [values].
            joints: The tuples of values of each joint set.

        """
        options = self.schema.noise
        self.value_tables = [tf.Variable(table, trainable=False) for table in tables]
        self.joined_values = join_values(self.value_tables) if self._can_join(self.value_tables) else None
        self.joints = list(joints)
        tuples = [(joint.groups, joint.values(), joint.counts) for joint in joints]
        target_names = list(options.targets or self.groups) if self.implicit is None else [self.groups[self.implicit]]
        _refuse_one_value(self.groups, counts, tuples, target_names)
        shares = None
        if options.targets and isinstance(options.targets, dict):
            shares = [options.targets.get(name, 0.0) for name in self.groups]
        self.noise = Noise(
            counts,
            self.params(),
            options.alpha_groups,
            options.alpha_values,
            options.negatives,
            options.sharing,
            tuples,
            [self.groups.index(name) for name in target_names],
            shares,
        )
        if self.schema.objective.has_offsets and not np.any(self.offsets.numpy()):
            self.offsets.assign(_start_of_offsets(self.noise, len(self.groups)))

    def dataset(self, encoded: Encoded, batch_size: int | None = None, shuffle: bool = True) -> tf.data.Dataset:
        """Batches for `fit` (shuffled) or `evaluate` (in order).

        A model that has no training rows yet takes these by `learn_from`. To evaluate other rows first, call
        `learn_from` yourself.

        Args:
            encoded: The rows.
            batch_size: The rows of a batch, at most; that of the schema by default.
            shuffle: Whether each epoch has another order.

        Returns:
            A dataset whose every iteration is one epoch.

        """
        if self.training_rows is None and self.noise is None:
            self.learn_from(encoded)
        return self.batches(encoded, batch_size, shuffle).dataset()

    def batches(
        self, encoded: Encoded, batch_size: int | None = None, shuffle: bool = True, *, together: bool = False
    ) -> Batches:
        """What `dataset` makes its batches of.

        Args:
            encoded: The rows.
            batch_size: The rows of a batch, at most; that of the schema by default.
            shuffle: Whether each epoch has another order.
            together: Whether the entries of many groups (see `has_many`) are one array, which only `train_step`,
                `test_step` and `step_loss` take.

        Returns:
            The batches of each epoch.

        Raises:
            ValueError: If the rows have no target to learn, or the model has not learnt from rows yet.

        """
        has_target, target = self.schema.target is not None, encoded.target
        if self.implicit is not None and target is None:
            target = np.ones(len(encoded), np.float32)
        if has_target and target is None:
            raise ValueError(f"the rows have no target, {self.schema.target!r}, to learn from")
        if self.training_rows is None and self.noise is None:
            raise ValueError(NO_TRAINING_ROWS)
        are_training_rows = self.noise is not None and encoded is self.training_rows
        if are_training_rows:
            tables = self.value_tables
        else:
            tables = [tf.Variable(table, trainable=False) for table in value_tables(encoded)]
        inputs, starts = dict(zip(self.groups, tables, strict=True)), None
        if together and self._can_join(tables):
            joined = self.joined_values if are_training_rows and self.joined_values is not None else join_values(tables)
            inputs, starts = {ENTRIES: joined.entries}, joined.starts
        return Batches(
            encoded.rows,
            inputs,
            batch_size or self.schema.training.batch_size,
            [] if has_target else self.joints,
            target=target if has_target else None,
            weight=self._row_weights(encoded, target) if has_target else None,
            keep_rows=self.noise is not None,
            shuffle=shuffle,
            seed=self.schema.training.seed,
            starts=starts,
        )

    def _can_join(self, tables: Sequence[tf.Variable]) -> bool:
        """Whether a step can read the entries of these value tables as one array."""
        return self.has_many and all(table.shape[1] == 1 for table in tables)

    def _row_weights(self, encoded: Encoded, target: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
        """What the loss of each row is multiplied by, [rows]: its own weight times that of its class."""
        if self.class_weights is None:
            return encoded.weight
        of_class = self.class_weights[np.asarray(target, np.int32)]
        return of_class if encoded.weight is None else of_class * encoded.weight


NO_TRAINING_ROWS = "the model has not learnt from rows yet; call model.learn_from(encoded) with the training rows first"


def _required(value: Required | None) -> Required:
    """A part that `learn_from` makes."""
    if value is None:
        raise ValueError(NO_TRAINING_ROWS)
    return value


def _with_gradient(gradients: Sequence[Any], variables: Sequence[keras.Variable]) -> Gradients:
    """The gradients that are not None, with their variables."""
    pairs = zip(gradients, variables, strict=True)
    return [(gradient, variable) for gradient, variable in pairs if gradient is not None]


def _rows_of(truth: Truth) -> Tensor:
    """The number of rows of a batch."""
    return tf.shape(truth[0] if isinstance(truth, tuple) else truth)[0]


def _refuse_one_value(
    groups: Sequence[str],
    counts: Sequence[npt.NDArray[np.integer[Any]]],
    tuples: Sequence[Any],
    target_names: Sequence[str],
) -> None:
    """Raise if no target group, and no joint set, has two values to draw from."""
    values = {name: np.count_nonzero(count) for name, count in zip(groups, counts, strict=True) if name in target_names}
    for members, _, count in tuples:
        values[" with ".join(groups[g] for g in members)] = np.count_nonzero(count)
    if max(values.values()) < 2:
        have = "has one value" if len(values) == 1 else "have one value each"
        raise UserError(
            f"noise: {', '.join(values)} {have}, and to tell rows from noise takes two or more; "
            "give rows that differ, or another group to draw from"
        )


def _start_of_offsets(noise: Noise, groups: int) -> Floats:
    """The mean of log(k Q2) in each target unit, at its first group: [groups]. Logits begin near 0."""
    offsets = np.zeros(groups, np.float32)
    for unit in noise.units:
        offsets[unit.groups[0]] = unit.mean_log_q + math.log(noise.negatives)
    return offsets


def _class_weights(objective: ObjectiveSpec, encoded: Encoded) -> npt.NDArray[np.float32] | None:
    """What the loss of a row of each class is multiplied by: [classes]."""
    given = objective.class_weighting
    if given is None:
        return None
    classes = encoded.encoder.classes
    names = ["0", "1"] if classes is None else classes.keys.to_pylist()
    if given == "balanced":
        target = np.ones(1) if encoded.target is None else encoded.target
        counts = np.bincount(np.asarray(target, np.int32), minlength=len(names))
        return np.asarray(counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1)), np.float32)
    for name in given:
        if name not in names:
            raise UserError(f"objective.class_weights: there is no class {name!r}{suggest(name, names)}")
    return np.array([given.get(name, 1.0) for name in names], np.float32)
