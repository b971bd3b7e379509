#!/usr/bin/env bash
# Runs every fuzz target for a bounded time.
# The core has no unsafe code, so sanitizers would buy little and the stable toolchain will do.
# Usage: fuzz.sh SECONDS_PER_TARGET
set -eu
seconds=${1:-60}
cd "$(dirname "$0")/.."
if [ ! -f rust/fuzz/Cargo.toml ]; then
  printf 'there are no fuzz targets\n'
  exit 0
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
  cargo install cargo-fuzz --locked
fi
for target in $(cargo fuzz list --fuzz-dir rust/fuzz); do
  printf '== fuzz %s for %s s\n' "$target" "$seconds"
  # What is found is kept in corpus/ and not committed; seeds/ is, and is only read.
  mkdir -p "rust/fuzz/corpus/$target" "rust/fuzz/seeds/$target"
  cargo fuzz run --fuzz-dir rust/fuzz --sanitizer none "$target" \
    "rust/fuzz/corpus/$target" "rust/fuzz/seeds/$target" -- -max_total_time="$seconds" -print_final_stats=1
done
