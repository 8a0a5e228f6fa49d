"""TensorFlow is imported by the commands that need it, without its messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

OPTIONAL_PACKAGES = ("sklearn", "pandas")  # what Keras and TensorFlow import if they can: 86 MB, 0.7 seconds


@contextmanager
def _without_optional_packages() -> Iterator[None]:
    """Within it the import of packages that TensorFlow can do without fails; they can be imported after that."""
    hidden = [name for name in OPTIONAL_PACKAGES if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: as if it were not installed
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def import_tensorflow() -> None:
    """Import TensorFlow and Keras, for a command.

    Their libraries write messages about the processor and about missing devices to standard error; these are dropped.
    """
    sys.stderr.flush()
    standard_error, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        with _without_optional_packages():
            import keras  # noqa: F401
            import tensorflow as tf

        tf.config.list_physical_devices()
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(null)
