#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes spectrum.tsv for draw.py: singular values of two weights, new and after one and three of four epochs.

    train="build/apps/abtrain train --config apps/configs/vgg16_cifar_dense.toml --ranks 1 --batch-size 128 --data-dir DIR"
    $train --epochs 1 --train-samples 128 --lr 0 --min-lr 0 --out runs/new
    $train --save-every 390 --keep-checkpoints 4 --out runs/trained
    bench/figures/spectrum.py runs/new/model.safetensors runs/trained/checkpoints/step_00000000{0390,1170}/*.safetensors

Needs NumPy.
"""

import json
import pathlib
import sys

import numpy as np

LAYERS = ("features.7.weight", "features.40.weight")


def weight(path, name):
    """A convolution as the matrix output × rest; checkpoints put "model." before its name."""
    content = pathlib.Path(path).read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size])
    entry = header.get(name) or header["model." + name]
    begin, end = (8 + size + offset for offset in entry["data_offsets"])
    return np.frombuffer(content[begin:end], "<f4").reshape(entry["shape"][0], -1)


def main():
    lines = ["# Singular values of convolutions of vgg16_bn_cifar at half width, dense, CIFAR-10: see spectrum.py.",
             "layer\tindex\tnew\tepoch1\tepoch3"]
    for layer in LAYERS:
        columns = [np.linalg.svd(weight(path, layer), compute_uv=False) for path in sys.argv[1:4]]
        for i, row in enumerate(zip(*columns)):
            lines.append(f"{layer}\t{i + 1}\t" + "\t".join(f"{value:.3f}" for value in row))
    (pathlib.Path(__file__).resolve().parent / "spectrum.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
