#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads a model.safetensors of abtrain with NumPy alone: {name: array}, under the names and in the layout of PyTorch.

Weights that are stored as factors come back multiplied. As a program it lists what a file holds:

    apps/read_model.py runs/first/model.safetensors
"""

import json
import sys

import numpy as np

DTYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "U8": "u1"}


def read_model(path: str) -> dict:
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"]).copy()
    spatial = json.loads(metadata.get("spatial", "[]"))
    for name, shape in json.loads(metadata.get("factored", "{}")).items():
        rows = shape[0] * shape[2] if name in spatial else shape[0]
        w = tensors.pop(name + ".a") @ tensors.pop(name + ".b")  # the tall orientation: more rows than columns
        w = w if len(w) == rows else w.T
        if name in spatial:  # rows and columns: output and row of the kernel, input and column of it
            outputs, inputs, height, width = shape
            w = w.reshape(outputs, height, inputs, width).transpose(0, 2, 1, 3)
        tensors[name] = w.reshape(shape) + tensors.pop(name + ".rest", np.float32(0))
    return tensors


if __name__ == "__main__":
    for name, value in sorted(read_model(sys.argv[1]).items()):
        print(name, "×".join(map(str, value.shape)), f"norm {np.linalg.norm(value):.6g}")
