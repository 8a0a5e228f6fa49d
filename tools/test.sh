#!/usr/bin/env bash
# Everything that needs no outside data: makes .venv if there is none, installs, checks style and types, tests.
#   tools/test.sh           what CI runs
#   tools/test.sh --slow    the slow tests as well
#   tools/test.sh ARGS...   the other arguments go to pytest
set -euo pipefail
cd "$(dirname "$0")/.."

marks="not slow"
if [ "${1:-}" = "--slow" ]; then
  marks=""
  shift
fi

find_python() {
  for name in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python3.10; do
    if [ -n "$name" ] && "$name" -c 'import sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  echo "tools/test.sh: python 3.10 or later with venv is needed; name one with PYTHON=..." >&2
  exit 2
}

if [ ! -x .venv/bin/python ]; then
  python=$(find_python)
  "$python" -m venv .venv
fi
# Reinstalled when pyproject.toml is newer than the last install.
if [ ! .venv/.installed -nt pyproject.toml ]; then
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
  touch .venv/.installed
fi

export TF_CPP_MIN_LOG_LEVEL=3 TF_ENABLE_ONEDNN_OPTS=0
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
exec .venv/bin/python -m pytest -m "$marks" -n 2 --dist worksteal "$@"
