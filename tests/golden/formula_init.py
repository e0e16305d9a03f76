# SPDX-License-Identifier: MIT
"""Weights, images and labels by formula, so that no fixture has to carry them. formula_init.h is the twin.

bits(name, i) = splitmix64 number i of the sequence seeded with the FNV-1a hash of `name`;
uniform in [-1, 1) = its upper 24 bits, exact in float32. Every later operation is one correctly rounded
float32 or float64 operation, so both languages produce the same bits.
"""

import math

import numpy as np
import torch
from torch import nn

MASK = (1 << 64) - 1


def name_hash(name: str) -> int:
    """FNV-1a, 64 bits."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def bits(name: str, count: int) -> np.ndarray:
    """uint64 numbers 0 … count-1 of the sequence called `name`."""
    with np.errstate(over="ignore"):
        z = np.uint64(name_hash(name)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(name: str, shape: tuple) -> np.ndarray:
    """float32 in [-1, 1) in row-major order of `shape`."""
    upper = (bits(name, math.prod(shape)) >> np.uint64(40)).astype(np.float32)
    return (upper * np.float32(2.0**-23) - np.float32(1)).reshape(shape)


def parameter(name: str, shape: tuple) -> np.ndarray:
    """The initial value of a parameter; convolution shapes are KRSC.

    Matrices and convolutions: uniform · sqrt(6 / fan_in). Vectors: 1 for a norm's weight, 0 for a bias.
    """
    if len(shape) == 1:
        return np.full(shape, 1 if name.endswith("weight") else 0, np.float32)
    return uniform(name, shape) * np.float32(math.sqrt(6.0 / math.prod(shape[1:])))


def initialise(model: nn.Module) -> None:
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 4:
                k, c, r, s = p.shape
                p.copy_(torch.from_numpy(parameter(name, (k, r, s, c))).permute(0, 3, 1, 2))
            elif name == "classifier.0.weight":  # a linear layer on 7x7 images: a 7x7 convolution for abtrain
                k, c = p.shape[0], p.shape[1] // 49
                p.copy_(torch.from_numpy(parameter(name, (k, 7, 7, c))).permute(0, 3, 1, 2).flatten(1))
            else:
                p.copy_(torch.from_numpy(parameter(name, tuple(p.shape))))


def images(batch: int, size: int) -> torch.Tensor:
    """[batch, 3, size, size], the same numbers as [batch, size, size, 3] of the C++ side."""
    return torch.from_numpy(uniform("images", (batch, size, size, 3))).permute(0, 3, 1, 2)


def labels(batch: int, classes: int) -> torch.Tensor:
    return torch.from_numpy((bits("labels", batch) >> np.uint64(33)).astype(np.int64) % classes)
