"""What a training that starts with another run takes from it, and what its manifest says of that."""

from __future__ import annotations

from feat2vec.run import Run
from feat2vec.schema.reading import read_schema
from feat2vec.training.warm_start import WarmStart
from tests.training.tables import small_model, table


def test_rows_are_encoded_by_the_other_run_and_its_weights_are_named() -> None:
    model = small_model()
    run = Run.of_model(model)
    schema = read_schema(
        {"version": 1, "groups": {"who": {"column": "who"}}, "objective": {"type": "softmax", "target": "place"}}
    )
    start = WarmStart(run)
    rows = start.encode(schema, table(15, seed=1), None, "1GB")
    assert list(rows.values) == ["who"]
    assert rows.encoder.codecs["who"].facts() == run.fitted.codecs["who"].facts()
    assert rows.encoder.classes is not None  # those of the new rows
    facts = start.facts()
    assert facts == {"weights": facts["weights"], "freeze": False}
    assert WarmStart(run, freeze=True).facts() == {"weights": facts["weights"], "freeze": True}
    model.weights[0].assign(model.weights[0].numpy() + 1)
    assert start.facts()["weights"] != facts["weights"]
