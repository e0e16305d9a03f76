# SPDX-License-Identifier: MIT
"""ACP-SGD (arXiv 2306.08881): updates send P and Q in turn; what was sent is made orthonormal for the next turn."""

import matrices as mx
from problem import SHAPES, STEPS, Rank, Record, mean, normal, size

RANKS, R, WARMUP = 3, 2, 1


def main():
    ranks = [Rank(i) for i in range(RANKS)]
    compressed = [name for name, shape in SHAPES.items() if len(shape) > 1]
    error = {name: [[0.0] * size(name) for _ in ranks] for name in compressed}
    p, q = {}, {}
    for name in compressed:
        m = size(name) // SHAPES[name][0]
        draws = normal(0, f"acpsgd.q.{name}", R * m)
        q[name] = mx.gram_schmidt([[draws[k * m + j] for k in range(R)] for j in range(m)])
    record = Record("acpsgd", RANKS, f"rank = {R}\nmin_rate = 0\n", common=f"dense_steps = {WARMUP}\n")
    for step in range(STEPS):
        gradients = {name: [r.gradient(name, step) for r in ranks] for name in SHAPES}
        aggregated = {name: mean(g) for name, g in gradients.items()}
        for name in compressed if step >= WARMUP else []:
            own = [mx.plus(mx.view(name, g), mx.view(name, e)) for g, e in zip(gradients[name], error[name])]
            if (step - WARMUP) % 2 == 0:
                basis = mx.transpose(q[name])
                parts = [mx.product(a, q[name]) for a in own]
                p[name] = mx.mean(parts)
                projections = [mx.product(part, basis) for part in parts]
                aggregated[name] = mx.flat(mx.product(p[name], basis))
                p[name] = mx.gram_schmidt(p[name])
            else:
                parts = [mx.product(mx.transpose(a), p[name]) for a in own]
                q[name] = mx.mean(parts)
                projections = [mx.product(p[name], mx.transpose(part)) for part in parts]
                aggregated[name] = mx.flat(mx.product(p[name], mx.transpose(q[name])))
                q[name] = mx.gram_schmidt(q[name])
            error[name] = [mx.flat(mx.minus(a, b)) for a, b in zip(own, projections)]
        for rank in ranks:
            rank.update(aggregated)
        state = {}
        for name in compressed if step >= WARMUP else []:
            state[f"acpsgd.{name}.residual"] = error[name]
            state[f"acpsgd.{name}.p"] = [mx.flat(mx.transpose(p[name]))]
            state[f"acpsgd.{name}.q"] = [mx.flat(mx.transpose(q[name]))]
        record.step(ranks, state)
    record.write()


if __name__ == "__main__":
    main()
