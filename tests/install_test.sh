#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs a build, moves the tree to a path with blanks, starts the program there with an empty environment, and builds
# tests/consumer with find_package(abtrain).   tests/install_test.sh BUILD
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$1" --prefix "$scratch/dist" > /dev/null
tree="$scratch/a moved tree"
mv "$scratch/dist" "$tree"

env -i PATH=/usr/bin:/bin "$tree/bin/abtrain" --version
ln -s "$tree/bin/abtrain" "$scratch/link"
env -i PATH=/usr/bin:/bin "$scratch/link" --version

program=$tree/libexec/abtrain/abtrain
[[ -x $program ]] || program=$tree/bin/abtrain
for library in libdnnl libopenblas libgfortran libstdc++; do
  ldd "$program" | grep -F "$library" | grep -qF "=> $tree/" ||
    { echo "$library does not come from the tree:" >&2; ldd "$program" >&2; exit 1; }
done

cmake -S "$here/consumer" -B "$scratch/consumer" -DCMAKE_PREFIX_PATH="$tree" -DCMAKE_BUILD_TYPE=Release > /dev/null
cmake --build "$scratch/consumer"
"$scratch/consumer/consumer" | tee "$scratch/consumer.out"
grep -q '^loss 2' "$scratch/consumer.out"
