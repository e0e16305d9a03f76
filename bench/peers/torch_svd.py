#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The decompositions of bench/svd_bench with torch.linalg.svd, timed.

The matrices are the weights that AB-training splits: all convolutions and linear layers of torchvision's model but the
first and the last, each as a matrix of its outputs by the rest, the longer side first. One line of JSON with the keys
of bench/svd_bench.
"""

import argparse
import json
import sys
import time

import torch
import torchvision

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="resnet50", help="a model of torchvision")
parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
parser.add_argument("--driver", default=None, choices=["gesvd", "gesvdj", "gesvda"],
                    help="cuSOLVER's method on a GPU; torch.linalg.svd chooses when not given")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--rounds", type=int, default=3)
args = parser.parse_args()

if args.device == "cuda" and not torch.cuda.is_available():
    sys.exit("PyTorch sees no CUDA device")
torch.set_num_threads(args.threads)
torch.manual_seed(0)
model = torchvision.models.get_model(args.model, num_classes=1000)
layers = [m for m in model.modules() if isinstance(m, (torch.nn.Conv2d, torch.nn.Linear))]
matrices = []
for layer in layers[1:-1]:
    w = layer.weight.detach().flatten(1).to(args.device)
    matrices.append((w if w.shape[0] >= w.shape[1] else w.T).contiguous())


def synchronize() -> None:
    if args.device == "cuda":
        torch.cuda.synchronize()


error = 0.0
for w in matrices:
    u, s, vt = torch.linalg.svd(w, full_matrices=False, driver=args.driver)
    error = max(error, ((w - (u * s) @ vt).abs().max() / w.abs().max()).item())
seconds = []
for _ in range(args.rounds):
    synchronize()
    begin = time.perf_counter()
    for w in matrices:
        torch.linalg.svd(w, full_matrices=False, driver=args.driver)
    synchronize()
    seconds.append(time.perf_counter() - begin)
print(json.dumps({"tool": "torch", "version": torch.__version__, "model": args.model, "matrices": len(matrices),
                  "method": args.driver, "device": args.device, "threads": args.threads, "seconds": seconds,
                  "error": error}))
