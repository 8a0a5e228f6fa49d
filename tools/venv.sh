# Makes .venv in the current folder and installs the project there; sourced by the other scripts.
#   install EXTRAS    such as `install test`; again when pyproject.toml is newer than the last time

find_python() {
  for name in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python3.10; do
    if [ -n "$name" ] && "$name" -c 'import sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  echo "$0: python 3.10 or later with venv is needed; name one with PYTHON=..." >&2
  exit 2
}

install_with_uv() {  # in a third of pip's time; pip is there for where uv cannot be had, or cannot reach a registry
  .venv/bin/python -m pip install --quiet --disable-pip-version-check uv 2>/dev/null &&
    .venv/bin/uv pip install --quiet --native-tls --python .venv/bin/python --editable ".[$1]" 2>/dev/null
}

install() {
  if [ ! -x .venv/bin/python ]; then
    python=$(find_python)
    "$python" -m venv .venv
  fi
  if [ ! ".venv/.installed-$1" -nt pyproject.toml ]; then
    install_with_uv "$1" || .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$1]"
    touch ".venv/.installed-$1"
  fi
}
