#!/usr/bin/env bash
# Says which of the things that the build needs are missing, all at once, and what to do about each.
# Usage: check_prerequisites.sh PYTHON
set -u
python=${1:-python3}
missing=0

report() {
  missing=1
  printf 'missing: %s\n    %s\n' "$1" "$2" >&2
}

if ! command -v "$python" >/dev/null 2>&1; then
  report "Python 3.11 or newer ('$python' was not found)" \
    "Install it, or name another one: make PYTHON=/path/to/python3 TARGET"
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  report "Python 3.11 or newer ('$python' is $("$python" -c 'import platform; print(platform.python_version())'))" \
    "Install it, or name another one: make PYTHON=/path/to/python3 TARGET"
elif ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
  report "the venv module of '$python'" \
    "Debian and Ubuntu package it apart: apt-get install python3-venv"
fi

wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
if ! command -v cargo >/dev/null 2>&1; then
  report "Rust $wanted or newer ('cargo' was not found)" \
    "Install it with rustup (https://rustup.rs), then open a new shell so that cargo is on PATH"
else
  found=$(cargo --version | awk '{print $2}')
  if [ "$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -n 1)" != "$wanted" ]; then
    report "Rust $wanted or newer (cargo is $found)" "Update it: rustup update stable"
  fi
fi

if ! command -v cc >/dev/null 2>&1; then
  report "a C compiler ('cc' was not found), which builds and links parts of the native half" \
    "Debian and Ubuntu: apt-get install build-essential"
fi

exit "$missing"
