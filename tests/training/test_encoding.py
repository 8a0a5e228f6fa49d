"""`encode` and the trainings that start from its folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.encode import encoder as encoder_module
from feat2vec.encode.encoder import fit
from feat2vec.encode.finished_steps import FinishedSteps
from feat2vec.encode.workspace import MEMORY
from feat2vec.errors import UserError
from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import dump_document
from feat2vec.shards import encoded_folder
from feat2vec.shards.encoded_folder import MANIFEST, EncodedTable
from feat2vec.table.table import open_table
from feat2vec.training import encoding
from feat2vec.training.encoding import DUCKDB, EncodingRequest, encode_into, rows_of_training
from feat2vec.writing import can_go_on, work_folder
from feat2vec.writing.folder_marks import MARK
from feat2vec.writing.training_folder import partial_folder
from tests.commands import PROGRAM
from tests.commands import feat2vec as feat2vec_here
from tests.encode.tables import differences, refuse
from tests.short_trainings import train
from tests.training.tables import LABELLED, SCHEMA, table

GROUPS = {name: SCHEMA["groups"][name] for name in ("who", "tags", "place")}
NOISE: dict[str, Any] = {
    **SCHEMA,
    "groups": GROUPS,
    "noise": {"negatives": 4, "joint": [["who", "place"]]},
    "training": {"validation": 0.2, "epochs": 1, "batch_size": 128},
}
LABELS: dict[str, Any] = {
    **LABELLED,
    "groups": GROUPS,
    "training": {**LABELLED["training"], "validation": 0.2, "epochs": 1},
}
WITH_TIMES = ("history.csv", "metrics.json")


def parts_of(run: feat2vec.Run) -> dict[str, str]:
    """The digests of all files but those with times."""
    return {name: digest for name, digest in run.manifest["parts"].items() if name not in WITH_TIMES}


@pytest.mark.parametrize("schema", [NOISE, LABELS], ids=["noise", "labels"])
def test_a_run_from_encoded_rows_has_the_bytes_of_one_from_the_table(tmp_path: Path, schema: dict[str, Any]) -> None:
    rows = table(230).append_column("more", [list(range(230))])
    folder = feat2vec.encode_table(schema, rows, tmp_path / "encoded")
    from_table = train(schema, rows, tmp_path / "one", quiet=True)
    from_folder = train(None, folder, tmp_path / "two", quiet=True)
    assert parts_of(from_folder) == parts_of(from_table)
    assert from_folder.manifest["data"] == from_table.manifest["data"]
    assert from_folder.manifest["unused_columns"] == from_table.manifest["unused_columns"]
    assert {"trained_rows.parquet", "held_out.json"} <= set(parts_of(from_folder))
    again = train(schema, rows, tmp_path / "two", quiet=True, resume=True)  # was finished already, by the same rows
    assert again.metrics == from_folder.metrics
    other = feat2vec.encode_table(schema, rows.slice(1), tmp_path / "other")
    refuse("was trained with another schema or other data", lambda: train(None, other, tmp_path / "two", resume=True))


def test_other_options_of_the_training_leave_out_what_the_folder_has_no_rows_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = feat2vec.encode_table(NOISE, table(230), tmp_path / "encoded")
    run = train(NOISE, folder, tmp_path / "run", settings=["training.seed=4"])
    assert "keeps rows for training.seed=0 and training.validation=0.2; received 4 and 0.2" in capfd.readouterr().err
    assert "held_out" in run.metrics
    timed = read_schema({**NOISE, "training": {**NOISE["training"], "time": "who"}})
    encoded = EncodedTable(tmp_path / "encoded")
    with pytest.raises(UserError, match=r"keeps rows for no training\.time; received training\.time=who"):
        encoded.refuse_other_sample(timed, splits=True)


def test_finetuning_encodes_by_its_own_run(tmp_path: Path) -> None:
    folder = feat2vec.encode_table(LABELS, table(60), tmp_path / "encoded")
    run = train(SCHEMA, table(60), tmp_path / "run", quiet=True, settings=["training.epochs=1"])
    refuse("give the table itself", lambda: feat2vec.finetune(run, folder, "good", tmp_path / "tuned"))
    refuse("give the table itself", lambda: run.embed(str(folder)))
    refuse("give the table itself", lambda: train(LABELS, table(60), tmp_path / "other", folder))
    refuse("target", lambda: feat2vec.train(None, folder, tmp_path / "other", target="good"))


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """A folder with a table and a schema."""
    pq.write_table(table(230), tmp_path / "people.parquet")
    (tmp_path / "people.yaml").write_text(dump_document(NOISE))
    return tmp_path


def test_the_command_says_what_it_wrote_and_what_is_next(films: Path) -> None:
    words = ("encode", "people.yaml", "--data", "people.parquet", "--out", "encoded")
    done = feat2vec_here(*words, folder=films)
    assert done.stdout == "encoded: 230 rows in 1 shard; next: feat2vec train people.yaml --data encoded\n"
    manifest = (films / "encoded" / MANIFEST).read_text()
    assert "exists already" in feat2vec_here(*words, folder=films, code=2).stderr
    feat2vec_here(*words, "--resume", "--quiet", folder=films)
    other = feat2vec_here(*words, "--resume", "--set", "groups.who.extractor.min_count=3", folder=films, code=2).stderr
    assert "groups.who.extractor.min_count: 1 before, 3 now" in other
    assert len(other.splitlines()) <= 5
    feat2vec_here(*words, "--force", folder=films)
    assert (films / "encoded" / MANIFEST).read_text() == manifest
    assert "is no encoded" in feat2vec_here(*words[:-1], "people.yaml", "--force", folder=films, code=2).stderr
    assert not partial_folder(films / "encoded").exists()
    missing = feat2vec_here("encode", "people.yaml", "--data", "none.parquet", "--out", "other", folder=films, code=2)
    assert "none.parquet: no such file" in missing.stderr
    assert not list(films.glob("other*"))


def test_a_mistake_in_the_table_leaves_nothing(tmp_path: Path) -> None:
    rows = table(50).drop_columns(["good"]).append_column("good", [[3] * 50])
    refuse("good", lambda: encode_into(tmp_path / "encoded", EncodingRequest(read_schema(LABELS)), rows))
    assert not list(tmp_path.iterdir())


# --- resuming -------------------------------------------------------------------------------------------------------


class KilledError(BaseException):
    """A process that ends at once: nothing is tidied up."""


def interrupted(name: str, calls: int) -> Any:
    """Let the function that writes a part fail, when it has been called so often before."""
    function, done = getattr(encoded_folder, name), iter(range(calls))

    def failing(*arguments: Any) -> Any:
        if next(done, None) is None:
            raise KilledError
        return function(*arguments)

    return mock.patch.object(encoded_folder, name, failing)


@pytest.fixture
def request_of_many_shards() -> EncodingRequest:
    return EncodingRequest(read_schema(NOISE), shard_bytes=600)


@pytest.mark.parametrize("shards", [0, 1, 4])
def test_an_encoding_that_was_killed_goes_on(
    tmp_path: Path, request_of_many_shards: EncodingRequest, shards: int
) -> None:
    request, rows = request_of_many_shards, table(230)
    encode_into(tmp_path / "whole", request, rows)
    with interrupted("write_shard", shards), pytest.raises(KilledError):
        encode_into(tmp_path / "killed", request, rows)
    partial = partial_folder(tmp_path / "killed")
    assert not (tmp_path / "killed").exists()
    refuse("holds an encoding that was not finished; add", lambda: encode_into(tmp_path / "killed", request, rows))
    other = replace(request, resume=True, schema=read_schema(SCHEMA))
    refuse("was begun with other options of the schema", lambda: encode_into(tmp_path / "killed", other, rows))
    written = {path: path.stat().st_mtime_ns for path in partial.rglob("rows-*.bin")}
    assert len(written) == shards
    engine = replace(DUCKDB, fit=mock.Mock(side_effect=AssertionError("fitted again")))
    encode_into(tmp_path / "killed", replace(request, resume=True, engine=engine), rows)
    assert (tmp_path / "killed" / MANIFEST).read_bytes() == (tmp_path / "whole" / MANIFEST).read_bytes()
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "killed" / "_shards").iterdir()}
    assert all(kept[path.name] == changed for path, changed in written.items())
    assert not partial.exists()


def test_force_begins_anew(tmp_path: Path, request_of_many_shards: EncodingRequest) -> None:
    with interrupted("write_shard", 2), pytest.raises(KilledError):
        encode_into(tmp_path / "killed", request_of_many_shards, table(230))
    encode_into(tmp_path / "killed", replace(request_of_many_shards, force=True), table(60))
    assert EncodedTable(tmp_path / "killed").manifest["rows"] == 60


KILLS_ITSELF = """
import os, signal, sys
from feat2vec import cli
from feat2vec.encode import encoder
from feat2vec.encode.finished_steps import FinishedSteps
name, calls = sys.argv[1], iter(range(int(sys.argv[2])))
owner = encoder if name == "write_rows" else FinishedSteps
method = getattr(owner, name)
def kill(*arguments):
    if next(calls, None) is None:
        if name == "record_stage":
            arguments[0].wait()
        os.kill(os.getpid(), signal.SIGKILL)
    return method(*arguments)
setattr(owner, name, kill)
sys.argv = ["feat2vec", *sys.argv[3:]]
cli.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "calls", "left"),
    [
        ("record_stage", 1, {"stage000000.json"}),
        ("record_group", 2, {"stages.json"}),
        ("write_rows", 0, {"group0.json", "group1.json", "group2.json"}),
    ],
)
def test_a_fit_of_vocabularies_that_sigkill_ended_goes_on(films: Path, name: str, calls: int, left: set[str]) -> None:
    (films / "parts").mkdir()
    for part in range(3):
        pq.write_table(table(230).slice(part * 80, 80), films / "parts" / f"{part}.parquet")
    words = ["encode", "people.yaml", "--data", "parts", "--quiet", "--out"]
    feat2vec_here(*words, "whole", folder=films)
    stage = "import feat2vec.encode.workspace as w; w.DEFAULT_SIZES.__dict__['stage_bytes'] = 1\n"
    command = [sys.executable, "-c", stage + KILLS_ITSELF, name, str(calls), *words, "killed"]
    done = subprocess.run(command, cwd=films, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    steps = {path.name for path in (partial_folder(films / "killed") / "work" / "stages").glob("*.json")}
    assert left <= steps
    feat2vec_here(*words, "killed", "--resume", folder=films)
    assert not partial_folder(films / "killed").exists()
    for file in (films / "whole").rglob("*"):
        if file.is_file() and file.name != MARK:
            assert (films / "killed" / file.relative_to(films / "whole")).read_bytes() == file.read_bytes(), file


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the encoding of trainings on small files, too."""
    monkeypatch.setattr(encoding, "LEAST_KEPT_BYTES", 1)


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("place", ["stage", "group", "all"])
def test_a_training_goes_on_with_what_is_encoded(films: Path, place: str) -> None:
    partial, schema, rows = films / "run.partial", read_schema(NOISE), open_table(films / "people.parquet")
    whole = fit(schema, rows, films / "whole")
    owner, method = {
        "stage": (FinishedSteps, "note_all_read"),
        "group": (FinishedSteps, "record_group"),
        "all": (encoding, "remove_steps"),
    }[place]
    stop = mock.patch.object(owner, method, side_effect=KilledError)
    with pytest.raises(KilledError), work_folder(films / "run"), stop:
        rows_of_training(partial, schema, rows, MEMORY)
    assert partial.exists()
    again = mock.patch.object(encoder_module, "read_stages", side_effect=AssertionError("it was read again"))
    with work_folder(films / "run", resume=True):
        with nullcontext() if place == "stage" else again:
            goes_on = rows_of_training(partial, schema, rows, MEMORY)
        assert not differences(goes_on, whole)
        assert {path.name for path in (partial / "encoding").iterdir()} == {"fitted", "plan.json"}
        # Of other options, or of rows that were changed, nothing is kept.
        other = read_schema({**NOISE, "groups": {"who": GROUPS["who"], "place": GROUPS["place"]}, "noise": {}})
        assert list(rows_of_training(partial, other, rows, MEMORY).values) == ["who", "place"]
        pq.write_table(table(90), films / "people.parquet")
        assert len(rows_of_training(partial, other, open_table(films / "people.parquet"), MEMORY)) == 90
    assert not partial.exists()


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(("error", "is_kept"), [(KeyboardInterrupt, True), (UserError, False)])
def test_what_is_encoded_is_kept_after_an_interruption(films: Path, error: type[BaseException], is_kept: bool) -> None:
    partial = films / "run.partial"

    def encode_and_stop() -> None:
        with work_folder(films / "run"):
            rows_of_training(partial, read_schema(NOISE), open_table(films / "people.parquet"), MEMORY)
            raise error("stop")

    with pytest.raises(error):
        encode_and_stop()
    assert partial.exists() is is_kept
    assert can_go_on(partial) is is_kept
    with work_folder(films / "run"):  # without --resume it begins anew
        assert not (partial / "encoding").exists()
    assert not partial.exists()


@pytest.mark.slow
def test_a_training_that_sigkill_ended_while_it_encoded_gives_the_run_of_one_that_was_not(films: Path) -> None:
    words = ["train", "people.yaml", "--data", "people.parquet", "--quiet", "--out"]
    feat2vec_here(*words, "whole", folder=films)
    small = "import feat2vec.training.encoding as e; e.LEAST_KEPT_BYTES = 1\n"
    command = [sys.executable, "-c", small + KILLS_ITSELF, "record_group", "2", *words, "killed"]
    assert subprocess.run(command, cwd=films, check=False, timeout=120).returncode == -signal.SIGKILL
    finished = list((films / "killed.partial" / "encoding" / "stages").glob("group*.json"))
    assert 1 <= len(finished) <= 2  # two groups are fitted at a time: the second one may not be on the disk
    resumed = [sys.executable, "-c", small + KILLS_ITSELF, "record_group", "2", *words, "killed", "--resume"]
    subprocess.run(resumed, cwd=films, check=True, timeout=120)  # it has two groups left to record
    assert parts_of(feat2vec.load(films / "killed")) == parts_of(feat2vec.load(films / "whole"))


@pytest.mark.slow
def test_sigkill_at_any_moment_loses_nothing(films: Path) -> None:
    words = ["encode", "people.yaml", "--data", "people.parquet", "--out", "encoded", "--quiet"]
    feat2vec_here(*words[:-2], "whole", "--quiet", folder=films)
    for seconds in (0.5, 1.0, 1.5, 2.0):
        child = subprocess.Popen([*PROGRAM, *words, "--resume"], cwd=films)
        time.sleep(seconds)
        os.kill(child.pid, signal.SIGKILL)
        child.wait(timeout=30)
    subprocess.run([*PROGRAM, *words, "--resume"], cwd=films, check=True, timeout=120)
    whole, resumed = ((films / name / MANIFEST).read_text() for name in ("whole", "encoded"))
    assert json.loads(resumed) == json.loads(whole)
