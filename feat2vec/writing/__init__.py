"""Writes results: files and folders that appear whole, and the only code that replaces or removes any.

In: the place that a user names. Out: a checked place, and a path to write to. Only what feat2vec wrote is replaced: a
folder by its mark (`folder_marks.py`), a file by its signature (`signatures.py`). No link is followed, and nothing is
written outside of the place. Open `output_paths.py` first.
"""

from feat2vec.writing.files import check_file_in, file_in, new_file, replace_durably, replacing_file, write_text
from feat2vec.writing.folder_marks import (
    MARK,
    Mark,
    new_id,
    read_mark,
    record,
    record_all,
    record_files,
    why_unmarked,
    write_mark,
)
from feat2vec.writing.folders import (
    FolderPlace,
    discard_temporary,
    finish_replacement,
    folder_place,
    hidden_instead,
    mark_folder,
    new_folder,
    publish_folder,
    refuse_foreign,
    remove_folder,
    remove_inside,
    remove_leftovers,
    scratch_folder,
    temporary_folder,
)
from feat2vec.writing.locks import LOCK_FILES, locked
from feat2vec.writing.output_paths import (
    file_place,
    hidden_name,
    is_component,
    refuse_bad_folder,
    refuse_inputs_inside,
    refuse_links_inside,
)
from feat2vec.writing.signatures import SIGNATURE, is_signed, signed_parquet
from feat2vec.writing.training_folder import (
    CHECKPOINT,
    LEFT_OUT,
    REFIT_CHECKPOINT,
    SCRATCH,
    note_finished,
    partial_folder,
    refuse_backslash,
    run_place,
    work_folder,
)

__all__ = [
    "CHECKPOINT",
    "LEFT_OUT",
    "LOCK_FILES",
    "MARK",
    "REFIT_CHECKPOINT",
    "SCRATCH",
    "SIGNATURE",
    "FolderPlace",
    "Mark",
    "check_file_in",
    "discard_temporary",
    "file_in",
    "file_place",
    "finish_replacement",
    "folder_place",
    "hidden_instead",
    "hidden_name",
    "is_component",
    "is_signed",
    "locked",
    "mark_folder",
    "new_file",
    "new_folder",
    "new_id",
    "note_finished",
    "partial_folder",
    "publish_folder",
    "read_mark",
    "record",
    "record_all",
    "record_files",
    "refuse_backslash",
    "refuse_bad_folder",
    "refuse_foreign",
    "refuse_inputs_inside",
    "refuse_links_inside",
    "remove_folder",
    "remove_inside",
    "remove_leftovers",
    "replace_durably",
    "replacing_file",
    "run_place",
    "scratch_folder",
    "signed_parquet",
    "temporary_folder",
    "why_unmarked",
    "work_folder",
    "write_mark",
    "write_text",
]
