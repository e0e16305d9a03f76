# SPDX-License-Identifier: MIT
"""AR-Topk (arXiv 2312.02493), STAR: the ranks take turns in selecting for all, over all parameters together."""

from problem import SHAPES, STEPS, Rank, Record, mean, size

RANKS, WARMUP, RATIO = 3, 1, 0.1


def largest(x, k):
    return set(sorted(range(len(x)), key=lambda i: -abs(x[i]))[:k])


def flat(rank, step):
    return [v for name in SHAPES for v in rank.gradient(name, step)]


def by_name(vector):
    parts, begin = {}, 0
    for name in SHAPES:
        parts[name] = vector[begin : begin + size(name)]
        begin += size(name)
    return parts


def record_step(record, ranks, average, error):
    for rank in ranks:
        rank.update(by_name(average))
    parts = [by_name(e) for e in error or []]
    record.step(ranks, {f"artopk.{name}.residual": [p[name] for p in parts] for name in SHAPES if parts})


def main():
    ranks = [Rank(i) for i in range(RANKS)]
    total = sum(size(name) for name in SHAPES)
    error = [[0.0] * total for _ in ranks]
    record = Record("artopk", RANKS, f"ratio = {RATIO}\n", common=f"dense_steps = {WARMUP}\n")
    for step in range(STEPS):
        gradients = [flat(r, step) for r in ranks]
        if step < WARMUP:
            record_step(record, ranks, mean(gradients), None)
            continue
        m = [[a + b for a, b in zip(g, e)] for g, e in zip(gradients, error)]
        chosen = largest(m[(step - WARMUP) % RANKS], int(RATIO * total))
        average = [v if i in chosen else 0.0 for i, v in enumerate(mean(m))]
        error = [[0.0 if i in chosen else v for i, v in enumerate(own)] for own in m]
        record_step(record, ranks, average, error)
    record.write()


if __name__ == "__main__":
    main()
