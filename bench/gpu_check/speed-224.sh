# SPDX-License-Identifier: MIT
#
# Training steps at 224 pixels beside PyTorch, both with 1000 classes and the same batch. Sourced by gpu_check.sh.

. "$here/gpu_check/race.sh"

pixels=224 batch=128
if [[ -n $tiny ]]; then pixels=32 batch=2; fi
# All who race hold their memory at once: of VGG16, 20 to 30 GB each.
for model in resnet50 vgg16_bn vit_b_16; do
  race "$model" 115 "$model" 1000 "$pixels" "$batch" "abtrain,PyTorch,PyTorch compiled"
done
if [[ $device == cuda ]]; then
  for model in resnet50 vgg16_bn; do
    race "${model}_ways" 60 "$model" 1000 "$pixels" "$batch" "abtrain,abtrain without graph,abtrain --autotune"
    race "${model}_tf32" 30 "$model" 1000 "$pixels" "$batch" "abtrain tf32,PyTorch tf32"
  done
fi
