"""`Feat2Vec`: extractors, interactions, noise and objective put together as a Keras model."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from feat2vec import optimizers
from feat2vec.batches import Batches, value_tables
from feat2vec.codecs import ItemsCodec
from feat2vec.document import parse_document
from feat2vec.encode import Encoded, Encoder
from feat2vec.extractors import Extracted, Extractor, Shape, build_extractor
from feat2vec.interactions import Level, Submodels, context, replaced, submodels
from feat2vec.joints import Joint, joint_values
from feat2vec.objectives import Noisy, self_supervised, supervised
from feat2vec.optimizers import sum_duplicates
from feat2vec.sampler import Draw, Noise
from feat2vec.schema import Contrastive, Nce, Schema, Softmax, read_schema
from feat2vec.vocabulary import levels as levels_of


@keras.saving.register_keras_serializable(package="feat2vec")
class Feat2Vec(keras.Model):
    """A schema fitted to a table, as a Keras model: `call` takes {group: entries} and returns each row's score.

    Build one by `Feat2Vec.from_encoder(encoder)`, and batches for `fit` by `model.dataset(encoded, ...)`.
    """

    def __init__(
        self, schema: str, shapes: Mapping[str, Sequence[Any]], classes: int = 0, trusted: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.schema: Schema = read_schema(parse_document(schema), plugins=trusted)
        self.shapes = {name: Shape(int(s[0]), tuple(s[1]), bool(s[2])) for name, s in shapes.items()}
        self.classes = classes
        model = self.schema.model
        self.dims = dims_of(self.schema)
        self.extractors = [
            build_extractor(group.extractor, self.shapes[name], self.dims, model.bias, name=f"group_{i}")
            for i, (name, group) in enumerate(self.schema.groups.items())
        ]
        self.groups = list(self.schema.groups)
        self.encoder: Encoder | None = None
        self.noise: Noise | None = None
        self.learnt_from: Encoded | None = None
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self._batches_seen = tf.Variable(0, trainable=False, dtype=tf.int64)
        # The first train step whose loss was not finite, -1 for none; from it on the weights stay as they were.
        self.failed_at = tf.Variable(-1, trainable=False, dtype=tf.int64)

    @classmethod
    def from_encoder(cls, encoder: Encoder) -> Feat2Vec:
        """A new model for a fitted encoder."""
        classes = 0 if encoder.classes is None else len(encoder.classes.keys)
        keras.utils.set_random_seed(encoder.schema.training.seed)
        model = cls(encoder.schema.resolved(), shapes_of(encoder), classes, trusted=True)
        model.encoder = encoder
        model.build()
        return model

    def build(self, input_shape: Any = None) -> None:
        """Make the weights."""
        del input_shape
        for extractor in self.extractors:
            extractor.build(None)
        if self.schema.model.bias:
            self.bias = self.add_weight(shape=(), initializer="zeros", name="bias")
        if isinstance(self.schema.objective, Nce):
            self.offsets = self.add_weight(shape=(len(self.groups),), initializer="zeros", name="offsets")
        if isinstance(self.schema.objective, Softmax):
            scale = keras.initializers.RandomNormal(stddev=0.1)
            self.class_vectors = [
                self.add_weight(shape=(self.classes, dim), initializer=scale, name=f"class_vectors_{level}")
                for level, dim in enumerate(self.dims, start=1)
            ]
            self.class_bias = self.add_weight(shape=(self.classes,), initializer="zeros", name="class_bias")
        self.built = True

    # --- scores -----------------------------------------------------------------------------------------------------

    def call(self, inputs: Mapping[str, Any], training: bool = False) -> Any:
        """Scores [batch] of rows, or [batch, classes] for a softmax objective."""
        return self.submodels(inputs, training).scores[-1]

    def submodels(self, inputs: Mapping[str, Any], training: bool = False) -> Submodels:
        """The scores at every level."""
        return self._submodels(self.extract(inputs, training), training)

    def extract(self, inputs: Mapping[str, Any], training: bool = False) -> list[Extracted]:
        """Each group's vectors."""
        pairs = zip(self.groups, self.extractors, strict=True)
        return [self._run(extractor, inputs[name], training) for name, extractor in pairs]

    def vectors(self, group: str, entries: Any) -> Extracted:
        """A group's vectors for entries [batch, width]."""
        return self._run(self.extractors[self.groups.index(group)], entries, training=False)

    def _run(self, extractor: Extractor, entries: Any, training: bool) -> Extracted:
        place = tf.constant([0, 1 << 40], tf.int64)
        return run_extractor(
            extractor, entries, training, lambda: self._seed(3) + place * self.extractors.index(extractor)
        )

    def params(self) -> list[int]:
        """The number of weights of each group's extractor."""
        return [extractor.params() for extractor in self.extractors]

    def _submodels(self, extracted: Sequence[Extracted], training: bool) -> Submodels:
        levels, linear = self._stack(extracted)
        dependents = self.schema.model.dependents
        if isinstance(self.schema.objective, Softmax):
            around = context(levels)
            nothing = [ops.zeros_like(around[0].free[:, 0])] * len(levels)
            return replaced(Submodels(nothing, nothing[1:]), self._class_levels(), around, self.class_bias, dependents)
        masks = None
        rate = self.schema.training.interaction_dropout
        if training and rate:
            seed = self._seed(2)
            masks = []
            for i, level in enumerate(levels):
                shape = tf.shape(level.free[:, 0])
                kept = tf.random.stateless_uniform(shape, seed + tf.constant([0, 1 << 40], tf.int64) * i) >= rate
                masks.append(tf.cast(kept, level.free.dtype) / (1 - rate))
        return submodels(levels, tf.reduce_sum(linear, axis=1) + self._bias(), dependents, masks)

    def _bias(self) -> Any:
        return self.bias if self.schema.model.bias else 0.0

    def _class_levels(self) -> list[Level]:
        """A class is a value of the top level."""
        if self.schema.model.level_sharing == "truncate":
            return [Level(vectors.value) for vectors in self.class_vectors]
        below = [Level(tf.zeros_like(vectors), vectors.value) for vectors in self.class_vectors[:-1]]
        return [*below, Level(self.class_vectors[-1].value)]

    def _stack(self, extracted: Sequence[Extracted]) -> tuple[list[Level], Any]:
        """The groups side by side: levels [batch, groups, D_k] and linear terms [batch, groups]."""
        levels = []
        for parts in zip(*(self._merged(one.levels) for one in extracted), strict=True):
            free = tf.stack([part.free for part in parts], axis=1)
            dependent = None if parts[0].dependent is None else tf.stack([part.dependent for part in parts], axis=1)
            levels.append(Level(free, dependent))
        if not self.schema.model.bias:
            return levels, tf.zeros(tf.shape(levels[0].free)[:2], levels[0].free.dtype)
        return levels, tf.stack([one.linear for one in extracted], axis=1)

    # --- one step ---------------------------------------------------------------------------------------------------

    def step_loss(self, inputs: Mapping[str, Any], rows: Any, weight: Any, seed: Any, training: bool) -> Any:
        """The loss of a batch, a pure function of the weights; `rows` are value ids, or the target if there is one."""
        l2 = self.schema.training.l2
        if self.schema.target is not None:
            extracted = self.extract(inputs, training)
            loss = self._supervised_loss(self._submodels(extracted, training), rows)
            if weight is not None:
                loss = loss * tf.cast(weight, loss.dtype)
            counted = self._counted(rows)
            loss = tf.reduce_sum(tf.where(counted, loss, 0)) / tf.cast(tf.maximum(_count(counted), 1), loss.dtype)
            squares = tf.add_n([one.square for one in extracted])
        else:
            loss, squares = self._noise_loss(inputs, rows, seed, training)
        if training and l2:
            loss += l2 / 2 * squares / tf.cast(tf.shape(rows)[0], squares.dtype)
        return loss

    def _counted(self, rows: Any) -> Any:
        """The rows that have a loss, bool [batch]: a class that training has not seen, -1, has no probability."""
        if isinstance(self.schema.objective, Softmax):
            return tf.cast(rows, tf.int32) >= 0
        return tf.ones(tf.shape(rows)[:1], tf.bool)

    def _supervised_loss(self, scores: Submodels, label: Any) -> Any:
        objective = self.schema.objective
        loss = supervised(objective, scores.scores[-1], tf.cast(label, scores.scores[-1].dtype))
        if self._has_levels():
            for low, target in zip(scores.scores, scores.targets, strict=False):
                loss += supervised(objective, low, tf.cast(label, low.dtype), target)
        return loss

    def _has_levels(self) -> bool:
        return len(self.dims) > 1 and self.schema.model.level_sharing == "separate"

    def _noise_loss(self, inputs: Mapping[str, Any], rows: Any, seed: Any, training: bool) -> tuple[Any, Any]:
        """The mean loss over the rows, each against negatives of its target unit, and the squares that L2 counts."""
        if self.noise is None:
            raise ValueError("the model has no noise to learn from; make its batches by model.dataset(encoded)")
        draws = self.noise.sample(rows, seed)
        targets = zip(self.noise.units, draws, strict=True)
        values = {g: drawn for unit, draw in targets for g, drawn in zip(unit.groups, draw.values, strict=True)}
        extracted, drawn = self._extract_with(inputs, values, training)
        sizes = tf.stack([tf.shape(draw.rows)[0] for draw in draws])
        ends = tf.cumsum(sizes)
        kept = self._context_mask(self.noise, ends, seed, training)  # [batch, groups]
        base, context_ = self._context(extracted, kept)
        bases = zip(*(tf.split(score, sizes) for score in base.scores), strict=True)
        arounds = zip(*(_slices(level, sizes) for level in context_), strict=True)
        total = 0.0
        for u, (unit, draw, some, around) in enumerate(zip(self.noise.units, draws, bases, arounds, strict=True)):
            own = [_rows(extracted[g], ends[u] - sizes[u], ends[u]) for g in unit.groups]
            loss = self._unit_loss(unit.groups, draw, Submodels(list(some), []), list(around), own, drawn)
            total += tf.reduce_sum(tf.where(draw.present, loss, tf.zeros_like(loss)))
        squares = tf.add_n([one.square for one in extracted])
        return total / tf.cast(tf.shape(rows)[0], kept.dtype), squares

    def _context(self, extracted: Sequence[Extracted], kept: Any) -> tuple[Submodels, list[Level]]:
        """The score of the groups that are kept [batch, groups], and the sum of their vectors."""
        if not isinstance(self.schema.objective, Contrastive):
            levels, linear = self._stack(extracted)
            masked = [_each(lambda x: x * kept[..., None], level) for level in levels]
            linear = tf.reduce_sum(linear * kept, axis=1) + self._bias()
            return submodels(masked, linear, self.schema.model.dependents), context(masked)
        # What rivals share cancels in their differences, so no score is needed, nor the groups side by side.
        shares = tf.split(kept, len(extracted), axis=1)
        merged = [self._merged(one.levels) for one in extracted]
        sums = [
            Level(*(None if parts[0] is None else tf.add_n([x * share for x, share in zip(parts, shares, strict=True)])
                    for parts in zip(*(level[:2] for level in levels), strict=True)))
            for levels in zip(*merged, strict=True)
        ]  # fmt: skip
        return Submodels([tf.zeros_like(kept[:, 0])] * len(sums), []), sums

    def _merged(self, levels: Sequence[Level]) -> list[Level]:
        """With truncation a level's free and dependent parts are one."""
        if self.schema.model.level_sharing != "truncate":
            return list(levels)
        return [level if level.dependent is None else Level(level.free + level.dependent) for level in levels]

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
        if self._has_levels():
            for low, target in zip(pairs, targets, strict=False):
                loss += self_supervised(objective, low, log_q, draw.hits, offset, target)
        return loss

    def _replace(self, base: Submodels, around: list[Level], unit: Sequence[Extracted], shape: Any) -> Submodels:
        """Scores with candidates in place of a unit, whose groups have vectors [candidates, D_k] and linear terms.

        `shape` is [n, k], or [K] if the rows share them.
        """
        dependents = self.schema.model.dependents
        shape = tf.convert_to_tensor(shape)
        levels, linear = self._stack(unit)  # [candidates, members, D_k]
        if isinstance(self.schema.objective, Contrastive) and self.schema.objective.unit:
            levels = [_each(partial(tf.math.l2_normalize, axis=-1, epsilon=1e-6), level) for level in levels]
        alone = [_each(lambda x: tf.reshape(x, tf.concat([shape, x.shape[1:]], 0)), level) for level in levels]
        linear = tf.reshape(linear, tf.concat([shape, [len(unit)]], 0))
        if len(unit) == 1:
            one = [_each(lambda x: x[..., 0, :], level) for level in alone]
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

    def _seed(self, purpose: int) -> Any:
        optimizer = getattr(self, "optimizer", None)  # Keras gives a model none before `compile`
        step = 0 if optimizer is None else optimizer.iterations.value
        return tf.stack([tf.cast(self.schema.training.seed * 4 + purpose, tf.int64), tf.cast(step, tf.int64)])

    def train_step(self, data: Any) -> dict[str, Any]:
        """Update the weights for a batch."""
        inputs, rows, weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = self.step_loss(inputs, rows, weight, self._seed(0), True)
        gradients = tape.gradient(loss, [variable.value for variable in self.trainable_variables])
        pairs = [(g, v) for g, v in zip(gradients, self.trainable_variables, strict=True) if g is not None]
        if isinstance(self.optimizer, optimizers.RowSparse):  # outside of the condition, where repeated ids are known
            pairs = [(sum_duplicates(g) if isinstance(g, tf.IndexedSlices) else g, v) for g, v in pairs]
        step = tf.cast(self.optimizer.iterations.value, tf.int64)
        failed = tf.where((self.failed_at < 0) & ~tf.math.is_finite(loss), step, self.failed_at)
        self.failed_at.assign(failed)
        tf.cond(failed < 0, lambda: self._apply(pairs), lambda: False)
        self.loss_tracker.update_state(loss, sample_weight=tf.shape(rows)[0])
        return {"loss": self.loss_tracker.result()}

    def _apply(self, pairs: Sequence[tuple[Any, Any]]) -> bool:
        self.optimizer.apply_gradients(pairs)
        return True

    def test_step(self, data: Any) -> dict[str, Any]:
        """The loss of a batch, with the same negatives in every epoch."""
        inputs, rows, weight = keras.utils.unpack_x_y_sample_weight(data)
        seed = tf.stack([tf.cast(self.schema.training.seed * 4 + 1, tf.int64), self._batches_seen])
        self._batches_seen.assign_add(1)
        self.loss_tracker.update_state(
            self.step_loss(inputs, rows, weight, seed, False), sample_weight=_count(self._counted(rows))
        )
        return {"loss": self.loss_tracker.result()}

    def reset_metrics(self) -> None:
        """Begin an epoch, or a validation."""
        super().reset_metrics()
        self._batches_seen.assign(0)

    def get_config(self) -> dict[str, Any]:
        """What `from_config` needs; the encoder travels as an asset."""
        return {
            "schema": self.schema.resolved(),
            "shapes": {k: list(v) for k, v in self.shapes.items()},
            "classes": self.classes,
        }

    def get_build_config(self) -> dict[str, Any]:
        """Nothing: the config says it all."""
        return {"input_shape": None}

    def build_from_config(self, config: Mapping[str, Any]) -> None:
        """Make the weights."""
        del config
        self.build()

    def save_assets(self, dir_path: str) -> None:
        """Write the encoder beside the weights."""
        if self.encoder is not None:
            self.encoder.save(Path(dir_path) / "encoder")

    def load_assets(self, dir_path: str) -> None:
        """Read the encoder."""
        if (Path(dir_path) / "encoder").exists():
            self.encoder = Encoder.load(Path(dir_path) / "encoder")

    # --- batches ----------------------------------------------------------------------------------------------------

    def learn_from(self, encoded: Encoded) -> None:
        """Draw negatives from the values of training rows."""
        joints = [
            joint_values(encoded.rows, [self.groups.index(name) for name in names]) for names in self.schema.noise.joint
        ]
        self.learnt_from = encoded
        self.take_values(value_tables(encoded), [encoded.values[name].counts for name in self.groups], joints)

    def take_values(self, tables: Sequence[Any], counts: Sequence[Any], joints: Sequence[Joint] = ()) -> None:
        """Draw negatives from value tables (as `value_tables` gives them) with counts [values]."""
        noise, targets = self.schema.noise, self.schema.noise.targets
        self.value_tables = [tf.Variable(table, trainable=False) for table in tables]
        self.joints = list(joints)
        tuples = [(joint.groups, joint.values(), joint.counts) for joint in joints]
        self.noise = Noise(
            counts, self.params(), noise.alpha_groups, noise.alpha_values, noise.negatives, noise.sharing, tuples,
            [self.groups.index(name) for name in targets or self.groups],
            [targets.get(name, 0.0) for name in self.groups] if targets and isinstance(targets, dict) else None,
        )  # fmt: skip
        if isinstance(self.schema.objective, Nce) and not np.any(self.offsets.numpy()):
            offsets = np.zeros(len(self.groups), np.float32)
            for unit in self.noise.units:
                offsets[unit.groups[0]] = unit.mean_log_q + math.log(noise.negatives)
            self.offsets.assign(offsets)

    def dataset(self, encoded: Encoded, batch_size: int | None = None, shuffle: bool = True) -> tf.data.Dataset:
        """Batches for `fit` (shuffled) or `evaluate` (in order). The first one made is what the noise is drawn from."""
        return self.batches(encoded, batch_size, shuffle).dataset()

    def batches(self, encoded: Encoded, batch_size: int | None = None, shuffle: bool = True) -> Batches:
        """What `dataset` makes its batches of."""
        labelled = self.schema.target is not None
        if labelled and encoded.target is None:
            raise ValueError(f"the rows have no target, {self.schema.target!r}, to learn from")
        if not labelled and self.noise is None:
            self.learn_from(encoded)
        if self.noise is not None and encoded is self.learnt_from:
            tables = self.value_tables
        else:
            tables = [tf.Variable(table, trainable=False) for table in value_tables(encoded)]
        training = self.schema.training
        return Batches(
            encoded, dict(zip(self.groups, tables, strict=True)), batch_size or training.batch_size,
            [] if labelled else self.joints, labelled=labelled, shuffle=shuffle, seed=training.seed,
        )  # fmt: skip


def run_extractor(extractor: Extractor, entries: Any, training: bool, seed: Callable[[], Any]) -> Extracted:
    """A group's vectors, times its gain; `seed` is for the dropout of training."""
    known = inspect.signature(extractor.call).parameters
    options = {"training": training} if "training" in known else {}
    if "seed" in known and training:
        options["seed"] = seed()
    extracted: Extracted = extractor(entries, **options)
    gain = extractor.spec.get("gain", 1.0)
    if gain != 1:
        return extracted._replace(levels=tuple(_each(lambda x: x * gain, level) for level in extracted.levels))
    return extracted


def _count(mask: Any) -> Any:
    return tf.math.count_nonzero(mask, dtype=tf.int32)


def _joined(entries: Sequence[Any]) -> Any:
    """Entries one below the other; narrower bags, of training rows, are padded."""
    width = max(some.shape[1] for some in entries)
    return tf.concat([tf.pad(x, [[0, 0], [0, width - x.shape[1]]]) if x.shape[1] < width else x for x in entries], 0)


def _each(change: Callable[[Any], Any], level: Level) -> Level:
    """A level with both of its parts changed."""
    return Level(*(None if part is None else change(part) for part in level[:2]))


def _slices(level: Level, sizes: Any) -> list[Level]:
    """A level's rows in slices."""
    parts = [[None] * sizes.shape[0] if part is None else tf.split(part, sizes) for part in level[:2]]
    return [Level(*pair) for pair in zip(*parts, strict=True)]


def _rows(extracted: Extracted, start: Any, end: Any) -> Extracted:
    """Some rows of a group."""
    levels = tuple(_each(lambda x: x[start:end], level) for level in extracted.levels)
    return Extracted(levels, None if extracted.linear is None else extracted.linear[start:end], 0.0)


def _parts(extracted: Extracted, sizes: Any) -> list[Extracted]:
    """A group's rows in slices; the first has all that L2 counts."""
    levels = zip(*(_slices(level, sizes) for level in extracted.levels), strict=True)
    linear = [None] * sizes.shape[0] if extracted.linear is None else tf.split(extracted.linear, sizes)
    squares = [extracted.square] + [0.0] * (sizes.shape[0] - 1)
    return [Extracted(*parts) for parts in zip(levels, linear, squares, strict=True)]


def shapes_of(encoder: Encoder) -> dict[str, Shape]:
    """What each group's layer has to know of the data."""
    ranks = encoder.schema.model.ranks or (encoder.schema.model.dim,)
    shapes = {}
    for name, codec in encoder.codecs.items():
        if not isinstance(codec, ItemsCodec):
            shapes[name] = Shape(codec.width)
            continue
        top = levels_of(codec.vocabulary.counts, ranks)
        sizes = [int((top >= level).sum()) for level in range(1, len(ranks) + 1)]
        shapes[name] = Shape(codec.width, (sizes[0] + 1, *sizes[1:]), codec.weighted)  # and the unseen key
    return shapes


def dims_of(schema: Schema) -> tuple[int, ...]:
    """The rank of each level; for truncation, of what each level adds to the one below."""
    ranks = schema.model.ranks or (schema.model.dim,)
    if schema.model.level_sharing == "truncate":
        return (ranks[0], *(high - low for low, high in pairwise(ranks)))
    return ranks


__all__ = ["Feat2Vec", "Joint", "dims_of", "run_extractor", "shapes_of"]
