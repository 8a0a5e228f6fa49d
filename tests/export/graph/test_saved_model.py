"""A saved model, loaded where feat2vec cannot be imported, against `run.embed`."""

from __future__ import annotations

import json
import subprocess
import sys
import weakref
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

import feat2vec
from feat2vec.errors import UserError
from feat2vec.export.export import export
from feat2vec.export.formats.saved_model import SavedModel
from feat2vec.export.graph.saved_model import SIGNATURE, distinct_names
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.stored_model import StoredModel
from feat2vec.training.run_folder import write_run
from tests.short_trainings import train

PARTS = ["year", "quarter", "month", "day", "weekday", "hour"]
TEXTS = [
    "Straße",
    "STRASSE",
    "été",
    "e\u0301te\u0301",
    "Ὀδυσσεύς",
    "한글",
    "=\u0338",
    "don't",
    "İstanbul",
    "x_y",
    "9½",
    "—",
]
GROUPS: dict[str, Any] = {
    "who": {"column": "who", "extractor": {"type": "lookup", "gain": 2.0, "min_count": 2}},
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True, "max_items": 3, "combiner": "mean"}},
    "rated": {
        "column": "tags",
        "extractor": {"type": "lookup", "multi": True, "weights": "stars", "combiner": "sqrtn"},
    },
    "halves": {"column": "halves", "extractor": {"type": "lookup", "multi": True}},
    "genre": {"column": "genre", "extractor": {"type": "lookup", "split": ",", "max_share": 0.6, "max_items": 3}},
    "words": {"column": "title", "extractor": {"type": "lookup", "split": "words", "max_items": 4}},
    "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 4, "widths": [2]}},
    "order": {"column": "title", "extractor": {"type": "text_attention", "token_dim": 4, "heads": 2, "units": 3}},
    "year": {"column": "year"},
    "long": {"column": "long", "extractor": "lookup"},
    "flag": {"column": "flag"},
    "day": {"column": "day", "extractor": "lookup"},
    "bin": {"column": "score", "extractor": {"type": "lookup", "bins": 4}},
    "when/parts": {"column": "when", "extractor": {"type": "lookup", "parts": PARTS}},
    "when": {"column": "when", "extractor": "numeric"},
    "row": {"column": "score", "extractor": {"type": "numeric", "scale": "quantile", "hidden": [4]}},
    "a & b": {"columns": ["score", "votes"], "extractor": {"type": "numeric", "scale": "log1p"}},
    "image": {"column": "image", "extractor": "vector"},
}
FEW = ["who", "tags", "title", "row"]
MODELS: dict[str, dict[str, Any]] = {
    "fm": {"dim": 6},
    "rafm": {"ranks": [3, 6, 8], "bias": True},
    "truncate": {"ranks": [3, 6, 8], "level_sharing": "truncate"},
}
WITHOUT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "feat2vec":
            raise ImportError("feat2vec is blocked")

sys.meta_path.insert(0, Blocker())
import json, numpy as np, tensorflow as tf

folder, given, out = sys.argv[1:]
inputs = {name: tf.constant(values, dtype) for name, (values, dtype) in json.load(open(given)).items()}
model = tf.saved_model.load(folder)
found = model.signatures["serving_default"](**inputs)
assert not any(name.split(".")[0] == "feat2vec" for name in sys.modules)
np.savez(out, **{name: vectors.numpy() for name, vectors in found.items()})
"""


def table(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)

    def with_missing(make: Any, share: float = 0.12) -> list[Any]:
        return [None if rng.random() < share else make() for _ in range(rows)]

    tags = with_missing(
        lambda: [None if rng.random() < 0.1 else f"t{x % 20}" for x in rng.zipf(1.3, rng.integers(0, 6))]
    )
    genres = ["drama", "Sci Fi ", " comedy\u3000", "noir", ""]
    return pa.table(
        {
            "who": with_missing(lambda: f"W {rng.zipf(1.3) % 40}"),
            "tags": tags,
            "stars": [None if bag is None else rng.integers(1, 9, len(bag)) / 2 for bag in tags],
            "halves": with_missing(lambda: list(rng.integers(-2, 5, rng.integers(0, 4)) / 2)),
            "genre": with_missing(lambda: ", ".join(rng.choice(genres, rng.integers(1, 5)))),
            "title": with_missing(lambda: " ".join(rng.choice(TEXTS, rng.integers(0, 8)))),
            "year": with_missing(lambda: int(1990 + rng.integers(0, 20))),
            "long": with_missing(lambda: 2**60 + int(rng.integers(0, 5))),
            "flag": with_missing(lambda: bool(rng.integers(0, 2))),
            "day": with_missing(lambda: date(2020, 1, 1) + timedelta(days=int(rng.integers(0, 20)))),
            "when": with_missing(
                lambda: datetime(1960, 1, 1) + timedelta(microseconds=int(rng.integers(0, 3 * 10**15)))
            ),
            "score": with_missing(lambda: float(rng.integers(0, 9) / 8)),
            "votes": with_missing(lambda: float(rng.integers(0, 99))),
            "image": with_missing(lambda: rng.integers(0, 3, 6).astype(np.float32)),
        }
    )


def trained(model: str, folder: Path) -> feat2vec.Run:
    schema = {
        "version": 1, "model": MODELS[model],
        "groups": GROUPS if model == "fm" else {name: GROUPS[name] for name in FEW},
        "training": {"validation": 0,
                     "epochs": 1, "batch_size": 100, "optimizer": {"type": "adam", "learning_rate": 0.05}},
    }  # fmt: skip
    return train(schema, table(300, 0), folder, quiet=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    return trained("fm", tmp_path_factory.mktemp("runs") / "run")


def raw_input(rows: pa.Table, inputs_facts: dict[str, Any]) -> tuple[Any, str]:
    """A column as the manifest says that it is given."""
    column, dtype = rows[inputs_facts["column"]].to_pylist(), inputs_facts["dtype"]

    def facts_of_input(value: Any) -> Any:
        if value is None:
            return "" if dtype == "string" else float("nan")
        return value if dtype != "string" else str(value).lower() if isinstance(value, bool) else str(value)

    if inputs_facts["shape"][1:] == ["items"]:
        width = max(len(bag or []) for bag in column)
        return [[facts_of_input(item) for item in [*(bag or []), *[None] * width][:width]] for bag in column], dtype
    if len(inputs_facts["shape"]) > 1:
        return [bag or [float("nan")] * inputs_facts["shape"][1] for bag in column], dtype
    return [facts_of_input(value) for value in column], dtype


def ask(model: Path, rows: pa.Table, folder: Path) -> dict[str, Any]:
    """The vectors of rows, from a process in which feat2vec cannot be imported."""
    facts = json.loads((model / "manifest.json").read_text(encoding="utf-8"))
    inputs_facts = [facts_of_input for group in facts["groups"].values() for facts_of_input in group["inputs"]]
    (folder / "given.json").write_text(
        json.dumps({facts_of_input["name"]: raw_input(rows, facts_of_input) for facts_of_input in inputs_facts})
    )
    words = [str(model), str(folder / "given.json"), str(folder / "found.npz")]
    done = subprocess.run([sys.executable, "-I", "-c", WITHOUT, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with np.load(folder / "found.npz") as file:
        return dict(file)


@pytest.mark.slow
def test_raw_rows_give_the_vectors_of_embed_without_feat2vec(run: feat2vec.Run, tmp_path: Path) -> None:
    facts = run.export("saved_model", tmp_path / "model")
    groups = facts["groups"]
    assert [groups[name]["output"] for name in ("row", "a & b", "when/parts")] == ["row_", "a___b", "when_parts"]
    assert groups["who"]["inputs"] == [
        {"name": "who", "column": "who", "dtype": "string", "shape": ["batch"], "values": "text", "missing": "empty"}
    ]
    assert [facts_of_input["name"] for facts_of_input in groups["rated"]["inputs"]] == ["rated_tags", "rated_stars"]
    assert [facts_of_input["dtype"] for name in ("year", "long") for facts_of_input in groups[name]["inputs"]] == [
        "float64",
        "string",
    ]
    new = table(60, 1)
    seen = [f"never {i}" if i % 9 == 0 else who for i, who in enumerate(new["who"].to_pylist())]
    new = new.set_column(0, "who", pa.array(seen))
    nothing = pa.table({name: pa.nulls(2, new.schema.field(name).type) for name in new.column_names})
    new = pa.concat_tables([new, nothing])
    outputs, expected = ask(tmp_path / "model", new, tmp_path), run.embed(new, by_group=True)
    for name in GROUPS:
        np.testing.assert_allclose(outputs[groups[name]["output"]], expected[name], atol=1e-6, err_msg=name)
        assert np.abs(expected[name]).max() > 0.1
        assert not expected[name][-2:].any()
    np.testing.assert_allclose(outputs["row"], run.embed(new), atol=1e-5)
    facts_of_input = ask(tmp_path / "model", nothing[:1], tmp_path)
    assert not facts_of_input["row"].any()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "level"), [("rafm", 2), ("truncate", None)])
def test_a_level_of_a_model_with_ranks(name: str, level: int | None, tmp_path: Path) -> None:
    import tensorflow as tf

    run = trained(name, tmp_path / "run")
    facts = run.export("saved_model", tmp_path / "model", ["title", "who"], level=level, normalise=True)
    assert list(facts["groups"]) == ["who", "title"]
    new = table(20, 2)
    inputs = {
        facts_of_input["name"]: tf.constant(*raw_input(new, facts_of_input))
        for group in facts["groups"].values()
        for facts_of_input in group["inputs"]
    }
    outputs = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"](**inputs)
    vectors = run.embed(new, ["who", "title"], level)
    assert vectors.shape[1] == facts["dimension"]
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    np.testing.assert_allclose(outputs["row"], expected, atol=1e-5)


def test_the_signature_is_the_one_in_the_manifest() -> None:
    assert SavedModel.notes == {"signature": SIGNATURE}


def test_names_of_a_signature() -> None:
    names = ["row", "Row", "a b", "a/b", "9", "_x", "año", ""]
    assert distinct_names(names) == ["row", "Row_", "a_b", "a_b_", "g9", "g_x", "a_o", "g"]


@pytest.mark.slow
def test_too_many_keys_for_a_graph(run: feat2vec.Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^the group 'who' has .* GB of keys, more than a saved model holds; export"):
        export(run, SavedModel(max_key_bytes=10), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_tables_that_are_in_a_file_are_held_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({name: [f"{name}{i % 30 if i % 3 else 0}" for i in range(200)] for name in ("a", "b")})
    groups = {name: {"column": name, "extractor": "lookup"} for name in ("a", "b")}
    schema = {"version": 1, "model": {"ranks": [2, 8], "bias": True}, "groups": groups}
    write_run(tmp_path / "run", Feat2Vec.from_encoder(feat2vec.fit(schema, rows).encoder), {}, [], {})
    tables: list[weakref.ref[Any]] = []
    read_table = StoredModel.table

    def table(model: StoredModel, group: str, level: int) -> Any:
        assert not [reference for reference in tables if reference() is not None]
        tensor = read_table(model, group, level)
        tables.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(StoredModel, "table", table)
    monkeypatch.delattr(StoredModel, "full_model")
    export(feat2vec.load(tmp_path / "run"), SavedModel(), tmp_path / "model", level=2)
    assert len(tables) == 4
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    inputs = {name: tf.constant(rows[name].to_pylist()) for name in ("a", "b")}
    vectors = loaded.signatures[SIGNATURE](**inputs)
    run = feat2vec.load(tmp_path / "run")
    _ = run.model
    for name, expected in run.embed(rows, level=2, by_group=True).items():
        np.testing.assert_allclose(vectors[name], expected, rtol=1e-6)
    names = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert names == [".feat2vec", "assets", "fingerprint.pb", "manifest.json", "saved_model.pb", "variables"]
