"""Reporting: lines elsewhere, a bar on a terminal, nothing when quiet."""

from __future__ import annotations

import io

import pytest

from feat2vec.training.reporting import Reporter

LOGS = {"epoch": 1, "loss": 1.25, "val_loss": 1.5, "seconds": 2.0, "rows_per_second": 12345.0}


def report(reporter: Reporter) -> None:
    reporter.begin(0, 0)
    reporter.step(2)
    reporter.end(0, LOGS)
    reporter.close()


def test_a_line_an_epoch() -> None:
    file = io.StringIO()
    report(Reporter(4, 3, file=file))
    (line,) = file.getvalue().splitlines()
    assert line.startswith("epoch 1/3  loss 1.2500  val_loss 1.5000  12,345 rows/s  0:0")
    assert line.endswith(" left")


def test_nothing_when_quiet() -> None:
    file = io.StringIO()
    report(Reporter(4, 3, quiet=True, file=file))
    assert file.getvalue() == ""


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = io.StringIO()
    reporter = Reporter(4, 3, file=file)
    report(reporter)
    assert reporter.bar is not None
    assert "epoch 1/3" in file.getvalue()
    assert "50 %" in file.getvalue() or "0 %" in file.getvalue()
