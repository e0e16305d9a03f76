#!/usr/bin/env bash
# Installs what is missing, builds abtrain, trains dense data-parallel and AB-training side by side on four
# in-process ranks, and compares accuracy, bytes sent and time. A few minutes on two cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
  -h|--help)
    echo "usage: apps/quickstart.sh"
    echo "Uses the CIFAR-10 binaries in \$ABTRAIN_DATA_DIR when it is set (apps/fetch_cifar10.sh downloads them),"
    echo "otherwise the built-in synthetic images. Results go to runs/quickstart."
    exit 0 ;;
  '') ;;
  *) echo "quickstart.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
esac

apps/install_packages.sh
echo "Building (a few minutes the first time) ..."
cmake --preset default >/dev/null
cmake --build --preset default --target abtrain_program lowrank_tour

data=(--dataset synthetic)
if [ -n "${ABTRAIN_DATA_DIR:-}" ]; then
  data=(--dataset cifar10 --data-dir "$ABTRAIN_DATA_DIR")
fi
for method in dense ab; do
  echo
  echo "== $method: four ranks in one process"
  build/apps/abtrain train --config "apps/configs/quickstart_$method.toml" "${data[@]}" \
    --out "runs/quickstart/$method" --overwrite
done
echo
build/apps/abtrain compare runs/quickstart/dense runs/quickstart/ab --out runs/quickstart/report.html
echo
echo "Open runs/quickstart/report.html for the curves; build/apps/abtrain train --help shows every setting."
