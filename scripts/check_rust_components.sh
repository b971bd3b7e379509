#!/usr/bin/env bash
# Makes sure that rustfmt and clippy are there; asks rustup for them where it can.
set -eu
needed=()
cargo fmt --version >/dev/null 2>&1 || needed+=(rustfmt)
cargo clippy --version >/dev/null 2>&1 || needed+=(clippy)
[ "${#needed[@]}" -eq 0 ] && exit 0
if command -v rustup >/dev/null 2>&1 && rustup component add "${needed[@]}"; then
  exit 0
fi
printf 'missing: %s\n    Install it: rustup component add %s\n' "${needed[*]}" "${needed[*]}" >&2
exit 1
