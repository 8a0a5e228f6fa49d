#!/usr/bin/env bash
# From a fresh clone to the first neighbours: makes .venv, installs, and runs recipes/artworks.yaml on the bundled data.
#   tools/demo.sh
# It needs python 3.10 or later with venv, and a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/venv.sh
echo "installing into .venv (TensorFlow is large: a minute or two the first time)" >&2
install explore
.venv/bin/feat2vec run recipes/artworks.yaml --force
echo
echo "the page:  open runs/artworks/map.html in a browser, or: .venv/bin/feat2vec explore runs/artworks"
echo "try next:  .venv/bin/feat2vec similar runs/artworks artist \"Hirst, Damien\""
