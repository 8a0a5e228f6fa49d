#!/usr/bin/env bash
# Everything that needs no outside data: makes .venv if there is none, installs, checks style and types, tests.
#   tools/test.sh           what CI runs
#   tools/test.sh --slow    the slow tests as well
#   tools/test.sh ARGS...   the other arguments go to pytest
set -euo pipefail
cd "$(dirname "$0")/.."

marks="not slow" extras=test
if [ "${1:-}" = "--slow" ]; then
  marks="" extras=test,explore,launch,tables,spark
  shift
fi

. tools/venv.sh
install "$extras"

export TF_CPP_MIN_LOG_LEVEL=3 TF_ENABLE_ONEDNN_OPTS=0
export TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 OMP_NUM_THREADS=1  # two processes test at once
.venv/bin/ruff check .
.venv/bin/ruff format --check .
types=$(mktemp)
trap 'rm -f "$types"' EXIT
.venv/bin/mypy >"$types" 2>&1 & # beside the tests: alone it would leave a core idle
mypy=$!
tests=0
.venv/bin/python -m pytest -m "$marks" -n 2 --dist worksteal "$@" || tests=$?
wait "$mypy" || { cat "$types" && exit 1; }
cat "$types"
exit "$tests"
