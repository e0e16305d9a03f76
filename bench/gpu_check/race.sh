# SPDX-License-Identifier: MIT
#
# A comparison with PyTorch for the speed parts to source: race NAME SECONDS MODEL CLASSES PIXELS BATCH CONTESTANTS.
# Its rows say what a contestant that could not take part waits for.

torch_reason=$("$PYTHON" -c 'import torch, torchvision
if "'"$device"'" == "cuda" and not torch.cuda.is_available(): print("waits for PyTorch on CUDA")' 2> /dev/null) ||
  torch_reason="waits for torch and torchvision in $PYTHON"
set -a
torch_reason=$torch_reason
race_device=$device
check_patience=$check_patience
race_words="--steps 10 --warmup 10 --rounds 6 --ready-limit 50"  # one that compiles for long leaves time for turns
[[ -z $tiny ]] || race_words="--steps 1 --warmup 1 --rounds 2 --ready-limit 900"
[[ -z $tiny || -z $torch_reason ]] || race_words="$race_words --width 0.25"

run_race() {  # SECONDS MODEL CLASSES PIXELS BATCH CONTESTANTS TRAIN_BENCH
  local contestants=$6 name
  if [[ -n $torch_reason ]]; then
    contestants=
    local IFS=,
    for name in $6; do
      if [[ $name == PyTorch* ]]; then echo "note: $name: $torch_reason"
      else contestants+=${contestants:+,}$name; fi
    done
    unset IFS
  fi
  # Some seconds are left to print.
  python3 "$peers/compare_train.py" --train-bench "$7" --model "$2" --classes "$3" --image-size "$4" --batch "$5" \
    --contestants "$contestants" --device "$race_device" --precision bf16 --optimizer fused --threads "$(nproc)" \
    $race_words --limit $(($1 * check_patience - 12)) | sed 's/^\(abtrain\|PyTorch\)/note: \1/'
}
set +a

race() { check_with train_bench "$1" "$2" run_race "$2" "${@:3}"; }
