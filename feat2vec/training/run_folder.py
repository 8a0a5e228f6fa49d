"""A run: the folder that training leaves, and what it is read back as. Nothing in it is executed."""

from __future__ import annotations

import csv
import hashlib
import json
import platform
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from feat2vec.encode.encoder import Encoder
from feat2vec.errors import NAMES_OPTIONS, RESTORE, UserError, in_a_line, refuse_stray_bytes
from feat2vec.model.coarse_table import COARSE
from feat2vec.model.model_file import read_model, write_coarse_tables, write_model
from feat2vec.model.stored_model import StoredModel
from feat2vec.model.weights_file import holds_encoder
from feat2vec.schema.options import Schema
from feat2vec.writing import folder_place, hidden_instead, new_folder, partial_folder, record_files
from feat2vec.writing.digests import PARTS, Pieces, check_manifest, check_parts, pieces_of, sealed
from feat2vec.writing.files import JsonObject, read_json
from feat2vec.writing.folder_marks import MARK

if TYPE_CHECKING:
    from typing_extensions import Self

    from feat2vec.model.keras_model import Feat2Vec

FORMAT = 1
UNUSED_COLUMNS = "unused_columns"  # a fact of the manifest: what the training table had beside the run's columns
MODEL = "model.keras"
FROM_SCRATCH = "scratch"  # the folder of the run that one of `finetune` keeps beside its model
READ_LATER = (MODEL, "history.csv")  # parts that are checked when they are read
WITH_TIMES = ("history.csv", "metrics.json")  # parts that differ whenever the same is trained again
PACKAGES = ("feat2vec", "keras", "tensorflow", "numpy", "pyarrow", "duckdb")


@dataclass(frozen=True)
class TrainedRun:
    """A trained run, whose parts are read when they are first needed.

    Args:
        folder: The run's folder.
        manifest: What its manifest.json says.
        metrics: What its metrics.json says.
        in_training: A model that no folder holds yet, instead of all these.

    """

    folder: Path
    manifest: JsonObject
    metrics: JsonObject
    in_training: Feat2Vec | None = None

    @classmethod
    def of_model(cls, model: Feat2Vec) -> Self:
        """A model that no folder holds, such as one in training, to be measured as a run is.

        Args:
            model: The model, with its encoder.

        Returns:
            A run without a folder.

        """
        return cls(Path(), {}, {}, in_training=model)

    def __reduce__(self) -> tuple[object, ...]:
        """A pickle holds where the run is, and is opened from its folder."""
        if self.in_training is not None:
            raise TypeError("a model in training cannot be pickled; pickle the run that it becomes")
        return _opened, (type(self), self.folder.absolute(), _identity(self.manifest))

    @cached_property
    def fitted(self) -> Encoder:
        """The fitted encoder, without TensorFlow."""
        if self.in_training is not None and self.in_training.encoder is not None:
            return self.in_training.encoder
        return Encoder.load(self.folder)

    @cached_property
    def from_scratch(self) -> TrainedRun | None:
        """The run from scratch that a run of `finetune` keeps, to predict the mean of both; None for other runs."""
        if f"{FROM_SCRATCH}/manifest.json" not in self.manifest.get(PARTS, ()):
            return None
        check_parts(self.folder, self.manifest, [f"{FROM_SCRATCH}/manifest.json"])
        folder = self.folder / FROM_SCRATCH
        return TrainedRun(folder, *read_facts(folder))

    @property
    def schema(self) -> Schema:
        """The schema, every default filled in."""
        return self.fitted.schema

    @cached_property
    def model(self) -> Feat2Vec:
        """The trained model, for use.

        To train it further, load `model.keras` with `keras.models.load_model`, which compiles it. The run's encoder is
        `fitted`; `model.keras` has no copy of it.
        """
        if self.in_training is not None:
            return self.in_training
        pieces = self._check_model_file()
        return read_model(self.folder / MODEL, self.fitted, sealed=PARTS in self.manifest, pieces=pieces)

    @property
    def vector_source(self) -> Feat2Vec | StoredModel:
        """What vectors are read from: the model if it is in memory, else its file, read only as far as needed."""
        is_in_memory = "model" in self.__dict__  # where `cached_property` keeps it
        return self.model if is_in_memory or self.in_training is not None else self._stored_model

    def reads_lookups(self, groups: Iterable[str] | None = None) -> bool:
        """Whether vectors of rows of these groups, or of all, are computed from the model's file without TensorFlow.

        Args:
            groups: Their names; all groups of the run by default.

        Returns:
            Whether the model's file is enough.

        """
        source = self.vector_source
        return isinstance(source, StoredModel) and source.has_lookups(source.groups if groups is None else groups)

    def reads_scores(self) -> bool:
        """Whether scores of rows are computed from the model's file without TensorFlow.

        Returns:
            Whether the model's file is enough.

        """
        source = self.vector_source
        return isinstance(source, StoredModel) and source.has_scores()

    def without_unused_columns(self, row: Mapping[str, object]) -> dict[str, object]:
        """A row without the columns that the training table had, and the run does not use.

        Args:
            row: Columns and values.

        Returns:
            The other columns; columns that only a mistake in writing makes unknown are among them.

        """
        unused = set(self.manifest.get(UNUSED_COLUMNS, ())) - set(self.schema.columns())
        return {column: value for column, value in row.items() if column not in unused}

    def model_for_scores(self) -> Feat2Vec | StoredModel:
        """What computes scores of rows: the model's file where it is enough, else the model.

        Returns:
            The reader of the model's file, or the model.

        """
        return self.vector_source if self.reads_scores() else self.model

    def model_for_rows(self, groups: Iterable[str] | None = None) -> Feat2Vec | StoredModel:
        """What computes vectors of rows: the model's file where it is enough for these groups, else the model.

        Args:
            groups: Their names; all groups of the run by default.

        Returns:
            The reader of the model's file, or the model.

        """
        return self.vector_source if self.reads_lookups(groups) else self.model

    @cached_property
    def _stored_model(self) -> StoredModel:
        pieces = self._check_model_file()
        names = [name for name in self.manifest.get(PARTS, ()) if name.startswith(f"{COARSE}/")]
        coarse_files = {name: pieces_of(self.manifest, name) for name in names}
        sealed_file = PARTS in self.manifest
        path = self.folder / MODEL
        return StoredModel(path, self.fitted, sealed=sealed_file, pieces=pieces, coarse_files=coarse_files)

    def _check_model_file(self) -> Pieces | None:
        """Raise if nothing shows that the model's file and the encoder beside it belong together.

        A run has the digests of all its files, and of a large file those of its pieces: they are returned, and compared
        when the pieces are read. A run that was written before there were digests has a copy of the encoder in the
        model's file instead, which `read_model` compares.
        """
        pieces = pieces_of(self.manifest, MODEL)
        if pieces is None:
            check_parts(self.folder, self.manifest, [MODEL])
        if PARTS not in self.manifest and not holds_encoder(self.folder / MODEL):
            raise UserError(f"{self.folder / 'manifest.json'}: has lost the digests of the run's files; {RESTORE}")
        return pieces

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


def _opened(cls: type[TrainedRun], folder: Path, identity: str | None = None) -> TrainedRun:
    """The run of a pickle."""
    run = cls(folder, *read_facts(folder))
    if identity is not None and _identity(run.manifest) != identity:
        raise UserError(
            f"{folder}: is another run than the one that was pickled; open it by feat2vec.load, or restore it"
        )
    return run


def _identity(manifest: JsonObject) -> str | None:
    """What tells a run from one that was trained in its place; None for a run that was written before digests."""
    parts = {name: digest for name, digest in manifest.get(PARTS, {}).items() if not _has_times(name)}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest() if parts else None


def _has_times(part: str) -> bool:
    """Whether a part differs whenever the same is trained again, as the digests of such parts do."""
    name = part.removeprefix(f"{FROM_SCRATCH}/")
    return name in WITH_TIMES or name != part == f"{FROM_SCRATCH}/manifest.json"


def _is_read_later(part: str) -> bool:
    return part in READ_LATER or part.startswith((f"{FROM_SCRATCH}/", f"{COARSE}/"))


def read_facts(folder: Path) -> tuple[JsonObject, JsonObject]:
    """What a run's manifest.json and metrics.json say; a folder that is no run is refused.

    Args:
        folder: The run's folder.

    Returns:
        The manifest and the metrics.

    Raises:
        UserError: The folder is no run, or one of its files is not as training wrote it.

    """
    refuse_stray_bytes(folder)
    if not (folder / "manifest.json").is_file():
        problem = "is no run (it has no manifest.json)" if folder.exists() else "does not exist"
        partial = partial_folder(folder)
        hint = ""
        if (hidden := hidden_instead(folder)) is not None:
            hint = f"; a process that replaced it was killed: rename {hidden}"
        elif partial.exists():
            resuming = "feat2vec train ... --resume" if NAMES_OPTIONS.get() else "feat2vec.train(..., resume=True)"
            hint = f"; {partial} was not finished, `{resuming}` goes on with it"
        maker = (
            "feat2vec train SCHEMA --data DATA --out RUN"
            if NAMES_OPTIONS.get()
            else "feat2vec.train(schema, data, out)"
        )
        raise UserError(f"{folder}: {problem}; `{maker}` makes one{hint}")
    try:
        manifest = read_json(folder / "manifest.json")
        if manifest["format"] != FORMAT:
            shown = repr(manifest["format"])[:20]
            raise UserError(f"{folder}: was written in format {shown}; this feat2vec reads {FORMAT}")
        check_manifest(folder, manifest)
        check_parts(folder, manifest, [name for name in manifest.get(PARTS, ()) if not _is_read_later(name)])
        metrics = read_json(folder / "metrics.json")
        for name, value in metrics.items():
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                raise ValueError(f"metrics.json: {name[:40]!r} is neither a number nor a text")
        if "seed" not in manifest:
            raise ValueError("manifest.json has no seed")
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder}: cannot be read as a run ({in_a_line(error)})") from None
    return manifest, metrics


def write_run(
    folder: Path,
    model: Feat2Vec,
    metrics: Mapping[str, object],
    history: Sequence[Mapping[str, object]],
    learnt_from: Mapping[str, object],
    files: Mapping[str, bytes] | None = None,
    from_scratch: Path | None = None,
) -> None:
    """Write a run into a folder that does not exist, or nothing if that fails.

    Args:
        folder: The folder.
        model: The trained model with its encoder, which is stored beside the model's file.
        metrics: What metrics.json says.
        history: The numbers of each epoch.
        learnt_from: Of what the run is learnt from, for the manifest: digests, and columns that it does not use.
        files: Further files by their names.
        from_scratch: A run that it keeps beside its model, and predicts the mean with.

    """
    if model.encoder is None:
        raise ValueError("the model has no encoder")
    versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    manifest = {"format": FORMAT, "versions": versions, **learnt_from, "seed": model.schema.training.seed}
    with new_folder(folder_place(folder, "run")) as new_run:
        model.encoder.write(new_run)
        write_model(model, new_run / MODEL)
        write_coarse_tables(model, new_run)
        _write_json(new_run / "metrics.json", metrics)
        with (new_run / "history.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(history[-1]) if history else ["epoch"])
            writer.writeheader()
            writer.writerows(history)
        for name, content in (files or {}).items():
            (new_run / name).write_bytes(content)
        if from_scratch is not None:
            shutil.copytree(from_scratch, new_run / FROM_SCRATCH, ignore=shutil.ignore_patterns(f"{MARK}*"))
        sealed_manifest = sealed(manifest, new_run)
        _write_json(new_run / "manifest.json", sealed_manifest)
        digests = sealed_manifest[PARTS]
        record_files(new_run, {name: new_run / name for name in digests}, digests)


def _write_json(path: Path, facts: Mapping[str, object]) -> None:
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
