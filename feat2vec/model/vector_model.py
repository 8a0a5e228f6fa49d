"""`VectorModel`: the weights of a schema, the vectors of groups, and the model's file.

    entries -> extractors -> groups' vectors

`ScoreModel`, which derives from it, makes scores of the vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from feat2vec.arrays import Array
from feat2vec.encode.codecs import ItemsCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.model.answer_scale import AnswerScale, LaterScale
from feat2vec.model.extractors import Extracted, Extractor, LookupExtractor, Shape, build_extractor
from feat2vec.model.extractors.base import ShapeData
from feat2vec.model.group_vectors import join_entries, map_level, split_rows
from feat2vec.model.large_variables import are_aside, copy_to
from feat2vec.model.mlp import SEED_STRIDE, MlpHead
from feat2vec.model.optimizers.tables import Variable
from feat2vec.model.pair_scores import Tensor
from feat2vec.model.sizes import key_sizes, table_sizes
from feat2vec.model.weights_file import Lookup
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import schema_of
from feat2vec.schema.training_options import Mlp

if TYPE_CHECKING:
    from typing_extensions import Self

Inputs = Mapping[str, Tensor]  # {group: entries [rows, width]}
SEEDS_PER_STEP = 8  # the schema's seed s has the seeds 8 s to 8 s + 7, one for each purpose


class SeedOf(IntEnum):
    """What the random draws of a step are for."""

    NOISE = 0
    VALIDATION = 1
    INTERACTION_DROPOUT = 2
    EXTRACTORS = 3
    HEAD = 4


class VectorModel(keras.Model):
    """A schema's weights, and the vectors that they give to entries.

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
        # The number of the step that is traced, where it is not the optimizer's count: several are computed at once.
        self.step_number: Tensor | None = None
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
            self.answer_scale = self._add_scale("answer_scale", AnswerScale())
            if self.schema.training.time is not None:
                self.later_scale = self._add_scale("later_scale", LaterScale())
        self.built = True

    def _add_scale(self, name: str, scale: AnswerScale | LaterScale) -> keras.Variable:
        """Add numbers of answers as a weight [numbers] that no gradient changes, in float32 whatever the policy."""
        return self.add_weight(
            shape=(len(scale),),
            initializer=lambda shape, dtype: tf.constant(scale, dtype, shape),
            trainable=False,
            name=name,
            autocast=False,
        )

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

    def model_of_group(self, group: str) -> Self:
        """A model that has this group: this one. See `StoredModel`.

        Args:
            group: The name of the group.

        Returns:
            The model itself.

        """
        del group
        return self

    def full_model(self) -> Self:
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

    def start_from(self, source: VectorModel, *, freeze: bool) -> None:
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

    def step_seed(self, purpose: SeedOf, step: Tensor | None = None) -> Tensor:
        """A seed for the random draws of a step.

        Args:
            purpose: What the draws are for.
            step: The number of the step; that of the optimizer's next one by default. `step_number` goes before both.

        Returns:
            Two integers, [2].

        """
        if self.step_number is not None:
            step = self.step_number
        elif step is None:
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


__all__ = ["Inputs", "SeedOf", "VectorModel", "run_extractor", "shapes_of", "vector_weights"]
