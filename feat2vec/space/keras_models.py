"""A run as a plain Keras model, to build other models on.

encoder = run.encoder(trainable=True)
price = keras.layers.Dense(1)(encoder.output["row"])
model = keras.Model(encoder.input, price)
model.compile(feat2vec.optimizers.named("adagrad", 0.05), "mse")
model.fit(run.dataset(rows, target="price"), shuffle=False)  # the batches are shuffled
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from feat2vec.model.extractors import Extractor, Shape, build_extractor
from feat2vec.model.extractors.base import ShapeData
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.large_variables import copy_to, tables_aside
from feat2vec.model.optimizers.tables import Variable
from feat2vec.model.pair_scores import Tensor
from feat2vec.model.vector_model import run_extractor
from feat2vec.schema.extractor_options import NumbersSpec, VectorSpec
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import schema_of
from feat2vec.space.groups_and_levels import (
    ROW,
    distinct_column_names,
    level_and_dim,
    selected_groups,
    vectors_at_level,
)


@keras.saving.register_keras_serializable(package="feat2vec")
class GroupVectors(keras.layers.Layer):
    """{name: entries [batch, width]} to {name: vectors [batch, dim]} and their sum, `row`.

    A frozen layer drops nothing, also in training, so that a row's vectors stay what they are.

    Args:
        schema: The run's schema as text, every default filled in.
        shapes: The `Shape` of each group's extractor.
        level: The level whose space the vectors are in; None is the default of the model.

    Example:
        >>> shapes = {name: run.model.shapes[name] for name in ("director", "genre")}
        >>> layer = feat2vec.keras.GroupVectors(run.schema.resolved(), shapes)
        >>> vectors = layer({"director": np.array([[2], [3]]), "genre": np.array([[2], [0]])})
        >>> sorted(vectors), vectors["row"].shape
        (['director', 'genre', 'row'], TensorShape([2, 4]))

    """

    def __init__(self, schema: str, shapes: Mapping[str, ShapeData], level: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.schema = schema
        self.shapes = {name: Shape.from_data(shape) for name, shape in shapes.items()}
        spec: Schema = schema_of(schema)
        self.levels = spec.model.levels
        self.level, self.dim = level_and_dim(spec.model, level)
        self.names = input_names(list(self.shapes))
        dims = self.levels.dims[: self.level]
        groups = spec.groups_of(list(self.shapes))
        of_owners: dict[str, Extractor] = {}
        for i, (name, shape) in enumerate(self.shapes.items()):
            if groups[name].share is None:
                extractor = groups[name].extractor
                of_owners[name] = build_extractor(
                    extractor, _up_to(shape, self.level), dims, bias=False, name=f"group_{i}"
                )
        # Of each group; one that groups share stands here more than once.
        self.extractors = [of_owners[group.share or name] for name, group in groups.items()]
        self.seeds = keras.random.SeedGenerator(spec.training.seed)
        self.supports_jit = False  # XLA has no row-sparse updates

    def build(self, input_shape: object = None) -> None:
        """Make the weights."""
        del input_shape
        for extractor in self.extractors:
            if not extractor.built:
                extractor.build(None)
        self.built = True
        self._set_trainable(self.trainable)  # an assignment of what it is would do nothing

    @property
    def trainable(self) -> bool:
        """Whether the layer learns: the weights of all levels that its output is made of."""
        return bool(keras.layers.Layer.trainable.fget(self))

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._set_trainable(value)

    def _set_trainable(self, value: bool) -> None:
        keras.layers.Layer.trainable.fset(self, value)
        if self.built and not self.levels.nested:  # levels below do not reach the output
            for extractor in self.extractors:
                for table_or_head in _of_levels(extractor, slice(self.level - 1)):
                    table_or_head.trainable = False

    def call(self, inputs: Mapping[str, Tensor], training: bool = False) -> dict[str, Tensor]:
        """The vectors of a batch.

        Args:
            inputs: The entries of each group, [batch, width].
            training: Whether what training drops is dropped; a frozen layer drops nothing.

        Returns:
            The vectors of each group and their sum, `row`, [batch, dim].

        """
        drops = bool(training) and self.trainable
        vectors = {}
        for name, extractor in zip(self.names, self.extractors, strict=True):
            extracted = run_extractor(extractor, inputs[name], drops, self._next_seed)
            vectors[name] = vectors_at_level(extracted.levels, self.level, self.levels)
        return {**vectors, ROW: tf.add_n(list(vectors.values()))}

    def _next_seed(self) -> Tensor:
        return tf.cast(self.seeds.next(), tf.int64)

    def compute_output_spec(self, inputs: Mapping[str, Tensor], training: bool = False) -> dict[str, keras.KerasTensor]:
        """The shapes of the outputs: one vector for each group, and the row's.

        Args:
            inputs: Symbolic entries of each group.
            training: Not used.

        Returns:
            Symbolic vectors by name, [batch, dim].

        """
        del training
        batch = next(iter(inputs.values())).shape[0]
        return {name: keras.KerasTensor((batch, self.dim), self.compute_dtype) for name in (*self.names, ROW)}

    def get_config(self) -> dict[str, Any]:
        shapes = {name: [shape[0], list(shape[1]), shape[2]] for name, shape in self.shapes.items()}
        return {**super().get_config(), "schema": self.schema, "shapes": shapes, "level": self.level}


def keras_encoder(
    model: Feat2Vec,
    *,
    trainable: bool = False,
    groups: Sequence[str] | None = None,
    level: int | None = None,
    copy: bool = True,
) -> keras.Model:
    """A copy of a model's extractors as a plain Keras model: {group: entries} to {group: vectors} and `row`.

    Args:
        model: The model.
        trainable: Whether the copy learns.
        groups: The groups that it takes; None is all of them.
        level: The level whose space the vectors are in; None is the default of the model.
        copy: If it is False, the weights share the model's memory, and neither may be trained.

    """
    names = selected_groups(model.groups, groups)
    vectors = GroupVectors(model.schema.resolved(), {name: model.shapes[name] for name in names}, level, name="vectors")
    inputs = {}
    for name, key in zip(names, vectors.names, strict=True):
        has_numbers = isinstance(model.schema.groups[name].extractor, (NumbersSpec, VectorSpec))
        width = model.shapes[name].width if has_numbers else None
        inputs[key] = keras.Input((width,), dtype="float32" if has_numbers else "int32", name=key)
    with tables_aside():
        outputs = vectors(inputs)
    for name, extractor in zip(names, vectors.extractors, strict=True):
        source = model.extractors[model.groups.index(name)]
        for variable, value in zip(extractor.weights, _weights_up_to(source, vectors.level), strict=True):
            if copy:
                copy_to(variable, value)
            else:
                variable.value.assign(value.value.value())  # TensorFlow lets both have the same memory
    vectors.trainable = trainable
    return keras.Model(inputs, outputs, name="encoder")


def _weights_up_to(extractor: Extractor, level: int) -> list[keras.Variable]:
    """An extractor's weights but for its linear terms and what is of higher levels."""
    left_out = [getattr(extractor, "linear", None), *_of_levels(extractor, slice(level, None))]
    left_out_ids: set[int] = set()
    for variable_or_layer in left_out:
        weights = getattr(variable_or_layer, "weights", [variable_or_layer])
        left_out_ids.update(id(weight) for weight in weights)
    return [weight for weight in extractor.weights if id(weight) not in left_out_ids]


def _up_to(shape: Shape, level: int) -> Shape:
    return shape._replace(sizes=shape.sizes[:level])


def _of_levels(extractor: Extractor, levels: slice) -> list[Variable | keras.layers.Layer]:
    """The tables or the heads of some levels."""
    tables: list[Variable] = getattr(extractor, "tables", [])
    heads: list[keras.layers.Layer] = getattr(extractor, "heads", [])
    return (tables or heads)[levels]


def input_names(groups: Sequence[str]) -> list[str]:
    """The groups' names as Keras takes them: without `/`, and none is `row`, or `self`, as inputs are keywords."""
    return distinct_column_names([name.replace("/", "_") for name in groups], taken=("self",))
