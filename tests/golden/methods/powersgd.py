# SPDX-License-Identifier: MIT
"""PowerSGD (arXiv 1905.13727, algorithms 1 and 2), with the error M - P Q_own^T of every rank's own projection."""

import matrices as mx
from problem import SHAPES, STEPS, Rank, Record, mean, normal, size

RANKS, R, WARMUP = 3, 2, 2


def main():
    ranks = [Rank(i) for i in range(RANKS)]
    compressed = [name for name, shape in SHAPES.items() if len(shape) > 1]
    error = {name: [[0.0] * size(name) for _ in ranks] for name in compressed}
    q = {}
    for name in compressed:
        m = size(name) // SHAPES[name][0]
        draws = normal(0, f"powersgd.q.{name}", R * m)
        q[name] = [[draws[k * m + j] for k in range(R)] for j in range(m)]
    record = Record("powersgd", RANKS, f"rank = {R}\nmin_rate = 0\n", common=f"dense_steps = {WARMUP}\n")
    for step in range(STEPS):
        gradients = {name: [r.gradient(name, step) for r in ranks] for name in SHAPES}
        aggregated = {name: mean(g) for name, g in gradients.items()}
        if step >= WARMUP:
            for name in compressed:
                own = [mx.plus(mx.view(name, g), mx.view(name, e)) for g, e in zip(gradients[name], error[name])]
                p = mx.gram_schmidt(mx.mean([mx.product(a, q[name]) for a in own]))
                own_q = [mx.product(mx.transpose(a), p) for a in own]
                q[name] = mx.mean(own_q)
                aggregated[name] = mx.flat(mx.product(p, mx.transpose(q[name])))
                error[name] = [
                    mx.flat(mx.minus(a, mx.product(p, mx.transpose(b)))) for a, b in zip(own, own_q)
                ]
        for rank in ranks:
            rank.update(aggregated)
        state = {}
        if step + 1 > WARMUP:
            for name in compressed:
                state[f"powersgd.{name}.residual"] = error[name]
                state[f"powersgd.{name}.q"] = [mx.flat(mx.transpose(q[name]))]
        record.step(ranks, state)
    record.write()


if __name__ == "__main__":
    main()
