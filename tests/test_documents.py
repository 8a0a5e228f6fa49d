"""Every command of the README and of the walk through runs, in their order, on less training and fewer rows."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from feat2vec.model.extractors import LAYERS
from feat2vec.run import train
from feat2vec.schema.extractor_options import EXTRACTORS, HOLDERS
from tests.commands import feat2vec

pytestmark = pytest.mark.usefixtures("trainings_without_graphs")

ROOT = Path(__file__).parents[1]
ARTWORKS = ROOT / "feat2vec" / "table" / "sources" / "datasets" / "artworks.csv"
TRAINING = ("train", "run", "finetune")


def commands(document: str) -> list[str]:
    """Lines of code blocks, indented or fenced, that begin with feat2vec."""
    text = (ROOT / document).read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(r"(?m)^(?:    |\$ )(feat2vec .*?)(?:  +#.*)?$", text)
    return [command for command in found if command != "feat2vec COMMAND --help"]


def python_blocks(document: str) -> list[str]:
    return re.findall(r"(?ms)^```python\n(.*?)^```", (ROOT / document).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table like the films'."""
    from tests.recipes.test_running import films

    path = tmp_path_factory.mktemp("films") / "films.parquet"
    pq.write_table(films(), path)
    return path


def some_rows(artworks: pa.Table) -> pa.Table:
    """A few hundred, among them those of the artist whom the documents name."""
    is_early = pa.array(np.arange(len(artworks)) < 300)
    return artworks.filter(pc.or_kleene(pc.equal(artworks["artist"], "Hockney, David"), is_early))


@pytest.mark.parametrize("document", ["README.md", pytest.param("recipes/README.md", marks=pytest.mark.slow)])
def test_every_command_runs(document: str, films: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    shutil.copytree(ROOT / "schemas", tmp_path / "schemas")
    shutil.copy(ARTWORKS, tmp_path)
    shutil.copy(films, tmp_path)
    (tmp_path / "new.csv").write_text('artist,title,year\nNobody Yet,Untitled,2001\n"Hirst, Damien",Spots,\n')
    found = commands(document)
    assert len(found) > 7
    for command in found:
        words = shlex.split(command)[1:]
        if words[0] in TRAINING:
            words += ["--set", "training.epochs=1", "--set", "training.batch_size=256"]
        if words[0] == "run":
            words += ["--rows", "240"]
        if words[0] == "tune":
            words += ["--rows", "240", "--set", "training.epochs=1"]
            words[words.index("--trials") + 1] = "1"
        if words[0] == "explore" and "--html" not in words:
            continue  # a server; tests/pages/explore has it
        feat2vec(*words, folder=tmp_path)
        if words[0] == "split":
            for part in Path(tmp_path, words[words.index("--out") + 1]).glob("*.parquet"):
                pq.write_table(some_rows(pq.read_table(part)), part)


def test_every_block_of_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the run that the commands before it have made."""
    found = python_blocks("README.md")
    assert found
    monkeypatch.chdir(tmp_path)
    pq.write_table(some_rows(pyarrow.csv.read_csv(ARTWORKS)), tmp_path / "artworks.parquet")
    feat2vec("init", "artworks.parquet", "-o", "artworks.yaml", folder=tmp_path)
    short = ["--set", "training.epochs=1", "--set", "training.batch_size=256", "--quiet"]
    feat2vec("train", "artworks.yaml", "--data", "artworks.parquet", "--out", "runs/tate", *short, folder=tmp_path)
    (tmp_path / "new.csv").write_text("artist,title,year\nNobody Yet,Untitled,2001\n")
    scope: dict[str, object] = {}
    for block in found:
        exec(re.sub(r"epochs=\d+", "epochs=1", block).replace("dataset:artworks", "artworks.parquet"), scope)


def test_scripts_that_the_readme_names_are_there_and_speak_bash() -> None:
    named = set(re.findall(r"tools/(\w+\.(?:sh|py))", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert {"demo.sh", "test.sh"} <= named
    for name in named:
        path = ROOT / "tools" / name
        assert path.exists(), name
        if path.suffix == ".sh":
            subprocess.run(["bash", "-n", str(path)], check=True)


def test_files_that_the_walk_through_reads_are_there() -> None:
    """They are written as `$FEAT2VEC/...`, where `tools/document.py` finds them."""
    named = re.findall(r"\$FEAT2VEC/([\w./-]+)", (ROOT / "recipes" / "README.md").read_text(encoding="utf-8"))
    assert named
    for name in named:
        assert (ROOT / name).is_file(), name


@pytest.mark.slow
def test_the_walk_through_prints_what_it_says() -> None:
    check = [sys.executable, "tools/document.py", "recipes/README.md", "--check"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_worked_example_of_an_extractor_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours a day apart have one vector."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.S | re.M)
    (tmp_path / "periodic.py").write_text(code, encoding="utf-8")
    schema = {
        "version": 1,
        "plugins": ["periodic"],
        "groups": {
            "hour": {"column": "hour", "extractor": {"type": "periodic", "period": 24}},
            "who": {"column": "who"},
        },
        "training": {"validation": 0, "epochs": 1},
    }
    monkeypatch.syspath_prepend(str(tmp_path))
    with mock.patch.dict(EXTRACTORS), mock.patch.dict(LAYERS):
        rows = pa.table({"hour": [float(i % 48) for i in range(60)], "who": [f"w{i % 5}" for i in range(60)]})
        run = train(schema, rows, tmp_path / "run", quiet=True)
        vectors = run.embed(pa.table({"hour": [1.0, 25.0, 13.0]}), by_group=True)["hour"]
    for holder in HOLDERS:
        holder.model_rebuild(force=True)
    sys.modules.pop("periodic", None)
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-5)
    np.testing.assert_allclose(vectors[0], -vectors[2], atol=1e-5)
    assert np.abs(vectors[0]).max() > 0
