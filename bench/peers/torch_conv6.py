#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""apps/configs/conv6_cifar.toml in PyTorch, on one rank, whose batch norms see 1,024 images: trains, validates, and prints seconds and accuracy.

    bench/peers/torch_conv6.py --data-dir DIR [--seed N] [--threads 2] [--device cpu]

The recipe of airbench94 (Jordan 2024, arXiv 2404.00498) as abtrain trains it: without averaging of weights and without the
bias of the whitening layer, with a rate that ends at zero. bf16 by autocast, channels_last; validation is not timed.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy, pad

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "golden"))
from models import make_model  # noqa: E402

EPOCHS, BATCH, WARMUP_EPOCHS, SHIFT = 12, 1024, 2.75, 2
RATE, MOMENTUM, DECAY, VECTOR_RATE, SMOOTHING = 1.5, 0.85, 1.33e-3, 64, 0.2
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data-dir", type=Path, required=True, help="folder of the CIFAR-10 binaries")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--device", default="cpu")
args = parser.parse_args()
torch.manual_seed(args.seed)
torch.set_num_threads(args.threads)


def load(*files: str) -> tuple:
    folder = args.data_dir / "cifar-10-batches-bin"
    folder = folder if folder.is_dir() else args.data_dir
    records = np.concatenate([np.fromfile(folder / f, np.uint8).reshape(-1, 3073) for f in files])
    pixels = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255)
    mean, deviation = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(DEVIATION).view(3, 1, 1)
    images = ((pixels - mean) / deviation).to(args.device, memory_format=torch.channels_last)
    return images, torch.from_numpy(records[:, 0].astype(np.int64)).to(args.device)


def whitening(images: torch.Tensor) -> torch.Tensor:
    patches = images.unfold(2, 2, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5).reshape(-1, 12).double()
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (vectors / (values + 5e-4).sqrt()).T.reshape(12, 3, 2, 2)
    return torch.cat([filters, -filters]).float()


def shifted(images: torch.Tensor) -> torch.Tensor:
    padded = pad(images, (SHIFT,) * 4, "reflect")
    result = torch.empty_like(images)
    by = torch.randint(2 * SHIFT + 1, (2, len(images)), device=images.device)
    for dy in range(2 * SHIFT + 1):
        for dx in range(2 * SHIFT + 1):
            chosen = (by[0] == dy) & (by[1] == dx)
            result[chosen] = padded[chosen, :, dy:dy + 32, dx:dx + 32]
    return result


def logits_of(model: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    with torch.no_grad(), torch.autocast(args.device, torch.bfloat16):
        return torch.cat([model(batch).float() for batch in images.split(500)])


def over_views(model: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    padded = pad(images, (1,) * 4, "reflect")
    views = [(images, 0.5), (padded[:, :, :32, :32], 0.25), (padded[:, :, 2:, 2:], 0.25)]
    return sum(w / 2 * (logits_of(model, v) + logits_of(model, v.flip(3))) for v, w in views)


train_images, train_labels = load(*(f"data_batch_{i}.bin" for i in range(1, 6)))
test_images, test_labels = load("test_batch.bin")

model = make_model("conv6_cifar", 10)
for module in model.modules():
    if isinstance(module, torch.nn.Conv2d):
        module.reset_parameters()
        if module.kernel_size == (3, 3):
            torch.nn.init.dirac_(module.weight.data[:module.in_channels])
began = time.perf_counter()
model.whiten.weight.copy_(whitening(train_images[:5000].cpu()))
model = model.to(args.device, memory_format=torch.channels_last).train()
vectors = [p for p in model.parameters() if p.dim() == 1]
matrices = [p for p in model.parameters() if p.dim() > 1]
optimizer = torch.optim.SGD([
    {"params": matrices, "lr": RATE, "weight_decay": DECAY},
    {"params": vectors, "lr": VECTOR_RATE * RATE, "weight_decay": DECAY / VECTOR_RATE},
], momentum=MOMENTUM, nesterov=True)
steps_per_epoch = len(train_images) // BATCH
total, warmup = EPOCHS * steps_per_epoch, round(WARMUP_EPOCHS * steps_per_epoch)
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: step / warmup if step < warmup else (total - step) / (total - warmup))
flips = torch.rand(len(train_images), device=args.device) < 0.5

seconds = 0.0
for epoch in range(EPOCHS):
    images = shifted(train_images)
    flipped = flips if epoch % 2 == 0 else ~flips
    images[flipped] = images[flipped].flip(3)
    order = torch.randperm(len(images), device=args.device)
    for step in range(steps_per_epoch):
        batch = order[step * BATCH:(step + 1) * BATCH]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, torch.bfloat16):
            loss = cross_entropy(model(images[batch].contiguous(memory_format=torch.channels_last)), train_labels[batch],
                                 label_smoothing=SMOOTHING)
        loss.backward()
        optimizer.step()
        schedule.step()
    loss.item()
    seconds += time.perf_counter() - began
    model.eval()
    top1 = (logits_of(model, test_images).argmax(1) == test_labels).float().mean().item()
    print(f"epoch {epoch + 1}  {seconds:.0f} s  top-1 {100 * top1:.2f} %", flush=True)
    model.train()
    began = time.perf_counter()

model.eval()
top1 = (over_views(model, test_images).argmax(1) == test_labels).float().mean().item()
print(f"PyTorch {torch.__version__}, seed {args.seed}: {seconds:.0f} s of training, top-1 {100 * top1:.2f} % over six views")
