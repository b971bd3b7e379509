#!/usr/bin/env bash
# Runs every fuzz target for a bounded time, as many at once as there are processors.
# The core has no unsafe code, so sanitizers would buy little and the stable toolchain will do.
# Usage: fuzz.sh SECONDS_PER_TARGET
set -eu
export seconds=${1:-60}
cd "$(dirname "$0")/.."
if [ ! -f rust/fuzz/Cargo.toml ]; then
  printf 'there are no fuzz targets\n'
  exit 0
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
  cargo install cargo-fuzz --locked
fi
cargo fuzz build --fuzz-dir rust/fuzz --sanitizer none
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export logs

# What a target says is shown whole when it ends: two at once would mix their lines.
one() {
  local target=$1 outcome=0
  # What is found is kept in corpus/ and not committed; seeds/ is, and is only read.
  mkdir -p "rust/fuzz/corpus/$target" "rust/fuzz/seeds/$target"
  cargo fuzz run --fuzz-dir rust/fuzz --sanitizer none "$target" \
    "rust/fuzz/corpus/$target" "rust/fuzz/seeds/$target" -- -max_total_time="$seconds" -print_final_stats=1 \
    >"$logs/$target" 2>&1 || outcome=$?
  printf '== fuzz %s for %s s: exit %s\n' "$target" "$seconds" "$outcome"
  tail -n 400 "$logs/$target"
  # xargs stops handing out work at 255, and its own exit tells of any other failure.
  [ "$outcome" -eq 0 ]
}
export -f one
cargo fuzz list --fuzz-dir rust/fuzz | xargs -P "$(nproc)" -I '{}' bash -euc 'one "$1"' one '{}'
