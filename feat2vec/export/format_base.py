"""What an export format is. A format is a class, registered by `@export_format`, in a file of its own in `formats/`.

The command line reads the list of formats when it starts, so a format's file imports numpy, pyarrow, TensorFlow and the
tool that it is for only inside its methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from feat2vec.export.exported_group import ExportedGroup
    from feat2vec.training.run_folder import TrainedRun
    from feat2vec.writing.files import JsonObject

BYTES_PER_BLOCK = 1 << 24  # of vectors that are written at a time

GroupFacts: TypeAlias = "JsonObject"  # what the manifest says of a group


@dataclass(frozen=True)
class ExportRequest:
    """What is exported: groups of a run, at a level (None is the default of the model), of length 1 or as they are."""

    run: TrainedRun
    groups: Sequence[str]
    level: int | None
    unit_length: bool


class ExportFormat(ABC):
    """A way to write vectors, for one kind of reader.

    Attributes:
        name: What users call the format.
        summary: What it is, in a line of `feat2vec export --help`.
        always_unit_length: Whether vectors have length 1 although nobody asks for it.
        notes: What readers of the files must know; these entries go into the manifest.
        takes_rows: Whether it takes the columns of rows, so that groups with one table of vectors are all in it.

    """

    name: ClassVar[str]
    summary: ClassVar[str]
    always_unit_length: ClassVar[bool] = False
    notes: ClassVar[Mapping[str, str]] = {}
    takes_rows: ClassVar[bool] = False

    def check(self, groups: Sequence[str], dim: int) -> None:
        """Raise a `UserError` if groups of these names, or vectors of `dim` dimensions, cannot be written."""
        del groups, dim

    @abstractmethod
    def write(self, folder: Path, request: ExportRequest) -> dict[str, GroupFacts]:
        """Write files into an empty folder; return what the manifest says of each group."""


@dataclass(frozen=True)
class GroupFiles(ExportFormat):
    """The base of formats that write each group into files of its own."""

    bytes_per_block: int = BYTES_PER_BLOCK

    @abstractmethod
    def write_group(self, folder: Path, group: ExportedGroup) -> list[str]:
        """Write the files of a group; return their names."""

    def finish(self, folder: Path, groups: Mapping[str, GroupFacts]) -> None:
        """Write what is about all groups, after their files."""

    def write(self, folder: Path, request: ExportRequest) -> dict[str, GroupFacts]:
        from feat2vec.export.exported_group import exported_group
        from feat2vec.space.groups_and_levels import others_with_table

        facts_of_groups: dict[str, GroupFacts] = {}
        for name in request.groups:
            group = exported_group(request.run, name, request.level, unit_length=request.unit_length)
            files = self.write_group(folder, group)
            has_keys = request.run.schema.groups[name].extractor.encoding == "items"
            facts_of_groups[name] = {"rows": len(group), "of": "keys" if has_keys else "values", "files": files}
            if groups_with_table := others_with_table(request.run.schema, name):
                facts_of_groups[name]["also_of"] = groups_with_table
        self.finish(folder, facts_of_groups)
        return facts_of_groups


FormatClass = TypeVar("FormatClass", bound=type[ExportFormat])
FORMATS: dict[str, ExportFormat] = {}  # every registered format, as it is used by default


def export_format(format_class: FormatClass) -> FormatClass:
    """Register a class of formats under its `name`."""
    if format_class.name in FORMATS:
        raise ValueError(f"the export format {format_class.name!r} is registered already. Received: {format_class}")
    FORMATS[format_class.name] = format_class()
    return format_class
