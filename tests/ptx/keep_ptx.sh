#!/usr/bin/env bash
# Launches a compiler that makes an object of a kernel, and keeps the PTX that it makes on the way, of several architectures the
# newest, as OBJECT.ptx.
#   keep_ptx.sh nvcc … -o OBJECT
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$@" -keep -keep-dir "$folder"
while [ "$1" != -o ]; do shift; done
mv "$(ls -v "$folder"/*.ptx | tail -1)" "$2.ptx"
