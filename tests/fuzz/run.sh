#!/usr/bin/env bash
# Runs every fuzzer of a build, two at a time, for so many seconds each; fails when one of them finds something, and
# shows what:
#   tests/fuzz/run.sh build-fuzz 45
# Inputs that were found lie in FOLDER when a third argument names one; without it they go with the machine's /tmp.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$1 seconds=$2 found=${3:-$(mktemp -d)}

fuzz() {
  local name=$1 seeds=(tests/fuzz/corpus/$1)
  [ "$name" != config ] || seeds+=(apps/configs apps/configs/paper)
  mkdir -p "$found/$name"
  local log=$found/$name.log begin=$SECONDS
  if TMPDIR=$found "$build/tests/fuzz/${name}_fuzz" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=1024 \
      -print_final_stats=1 -artifact_prefix="$found/$name-" "$found/$name" "${seeds[@]}" >"$log" 2>&1; then
    echo "$name: $(awk '/number_of_executed_units/ {print $2}' "$log") inputs in $((SECONDS - begin)) s, nothing found"
  else
    tail -n 60 "$log"
    echo "$name: failed; the input is among $found/$name-*"
    return 1
  fi
}
export -f fuzz
export build seconds found

ls "$build/tests/fuzz/" | sed -n 's/^\(.*\)_fuzz$/\1/p' | xargs -P 2 -I NAME bash -c 'fuzz NAME'
