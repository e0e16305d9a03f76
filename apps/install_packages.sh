#!/usr/bin/env bash
# Installs what abtrain is built from, on Debian and Ubuntu, and the packages that are given as arguments; does nothing
# when all are there.
set -euo pipefail

# ocl-icd-opencl-dev: oneDNN's CMake file asks for OpenCL, and its package only recommends it.
packages=(cmake ninja-build g++ pkg-config
          libdnnl-dev ocl-icd-opencl-dev libopenblas-openmp-dev libfmt-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libxxhash-dev
          libjpeg-dev libstb-dev
          libopenmpi-dev openmpi-bin libgtest-dev libbenchmark-dev "$@")

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

command -v apt-get >/dev/null || {
  echo "install_packages.sh: this is not a Debian or Ubuntu system; please install: ${missing[*]}" >&2
  exit 1
}
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "install_packages.sh: neither root nor sudo; please have these packages installed: ${missing[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi
echo "Installing: ${missing[*]}"
log=$(mktemp)
{ "${as_root[@]}" apt-get update -qq &&
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
} >"$log" 2>&1 || { cat "$log" >&2; rm -f "$log"; exit 1; }
rm -f "$log"
