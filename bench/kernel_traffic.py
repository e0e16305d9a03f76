#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What our own kernels read and write in a training step of a GPU, without one: a table in Markdown.

    cmake -S . -B build-emulated -DCMAKE_BUILD_TYPE=Release -DAB_EMULATE_GPU=ON -DAB_WITH_CUDA=OFF
    cmake --build build-emulated --target train_bench
    bench/kernel_traffic.py --build build-emulated [--by-kernel]

Counted on the emulated GPU from the pages that each kernel touches (engine/device/emulated_gpu/kernel_traffic.h), in bf16
with images of 224 × 224, at 2 and at 4 images; what grows with the images is scaled to 256. What cuDNN and cuBLASLt read
and write is not in it.
"""

import argparse
import collections
import json
import re
import subprocess
import sys

import build_folder

MODELS = {"resnet50": "ResNet-50", "vgg16_bn": "VGG16-BN", "vit_b_16": "ViT-B/16"}
GROUPS = [  # the first that fits
    ("optimizer", "Update"),
    ("casts of weights and their gradients", r"Same<float>"),
    ("layer norm", "LayerNorm"),
    ("batch norm", "Normalise|ChunkMoments|MergeMoments|ChunkGradSums<|MergeGradSums"),
    ("sums of two tensors", r"Add<|Axpy<"),
    ("softmax of attention", "Softmax(?!CrossEntropy)"),
    ("activations", "Relu|Gelu|Activation"),
    ("pooling", "Pool"),
    ("bias sums", "ColumnSums|ColumnPartials"),
    ("copies and zeros", "^(copy|zero)$"),
    ("the rest", ""),
]


def kernels(build, model, images):
    """By name of the kernel: bytes read, bytes written, launches."""
    command = [f"{build}/bench/train_bench", "--model", model, "--batch", str(images), "--image-size", "224", "--classes", "1000",
               "--precision", "bf16", "--device", "cuda", "--cuda-graph", "off", "--warmup", "1", "--kernel-traffic"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"kernel_traffic.py: {' '.join(command)}: {done.stderr.strip()}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"kernel"')]
    return {line["kernel"]: (line["read"], line["written"], line["launches"]) for line in lines}


def scaled(build, model, images):
    """The same at so many images, from 2 and 4 of them."""
    two, four = kernels(build, model, 2), kernels(build, model, 4)
    launches = lambda of_kernel: {name: numbers[2] for name, numbers in of_kernel.items()}
    if launches(two) != launches(four):
        sys.exit(f"kernel_traffic.py: {model} runs other kernels with 4 images than with 2, so their bytes cannot be scaled")
    at = lambda name, i: two[name][i] + (four[name][i] - two[name][i]) * (images - 2) / 2
    return {name: (at(name, 0), at(name, 1), two[name][2]) for name in two}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build_folder.add_option(options, "bench/train_bench", default="build-emulated")
    options.add_argument("--images", type=int, default=256, help="of a step (default: 256)")
    options.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)} (default: all)")
    options.add_argument("--by-kernel", action="store_true", help="a line for every kernel in place of the table")
    given = options.parse_args()
    models = given.models.split(",")
    if not set(models) <= set(MODELS):
        options.error(f"--models: of {', '.join(MODELS)}")
    totals = {model: scaled(given.build, model, given.images) for model in models}
    if given.by_kernel:
        for model, of_kernel in totals.items():
            for name, (read, written, launches) in sorted(of_kernel.items(), key=lambda item: -sum(item[1][:2])):
                print(f"{model} {read / 1e9:8.3f} GB read {written / 1e9:8.3f} GB written {launches:4d} launches  {name}")
        return
    by_group = collections.defaultdict(lambda: collections.defaultdict(float))
    for model, of_kernel in totals.items():
        for name, (read, written, _) in of_kernel.items():
            group = next(group for group, pattern in GROUPS if re.search(pattern, name))
            by_group[group][model] += read + written
    print(f"| GB read and written, {given.images} images | {' | '.join(MODELS[model] for model in models)} |")
    print("|---" * (len(models) + 1) + "|")
    gigabytes = lambda value: f"{value / 1e9:.1f}" if value else ""
    for group, _ in GROUPS:
        if by_group[group]:
            print(f"| {group} | {' | '.join(gigabytes(by_group[group][model]) for model in models)} |")
    whole = {model: sum(of_group[model] for of_group in by_group.values()) for model in models}
    print(f"| **together** | {' | '.join(gigabytes(whole[model]) for model in models)} |")


if __name__ == "__main__":
    main()
