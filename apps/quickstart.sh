#!/usr/bin/env bash
# Installs what is missing, builds abtrain, trains dense data-parallel, by AB-training and with a late cut side by side on
# four in-process ranks, and compares accuracy, bytes sent and time. A few minutes on two cores; with --full half an hour or more.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

full=
case "${1:-}" in
  -h|--help)
    echo "usage: apps/quickstart.sh [--full]"
    echo "Uses the CIFAR-10 binaries in \$ABTRAIN_DATA_DIR when it is set (apps/fetch_cifar10.sh downloads them),"
    echo "otherwise the built-in synthetic images. Results go to runs/quickstart."
    echo "--full: abtrain reproduce cifar10_94 instead, twelve epochs of CIFAR-10 in runs/cifar10_94; needs \$ABTRAIN_DATA_DIR."
    exit 0 ;;
  --full)
    [ -n "${ABTRAIN_DATA_DIR:-}" ] || { echo "quickstart.sh: --full needs ABTRAIN_DATA_DIR, the folder of the CIFAR-10 binaries" >&2; exit 2; }
    full=yes ;;
  '') ;;
  *) echo "quickstart.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
esac

apps/install_packages.sh

# A driver tells that there is a GPU to train on; nvcc alone does not, and compiling for a GPU takes twice as long.
has_nvidia_driver() { [ -e /proc/driver/nvidia/version ] || nvidia-smi -L >/dev/null 2>&1; }

settings=()
if [ -f build/CMakeCache.txt ]; then
  echo "Building, with the settings that build/ has ..."
elif has_nvidia_driver; then
  echo "Building (a few minutes the first time) ..."
else
  echo "Building for the CPU, since there is no NVIDIA driver here (a few minutes the first time) ..."
  settings=(-DAB_WITH_CUDA=OFF)
fi
cmake --preset default "${settings[@]}" >/dev/null
cmake --build --preset default --target abtrain_program lowrank_tour

if [ -n "$full" ]; then exec build/apps/abtrain reproduce cifar10_94 --data-dir "$ABTRAIN_DATA_DIR" --out runs/cifar10_94; fi
data=(--dataset synthetic)
if [ -n "${ABTRAIN_DATA_DIR:-}" ]; then
  data=(--dataset cifar10 --data-dir "$ABTRAIN_DATA_DIR")
fi
for method in dense ab late-cut; do
  echo
  echo "== $method: four ranks in one process"
  build/apps/abtrain train --config "apps/configs/quickstart_${method//-/_}.toml" "${data[@]}" --out "runs/quickstart/$method" \
    --overwrite
done
echo
build/apps/abtrain compare runs/quickstart/{dense,ab,late-cut} --out runs/quickstart/report.html
echo
echo "Open runs/quickstart/report.html for the curves; build/apps/abtrain train --help-all shows every setting."
