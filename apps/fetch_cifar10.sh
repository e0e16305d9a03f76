#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Downloads CIFAR-10 (binary version, 162 MiB) and unpacks it. Nothing else in the project downloads anything.
set -eu

file=cifar-10-binary.tar.gz
url=${CIFAR10_URL:-https://www.cs.toronto.edu/~kriz/$file}
md5=c32a1d4ab5d03f1284b67883e8d87530
subfolder=cifar-10-batches-bin

usage() {
  cat <<END
usage: apps/fetch_cifar10.sh [FOLDER]

Downloads the binary version of CIFAR-10 (Krizhevsky, 2009), checks its MD5 sum and unpacks it to
FOLDER/$subfolder. FOLDER defaults to \$XDG_CACHE_HOME/abtrain or ~/.cache/abtrain.
An interrupted download is continued by the next call; a finished one is not repeated.
Needs curl or wget, 350 MB of space, and tar with gzip. CIFAR10_URL names a mirror of the archive.
END
}

die() {
  echo "fetch_cifar10: $*" >&2
  exit 1
}

# Whether folder $1 holds the six files in full.
is_complete() {
  for name in data_batch_1 data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch; do
    [ -f "$1/$name.bin" ] && [ "$(wc -c < "$1/$name.bin")" -eq 30730000 ] || return 1
  done
}

# Continues or starts the download to file $1.
download() {
  if command -v curl > /dev/null; then
    curl --fail --location --continue-at - --retry 3 --connect-timeout 20 --output "$1" "$url"
  elif command -v wget > /dev/null; then
    wget --continue --tries=3 --timeout=20 --output-document="$1" "$url"
  else
    die "needs curl or wget; install one of them, or fetch $url by other means and unpack it to $folder"
  fi
}

md5_of() {
  if command -v md5sum > /dev/null; then md5sum < "$1" | cut -d ' ' -f 1; else md5 -q "$1"; fi
}

explain_use() {
  echo "Use it with:   abtrain train --dataset cifar10 --data-dir '$folder'"
  echo "In the tests:  export ABTRAIN_DATA_DIR='$folder'"
}

[ $# -le 1 ] || { usage >&2; exit 2; }
case ${1:-} in
  -h | --help) usage; exit 0 ;;
  -*) echo "fetch_cifar10: unknown option '$1'" >&2; usage >&2; exit 2 ;;
esac
if [ -n "${1:-}" ]; then
  folder=$1
else
  [ -n "${XDG_CACHE_HOME:-${HOME:-}}" ] || die "neither XDG_CACHE_HOME nor HOME is set; name a folder"
  folder=${XDG_CACHE_HOME:-$HOME/.cache}/abtrain
fi

mkdir -p -- "$folder" || die "cannot create the folder '$folder'"
folder=$(cd -- "$folder" && pwd)
target=$folder/$subfolder
if is_complete "$target"; then
  echo "CIFAR-10 is already in $target; nothing was downloaded."
  explain_use
  exit 0
fi
[ ! -e "$target" ] || die "'$target' exists but is not complete; move it away and call again"

part=$folder/$file.part
if [ -f "$part" ] && [ "$(md5_of "$part")" = "$md5" ]; then
  echo "Using the finished download $part"
else
  echo "Downloading $url"
  download "$part" || die "the download of $url failed (see above).
The next call continues where this one stopped; to start over, delete '$part'.
Without a network, fetch the archive elsewhere and unpack it to '$folder'."
  sum=$(md5_of "$part")
  if [ "$sum" != "$md5" ]; then
    rm -f -- "$part"
    die "the download has the MD5 sum $sum, expected $md5; it was deleted.
Call again, or name another mirror in CIFAR10_URL."
  fi
fi

# Unpacked beside its place and moved there in one step: the folder is never there in part.
unpacked=$(mktemp -d "$folder/.unpack-XXXXXX")
trap 'rm -rf -- "$unpacked"' EXIT
trap 'exit 130' INT TERM HUP
tar -xzf "$part" -C "$unpacked" ||
  die "unpacking '$part' failed (see above); is there enough space in '$folder'?"
is_complete "$unpacked/$subfolder" ||
  die "the archive does not hold the six files of CIFAR-10; delete '$part' and call again"
mv -- "$unpacked/$subfolder" "$target"
rm -f -- "$part"

echo "CIFAR-10 is in $target: 50,000 training and 10,000 test images; the MD5 sum of the archive was right."
explain_use
