#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The ImageNet pipeline of bench/data_bench.cpp with torchvision and Pillow, on one core.

    ABTRAIN_IMAGENET_DIR=DIR venv/bin/python bench/peers/torch_data.py
"""

import os
import time

import torch
from torchvision import datasets
from torchvision import transforms as T


def main() -> None:
    torch.set_num_threads(1)
    transform = T.Compose([
        T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(),
        T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])
    images = datasets.ImageFolder(os.path.join(os.environ["ABTRAIN_IMAGENET_DIR"], "train"), transform)
    images[0]  # what is loaded on first use is not counted
    wall, processor = time.perf_counter(), time.process_time()
    for i in range(len(images)):
        images[i]
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(f"{len(images)} images: {len(images) / wall:.0f} images/s, {len(images) / processor:.0f} per second of "
          "processor time")


if __name__ == "__main__":
    main()
