# SPDX-License-Identifier: MIT
#
# Is what the GPU computes right? Sourced by gpu_check.sh, in the order in which a run that is cut short tells most: the device
# itself, what was assumed without one (plans of cuDNN), operations, training beside the CPU; then what is slower or matters
# to fewer, the sanitizer last.

set -a
data_set=synthetic data_folder=$scratch/synthetic
if [[ -n $data ]]; then
  data_set=cifar10 data_folder=$data
elif [[ -n $tiny && -z $check_dry_run ]]; then
  data_set=cifar10 data_folder=$scratch/noise
  mkdir "$data_folder"
  python3 - "$data_folder" <<'PYTHON'
import random, sys
random.seed(1)
for name in ["test_batch", *(f"data_batch_{i}" for i in range(1, 6))]:
    with open(f"{sys.argv[1]}/{name}.bin", "wb") as file:
        for i in range(40):
            file.write(bytes([i % 10]) + random.randbytes(3072))
PYTHON
fi

# 100 steps that end among factors, after two synchronisations. At a learning rate that lets no rounding grow.
train_steps=100 size_words="--batch-size 32" cycle_words="--ab.first-split 30 --ab.cycle-steps 30"
[[ -z $tiny ]] || train_steps=12 size_words="--width 0.125 --batch-size 4 --seed 1" cycle_words="--ab.first-split 3 --ab.cycle-steps 4"
train_words="--val-samples 256 --lr 0.001 --log-every 1 --overwrite"

# Losses of the CPU and the GPU may be this far apart; what a cut drops lets rounding grow.
loss_distance=0.005 loss_distance_of_cuts=0.01
[[ -z $tiny ]] || loss_distance=0.05 loss_distance_of_cuts=0.05  # batch norms over four images let rounding grow; with seed 0 it opens a ReLU

count_tests() {  # one at least must have run, but in a rehearsal
  awk -v tiny="$tiny" '
    { print }
    /^\[       OK \]/ { passed++ }
    /^\[  SKIPPED \].*ms\)$/ { skipped++; if (why == "") why = last }
    { last = $0 }
    END {
      if (passed > 0) printf "note: %d tests, %d skipped\n", passed, skipped
      else if (tiny) printf "note: waits for a GPU and its libraries (%s)\n", why
      exit passed > 0 ? 0 : tiny ? 77 : 1
    }'
}

run_tests() { "${@:2}" --gtest_color=no --gtest_filter="$1" | count_tests; }  # FILTER COMMAND...: none may fail

over_nccl() {  # COMMAND...: as two processes, which may have to share a GPU
  local status=0
  "$run_ranks" 2 "$@" 2>&1 | tee "$check_folder/nccl_ranks.txt" || status=$?
  if grep -q 'has no NCCL' "$check_folder/nccl_ranks.txt"; then
    echo "note: waits for a build with NCCL"
    exit 77
  fi
  return "$status"
}

comm_over_nccl() {  # COMM_TESTS
  AB_TEST_NCCL=1 over_nccl "$1" --gtest_color=no --gtest_filter='*CommTest*'
  count_tests < "$check_folder/nccl_ranks.txt" | grep '^note:'
}

train() {  # RUN MODEL FLAGS...: into the run folder RUN; in place of this shell where in_place is set
  ${in_place:+exec} "$abtrain" train --steps "$train_steps" --model "$2" --dataset "$data_set" --data-dir "$data_folder" $size_words $train_words --out "$check_folder/$1" "${@:3}"
}

# Ranks r that the loss chooses may differ by rounding, so they are given; multiples and products are the same on both devices.
groups="--method ab --rank-multiple 8 --execution factors $cycle_words --ab.full-rank-steps 2"
cut="--method late-cut --rank-multiple 8 --execution factors --late-cut.rank-policy ratio --late-cut.keep 0.25
  --comm-dtype fp32"

losses() { sed -n 's/.*"kind":"step".*"loss":\([^,]*\).*/\1/p' "$check_folder/$1/metrics.jsonl"; }

# What depends neither on rounding nor on time: ranks r, steps of every phase, bytes.
ledger() { sed -n '/"parameters_full"/,$p' "$check_folder/$1/summary.json"; }

same_run() {  # RUN RUN [DISTANCE]
  diff <(ledger "$1") <(ledger "$2")
  paste <(losses "$1") <(losses "$2") | awk -v limit="${3:-$loss_distance}" '
    { difference = $1 > $2 ? $1 - $2 : $2 - $1; if (!(difference <= worst)) worst = difference }
    END { printf "note: losses of %d steps differ by %.1e at most (limit %g)\n", NR, worst, limit
          exit !(NR >= 10 && worst <= limit) }'
}

train_on_both() {  # MODEL WORDS [DISTANCE]
  train cpu "$1" $2 --ranks 4 --device cpu
  train cuda "$1" $2 --ranks 4 --device cuda
  same_run cpu cuda "${3:-}"
}

train_over_nccl() {
  train threads resnet20 $groups --ranks 2 --device cpu
  over_nccl bash -c 'train nccl resnet20 $groups --device cuda --share-gpu --rendezvous "$AB_RENDEZVOUS"'
  same_run threads nccl
}

# Stops a run on the GPU among factors, goes on, and expects the run that never stopped, to the last bit.
stop_and_resume() {
  local flags=($groups --ranks 2 --device cuda --deterministic) process status=0 steps
  ((train_steps *= 5))  # long enough to be stopped on the way
  train whole resnet20 "${flags[@]}"
  in_place=1 train stopped resnet20 "${flags[@]}" > "$check_folder/stopped.out" 2>&1 &
  process=$!
  until [[ $(losses stopped 2> /dev/null | wc -l) -ge 5 ]]; do sleep 0.02; kill -0 "$process" || break; done
  kill -TERM "$process" || true
  wait "$process" || status=$?
  [[ $status == 75 ]] || { cat "$check_folder/stopped.out"; echo "the run ended with $status, not with 75"; return 1; }
  steps=$(losses stopped | wc -l)
  "$abtrain" train --resume "$check_folder/stopped"
  same_run whole stopped 0
  echo "note: stopped after $steps steps"
}
set +a

op_filter='*OpTest.*Gpu*:Loss.*Gpu*:FusedRelu*Gpu*:GpuGemm.*:*Select*Gpu*:FusedUpdate.*Gpu*:SvdLaws.*Gpu*' device_filter='DeviceTest.*-*AResidualNetwork*'  # which is trained below
if [[ -n $tiny ]]; then op_filter='*GpuMatchesCpu/linear*' device_filter='*DenseOnOneRank'; fi
check_with engine_tests cuda_device_test 10 run_tests 'CudaDevice.*:CudaMemory.*:UploadSlot.*'
check_with engine_tests cudnn_plan_test 30 run_tests '*Cudnn*:FusedAttention.*' env -u LD_PRELOAD
check_with engine_tests op_test 20 run_tests "$op_filter"
check_with train_tests graph_test 10 run_tests 'GpuGraph.*:Graph.*:GraphPool.*:GraphUse.*'
check_with train_tests device_test 30 run_tests "$device_filter"

check train_resnet20_dense 20 train_on_both resnet20 "--method dense"
check train_vgg16_dense 60 train_on_both vgg16_bn_cifar "--method dense"
check train_resnet20_groups 25 train_on_both resnet20 "$groups"
check train_vgg16_groups 60 train_on_both vgg16_bn_cifar "$groups"
check train_resnet20_late_cut 25 train_on_both resnet20 "$cut" "$loss_distance_of_cuts"
check stop_and_resume 20 stop_and_resume

check_with engine_tests cudnn_plans_compiled 60 run_tests 'CompiledPlan.*' env -u LD_PRELOAD
check_with engine_tests activation_grad_test 10 run_tests 'ActivationGrad.*'
check_with engine_tests summed_conv_test 30 run_tests 'SummedConv.*'
check_with data_tests batch_feed_test 5 run_tests 'BatchFeed.*:FinishImages.*'
check_with comm_tests comm_test 10 run_tests '*CommTest*'
check_with comm_tests comm_test_nccl 30 comm_over_nccl
check train_2_nccl 25 train_over_nccl

sanitizer=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v compute-sanitizer || true)
sanitize() {  # TOOL FILTER SECONDS
  if [[ -z $sanitizer ]]; then skip "$1_op_test" "waits for compute-sanitizer"
  elif [[ -n $tiny ]]; then skip "$1_op_test" "waits for a GPU"
  else check_with engine_tests "$1_op_test" "$3" run_tests "$2" "$sanitizer" --tool "$1" --error-exitcode 1 --report-api-errors no --target-processes all; fi
}
own_kernels='*OpTest.*Gpu*/*norm*:*OpTest.*Gpu*/*pool*:*OpTest.*Gpu*/softmax*'
sanitize memcheck "$own_kernels" 25
