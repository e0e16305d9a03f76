#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Everything that needs a GPU, in one command and under 8 minutes: tests, compute-sanitizer, training on the GPU
# against the CPU, ranks that share the GPU, and speed beside PyTorch. Prints one table.
#   bench/gpu_check.sh [--build DIR] [--out DIR] [--only PATTERN] [--dry-run]
# Runs what is installed beside it, or a build (--build; build-cuda when not given). Logs go to --out ($OUT, or
# gpu_check). --only picks checks by name, 'train*'; --dry-run lists the checks and what would be skipped. PYTHON names
# the Python that has torch. Exit codes: 0 all passed, 1 a check failed, 2 wrong flags or no programs, 6 no GPU.
set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
fail() { echo "gpu_check.sh: $2" >&2; exit "$1"; }

build=$here/../build-cuda
check_logs=${OUT:-gpu_check} check_budget=470 check_only='*' check_dry_run=
while [[ $# -gt 0 ]]; do
  case $1 in
    --build | --out | --only)
      [[ $# -ge 2 ]] || fail 2 "$1 needs a value"
      case $1 in --build) build=$2 ;; --out) check_logs=$2 ;; --only) check_only=$2 ;; esac
      shift 2 ;;
    --dry-run) check_dry_run=1; shift ;;
    -h | --help) sed -n '3,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) fail 2 "unknown flag $1; --help lists the flags" ;;
  esac
done

if [[ -x $here/../../../bin/abtrain ]]; then
  folders=("$here/../../../bin")
elif [[ -x $build/apps/abtrain ]]; then
  folders=("$build/apps" "$build/tests" "$build/bench")
else
  fail 2 "there is no build of abtrain in $build; name one with --build"
fi

# The path of a program; fails when this build lacks it.
program() {
  local folder
  for folder in "${folders[@]}"; do
    if [[ -x $folder/$1 ]]; then
      readlink -f "$folder/$1"
      return
    fi
  done
  return 1
}

# This test is skipped without a GPU, and says why there is none.
reason_without_gpu() {
  local probe output
  probe=$(program cuda_device_test) || fail 2 "this build has no cuda_device_test; build the tests"
  output=$("$probe" --gtest_filter=CudaDevice.NamesAnIndexThatIsTooLarge 2>&1) || printf '%s\n' "$output"
  sed -n 's/^no GPU: //p' <<< "$output"
}
if [[ -z $check_dry_run ]]; then
  reason=$(reason_without_gpu)
  [[ -z $reason ]] || fail 6 "no GPU to check: $reason"
fi

mkdir -p "$check_logs"
check_logs=$(cd "$check_logs" && pwd)
. "$here/check_table.sh"

# What the checks call and read, exported to the shells that they run in.
set -a
logs=$check_logs
abtrain=$(program abtrain)
ABTRAIN_PROGRAM=$abtrain  # that device_test starts
peers=$here/peers
run_ranks=$here/run_ranks.sh
PYTHON=${PYTHON:-python3}

describe_device() {
  nvidia-smi
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,memory.total --format=csv,noheader |
    sed 's/^/note: /'
}

count_tests() {  # one at least must have run
  awk '
    { print } /^\[       OK \]/ { passed++ } /^\[  SKIPPED \].*ms\)$/ { skipped++ }
    END { printf "note: %d tests, %d skipped\n", passed, skipped; exit passed == 0 }'
}

run_tests() { "${@:2}" --gtest_color=no --gtest_filter="$1" | count_tests; }  # FILTER COMMAND...: none may fail

over_nccl() {  # COMMAND...: as two processes, which may have to share a GPU
  local status=0
  "$run_ranks" 2 "$@" 2>&1 | tee "$logs/nccl_ranks.txt" || status=$?
  if grep -q 'has no NCCL' "$logs/nccl_ranks.txt"; then
    echo "note: this build has no NCCL"
    exit 77
  fi
  return "$status"
}

comm_over_nccl() {  # COMM_TEST
  AB_TEST_NCCL=1 over_nccl "$1" --gtest_color=no --gtest_filter='*CommTest*'
  count_tests < "$logs/nccl_ranks.txt" | grep '^note:'
}

# At a learning rate that lets no rounding grow: at 0.05, runs on a CPU with other vector instructions are 0.1 apart.
train() {  # RUN FLAGS...: 20 steps into the run folder RUN
  "$abtrain" train --model resnet20 --dataset synthetic --data-dir "$logs/data" --val-samples 256 --batch-size 32 \
    --steps 20 --lr 0.001 --log-every 1 --overwrite --out "$logs/$1" "${@:2}"
}
train_ab() { train "$@" --method ab --ab.warmup-steps 5; }

losses() { sed -n 's/.*"kind":"step".*"loss":\([^,]*\).*/\1/p' "$logs/$1/metrics.jsonl"; }

same_losses() {  # RUN RUN
  paste <(losses "$1") <(losses "$2") | awk '
    { difference = $1 > $2 ? $1 - $2 : $2 - $1; if (!(difference <= worst)) worst = difference }
    END { printf "note: losses of %d steps differ by %.1e at most\n", NR, worst; exit !(NR >= 20 && worst <= 1e-3) }'
}

# What depends neither on rounding nor on time: ranks r, steps of every phase, bytes.
ledger() { sed -n '/"parameters_full"/,$p' "$logs/$1/summary.json"; }

same_run() {  # RUN RUN
  diff <(ledger "$1") <(ledger "$2")
  same_losses "$1" "$2"
}

train_dense_on_gpu() {
  train dense_cpu
  train dense_cuda --device cuda
  same_run dense_cpu dense_cuda
}

train_ab_on_gpu() {
  train_ab ab_cpu --ranks 4
  train_ab ab_cuda --ranks 4 --device cuda
  same_run ab_cpu ab_cuda
}

train_ab_over_nccl() {
  train_ab nccl_cpu --ranks 2
  over_nccl bash -c 'train_ab nccl_cuda --device cuda --share-gpu --rendezvous "$AB_RENDEZVOUS"'
  same_run nccl_cpu nccl_cuda
}

beside_torch() {  # MODEL, eager or compiled, TRAIN_BENCH
  local flags=(--optimizer fused)
  [[ $2 == eager ]] || flags+=(--compile)
  TRAIN_BENCH=$3 "$peers/compare_train.sh" --device cuda --precision bf16 --model "$1" --batch 512 --rounds 1 --steps 50 --warmup 10 -- \
    "${flags[@]}" | sed 's/^median: */note: /'
}

factored() {  # FACTORED_BENCH
  "$1" --device cuda --precision bf16 --model vgg16_bn_cifar --image-size 32 --batch 512 --ratios 0.25 --rounds 20 |
    awk -F'|' '{ print } /^\| 1\/4/ { printf "note: step with factors over dense step: A%sB%s\n", $3, $5 }'
}

operations() { "$1" --benchmark_min_time=0.05; }  # OP_BENCH
set +a

check_with() {  # PROGRAM NAME SECONDS COMMAND...: the command gets the program's path as its last argument
  local path
  if path=$(program "$1"); then check "${@:2}" "$path"
  else skip "$2" "this build has no $1"; fi
}

sanitizer=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v compute-sanitizer || true)
sanitize() {  # TOOL PROGRAM FILTER
  if [[ -z $sanitizer ]]; then skip "$1" "compute-sanitizer is not installed"
  else check_with "$2" "$1" 90 run_tests "$3" "$sanitizer" --tool "$1" --error-exitcode 1 --target-processes all; fi
}

check device 10 describe_device
check_with cuda_device_test cuda_device_test 30 run_tests '*'
check_with batch_feed_test batch_feed_test 30 run_tests '*'
check_with device_test device_test 90 run_tests '*'
check_with graph_test graph_test 60 run_tests '*'
check_with op_test op_test 90 run_tests '*Gpu*'
check_with activation_grad_test activation_grad_test 60 run_tests '*'
check_with summed_conv_test summed_conv_test 60 run_tests '*'
check_with cudnn_plan_test cudnn_plan_test 120 run_tests '*'
check_with comm_test comm_test 60 run_tests '*'
check_with comm_test comm_test_nccl 90 comm_over_nccl
own_kernels='*Gpu*/*norm*:*Gpu*/*pool*:*Gpu*/softmax*'
sanitize memcheck op_test "$own_kernels"
sanitize racecheck op_test "$own_kernels"

check train_dense 60 train_dense_on_gpu
check train_ab_4_threads 90 train_ab_on_gpu
check train_ab_2_nccl 90 train_ab_over_nccl

check_beside_torch() {  # eager or compiled, SECONDS
  local model
  for model in vgg16_bn_cifar resnet56; do
    if ! "$PYTHON" -c 'import torch, torchvision' 2> /dev/null; then
      skip "${model}_$1" "$PYTHON cannot import torch and torchvision"
    else
      check_with train_bench "${model}_$1" "$2" beside_torch "$model" "$1"
    fi
  done
}
check_beside_torch eager 90
check_with factored_bench factored_bench 40 factored
check_with op_bench op_bench 60 operations
# Last, with what is left of the budget: PyTorch tries many kernels for every layer before it trains.
check_beside_torch compiled 150

print_table | tee "$logs/table.txt"
