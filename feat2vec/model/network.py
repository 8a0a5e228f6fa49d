"""A row's score: its groups' vectors, their pairs, and what the schema adds to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from feat2vec.encode.codecs import ItemsCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.model.extractors import Extracted, Extractor, LookupExtractor, Shape, build_extractor
from feat2vec.model.large_variables import copy_to
from feat2vec.model.mlp import MlpHead
from feat2vec.model.pair_scores import Level, Submodels, context, replaced, submodels
from feat2vec.model.pair_scores_by_key import (
    LevelByKey,
    key_vectors_of,
    side_by_side,
    submodels_by_key,
    sum_of_groups,
    without_levels,
)
from feat2vec.model.sizes import key_sizes
from feat2vec.model.weights_file import Lookup
from feat2vec.schema.levels import dims_of
from feat2vec.schema.options import Logistic, Mlp, Nce, Schema, Softmax, schema_of


class Scores(keras.Model):
    """A schema's weights: `call` takes {group: entries} and returns each row's score."""

    def __init__(self, schema: str, shapes: Mapping[str, Sequence[Any]], classes: int = 0, **kwargs: Any) -> None:
        super().__init__(**{"name": "feat2vec", **kwargs})  # not counted up by Keras: a saved model's bytes hold it
        # The text may come from a file: plugins that it names have to be imported already, by the user's own schema.
        self.schema: Schema = schema_of(schema)
        self.shapes = {name: Shape(int(s[0]), tuple(s[1]), bool(s[2])) for name, s in shapes.items()}
        self.classes = classes
        self.dims = dims_of(self.schema)
        model = self.schema.model
        self.extractors = [
            build_extractor(group.extractor, self.shapes[name], self.dims, model.bias, f"group_{i}", model.scale)
            for i, (name, group) in enumerate(self.schema.groups.items())
        ]
        self.groups = list(self.schema.groups)
        self.partners = [[self.groups.index(name) for name in names] for names in self.schema.partners]
        self.encoder: Encoder | None = None
        head = self.schema.head
        self.head = None
        if isinstance(head, Mlp):
            self.head = MlpHead(
                head.hidden, head.inputs, head.dropout, head.normalize, outputs=classes or 1, name="head"
            )

    @property
    def implicit(self) -> int | None:
        """The group that negatives of labelled rows are drawn of."""
        objective = self.schema.objective
        name = objective.implicit if isinstance(objective, Logistic) else None
        return None if name is None else self.groups.index(name)

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
            scale = keras.initializers.RandomNormal(stddev=self.schema.model.scale)
            self.class_vectors = [
                self.add_weight(shape=(self.classes, dim), initializer=scale, name=f"class_vectors_{level}")
                for level, dim in enumerate(self.dims, start=1)
            ]
            self.class_bias = self.add_weight(shape=(self.classes,), initializer="zeros", name="class_bias")
        if self.head is not None:
            self.head.build([(None, len(self.partners), dim) for dim in self.dims])
        self.built = True

    def call(self, inputs: Mapping[str, Any], training: bool = False) -> Any:
        """Scores [batch] of rows, or [batch, classes] for a softmax objective."""
        return self.submodels(inputs, training).scores[-1]

    def submodels(self, inputs: Mapping[str, Any], training: bool = False) -> Submodels:
        """The scores at every level."""
        return self._submodels(self.extract(inputs, training), training)

    def extract(self, inputs: Mapping[str, Any], training: bool = False, *, keyed: bool = False) -> list[Extracted]:
        """Each group's vectors; with `keyed` those of lookups are columns, for `_submodels` only."""
        pairs = zip(self.groups, self.extractors, strict=True)
        return [self._run(extractor, inputs[name], training, keyed=keyed) for name, extractor in pairs]

    def vectors(self, group: str, entries: Any) -> Extracted:
        """A group's vectors for entries [batch, width]."""
        return self._run(self.extractors[self.groups.index(group)], entries, training=False)

    @property
    def is_keyed(self) -> bool:
        """Whether a labelled step can read its vectors once a key: nothing but the pairs' sum needs them."""
        plain = self.head is None and not isinstance(self.schema.objective, Softmax) and self.implicit is None
        return plain and self.compute_dtype == "float32"  # squares of shorter numbers overflow

    def is_lookup(self, group: str) -> bool:
        """Whether a group's vectors are its keys', not the entries' of its training rows."""
        return isinstance(self.extractors[self.groups.index(group)], LookupExtractor)

    def lookup(self, group: str) -> Lookup:
        """A lookup group's tables, where they are, not copied unless training has written to them."""
        extractor = self.extractors[self.groups.index(group)]
        linear = np.asarray(memoryview(extractor.linear.value.value()))[:, 0] if self.schema.model.bias else None
        return Lookup([np.asarray(memoryview(table.value.value())) for table in extractor.tables], linear)

    def part(self, group: str) -> Scores:
        """A model that has this group: this one. See `StoredModel`."""
        del group
        return self

    def whole(self) -> Scores:
        """A model that has every group: this one."""
        return self

    def bias_value(self) -> float:
        """What every score has."""
        return float(self.bias.numpy()) if self.schema.model.bias else 0.0

    def head_score(self, extracted: Sequence[Extracted]) -> Any:
        """What the head adds to the pairs' score, outside of training: [batch], or [batch, classes]."""
        return self._head(self._stack(self._partners(extracted))[0], None, training=False)

    def start_from(self, other: Scores, *, freeze: bool) -> None:
        """Begin with the vectors that another model has for these groups; linear terms are new. Frozen ones stay."""
        for name, extractor in zip(self.groups, self.extractors, strict=True):
            known = vector_weights(other.extractors[other.groups.index(name)])
            for variable, value in zip(vector_weights(extractor), known, strict=True):
                copy_to(variable, value)
                variable.trainable = not freeze

    def params(self) -> list[int]:
        """The number of weights of each group's extractor."""
        return [extractor.params() for extractor in self.extractors]

    def _run(self, extractor: Extractor, entries: Any, training: bool, *, keyed: bool = False) -> Extracted:
        place = tf.constant([0, 1 << 40], tf.int64)
        return run_extractor(
            extractor,
            entries,
            training,
            lambda: self._seed(3) + place * self.extractors.index(extractor),
            keyed=keyed,
        )

    def _submodels(self, extracted: Sequence[Extracted], training: bool) -> Submodels:
        dependents, extracted = self.schema.model.dependents, self._partners(extracted)
        if any(one.key_vectors for one in extracted):
            keyed, linear = self._side_by_side(extracted)
            masks = self._interaction_masks(tf.shape(linear)[0]) if training else None
            return submodels_by_key(keyed, linear + self._bias(), dependents, masks)
        levels, linear = self._stack(extracted)
        masks = self._interaction_masks(tf.shape(linear)[0]) if training else None
        if isinstance(self.schema.objective, Softmax):
            around = context(levels)
            nothing = [ops.zeros_like(around[0].free[:, 0])] * len(levels)
            scores = replaced(
                Submodels(nothing, nothing[1:]), self._class_levels(), around, self.class_bias, dependents
            )
        else:
            scores = submodels(levels, tf.reduce_sum(linear, axis=1) + self._bias(), dependents, masks)
        return scores if self.head is None else add_to_top(scores, self._head(levels, masks, training))

    def _interaction_masks(self, batch: Any) -> list[Any] | None:
        """Factors of the interaction vector's coordinates, 0 where they are dropped.

        The rate is the top level's. A sum of fewer coordinates suffers more, so that a lower level's odds of being
        dropped are smaller in proportion to its rank.
        """
        top = self.schema.training.interaction_dropout
        if not top:
            return None
        masks = []
        for i, dim in enumerate(self.dims):
            share = 1.0 if self.schema.model.level_sharing == "truncate" else dim / self.dims[-1]
            rate = top * share / (1 - top + top * share)
            seed = self._seed(2) + tf.constant([0, 1 << 40], tf.int64) * i
            kept = tf.random.stateless_uniform([batch, dim], seed) >= rate
            masks.append(tf.cast(kept, self.compute_dtype) / (1 - rate))
        return masks

    def _head(self, levels: Sequence[Level], masks: Sequence[Any] | None, training: bool) -> Any:
        """What the head adds: [batch], or [batch, classes]."""
        assert self.head is not None
        added = self.head(levels, masks, training=training, seed=self._seed(4) if training else None)
        return added if isinstance(self.schema.objective, Softmax) else added[:, 0]

    def _bias(self) -> Any:
        return self.bias if self.schema.model.bias else 0.0

    def _class_levels(self) -> list[Level]:
        """A class is a value of the top level."""
        if self.schema.model.level_sharing == "truncate":
            return [Level(vectors.value) for vectors in self.class_vectors]
        below = [Level(tf.zeros_like(vectors), vectors.value) for vectors in self.class_vectors[:-1]]
        return [*below, Level(self.class_vectors[-1].value)]

    def _partners(self, extracted: Sequence[Extracted]) -> list[Extracted]:
        """What meets in pairs: the groups, those that are `together` added up. L2 counts them before that."""
        each = ([extracted[g] for g in some] for some in self.partners)
        return [some[0] if len(some) == 1 else added_up(some) for some in each]

    def _stack(self, extracted: Sequence[Extracted]) -> tuple[list[Level], Any]:
        """Groups, or partners, side by side: levels [batch, groups, D_k] and linear terms [batch, groups]."""
        levels = []
        for parts in zip(*(self._merged(one.levels) for one in extracted), strict=True):
            free = tf.stack([part.free for part in parts], axis=1)
            dependent = None if parts[0].dependent is None else tf.stack([part.dependent for part in parts], axis=1)
            levels.append(Level(free, dependent))
        if not self.schema.model.bias:
            return levels, tf.zeros(tf.shape(levels[0].free)[:2], levels[0].free.dtype)
        return levels, tf.stack([one.linear for one in extracted], axis=1)

    def _side_by_side(self, extracted: Sequence[Extracted]) -> tuple[list[LevelByKey], Any]:
        """The groups' columns at each level, and their linear terms' sum [batch]."""
        levels = []
        each_level = zip(*(one.key_vectors or map(key_vectors_of, one.levels) for one in extracted), strict=True)
        for k, columns in enumerate(each_level):
            if self.schema.model.level_sharing == "truncate":
                columns = tuple(map(without_levels, columns))
            levels.append(side_by_side(columns, sparse=k > 0))
        if not self.schema.model.bias:
            return levels, tf.zeros(tf.shape(columns[0].free), self.compute_dtype)
        return levels, tf.add_n([one.linear for one in extracted])

    def _merged(self, levels: Sequence[Level]) -> list[Level]:
        """With truncation a level's free and dependent parts are one."""
        if self.schema.model.level_sharing != "truncate":
            return list(levels)
        return [level if level.dependent is None else Level(level.free + level.dependent) for level in levels]

    def _seed(self, purpose: int) -> Any:
        """Two integers for the draws of a step."""
        optimizer = getattr(self, "optimizer", None)  # Keras gives a model none before `compile`
        step = 0 if optimizer is None else optimizer.iterations.value
        return tf.stack([tf.cast(self.schema.training.seed * PURPOSES + purpose, tf.int64), tf.cast(step, tf.int64)])

    # --- saving -----------------------------------------------------------------------------------------------------

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
            folder = Path(dir_path) / "encoder"
            folder.mkdir()
            self.encoder.write(folder)

    def load_assets(self, dir_path: str) -> None:
        """Read the encoder, whose schema has to be the model's."""
        if (Path(dir_path) / "encoder").exists():
            encoder = Encoder.load(Path(dir_path) / "encoder")
            if encoder.schema != self.schema:
                raise ValueError("the encoder beside the model has another schema")
            self.encoder = encoder


PURPOSES = 8  # that random draws of one step may have


def each(change: Callable[[Any], Any], level: Level) -> Level:
    """A level with both of its parts changed."""
    return Level(*(None if part is None else change(part) for part in level))


def added_up(some: Sequence[Extracted]) -> Extracted:
    """Groups whose vectors and linear terms add up to one's."""
    linear = None if some[0].linear is None else tf.add_n([one.linear for one in some])
    if any(one.key_vectors for one in some):
        each_level = zip(*(one.key_vectors or map(key_vectors_of, one.levels) for one in some), strict=True)
        return Extracted((), linear, 0.0, key_vectors=tuple(map(sum_of_groups, each_level)))
    levels = []
    for parts in zip(*(one.levels for one in some), strict=True):
        dependent = [part.dependent for part in parts if part.dependent is not None]
        levels.append(Level(tf.add_n([part.free for part in parts]), tf.add_n(dependent) if dependent else None))
    return Extracted(tuple(levels), linear, 0.0)


def add_to_top(scores: Submodels, more: Any) -> Submodels:
    """The model's own score, and what the level below it learns from, with something added."""
    targets = scores.targets and [*scores.targets[:-1], scores.targets[-1] + tf.stop_gradient(more)]
    return Submodels([*scores.scores[:-1], scores.scores[-1] + more], targets)


def run_extractor(
    extractor: Extractor, entries: Any, training: bool, seed: Callable[[], Any], *, keyed: bool = False
) -> Extracted:
    """A group's vectors, times its gain; `seed` is for the dropout of training."""
    drawn = seed() if training and extractor.is_random else None
    read = extractor.by_key if keyed else extractor
    extracted: Extracted = read(entries, training=training, seed=drawn)
    gain = extractor.spec.get("gain", 1.0)
    if gain != 1:
        key_vectors = tuple(group._replace(vectors=group.vectors * gain) for group in extracted.key_vectors)
        levels = tuple(each(lambda x: x * gain, level) for level in extracted.levels)
        return extracted._replace(levels=levels, key_vectors=key_vectors)
    return extracted


def vector_weights(extractor: Extractor) -> list[Any]:
    """All that an extractor's vectors are made of: its weights without those of the linear term."""
    linear = getattr(extractor, "linear", None)
    others = {id(weight) for weight in getattr(linear, "weights", [linear])}
    return [weight for weight in extractor.weights if id(weight) not in others]


def shapes_of(encoder: Encoder) -> dict[str, Shape]:
    """What each group's layer has to know of the data."""
    shapes = {}
    for name, codec in encoder.codecs.items():
        if not isinstance(codec, ItemsCodec):
            shapes[name] = Shape(codec.width)
            continue
        shapes[name] = Shape(codec.width, key_sizes(codec, encoder.schema), codec.weighted)
    return shapes


__all__ = ["Scores", "add_to_top", "each", "run_extractor", "shapes_of", "vector_weights"]
