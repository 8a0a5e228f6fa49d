"""`manifest.json`: what the files of an export are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from feat2vec.errors import ROOM
from feat2vec.export.format_base import ExportFormat, ExportRequest, GroupFacts
from feat2vec.space.groups_and_levels import groups_once, level_and_dim, selected_groups
from feat2vec.space.run_vectors import vectors_of_group
from feat2vec.training.run_folder import TrainedRun
from feat2vec.writing import folder_place, new_folder
from feat2vec.writing.files import JsonObject

MANIFEST = "manifest.json"


def manifest_facts(
    export_format: ExportFormat, groups: Mapping[str, GroupFacts], *, level: int, dim: int, unit_length: bool
) -> JsonObject:
    """What the manifest says: of all files, then of each group."""
    return {
        "format": export_format.name,
        "feat2vec": version("feat2vec"),
        "metric": "cosine",
        "normalised": unit_length,
        "dimension": dim,
        "level": level,
        **export_format.notes,
        "groups": dict(groups),
    }


def write_manifest(folder: Path, facts: Mapping[str, object]) -> None:
    """Write the manifest into the folder of an export."""
    text = json.dumps(facts, indent=1, ensure_ascii=False)
    # names of files may hold bytes that are no UTF-8
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def export(
    run: TrainedRun,
    export_format: ExportFormat,
    out: str | Path,
    groups: Sequence[str] | None = None,
    *,
    level: int | None = None,
    normalise: bool = False,
    force: bool = False,
) -> JsonObject:
    """Write vectors of a run in a format.

    Args:
        run: The run.
        export_format: A format, such as `format_named("parquet")`.
        out: The folder to make.
        groups: The groups to write. None is all of them, where several have one table of vectors the one that owns it.
        level: The level of a model with ranks. By default 1, or the whole space with `level_sharing: truncate`.
        normalise: Whether vectors get length 1.
        force: Whether an earlier export at `out` is replaced.

    Returns:
        What the manifest says.

    Raises:
        UserError: A group or a level does not exist, the format cannot hold the vectors, or `out` is taken.

    """
    all_names = list(run.fitted.codecs) if groups or export_format.takes_rows else groups_once(run.schema)
    names, (space, dim) = selected_groups(all_names, groups), level_and_dim(run.schema.model, level)
    export_format.check(names, dim)
    unit_length = normalise or export_format.always_unit_length
    request = ExportRequest(run, names, level, unit_length)
    with new_folder(folder_place(out, "export", force=force)) as folder, _errors_naming(Path(out)):
        group_facts = export_format.write(folder, request)
        for name, without_vector in _without_vector(request):
            group_facts[name]["without_vector"] = without_vector
        facts = manifest_facts(export_format, group_facts, level=space, dim=dim, unit_length=unit_length)
        write_manifest(folder, facts)
    return facts


def _without_vector(request: ExportRequest) -> Iterator[tuple[str, int]]:
    """The groups some of whose keys have zeros in place of a vector, and how many."""
    schema = request.run.schema
    if schema.model.activation is None and not schema.training.optimizer.makes_zeros:
        return
    for name in request.groups:
        if schema.groups[name].extractor.encoding == "items":
            without_vector = vectors_of_group(request.run, name, request.level).without_vector
            if without_vector.any():
                yield name, int(without_vector.sum())


@contextmanager
def _errors_naming(out: Path) -> Iterator[None]:
    """Raise an error of the system, such as a full disk, with the export's own name instead of a temporary one."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).removesuffix(f"; {ROOM}")
        raise OSError(error.errno, f"{reason}; {ROOM}", str(out)) from error
