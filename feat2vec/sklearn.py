"""`Feat2VecTransformer`: a schema's vectors as a step of a scikit-learn pipeline (`pip install feat2vec[sklearn]`)."""

from __future__ import annotations

import io
import tempfile
import weakref
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from feat2vec.arrays import Float32s
from feat2vec.errors import UserError
from feat2vec.run import Run, load, train
from feat2vec.schema.document import Document
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.table.propose import propose
from feat2vec.writing import discard_temporary, temporary_folder

if TYPE_CHECKING:
    import polars as pl
    from sklearn.utils import Tags

Frame: TypeAlias = "pd.DataFrame | pl.DataFrame"
Rows: TypeAlias = "Frame | npt.ArrayLike"  # what scikit-learn calls X
ARRAY_DIM = 16  # of the schema that an array gets
ARRAY_BINS = 10

# The runs that this process has opened. They are no part of a transformer, so they are neither pickled nor compared.
OPENED_RUNS: weakref.WeakKeyDictionary[Feat2VecTransformer, Run] = weakref.WeakKeyDictionary()


class Feat2VecTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learns a schema's vectors from a table and turns rows into vectors, the sum of those of their groups.

    A table is a pandas or polars frame, or an array, whose columns are called x0, x1 and so on. If the schema has a
    target, it is a column of X, or the `y` of `fit`.

    Args:
        schema: A path, YAML text, a mapping or a Schema. Without one, a frame gets the schema of `feat2vec init`, and
            an array's columns become a group each: numbers, or else keys.
        settings: Such as {"training.epochs": 5}; they replace what the schema says.
        dim: Replaces `model.dim`.
        epochs: Replaces `training.epochs`.
        random_state: Replaces `training.seed`.
        groups: The groups that are added up, as in `Run.embed`; by default all.
        level: The level of the vectors, as in `Run.embed`.

    Attributes:
        archive_: The bytes of the run, so that a fitted transformer can be pickled and sent to other processes.
        run_: The run itself.

    Raises:
        ValueError: From `fit` and `transform`, where the schema or the table cannot be used.

    >>> from feat2vec.sklearn import Feat2VecTransformer
    >>> Feat2VecTransformer(schema, dim=5).fit_transform(films).shape
    (60, 5)

    """

    def __init__(
        self,
        schema: Schema | str | Path | Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        dim: int | None = None,
        epochs: int | None = None,
        random_state: int | None = None,
        groups: Sequence[str] | None = None,
        level: int | None = None,
    ) -> None:
        self.schema = schema
        self.settings = settings
        self.dim = dim
        self.epochs = epochs
        self.random_state = random_state
        self.groups = groups
        self.level = level

    def fit(self, X: Rows, y: npt.ArrayLike | None = None) -> Feat2VecTransformer:  # noqa: N803
        """Train on the rows.

        Args:
            X: A frame, or an array [rows, columns].
            y: The target, [rows], if the schema has one that is no column of X.

        Returns:
            The transformer itself.

        Raises:
            ValueError: The schema, the table or the target cannot be used.

        """
        table = self._checked_frame(X, reset=True)
        with _as_value_error(), tempfile.TemporaryDirectory(prefix="feat2vec-") as folder:
            schema = self._read_schema(table, is_array=not _is_frame(X))
            if schema.target is not None and schema.target not in table.columns:
                if y is None:
                    raise UserError(f"fit: the schema's target {schema.target!r} is no column of X, and y is None")
                values = list(np.ravel(y))
                if len(values) != len(table):
                    raise UserError(f"fit: X has {len(table)} rows, y has {len(values)}")
                table = _with_column(table, schema.target, values)
            run = train(schema, table, Path(folder) / "run", quiet=True)
            self.archive_ = _packed(run.folder)
            self._n_features_out = run.embedder(self.groups, self.level).dim
        OPENED_RUNS.pop(self, None)
        return self

    def transform(self, X: Rows) -> Float32s:  # noqa: N803
        """Turn rows into vectors.

        Args:
            X: Rows with the columns of those of `fit`.

        Returns:
            Vectors [rows, dim].

        Raises:
            ValueError: The rows cannot be used.
            NotFittedError: The transformer has not been fitted.

        """
        check_is_fitted(self)
        table = self._checked_frame(X, reset=False)
        with _as_value_error():
            vectors: Float32s = self.run_.embed(table, self.groups, self.level)
        return vectors

    @property
    def run_(self) -> Run:
        """The run, in a temporary folder of this process."""
        check_is_fitted(self)
        if self not in OPENED_RUNS:
            folder = temporary_folder()
            with zipfile.ZipFile(io.BytesIO(self.archive_)) as file:
                file.extractall(folder / "run")
            OPENED_RUNS[self] = load(folder / "run")
            weakref.finalize(OPENED_RUNS[self], discard_temporary, folder)
        return OPENED_RUNS[self]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = ["float32"]  # whatever comes in
        return tags

    def _checked_frame(self, X: Rows, *, reset: bool) -> Frame:  # noqa: N803
        """A frame whose columns have names, checked as scikit-learn does; `reset` in `fit` alone."""
        if _is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if reset and len(X) < 2:
                raise ValueError(f"fit: received {len(X)} sample; at least 2 are needed to learn from")
            return X.rename(columns=str) if isinstance(X, pd.DataFrame) else X
        checked = validate_data(
            self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan", ensure_min_samples=1 + reset
        )
        if checked.dtype.kind == "c":
            raise ValueError(f"Complex data not supported: {checked.dtype}")
        frame = pd.DataFrame(checked, columns=[f"x{i}" for i in range(checked.shape[1])])
        return (
            frame.apply(_numbers_or_text) if checked.dtype.kind in "OUS" else frame.astype(_table_type(checked.dtype))
        )

    def _read_schema(self, table: Frame, *, is_array: bool) -> Schema:
        source: Schema | str | Path | Document | Mapping[str, object] | None = self.schema
        if source is None:
            source = _schema_of_columns(table) if is_array else propose(table)
        elif isinstance(source, Schema):
            source = source.resolved()
        arguments = {"model.dim": self.dim, "training.epochs": self.epochs, "training.seed": self.random_state}
        settings = {key: value for key, value in arguments.items() if value is not None} | dict(self.settings or {})
        return read_schema(source, settings=[f"{key}={_yaml(value)}" for key, value in settings.items()])


def _is_frame(X: Rows) -> TypeGuard[Frame]:  # noqa: N803
    """Whether rows are a frame. Of everything else scikit-learn makes an array."""
    return hasattr(X, "columns") or hasattr(X, "__arrow_c_stream__")


def _numbers_or_text(column: pd.Series) -> pd.Series:
    """A column of Python objects as numbers if it has nothing else, or as text."""
    try:
        return pd.to_numeric(column).astype(np.float64)
    except (ValueError, TypeError):
        wrong_values = [
            value for value in column if not isinstance(value, (str, int, float, bool, type(None), np.generic))
        ]
        if wrong_values:
            raise TypeError(
                f"argument must be a string or a number, received {type(wrong_values[0]).__name__}"
            ) from None
        return column.map(str, na_action="ignore").astype("string")


def _table_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that a table has for an array's: tables have no float16."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def _schema_of_columns(table: pd.DataFrame) -> Mapping[str, object]:
    """A group for each column of an array; a single one is there as numbers and as their bins."""
    groups: dict[str, dict[str, object]] = {
        name: {"column": name, "extractor": "numeric" if pd.api.types.is_numeric_dtype(type_) else "lookup"}
        for name, type_ in table.dtypes.items()
    }
    if len(groups) == 1:
        ((name, group),) = groups.items()
        binned = {"type": "lookup", "bins": ARRAY_BINS} if group["extractor"] == "numeric" else "lookup"
        groups[f"{name}_binned"] = {"column": name, "extractor": binned}
    return {"version": 1, "model": {"dim": ARRAY_DIM}, "groups": groups}


def _with_column(table: Frame, name: str, values: Sequence[object]) -> Frame:
    """The frame with one more column."""
    if isinstance(table, pd.DataFrame):
        return table.assign(**{name: values})
    import polars as pl

    return pl.DataFrame(table).with_columns(pl.Series(name, values))


def _yaml(value: object) -> str:
    """A value as YAML on one line."""
    import yaml

    plain = value.item() if isinstance(value, np.generic) else value
    return str(yaml.safe_dump(plain, default_flow_style=True, width=10**6)).removesuffix("\n").removesuffix("\n...")


def _packed(folder: Path) -> bytes:
    """A folder as the bytes of a zip file."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(folder))
    return archive.getvalue()


@contextmanager
def _as_value_error() -> Iterator[None]:
    """Raise a ValueError for a UserError, as scikit-learn's users expect it for a wrong argument."""
    try:
        yield
    except UserError as error:
        raise ValueError(str(error)) from error


__all__ = ["Feat2VecTransformer"]
