# SPDX-License-Identifier: MIT
"""DiLoCo (arXiv 2311.08105): outer steps with Nesterov momentum. Nothing of an outer step is exchanged in between."""

from problem import SHAPES, STEPS, Rank, Record, mean

RANKS, H, RATE_OUTER, MOMENTUM_OUTER = 3, 3, 0.7, 0.9


def main():
    ranks = [Rank(i) for i in range(RANKS)]
    shared = {name: list(ranks[0].w[name]) for name in SHAPES}
    velocity = {name: [0.0] * len(shared[name]) for name in SHAPES}
    record = Record(
        "diloco", RANKS, f"inner_steps = {H}\nouter_lr = {RATE_OUTER}\nouter_momentum = {MOMENTUM_OUTER}\n"
    )
    for step in range(STEPS):
        for r in ranks:
            r.update({name: r.gradient(name, step) for name in SHAPES})
        if (step + 1) % H == 0:
            for name in SHAPES:
                delta = [old - new for old, new in zip(shared[name], mean([r.w[name] for r in ranks]))]
                velocity[name] = [MOMENTUM_OUTER * v + d for v, d in zip(velocity[name], delta)]
                shared[name] = [
                    w - RATE_OUTER * (d + MOMENTUM_OUTER * v) for w, d, v in zip(shared[name], delta, velocity[name])
                ]
                for r in ranks:
                    r.w[name] = list(shared[name])
        flat = {"global": shared, "velocity": velocity}
        record.step(ranks, {f"diloco.0.{k}": [sum((v[name] for name in SHAPES), [])] for k, v in flat.items()})
    record.write()


if __name__ == "__main__":
    main()
