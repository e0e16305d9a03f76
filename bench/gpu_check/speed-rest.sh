# SPDX-License-Identifier: MIT
#
# Training steps at 32 pixels beside PyTorch, steps with factors beside steps at full rank, and the singular value
# decompositions of ResNet-50 beside torch.linalg.svd. Sourced by gpu_check.sh.

. "$here/gpu_check/race.sh"

everyone="abtrain,abtrain without graph,abtrain --autotune,PyTorch,PyTorch compiled"
[[ $device == cuda ]] || everyone="abtrain,PyTorch,PyTorch compiled"
small_batch=512 pixels=224 batch=128 factored_rounds=6 ratios="0.5 0.25 0.125" svd_model=resnet50
if [[ -n $tiny ]]; then small_batch=2 pixels=32 batch=2 factored_rounds=1 ratios=0.25 svd_model=resnet18; fi

set -a
factored_words="--ratios $ratios --rounds $factored_rounds --device $device --precision bf16"
[[ -z $tiny ]] || factored_words="$factored_words --width 0.25"
factored() {  # MODEL CLASSES PIXELS BATCH FACTORED_BENCH
  "$5" --model "$1" --classes "$2" --image-size "$3" --batch "$4" $factored_words | awk -F'|' '
    { print }
    /at full rank/ { print "note: " $0 }
    /^\| 1\// {
      gsub(/ /, "")
      printf "note: r/n = %s: A ranks %s, B ranks %s, both %s of the step at full rank; with W formed %s, %s and %s\n", $2, $3, $5, $7, $4, $6, $8
    }'
}

svd_words="--model $svd_model --device $device --threads $(nproc)"
print_seconds() {  # of a line of svd_bench or torch_svd.py
  python3 -c '
import json, statistics, sys
run = json.loads(sys.stdin.read())
print("note: %.3f s for %d matrices, reconstructed within %.0e of the largest entry" % (
    statistics.median(run["seconds"]), run["matrices"], run["error"]))'
}
svd() { "$2" $svd_words ${tiny:+--width 0.25} --rounds "$1" | print_seconds; }  # ROUNDS SVD_BENCH
svd_torch() {
  if [[ -n $torch_reason ]]; then
    echo "note: $torch_reason"
    exit 77
  fi
  "$PYTHON" "$peers/torch_svd.py" $svd_words --rounds 1 | print_seconds
}
set +a

race resnet56 100 resnet56 10 32 "$small_batch" "$everyone"
race vgg16_bn_cifar 100 vgg16_bn_cifar 10 32 "$small_batch" "$everyone"
check_with factored_bench factored_resnet50 65 factored resnet50 1000 "$pixels" "$batch"
check_with factored_bench factored_vgg16_cifar 45 factored vgg16_bn_cifar 10 32 "$small_batch"
check_with factored_bench factored_vit_b_16 65 factored vit_b_16 1000 "$pixels" "$batch"
check_with svd_bench svd_gram 20 svd 3
check svd_torch 60 svd_torch
