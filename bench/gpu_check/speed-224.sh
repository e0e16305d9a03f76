# SPDX-License-Identifier: MIT
#
# Training steps at 224 pixels beside PyTorch, both with 1000 classes and the same batch. Sourced by gpu_check.sh.

. "$here/gpu_check/race.sh"

pixels=224 batch=128
if [[ -n $tiny ]]; then pixels=32 batch=2; fi
# All who race hold their memory at once: of VGG16 ours 23 GB in bf16 and 30 in tf32, by the plan.
race_at_224() { race "$1" "$2" "$3" 1000 "$pixels" "$batch" "$4"; }  # NAME SECONDS MODEL CONTESTANTS
race_at_224 resnet50 125 resnet50 "abtrain,PyTorch,PyTorch compiled"
race_at_224 vgg16_bn 105 vgg16_bn "abtrain,PyTorch,PyTorch compiled"
if [[ $device == cuda ]]; then
  race_at_224 resnet50_ways 80 resnet50 "abtrain,abtrain without graph,abtrain --autotune"
  race_at_224 resnet50_tf32 35 resnet50 "abtrain tf32,PyTorch tf32"
  if [[ -z $tiny ]]; then
    race_at_224 vgg16_bn_ways 50 vgg16_bn "abtrain,abtrain without graph,abtrain --autotune"
    race_at_224 vgg16_bn_tf32 35 vgg16_bn "abtrain tf32,PyTorch tf32"
  fi
fi
race_at_224 vit_b_16 95 vit_b_16 "abtrain,PyTorch,PyTorch compiled"
