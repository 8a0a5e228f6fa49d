#!/usr/bin/env bash
# Makes a release of the version in pyproject.toml: builds both distributions, checks the wheel in a fresh environment
# without the sources, and tags the commit. Nothing is uploaded.
#   tools/release.sh              build, check, tag
#   tools/release.sh --dry-run    build and check, without a tag
# It needs python 3.10 or later with venv, and a package index.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "release: $1" >&2
  exit 2
}

tag=yes
case "${1:-}" in
  "") ;;
  --dry-run) tag=no ;;
  *) fail "'$1' is no option; the only one is --dry-run" ;;
esac

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
[ -n "$version" ] || fail "pyproject.toml has no line 'version = \"...\"'"
[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed; commit or stash them"
if [ "$tag" = yes ]; then
  [ "$(git branch --show-current)" = main ] || fail "the branch is '$(git branch --show-current)'; release from main"
  ! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || fail "the tag v$version exists; raise the version in pyproject.toml"
  grep -q "^## \[$version\] - [0-9-]\{10\}$" CHANGELOG.md ||
    fail "CHANGELOG.md has no heading '## [$version] - YYYY-MM-DD'; rename [Unreleased]"
fi

. tools/venv.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet . "$work/source"  # a clean copy: nothing that is ignored or left over gets in

python=$(find_python)
"$python" -m venv "$work/build"
"$work/build/bin/python" -m pip install --quiet --disable-pip-version-check build
"$work/build/bin/python" -m build --outdir "$work/dist" "$work/source"

"$python" -m venv "$work/fresh"
"$work/fresh/bin/python" -m pip install --quiet --disable-pip-version-check "$work"/dist/*.whl
mkdir "$work/empty"
cd "$work/empty"  # far from the sources
export TF_CPP_MIN_LOG_LEVEL=3
PATH="$work/fresh/bin:$PATH"
feat2vec init dataset:artworks -o artworks.yaml
feat2vec train artworks.yaml --data dataset:artworks --out run --set training.epochs=1 --quiet
feat2vec similar run artist "Hirst, Damien"
feat2vec export run --format npz --out vectors
installed=$(python -c 'import feat2vec; print(feat2vec.__version__)')
[ "$installed" = "$version" ] || fail "the wheel says version $installed, pyproject.toml $version"
cd - >/dev/null

mkdir -p dist
cp "$work"/dist/* dist/
ls dist
if [ "$tag" = yes ]; then
  git tag --annotate "v$version" --message "feat2vec $version"
  echo "tagged v$version; push it with: git push origin v$version"
fi
