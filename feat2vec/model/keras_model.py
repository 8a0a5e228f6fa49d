"""`Feat2Vec`: how the scores of rows are learnt, as a Keras model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from feat2vec.encode.encoder import Encoded, Encoder
from feat2vec.errors import UserError, suggest
from feat2vec.model import optimizers
from feat2vec.model.extractors import Extracted
from feat2vec.model.losses import Noisy, self_supervised, supervised
from feat2vec.model.many_lookups import ENTRIES, MIN_GROUPS, ManyLookups, Read, are_plain, rows_at
from feat2vec.model.network import PURPOSES, Scores, each, shapes_of
from feat2vec.model.optimizers import sum_duplicates
from feat2vec.model.pair_scores import Level, Submodels, context, replaced, submodels
from feat2vec.model.pair_scores_by_key import LevelByKey, Occurrences, submodels_by_key
from feat2vec.model.sizes import NUMBER
from feat2vec.sampling.batches import Batches, value_tables
from feat2vec.sampling.joint_values import Joint, joint_values
from feat2vec.sampling.noise import Draw, Draws, Noise
from feat2vec.schema.options import Contrastive, Glove, Logistic, Nce, Regression, Softmax

MOST_SHARED = 256 << 20  # bytes of the negatives' vectors, where rows that share them each read their own
MOST_SUMS = 16  # groups whose sums a unit makes for itself, which takes operations by the square of the groups


class ManyStep(NamedTuple):
    """A batch of many groups, read."""

    many: ManyLookups
    read: Read
    slots: Any  # [batch, groups], where in `read` each vector is, counted from 1; 0 for none
    draws: Draws | None
    own: Any  # [batch], each row's target group
    slots_drawn: Any  # [batch, negatives]
    seed: Any


@keras.saving.register_keras_serializable(package="feat2vec")
class Feat2Vec(Scores):
    """A schema fitted to a table, as a Keras model: `call` takes {group: entries} and returns each row's score.

    Build one by `Feat2Vec.from_encoder(encoder)`, and batches for `fit` by `model.dataset(encoded, ...)`.
    """

    min_groups_at_once = MIN_GROUPS  # groups that are read at once, see `has_many`

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.noise: Noise | None = None
        self.learnt_from: Encoded | None = None
        self.class_weights: npt.NDArray[np.float32] | None = None
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

    # --- one step ---------------------------------------------------------------------------------------------------

    def step_loss(self, inputs: Mapping[str, Any], truth: Any, weight: Any, seed: Any, training: bool) -> Any:
        """The loss of a batch, a pure function of the weights.

        `truth` is the target, or value ids [batch, groups] without one, or (value ids, target) with implicit negatives.
        """
        spec = self.schema.training
        if ENTRIES in inputs:
            return self._many_loss(self._read_many(inputs, truth, seed), truth, weight, training)
        if self.schema.target is None:
            loss, extracted = self._noise_loss(inputs, truth, seed, training)
        else:
            loss, extracted = self._labelled_loss(inputs, truth, weight, seed, training)
        if training and spec.l2 and spec.l2_over == "tables":
            loss += spec.l2 / 2 * tf.add_n([tf.reduce_sum(tf.square(table.value)) for table in self._tables()])
        elif training and spec.l2:
            loss += spec.l2 / 2 * sum(one.square for one in extracted) / tf.cast(_rows_of(truth), loss.dtype)
        if training and spec.l2_linear:
            loss += (
                spec.l2_linear / 2 * sum(one.linear_square for one in extracted) / tf.cast(_rows_of(truth), loss.dtype)
            )
        return loss

    def _tables(self) -> list[Any]:
        return [variable for variable in self.trainable_variables if getattr(variable, optimizers.BY_ROW, False)]

    def _labelled_loss(
        self, inputs: Mapping[str, Any], truth: Any, weight: Any, seed: Any, training: bool
    ) -> tuple[Any, Sequence[Extracted]]:
        """The mean loss over the rows that have one, and their groups' vectors."""
        if self.implicit is None:
            label, more = truth, 0.0
            extracted: Sequence[Extracted] = self.extract(inputs, training, keyed=self.is_keyed)
        else:
            rows, label = truth
            more, extracted = self._implicit_loss(inputs, rows, seed, training)
            more = tf.where(label > 0, more, 0)
        return self._mean_loss(self._submodels(extracted, training), label, weight, training, more), extracted

    def _mean_loss(self, scores: Submodels, label: Any, weight: Any, training: bool, more: Any = 0.0) -> Any:
        """The mean loss over the rows that have one; `more` [batch] is added to it."""
        loss = self._supervised_loss(scores, label, training) + more
        if weight is not None:
            loss *= tf.cast(weight, loss.dtype)
        counted = self._counted(label)
        return tf.reduce_sum(tf.where(counted, loss, 0)) / tf.cast(tf.maximum(_count(counted), 1), loss.dtype)

    def _counted(self, label: Any) -> Any:
        """The rows that have a loss, bool [batch]: a class that training has not seen, -1, has no probability."""
        if isinstance(self.schema.objective, Softmax):
            return tf.cast(label, tf.int32) >= 0
        return tf.ones(tf.shape(label)[:1], tf.bool)

    def _supervised_loss(self, scores: Submodels, label: Any, training: bool) -> Any:
        """[batch]; in training the lower levels learn from the level above."""
        objective = self.schema.objective
        loss = supervised(objective, scores.scores[-1], tf.cast(label, scores.scores[-1].dtype))
        if training and self._has_levels():
            for low, target in zip(scores.scores, scores.targets, strict=False):
                loss += supervised(objective, low, tf.cast(label, low.dtype), target)
        return loss

    def _implicit_loss(
        self, inputs: Mapping[str, Any], rows: Any, seed: Any, training: bool
    ) -> tuple[Any, Sequence[Extracted]]:
        """The loss [batch] of each row's negatives, which differ from it in one group, and the rows' vectors."""
        group, noise = self._required(self.implicit), self._required(self.noise)
        (draw,) = noise.sample(rows, seed)
        extracted, drawn = self._extract_with(inputs, {group: draw.values[0]}, training)
        others = tf.constant([float(g != group) for g in range(len(self.groups))], self.compute_dtype)[None]
        base, around = self._context(extracted, tf.tile(others, [tf.shape(rows)[0], 1]))
        negatives = self._replace(base, around, [drawn[group]], tf.shape(draw.values[0]))
        loss = tf.reduce_sum(self._supervised_loss(negatives, tf.zeros_like(negatives.scores[-1]), training), axis=1)
        return tf.where(draw.present, loss, 0), extracted

    def _required(self, part: Any) -> Any:
        if part is None:
            raise ValueError("the model has no noise to learn from; make its batches by model.dataset(encoded)")
        return part

    def _has_levels(self) -> bool:
        return len(self.dims) > 1 and self.schema.model.level_sharing == "separate"

    def _noise_loss(
        self, inputs: Mapping[str, Any], rows: Any, seed: Any, training: bool
    ) -> tuple[Any, Sequence[Extracted]]:
        """The mean loss over the rows, each against negatives of its target unit, and the rows' vectors."""
        noise = self._required(self.noise)
        draws = noise.sample(rows, seed)
        targets = zip(noise.units, draws, strict=True)
        values = {g: drawn for unit, draw in targets for g, drawn in zip(unit.groups, draw.values, strict=True)}
        extracted, drawn = self._extract_with(inputs, values, training)
        sizes = tf.stack([tf.shape(draw.rows)[0] for draw in draws])
        ends = tf.cumsum(sizes)
        kept = self._context_mask(noise, ends, seed, training)  # [batch, groups]
        slices: list[Any]  # [units][groups]
        if isinstance(self.schema.objective, Contrastive) and len(self.groups) <= MOST_SUMS:
            slices = list(zip(*(_parts(one, sizes) for one in extracted), strict=True))
            masks = tf.split(kept, sizes)
            units = [self._sum(unit.groups, *some) for unit, *some in zip(noise.units, slices, masks, strict=True)]
        else:  # a unit's own groups alone: a slice of each group for each unit would be as many as groups squared
            spans = zip(noise.units, tf.unstack(ends - sizes, num=len(draws)), tf.unstack(sizes), strict=True)
            slices = [{g: _rows_of_unit(extracted[g], *span) for g in unit.groups} for unit, *span in spans]
            base, context_ = self._context(extracted, kept)
            bases = zip(*(tf.split(score, sizes) for score in base.scores), strict=True)
            arounds = zip(*(_slices(level, sizes) for level in context_), strict=True)
            units = [(Submodels(list(some), []), list(around)) for some, around in zip(bases, arounds, strict=True)]
        total = 0.0
        for unit, draw, some, (alone, around) in zip(noise.units, draws, slices, units, strict=True):
            own = [some[g] for g in unit.groups]
            loss = self._unit_loss(unit.groups, draw, alone, around, own, drawn, training)
            total += tf.reduce_sum(tf.where(draw.present, loss, tf.zeros_like(loss)))
        return total / tf.cast(tf.shape(rows)[0], kept.dtype), extracted

    def _sum(self, unit: Sequence[int], some: Sequence[Extracted], kept: Any) -> tuple[Submodels, list[Level]]:
        """`_context` of one unit's slice where rivals are compared with each other alone.

        What they share cancels in their differences, so that no score is needed, nor the groups side by side; and each
        slice of a group is used once, so that no gradients have to be added up.
        """
        outside = [g for g in range(len(some)) if g not in unit]
        sums = []
        for levels in zip(*(self._merged(one.levels) for one in some), strict=True):
            parts = zip(*(levels[g] for g in outside), strict=True)
            weighted = [
                None if part[0] is None else [x * kept[:, g : g + 1] for x, g in zip(part, outside, strict=True)]
                for part in parts
            ]
            nothing = [[tf.zeros_like(levels[0].free)]]
            sums.append(Level(*(None if part is None else tf.add_n(part) for part in weighted or nothing)))
        return Submodels([tf.zeros_like(kept[:, 0])] * len(sums), []), sums

    def _context(self, extracted: Sequence[Extracted], kept: Any) -> tuple[Submodels, list[Level]]:
        """The score of the groups that are kept [batch, groups], and the sum of their vectors."""
        levels, linear = self._stack(extracted)
        masked = [each(lambda x: x * kept[..., None], level) for level in levels]
        linear = tf.reduce_sum(linear * kept, axis=1) + self._bias()
        return submodels(masked, linear, self.schema.model.dependents), context(masked)

    def _context_mask(self, noise: Noise, ends: Any, seed: Any, training: bool) -> Any:
        """1 for the groups that a row's target unit meets, [batch, groups]: neither in the unit nor dropped."""
        outside = np.ones((len(noise.units), len(self.groups)), self.compute_dtype)
        for u, unit in enumerate(noise.units):
            outside[u, list(unit.groups)] = 0
        kept = tf.gather(outside, tf.searchsorted(ends, tf.range(ends[-1]), side="right"))
        rate = self.schema.training.group_dropout
        if training and rate:
            seeds = tf.random.split(tf.cast(seed, tf.int64), 3, alg="philox")
            kept *= tf.cast(tf.random.stateless_uniform(tf.shape(kept), seeds[2]) >= rate, kept.dtype)
        return kept

    def _extract_with(
        self, inputs: Mapping[str, Any], values: Mapping[int, Any], training: bool
    ) -> tuple[list[Extracted], dict[int, Extracted]]:
        """The rows' vectors, and some groups' for `values`: in one call, so that a key is looked up once."""
        extracted, drawn = [], {}
        for g, (name, extractor) in enumerate(zip(self.groups, self.extractors, strict=True)):
            entries = [inputs[name]]
            if g in values:
                entries.append(tf.gather(self.value_tables[g], tf.reshape(values[g], [-1]) + 1))
            whole = self._run(extractor, _joined(entries), training)
            rows, *more = _parts(whole, tf.stack([tf.shape(some)[0] for some in entries]))
            extracted.append(rows)
            if more:
                drawn[g] = more[0]
        return extracted, drawn

    def _unit_loss(
        self,
        unit: tuple[int, ...],
        draw: Draw,
        base: Submodels,
        around: list[Level],
        own: Sequence[Extracted],
        drawn: Mapping[int, Extracted],
        training: bool,
    ) -> Any:
        """The loss of the rows [n] of one unit's slice: the other groups stay, the unit's values are replaced."""
        positive = self._replace(base, around, own, (-1, 1))
        negatives = self._replace(base, around, [drawn[g] for g in unit], tf.shape(draw.values[0]))
        log_q = Noisy(draw.log_q_positive, draw.log_q)
        objective = self.schema.objective
        offset = self.offsets[unit[0]] if isinstance(objective, Nce) else 0.0
        pairs = [Noisy(up[:, 0], down) for up, down in zip(positive.scores, negatives.scores, strict=True)]
        targets = [Noisy(up[:, 0], down) for up, down in zip(positive.targets, negatives.targets, strict=True)]
        loss = self_supervised(objective, pairs[-1], log_q, draw.hits, offset)
        if training and self._has_levels():
            for low, target in zip(pairs, targets, strict=False):
                loss += self_supervised(objective, low, log_q, draw.hits, offset, target)
        return loss

    # --- many groups ------------------------------------------------------------------------------------------------

    @property
    def has_many(self) -> bool:
        """Whether a step reads all groups at once: many lookups, of which nothing but pairs is asked for."""
        schema = self.schema
        plain = self.head is None and self.implicit is None and not isinstance(schema.objective, Softmax)
        plain = (
            plain
            and len(self.partners) == len(self.groups) >= self.min_groups_at_once
            and schema.training.l2_over != "tables"
        )
        if schema.target is None:
            noise = schema.noise
            drawn = 1 if noise.sharing == "record" else noise.negatives  # read for each row where rows share them
            size = schema.training.batch_size * drawn * self.dims[-1] * NUMBER
            plain = plain and not noise.joint and size <= MOST_SHARED
        return plain and are_plain(self.extractors)

    def _many(self) -> ManyLookups:
        return ManyLookups(self.extractors, self.schema.model.bias)

    def _read_many(self, inputs: Mapping[str, Any], truth: Any, seed: Any) -> ManyStep:
        """Read the vectors of a batch's entries and, without a target, of its negatives."""
        many, entries = self._many(), inputs[ENTRIES]  # [batch, groups]
        places = tf.reshape(many.places(entries, tf.zeros_like(entries) + tf.range(len(self.groups))), [-1])
        draws = own = None
        if self.schema.target is None:
            noise = self._required(self.noise)
            draws = noise.sample_all(truth, seed)
            own = tf.gather([unit.groups[0] for unit in noise.units], draws.unit)  # [batch]
            if noise.sharing == "batch":
                draws = draws._replace(
                    values=tf.gather(draws.values, draws.unit), log_q=tf.gather(draws.log_q, draws.unit)
                )
            starts = tf.gather(self.flat_starts, own)[:, None]
            drawn = tf.gather(self.flat_values, tf.cast(draws.values, tf.int64) + 1 + starts)  # [batch, negatives]
            of = tf.zeros_like(drawn) + own[:, None]
            places = tf.concat([places, tf.reshape(many.places(drawn, of), [-1])], axis=0)
        read, slots = many.read(places)
        batch = tf.size(entries)
        slots_of_rows = tf.reshape(slots[:batch], [-1, len(self.groups)])
        slots_drawn = None if draws is None else tf.reshape(slots[batch:], tf.shape(draws.values))
        return ManyStep(many, read, slots_of_rows, draws, own, slots_drawn, seed)

    def _many_gradients(self, inputs: Mapping[str, Any], truth: Any, weight: Any) -> tuple[Any, list[tuple[Any, Any]]]:
        """The loss, and each variable's gradient; what was read is what it is taken of."""
        step = self._read_many(inputs, truth, self._seed(0))
        tables = {id(table) for table in (*step.many.tables, *(step.many.linear or ()))}
        others = [variable for variable in self.trainable_variables if id(variable) not in tables]
        read = [step.read.vectors, *([] if step.read.terms is None else [step.read.terms])]
        with tf.GradientTape() as tape:
            tape.watch(read)
            loss = self._many_loss(step, truth, weight, True)
        found = tape.gradient(loss, [*read, *(variable.value for variable in others)])
        pairs: list[tuple[Any, Any]] = list(zip(found[len(read) :], others, strict=True))
        terms = found[1] if len(read) > 1 else None
        return loss, [
            *step.many.gradients(step.read, found[0], terms), *(pair for pair in pairs if pair[0] is not None)
        ]  # fmt: skip

    def _many_loss(self, step: ManyStep, truth: Any, weight: Any, training: bool) -> Any:
        """The loss of a batch that was read."""
        spec, read = self.schema.training, step.read
        if self.schema.target is None:
            loss = self._many_noise_loss(step, training)
        else:
            loss = self._mean_loss(self._many_scores(step, training), truth, weight, training)
        rows = tf.cast(_rows_of(truth), loss.dtype)
        if training and spec.l2:
            loss += spec.l2 / 2 * tf.reduce_sum(tf.reduce_sum(tf.square(read.vectors), axis=1) * read.counts) / rows
        if training and spec.l2_linear and read.terms is not None:
            loss += spec.l2_linear / 2 * tf.reduce_sum(tf.square(read.terms[:, 0]) * read.counts) / rows
        return loss

    def _many_scores(self, step: ManyStep, training: bool) -> Submodels:
        """The scores of a batch's rows."""
        batch, there = tf.shape(step.slots)[0], tf.where(step.slots > 0)
        places, rows = tf.gather_nd(step.slots, there) - 1, tf.cast(there[:, 0], tf.int32)
        linear = tf.zeros([batch], step.read.vectors.dtype)
        if step.read.terms is not None:
            linear += tf.math.unsorted_segment_sum(tf.gather(step.read.terms[:, 0], places), rows, batch)
        masks = self._interaction_masks(batch) if training else None
        level = LevelByKey(step.read.vectors, Occurrences(places, rows))
        return submodels_by_key([level], linear + self._bias(), self.schema.model.dependents, masks)

    def _many_noise_loss(self, step: ManyStep, training: bool) -> Any:
        """The mean loss over the rows, each against negatives of its target unit."""
        noise, draws = self._required(self.noise), self._required(step.draws)
        kept = self._context_mask(noise, tf.cumsum(draws.sizes), step.seed, training)  # [batch, groups]
        vectors, drawn = rows_at(step.read.vectors, step.slots), rows_at(step.read.vectors, step.slots_drawn)
        masked = [Level(vectors * kept[..., None])]
        positive = tf.gather(vectors, step.own, batch_dims=1)[:, None]  # [batch, 1, dim]
        linear, linear_positive, linear_drawn = (tf.zeros_like(x[..., 0]) for x in (masked[0].free, positive, drawn))
        if step.read.terms is not None:
            terms, linear_drawn = (rows_at(step.read.terms, x)[..., 0] for x in (step.slots, step.slots_drawn))
            linear, linear_positive = terms * kept, tf.gather(terms, step.own, batch_dims=1)[:, None]
        objective, dependents = self.schema.objective, self.schema.model.dependents
        if isinstance(objective, Contrastive) and objective.unit:
            positive, drawn = (tf.math.l2_normalize(x, axis=-1, epsilon=1e-6) for x in (positive, drawn))
        base = submodels(masked, tf.reduce_sum(linear, axis=1) + self._bias(), dependents)
        around = context(masked)
        up = replaced(base, [Level(positive)], around, linear_positive, dependents).scores[-1][:, 0]
        down = replaced(base, [Level(drawn)], around, linear_drawn, dependents).scores[-1]
        if isinstance(objective, Nce):
            offset = tf.gather(tf.convert_to_tensor(self.offsets), step.own)
            up, down = up + offset, down + offset[:, None]
        hits = draws.positive[:, None] == draws.values
        loss = self_supervised(objective, Noisy(up, down), Noisy(draws.log_q_positive, draws.log_q), hits, 0.0)
        loss = tf.where(draws.positive >= 0, loss, tf.zeros_like(loss))
        return tf.reduce_sum(loss) / tf.cast(tf.shape(loss)[0], loss.dtype)

    def _replace(self, base: Submodels, around: list[Level], unit: Sequence[Extracted], shape: Any) -> Submodels:
        """Scores with candidates in place of a unit, whose groups have vectors [candidates, D_k] and linear terms.

        `shape` is [n, k], or [K] if the rows share them.
        """
        dependents = self.schema.model.dependents
        shape = tf.convert_to_tensor(shape)
        levels, linear = self._stack(unit)  # [candidates, members, D_k]
        if isinstance(self.schema.objective, Contrastive) and self.schema.objective.unit:
            levels = [each(partial(tf.math.l2_normalize, axis=-1, epsilon=1e-6), level) for level in levels]
        alone = [each(lambda x: tf.reshape(x, tf.concat([shape, x.shape[1:]], 0)), level) for level in levels]
        linear = tf.reshape(linear, tf.concat([shape, [len(unit)]], 0))
        if len(unit) == 1:
            one = [each(lambda x: x[..., 0, :], level) for level in alone]
            return replaced(base, one, around, linear[..., 0], dependents)
        inside = submodels(alone, tf.reduce_sum(linear, axis=-1), dependents)  # pairs between the unit's own groups
        scores = replaced(base, context(alone), around, tf.zeros_like(linear[..., 0]), dependents).scores
        scores = [score + more for score, more in zip(scores, inside.scores, strict=True)]
        return Submodels(scores, [tf.stop_gradient(score) for score in scores[1:]])

    # --- Keras ------------------------------------------------------------------------------------------------------

    def compile(self, optimizer: Any = None, **kwargs: Any) -> None:
        """As Keras'; the schema's optimizer unless another is given. XLA has no row-sparse updates."""
        if optimizer is None:
            chosen = self.schema.training.optimizer
            optimizer = optimizers.named(chosen.type, chosen.learning_rate, self.schema.training.batch_size)
        super().compile(optimizer=optimizer, **{**kwargs, "jit_compile": False})

    def compile_from_config(self, config: Mapping[str, Any]) -> None:
        """Compile as the saved model was, and make room for its optimizer's slots."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def fit(self, x: Any = None, y: Any = None, *, shuffle: bool = False, **kwargs: Any) -> Any:
        """As Keras'; `dataset` has shuffled the batches."""
        return super().fit(x, y, shuffle=shuffle, **kwargs)

    @property
    def metrics(self) -> list[Any]:
        """The mean loss."""
        return [self.loss_tracker]

    def train_step(self, data: Any) -> dict[str, Any]:
        """Update the weights for a batch."""
        inputs, truth, weight = keras.utils.unpack_x_y_sample_weight(data)
        if ENTRIES in inputs:
            loss, pairs = self._many_gradients(inputs, truth, weight)
        else:
            with tf.GradientTape() as tape:
                loss = self.step_loss(inputs, truth, weight, self._seed(0), True)
            gradients = tape.gradient(loss, [variable.value for variable in self.trainable_variables])
            pairs = [(g, v) for g, v in zip(gradients, self.trainable_variables, strict=True) if g is not None]
        if self.schema.training.l2 and self.schema.training.l2_over == "tables":  # every row has a gradient
            pairs = [(tf.convert_to_tensor(g), v) for g, v in pairs]
        if isinstance(self.optimizer, optimizers.RowSparse):  # outside of the condition, where repeated ids are known
            pairs = [(sum_duplicates(g) if isinstance(g, tf.IndexedSlices) else g, v) for g, v in pairs]
        step = tf.cast(self.optimizer.iterations.value, tf.int64)
        failed = tf.where((self.failed_at < 0) & ~tf.math.is_finite(loss), step, self.failed_at)
        self.failed_at.assign(failed)
        tf.cond(failed < 0, lambda: self._apply(pairs), lambda: False)
        self.loss_tracker.update_state(loss, sample_weight=_rows_of(truth))
        return {"loss": self.loss_tracker.result()}

    def _apply(self, pairs: Sequence[tuple[Any, Any]]) -> bool:
        self.optimizer.apply_gradients(pairs)
        return True

    def test_step(self, data: Any) -> dict[str, Any]:
        """The loss of a batch, with the same negatives in every epoch."""
        inputs, truth, weight = keras.utils.unpack_x_y_sample_weight(data)
        seed = tf.stack([tf.cast(self.schema.training.seed * PURPOSES + 1, tf.int64), self._batches_seen])
        self._batches_seen.assign_add(1)
        rows = _rows_of(truth) if self.implicit is not None else _count(self._counted(truth))
        self.loss_tracker.update_state(self.step_loss(inputs, truth, weight, seed, False), sample_weight=rows)
        return {"loss": self.loss_tracker.result()}

    def reset_metrics(self) -> None:
        """Begin an epoch, or a validation."""
        super().reset_metrics()
        self._batches_seen.assign(0)

    # --- batches ----------------------------------------------------------------------------------------------------

    def learn_from(self, encoded: Encoded) -> None:
        """Draw negatives from the values of training rows, weigh classes by them, begin at their target's mean."""
        self.learnt_from = encoded
        self.class_weights = _class_weights(self.schema.objective, encoded)
        if self.schema.model.bias and not float(self.bias):
            self.bias.assign(_mean_score(self.schema.objective, encoded.target))
        if self.schema.target is not None and self.implicit is None:
            return
        joints = [
            joint_values(encoded.rows, [self.groups.index(name) for name in names]) for names in self.schema.noise.joint
        ]
        self.take_values(value_tables(encoded), [encoded.values[name].counts for name in self.groups], joints)

    def take_values(self, tables: Sequence[Any], counts: Sequence[Any], joints: Sequence[Joint] = ()) -> None:
        """Draw negatives from value tables (as `value_tables` gives them) with counts [values]."""
        noise, targets = self.schema.noise, self.schema.noise.targets
        self.value_tables = [tf.Variable(table, trainable=False) for table in tables]
        self.joints = list(joints)
        tuples = [(joint.groups, joint.values(), joint.counts) for joint in joints]
        _refuse_one_value(
            self.groups, counts, tuples, targets if self.implicit is None else [self.groups[self.implicit]]
        )
        several = [self.groups.index(name) for name in targets or self.groups]
        self.noise = Noise(
            counts,
            self.params(),
            noise.alpha_groups,
            noise.alpha_values,
            noise.negatives,
            noise.sharing,
            tuples,
            several if self.implicit is None else [self.implicit],
            [targets.get(name, 0.0) for name in self.groups] if targets and isinstance(targets, dict) else None,
        )
        if isinstance(self.schema.objective, Nce) and not np.any(self.offsets.numpy()):
            offsets = np.zeros(len(self.groups), np.float32)
            for unit in self.noise.units:
                offsets[unit.groups[0]] = unit.mean_log_q + math.log(noise.negatives)
            self.offsets.assign(offsets)

    def dataset(self, encoded: Encoded, batch_size: int | None = None, shuffle: bool = True) -> tf.data.Dataset:
        """Batches for `fit` (shuffled) or `evaluate` (in order). The first one made is what the noise is drawn from."""
        return self.batches(encoded, batch_size, shuffle).dataset()

    def batches(
        self, encoded: Encoded, batch_size: int | None = None, shuffle: bool = True, *, together: bool = False
    ) -> Batches:
        """What `dataset` makes its batches of.

        With `together` the entries of many groups (see `has_many`) are one array, which `train_step` and `test_step`
        take and nothing else does.
        """
        labelled = self.schema.target is not None
        target, weight = encoded.target, encoded.weight
        if self.implicit is not None and target is None:
            target = np.ones(len(encoded), np.float32)
        if labelled and target is None:
            raise ValueError(f"the rows have no target, {self.schema.target!r}, to learn from")
        if self.learnt_from is None and self.noise is None:
            self.learn_from(encoded)
        if self.noise is not None and encoded is self.learnt_from:
            tables = self.value_tables
        else:
            tables = [tf.Variable(table, trainable=False) for table in value_tables(encoded)]
        if labelled and self.class_weights is not None:
            of_class = self.class_weights[np.asarray(target, np.int32)]
            weight = of_class if weight is None else of_class * weight
        training, starts = self.schema.training, None
        named = dict(zip(self.groups, tables, strict=True))
        if together and self.has_many and all(table.shape[1] == 1 for table in tables):
            flat, starts = _one_below_the_other(tables)
            named = {ENTRIES: flat}
            if self.noise is not None and encoded is self.learnt_from:
                self.flat_values, self.flat_starts = flat, starts
        return Batches(
            encoded.rows,
            named,
            batch_size or training.batch_size,
            [] if labelled else self.joints,
            target=target if labelled else None,
            weight=weight if labelled else None,
            keep_rows=self.noise is not None,
            shuffle=shuffle,
            seed=training.seed,
            starts=starts,
        )


def _one_below_the_other(tables: Sequence[Any]) -> tuple[Any, npt.NDArray[np.int64]]:
    """Entries of one id each, of all groups, as one table [values], and where each group's begin."""
    sizes = np.array([table.shape[0] for table in tables], np.int64)
    return tf.Variable(tf.concat(list(tables), axis=0)[:, 0], trainable=False), np.cumsum(sizes) - sizes


def _refuse_one_value(
    groups: Sequence[str], counts: Sequence[Any], tuples: Sequence[Any], targets: Sequence[str] | Mapping[str, float]
) -> None:
    """Noise needs a group, or a joint set, of several values to draw from."""
    drawn = {name: np.count_nonzero(count) for name, count in zip(groups, counts, strict=True)}
    joined = [(" with ".join(groups[g] for g in members), np.count_nonzero(count)) for members, _, count in tuples]
    some = {name: values for name, values in drawn.items() if name in (targets or groups)} | dict(joined)
    if max(some.values()) < 2:
        each = "has one value" if len(some) == 1 else "have one value each"
        raise UserError(
            f"noise: {', '.join(some)} {each}, and to tell rows from noise takes two or more; "
            "give rows that differ, or another group to draw from"
        )


def _class_weights(objective: Any, encoded: Encoded) -> npt.NDArray[np.float32] | None:
    """What the loss of a row of each class is multiplied by: [classes]."""
    given = getattr(objective, "class_weights", None)
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


def _mean_score(objective: Any, target: Any) -> float:
    """The score that fits a target best if it is the same in every row; 0 where scores have no such meaning."""
    match objective:
        case Regression():
            return float(np.mean(target, dtype=np.float64))
        case Glove():
            return float(np.mean(np.log(target), dtype=np.float64))
        case Logistic(implicit=None):
            share = np.clip(np.mean(target, dtype=np.float64), 1e-3, 1 - 1e-3)
            return float(np.log(share / (1 - share)))
    return 0.0


def _rows_of(truth: Any) -> Any:
    """The number of rows of a batch."""
    return tf.shape(truth[0] if isinstance(truth, tuple) else truth)[0]


def _count(mask: Any) -> Any:
    return tf.math.count_nonzero(mask, dtype=tf.int32)


def _joined(entries: Sequence[Any]) -> Any:
    """Entries one below the other; narrower bags, of training rows, are padded."""
    width = max(some.shape[1] for some in entries)
    return tf.concat([tf.pad(x, [[0, 0], [0, width - x.shape[1]]]) if x.shape[1] < width else x for x in entries], 0)


def _slices(level: Level, sizes: Any) -> list[Level]:
    """A level's rows in slices."""
    parts = [[None] * sizes.shape[0] if part is None else tf.split(part, sizes) for part in level]
    return [Level(*pair) for pair in zip(*parts, strict=True)]


def _rows_of_unit(extracted: Extracted, start: Any, size: Any) -> Extracted:
    """A group's rows from `start` on, without what L2 counts."""
    levels = [each(lambda x: x[start : start + size], level) for level in extracted.levels]
    linear = None if extracted.linear is None else extracted.linear[start : start + size]
    return Extracted(tuple(levels), linear, 0.0, 0.0)


def _parts(extracted: Extracted, sizes: Any) -> list[Extracted]:
    """A group's rows in slices; the first has all that L2 counts."""
    levels = zip(*(_slices(level, sizes) for level in extracted.levels), strict=True)
    linear = [None] * sizes.shape[0] if extracted.linear is None else tf.split(extracted.linear, sizes)
    rest = [0.0] * (sizes.shape[0] - 1)
    squares = zip([extracted.square, *rest], [extracted.linear_square, *rest], strict=True)
    return [Extracted(some, terms, *pair) for some, terms, pair in zip(levels, linear, squares, strict=True)]


__all__ = ["Feat2Vec", "Joint"]
