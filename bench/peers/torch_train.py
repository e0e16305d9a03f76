#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The training step of bench/train_bench in PyTorch, timed.

One step is: clear gradients, forward, softmax cross-entropy, backward, SGD with momentum 0.9 and weight
decay 5e-4. Data are random CIFAR-shaped images that lie in memory in the chosen layout. Warm-up steps come
first and are not counted. Prints one JSON line with the keys of bench/train_bench.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="vgg16_bn_cifar", choices=["vgg16_bn_cifar", "vgg11_bn_cifar", "resnet20", "resnet56"])
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32", "bf16"], help="bf16: autocast")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--steps", type=int, default=10, help="timed steps")
parser.add_argument("--warmup", type=int, default=3, help="steps before the timed ones")
parser.add_argument("--layout", default="contiguous", choices=["contiguous", "channels_last"])
parser.add_argument("--compile", action="store_true", help="train torch.compile(model), on a GPU with max-autotune")
parser.add_argument("--optimizer", default="default", choices=["default", "foreach", "fused"],
                    help="which of torch.optim.SGD's implementations updates the weights")
args = parser.parse_args()

os.environ["OMP_NUM_THREADS"] = str(args.threads)  # read when torch loads its OpenMP
import torch  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "golden"))
from models import make_model  # noqa: E402

torch.set_num_threads(args.threads)
if torch.get_num_threads() != args.threads:
    sys.exit(f"torch runs {torch.get_num_threads()} threads, not {args.threads}: set OMP_NUM_THREADS and start again")

torch.manual_seed(0)
memory_format = torch.channels_last if args.layout == "channels_last" else torch.contiguous_format
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = args.precision != "fp32"
model = make_model(args.model, classes=10).to(args.device, memory_format=memory_format).train()
mode = "max-autotune" if args.device == "cuda" else "default"
train_model = torch.compile(model, mode=mode) if args.compile else model
implementation = {} if args.optimizer == "default" else {args.optimizer: True}
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, **implementation)
batches = [
    (torch.randn(args.batch, 3, 32, 32).to(args.device, memory_format=memory_format),
     torch.randint(0, 10, (args.batch,)).to(args.device))
    for _ in range(4)
]


def train_step(step: int) -> float:
    images, labels = batches[step % len(batches)]
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "bf16"):
        loss = cross_entropy(train_model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()  # on a GPU this waits for the step


for step in range(args.warmup):
    train_step(step)
seconds = []
cpu_begin, wall_begin = time.process_time(), time.perf_counter()
for step in range(args.steps):
    begin = time.perf_counter()
    loss = train_step(args.warmup + step)
    seconds.append(time.perf_counter() - begin)
busy_threads = (time.process_time() - cpu_begin) / (time.perf_counter() - wall_begin)

median = statistics.median(seconds)
print(json.dumps({
    "tool": "torch",
    "version": torch.__version__,
    "model": args.model,
    "batch": args.batch,
    "device": args.device,
    "precision": args.precision,
    "threads": args.threads,
    "layout": args.layout,
    "compile": args.compile,
    "optimizer": args.optimizer,
    "steps": args.steps,
    "images_per_second_median": round(args.batch / median, 2),
    "ms_per_step_median": round(1e3 * median, 2),
    "ms_per_step_min": round(1e3 * min(seconds), 2),
    "busy_threads": round(busy_threads, 2),  # CPU time over wall time: well below `threads` on a loaded machine
    "loss": round(loss, 4),
}))
