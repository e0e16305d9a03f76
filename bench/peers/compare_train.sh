#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Training speed of abtrain and PyTorch on the same step, interleaved so that both meet the same machine.
#   PYTHON=~/venv/bin/python bench/peers/compare_train.sh [--rounds 5] [--model vgg16_bn_cifar] [--batch 128]
#                            [--device cpu] [--precision fp32] [--threads 2] [--steps 10] [--warmup 3]
#                            [-- torch_train.py flags, e.g. --compile]
# Prints both programs' images per second and their ratio per round, then the medians. The default layout of
# PyTorch is channels_last, its fastest on CPUs. TRAIN_BENCH names another build's program.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-python3}
train_bench=${TRAIN_BENCH:-$root/build/bench/train_bench}
rounds=5 model=vgg16_bn_cifar batch=128 device=cpu precision=fp32 threads=2 steps=10 warmup=3
while [[ $# -gt 0 ]]; do
  case $1 in
    --rounds | --model | --batch | --device | --precision | --threads | --steps | --warmup)
      [[ $# -ge 2 ]] || { echo "compare_train.sh: $1 needs a value" >&2; exit 2; }
      printf -v "${1#--}" '%s' "$2"
      shift 2 ;;
    --) shift; break ;;
    -h | --help) sed -n '3,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "compare_train.sh: unknown flag $1; --help lists the flags" >&2; exit 2 ;;
  esac
done
[[ -x $train_bench ]] || { echo "compare_train.sh: $train_bench is missing; build the preset default first" >&2; exit 2; }
"$python" -c 'import torch' 2> /dev/null ||
  { echo "compare_train.sh: $python cannot import torch; set PYTHON to one that can" >&2; exit 2; }

flags=(--model "$model" --batch "$batch" --device "$device" --precision "$precision" --threads "$threads" --steps "$steps" --warmup "$warmup")
ours=()
[[ $device != cuda ]] || ours=(--autotune)  # torch_train.py sets cudnn.benchmark
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
echo "$model, batch $batch, $device, $precision, $threads threads, $steps steps a round, load $(cut -d' ' -f1-3 /proc/loadavg)"
for ((round = 1; round <= rounds; ++round)); do
  OMP_NUM_THREADS=$threads "$train_bench" "${flags[@]}" "${ours[@]}" >> "$lines"
  "$python" "$root/bench/peers/torch_train.py" "${flags[@]}" --layout channels_last "$@" >> "$lines"
  "$python" - "$round" "$lines" << 'PYTHON'
import json, sys
ours, peer = [json.loads(line) for line in open(sys.argv[2])][-2:]
a, b = ours["images_per_second_median"], peer["images_per_second_median"]
print(f"round {sys.argv[1]}: abtrain {a:7.1f} images/s, torch {b:7.1f} images/s, ratio {a / b:.2f}", flush=True)
PYTHON
done
"$python" - "$lines" << 'PYTHON'
import json, statistics, sys
runs = [json.loads(line) for line in open(sys.argv[1])]
ours, peer = runs[::2], runs[1::2]
speed = lambda side: [r["images_per_second_median"] for r in side]
a, b = statistics.median(speed(ours)), statistics.median(speed(peer))
ratio = statistics.median(x / y for x, y in zip(speed(ours), speed(peer)))
compiled = ", compiled" if peer[0]["compile"] else ""
print(f"median:  abtrain {a:7.1f} images/s, torch {b:7.1f} images/s, ratio of a round {ratio:.2f}")
print(f"PyTorch {peer[0]['version']}, {peer[0]['layout']}{compiled}; {statistics.median(r['busy_threads'] for r in peer):.2f} threads busy")
PYTHON
