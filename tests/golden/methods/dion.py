# SPDX-License-Identifier: MIT
"""Dion (arXiv 2504.05295, algorithm with decoupled momentum; microsoft/dion): weights by orthonormal updates, all else by Adam."""

import math

import matrices as mx
from problem import SHAPES, STEPS, Rank, Record, mean, normal, size

RANKS, SHARE, MOMENTUM = 3, 0.5, 0.95
BETA1, BETA2, EPSILON = 0.9, 0.95, 1e-8


def tall(name, values):
    """The matrix or its transpose, whichever has more rows than columns."""
    a = mx.view(name, values)
    return a if len(a) >= len(a[0]) else mx.transpose(a)


def back(name, a):
    n = SHAPES[name][0]
    return mx.flat(a if n >= size(name) // n else mx.transpose(a))


def main():
    ranks = [Rank(i, momentum=0) for i in range(RANKS)]
    weights = [name for name, shape in SHAPES.items() if len(shape) > 1]
    momentum = {name: [[0.0] * size(name) for _ in ranks] for name in weights}
    q = {}
    for name in weights:
        short = min(SHAPES[name][0], size(name) // SHAPES[name][0])
        r = math.ceil(SHARE * short)
        draws = normal(0, f"dion.q.{name}", r * short)
        q[name] = [[draws[k * short + j] for k in range(r)] for j in range(short)]
    first, second = [0.0] * size("bias"), [0.0] * size("bias")
    record = Record("dion", RANKS, f"rank = {SHARE}\n", momentum=0)
    for step in range(STEPS):
        updates = {}
        for name in weights:
            b = [mx.plus(tall(name, m), tall(name, r.gradient(name, step))) for m, r in zip(momentum[name], ranks)]
            p = mx.gram_schmidt(mx.mean([mx.product(a, q[name]) for a in b]))
            image = mx.mean([mx.product(mx.transpose(a), p) for a in b])
            sent = mx.product(p, mx.transpose(image))
            momentum[name] = [
                back(name, mx.minus(a, [[(1 - MOMENTUM) * v for v in row] for row in sent])) for a in b
            ]
            columns = mx.transpose(image)
            lengths = [math.sqrt(sum(v * v for v in column)) for column in columns]
            q[name] = mx.transpose([[v / (l + 1e-8) for v in c] for c, l in zip(columns, lengths)])
            n = SHAPES[name][0]
            scale = math.sqrt(n / (size(name) / n))
            updates[name] = [scale * v for v in back(name, mx.product(p, mx.transpose(q[name])))]
        g = mean([r.gradient("bias", step) for r in ranks])
        first = [BETA1 * m + (1 - BETA1) * v for m, v in zip(first, g)]
        second = [BETA2 * m + (1 - BETA2) * v * v for m, v in zip(second, g)]
        t = step + 1
        updates["bias"] = [
            m / (1 - BETA1**t) / (math.sqrt(v / (1 - BETA2**t)) + EPSILON) for m, v in zip(first, second)
        ]
        for rank in ranks:
            rank.update(updates)
        state = {}
        for name in weights:
            state[f"dion.{name}.residual"] = momentum[name]
            state[f"dion.{name}.q"] = [mx.flat(mx.transpose(q[name]))]
        record.step(ranks, state)
    record.write()


if __name__ == "__main__":
    main()
