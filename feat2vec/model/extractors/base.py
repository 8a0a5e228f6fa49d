"""What all extractors share: their arguments, what they return, tables, and the registry of their layers.

An extractor of one's own is a class derived from `Headed`, `LookupExtractor` or `Extractor`, registered by
`@feat2vec.layer(name)`. It makes its weights in `build(input_shape=None)` and its vectors in
`call(entries, training=False, seed=None)`, which returns an `Extracted`:

    @feat2vec.layer("scaled")
    class ScaledExtractor(feat2vec.extractors.Headed):
        def build(self, input_shape=None):
            self.build_heads(self.shape.width, use_bias=False)
            super().build(input_shape)

        def call(self, entries, training=False, seed=None):
            present = tf.cast(~tf.math.is_nan(entries[:, :1]), entries.dtype)
            return self.finish(tf.where(present > 0, entries, 0) * self.spec["factor"], present)

One that draws random numbers in training also sets `is_random = True`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import keras
import numpy as np
import tensorflow as tf

from feat2vec.model.large_variables import TableStart, are_aside, is_table
from feat2vec.model.optimizers import by_row, read_rows
from feat2vec.model.optimizers.tables import Variable
from feat2vec.model.pair_scores import Level, Tensor
from feat2vec.model.pair_scores_by_key import KeyVectors
from feat2vec.schema.extractor_options import ExtractorSpec

ShapeData: TypeAlias = Sequence[Any]  # the fields of a `Shape`, of which JSON makes a list
UNSEEN = 1  # the first id that has a vector


class Shape(NamedTuple):
    """What a fitted group says about its layer.

    Args:
        width: how many numbers an entry has.
        sizes: |F_k|, the number of keys that reach level k, for each level; the unseen key is one of F_1.
        weighted: whether the second half of an entry is the weights of the items in the first.
        active: how many of F_1, the first ones, have a vector; None for all.
        needs_term: whether a key has no vector while its linear term is zero.

    Example:
        >>> feat2vec.extractors.Shape(width=1, sizes=(4,)).table_sizes
        (4,)

    """

    width: int
    sizes: tuple[int, ...] = ()
    weighted: bool = False
    active: int | None = None
    needs_term: bool = False

    @property
    def table_sizes(self) -> tuple[int, ...]:
        """The rows of the table of vectors at each level."""
        return self.sizes if self.active is None else (self.active, *self.sizes[1:])

    @classmethod
    def from_data(cls, data: ShapeData) -> Shape:
        """Return the shape that a file holds.

        Args:
            data: The fields in their order; the last two may be missing.

        Returns:
            The shape.

        """
        width, sizes, weighted, *activation = data
        active, needs_term = activation or (None, False)
        return cls(int(width), tuple(sizes), bool(weighted), None if active is None else int(active), bool(needs_term))

    def data(self) -> list[object]:
        """Return what a file holds of the shape.

        Returns:
            The fields in their order, without the last two where every key has a vector.

        """
        fields = [self.width, list(self.sizes), self.weighted]
        return fields if self.active is None and not self.needs_term else [*fields, self.active, self.needs_term]


class Extracted(NamedTuple):
    """What an extractor returns for entries [batch, width].

    Args:
        levels: the group's vectors at each level, [batch, D_k].
        linear: the group's linear term, [batch]; None without bias.
        square: what the option `l2` counts: |v|^2 summed over the occurrences of the active factors, those of keys and
            of tokens. Not dense weights, which all rows share.
        linear_square: what `l2_linear` counts: the squares of linear terms over their occurrences.
        key_vectors: in place of levels, what `by_key` returns: vectors that are read once a key.

    Example:
        >>> genre = run.model.vectors("genre", np.array([[2], [0]]))
        >>> len(genre.levels), genre.levels[0].free.shape, genre.linear is None
        (1, TensorShape([2, 4]), True)

    """

    levels: tuple[Level, ...]
    linear: Tensor
    square: Tensor
    linear_square: Tensor = 0.0
    key_vectors: tuple[KeyVectors, ...] = ()


class Extractor(keras.layers.Layer):
    """The base of all extractors.

    Args:
        spec: the options in the schema.
        shape: a `Shape`, from the data.
        dims: the rank D_k of each level.
        bias: whether there is a linear term.
        scale: the standard deviation of keys' vectors at the start.
        **kwargs: those of `keras.layers.Layer`.

    Example:
        >>> from feat2vec.specs import Lookup
        >>> shape = feat2vec.extractors.Shape(width=1, sizes=(4,))
        >>> genre = feat2vec.extractors.build_extractor(Lookup(), shape, [3], bias=True, name="genre")
        >>> genre(np.array([[2], [3]])).levels[0].free.shape, genre.params()  # 4 vectors, 4 linear terms
        (TensorShape([2, 3]), 16)

    """

    is_random: ClassVar[bool] = False  # whether `call` draws random numbers in training, and so takes a seed

    def __init__(
        self,
        spec: Mapping[str, Any],
        shape: ShapeData,
        dims: Sequence[int],
        bias: bool = False,
        scale: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.spec, self.dims, self.bias, self.scale = dict(spec), tuple(dims), bias, scale
        self.shape = Shape.from_data(shape)

    def call(self, entries: Tensor, training: bool = False, seed: Tensor | None = None) -> Extracted:
        """Return the vectors of entries.

        Args:
            entries: [batch, width].
            training: whether this is a training step.
            seed: two integers for the random numbers of a training step, so that it can be repeated; None outside of
                training, or if the extractor is not `is_random`.

        Returns:
            The vectors of each level, [batch, D_k].

        """
        raise NotImplementedError(f"{type(self).__name__} needs a method `call`")

    def by_key(self, entries: Tensor, training: bool = False, seed: Tensor | None = None) -> Extracted:
        """Return what `call` does; with `key_vectors` in place of levels if the vectors can be read once a key.

        Args:
            entries: as in `call`.
            training: as in `call`.
            seed: as in `call`.

        Returns:
            The vectors of the batch, or those of its distinct keys.

        """
        extracted: Extracted = self(entries, training=training, seed=seed)
        return extracted

    def params(self) -> int:
        """Count every weight, frozen ones too.

        Returns:
            The number of weights.

        """
        return int(self.count_params())

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        arguments = {"spec": dict(self.spec), "shape": self.shape.data(), "dims": list(self.dims), "bias": self.bias}
        return {**super().get_config(), **arguments, "scale": self.scale}

    def needed(self, seed: Tensor | None) -> Tensor:
        """Return a seed that dropout cannot do without.

        Args:
            seed: the argument of `call`.

        Returns:
            The seed.

        Raises:
            ValueError: if it is None.

        """
        if seed is None:
            raise ValueError(f"{self.name}: dropout needs a `seed` of two integers. Received: seed=None")
        return seed

    # --- tables -----------------------------------------------------------------------------------------------------

    def add_table(self, size: int, dim: int, name: str, unseen: bool, scale: float = 0.1) -> Variable:
        """Add a table [size, dim] to gather rows from; the first row is zero if it is the unseen key's.

        The table is never cast as a whole, as autocasting would.

        Args:
            size: the number of rows.
            dim: the number of columns.
            name: the variable's name.
            unseen: whether the first row is the unseen key's.
            scale: the standard deviation of the rows at the start.

        Returns:
            The variable, which optimizers update by rows.

        """
        start = TableStart(scale, unseen)
        return by_row(self.add_weight(shape=(size, dim), initializer=start, name=name, autocast=False))

    def gather(self, table: Variable, rows: Tensor) -> Tensor:
        """Read rows of a table: ResourceGather on the variable, whose gradient is a `tf.IndexedSlices`.

        Args:
            table: what `add_table` returned.
            rows: the numbers of rows, [n].

        Returns:
            The rows, [n, dim].

        """
        return tf.cast(tf.gather(table.value, rows), self.compute_dtype)

    def gather_distinct(self, table: Variable, rows: Tensor) -> Tensor:
        """Read rows that do not repeat: the optimizer need not look for repeated ones.

        Args:
            table: what `add_table` returned.
            rows: the numbers of rows, [n], no two of them the same.

        Returns:
            The rows, [n, dim].

        """
        return tf.cast(read_rows(table, rows), self.compute_dtype)

    # --- saving -----------------------------------------------------------------------------------------------------

    def save_own_variables(self, store: Any) -> None:
        """Save as Keras does; while tables are aside, an empty array stands for each."""
        super().save_own_variables(_StoreWithoutTables(store) if are_aside() else store)

    def load_own_variables(self, store: Any) -> None:
        """Load as Keras does; tables that are aside are left as they are."""
        if not are_aside():
            super().load_own_variables(store)
            return
        for key, variable in self._variables_by_key():
            if not is_table(variable):
                variable.assign(store[key])

    def saved_tables(self) -> dict[str, Variable]:
        """Return the tables that are saved and loaded in pieces, by the keys that Keras has for them.

        Returns:
            The variables by key; none for a layer that saves its variables in its own way.

        """
        saves_so = type(self).save_own_variables is Extractor.save_own_variables
        loads_so = type(self).load_own_variables is Extractor.load_own_variables
        if not (saves_so and loads_so):  # a layer of the user's that saves in its own way
            return {}
        return {key: variable for key, variable in self._variables_by_key() if is_table(variable)}

    def _variables_by_key(self) -> list[tuple[str, Variable]]:
        """The layer's own variables, without those of layers inside, by Keras' keys."""
        variables = [*self._trainable_variables, *self._non_trainable_variables]
        return [(str(i), variable) for i, variable in enumerate(variables)]


class _StoreWithoutTables:
    """What Keras saves a layer's variables to, for all but the tables."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __setitem__(self, key: str, variable: Variable) -> None:
        self.store[key] = np.zeros((0, *variable.shape[1:]), variable.dtype) if is_table(variable) else variable


# --- the registry ---------------------------------------------------------------------------------------------------


LAYERS: dict[str, type[Extractor]] = {}
LayerClass = TypeVar("LayerClass", bound=type[Extractor])


def layer(name: str) -> Callable[[LayerClass], LayerClass]:
    """Register the layer of an extractor.

    Args:
        name: the extractor's name in schemas, under which `feat2vec.extractor` has registered its options.

    Returns:
        A decorator for a class derived from `Extractor`.

    Raises:
        ValueError: if the name has another layer already.

    Example:
        >>> @feat2vec.layer("example")
        ... class Example(feat2vec.extractors.LookupExtractor):
        ...     pass
        >>> feat2vec.extractors.LAYERS["example"] is Example
        True

    """

    def register(cls: LayerClass) -> LayerClass:
        before = LAYERS.get(name, cls)
        if (before.__module__, before.__qualname__) != (cls.__module__, cls.__qualname__):  # a reload is no conflict
            raise ValueError(f"the extractor {name!r} has a layer already, {before}. Received: {cls}")
        LAYERS[name] = keras.saving.register_keras_serializable("feat2vec", name)(cls)
        return cls

    return register


def build_extractor(
    spec: ExtractorSpec, shape: Shape, dims: Sequence[int], bias: bool, name: str, scale: float = 0.1
) -> Extractor:
    """Return the layer of a group, without weights yet.

    Args:
        spec: the extractor's options.
        shape: what the fitted group says about its layer.
        dims: the rank of each level.
        bias: whether there is a linear term.
        name: the layer's name.
        scale: the standard deviation of keys' vectors at the start.

    Raises:
        ValueError: if no layer is registered for the extractor.

    Returns:
        The layer.

    Example:
        >>> from feat2vec.specs import Vector
        >>> feat2vec.extractors.build_extractor(Vector(), Shape(width=5), [2], bias=False, name="image").name
        'image'

    """
    if spec.type not in LAYERS:
        remedy = f"register one with feat2vec.layer({spec.type!r})"
        raise ValueError(f"the extractor {spec.type!r} has no layer; {remedy}. Received: {spec!r}")
    return LAYERS[spec.type](spec.model_dump(mode="json"), shape, dims, bias, scale, name=name)


class Headed(Extractor):
    """The base of extractors whose features meet every level through an output head of its own.

    Their values have the top level: below it they are dependent. Its arguments are those of `Extractor`.

    Example:
        >>> import tensorflow as tf
        >>> class Halved(feat2vec.extractors.Headed):
        ...     def build(self, input_shape=None):
        ...         self.build_heads(self.shape.width, use_bias=False)
        ...         super().build(input_shape)
        ...
        ...     def call(self, entries, training=False, seed=None):
        ...         present = tf.cast(~tf.math.is_nan(entries[:, :1]), entries.dtype)
        ...         return self.finish(tf.where(present > 0, entries / 2, 0), present)
        >>> halved = Halved({"type": "halved"}, feat2vec.extractors.Shape(width=1), dims=[3])
        >>> vectors = halved(np.array([[1.0], [np.nan]], "float32")).levels[0].free.numpy()
        >>> vectors.shape, vectors[1].any()  # the second group is missing
        ((2, 3), np.False_)

    """

    def build_heads(self, features: int, *, use_bias: bool, kernel: str = "glorot_uniform") -> None:
        """Make one head a level, and one for the linear term.

        Args:
            features: how many features there are.
            use_bias: whether heads add a bias.
            kernel: the initializer of the heads' kernels, as Keras calls it.

        """
        self.heads = [
            keras.layers.Dense(
                dim, use_bias=use_bias, kernel_initializer=kernel, name=f"head_{level}", dtype=self.dtype_policy
            )
            for level, dim in enumerate(self.dims, start=1)
            if dim  # a model without pairs has no vectors
        ]
        if self.bias:
            self.linear = keras.layers.Dense(
                1, use_bias=False, kernel_initializer="zeros", name="linear", dtype=self.dtype_policy
            )
        for head in (*self.heads, *([self.linear] if self.bias else [])):
            head.build((None, features))

    def finish(self, features: Tensor, present: Tensor) -> Extracted:
        """Return the vectors of features.

        Args:
            features: [batch, features].
            present: [batch, 1], 0 where the group is missing and 1 elsewhere.

        Returns:
            The vectors of each level, [batch, D_k], and the linear term.

        """
        vectors = [head(features) * present for head in self.heads] or [features[:, :0]]  # each [batch, D_k]
        levels = [Level(tf.zeros_like(vector), vector) for vector in vectors[:-1]] + [Level(vectors[-1], None)]
        linear = (self.linear(features) * present)[:, 0] if self.bias else None
        return Extracted(tuple(levels), linear, tf.zeros((), self.compute_dtype))
