#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What only a GPU can tell, in three parts that each end within 9 minutes on one GPU and 16 processors:
#   bench/gpu_check.sh correctness    tests, training beside the CPU, ranks that share the GPU, stop and resume, sanitizer
#   bench/gpu_check.sh speed-224      ResNet-50, VGG16-BN and ViT-B/16 at 224 pixels beside PyTorch
#   bench/gpu_check.sh speed-rest     networks for 32 pixels beside PyTorch, steps with factors, the SVD of ResNet-50
# --out DIR gets table_PART.txt, a line as soon as it is known, and logs_PART.tar.gz (DIR: gpu_check when not given).
# Flags: --build DIR   runs the programs of a build (build-cuda when not given) where none are installed beside this
#        --only NAMES  picks checks by a pattern, 'train*'; --dry-run lists them with their limits and runs nothing
#        --budget SECONDS  for all checks together, 530 when not given; what it cuts off is written down too
#        --data DIR    trains on CIFAR-10's binary files, of any number of records; synthetic images when not given
#        --tiny        tiny models, images and batches, and ten times the limits: a rehearsal, as on tests/ptx
#        --device cpu  the speed parts without a GPU, to try both sides of each comparison
# PYTHON names the Python that has torch and torchvision. bench/README.md has the plan for half an hour with a GPU.
# Exit codes: 0 all passed, 1 a check failed, 2 wrong flags or no programs, 6 no GPU.
set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
fail() { echo "gpu_check.sh: $2" >&2; exit "$1"; }

part='' build=$here/../build-cuda out=gpu_check data='' tiny='' device=cuda
check_budget=530 check_patience=1 check_only='*' check_dry_run=
while [[ $# -gt 0 ]]; do
  case $1 in
    correctness | speed-224 | speed-rest)
      [[ -z $part ]] || fail 2 "one part at a time: $part or $1"
      part=$1; shift ;;
    --build | --out | --only | --data | --device | --budget)
      [[ $# -ge 2 ]] || fail 2 "$1 needs a value"
      case $1 in
        --build) build=$2 ;; --out) out=$2 ;; --only) check_only=$2 ;; --data) data=$2 ;; --device) device=$2 ;;
        --budget) check_budget=$2 ;;
      esac
      shift 2 ;;
    --dry-run) check_dry_run=1; shift ;;
    --tiny) tiny=1 check_patience=10; shift ;;
    -h | --help) sed -n '3,16s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) fail 2 "unknown flag or part $1; --help lists both" ;;
  esac
done
[[ -n $part ]] || fail 2 "give a part: correctness, speed-224 or speed-rest"
[[ $device == cuda || $device == cpu ]] || fail 2 "--device is cuda or cpu, not $device"
[[ $device == cuda || $part != correctness ]] || fail 2 "correctness compares a GPU with the CPU: it has no --device cpu"
[[ $check_budget =~ ^[1-9][0-9]*$ ]] || fail 2 "--budget is a number of seconds, not $check_budget"
[[ -z $data || -d $data ]] || fail 2 "there is no folder $data"

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
  probe=$(program engine_tests) || fail 2 "this build has no engine_tests; build the tests"
  output=$("$probe" --gtest_filter=CudaDevice.NamesAnIndexThatIsTooLarge 2>&1) || printf '%s\n' "$output"
  sed -n 's/^no GPU: //p' <<< "$output"
}
if [[ -z $check_dry_run && $device == cuda ]]; then
  reason=$(reason_without_gpu)
  [[ -z $reason ]] || fail 6 "no GPU to check: $reason"
fi

scratch=$(mktemp -d)
check_logs=$scratch/logs
mkdir "$check_logs"
check_table=/dev/null
if [[ -z $check_dry_run ]]; then
  mkdir -p "$out"
  out=$(cd "$out" && pwd)
  check_table=$out/table_$part.txt
fi
# The logs come along even where the part is ended from outside.
pack() {
  [[ -n $check_dry_run ]] || tar -C "$scratch" -czf "$out/logs_$part.tar.gz" logs
  rm -rf "$scratch"
}
trap pack EXIT
trap 'exit 143' INT TERM

. "$here/gpu_check/table.sh"

# What checks of every part read, exported to the shells that they run in.
set -a
scratch=$scratch
tiny=$tiny
abtrain=$(program abtrain)
ABTRAIN_PROGRAM=$abtrain  # which train_tests starts
run_ranks=$here/run_ranks.sh
peers=$here/peers
PYTHON=${PYTHON:-python3}
OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}  # programs that wait for their turn leave the processors alone
set +a

check_with() {  # PROGRAM NAME SECONDS COMMAND...: the command gets the program's path as its last argument
  local path
  if path=$(program "$1"); then check "${@:2}" "$path"
  else skip "$2" "waits for a build with $1"; fi
}

describe_device() {
  if ! command -v nvidia-smi > /dev/null; then
    echo "note: waits for nvidia-smi"
    exit 77
  fi
  nvidia-smi
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,memory.total --format=csv,noheader |
    sed 's/^/note: /'
}
export -f describe_device

begin_table
[[ $device == cpu ]] || check device 5 describe_device
. "$here/gpu_check/$part.sh"
end_table
