"""`Feat2VecTransformer`: a schema's vectors as a step of a scikit-learn pipeline (`pip install feat2vec[sklearn]`)."""

from __future__ import annotations

import io
import tempfile
import weakref
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from feat2vec.errors import UserError
from feat2vec.run import Run, load, train
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.table.propose import propose
from feat2vec.writing import discard_temporary, temporary_folder

# What a process has opened for itself: no part of a transformer, so that it is neither pickled nor compared.
OPENED: weakref.WeakKeyDictionary[Any, Run] = weakref.WeakKeyDictionary()


class Feat2VecTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learns a schema's vectors from a table and turns rows into vectors, the sum of those of their groups.

    A table is a pandas or polars frame, or an array, whose columns are called x0, x1 and so on. `schema` is a path,
    YAML text, a mapping or a Schema; without one, a frame gets the schema of `feat2vec init`, and an array's columns
    become a group each: numbers, or else keys. `settings` such as {"training.epochs": 5} replace what the schema says;
    `dim`, `epochs` and `random_state` do so for model.dim, training.epochs and training.seed. If the schema has a
    target, it is a column of X, or the `y` of `fit`. `groups` and `level` are those of `Run.embed`.

    The fitted transformer holds the bytes of its run, `archive_`, so that it can be pickled and sent to other
    processes; `run_` is the run itself.

    >>> from feat2vec.sklearn import Feat2VecTransformer
    >>> Feat2VecTransformer(schema, dim=5).fit_transform(films).shape
    (60, 5)
    """

    def __init__(
        self,
        schema: Schema | str | Path | Mapping[str, Any] | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
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

    def fit(self, X: Any, y: Any = None) -> Feat2VecTransformer:  # noqa: N803
        """Train on the rows; `y` is used if the schema has a target that is no column of X."""
        table = self._table(X, reset=True)
        with _as_value_error(), tempfile.TemporaryDirectory(prefix="feat2vec-") as folder:
            schema = self._schema(table, array=_is_array(X))
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
        OPENED.pop(self, None)
        return self

    def transform(self, X: Any) -> npt.NDArray[np.float32]:  # noqa: N803
        """Vectors [rows, dim]."""
        check_is_fitted(self)
        table = self._table(X, reset=False)
        with _as_value_error():
            vectors: npt.NDArray[np.float32] = self.run_.embed(table, self.groups, self.level)
        return vectors

    @property
    def run_(self) -> Run:
        """The run, in a temporary folder of this process."""
        check_is_fitted(self)
        if self not in OPENED:
            folder = temporary_folder()
            with zipfile.ZipFile(io.BytesIO(self.archive_)) as file:
                file.extractall(folder / "run")
            OPENED[self] = load(folder / "run")
            weakref.finalize(OPENED[self], discard_temporary, folder)
        return OPENED[self]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = ["float32"]  # whatever comes in
        return tags

    def _table(self, X: Any, *, reset: bool) -> Any:  # noqa: N803
        """A frame whose columns have names, checked as scikit-learn does."""
        if not _is_array(X):
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
        return frame.apply(_plain) if checked.dtype.kind in "OUS" else frame.astype(_kept(checked.dtype))

    def _schema(self, table: Any, *, array: bool) -> Schema:
        source: Any = self.schema
        if source is None:
            source = _of_columns(table) if array else propose(table)
        elif isinstance(source, Schema):
            source = source.resolved()
        own = {"model.dim": self.dim, "training.epochs": self.epochs, "training.seed": self.random_state}
        settings = {**{key: value for key, value in own.items() if value is not None}, **(self.settings or {})}
        return read_schema(source, settings=[f"{key}={_yaml(value)}" for key, value in settings.items()])


def _is_array(X: Any) -> bool:  # noqa: N803
    """What scikit-learn makes an array of: all that is no frame."""
    return not (hasattr(X, "columns") or hasattr(X, "__arrow_c_stream__"))


def _plain(column: Any) -> Any:
    """A column of Python objects as numbers if it has nothing else, or as text."""
    try:
        return pd.to_numeric(column).astype(np.float64)
    except (ValueError, TypeError):
        wrong = [value for value in column if not isinstance(value, (str, int, float, bool, type(None), np.generic))]
        if wrong:
            raise TypeError(f"argument must be a string or a number, received {type(wrong[0]).__name__}") from None
        return column.map(str, na_action="ignore").astype("string")


def _kept(dtype: Any) -> Any:
    """Types that tables have: no float16."""
    return np.float32 if dtype == np.float16 else dtype


def _of_columns(table: Any) -> Mapping[str, Any]:
    """A group for each column of an array; a single one is there as numbers and as their bins."""
    groups: dict[str, Any] = {
        name: {"column": name, "extractor": "numeric" if pd.api.types.is_numeric_dtype(type_) else "lookup"}
        for name, type_ in table.dtypes.items()
    }
    if len(groups) == 1:
        ((name, group),) = groups.items()
        other = {"type": "lookup", "bins": 10} if group["extractor"] == "numeric" else "lookup"
        groups[f"{name}_binned"] = {"column": name, "extractor": other}
    return {"version": 1, "model": {"dim": 16}, "groups": groups}


def _with_column(table: Any, name: str, values: Sequence[Any]) -> Any:
    if isinstance(table, pd.DataFrame):
        return table.assign(**{name: values})
    import polars as pl

    return pl.DataFrame(table).with_columns(pl.Series(name, values))


def _yaml(value: Any) -> str:
    import yaml

    plain = value.item() if isinstance(value, np.generic) else value
    return str(yaml.safe_dump(plain, default_flow_style=True, width=10**6)).removesuffix("\n").removesuffix("\n...")


def _packed(folder: Path) -> bytes:
    """A folder as the bytes of a zip file."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_STORED) as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(folder))
    return held.getvalue()


@contextmanager
def _as_value_error() -> Iterator[None]:
    """What scikit-learn's users expect of a wrong argument."""
    try:
        yield
    except UserError as error:
        raise ValueError(str(error)) from error
