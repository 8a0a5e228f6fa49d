#!/usr/bin/env bash
# How much of the package the tests execute, branches included; fails below 93 %.
#   tools/coverage.sh           the fast tests
#   tools/coverage.sh --slow    the slow tests as well
#   tools/coverage.sh ARGS...   the other arguments go to pytest
set -euo pipefail
cd "$(dirname "$0")/.."

marks="not slow" extras=test,coverage
if [ "${1:-}" = "--slow" ]; then
  marks="" extras=test,explore,coverage
  shift
fi

. tools/venv.sh
install "$extras"

export TF_CPP_MIN_LOG_LEVEL=3 TF_ENABLE_ONEDNN_OPTS=0
exec .venv/bin/python -m pytest -m "$marks" -n 2 --dist worksteal \
  --cov=feat2vec --cov-branch --cov-report=term:skip-covered --cov-fail-under=93 "$@"
