"""The measurement of what activation leaves: rare keys have no vector, and the log loss hardly changes."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.mark.slow
def test_few_weights_remain_of_a_zipf_table_and_the_log_loss_is_within_a_thousandth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    bench = importlib.import_module("bench_activation")
    facts = bench.measure(rows=150_000, keys=20_000, epochs=6, l1=2.0)
    whole, count, linear = facts["all_vectors"], facts["count"], facts["count_and_linear"]
    assert facts["no_vectors"]["log_loss"] > whole["log_loss"] + 0.005  # vectors tell something here
    for side in (count, linear):
        assert side["log_loss"] < whole["log_loss"] + 0.001
        assert side["held"] < 0.2 * whole["held"]
        assert side["remaining"] < side["held"]
    assert linear["remaining"] < count["remaining"]
    assert linear["keys_with_vector"] < count["keys_with_vector"]
