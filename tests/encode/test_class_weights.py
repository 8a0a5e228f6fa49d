"""The weights of classes: named ones, balanced ones, and names that are no class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from feat2vec.encode.class_weights import class_weights, named_class_weights
from feat2vec.encode.encoder import fit
from feat2vec.errors import UserError
from tests.encode.tables import Z, schema_of

PLACES = ["Rome", "Oslo", "Rome", "Rome"]  # classes in the order of their counts: Rome, Oslo


def weights_of(objective: dict[str, Any], target: list[Any]) -> Any:
    rows = pa.table({"z": [1] * len(target), "t": target})
    encoded = fit(schema_of(Z, objective={"target": "t", **objective}), rows)
    return class_weights(encoded.encoder.schema.objective, encoded.encoder.classes, encoded.target)


def test_classes_have_the_weights_that_the_schema_gives_their_names_and_1_otherwise() -> None:
    np.testing.assert_array_equal(weights_of({"type": "softmax", "class_weights": {"Oslo": 2}}, PLACES), [1, 2])
    np.testing.assert_array_equal(weights_of({"type": "logistic", "class_weights": {"1": 4}}, [0, 1, 1]), [1, 4])


def test_balanced_classes_have_equal_sums_of_weights() -> None:
    np.testing.assert_allclose(weights_of({"type": "softmax", "class_weights": "balanced"}, PLACES), [4 / 6, 2])
    np.testing.assert_allclose(weights_of({"type": "logistic", "class_weights": "balanced"}, [0, 1, 1]), [1.5, 0.75])


def test_without_class_weights_there_are_none() -> None:
    schema = schema_of(Z, objective={"type": "logistic", "target": "t"})
    assert weights_of({"type": "logistic"}, [0, 1]) is None
    assert named_class_weights(schema.objective, None) is None


def test_a_class_that_is_none_cannot_be_weighed() -> None:
    with pytest.raises(UserError, match="class_weights: there is no class 'p9'"):
        weights_of({"type": "softmax", "class_weights": {"p9": 2.0}}, PLACES)
