#!/usr/bin/env bash
# Installs what is missing, builds abtrain and runs its tests. Arguments go to ctest: tests/run.sh -L fast
# Tests on real data use the CIFAR-10 binaries in $ABTRAIN_DATA_DIR and skip without it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${ABTRAIN_PRESET:-default}
apps/install_packages.sh
cmake --preset "$preset" -DAB_BUILD_TESTS=ON >/dev/null
cmake --build --preset "$preset"
ctest --preset "$preset" "$@"
