#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs a build, moves the tree to a path with blanks, starts the program there with an empty environment, and builds
# tests/consumer with find_package(abtrain): one step with the engine's parts, and the training program of apps/README.md. With sizes in
# MB: the same with the archive of the target `package`, which must be smaller than PACKED, and what it holds smaller than
# UNPACKED.
#   tests/install_test.sh BUILD [PACKED UNPACKED]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree="$scratch/a moved tree"
smaller() {  # WHAT BYTES MEGABYTES
  echo "$1 has $2 bytes"
  (($2 < $3 * 1000000)) || { echo "that is not less than $3 MB" >&2; return 1; }
}
if [[ $# -ge 3 ]]; then
  cpack --config "$1/CPackConfig.cmake" -B "$scratch/package" > /dev/null
  smaller "the archive" "$(stat -c %s "$scratch/package/abtrain.tar.xz")" "$2"
  tar -C "$scratch" -xJf "$scratch/package/abtrain.tar.xz"
  mv "$scratch/abtrain" "$tree"
else
  cmake --install "$1" --strip --prefix "$scratch/dist" > /dev/null
  mv "$scratch/dist" "$tree"
fi

env -i PATH=/usr/bin:/bin "$tree/bin/abtrain" --version
ln -s "$tree/bin/abtrain" "$scratch/link"
env -i PATH=/usr/bin:/bin "$scratch/link" --version

test -s "$tree/share/man/man1/abtrain.1"
for file in bash-completion/completions/abtrain zsh/site-functions/_abtrain fish/vendor_completions.d/abtrain.fish; do
  grep -q -e late-cut "$tree/share/$file"
done

program=$tree/libexec/abtrain/abtrain
[[ -x $program ]] || program=$tree/bin/abtrain
ldd "$program" > "$scratch/ldd.out"
for library in libstdc++ libgomp libjpeg libdnnl libopenblas libgfortran; do
  if grep -F "$library" "$scratch/ldd.out" | grep -vF "=> $tree/"; then
    echo "$library does not come from the tree" >&2
    exit 1
  fi
done
grep -qF "libstdc++.so.6 => $tree/" "$scratch/ldd.out"

if [[ $# -ge 3 ]]; then
  bytes=$(find "$tree" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
  smaller "the tree" "$bytes" "$3" || { find "$tree" -type f -printf '%s %P\n' | sort -rn | sed -n 1,10p >&2; exit 1; }
fi

cmake -S "$here/consumer" -B "$scratch/consumer" -DCMAKE_PREFIX_PATH="$tree" -DCMAKE_BUILD_TYPE=Release > /dev/null
cmake --build "$scratch/consumer"
"$scratch/consumer/consumer" | tee "$scratch/consumer.out"
grep -q '^loss 2' "$scratch/consumer.out"

# CIFAR-10's format: a label and 3072 bytes an image.
mkdir "$scratch/cifar10"
for file in data_batch_{1..5} test_batch; do
  for label in 0 3 6 9; do
    printf "\\x0$label"
    head -c 3072 /dev/urandom
  done > "$scratch/cifar10/$file.bin"
done
cd "$scratch"
export ABTRAIN_DATA_DIR=$scratch/cifar10
consumer/train | tee train.out
grep -q '^top-1 .* MB sent per rank$' train.out
test -s runs/mine/model.safetensors
consumer/train > again.out  # the run is complete
test ! -s again.out
