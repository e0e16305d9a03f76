# SPDX-License-Identifier: MIT
"""MSTopK with an all-gather (arXiv 2010.10458), over all parameters together."""

from problem import SHAPES, STEPS, Rank, Record, mean, size
from sampling import select

RANKS, WARMUP, DENSITY, ROUNDS = 3, 1, 0.1, 4  # few rounds leave something to the random place


def main():
    ranks = [Rank(i) for i in range(RANKS)]
    total = sum(size(name) for name in SHAPES)
    error = [[0.0] * total for _ in ranks]
    record = Record("mstopk", RANKS, f"density = {DENSITY}\nrounds = {ROUNDS}\n", common=f"dense_steps = {WARMUP}\n")
    for step in range(STEPS):
        gradients = [[v for name in SHAPES for v in r.gradient(name, step)] for r in ranks]
        average = mean(gradients)
        if step >= WARMUP:
            average = [0.0] * total
            for rank, (g, e) in enumerate(zip(gradients, error)):
                m = [a + b for a, b in zip(g, e)]
                for i in select(m, int(DENSITY * total), ROUNDS, rank, step):
                    average[i] += m[i] / RANKS
                    m[i] = 0.0
                error[rank] = m
        state, begin = {}, 0
        for name in SHAPES:
            end = begin + size(name)
            for rank in ranks:
                rank.update({name: average[begin:end]})
            if step >= WARMUP:
                state[f"mstopk.{name}.residual"] = [e[begin:end] for e in error]
            begin = end
        record.step(ranks, state)
    record.write()


if __name__ == "__main__":
    main()
