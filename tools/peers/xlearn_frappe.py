"""xLearn learns a factorization machine of rows in its own format, one epoch a line.

python tools/peers/xlearn_frappe.py train TRAIN.txt VALIDATION.txt MODEL [--dim 128] [--epochs 8]
python tools/peers/xlearn_frappe.py predict MODEL ROWS.txt SCORES.txt

The lines of `train` are xLearn's own: the epoch, the log loss of the training rows and of the validation rows, the
seconds.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

os.environ.setdefault("USER", "bench")  # xLearn ends in an error where it is not set


def core() -> Any:
    """The module of xLearn that trains, without the package's `__init__`, which imports scikit-learn for seconds."""
    found = importlib.util.find_spec("xlearn")
    if found is None:
        raise SystemExit("xlearn is not installed; pip install xlearn")
    package = ModuleType("xlearn")
    package.__path__ = list(found.submodule_search_locations or [])
    sys.modules["xlearn"] = package
    return importlib.import_module("xlearn.xlearn")


def print_each_line() -> None:
    """Let the C library print each line as it ends, also into a pipe."""
    library = ctypes.CDLL(None)
    line_buffered = 1  # _IOLBF
    library.setvbuf(ctypes.c_void_p.in_dll(library, "stdout"), None, line_buffered, 0)


def train(model: Any, options: argparse.Namespace) -> None:
    """Train, and write the model."""
    model.setTrain(options.train)
    model.setValidate(options.validation)
    model.disableEarlyStop()
    names = {"k": "dim", "epoch": "epochs", "lr": "rate", "lambda": "l2", "init": "scale", "nthread": "threads"}
    parameters = {name: getattr(options, ours) for name, ours in names.items()}
    model.fit({"task": "binary", **parameters}, options.model)


def predict(model: Any, options: argparse.Namespace) -> None:
    """Write a line with the score of each row."""
    model.setTest(options.rows)
    model.predict(options.model, options.scores)


def main() -> None:
    """Train or predict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    training = commands.add_parser("train")
    training.set_defaults(run=train)
    for name in ("train", "validation", "model"):
        training.add_argument(name)
    training.add_argument("--dim", type=int, default=128)
    training.add_argument("--epochs", type=int, default=8)
    training.add_argument("--rate", type=float, default=0.25)
    training.add_argument("--l2", type=float, default=0.003)
    training.add_argument("--scale", type=float, default=1.2)
    training.add_argument("--threads", type=int, default=1)
    predicting = commands.add_parser("predict")
    predicting.set_defaults(run=predict)
    for name in ("model", "rows", "scores"):
        predicting.add_argument(name)
    options = parser.parse_args()
    print_each_line()
    model = core().create_fm()
    model.disableNorm()  # rows have about the same number of ones
    model._set_Param({"log": f"{options.model}.log"})  # which is in /tmp otherwise, and stays
    options.run(model, options)


if __name__ == "__main__":
    main()
