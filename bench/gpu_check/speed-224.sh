# SPDX-License-Identifier: MIT
#
# Training steps at 224 pixels beside PyTorch, both with 1000 classes and the same batch. Sourced by gpu_check.sh.

. "$here/gpu_check/race.sh"

pixels=224 batch=128
if [[ -n $tiny ]]; then pixels=32 batch=2; fi
everyone="abtrain,abtrain without graph,abtrain --autotune,abtrain tf32,PyTorch,PyTorch compiled,PyTorch tf32"
[[ $device == cuda ]] || everyone="abtrain,PyTorch,PyTorch compiled"
for model in resnet50 vgg16_bn vit_b_16; do
  race "$model" 170 "$model" 1000 "$pixels" "$batch" "$everyone"
done
