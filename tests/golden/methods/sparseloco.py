# SPDX-License-Identifier: MIT
"""SparseLoCo (arXiv 2508.15706): the largest elements of every tile, in 2 bits, at the end of a round. Every tensor here is
one tile, the bias is taken whole. Nothing is exchanged in between."""

from problem import SHAPES, STEPS, Rank, Record, size

RANKS, H, K, BETA, RATE_OUTER = 3, 3, 8, 0.9, 0.7


def quantised(values):
    """Each value becomes the mean of those that share its code."""
    n = len(values)
    mean = sum(values) / n
    sigma = (sum((v - mean) ** 2 for v in values) / (n - 1)) ** 0.5
    scale = 6 * sigma / 4 if sigma > 0 else 1.0
    codes = [min(3, max(0, round((v - mean) / scale + 2))) for v in values]
    book = {c: sum(v for v, d in zip(values, codes) if d == c) / codes.count(c) for c in codes}
    return [book[c] for c in codes]


def main():
    ranks = [Rank(i) for i in range(RANKS)]
    shared = {name: list(ranks[0].w[name]) for name in SHAPES}
    residual = {name: [[0.0] * size(name) for _ in ranks] for name in SHAPES}
    record = Record(
        "sparseloco", RANKS, f"inner_steps = {H}\ntopk = {K}\nbeta = {BETA}\nouter_lr = {RATE_OUTER}\n"
    )
    for step in range(STEPS):
        for r in ranks:
            r.update({name: r.gradient(name, step) for name in SHAPES})
        for name in SHAPES if (step + 1) % H == 0 else []:
            mean = [0.0] * size(name)
            for i, r in enumerate(ranks):
                e = [BETA * a + g - w for a, g, w in zip(residual[name][i], shared[name], r.w[name])]
                largest = sorted(range(len(e)), key=lambda j: -abs(e[j]))[:K]
                for j, v in zip(largest, quantised([e[j] for j in largest])):
                    e[j] -= v
                    mean[j] += v / RANKS
                residual[name][i] = e
            shared[name] = [w - RATE_OUTER * d for w, d in zip(shared[name], mean)]
            for r in ranks:
                r.w[name] = list(shared[name])
        record.step(
            ranks,
            {
                "sparseloco.global": [sum((shared[name] for name in SHAPES), [])],
                "sparseloco.residual": [sum((residual[name][i] for name in SHAPES), []) for i in range(RANKS)],
            },
        )
    record.write()


if __name__ == "__main__":
    main()
