"""The benchmarks' peers: how a command is timed, what each peer is given, and how its answers are measured."""

from __future__ import annotations

import importlib
import io
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

from feat2vec.training.reporting import Reporter

TOOLS = Path(__file__).parents[2] / "tools"
WORK = """
import sys, time
print("training", flush=True)
while time.process_time() < 0.2: pass
print("\\x1b[32mepoch 1/2\\x1b[0m", flush=True)
print("epoch 2/2", file=sys.stderr, flush=True)
sys.exit({code})
"""


@pytest.fixture(autouse=True)
def tools_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))


def timing() -> ModuleType:
    return importlib.import_module("peers.timed_command")


# --- a command that is timed ----------------------------------------------------------------------------------------


def test_a_command_s_lines_are_noted_with_their_times() -> None:
    pytest.importorskip("psutil")
    command = timing().timed([sys.executable, "-c", WORK.format(code=0)], timing().PEERS)
    assert [line.text for line in command.lines] == ["training", "epoch 1/2", "epoch 2/2"]
    assert list(command.epoch_ends) == [1, 2]
    times = [line.seconds for line in command.lines]
    assert 0 < times[0] <= times[1] <= times[2] <= command.seconds
    assert 0 < command.training_cpu_seconds <= command.lines[-1].cpu_seconds
    assert set(command.facts()) == {"seconds", "training_cpu_seconds"}


def test_a_command_that_fails_is_shown_with_what_it_printed() -> None:
    pytest.importorskip("psutil")
    with pytest.raises(SystemExit, match=r"ended with 3: training\nepoch 1/2\nepoch 2/2"):
        timing().timed([sys.executable, "-c", WORK.format(code=3)], timing().PEERS)


def test_training_lasts_from_the_line_before_the_first_epoch_to_the_last_epoch() -> None:
    texts = [
        ("imports", 1.0),
        ("training", 4.0),
        ("epoch 1/2", 5.0),
        ("a warning", 5.5),
        ("epoch 2/2", 7.0),
        ("x", 9.0),
    ]
    lines = tuple(timing().Line(text, 0.0, cpu_seconds) for text, cpu_seconds in texts)
    assert timing().TimedCommand(10.0, lines, timing().PEERS).training_cpu_seconds == 3.0
    again = (*lines, timing().Line("epoch 1/1", 0.0, 12.0))  # a second training, after a fit
    both = timing().TimedCommand(20.0, again, timing().PEERS)
    assert both.training_cpu_seconds == 8.0
    assert both.epoch_ends[1].cpu_seconds == 5.0


@pytest.mark.parametrize(("losses", "epoch"), [([0.3, 0.1, 0.2], 2), ([0.3, 0.2], None), ([0.1123], 1), ([], None)])
def test_the_first_epoch_within_a_bound(losses: list[float], epoch: int | None) -> None:
    assert timing().first_epoch_within(losses, 0.1123) == epoch


def test_a_peer_that_is_not_installed_is_named_with_its_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert timing().is_installed("numpy", "numpy")
    assert not timing().is_installed("no_such_peer", "no-such-peer")
    expected = "no_such_peer is left out: it is not installed; pip install no-such-peer\n"
    assert capsys.readouterr().err == expected


def test_our_line_of_an_epoch_is_recognized() -> None:
    printed = io.StringIO()
    reporter = Reporter(1, 12, file=printed)
    reporter.begin(9, 0)
    reporter.end(9, {"epoch": 10, "loss": 0.3, "val_loss": 0.2, "seconds": 1.0, "rows_per_second": 1000})
    match = re.match(timing().OURS, printed.getvalue())
    assert match is not None
    assert match[1] == "10"


# --- films ----------------------------------------------------------------------------------------------------------


def test_a_true_director_is_ranked_without_the_film_s_others_and_ties_count_half() -> None:
    ranks = importlib.import_module("bench_films").ranks_of([0, 1], np.array([0.5, 0.9, 0.7, 0.5, 0.1]))
    assert ranks == [1.5, 0.0]  # one above and one tie; its own film's director is left out


def test_lightfm_ranks_by_the_product_with_the_cast_s_sum_and_the_bias() -> None:
    vectors = {
        "cast": np.array(["ann", "bob"]), "cast_vectors": np.array([[1.0, 0.0], [0.0, 1.0]]),
        "directors": np.array(["dee", "eve", "fay"]),
        "director_vectors": np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]),
        "director_biases": np.array([0.0, 0.0, 1.5]),
    }  # fmt: skip
    test = [
        {"cast": ["ann"], "directors": ["dee"]},  # scores 1, 0, 1.5
        {"cast": ["ann", "bob", "unseen"], "directors": ["eve", "unseen"]},  # scores 1, 2, 1.5
        {"cast": ["unseen"], "directors": ["dee"]},
    ]
    facts = importlib.import_module("bench_films").lightfm_quality(vectors, test)
    assert facts == pytest.approx({
        "n": 2, "candidates": 3, "mpr": 0.5 / 3, "mrr": 0.75, "top1": 0.5, "recall_at_10": 1.0, "median_rank": 0.5
    })  # fmt: skip


def test_lightfm_is_given_a_one_for_each_name() -> None:
    pytest.importorskip("lightfm")
    module = importlib.import_module("peers.lightfm_films")
    lists = [["ann", "bob"], ["bob", "cy"]]
    index = module.indices(lists)
    assert index == {"ann": 0, "bob": 1, "cy": 2}
    assert module.incidence(lists, index).toarray().tolist() == [[1, 1, 0], [0, 1, 1]]


# --- ratings --------------------------------------------------------------------------------------------------------


def test_myfm_is_given_one_over_the_root_of_the_number_of_values() -> None:
    pytest.importorskip("myfm")
    module = importlib.import_module("peers.myfm_ratings")
    index = {"drama": 0, "war": 1}
    weights = module.weights([["drama"], ["war", "drama"], ["unseen"], []], index)
    root = 0.5**0.5
    assert weights.toarray() == pytest.approx(np.array([[1, 0], [root, root], [0, 0], [0, 0]]))


def test_myfm_holds_rows_that_say_the_same_once() -> None:
    pytest.importorskip("myfm")
    module = importlib.import_module("peers.myfm_ratings")
    columns = {"film": [["a"], ["b"], ["a"]], "genres": [["war", "drama"], ["war"], ["war", "drama"]]}
    block = module.Block(columns)
    assert block.sizes == [2, 2]
    relation = block.relation({"film": [["b"], ["unseen"], ["b"]], "genres": [["war"], ["drama"], ["war"]]})
    assert relation.original_to_block == [0, 1, 0]
    assert relation.data.toarray().tolist() == [[0, 1, 1, 0], [0, 0, 0, 1]]


# --- Frappe ---------------------------------------------------------------------------------------------------------


def test_xlearn_is_given_a_one_for_each_known_value() -> None:
    rows = pa.table({"used": [1, 0], "user": [7, 8], "item": [3, 3]})
    lines = importlib.import_module("bench_frappe").xlearn_lines(
        rows, ["user", "item"], {("user", 7): 1, ("item", 3): 2}
    )
    assert list(lines) == ["1 1:1 2:1\n", "0 2:1\n"]


def test_xlearn_s_line_of_an_epoch_is_recognized() -> None:
    frappe = importlib.import_module("bench_frappe")
    text = "[  10%      ]     1            0.436273            0.359239                0.53"
    command = timing().TimedCommand(1.0, (timing().Line(text, 0.7, 0.1),), frappe.XLEARN_EPOCH)
    assert list(command.epoch_ends) == [1]
    assert frappe.xlearn_losses(command) == [0.359239]


def test_means_of_seeds_have_none_where_a_seed_has_none() -> None:
    means = importlib.import_module("bench_frappe").means
    assert means([{"auc": 0.5, "to": 2.0}, {"auc": 0.7, "to": None}]) == {"auc": 0.6, "auc_spread": 0.2, "to": None}
