"""`model.keras`: a model in the file format of Keras, with tables that are written and read in pieces.

The file is what `model.save` writes, without the optimizer's slots and the encoder, and what `keras.models.load_model`
loads. Keras itself would hold all weights three times to write or read it. A model that is read here is built from the
run's own schema, not from what the file says of itself; see `weights_file`.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np

from feat2vec.encode.encoder import Encoder
from feat2vec.errors import RESTORE, UserError
from feat2vec.model.coarse_table import coarse_name, write_coarse
from feat2vec.model.saved_layers import group_at, saved_layers
from feat2vec.model.sizes import least_weights
from feat2vec.model.stored_table import stays_in_file
from feat2vec.model.weights_file import WEIGHTS, ModelFile, StoredArrays, damage_as_user_error, extractor_groups
from feat2vec.writing import scratch_folder
from feat2vec.writing.digests import Pieces
from feat2vec.writing.signatures import BLOCK_BYTES

if TYPE_CHECKING:
    from feat2vec.model.extractors import Extractor
    from feat2vec.model.keras_model import Feat2Vec

METADATA, NO_DATE = "metadata.json", "1980-01-01@00:00:00"
SCRATCH = ".model"  # the folder, beside the file, in which Keras writes what is not a table
BESIDE_GROUPS = "what stands beside the groups"  # in messages: the weights of bias, classes and head


# --- writing --------------------------------------------------------------------------------------------------------


def write_model(model: Feat2Vec, path: Path) -> None:
    """Write a model that `keras.models.load_model` loads, without its optimizer's slots and without its encoder.

    The file is a part of a run, and the run's folder holds the encoder: `model.encoder` is None after
    `keras.models.load_model`. `Encoder.load(folder)` reads it.
    """
    with scratch_folder(path.parent, SCRATCH) as folder:
        _save_without_tables(model, folder)
        _write_tables(model, folder / WEIGHTS)
        _remove_date(folder / METADATA)
        _pack(folder, path)


def _save_without_tables(model: Feat2Vec, folder: Path) -> None:
    """Let Keras write all but the tables and the optimizer's slots."""
    from feat2vec.model.large_variables import tables_aside

    optimizer = getattr(model, "optimizer", None)  # Keras gives a model none before `compile`
    try:
        if optimizer is not None:
            optimizer.saves_slots = False
        with tables_aside():
            model.save(folder, zipped=False)
    finally:
        if optimizer is not None:
            del optimizer.saves_slots


def _write_tables(model: Feat2Vec, path: Path) -> None:
    """Write the tables in place of the empty ones that Keras wrote."""
    from feat2vec.model.large_variables import pieces

    with h5py.File(path, "r+") as file:
        groups = dict(extractor_groups(file))
        for extractor in model.distinct_extractors():
            for key, variable in extractor.saved_tables().items():
                group = groups[extractor.name]
                del group[key]
                dataset = group.create_dataset(key, tuple(variable.shape), np.float32)
                for rows, values in pieces(variable):
                    if values.size:
                        dataset[rows] = values


def write_coarse_tables(model: Feat2Vec, folder: Path) -> None:
    """Write the coarse copies of large tables, by which `similar` reads a quarter of a table instead of all of it.

    Args:
        model: The model, each of whose lookups has one table.
        folder: The run's folder.

    """
    from feat2vec.model.large_variables import pieces

    if len(model.dims) != 1:
        return
    for owner, extractor in zip(model.schema.owners, model.distinct_extractors(), strict=True):
        table = extractor.saved_tables().get("0")
        is_lookup = model.schema.groups[owner].extractor.type == "lookup"
        if is_lookup and table is not None and stays_in_file(int(np.prod(table.shape))):
            write_coarse((values for _, values in pieces(table)), folder / coarse_name(owner))


def _remove_date(path: Path) -> None:
    """Replace the time of saving by a fixed one, so that equal models have equal bytes."""
    metadata = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**metadata, "date_saved": NO_DATE}), encoding="utf-8")


def _pack(folder: Path, path: Path) -> None:
    """Write the files of a folder as a zip archive, not compressed, as Keras does."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(file for file in folder.rglob("*") if file.is_file()):
            info = zipfile.ZipInfo(file.relative_to(folder).as_posix())  # dated 1980
            with file.open("rb") as source, archive.open(info, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, BLOCK_BYTES)


# --- reading --------------------------------------------------------------------------------------------------------


def read_model(
    path: Path,
    encoder: Encoder,
    *,
    sealed: bool = False,
    pieces: Pieces | None = None,
    groups: Sequence[str] | None = None,
) -> Feat2Vec:
    """Build the encoder's model, not compiled, and read its weights from a file.

    Args:
        path: A file that `write_model` or `Feat2Vec.save` wrote.
        encoder: That of the run. Its schema must be the one in the file.
        sealed: Whether the file's digest has been checked. If not, the archive's checksums are checked.
        pieces: The digests of its pieces, each of which is compared when it is read; None if nothing is left to check.
        groups: The groups whose tables are read, by default all. Other tables are left uninitialized.

    Returns:
        A model with the weights of the file.

    Raises:
        UserError: If the file is damaged, belongs to another run, or holds weights that are not finite.

    """
    import tensorflow as tf

    from feat2vec.model.keras_model import Feat2Vec
    from feat2vec.model.large_variables import tables_aside
    from feat2vec.model.vector_model import shapes_of

    schema = encoder.schema
    with damage_as_user_error(path), ModelFile(path, schema, sealed=sealed, pieces=pieces) as file, tables_aside():
        _refuse_too_few(path, file.size, encoder)
        classes = 0 if encoder.classes is None else len(encoder.classes.keys)
        model = Feat2Vec(schema.resolved(), shapes_of(encoder), classes)
        model.encoder = encoder
        model.build()
        try:
            _load_weights(path, model, file.weights, model.groups if groups is None else groups)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(str(error)) from None
    return model


def _refuse_too_few(path: Path, size: int, encoder: Encoder) -> None:
    """Raise, before any weight is made, if the file cannot hold as many as schema and vocabularies ask for."""
    needed = least_weights(encoder)
    if size < needed:
        raise UserError(
            f"{path}: holds {size:,} numbers, and the schema and vocabularies beside it ask for {needed:,}; {RESTORE}"
        )


def _load_weights(path: Path, model: Feat2Vec, weights: h5py.Group, groups: Sequence[str]) -> None:
    """Give each layer its arrays, and the extractors of these groups their tables.

    A layer that lacks an array raises, as Keras has it.
    """
    group_names = dict(zip(map(id, model.distinct_extractors()), model.schema.owners, strict=True))
    owners = {key: f"the group {name!r}" for key, name in group_names.items()}
    read_groups = {model.schema.owner(name) for name in groups}
    for key, saved in saved_layers(model, BESIDE_GROUPS, owners).items():
        arrays_of_layer = None
        for layer_path in saved.paths:
            arrays_of_layer = group_at(weights, f"{layer_path}/vars".removeprefix("/")) or arrays_of_layer
        arrays = StoredArrays(path, saved.owner, arrays_of_layer or {})
        saved.layer.load_own_variables(arrays)
        if group_names.get(key) in read_groups:
            _load_tables(saved.layer, arrays)


def _load_tables(extractor: Extractor, arrays: StoredArrays) -> None:
    """Read an extractor's tables into memory that becomes the variables'."""
    from feat2vec.model.large_variables import empty
    from feat2vec.model.optimizers import resource_of

    for key, variable in extractor.saved_tables().items():
        tensor, array = empty(variable.shape, np.float32)
        arrays.table(key, tuple(variable.shape), array)
        resource_of(variable).assign(tensor)
