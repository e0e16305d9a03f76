#!/usr/bin/env bash
# Trains for some minutes while everything fails that can, and checks that nothing is lost and nothing hangs:
#   tests/soak.sh                     one minute, with the program in build/
#   tests/soak.sh 240 build-asan 7    four hours, with another build, with another seed
# It says what failed, where and how often. What it checks after each fault: tests/soak/soak.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec python3 tests/soak/soak.py --minutes "${1:-1}" --build "${2:-build}" --seed "${3:-1}"
