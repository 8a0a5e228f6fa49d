"""A run as a plain Keras model for layers of one's own, and a table as batches for it.

encoder = run.encoder(trainable=True)
price = keras.layers.Dense(1)(encoder.output["row"])
model = keras.Model(encoder.input, price)
model.compile(feat2vec.optimizers.named("adagrad", 0.05), "mse")
model.fit(run.dataset(rows, target="price"), shuffle=False)  # the batches are shuffled
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import tensorflow as tf

from feat2vec.encode.encoder import Encoder
from feat2vec.encode.vocabulary import Vocabulary
from feat2vec.errors import UserError, listed, suggest
from feat2vec.model.extractors import Extractor, Shape, build_extractor
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.large_variables import copy_to, tables_aside
from feat2vec.model.network import run_extractor
from feat2vec.sampling.batches import Batches, value_tables
from feat2vec.schema.extractor_options import NumbersSpec, VectorSpec
from feat2vec.schema.levels import dims_of
from feat2vec.schema.options import Nce, Regression, Schema, Softmax, schema_of
from feat2vec.space.embed import ROW, at_level, chosen, column_names, level_of
from feat2vec.table.numbers import numbers_of
from feat2vec.table.stages import Stage, is_list, kind_of_type, stages
from feat2vec.table.table import Table, open_table


@keras.saving.register_keras_serializable(package="feat2vec")
class GroupVectors(keras.layers.Layer):
    """{name: entries} to {name: vectors [batch, dim]} and their sum, `row`; `names` are those of `input_names`.

    A frozen one drops nothing, also in training, so that a row's vectors stay what they are.
    """

    def __init__(
        self, schema: str, shapes: Mapping[str, Sequence[Any]], level: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.schema = schema
        self.shapes = {name: Shape(int(s[0]), tuple(s[1]), bool(s[2])) for name, s in shapes.items()}
        spec: Schema = schema_of(schema)
        self.sharing = spec.model.level_sharing
        self.level, self.dim = level_of(spec.model, level)
        self.names = input_names(list(self.shapes))
        dims = dims_of(spec)[: self.level]
        self.extractors = [
            build_extractor(spec.groups[name].extractor, _up_to(shape, self.level), dims, bias=False, name=f"group_{i}")
            for i, (name, shape) in enumerate(self.shapes.items())
        ]
        self.seeds = keras.random.SeedGenerator(spec.training.seed)
        self.supports_jit = False  # XLA has no row-sparse updates

    def build(self, input_shape: Any = None) -> None:
        """Make the weights."""
        del input_shape
        for extractor in self.extractors:
            extractor.build(None)
        self.built = True
        self._set_trainable(self.trainable)  # an assignment of what it is would do nothing

    @property
    def trainable(self) -> bool:
        """Whether it learns: all that its output is made of."""
        return bool(keras.layers.Layer.trainable.fget(self))

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._set_trainable(value)

    def _set_trainable(self, value: bool) -> None:
        keras.layers.Layer.trainable.fset(self, value)
        if self.built and self.sharing != "truncate":  # a level's space is its own: those below get no gradient
            for extractor in self.extractors:
                for part in _of_levels(extractor, slice(self.level - 1)):
                    part.trainable = False

    def call(self, inputs: Mapping[str, Any], training: bool = False) -> dict[str, Any]:
        """Vectors of a batch."""
        drops = bool(training) and self.trainable
        vectors = {}
        for name, extractor in zip(self.names, self.extractors, strict=True):
            extracted = run_extractor(extractor, inputs[name], drops, self._seed)
            vectors[name] = at_level(extracted.levels, self.level, self.sharing)
        return {**vectors, ROW: tf.add_n(list(vectors.values()))}

    def _seed(self) -> Any:
        return tf.cast(self.seeds.next(), tf.int64)

    def compute_output_spec(self, inputs: Mapping[str, Any], training: bool = False) -> dict[str, Any]:
        """One vector a group, and the row's."""
        del training
        batch = next(iter(inputs.values())).shape[0]
        return {name: keras.KerasTensor((batch, self.dim), self.compute_dtype) for name in (*self.names, ROW)}

    def get_config(self) -> dict[str, Any]:
        shapes = {name: [shape[0], list(shape[1]), shape[2]] for name, shape in self.shapes.items()}
        return {**super().get_config(), "schema": self.schema, "shapes": shapes, "level": self.level}


def encoder(
    model: Feat2Vec,
    *,
    trainable: bool = False,
    groups: Sequence[str] | None = None,
    level: int | None = None,
    copy: bool = True,
) -> keras.Model:
    """A copy of a model's extractors as a plain Keras model: {group: entries} to {group: vectors} and `row`.

    Without `copy` its weights are the model's own, and neither may be trained.
    """
    names = chosen(model.groups, groups)
    vectors = GroupVectors(model.schema.resolved(), {name: model.shapes[name] for name in names}, level, name="vectors")
    inputs = {}
    for name, key in zip(names, vectors.names, strict=True):
        numbers = isinstance(model.schema.groups[name].extractor, (NumbersSpec, VectorSpec))
        width = model.shapes[name].width if numbers else None
        inputs[key] = keras.Input((width,), dtype="float32" if numbers else "int32", name=key)
    with tables_aside():
        outputs = vectors(inputs)
    for name, extractor in zip(names, vectors.extractors, strict=True):
        source = model.extractors[model.groups.index(name)]
        left_out = [getattr(source, "linear", None), *_of_levels(source, slice(vectors.level, None))]
        unused = {id(weight) for part in left_out for weight in getattr(part, "weights", [part])}
        learnt = [weight for weight in source.weights if id(weight) not in unused]
        for variable, value in zip(extractor.weights, learnt, strict=True):
            if copy:
                copy_to(variable, value)
            else:
                variable.value.assign(value.value.value())  # TensorFlow lets both have the same memory
    vectors.trainable = trainable
    return keras.Model(inputs, outputs, name="encoder")


def _up_to(shape: Shape, level: int) -> Shape:
    return shape._replace(sizes=shape.sizes[:level])


def _of_levels(extractor: Extractor, levels: slice) -> list[Any]:
    """The tables or the heads of some levels."""
    parts: list[Any] = getattr(extractor, "tables", None) or getattr(extractor, "heads", [])
    return parts[levels]


def input_names(groups: Sequence[str]) -> list[str]:
    """The groups' names as Keras takes them: without `/`, and none is `row`, or `self`, as inputs are keywords."""
    return column_names([name.replace("/", "_") for name in groups], taken=("self",))


# --- batches --------------------------------------------------------------------------------------------------------


def dataset(
    encoder: Encoder,
    rows: object,
    target: str | None = None,
    *,
    classes: bool | Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    batch_size: int = 256,
    shuffle: bool = True,
    seed: int = 0,
) -> tf.data.Dataset:
    """See `Run.dataset`."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise UserError(f"batch_size: expected a whole number above 0; received {batch_size!r}")
    names, table = chosen(list(encoder.codecs), groups), open_table(rows)
    some = encoder.only(names)
    if target is not None:
        _check_target(some.schema, table, target)
    names_given = None if classes is None or isinstance(classes, bool) else _class_names(classes)
    update: dict[str, Any] = {"id": None, "objective": Nce()}
    as_classes = target is not None and (names_given is not None or _as_classes(table, target, classes))
    if target is not None:
        update["objective"] = (Softmax if as_classes else Regression)(target=target)
    known = None
    if names_given is not None:
        known = Vocabulary(pa.array(names_given, pa.string()), np.zeros(len(names_given), np.int64))
    encoded = replace(some, schema=some.schema.model_copy(update=update), classes=known).encode(table)
    if as_classes and (unknown := np.flatnonzero(np.asarray(encoded.target) < 0)).size:
        shown = ", ".join(map(repr, (names_given or [])[:5]))
        raise UserError(f"{table.name}: row {unknown[0] + 1}: column {target!r} has none of the classes {shown} ...")
    tables = {
        key: tf.Variable(values, trainable=False)
        for key, values in zip(input_names(names), value_tables(encoded), strict=True)
    }
    label = None if target is None else encoded.target
    options: dict[str, Any] = {"target": label, "keep_rows": False, "shuffle": shuffle, "seed": seed}
    batches = Batches(encoded.rows, tables, batch_size, most_steps_at_once=1, **options)
    made = batches.dataset()
    if target is None:
        made = made.map(lambda inputs, _: inputs)
    found = encoded.encoder.classes
    made.class_names = found.keys.to_pylist() if as_classes and found is not None else None
    return made


def _check_target(schema: Schema, table: Table, target: str) -> None:
    if target not in table.columns:
        near = suggest(target, table.columns) or f"; the columns are {listed(table.columns)}"
        raise UserError(f"{table.name}: has no column {target!r} to be the target{near}")
    for name, group in schema.groups.items():
        if target in (*group.columns, getattr(group.extractor, "weights", None)):
            rest = [other for other in schema.groups if other != name]
            remedy = f"leave it out of both: run.encoder(groups={rest}) and run.dataset(..., groups={rest})"
            raise UserError(f"the column {target!r} is also the group {name!r}, which would give it away", remedy)
    if is_list(table.columns[target]):
        kind = table.columns[target]
        raise UserError(f"{table.name}: column {target!r} holds lists ({kind}); a target has one value a row")


def _class_names(classes: Sequence[str]) -> list[str]:
    names = [classes] if isinstance(classes, str) else list(classes)
    if (
        isinstance(classes, str)
        or not names
        or len(set(names)) < len(names)
        or not all(isinstance(name, str) for name in names)
    ):
        raise UserError(f"classes: expected True, False or a list of different names; received {classes!r}")
    return names


def _as_classes(table: Table, target: str, classes: bool | Sequence[str] | None) -> bool:
    if isinstance(classes, bool):
        return classes
    if table.typed:
        return kind_of_type(table.columns[target]) == "text"
    return not all(_numeric(stage, target) for stage in stages(table, [target]))  # text may be of numbers: look


def _numeric(stage: Stage, column: str) -> bool:
    try:
        numbers_of(stage, column)
    except UserError:
        return False
    return True
