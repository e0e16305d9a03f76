# SPDX-License-Identifier: MIT
"""The training run of the model fixtures: losses of one batch, with an SGD update between one and the next."""

from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

import formula_init
from models import make_model

CLASSES, MOMENTUM, WEIGHT_DECAY = 10, 0.9, 5e-4


@dataclass(frozen=True)
class Settings:
    learning_rate: float  # small enough that float32 runs stay together
    updates: int = 10
    batch: int = 16
    image_size: int = 32
    width: float = 1.0


SETTINGS = {
    "resnet20": Settings(0.002),
    "vgg11_bn_cifar": Settings(1e-4),
    "conv6_cifar": Settings(0.02, width=0.25),
    "resnet50": Settings(1e-7, updates=5, batch=8, image_size=64),
    "vgg11": Settings(5e-3, updates=5, width=0.125),
    "vit_s_16": Settings(5e-3, updates=5, image_size=48, width=1 / 3),
}


@dataclass
class Run:
    logits: torch.Tensor  # before the first update: [batch, classes]
    losses: list  # before the first update … after the last
    grad_norms: dict  # parameter name -> L2 norm of its first gradient
    evaluation_loss: float  # after the last update, with running statistics


def run(name: str, dtype: torch.dtype = torch.float32, channels_last: bool = False) -> Run:
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    settings = SETTINGS[name]
    model = make_model(name, CLASSES, settings.image_size, settings.width)
    formula_init.initialise(model)
    model = model.to(dtype=dtype, memory_format=memory_format).train()
    images = formula_init.images(settings.batch, settings.image_size).to(dtype).contiguous(memory_format=memory_format)
    labels = formula_init.labels(settings.batch, CLASSES)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=settings.learning_rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )

    first_logits, losses, grad_norms = None, [], {}
    for step in range(settings.updates + 1):
        optimizer.zero_grad()
        logits = model(images)
        loss = cross_entropy(logits, labels)
        losses.append(loss.item())
        if step == 0:
            first_logits = logits.detach()
        if step == settings.updates:
            break
        loss.backward()
        if step == 0:
            grad_norms = {n: p.grad.double().norm().item() for n, p in model.named_parameters()}
        optimizer.step()
    model.eval()
    with torch.no_grad():
        evaluation_loss = cross_entropy(model(images), labels).item()
    return Run(first_logits, losses, grad_norms, evaluation_loss)
