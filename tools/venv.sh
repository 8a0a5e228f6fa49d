# Makes .venv in the current folder and installs the project there; sourced by the other scripts.
#   install EXTRAS    such as `install test`; again when pyproject.toml is newer than the last time

unset PYTHONDONTWRITEBYTECODE  # no module is compiled below: each would be compiled by each process that imports it

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

install() {
  if [ ! -x .venv/bin/python ]; then
    python=$(find_python)
    "$python" -m venv .venv
  fi
  if [ ! ".venv/.installed-$1" -nt pyproject.toml ]; then
    # uv unpacks on all cores, half a minute sooner; pip where uv cannot be had, such as with an index that only pip knows
    pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check)
    "${pip[@]}" uv && .venv/bin/uv pip install --quiet --python .venv/bin/python --editable ".[$1]" ||
      "${pip[@]}" --no-compile --editable ".[$1]"
    touch ".venv/.installed-$1"
  fi
}
