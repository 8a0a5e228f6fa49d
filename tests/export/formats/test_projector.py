"""The projector's files are read back by TensorBoard."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feat2vec
from tests.export.tables import GROUPS, HARD, write_keys


@pytest.mark.filterwarnings("ignore:html5lib's sanitizer is deprecated:DeprecationWarning")  # TensorBoard's own
def test_tensorboard_opens_the_projector(run: feat2vec.Run, tmp_path: Path) -> None:
    from tensorboard.backend import application
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
    from werkzeug.test import Client

    facts = run.export("projector", tmp_path / "out")
    logs = str(tmp_path / "out")
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    provider = data_provider.MultiplexerDataProvider(multiplexer, logs)
    plugin = ProjectorPlugin(base_plugin.TBContext(logdir=logs, data_provider=provider))
    browser, at = Client(application.TensorBoardWSGI([plugin])), "/data/plugin/projector"
    assert browser.get(f"{at}/runs").json == ["."]
    config: Any = browser.get(f"{at}/info", query_string={"run": "."}).json
    assert [embedding["tensorName"] for embedding in config["embeddings"]] == list(GROUPS)
    for name, embedding in zip(GROUPS, config["embeddings"], strict=True):
        v, query = run.vectors(name), {"run": ".", "name": name}
        assert [int(size) for size in embedding["tensorShape"]] == [len(v), 6]
        tensor = np.frombuffer(browser.get(f"{at}/tensor", query_string=query).data, np.float32)
        np.testing.assert_array_equal(tensor.reshape(-1, 6), v.vectors)
        text = browser.get(f"{at}/metadata", query_string={**query, "num_rows": len(v)}).text
        header, *lines = text.removesuffix("\n").split("\n")
        assert header == "key\tcount\tlevel"
        assert [line.split("\t")[1:] for line in lines] == [
            [str(n), str(level)] for n, level in zip(v.counts, v.levels, strict=True)
        ]
        plain = [line.split("\t")[0].encode("latin-1", "backslashreplace").decode("unicode_escape") for line in lines]
        assert plain == v.index_to_key
    assert facts["groups"]["who"]["files"] == ["who.tensors.tsv", "who.metadata.tsv"]


def test_every_key_is_kept(tmp_path: Path) -> None:
    keys = [*HARD, "a\0", "a\0\0", "\0", "x" * 100_000]
    _, name = write_keys("projector", keys, tmp_path / "projector")
    lines = (tmp_path / "projector" / name).read_bytes().decode().split("\n")
    escapes = {r"\\": "\\", r"\t": "\t", r"\n": "\n", r"\r": "\r"}
    fields = [re.sub(r"\\.", lambda match: escapes[match[0]], line.split("\t")[0]) for line in lines[1:-1]]
    assert fields == keys
    assert {line.count("\t") for line in lines[:-1]} == {2}
