#!/usr/bin/env bash
# Runs every recipe in full, one after the other, and prints which of them are as expected.
#   tools/recipes.sh FILMS FRAPPE_TRAIN FRAPPE_VALIDATION CORPUS JUDGED
# FILMS has the columns title, year, cast, genres, directors, plot; CORPUS a column `text`; JUDGED is a list of word pairs
# and how similar people say they are. movielens and reviews come from TensorFlow datasets, which download them once;
# without a network they are said to be missing. The runs are in runs/.
set -uo pipefail
cd "$(dirname "$0")/.."
if [ $# -ne 5 ]; then
  sed -n 's/^# \{0,1\}//; 2,6p' "$0" >&2
  exit 2
fi
. tools/venv.sh
install explore,recipes

failed=0
cook() {
  name=$1
  shift
  echo "=== $name"
  if .venv/bin/feat2vec run "recipes/$name.yaml" --force "$@"; then
    said="$said$name: as expected\n"
  else
    code=$?
    failed=1
    said="$said$name: exit $code, see above\n"
  fi
}
said=""
cook artworks
cook films --data "$1"
cook frappe --data "train=$2" --data "validation=$3"
cook flights
cook ranks --data "$2" --set objective.target=used
cook skipgram --data "corpus=$4" --data "judged=$5"
cook glove --data "corpus=$4" --data "judged=$5"
cook softmax
cook movielens
cook reviews
printf "\n$said"
exit $failed
