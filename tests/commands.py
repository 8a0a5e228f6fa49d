"""Commands as a user types them: in this process, or, where a test needs one of its own, in another."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from feat2vec.cli import main

PROGRAM = [sys.executable, "-c", "import sys; sys.argv[0] = 'feat2vec'; from feat2vec.cli import main; main()"]
Done = subprocess.CompletedProcess


def feat2vec(*words: object, folder: Path | None = None, code: int = 0) -> Done[str]:
    """Run a command here, in `folder`, see that it ends with `code`, and return what it printed.

    Starting TensorFlow in a process of its own takes seconds.
    """
    argv = ["feat2vec", *map(str, words)]
    stdout, stderr, before = io.StringIO(), io.StringIO(), Path.cwd()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    status = 0
    os.chdir(folder or before)
    try:
        with mock.patch.object(sys, "argv", argv), redirect_stdout(stdout), redirect_stderr(stderr):
            main()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    finally:
        os.chdir(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    done = Done(argv, status, stdout.getvalue(), stderr.getvalue())
    assert status == code, done.stderr
    return done


def in_a_process(*words: object, folder: Path | None = None) -> Done[str]:
    """Run a command in a process of its own."""
    return subprocess.run([*PROGRAM, *map(str, words)], cwd=folder, capture_output=True, text=True)
