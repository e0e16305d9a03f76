#!/usr/bin/env bash
# How much communication delays a step, measured twice: the time that ranks wait in collectives, and the time of a step
# less that of the same step without a network. Two MPI ranks with a core each, on a virtual network; gradients in
# buckets that leave during backward, and in one that leaves after it. Runs take turns, so that all see the same load.
#   bench/exposed.sh [--build FOLDER] [--rounds N] [--network WORDS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build rounds=3 network="latency=1ms,bandwidth=1Gbps"
while [ $# -gt 0 ]; do
  case "$1" in
    -h|--help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --build) build=$2 ;;
    --rounds) rounds=$2 ;;
    --network) network=$2 ;;
    *) echo "exposed.sh: unknown argument $1" >&2; exit 2 ;;
  esac
  shift 2
done

runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
train() {  # NAME FLAGS…
  local name=$1
  shift
  mpirun --oversubscribe --allow-run-as-root -np 2 "$build/apps/abtrain" train --model vgg16_bn --width 0.25 \
    --dataset synthetic --data-dir "$runs/data" --train-samples 4096 --val-samples 64 --steps 60 --batch-size 32 \
    --threads 1 --ranks-per-node 1 --eval-every 0 --out "$runs/$name" "$@" >/dev/null
}
for round in $(seq "$rounds"); do
  train "buckets_$round" --network "$network"
  train "fused_$round" --network "$network" --bucket-mb 1024
  train "free_$round"
done

python3 - "$runs" "$rounds" "$network" <<'PYTHON'
import json, statistics, sys
runs, rounds, network = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def per_step(kind, value):
    figures = []
    for i in range(1, rounds + 1):
        summary = json.load(open(f"{runs}/{kind}_{i}/summary.json"))
        figures.append(1000 * value(summary) / summary["steps"])
    return statistics.median(figures)
print(f"ms a step, median of {rounds} runs, two MPI ranks with a core each, {network}")
print(f"{'gradients':<28}{'step':>8}{'waiting':>9}{'step less that without a network':>35}")
free = per_step("free", lambda s: s["train_seconds"])
for kind, name in ("buckets", "in buckets during backward"), ("fused", "in one after backward"), ("free", "without a network"):
    step = per_step(kind, lambda s: s["train_seconds"])
    waiting = per_step(kind, lambda s: s["waiting_seconds_by_phase"]["full"])
    print(f"{name:<28}{step:8.1f}{waiting:9.1f}{step - free:35.1f}")
PYTHON
