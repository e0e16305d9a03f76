#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The training step of bench/train_bench in PyTorch, timed.

One step is: clear gradients, forward, softmax cross-entropy, backward, SGD with momentum 0.9 and weight
decay 5e-4. The images are random and lie in memory in the chosen layout. Prints a line of JSON that describes the
run once it is warmed up, and then one for each turn of --steps steps, as bench/train_bench does.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="vgg16_bn_cifar",
                    choices=["conv6_cifar", "vgg16_bn_cifar", "vgg11_bn_cifar", "resnet20", "resnet56", "resnet50", "vgg16_bn", "vit_b_16"])
parser.add_argument("--classes", type=int, default=10)
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--image-size", type=int, default=32)
parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32", "bf16"], help="bf16: autocast")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--steps", type=int, default=10, help="steps of a turn")
parser.add_argument("--warmup", type=int, default=3, help="untimed steps before")
parser.add_argument("--layout", default="channels_last", choices=["contiguous", "channels_last"])
parser.add_argument("--compile", nargs="?", const="default", metavar="MODE",
                    help="train torch.compile(model); MODE: default, reduce-overhead or max-autotune")
parser.add_argument("--optimizer", default="default", choices=["default", "foreach", "fused"],
                    help="which of torch.optim.SGD's implementations updates the weights")
parser.add_argument("--turns", action="store_true", help="wait for a line of input before each turn; end with the input")
args = parser.parse_args()

os.environ["OMP_NUM_THREADS"] = str(args.threads)  # read when torch loads its OpenMP
import torch  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "golden"))
from models import make_model  # noqa: E402

if args.device == "cuda" and not torch.cuda.is_available():
    sys.exit("PyTorch sees no CUDA device")
torch.set_num_threads(args.threads)
if torch.get_num_threads() != args.threads:
    sys.exit(f"torch runs {torch.get_num_threads()} threads, not {args.threads}: set OMP_NUM_THREADS and start again")

torch.manual_seed(0)
memory_format = torch.channels_last if args.layout == "channels_last" else torch.contiguous_format
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = args.precision != "fp32"
model = make_model(args.model, args.classes, args.image_size).to(args.device, memory_format=memory_format).train()
train_model = torch.compile(model, mode=args.compile) if args.compile else model
implementation = {} if args.optimizer == "default" else {args.optimizer: True}
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, **implementation)
images = torch.randn(args.batch, 3, args.image_size, args.image_size).to(args.device, memory_format=memory_format)
labels = (torch.arange(args.batch) % args.classes).to(args.device)


def run(steps: int) -> float:
    """Waits for the last step alone, and returns its loss."""
    loss = torch.zeros(())
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "bf16"):
            loss = cross_entropy(train_model(images), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


run(args.warmup)
print(json.dumps({
    "tool": "torch",
    "version": torch.__version__,
    "model": args.model,
    "classes": args.classes,
    "batch": args.batch,
    "image_size": args.image_size,
    "precision": args.precision,
    "device": args.device,
    "threads": args.threads,
    "layout": args.layout,
    "compile": args.compile,
    "optimizer": args.optimizer,
    "steps": args.steps,
}), flush=True)

while not args.turns or sys.stdin.readline():
    begin = time.perf_counter()
    loss = run(args.steps)
    ms = 1e3 * (time.perf_counter() - begin) / args.steps
    print(json.dumps({"ms_per_step": ms, "images_per_second": 1e3 * args.batch / ms, "loss": loss}), flush=True)
    if not args.turns:
        break
