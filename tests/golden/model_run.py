# SPDX-License-Identifier: MIT
"""The training run of the model fixtures: eleven losses of one batch, ten SGD updates between them."""

from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

import formula_init
from models import make_model

BATCH, CLASSES, UPDATES = 16, 10, 10
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4
LEARNING_RATE = {"resnet20": 0.002, "vgg11_bn": 1e-4}  # small enough that float32 runs stay together


@dataclass
class Run:
    losses: list  # before the first update … after the last
    grad_norms: dict  # parameter name -> L2 norm of its first gradient
    evaluation_loss: float  # after the last update, with running statistics


def run(name: str, dtype: torch.dtype = torch.float32, channels_last: bool = False) -> Run:
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    model = make_model(name, CLASSES)
    formula_init.initialise(model)
    model = model.to(dtype=dtype, memory_format=memory_format).train()
    images = formula_init.images(BATCH).to(dtype).contiguous(memory_format=memory_format)
    labels = formula_init.labels(BATCH, CLASSES)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=LEARNING_RATE[name], momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )

    losses, grad_norms = [], {}
    for step in range(UPDATES + 1):
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        losses.append(loss.item())
        if step == UPDATES:
            break
        loss.backward()
        if step == 0:
            grad_norms = {n: p.grad.double().norm().item() for n, p in model.named_parameters()}
        optimizer.step()
    model.eval()
    with torch.no_grad():
        evaluation_loss = cross_entropy(model(images), labels).item()
    return Run(losses, grad_norms, evaluation_loss)
