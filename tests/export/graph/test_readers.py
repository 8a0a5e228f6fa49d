"""Numbers in a graph against those of the encoder."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from feat2vec.encode.codecs import NumbersCodec
from feat2vec.encode.encoder import fit
from feat2vec.export.graph.readers import NumbersReader


@pytest.mark.parametrize("scale", ["standard", "minmax", "log1p", "quantile", "none"])
def test_numbers_are_scaled_as_the_encoder_does(scale: str) -> None:
    rng = np.random.default_rng(0)
    numbers = np.where(rng.random(500) < 0.1, np.nan, np.round(rng.gamma(2, 3, 500), 1))
    columns = {"a": pa.array(numbers, from_pandas=True), "b": pa.array(rng.integers(0, 3, 500))}
    spec = {"type": "numeric", "scale": scale}
    group = {"columns": ["a", "b"], "extractor": spec}
    schema = {"version": 1, "groups": {"n": group, "same": group}}
    encoder = fit(schema, pa.table(columns)).encoder
    codec = encoder.codecs["n"]
    assert isinstance(codec, NumbersCodec)
    read = NumbersReader(codec)
    new = np.array(
        [[0.0, 0], [-0.5, 1], [1e9, 2], [np.nan, 1], [3.3, np.nan], [np.nan, np.nan], *np.c_[numbers, numbers][:50]]
    )
    table = pa.table({"a": pa.array(new[:, 0], from_pandas=True), "b": pa.array(new[:, 1], from_pandas=True)})
    (batch,) = encoder.entries(table)
    entries = read(tf.constant(new[:, 0]), tf.constant(new[:, 1])).numpy()
    np.testing.assert_allclose(entries[batch["n"].present], batch["n"].rows, rtol=1e-6, atol=1e-7)
    assert np.isnan(entries[~batch["n"].present]).all()
    with pytest.raises(tf.errors.InvalidArgumentError, match="a: numbers must be finite"):
        read(tf.constant([np.inf], tf.float64), tf.constant([1], tf.float64))
    if scale == "log1p":
        with pytest.raises(tf.errors.InvalidArgumentError, match="a: log1p needs numbers above -1"):
            read(tf.constant([-1], tf.float64), tf.constant([1], tf.float64))
