"""`ScoreModel`: the score of a row.

    groups' vectors -> scores of their pairs -> bias and head -> score

The weights and the vectors are those of `VectorModel`. `Feat2Vec`, which derives from `ScoreModel`, adds how weights
are learnt.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from keras import ops

from feat2vec.model.answer_scale import AnswerScale, LaterScale
from feat2vec.model.extractors import UNSEEN, Extracted
from feat2vec.model.group_vectors import add_groups, scores_by_key, stack_key_vectors, stack_linear, stack_vectors
from feat2vec.model.mlp import SEED_STRIDE
from feat2vec.model.pair_scores import Level, Submodels, Tensor, context, replaced, submodels
from feat2vec.model.vector_model import Inputs, SeedOf, VectorModel
from feat2vec.schema.training_options import Mlp


class ScoreModel(VectorModel):
    """A schema's model: `call` takes {group: entries} and returns each row's score.

    Args:
        schema: The schema as YAML, every default filled in.
        shapes: What each group's layer has to know of the data; see `shapes_of`.
        classes: The number of classes of a softmax objective.
        **kwargs: Those of `keras.Model`.

    """

    @property
    def has_pairs(self) -> bool:
        """Whether the pairs of groups are a part of the score: a network can do without, a linear model has none."""
        return self.schema.model.pairs and (not isinstance(self.schema.head, Mlp) or self.schema.head.pairs)

    def call(self, inputs: Inputs, training: bool = False) -> Tensor:
        """Return the answers for rows: their scores, which of numbers are in the unit of the target.

        Args:
            inputs: The entries of each group, [batch, width].
            training: Whether what training drops is dropped.

        Returns:
            The scores, [batch], or [batch, classes] for a softmax objective.

        """
        return self.answers(self.submodels(inputs, training).scores[-1], inputs)

    def answers(self, scores: Tensor, inputs: Inputs) -> Tensor:
        """Bring scores to the unit of the target; see `answer_scale.py`.

        Args:
            scores: Scores [batch] or [batch, classes], as the loss has them.
            inputs: The entries of each group, [batch, width].

        Returns:
            The answers, of the same shape; the scores themselves without a target.

        """
        if self.schema.target is None:
            return scores
        shift, unit, low, high, temperature = tf.unstack(self.answer_scale.value)
        if self.schema.training.time is not None:
            later_temperature, _ = tf.unstack(self.later_scale.value)
            are_later = tf.reshape(self.are_later(inputs), [-1] + [1] * (scores.shape.rank - 1))
            temperature = tf.where(are_later, later_temperature, temperature)
        answers = tf.clip_by_value(shift + unit * temperature * tf.cast(scores, unit.dtype), low, high)
        return tf.cast(answers, scores.dtype)

    def are_later(self, inputs: Inputs) -> Tensor:
        """Which rows are of a time that training has not seen, of a model that is told their time.

        Args:
            inputs: The entries of each group, [batch, width].

        Returns:
            [batch], true for such rows.

        """
        entries = inputs[str(self.schema.training.time)]
        if entries.dtype.is_floating:
            return entries[:, 0] > tf.cast(self.later_scale.value[1], entries.dtype)
        return tf.reduce_any(tf.equal(entries, UNSEEN), axis=1)

    def answer_scale_of_row(self, inputs: Inputs) -> AnswerScale:
        """What turns the scores of a row into its answer.

        Args:
            inputs: The entries of each group, [1, width].

        Returns:
            The numbers, with the temperature of the row's time.

        """
        scale = self.answer_scale_value()
        if self.schema.target is None or self.schema.training.time is None or not bool(self.are_later(inputs)[0]):
            return scale
        return self.later_scale_value().applied_to(scale)

    def later_scale_value(self) -> LaterScale:
        """What rows of a time that training has not seen have for themselves.

        Returns:
            The numbers of the weight, those that change nothing without `training.time`.

        """
        has_scale = self.schema.target is not None and self.schema.training.time is not None
        return LaterScale(*self.later_scale.numpy().tolist()) if has_scale else LaterScale()

    @property
    def has_calibration(self) -> bool:
        """Whether a temperature makes answers better: scores stand for a number, or for probabilities of labels."""
        return self.schema.objective.is_calibrated

    def answer_scale_value(self) -> AnswerScale:
        """What turns scores into answers.

        Returns:
            The numbers of the weight, those that change nothing without a target.

        """
        return AnswerScale() if self.schema.target is None else AnswerScale(*self.answer_scale.numpy().tolist())

    def submodels(self, inputs: Inputs, training: bool = False) -> Submodels:
        """The scores of rows at every level.

        Args:
            inputs: The entries of each group, [batch, width].
            training: Whether what training drops is dropped.

        Returns:
            For each level the score of the model up to it. The last is that of the model.

        """
        return self.score(self.extract(inputs, training), training)

    @property
    def is_keyed(self) -> bool:
        """Whether the scores of labelled rows can be taken from the distinct keys' vectors.

        They can where only sums over pairs of groups are needed, in float32: squares of shorter numbers overflow.
        """
        plain = self.head is None and not self.schema.objective.has_classes and self.implicit is None
        has_members = len(self.schema.model.member_dims) > 1
        return plain and self.has_pairs and (self.compute_dtype == "float32" or has_members)

    def head_score(self, extracted: Sequence[Extracted]) -> Tensor:
        """What the head adds to the pairs' score, outside of training.

        Args:
            extracted: The vectors of each group, as `extract` returns them.

        Returns:
            The addends, [batch], or [batch, classes] for a softmax objective.

        """
        partners = self._add_together(extracted)
        return self._head_score(
            stack_vectors(partners, truncated=self.schema.model.levels.nested), None, training=False
        )

    def score(self, extracted: Sequence[Extracted], training: bool) -> Submodels:
        """The scores at every level, from each group's vectors.

        Args:
            extracted: The vectors of each group, as `extract` returns them.
            training: Whether what training drops is dropped.

        Returns:
            For each level the score of the model up to it. The last is that of the model.

        """
        partners = self._add_together(extracted)
        if any(partner.key_vectors for partner in partners):
            return self._score_by_key(partners, training)
        levels = stack_vectors(partners, truncated=self.schema.model.levels.nested)  # [batch, partners, D_k]
        linear = stack_linear(partners, bias=self.schema.model.bias)  # [batch, partners]
        masks = self.interaction_masks(tf.shape(linear)[0]) if training else None
        total_linear = tf.reduce_sum(linear, axis=1) + self.bias_or_zero()  # [batch]
        if self.schema.objective.has_classes:
            scores = self._score_classes(levels)
        elif not self.has_pairs:
            scores = Submodels([total_linear], [])
        else:
            scores = submodels(levels, total_linear, self.schema.model.dependents, masks)
        if self.head is None:
            return scores
        if training and self.head.members > 1:
            return self._add_members(scores, levels, masks)
        return add_to_top(scores, self._head_score(levels, masks, training))

    def _add_members(self, scores: Submodels, levels: Sequence[Level], masks: Sequence[Tensor] | None) -> Submodels:
        """The scores in training with a head of several members, and those of each member."""
        assert self.head is not None
        outputs = self.head.member_outputs(levels, masks, training=True, seed=self.step_seed(SeedOf.HEAD))
        if not self.schema.objective.has_classes:
            outputs = outputs[..., 0]  # [batch, members]
        members = ops.expand_dims(scores.scores[-1], 1) + outputs
        return add_to_top(scores, tf.reduce_mean(outputs, axis=1))._replace(members=members)

    def _score_by_key(self, partners: Sequence[Extracted], training: bool) -> Submodels:
        """The scores from the distinct keys' vectors."""
        levels = stack_key_vectors(partners, truncated=self.schema.model.levels.nested)
        if self.schema.model.bias:
            linear = tf.add_n([partner.linear for partner in partners])  # [batch]
        else:
            key_vectors = next(partner.key_vectors[0] for partner in partners if partner.key_vectors)
            linear = tf.zeros(tf.shape(key_vectors.free), self.compute_dtype)
        masks = self.interaction_masks(tf.shape(linear)[0]) if training else None
        return scores_by_key(self.schema, levels, linear + self.bias_or_zero(), masks, training=training)

    def _score_classes(self, levels: Sequence[Level]) -> Submodels:
        """The scores of the classes, [batch, classes]: each is a candidate for one more group."""
        row_sums = context(levels)  # [batch, D_k]
        no_scores = [ops.zeros_like(row_sums[0].free[:, 0])] * len(levels)  # pairs of the row are the same for all
        rows = Submodels(no_scores, no_scores[1:])
        return replaced(rows, self._class_levels(), row_sums, self.class_bias, self.schema.model.dependents)

    def interaction_masks(self, batch: Tensor, draws: Sequence[Tensor] | None = None) -> list[Tensor] | None:
        """Factors of the interaction vector's coordinates, [batch, D_k] a level: 0 where a coordinate is dropped.

        The schema's rate is that of the top level. Of a sum of fewer coordinates each counts more, so the odds of
        dropping one at a lower level are smaller, in proportion to its rank.

        Args:
            batch: The number of rows.
            draws: The `interaction_draws` of the step, if they are there already.

        Returns:
            The factors of each level, or None if nothing is dropped.

        """
        top_rate = self.schema.training.interaction_dropout
        draws = self.interaction_draws(batch) if draws is None else draws
        masks = []
        for dim, drawn in zip(self.dims, draws, strict=False):
            odds_ratio = 1.0 if self.schema.model.levels.nested else dim / self.dims[-1]
            rate = top_rate * odds_ratio / (1 - top_rate + top_rate * odds_ratio)
            masks.append(mask_of_draws(drawn, dim, rate, self.compute_dtype))
        return masks or None

    def interaction_draws(self, batch: Tensor) -> list[Tensor]:
        """What decides which coordinates of the interaction vector a step drops: random bits.

        Args:
            batch: The number of rows.

        Returns:
            Those of each level, as `mask_of_draws` takes them; none if nothing is dropped.

        """
        if not self.schema.training.interaction_dropout:
            return []
        draws = []
        for level, dim in enumerate(self.dims):
            seed = self.step_seed(SeedOf.INTERACTION_DROPOUT) + tf.constant([0, SEED_STRIDE], tf.int64) * level
            pairs = [batch, (dim + 1) // 2]
            draws.append(tf.random.stateless_uniform(pairs, seed, None, None, dtype=tf.uint32))
        return draws

    def _head_score(self, levels: Sequence[Level], masks: Sequence[Tensor] | None, training: bool) -> Tensor:
        """What the head adds: [batch], or [batch, classes]."""
        assert self.head is not None
        outputs = self.head(levels, masks, training=training, seed=self.step_seed(SeedOf.HEAD) if training else None)
        return outputs if self.schema.objective.has_classes else outputs[:, 0]

    def bias_or_zero(self) -> Tensor | float:
        """The number that every score has, 0 without bias.

        Returns:
            The number in the type that the model computes with, or 0.0.

        """
        return tf.cast(self.bias.value, self.compute_dtype) if self.schema.model.bias else 0.0

    def _class_levels(self) -> list[Level]:
        """The classes' vectors, [classes, D_k]: a class is a value of the top level."""
        if self.schema.model.levels.nested:
            return [Level(vectors.value) for vectors in self.class_vectors]
        below = [Level(tf.zeros_like(vectors), vectors.value) for vectors in self.class_vectors[:-1]]
        return [*below, Level(self.class_vectors[-1].value)]

    def _add_together(self, extracted: Sequence[Extracted]) -> list[Extracted]:
        """The partners, which meet in pairs: each is a group, or the sum of groups that are `together`."""
        partners = []
        for members in self.partners:
            groups = [extracted[g] for g in members]
            partners.append(groups[0] if len(groups) == 1 else add_groups(groups))
        return partners


def add_to_top(scores: Submodels, addend: Tensor) -> Submodels:
    """Scores with something added to that of the top level, and to what the level below learns from."""
    targets = scores.targets and [*scores.targets[:-1], scores.targets[-1] + tf.stop_gradient(addend)]
    return Submodels([*scores.scores[:-1], scores.scores[-1] + addend], targets)


DRAWN_BITS = 16  # of a random number that decides whether a coordinate is dropped; two are drawn at once


def mask_of_draws(pairs: Tensor, dim: int, rate: float, dtype: str) -> Tensor:
    """Factors of coordinates, [batch, dim]: 0 where one is dropped, otherwise what keeps the mean.

    Args:
        pairs: Random bits of two coordinates each, uint32 [batch, (dim + 1) // 2].
        dim: The coordinates of a row.
        rate: The share that is dropped, to within 2^-17.
        dtype: The type of the factors.

    Returns:
        The factors.

    """
    numbers = 1 << DRAWN_BITS
    dropped = min(round(rate * numbers), numbers - 1)  # of the numbers
    drawn = tf.reshape(tf.bitcast(pairs, tf.uint16), [tf.shape(pairs)[0], -1])[:, :dim]
    return tf.cast(drawn >= dropped, dtype) * (numbers / (numbers - dropped))


__all__ = ["ScoreModel", "add_to_top"]
