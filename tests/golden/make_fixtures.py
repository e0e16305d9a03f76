#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the golden fixtures that tests/layers/golden_test.cpp compares abtrain with; README.md says what they hold.

Inputs are float32; PyTorch computes on them in float64, and the results are rounded to float32 once, so that
a fixture is as good as the exact answer. Everything is stored in abtrain's layouts: NHWC and KRSC.

    pip install torch torchvision timm numpy
    python tests/golden/make_fixtures.py
"""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import image_cases
import library_cases
import model_run

FOLDER = Path(__file__).resolve().parent


class Fixtures:
    """Named tensors of many cases; the options of a case are one JSON object in the file's metadata."""

    def __init__(self):
        self.tensors, self.metadata = {}, {"torch": torch.__version__}

    def add(self, case: str, options: dict, **tensors) -> None:
        self.metadata[case] = json.dumps(options)
        for name, t in tensors.items():
            if t is None:
                continue
            a = t.detach().numpy() if isinstance(t, torch.Tensor) else np.asarray(t)
            dtype = np.int64 if a.dtype == np.int64 else np.float32
            self.tensors[f"{case}/{name}"] = np.ascontiguousarray(a.astype(dtype))

    def write(self, file: str) -> None:
        """The safetensors format in a fixed order (its own package shuffles), so that equal fixtures are equal files."""
        header, offset = {"__metadata__": dict(sorted(self.metadata.items()))}, 0
        names = sorted(self.tensors, key=lambda n: (-self.tensors[n].itemsize, n))
        for name in names:
            t = self.tensors[name]
            dtype = "I64" if t.dtype == np.int64 else "F32"
            header[name] = {"dtype": dtype, "shape": t.shape, "data_offsets": [offset, offset + t.nbytes]}
            offset += t.nbytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        data = b"".join(self.tensors[name].tobytes() for name in names)
        (FOLDER / file).write_bytes(len(text).to_bytes(8, "little") + text + data)
        print(f"{file}: {len(self.metadata) - 1} cases, {8 + len(text) + len(data)} bytes")


def randn(*shape) -> torch.Tensor:
    """Standard normal, representable in float32, computed with in float64."""
    return torch.randn(*shape).double().requires_grad_()


def nhwc(t: torch.Tensor) -> torch.Tensor:
    """[N, C, H, W] -> [N, H, W, C]; also [K, C, R, S] -> [K, R, S, C]."""
    return t.permute(0, 2, 3, 1)


def backward(y: torch.Tensor) -> torch.Tensor:
    """Draws dy, sends it back through y, and returns it."""
    dy = torch.randn(*y.shape).double()
    y.backward(dy)
    return dy


def linear_cases(out: Fixtures) -> None:
    for case, (n, i, o, bias) in {
        "linear/bias": (5, 7, 3, True),
        "linear/no_bias": (4, 6, 9, False),
        "linear/one_row": (1, 17, 2, True),
        "linear/wide": (33, 48, 40, True),
    }.items():
        x, w, b = randn(n, i), randn(o, i), randn(o) if bias else None
        y = F.linear(x, w, b)
        dy = backward(y)
        out.add(case, {}, x=x, w=w, b=b, y=y, dy=dy, dx=x.grad, dw=w.grad, db=b.grad if bias else None)
    for case, (m, k, n) in {"matmul/small": (5, 3, 4), "matmul/thin": (40, 2, 33)}.items():
        a, b = randn(m, k), randn(k, n)
        y = a @ b
        dy = backward(y)
        out.add(case, {}, a=a, b=b, y=y, dy=dy, da=a.grad, db=b.grad)


def conv_cases(out: Fixtures) -> None:
    plain = dict(n=2, h=8, w=8, c=8, k=12, r=3, s=3, stride=1, padding=1, dilation=1, groups=1, bias=False)
    for case, change in {
        "3x3": {},
        "bias": dict(bias=True),
        "first_layer": dict(c=3, k=16, h=10, w=10),
        "sixteen_channels": dict(c=16, k=16, n=1),
        "sixteen_channels_odd_size": dict(c=16, k=32, h=7, w=9, n=1),
        "1x1": dict(r=1, s=1, padding=0, c=16, k=8),
        "1x1_stride2": dict(r=1, s=1, padding=0, stride=2, c=8, k=16),
        "stride2": dict(stride=2),
        "stride2_odd_size_bias": dict(stride=2, h=7, w=9, bias=True),
        "stride3_no_padding": dict(stride=3, padding=0, h=11, w=10),
        "7x7_stride2": dict(r=7, s=7, stride=2, padding=3, c=3, k=8, h=12, w=11, n=1),
        "no_padding": dict(padding=0),
        "wide_padding": dict(padding=2, n=1),
        "rectangular_kernel": dict(r=1, s=3, padding=1, c=4, k=5),
        "dilation2": dict(dilation=2, padding=2),
        "dilation2_stride2": dict(dilation=2, stride=2, h=9, w=9),
        "groups2": dict(groups=2, bias=True),
        "depthwise": dict(c=8, k=8, groups=8),
        "depthwise_multiplier_stride2": dict(c=6, k=12, groups=6, stride=2),
        "odd_channels": dict(c=5, k=7, h=5, w=6, bias=True),
        "2x2_input": dict(h=2, w=2, c=16, k=16, n=3),
        "1x1_input": dict(h=1, w=1, n=3),
        # Large enough for the algorithms that the CPU backend keeps for many channels.
        "32_channels": dict(c=32, k=32, h=6, w=7, n=1, bias=True),
        "2x2_input_64_channels": dict(h=2, w=2, c=64, k=64, n=32),
        "1x1_64_channels": dict(r=1, s=1, padding=0, c=64, k=64, h=4, w=4),
        "1x1_stride2_128_channels": dict(r=1, s=1, padding=0, stride=2, c=128, k=128, h=3, w=2, n=1),
    }.items():
        s = plain | change
        x, w = randn(s["n"], s["c"], s["h"], s["w"]), randn(s["k"], s["c"] // s["groups"], s["r"], s["s"])
        b = randn(s["k"]) if s["bias"] else None
        options = {o: s[o] for o in ("stride", "padding", "dilation", "groups")}
        y = F.conv2d(x, w, b, **options)
        dy = backward(y)
        out.add(f"conv2d/{case}", options, x=nhwc(x), w=nhwc(w), b=b, y=nhwc(y), dy=nhwc(dy),
                dx=nhwc(x.grad), dw=nhwc(w.grad), db=b.grad if b is not None else None)


def away_from_kink(pre_activation: torch.Tensor) -> None:
    """Float32 must decide every ReLU as float64 did."""
    assert pre_activation.abs().min() > 1e-5, "choose another seed: an input of a ReLU is too close to 0"


def norm_cases(out: Fixtures) -> None:
    for case, (shape, options) in {
        "train": ((4, 6, 5, 5), {}),
        "train_two_dims": ((9, 7), {}),
        "train_offset_mean": ((4, 16, 4, 4), {}),
        "train_momentum_epsilon": ((3, 5, 4, 4), dict(momentum=0.3, epsilon=1e-2)),
        "train_relu": ((4, 6, 5, 5), dict(relu=True)),
        "train_residual": ((2, 6, 5, 5), dict(residual=True)),
        "train_residual_relu": ((4, 16, 4, 4), dict(residual=True, relu=True)),
        "eval": ((3, 6, 5, 5), dict(training=False)),
        "eval_relu": ((3, 6, 5, 5), dict(training=False, relu=True)),
        "eval_residual_relu": ((2, 16, 4, 4), dict(training=False, residual=True, relu=True)),
    }.items():
        o = dict(training=True, momentum=0.1, epsilon=1e-5, relu=False, residual=False) | options
        channels = shape[1]
        to_ours = nhwc if len(shape) == 4 else lambda t: t
        x = torch.randn(*shape) * 1.5 + (10.0 if "offset" in case else 0.5)
        x = x.double().requires_grad_()
        gamma, beta, residual = randn(channels), randn(channels), randn(*shape) if o["residual"] else None
        mean, var = torch.randn(channels).double(), torch.rand(channels).double() + 0.5
        before = dict(running_mean=mean.clone(), running_var=var.clone())
        y = F.batch_norm(x, mean, var, gamma, beta, o["training"], o["momentum"], o["epsilon"])
        y = y + residual if o["residual"] else y
        if o["relu"]:
            away_from_kink(y)
            y = F.relu(y)
        dy = backward(y)
        out.add(f"batch_norm/{case}", o, x=to_ours(x), gamma=gamma, beta=beta, **before,
                residual=to_ours(residual) if o["residual"] else None, y=to_ours(y), dy=to_ours(dy),
                dx=to_ours(x.grad), dgamma=gamma.grad, dbeta=beta.grad,
                dresidual=to_ours(residual.grad) if o["residual"] else None,
                running_mean_after=mean, running_var_after=var)
    for case, (shape, epsilon) in {
        "rows": ((6, 10), 1e-5), "tokens": ((2, 5, 16), 1e-6), "nhwc": ((2, 3, 3, 7), 1e-2),
    }.items():
        x, gamma, beta = randn(*shape), randn(shape[-1]), randn(shape[-1])
        y = F.layer_norm(x, shape[-1:], gamma, beta, epsilon)
        dy = backward(y)
        out.add(f"layer_norm/{case}", dict(epsilon=epsilon), x=x, gamma=gamma, beta=beta, y=y, dy=dy,
                dx=x.grad, dgamma=gamma.grad, dbeta=beta.grad)


def pool_cases(out: Fixtures) -> None:
    windows = {
        "2x2": ((2, 4, 6, 6), dict(kernel=2, stride=2, padding=0)),
        "3x3_stride2_padding1": ((2, 5, 7, 8), dict(kernel=3, stride=2, padding=1)),
        "overlapping": ((1, 16, 6, 5), dict(kernel=3, stride=1, padding=0)),
        "remainder": ((2, 3, 5, 7), dict(kernel=2, stride=2, padding=0)),
    }
    for case, (shape, o) in windows.items():
        for name, pool in {"max_pool2d": F.max_pool2d, "avg_pool2d": F.avg_pool2d}.items():
            x = randn(*shape)
            y = pool(x, o["kernel"], o["stride"], o["padding"])
            dy = backward(y)
            out.add(f"{name}/{case}", o, x=nhwc(x), y=nhwc(y), dy=nhwc(dy), dx=nhwc(x.grad))
    for case, o in {
        "all_negative": dict(kernel=3, stride=2, padding=1), "ties": dict(kernel=2, stride=2, padding=0),
    }.items():
        values = -torch.rand(2, 4, 6, 6) - 1 if case == "all_negative" else torch.randint(0, 2, (2, 4, 6, 6))
        x = values.double().requires_grad_()
        y = F.max_pool2d(x, o["kernel"], o["stride"], o["padding"])
        dy = backward(y)
        out.add(f"max_pool2d/{case}", o, x=nhwc(x), y=nhwc(y), dy=nhwc(dy), dx=nhwc(x.grad))
    for case, (shape, out_h, out_w) in {
        "divisible": ((2, 5, 6, 8), 3, 2), "overlapping": ((2, 4, 7, 5), 3, 2), "one": ((2, 6, 4, 3), 1, 1),
        "larger_than_input": ((1, 3, 2, 3), 4, 5),
    }.items():
        x = randn(*shape)
        y = F.adaptive_avg_pool2d(x, (out_h, out_w))
        dy = backward(y)
        out.add(f"adaptive_avg_pool2d/{case}", dict(out_h=out_h, out_w=out_w), x=nhwc(x), y=nhwc(y), dy=nhwc(dy),
                dx=nhwc(x.grad))
    for case, shape in {"4x4": (3, 6, 4, 4), "1x1": (2, 5, 1, 1), "5x3": (2, 17, 5, 3)}.items():
        x = randn(*shape)
        y = x.mean(dim=(2, 3))
        dy = backward(y)
        out.add(f"global_avg_pool2d/{case}", {}, x=nhwc(x), y=y, dy=dy, dx=nhwc(x.grad))


def elementwise_cases(out: Fixtures) -> None:
    for case, shape in {"nhwc": (2, 3, 3, 5), "rows": (37, 3)}.items():
        x = randn(*shape)
        away_from_kink(x)
        y = F.relu(x)
        dy = backward(y)
        out.add(f"relu/{case}", {}, x=x, y=y, dy=dy, dx=x.grad)
        x = (torch.randn(*shape) * 3).double().requires_grad_()
        y = F.gelu(x)
        dy = backward(y)
        out.add(f"gelu/{case}", {}, x=x, y=y, dy=dy, dx=x.grad)
        a, b = randn(*shape), randn(*shape)
        y = a + b
        dy = backward(y)
        out.add(f"add/{case}", {}, a=a, b=b, y=y, dy=dy, da=a.grad, db=b.grad)
    x = randn(3, 2, 4, 5)  # [N, C, H, W]; flattened in NHWC order, as the stored form lies in memory
    y = nhwc(x).flatten(1)
    dy = backward(y)
    out.add("flatten/nhwc", {}, x=nhwc(x), y=y, dy=dy, dx=nhwc(x.grad))


def loss_cases(out: Fixtures) -> None:
    for case, (n, classes, smoothing, scale) in {
        "plain": (7, 10, 0.0, 1.0), "smoothing": (7, 10, 0.1, 1.0), "two_classes": (5, 2, 0.3, 1.0),
        "large_logits": (6, 5, 0.1, 200.0), "many_classes": (3, 100, 0.05, 2.0),
    }.items():
        x = (torch.randn(n, classes) * scale).double().requires_grad_()
        labels = torch.randint(0, classes, (n,))
        loss = F.cross_entropy(x, labels, label_smoothing=smoothing)
        loss.backward()
        out.add(f"softmax_cross_entropy/{case}", dict(smoothing=smoothing), logits=x, labels=labels,
                loss=loss.reshape(1), dlogits=x.grad)


def optimizer_cases(out: Fixtures) -> None:
    """Two parameters, six updates, a changing learning rate; gradients grow, so that clipping sets in midway."""
    sgd, adamw, steps = torch.optim.SGD, torch.optim.AdamW, 6
    for case, (kind, options, max_norm) in {
        "sgd/plain": (sgd, dict(momentum=0.0, weight_decay=0.0, nesterov=False), 0.0),
        "sgd/momentum": (sgd, dict(momentum=0.9, weight_decay=0.0, nesterov=False), 0.0),
        "sgd/momentum_weight_decay": (sgd, dict(momentum=0.9, weight_decay=0.05, nesterov=False), 0.0),
        "sgd/nesterov_weight_decay": (sgd, dict(momentum=0.8, weight_decay=0.05, nesterov=True), 0.0),
        "sgd/clipped": (sgd, dict(momentum=0.9, weight_decay=5e-4, nesterov=False), 8.0),
        "adamw/default": (adamw, dict(beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.01), 0.0),
        "adamw/other_constants": (adamw, dict(beta1=0.8, beta2=0.95, epsilon=1e-3, weight_decay=0.3), 0.0),
        "adamw/clipped": (adamw, dict(beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.1), 8.0),
    }.items():
        params = [nn.Parameter(torch.randn(5, 7).double()), nn.Parameter(torch.randn(11).double())]
        before = [p.detach().clone() for p in params]
        o = dict(options)
        if kind is adamw:
            o = dict(betas=(o["beta1"], o["beta2"]), eps=o["epsilon"], weight_decay=o["weight_decay"])
        optimizer = kind(params, lr=1.0, **o)
        rates = [float(np.float32(0.02 * (1 + t % 4))) for t in range(steps)]
        grads, values, norms = [[], []], [[], []], []
        for t in range(steps):
            for p, history in zip(params, grads):
                p.grad = (torch.randn(*p.shape) * 0.5 * (t + 1)).double()
                history.append(p.grad.clone())
            norms.append(math.sqrt(sum(p.grad.square().sum().item() for p in params)))
            if max_norm > 0:
                nn.utils.clip_grad_norm_(params, max_norm)
            optimizer.param_groups[0]["lr"] = rates[t]
            optimizer.step()
            for p, history in zip(params, values):
                history.append(p.detach().clone())
        assert max_norm == 0 or min(norms) < max_norm < max(norms)
        out.add(f"{case}", options | dict(max_grad_norm=max_norm), learning_rates=rates, grad_norms=norms,
                w0=before[0], w1=before[1], dw0=torch.stack(grads[0]), dw1=torch.stack(grads[1]),
                w0_after=torch.stack(values[0]), w1_after=torch.stack(values[1]))


def schedule_cases(out: Fixtures) -> None:
    """Learning rates of updates 0, 1, 2 … from torch.optim.lr_scheduler."""
    lr = torch.optim.lr_scheduler
    for case, o in {
        "constant": dict(kind="constant", peak=0.1, start=0.0, end=0.0, warmup_steps=0, total_steps=12),
        "warmup_constant": dict(kind="constant", peak=0.1, start=0.01, end=0.0, warmup_steps=5, total_steps=12),
        "cosine": dict(kind="cosine", peak=0.2, start=0.0, end=0.0, warmup_steps=0, total_steps=20),
        "warmup_cosine": dict(kind="cosine", peak=0.2, start=0.002, end=1e-3, warmup_steps=7, total_steps=30),
        "warmup_linear": dict(kind="linear", peak=0.2, start=0.02, end=0.02, warmup_steps=7, total_steps=30),
        "step": dict(kind="step", peak=0.1, start=0.0, end=0.0, warmup_steps=0, total_steps=20, step_length=6,
                     step_factor=0.3),
    }.items():
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=o["peak"])
        warmup, length = o["warmup_steps"], o["total_steps"] - o["warmup_steps"]
        schedule = {
            "constant": lambda: lr.ConstantLR(optimizer, 1.0),
            "cosine": lambda: lr.CosineAnnealingLR(optimizer, length, o["end"]),
            "linear": lambda: lr.LinearLR(optimizer, 1.0, o["end"] / o["peak"], length),
            "step": lambda: lr.StepLR(optimizer, o["step_length"], o["step_factor"]),
        }[o["kind"]]()
        if warmup:
            linear = lr.LinearLR(optimizer, o["start"] / o["peak"], 1.0, warmup)
            schedule = lr.SequentialLR(optimizer, [linear, schedule], [warmup])
        rates = []
        for _ in range(o["total_steps"]):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        out.add(f"schedule/{case}", o, learning_rates=rates)


def model_cases(out: Fixtures) -> None:
    for name, settings in model_run.SETTINGS.items():
        exact, single = model_run.run(name, torch.float64), model_run.run(name, torch.float32)
        options = dataclasses.asdict(settings) | dict(
            momentum=model_run.MOMENTUM, weight_decay=model_run.WEIGHT_DECAY, classes=model_run.CLASSES)
        out.add(f"model/{name}", options, logits=exact.logits, logits_float32=single.logits, losses=exact.losses,
                losses_float32=single.losses, evaluation_loss=[exact.evaluation_loss])
        for parameter, norm in exact.grad_norms.items():
            out.tensors[f"model/{name}/grad_norm/{parameter}"] = np.array([norm], np.float32)


def main() -> None:
    torch.manual_seed(0)
    for file, groups in {
        "ops.safetensors": [linear_cases, conv_cases, norm_cases, pool_cases, elementwise_cases, loss_cases],
        "optim.safetensors": [optimizer_cases, schedule_cases],
        "models.safetensors": [model_cases],
        "images.safetensors": image_cases.GROUPS,
        "libraries.safetensors": [library_cases.logit_cases],
    }.items():
        fixtures = Fixtures()
        for group in groups:
            group(fixtures)
        fixtures.write(file)
    (FOLDER / "libraries.json").write_text(library_cases.names_json())


if __name__ == "__main__":
    main()
