# SPDX-License-Identifier: MIT
"""The all-gather that AR-Topk (arXiv 2312.02493) is compared with: every rank sends what it has selected itself."""

from artopk import flat, largest, record_step
from problem import SHAPES, STEPS, Rank, Record, mean, size

RANKS, WARMUP, RATIO = 3, 1, 0.1


def main():
    ranks = [Rank(i) for i in range(RANKS)]
    total = sum(size(name) for name in SHAPES)
    error = [[0.0] * total for _ in ranks]
    settings = f'ratio = {RATIO}\nmode = "gather"\n'
    record = Record("artopk", RANKS, settings, common=f"dense_steps = {WARMUP}\n", name="artopk_gather")
    for step in range(STEPS):
        gradients = [flat(r, step) for r in ranks]
        if step < WARMUP:
            record_step(record, ranks, mean(gradients), None)
            continue
        average = [0.0] * total
        for rank, gradient in enumerate(gradients):
            m = [a + b for a, b in zip(gradient, error[rank])]
            for i in largest(m, int(RATIO * total)):
                average[i] += m[i] / RANKS
                m[i] = 0.0
            error[rank] = m
        record_step(record, ranks, average, error)
    record.write()


if __name__ == "__main__":
    main()
