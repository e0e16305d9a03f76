#!/usr/bin/env bash
# Lists the C++ files whose layout is not that of .clang-format and fails when there are any. `tests/format_check.sh -i`
# gives them that layout instead. Versions of clang-format lay out differently, so only version 14 will do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

formatter=$(command -v clang-format-14 || command -v clang-format) || {
  echo "format_check.sh: there is no clang-format; install the package clang-format-14" >&2
  exit 1
}
"$formatter" --version | grep -q 'version 14\.' || {
  echo "format_check.sh: needs clang-format 14, and $formatter has a different version; install the package clang-format-14" >&2
  exit 1
}

mapfile -t files < <(find engine layers ablowrank data apps tests bench -name '*.h' -o -name '*.cpp' | sort)
found=$("$formatter" --dry-run --Werror "${files[@]}" 2>&1) && exit 0
mapfile -t differing < <(sed -n 's/^\(.*\):[0-9]*:[0-9]*: error: code should be clang-formatted.*/\1/p' <<<"$found" | uniq)
if [ ${#differing[@]} -eq 0 ]; then  # it could not do its work
  head -n 5 <<<"$found" >&2
  exit 1
fi

if [ "${1:-}" = -i ]; then
  "$formatter" -i "${differing[@]}"
else
  echo "not laid out as in .clang-format (tests/format_check.sh -i does it):"
  printf '  %s\n' "${differing[@]}"
  exit 1
fi
