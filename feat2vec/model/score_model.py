"""`ScoreModel`: the weights of a schema, and the score of a row.

    entries -> extractors -> groups' vectors -> scores of their pairs -> bias and head -> score

`Feat2Vec`, which derives from it, adds how the weights are learnt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from feat2vec.arrays import Array
from feat2vec.encode.codecs import ItemsCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.model.answer_scale import AnswerScale
from feat2vec.model.extractors import Extracted, Extractor, LookupExtractor, Shape, build_extractor
from feat2vec.model.extractors.base import ShapeData
from feat2vec.model.group_vectors import (
    add_groups,
    join_entries,
    map_level,
    scores_by_key,
    split_rows,
    stack_key_vectors,
    stack_linear,
    stack_vectors,
)
from feat2vec.model.large_variables import are_aside, copy_to
from feat2vec.model.mlp import SEED_STRIDE, MlpHead
from feat2vec.model.optimizers.base import Variable
from feat2vec.model.pair_scores import Level, Submodels, Tensor, context, replaced, submodels
from feat2vec.model.sizes import key_sizes, table_sizes
from feat2vec.model.weights_file import Lookup
from feat2vec.schema.options import Mlp, Schema
from feat2vec.schema.reading import schema_of

Inputs = Mapping[str, Tensor]  # {group: entries [rows, width]}
SEEDS_PER_STEP = 8  # the schema's seed s has the seeds 8 s to 8 s + 7, one for each purpose


class SeedOf(IntEnum):
    """What the random draws of a step are for."""

    NOISE = 0
    VALIDATION = 1
    INTERACTION_DROPOUT = 2
    EXTRACTORS = 3
    HEAD = 4


class ScoreModel(keras.Model):
    """A schema's weights: `call` takes {group: entries} and returns each row's score.

    Args:
        schema: The schema as YAML, every default filled in.
        shapes: What each group's layer has to know of the data; see `shapes_of`.
        classes: The number of classes of a softmax objective.
        **kwargs: Those of `keras.Model`.

    """

    def __init__(self, schema: str, shapes: Mapping[str, ShapeData], classes: int = 0, **kwargs: Any) -> None:
        # Keras would number the names of models, and a saved model has its name in its bytes.
        super().__init__(**{"name": "feat2vec", **kwargs})
        # The text may come from a file. Plugins that it names have to be imported already, by the user's own schema.
        self.schema: Schema = schema_of(schema)
        self.shapes = {name: Shape.from_data(shape) for name, shape in shapes.items()}
        self.classes = classes
        self.dims = self.schema.model.levels.dims
        model = self.schema.model
        self.groups = list(self.schema.groups)
        # The number of the groups of each extractor, more than one where they share it.
        self.sharing = [[self.groups.index(name) for name in self.schema.sharing(o)] for o in self.schema.owners]
        of_owners: dict[str, Extractor] = {}
        for name in self.schema.owners:
            options, layer_name = self.schema.groups[name].extractor, f"group_{self.groups.index(name)}"
            of_owners[name] = build_extractor(
                options, self.shapes[name], self.dims, model.bias, layer_name, model.scale
            )
        self.extractors = [of_owners[self.schema.owner(name)] for name in self.groups]  # of each group
        self.partners = [[self.groups.index(name) for name in names] for names in self.schema.partners]
        self.encoder: Encoder | None = None
        self.head: MlpHead | None = None
        head = self.schema.head
        if isinstance(head, Mlp):
            self.head = MlpHead(
                head.hidden,
                head.inputs,
                head.dropout,
                head.normalize,
                outputs=classes or 1,
                members=head.members,
                name="head",
            )

    def distinct_extractors(self) -> list[Extractor]:
        """Each extractor once. It is no property, as Keras would save and load weights by that name.

        Returns:
            The layers in the order of `schema.owners`.

        """
        return [self.extractors[members[0]] for members in self.sharing]

    @property
    def has_pairs(self) -> bool:
        """Whether the pairs of groups are a part of the score: a network can do without, a linear model has none."""
        return self.schema.model.pairs and (not isinstance(self.schema.head, Mlp) or self.schema.head.pairs)

    @property
    def implicit(self) -> int | None:
        """The group of which rows with a target have drawn negatives, None without implicit negatives."""
        name = self.schema.objective.implicit_group
        return None if name is None else self.groups.index(name)

    def build(self, input_shape: object = None) -> None:
        """Make the weights.

        Args:
            input_shape: Not used: the shapes follow from the arguments of the model.

        """
        del input_shape
        for extractor in self.distinct_extractors():
            extractor.build(None)
        if self.schema.model.bias:
            self.bias = self.add_weight(shape=(), initializer="zeros", name="bias")
        if self.schema.objective.has_offsets:
            self.offsets = self.add_weight(shape=(len(self.groups),), initializer="zeros", name="offsets")
        if self.schema.objective.has_classes:
            scale = keras.initializers.RandomNormal(stddev=self.schema.model.scale)
            self.class_vectors = [
                self.add_weight(shape=(self.classes, dim), initializer=scale, name=f"class_vectors_{level}")
                for level, dim in enumerate(self.dims, start=1)
            ]
            self.class_bias = self.add_weight(shape=(self.classes,), initializer="zeros", name="class_bias")
        if self.head is not None:
            self.head.build([(None, len(self.partners), dim) for dim in self.dims])
        if self.schema.target is not None:
            self.answer_scale = self.add_weight(
                shape=(len(AnswerScale._fields),),
                initializer=lambda shape, dtype: tf.constant(AnswerScale(), dtype, shape),
                trainable=False,
                name="answer_scale",
                autocast=False,
            )
        self.built = True

    def call(self, inputs: Inputs, training: bool = False) -> Tensor:
        """Return the answers for rows: their scores, which of numbers are in the unit of the target.

        Args:
            inputs: The entries of each group, [batch, width].
            training: Whether what training drops is dropped.

        Returns:
            The scores, [batch], or [batch, classes] for a softmax objective.

        """
        return self.answers(self.submodels(inputs, training).scores[-1])

    def answers(self, scores: Tensor) -> Tensor:
        """Bring scores to the unit of the target; see `answer_scale.py`.

        Args:
            scores: Scores of any shape, as the loss has them.

        Returns:
            The answers, of the same shape; the scores themselves without a target.

        """
        if self.schema.target is None:
            return scores
        shift, unit, low, high, temperature = tf.unstack(self.answer_scale.value)
        answers = tf.clip_by_value(shift + unit * temperature * tf.cast(scores, shift.dtype), low, high)
        return tf.cast(answers, scores.dtype)

    @property
    def has_calibration(self) -> bool:
        """Whether a temperature makes answers better: scores stand for a number, or for probabilities of labels."""
        objective = self.schema.objective
        if self.schema.target is None or self.implicit is not None or objective.class_weighting is not None:
            return False
        return objective.standardizes or objective.has_classes or objective.is_binary

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

    def extract(self, inputs: Inputs, training: bool = False, *, keyed: bool = False) -> list[Extracted]:
        """The vectors of each group.

        Args:
            inputs: The entries of each group, [batch, width].
            training: Whether what training drops is dropped.
            keyed: Whether lookups give each distinct key's vector once, in `Extracted.key_vectors`, which only `score`
                takes.

        Returns:
            For each group vectors [batch, D_k] at each level.

        """
        extracted: dict[int, Extracted] = {}
        for members in self.sharing:
            if training and not keyed and len(members) > 1:
                parts = self.extract_shared({g: [inputs[self.groups[g]]] for g in members}, training=True)
                extracted.update({g: of_group for g, (of_group,) in parts.items()})
            else:  # entries of new rows may have a width of their own in each group
                for g in members:
                    extracted[g] = self.extract_group(g, inputs[self.groups[g]], training=training, keyed=keyed)
        return [extracted[g] for g in range(len(self.groups))]

    def vectors(self, group: str, entries: Tensor) -> Extracted:
        """The vectors of a group.

        Args:
            group: The name of the group.
            entries: Entries of the group, [batch, width].

        Returns:
            Vectors [batch, D_k] at each level.

        Raises:
            ValueError: If the model has no group of that name.

        """
        return self.extract_group(self.groups.index(group), entries, training=False)

    @property
    def is_keyed(self) -> bool:
        """Whether the scores of labelled rows can be taken from the distinct keys' vectors.

        They can where only sums over pairs of groups are needed, in float32: squares of shorter numbers overflow.
        """
        plain = self.head is None and not self.schema.objective.has_classes and self.implicit is None
        has_members = len(self.schema.model.member_dims) > 1
        return plain and self.has_pairs and (self.compute_dtype == "float32" or has_members)

    def is_lookup(self, group: str) -> bool:
        """Whether a group has a vector for each key, not for each entry of its training rows.

        Args:
            group: The name of the group.

        Returns:
            True for a group of keys whose extractor is a lookup.

        """
        return isinstance(self.extractors[self.groups.index(group)], LookupExtractor)

    def lookup(self, group: str) -> Lookup:
        """A lookup group's tables, as views of the variables' memory.

        Args:
            group: The name of a group that `is_lookup`.

        Returns:
            The table of each level and the linear terms.

        """
        extractor = self.extractors[self.groups.index(group)]
        linear = np.asarray(memoryview(extractor.linear.value.value()))[:, 0] if self.schema.model.bias else None
        return Lookup([np.asarray(memoryview(table.value.value())) for table in extractor.tables], linear)

    def model_of_group(self, group: str) -> ScoreModel:
        """A model that has this group: this one. See `StoredModel`.

        Args:
            group: The name of the group.

        Returns:
            The model itself.

        """
        del group
        return self

    def full_model(self) -> ScoreModel:
        """A model that has every group: this one. See `StoredModel`.

        Returns:
            The model itself.

        """
        return self

    def bias_value(self) -> float:
        """The number that every score has, 0 without bias.

        Returns:
            The bias.

        """
        return float(self.bias.numpy()) if self.schema.model.bias else 0.0

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

    def start_from(self, source: ScoreModel, *, freeze: bool) -> None:
        """Copy the vectors that another model has for these groups; linear terms stay new.

        Args:
            source: A model that has all of these groups.
            freeze: Whether the copied weights stay as they are in training.

        """
        for name, extractor in zip(self.schema.owners, self.distinct_extractors(), strict=True):
            source_weights = vector_weights(source.extractors[source.groups.index(name)])
            for variable, value in zip(vector_weights(extractor), source_weights, strict=True):
                copy_to(variable, value)
                variable.trainable = not freeze

    def params(self) -> list[int]:
        """Count the weights of each group's extractor.

        Returns:
            The number of weights, by group in the schema's order. Those of a shared extractor count in each group.

        """
        return [extractor.params() for extractor in self.extractors]

    # --- the parts of a score ---------------------------------------------------------------------------------------

    def extract_group(self, group: int, entries: Tensor, *, training: bool, keyed: bool = False) -> Extracted:
        """A group's vectors, in training with dropout.

        Args:
            group: The number of the group.
            entries: Entries of the group, [rows, width].
            training: Whether what training drops is dropped.
            keyed: Whether a lookup gives each distinct key's vector once; see `extract`.

        Returns:
            Vectors [rows, D_k] at each level.

        """
        return run_extractor(self.extractors[group], entries, training, lambda: self._seed_of_group(group), keyed=keyed)

    def extract_shared(self, entries: Mapping[int, Sequence[Tensor]], *, training: bool) -> dict[int, list[Extracted]]:
        """The vectors of groups with one extractor, which is called once, so that it reads each distinct key once.

        Args:
            entries: By the number of the group its entries, [rows, width] in parts.
            training: Whether what training drops is dropped.

        Returns:
            For each group the vectors of each part. What the L2 penalty counts stays with the first part of the first
            group.

        """
        of_groups = [part for parts in entries.values() for part in parts]
        vectors = self.extract_group(min(entries), join_entries(of_groups), training=training)
        split = iter(split_rows(vectors, tf.stack([tf.shape(part)[0] for part in of_groups])))
        return {g: [next(split) for _ in parts] for g, parts in entries.items()}

    def _seed_of_group(self, group: int) -> Tensor:
        """What decides what a group's extractor drops in a step, [2]."""
        return self.step_seed(SeedOf.EXTRACTORS) + tf.constant([0, SEED_STRIDE], tf.int64) * group

    def drop_items(self, group: int, lists: Tensor) -> Tensor:
        """Leave out the items of lists that a training step drops; the group's extractor is a lookup.

        Args:
            group: The number of the group.
            lists: Entries of the group, [rows, width].

        Returns:
            The same with 0 for items that are dropped.

        """
        extractor = self.extractors[group]
        assert isinstance(extractor, LookupExtractor)
        width = lists.shape[1] // 2 if extractor.shape.weighted else lists.shape[1]
        kept = extractor.drop_items(lists[:, :width], self._seed_of_group(group))
        return tf.concat([kept, lists[:, width:]], axis=1) if extractor.shape.weighted else kept

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

    def interaction_masks(self, batch: Tensor) -> list[Tensor] | None:
        """Factors of the interaction vector's coordinates, [batch, D_k] a level: 0 where a coordinate is dropped.

        The schema's rate is that of the top level. Of a sum of fewer coordinates each counts more, so the odds of
        dropping one at a lower level are smaller, in proportion to its rank.

        Args:
            batch: The number of rows.

        Returns:
            The factors of each level, or None if nothing is dropped.

        """
        top_rate = self.schema.training.interaction_dropout
        if not top_rate:
            return None
        masks = []
        for level, dim in enumerate(self.dims):
            odds_ratio = 1.0 if self.schema.model.levels.nested else dim / self.dims[-1]
            rate = top_rate * odds_ratio / (1 - top_rate + top_rate * odds_ratio)
            seed = self.step_seed(SeedOf.INTERACTION_DROPOUT) + tf.constant([0, SEED_STRIDE], tf.int64) * level
            masks.append(dropout_mask(batch, dim, rate, seed, self.compute_dtype))
        return masks

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

    def step_seed(self, purpose: SeedOf, step: Tensor | None = None) -> Tensor:
        """A seed for the random draws of a step.

        Args:
            purpose: What the draws are for.
            step: The number of the step; that of the optimizer's next one by default.

        Returns:
            Two integers, [2].

        """
        if step is None:
            optimizer = getattr(self, "optimizer", None)  # Keras gives a model none before `compile`
            step = 0 if optimizer is None else optimizer.iterations.value
        purpose_seed = self.schema.training.seed * SEEDS_PER_STEP + purpose
        return tf.stack([tf.cast(purpose_seed, tf.int64), tf.cast(step, tf.int64)])

    # --- saving -----------------------------------------------------------------------------------------------------

    def load_own_variables(self, store: Mapping[str, Array]) -> None:
        """Load what belongs to no layer, as Keras does; runs of before have no scale of answers.

        Args:
            store: The arrays, by their numbers.

        """
        variables = [*self._trainable_variables, *self._non_trainable_variables]
        if self.schema.target is not None and len(store) == len(variables) - 1:
            for i, variable in enumerate(variables[:-1]):
                variable.assign(store[str(i)])
            return
        super().load_own_variables(store)

    def get_config(self) -> dict[str, Any]:
        """What `from_config` needs; the encoder travels as an asset."""
        shapes = {name: shape.data() for name, shape in self.shapes.items()}
        return {"schema": self.schema.resolved(), "shapes": shapes, "classes": self.classes}

    def get_build_config(self) -> dict[str, Any]:
        """Nothing: the config says it all."""
        return {"input_shape": None}

    def build_from_config(self, config: Mapping[str, object]) -> None:
        """Make the weights."""
        del config
        self.build()

    def save_assets(self, dir_path: str) -> None:
        """Write the encoder beside the weights; a run's `model.keras` has none, as its folder holds the encoder.

        Args:
            dir_path: The folder of the model's assets.

        """
        if self.encoder is not None and not are_aside():
            folder = Path(dir_path) / "encoder"
            folder.mkdir()
            self.encoder.write(folder)

    def load_assets(self, dir_path: str) -> None:
        """Read the encoder, if there is one beside the weights.

        Args:
            dir_path: The folder of the model's assets.

        Raises:
            ValueError: If the encoder's schema is not that of the model.

        """
        if (Path(dir_path) / "encoder").exists():
            encoder = Encoder.load(Path(dir_path) / "encoder")
            if encoder.schema != self.schema:
                raise ValueError("the encoder beside the model has another schema")
            self.encoder = encoder


def add_to_top(scores: Submodels, addend: Tensor) -> Submodels:
    """Scores with something added to that of the top level, and to what the level below learns from."""
    targets = scores.targets and [*scores.targets[:-1], scores.targets[-1] + tf.stop_gradient(addend)]
    return Submodels([*scores.scores[:-1], scores.scores[-1] + addend], targets)


DRAWN_BITS = 16  # of a random number that decides whether a coordinate is dropped; two are drawn at once


def dropout_mask(batch: Tensor, dim: int, rate: float, seed: Tensor, dtype: str) -> Tensor:
    """Factors of coordinates, [batch, dim]: 0 where one is dropped, otherwise what keeps the mean.

    Args:
        batch: The number of rows.
        dim: The coordinates of a row.
        rate: The share that is dropped, to within 2^-17.
        seed: Two integers, which decide what is dropped.
        dtype: The type of the factors.

    Returns:
        The factors.

    """
    numbers = 1 << DRAWN_BITS
    dropped = min(round(rate * numbers), numbers - 1)  # of the numbers
    pairs = tf.random.stateless_uniform([batch, (dim + 1) // 2], seed, None, None, dtype=tf.uint32)
    drawn = tf.reshape(tf.bitcast(pairs, tf.uint16), [batch, -1])[:, :dim]
    return tf.cast(drawn >= dropped, dtype) * (numbers / (numbers - dropped))


def run_extractor(
    extractor: Extractor, entries: Tensor, training: bool, seed: Callable[[], Tensor], *, keyed: bool = False
) -> Extracted:
    """A group's vectors, times its gain; `seed` is for the dropout of training."""
    drawn_seed = seed() if training and extractor.is_random else None
    read = extractor.by_key if keyed else extractor
    extracted: Extracted = read(entries, training=training, seed=drawn_seed)
    gain = extractor.spec.get("gain", 1.0)
    if gain != 1:
        key_vectors = tuple(group._replace(vectors=group.vectors * gain) for group in extracted.key_vectors)
        levels = tuple(map_level(lambda part: part * gain, level) for level in extracted.levels)
        return extracted._replace(levels=levels, key_vectors=key_vectors)
    return extracted


def vector_weights(extractor: Extractor) -> list[Variable]:
    """An extractor's weights without those of the linear term: what its vectors are made of."""
    linear = getattr(extractor, "linear", None)  # a variable, a layer or None
    linear_ids = {id(weight) for weight in getattr(linear, "weights", [linear])}
    return [weight for weight in extractor.weights if id(weight) not in linear_ids]


def shapes_of(encoder: Encoder) -> dict[str, Shape]:
    """What each group's layer has to know of the data."""
    shapes = {}
    for name, codec in encoder.codecs.items():
        if not isinstance(codec, ItemsCodec):
            shapes[name] = Shape(codec.width)
            continue
        shape = Shape(codec.width, key_sizes(codec, encoder.schema), codec.weighted)
        activation = encoder.schema.model.activation
        if activation is not None and encoder.schema.groups[name].extractor.encoding == "items":
            active = table_sizes(codec, encoder.schema)[0]
            shape = shape._replace(active=None if active == shape.sizes[0] else active, needs_term=activation.linear)
        shapes[name] = shape
    return shapes


__all__ = ["ScoreModel", "SeedOf", "add_to_top", "run_extractor", "shapes_of", "vector_weights"]
