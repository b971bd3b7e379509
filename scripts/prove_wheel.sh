#!/usr/bin/env bash
# Proves the one wheel in a folder as its user would meet it: small enough, installed into a clean
# environment, run from a folder outside the source tree, with nothing of the source importable.
# Usage: prove_wheel.sh PYTHON DIST
set -eu
python=$1
source_tree=$(cd "$(dirname "$0")/.." && pwd)
constraints=$source_tree/constraints.txt
limit=$((8 * 1024 * 1024))

wheels=("$2"/runlane-*.whl)
sdists=("$2"/runlane-*.tar.gz)
if [ "${#wheels[@]}" -ne 1 ] || [ ! -f "${wheels[0]}" ] || [ ! -f "${sdists[0]}" ]; then
  printf 'expected one wheel and one sdist in %s\n' "$2" >&2
  exit 1
fi
size=$(wc -c <"${wheels[0]}")
printf 'wheel: %s, %s bytes (limit %s)\n' "$(basename "${wheels[0]}")" "$size" "$limit"
if [ "$size" -ge "$limit" ]; then
  printf 'the wheel is too large: look for what was packed by mistake (unzip -l)\n' >&2
  exit 1
fi

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cp "${wheels[0]}" "$place/"
mkdir "$place/elsewhere"
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV
"$python" -m venv "$place/venv"
cd "$place/elsewhere"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
  --constraint "$constraints" "$(echo "$place"/runlane-*.whl)[cli]"
"$place/venv/bin/python" -m pip check --disable-pip-version-check
"$place/venv/bin/python" "$source_tree/scripts/smoke_installed.py" "$source_tree"
"$place/venv/bin/runlane" --help >/dev/null
"$place/venv/bin/runlane" demo
printf 'the wheel works in a clean environment\n'
