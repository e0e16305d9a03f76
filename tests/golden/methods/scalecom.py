# SPDX-License-Identifier: MIT
"""ScaleCom (arXiv 2104.11125): cyclic local top-k, one element per chunk, and the low-pass memory."""

from problem import SHAPES, STEPS, Rank, Record, mean, size

RANKS, WARMUP, BETA = 3, 1, 0.3
RATES = {"linear.weight": 4, "conv.weight": 50}  # the last chunk of each is shorter


def main():
    ranks = [Rank(i) for i in range(RANKS)]
    memory = {name: [[0.0] * size(name) for _ in ranks] for name in RATES}
    record = Record("scalecom", RANKS, f'rate = 4\nrates = ["conv=50"]\nbeta = {BETA}\n', common=f"dense_steps = {WARMUP}\n")
    for step in range(STEPS):
        gradients = {name: [r.gradient(name, step) for r in ranks] for name in SHAPES}
        aggregated = {name: mean(g) for name, g in gradients.items()}
        for name, rate in RATES.items() if step >= WARMUP else []:
            p = [[a + b for a, b in zip(m, g)] for m, g in zip(memory[name], gradients[name])]
            leader = p[(step - WARMUP) % RANKS]
            chosen = set()
            for begin in range(0, size(name), rate):
                chunk = range(begin, min(begin + rate, size(name)))
                chosen.add(max(chunk, key=lambda i: abs(leader[i])))
            aggregated[name] = [v if i in chosen else 0.0 for i, v in enumerate(mean(p))]
            memory[name] = [
                [(1 - BETA) * m + BETA * (0.0 if i in chosen else v) for i, (m, v) in enumerate(zip(old, new))]
                for old, new in zip(memory[name], p)
            ]
        for rank in ranks:
            rank.update(aggregated)
        active = RATES if step >= WARMUP else []
        record.step(ranks, {f"scalecom.{name}.residual": memory[name] for name in active})
    record.write()


if __name__ == "__main__":
    main()
