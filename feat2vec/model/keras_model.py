"""`Feat2Vec`: how the weights of a schema are trained, as a Keras model.

`learn_from` takes what the training rows say: the noise, the weights of classes, the start of the bias. `batches` makes
rows into batches. `train_step` takes the gradients of `LossModel.step_loss` and hands them to the optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from feat2vec.arrays import Array, Float32s, Int64s, Integers
from feat2vec.encode.arrays_on_disk import release_pages
from feat2vec.encode.class_weights import class_weights, weights_of_rows
from feat2vec.encode.encoder import Encoded, Encoder
from feat2vec.model import optimizers
from feat2vec.model.answer_scale import AnswerScale
from feat2vec.model.compiled_step import CompiledStep
from feat2vec.model.dependent_rows import dependent_rows
from feat2vec.model.extractors.base import UNSEEN, ShapeData
from feat2vec.model.gaussian_posterior import GaussianPosterior, PosteriorStep
from feat2vec.model.labelled_loss import has_label
from feat2vec.model.loss_model import NO_TRAINING_ROWS, Gradients, LossModel, Truth, require, rows_of
from feat2vec.model.many_groups import ENTRIES, ManyLookups, ReadBatch, join_values
from feat2vec.model.optimizers import sum_duplicates
from feat2vec.model.optimizers.tables import parts_of
from feat2vec.model.padded_keys import SIZE, SLOTS
from feat2vec.model.pair_scores import Tensor
from feat2vec.model.principal_components import start_from_components
from feat2vec.model.schema_noise import make_noise, start_of_offsets
from feat2vec.model.single_items import id_counts, item_counts
from feat2vec.model.tracing import without_retracing_warnings
from feat2vec.model.vector_model import Inputs, SeedOf, shapes_of
from feat2vec.sampling.batches import Batches, table_of_entries, value_tables
from feat2vec.sampling.joint_values import Joint, joint_values


class MeanLoss(keras.metrics.Mean):
    """Keras' mean of scalars, to which several processes can add at once: no addend is lost."""

    def update_state(self, values: Tensor, sample_weight: Tensor | None = None) -> None:
        """Add a loss.

        Args:
            values: The loss, a scalar.
            sample_weight: How much it counts; 1 by default.

        """
        weight = tf.cast(1 if sample_weight is None else sample_weight, self.total.dtype)
        self.total.value.assign_add(tf.cast(values, weight.dtype) * weight)
        self.count.value.assign_add(weight)


@keras.saving.register_keras_serializable(package="feat2vec")
class Feat2Vec(LossModel):
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

    def __init__(self, schema: str, shapes: Mapping[str, ShapeData], classes: int = 0, **kwargs: Any) -> None:
        super().__init__(schema, shapes, classes, **kwargs)
        self.training_rows: Encoded | None = None
        self.class_weights: Float32s | None = None  # [classes]
        self.joints: list[Joint] = []
        self.loss_tracker = MeanLoss(name="loss")
        self.compiled_step: CompiledStep | None = None
        self._batches_seen = tf.Variable(0, trainable=False, dtype=tf.int64)
        # The first train step whose loss was not finite, -1 for none; from it on the weights stay as they were.
        self.failed_at = tf.Variable(-1, trainable=False, dtype=tf.int64)

    @classmethod
    def from_encoder(cls, encoder: Encoder) -> Feat2Vec:
        """A new model for a fitted encoder, with weights that follow from the schema's seed.

        Args:
            encoder: The encoder of the training rows, such as `feat2vec.fit(schema, table).encoder`.

        Returns:
            A model that is built, and not compiled.

        """
        classes = 0 if encoder.classes is None else len(encoder.classes.keys)
        keras.utils.set_random_seed(encoder.schema.training.seed)
        model = cls(encoder.schema.resolved(), shapes_of(encoder), classes)
        model.encoder = encoder
        model.build()
        return model

    # --- Keras ------------------------------------------------------------------------------------------------------

    def compile(self, optimizer: keras.optimizers.Optimizer | str | None = None, **kwargs: Any) -> None:
        """As that of Keras, with the schema's optimizer as the default, and without XLA.

        Args:
            optimizer: Any optimizer of Keras. Those of `feat2vec.optimizers` update the rows of a batch alone.
            **kwargs: Those of `keras.Model.compile`. `jit_compile` is ignored: XLA has no row-sparse updates.

        Raises:
            ValueError: If the schema has a `dependent_rate` and the optimizer is none of feat2vec, or the model
                computes with float16.

        """
        if self.compute_dtype == "float16":  # Keras would scale gradients down again that nothing has scaled up
            raise ValueError(
                "float16 needs a loss that is scaled up; use the dtype policy 'mixed_bfloat16' or 'float32'. "
                f"Received: {self.dtype_policy.name}"
            )
        if optimizer is None:
            options = self.schema.training.optimizer
            rows = self.schema.training.batch_size
            optimizer = optimizers.named(options.type, options.learning_rate, rows, **options.arguments)
        super().compile(optimizer=optimizer, **{**kwargs, "jit_compile": False})
        rate, of_free = self.schema.training.dependent_rate, self.schema.training.optimizer.learning_rate
        if rate is not None:
            if not isinstance(self.optimizer, optimizers.RowSparse):
                given = type(self.optimizer).__name__
                raise ValueError(f"`training.dependent_rate` is for the optimizers of feat2vec. Received: {given}")
            self.optimizer.learn_at_share(dependent_rows(self), rate / of_free)
        members = self.schema.model.members
        if self.has_posterior and members > 1 and isinstance(self.optimizer, optimizers.RowSparse):
            # A member's vectors, which learn as those of a model by itself, are longer than the tables'.
            tables = [extractor.tables[0] for extractor in self.distinct_extractors()]
            self.optimizer.learn_at_share([(table, slice(None)) for table in tables], members**-0.5)

    def compile_from_config(self, config: Mapping[str, object]) -> None:
        """Compile as the saved model was, and make room for its optimizer's slots.

        Args:
            config: What `get_compile_config` returned.

        """
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def fit(
        self, x: object = None, y: object = None, *, shuffle: bool = False, **kwargs: Any
    ) -> keras.callbacks.History:
        """Train as `keras.Model.fit` does, without shuffling batches, as `dataset` shuffles rows.

        Args:
            x: What `dataset` returns.
            y: None, as the dataset holds the targets.
            shuffle: Whether Keras shuffles. It has no effect on a dataset.
            **kwargs: The other arguments of `keras.Model.fit`.

        Returns:
            The loss of each epoch, as Keras' `History`.

        """
        with without_retracing_warnings():
            return super().fit(x, y, shuffle=shuffle, **kwargs)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """The mean loss."""
        return [self.loss_tracker]

    def train_step(self, data: tuple[object, ...]) -> dict[str, Tensor]:
        """Update the weights by a batch.

        Args:
            data: A batch of `dataset`.

        Returns:
            The mean loss of the epoch until now, as `{"loss": loss}`.

        """
        inputs, truth, weights = keras.utils.unpack_x_y_sample_weight(data)
        if SLOTS in inputs:
            loss, rows = require(self.compiled_step)(inputs, truth, weights), inputs[SIZE]
        else:
            loss, rows = self._step(inputs, truth, weights), rows_of(truth)
        self.loss_tracker.update_state(loss * self.unit_of_loss(), sample_weight=rows)
        return {"loss": self.loss_tracker.result()}

    def _step(self, inputs: Inputs, truth: Truth, weights: Tensor | None) -> Tensor:
        """Update the weights by a batch, and return its loss."""
        posterior_step: PosteriorStep | None = None
        if self.has_posterior:
            posterior_step = self.posterior_step(inputs, truth, weights)
            loss, gradients = posterior_step.loss, posterior_step.gradients
        else:
            loss, gradients = self.loss_and_gradients(inputs, truth, weights, self.step_seed(SeedOf.NOISE))
        self._update(loss, gradients, posterior_step)
        return loss

    def _step_of_batch(
        self, lookups: ManyLookups, batch: ReadBatch, labels: Tensor, weights: Tensor, draws: Sequence[Tensor]
    ) -> Tensor:
        """Update the weights by a batch whose vectors are read, and return its loss."""

        def loss_of_batch() -> Tensor:
            return self._many_groups_loss(batch, labels, weights, None, True, draws)

        loss, gradients = self._gradients_of_batch(lookups, batch, loss_of_batch)
        self._update(loss, gradients, None)
        return loss

    def _update(self, loss: Tensor, gradients: Gradients, posterior_step: PosteriorStep | None) -> None:
        """Update the weights, unless the loss of this step or of one before is not finite."""
        if isinstance(self.optimizer, optimizers.RowSparse):
            # Here and not in the optimizer: inside of `tf.cond`, ids cannot be known to be distinct.
            gradients = [
                (sum_duplicates(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient, variable)
                for gradient, variable in gradients
            ]
        step = tf.cast(self.optimizer.iterations.value, tf.int64)
        failed_at = tf.where((self.failed_at < 0) & ~tf.math.is_finite(loss), step, self.failed_at)
        self.failed_at.assign(failed_at)
        tf.cond(failed_at < 0, lambda: self._apply(gradients, posterior_step), lambda: False)

    def _apply(self, gradients: Gradients, posterior_step: PosteriorStep | None) -> bool:
        """Update the weights; True, as the branches of a `tf.cond` return something."""
        self.optimizer.apply_gradients(gradients)
        if posterior_step is not None:
            require(self.posterior).update(posterior_step, self.distinct_extractors(), self.optimizer)
        return True

    def test_step(self, data: tuple[object, ...]) -> dict[str, Tensor]:
        """Measure the loss of a batch. Each validation has the same negatives.

        Args:
            data: A batch of `dataset`.

        Returns:
            The mean loss of the validation until now, as `{"loss": loss}`.

        """
        inputs, truth, weights = keras.utils.unpack_x_y_sample_weight(data)
        seed = self.step_seed(SeedOf.VALIDATION, self._batches_seen)
        self._batches_seen.assign_add(1)
        loss = self.step_loss(inputs, truth, weights, seed, False)
        if self.implicit is not None:
            rows = rows_of(truth)
        else:
            rows = tf.math.count_nonzero(has_label(self.schema, truth), dtype=tf.int32)
        self.loss_tracker.update_state(loss * self.unit_of_loss(), sample_weight=rows)
        return {"loss": self.loss_tracker.result()}

    def reset_metrics(self) -> None:
        """Begin an epoch, or a validation."""
        super().reset_metrics()
        self._batches_seen.assign(0)

    # --- training rows ----------------------------------------------------------------------------------------------

    def learn_from(self, encoded: Encoded) -> None:
        """Take from the training rows what does not change by steps.

        That is the unit of numbers, and the start of the bias or of classes' biases, so that a score of 0 means what is
        best for all rows; the principal components of groups that start from them; the weights of classes; and the
        noise, which draws values of these rows.

        Args:
            encoded: The training rows.

        Raises:
            UserError: If the schema weighs a class that there is not, or draws from groups of one value each.
            ValueError: If the rows have no target to learn.

        """
        self._check_targets(encoded)
        self.training_rows, targets = encoded, encoded.learnt_target
        self.class_weights = class_weights(self.schema.objective, encoded.encoder.classes, targets)
        if targets is not None:
            self._start_at(targets)
        start_from_components(self, encoded)
        if self.has_posterior:
            self.posterior = self._new_posterior(encoded)
        if not self.schema.objective.needs_noise:
            return
        joints = [
            joint_values(encoded.rows, [self.groups.index(name) for name in names], left_out=encoded.left_out)
            for names in self.schema.noise.joint
        ]
        counts = [encoded.values[name].counts for name in self.groups]
        self.take_values(value_tables(encoded), counts, joints)
        for array in counts:
            release_pages(array)

    def _start_at(self, targets: Array) -> None:
        """Begin with what is best for all rows, where a weight for it is as it was made."""
        objective = self.schema.objective
        if objective.standardizes:
            if self.answer_scale_value().is_plain:
                self.answer_scale.assign(AnswerScale.of_numbers(targets))
        elif self.schema.model.bias and not float(self.bias):
            self.bias.assign(objective.starting_bias(targets))
        if objective.has_classes and not np.any(self.class_bias.numpy()):
            self.class_bias.assign(log_shares(targets, self.classes))

    def _new_posterior(self, encoded: Encoded) -> GaussianPosterior:
        """The variances of weights before the first step, and how often each key occurs in the training rows."""
        counts = []
        for members, extractor in zip(self.sharing, self.distinct_extractors(), strict=True):
            shape, of_columns = extractor.shape, []
            for values in (encoded.values[self.groups[member]] for member in members):
                ids = values.entries[:, : values.entries.shape[1] // 2] if shape.weighted else values.entries
                of_columns.append(id_counts(ids, values.counts, shape.sizes[0] + UNSEEN)[UNSEEN:])
            counts.append(np.sum(of_columns, axis=0))
        sizes = [extractor.shape.sizes[0] for extractor in self.distinct_extractors()]
        return GaussianPosterior(self.schema, sizes, counts, encoded.learnt_rows)

    @property
    def posterior_variables(self) -> list[keras.Variable]:
        """What training changes beside the weights, if these are normal; it is in checkpoints and in no run."""
        return [] if self.posterior is None else self.posterior.variables

    def take_values(
        self,
        tables: Sequence[Array],
        counts: Sequence[Integers],
        joints: Sequence[Joint] = (),
    ) -> None:
        """Make the noise, which draws values of these tables.

        Args:
            tables: Each group's entries with value id v in row v + 1, as `value_tables` gives them.
            counts: Of each group how often each value occurs, [values].
            joints: The tuples of values of each joint set.

        """
        self.value_tables = [table_of_entries(table) for table in tables]
        self.joined_values = join_values(self.value_tables) if self.can_read_at_once(self.value_tables) else None
        self.joints = list(joints)
        counts_of_drawn = [
            self._counts_of_items(g, tables[g], counts[g]) if g in self.groups_by_item else counts[g]
            for g in range(len(self.groups))
        ]
        self.noise = make_noise(
            self.schema, self.groups, self.params(), counts_of_drawn, self.joints, self.implicit, self.new_noise
        )
        if self.schema.objective.has_offsets and not np.any(self.offsets.numpy()):
            self.offsets.assign(start_of_offsets(self.noise, len(self.groups)))

    def _counts_of_items(self, group: int, table: Array, counts: Integers) -> Int64s:
        """How often each item of a group's lists occurs, by id; the table's first row is the missing list."""
        shape = self.extractors[group].shape
        ids = table[1:, : table.shape[1] // 2] if shape.weighted else table[1:]
        return item_counts(ids, counts, shape.sizes[0] + UNSEEN)

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
        self,
        encoded: Encoded,
        batch_size: int | None = None,
        shuffle: bool = True,
        *,
        groups_at_once: bool = False,
        compiled: bool = False,
    ) -> Batches:
        """What `dataset` makes its batches of.

        Args:
            encoded: The rows.
            batch_size: The rows of a batch, at most; that of the schema by default.
            shuffle: Whether each epoch has another order.
            groups_at_once: Whether a step reads many groups (see `has_many_groups`) at once: their entries are one
                array, which only `train_step`, `test_step` and `step_loss` take.
            compiled: Whether the batches are for a step that XLA compiles, if `can_be_compiled`; only `train_step`
                takes them then.

        Returns:
            The batches of each epoch.

        Raises:
            ValueError: If the rows have no target to learn, or the model has not learnt from rows yet.

        """
        self._check_targets(encoded)
        if self.training_rows is None and self.noise is None:
            raise ValueError(NO_TRAINING_ROWS)
        has_target, target = self.schema.target is not None, encoded.target
        if self.implicit is not None and target is None:
            target = np.ones(len(encoded), np.float32)
        tables, starts = self._entry_tables(encoded, groups_at_once)
        batches = Batches(
            encoded.rows,
            tables,
            batch_size or self.schema.training.batch_size,
            [] if has_target else self.joints,
            target=target if has_target else None,
            weight=self._row_weights(encoded, target) if has_target else None,
            keep_rows=self.noise is not None,
            shuffle=shuffle,
            seed=self.schema.training.seed,
            starts=starts,
            left_out=encoded.left_out,
        )
        if compiled and starts is not None and self.can_be_compiled:
            lookups = ManyLookups(self.extractors, self.schema.model.bias)
            rows = -(-batches.row_count // batches.steps)
            step = CompiledStep(lookups, rows, lambda size: self.interaction_draws(size), self._step_of_batch)
            batches.prepare, self.compiled_step = step.prepare, step
        return batches

    @property
    def can_be_compiled(self) -> bool:
        """Whether XLA can compile a step that reads all groups at once: of labelled rows, whose keys have vectors.

        Its updates are those of rows, which Keras' own optimizers have not. A GPU has kernels of TensorFlow.
        """
        tables = [table for extractor in self.distinct_extractors() for table in extractor.weights]
        return (
            self.has_many_groups
            and self.schema.target is not None
            and self.has_pairs
            and self.schema.model.activation is None
            and not tf.config.list_logical_devices("GPU")
            and all(parts_of(table) == [table] for table in tables)
        )

    def _entry_tables(self, encoded: Encoded, groups_at_once: bool) -> tuple[dict[str, tf.Variable], Int64s | None]:
        """What the entries of batches are gathered from: a table of each group, or one of all groups and its starts."""
        if self.noise is not None and self._has_training_values(encoded):
            tables, joined = self.value_tables, self.joined_values
        else:
            tables, joined = [table_of_entries(table) for table in value_tables(encoded)], None
        if groups_at_once and self.can_read_at_once(tables):
            joined = joined or join_values(tables)
            return {ENTRIES: joined.entries}, joined.starts
        return dict(zip(self.groups, tables, strict=True)), None

    def _has_training_values(self, encoded: Encoded) -> bool:
        """Whether value ids of these rows stand for the values that the noise draws: rows of the training table do."""
        rows = self.training_rows
        return rows is not None and all(
            encoded.values[name].entries is rows.values[name].entries for name in self.groups
        )

    def _check_targets(self, encoded: Encoded) -> None:
        """Raise if rows have no targets, and the schema has one. With implicit negatives they count as positive."""
        if self.schema.target is not None and self.implicit is None and encoded.target is None:
            raise ValueError(f"the rows have no target, {self.schema.target!r}, to learn from")

    def _row_weights(self, encoded: Encoded, target: Array | None) -> Array | None:
        """What the loss of each row is multiplied by, [rows]: its own weight times that of its class."""
        if self.class_weights is None:
            return encoded.weight
        of_class = weights_of_rows(self.class_weights, np.asarray(target))
        return of_class if encoded.weight is None else of_class * encoded.weight


def log_shares(targets: Array, classes: int) -> Float32s:
    """The logarithm of each class's share of the rows, with one row more for each class: [classes]."""
    class_ids = np.asarray(targets, np.int64)
    counts = np.bincount(class_ids[class_ids >= 0], minlength=classes) + 1
    shares: Float32s = (counts / counts.sum()).astype(np.float32)
    return np.log(shares)


__all__ = ["Feat2Vec", "Joint"]
