"""A session of Spark: what it needs, and where it runs."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from feat2vec.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = 17  # the least version
MASTER = "SPARK_MASTER"  # the environment variable with the address of the master


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """The session that is active, or a new one that ends with the work.

    Raises:
        UserError: PySpark or Java 17 is missing.

    """
    if importlib.util.find_spec("pyspark") is None:
        raise UserError("--engine: spark needs PySpark: pip install 'feat2vec[spark]'")
    _check_java()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of the workers: they import feat2vec too
    builder = SparkSession.builder.appName("feat2vec encode").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if master := os.environ.get(MASTER):
        builder = builder.master(master)
    if not master or master.startswith("local"):
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    if path := os.environ.get("PYTHONPATH"):
        builder = builder.config("spark.executorEnv.PYTHONPATH", path)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def _check_java() -> None:
    """Raise unless the Java that Spark would start is there, and new enough."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    version = None if java is None else java_version(java)
    if version is None or version < JAVA:
        received = "none was found" if version is None else f"{java} is version {version}"
        raise UserError(f"--engine: spark needs Java {JAVA} or later, and {received}; install it, or set JAVA_HOME")


def java_version(java: str) -> int | None:
    """The version of a Java, such as 17; None for what is none.

    Args:
        java: The path of the program.

    """
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', printed)
    return None if version is None else int(version[1])
