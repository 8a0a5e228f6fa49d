"""A run: the folder that training leaves, and what it is read back as. Nothing in it is executed."""

from __future__ import annotations

import csv
import hashlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from feat2vec.encode import Encoded, Encoder
from feat2vec.errors import UserError, refuse_stray_bytes
from feat2vec.memory import release_memory
from feat2vec.model_file import StoredModel, read_model, write_model
from feat2vec.run_files import MODEL, PARTS, RESTORE, check_manifest, check_parts, in_a_line, read_json, sealed
from feat2vec.schema import Schema
from feat2vec.values import CHUNK, Array, forget
from feat2vec.writing import folder_place, new_folder, partial_folder

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from feat2vec.embed import Embedder
    from feat2vec.explain import Explanation
    from feat2vec.export import Format
    from feat2vec.model import Feat2Vec
    from feat2vec.predict import Predictor
    from feat2vec.vectors import Vectors

FORMAT = 1
LEARNT_FROM = ("data", "validation", "start")  # facts of the manifest
READ_LATER = (MODEL, "history.csv")  # parts that are checked when they are read
MOST_SHOWN = 40  # characters of a key or a value in a message
PACKAGES = ("feat2vec", "keras", "tensorflow", "numpy", "pyarrow", "duckdb")


@dataclass(frozen=True)
class Run:
    """A trained run: `fitted`, the encoder, for rows, `model` for vectors and scores."""

    folder: Path
    manifest: Mapping[str, Any]
    metrics: Mapping[str, Any]

    @cached_property
    def fitted(self) -> Encoder:
        """The fitted encoder, without TensorFlow."""
        return Encoder.load(self.folder)

    @property
    def schema(self) -> Schema:
        """The schema, every default filled in."""
        return self.fitted.schema

    @cached_property
    def model(self) -> Feat2Vec:
        """The trained model, for use; to train it on, load `model.keras` with Keras, which compiles it."""
        check_parts(self.folder, self.manifest, [MODEL])
        return read_model(self.folder / MODEL, self.fitted, sealed=PARTS in self.manifest)

    @property
    def _learnt(self) -> Feat2Vec | StoredModel:
        """The model if it has been read, else what reads no more of its file than is needed."""
        return self.model if "model" in vars(self) else self._stored

    @cached_property
    def _stored(self) -> StoredModel:
        check_parts(self.folder, self.manifest, [MODEL])
        return StoredModel(self.folder / MODEL, self.fitted, sealed=PARTS in self.manifest)

    def finetune(
        self, data: object, target: str, out: str | Path | None = None, validation: object = None, **options: Any
    ) -> Run:
        """A run that predicts a column of labelled rows, on this run's vectors: see `feat2vec.finetune`.

        >>> run.finetune(films, "hit", settings=["training.epochs=1"], quiet=True).schema.target
        'hit'
        """
        import feat2vec

        return feat2vec.finetune(self, data, target, out, validation, **options)

    def explain(self, rows: object, **options: Any) -> Explanation:
        """A row's score, or two rows' similarity, as the sum of its parts: see `feat2vec.explain.explain`.

        >>> found = run.explain({"director": "Ozu", "year": 1953})
        >>> [part["groups"] for part in found.facts()["parts"]]
        [['director', 'year']]
        """
        from feat2vec.explain import explain

        return explain(self.model, self.fitted, rows, **options)

    def embed(
        self, rows: object, groups: Sequence[str] | None = None, level: int | None = None, *, by_group: bool = False
    ) -> Any:
        """Vectors [rows, dim] of any rows: the sum of the groups that are given, or of those in `groups`.

        `by_group` gives {group: vectors} instead. Unseen values, missing groups and absent columns are fine. `level`
        is for models with `ranks`; 1, in which every value has a vector, is the default.

        >>> run.embed(films).shape, float(run.embed(films[["year"]], by_group=True)["director"].max())
        ((60, 4), 0.0)
        """
        return self.embedder(groups, level).embed(rows, by_group=by_group)

    def encoder(
        self, *, trainable: bool = False, groups: Sequence[str] | None = None, level: int | None = None
    ) -> keras.Model:
        """A plain Keras model from a batch of `dataset` to {group: vectors} and their sum, `row`.

        It is a copy: whatever trains it leaves the run as it is. Frozen (the default), its weights stay and it drops
        nothing; with `trainable=True` gradients reach the tables, and what the schema drops in training is dropped.

        >>> vectors = run.encoder()(next(iter(run.dataset(films))))
        >>> {name: tuple(some.shape) for name, some in vectors.items()}
        {'director': (60, 4), 'genre': (60, 4), 'year': (60, 4), 'row': (60, 4)}
        """
        from feat2vec.heads import encoder

        return encoder(self.model, trainable=trainable, groups=groups, level=level)

    def dataset(
        self, rows: object, target: str | None = None, *, classes: bool | Sequence[str] | None = None,
        groups: Sequence[str] | None = None, batch_size: int = 256, shuffle: bool = True, seed: int = 0,
    ) -> tf.data.Dataset:  # fmt: skip
        """Batches for a model that `encoder` is a part of: ({group: entries}, label), without a target only the inputs.

        A target of numbers is a label as it is (float32; a boolean is 0 or 1, a date counts days), one of text becomes
        classes: int32, label i standing for `dataset.class_names[i]`, the most frequent first. Give these names as
        `classes` to the dataset of other rows; `classes=True` makes classes of numbers.

        >>> inputs, hit = next(iter(run.dataset(films, target="hit", batch_size=20)))
        >>> sorted(inputs), hit.shape[0]
        (['director', 'genre', 'year'], 20)
        """
        from feat2vec.heads import dataset

        return dataset(
            self.fitted, rows, target, classes=classes, groups=groups, batch_size=batch_size, shuffle=shuffle, seed=seed
        )

    def predict(self, rows: object, level: int | None = None) -> dict[str, Any]:
        """What the run says of any rows, by name: `probability`, `prediction`, ..., as `feat2vec predict` writes it.

        `level` p, in a model with `ranks`, is the submodel B_{1,p}.

        >>> run.predict(films)["score"].shape
        (60,)
        """
        return self.predictor(level).predict(rows)

    def predictor(self, level: int | None = None) -> Predictor:
        """What `predict` predicts by, compiled once: `predictor().write(table, "scores.parquet")` streams to a file."""
        from feat2vec.predict import Predictor

        if level not in self._predictors:
            self._predictors[level] = Predictor(self.fitted, self.model, level)
        return self._predictors[level]

    @cached_property
    def _predictors(self) -> dict[Any, Predictor]:
        return {}

    def embedder(self, groups: Sequence[str] | None = None, level: int | None = None) -> Embedder:
        """What `embed` embeds by, compiled once: `embedder().write(table, "vectors.parquet")` streams to a file."""
        from feat2vec.embed import Embedder

        key = (groups if groups is None else tuple(groups), level)
        if key not in self._embedders:
            self._embedders[key] = Embedder(self.fitted, self.model, groups, level)
        return self._embedders[key]

    @cached_property
    def _embedders(self) -> dict[Any, Embedder]:
        return {}

    def vectors(self, group: str, level: int | None = None) -> Vectors:
        """A group's vectors by key, to compare and search; in a model with ranks `level` picks a common space.

        >>> directors = run.vectors("director")
        >>> directors
        <Vectors of 'director': 3 of 4 dimensions>
        >>> "Ozu" in directors, directors["Ozu"].shape
        (True, (4,))
        """
        from feat2vec.vectors import group_vectors

        return group_vectors(self._learnt, self.fitted, group, level, self.folder)

    def row_vectors(self, data: object, level: int | None = None) -> Vectors:
        """The vectors of rows as a whole, by the names in the schema's `id` column; a run keeps no rows, so give them.

        They are the sums of the vectors of a row's groups.
        """
        from feat2vec.vectors import row_vectors

        return row_vectors(self.model, self.fitted, data, level)

    def export(
        self, format: Format, out: str | Path, groups: Sequence[str] | None = None, *, level: int | None = None,  # noqa: A002
        normalise: bool = False, force: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """Write vectors into the folder `out` for other tools, whole or not at all; returns what its manifest says.

        `format` is parquet, npz, word2vec (text and binary), projector (TensorBoard's), faiss, saved_model (raw strings
        and numbers in, vectors out, without feat2vec) or sql (pgvector). A model with `ranks` is exported at one
        `level`: by default 1, in which every value has a vector, or the whole space with `level_sharing: truncate`.
        `normalise` makes vectors of length 1; `force` replaces an earlier export.

        >>> facts = run.export("npz", "vectors", ["director"])
        >>> facts["groups"]["director"]["rows"], np.load("vectors/director.npz")["vectors"].shape
        (3, (3, 4))
        """
        from feat2vec.export import export

        return export(self._learnt, self.fitted, format, out, groups, level=level, normalise=normalise, force=force)

    @cached_property
    def history(self) -> list[dict[str, float]]:
        """The numbers of each epoch."""
        path = self.folder / "history.csv"
        check_parts(self.folder, self.manifest, [path.name])
        try:
            with path.open(newline="", encoding="utf-8") as file:
                rows = [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]
            if any("epoch" not in row for row in rows):
                raise ValueError("a row has no epoch")
            return rows
        except (OSError, ValueError, TypeError, csv.Error) as error:  # TypeError: a row longer than the header
            raise UserError(f"{path}: holds no history that can be read ({in_a_line(error)}); {RESTORE}") from None


def load(folder: str | Path) -> Run:
    """Read a run; a schema with plugins is refused until they are imported, as that would run their code.

    >>> feat2vec.load("runs/films").schema.name
    'films'
    """
    folder = Path(folder)
    refuse_stray_bytes(folder)
    if not (folder / "manifest.json").is_file():
        what = "is no run (it has no manifest.json)" if folder.exists() else "does not exist"
        partial = partial_folder(folder)
        more = (
            f"; {partial} was not finished, `feat2vec train ... --resume` goes on with it" if partial.exists() else ""
        )
        raise UserError(f"{folder}: {what}; `feat2vec train SCHEMA --data DATA --out RUN` makes one{more}")
    manifest, metrics = _facts_of(folder)
    run = Run(folder, manifest, metrics)
    _ = run.fitted  # what is wrong with it is said now
    release_memory()
    return run


def _facts_of(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What manifest.json and metrics.json say, once all that is read at first is as training wrote it."""
    try:
        manifest = read_json(folder / "manifest.json")
        if manifest["format"] != FORMAT:
            shown = repr(manifest["format"])[:20]
            raise UserError(f"{folder}: was written in format {shown}; this feat2vec reads {FORMAT}")
        check_manifest(folder, manifest)
        check_parts(folder, manifest, [name for name in manifest.get(PARTS, ()) if name not in READ_LATER])
        metrics = read_json(folder / "metrics.json")
        for name, value in metrics.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"metrics.json: {name[:40]!r} is no number")
        if "seed" not in manifest:
            raise ValueError("manifest.json has no seed")
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder}: cannot be read as a run ({in_a_line(error)})") from None
    return manifest, metrics


def unwritten(model: Feat2Vec) -> Run:
    """A model that no folder holds, such as one in training, to be measured as a run is."""
    run = Run(Path(), {}, {})
    vars(run).update(model=model, fitted=model.encoder)  # what would be read from the folder
    return run


def write_run(
    folder: Path, model: Feat2Vec, metrics: Mapping[str, Any], history: Sequence[Mapping[str, Any]],
    learnt_from: Mapping[str, Any],
) -> None:  # fmt: skip
    """Write a run into a folder that does not exist, whole or not at all."""
    if model.encoder is None:
        raise ValueError("the model has no encoder")
    versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    manifest = {"format": FORMAT, "versions": versions, **learnt_from, "seed": model.schema.training.seed}
    with new_folder(folder_place(folder, "run")) as made:
        model.encoder.write(made)
        write_model(model, made / MODEL)
        _write_json(made / "metrics.json", metrics)
        with (made / "history.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(history[-1]) if history else ["epoch"])
            writer.writeheader()
            writer.writerows(history)
        _write_json(made / "manifest.json", sealed(manifest, made))


def _write_json(path: Path, facts: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


# --- what a run was trained on --------------------------------------------------------------------------------------


def fingerprints(encoded: Encoded) -> dict[str, Any]:
    """A digest of each group's values in every row, and of the target and the weight."""
    facts: dict[str, Any] = {"rows": len(encoded)}
    for g, (name, values) in enumerate(encoded.values.items()):
        vocabulary = encoded.encoder.codecs[name].vocabulary
        keys = [] if vocabulary is None else [np.array(hash_of(buffers(vocabulary.keys)))]
        facts[name] = hash_of(chain(pieces(values.entries), keys, (piece[:, g] for piece in pieces(encoded.rows))))
    for name, array in (("target", encoded.target), ("weight", encoded.weight)):
        if array is not None:
            facts[f"the {name}"] = hash_of(pieces(array))
    return facts


def pieces(array: Array) -> Iterator[Array]:
    """An array in pieces, as it may be larger than memory."""
    for at in range(0, len(array), CHUNK):
        yield array[at : at + CHUNK]
        forget(array)


def buffers(keys: Any) -> Iterator[Array]:
    """The bytes of Arrow strings, and where each begins."""
    return (np.frombuffer(buffer, np.uint8) for buffer in keys.buffers() if buffer is not None)


def hash_of(arrays: Any) -> str:
    """A digest of the arrays' bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def differences(before: Mapping[str, Any], now: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Where two nested mappings differ: `training.epochs: 5 before, 10 now`."""
    for key in dict.fromkeys([*before, *now]):
        if len(path) > 150:  # no file of ours is nested that deep
            yield f"{path}: differs"
            return
        here, old, new = f"{path}{key[:MOST_SHOWN]}", before.get(key, "nothing"), now.get(key, "nothing")
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from differences(old, new, f"{here}.")
        elif old != new:
            was, now_ = (_shown(value) for value in (old, new))
            yield f"{here}: {was} before, {now_} now"


def _shown(value: Any) -> Any:
    if value is None or isinstance(value, Mapping):
        return "none" if value is None else "given"
    text = " ".join(str(value).split())
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."
