# SPDX-License-Identifier: MIT
"""Means of gradients with 8 bits on the wire, rounded at random (QSGD, arXiv 1610.02132) in two exchanges (arXiv 2306.10209)."""

import math

from problem import STEPS, Rank, Record, philox, size, stream

RANKS, BLOCK = 3, 16
ORDER = ("conv.weight", "linear.weight", "bias")  # in their bucket: sizes that four divides, then the largest
TOTAL = sum(size(name) for name in ORDER)
PART = math.ceil(TOTAL / (RANKS * BLOCK)) * BLOCK


def rounded(x, what, rank, step):
    """x in blocks of 8 bits and back."""
    result = []
    for begin in range(0, len(x), BLOCK):
        block = x[begin:begin + BLOCK]
        scale = max(map(abs, block)) / 127
        for i, value in enumerate(block, begin):
            word = philox(0, stream(what) + rank, step * RANKS * PART // 8 + i // 8)[i % 8 // 2]
            u = ((word >> 16 * (i % 2) & 0xFFFF) + 0.5) / 65536
            result.append(scale * max(-127, min(127, math.floor(value / scale + u))) if scale > 0 else 0.0)
    return result


def main():
    ranks = [Rank(i) for i in range(RANKS)]
    record = Record("int8", RANKS, f"block = {BLOCK}\n")
    for step in range(STEPS):
        sent = []
        for rank in ranks:
            flat = [v for name in ORDER for v in rank.gradient(name, step)]
            sent.append(rounded(flat + [0.0] * (RANKS * PART - TOTAL), "int8", rank.rank, step))
        mean = [sum(values) / RANKS for values in zip(*sent)]
        average = [v for r in range(RANKS) for v in rounded(mean[r * PART:(r + 1) * PART], "int8 mean", r, step)]
        begin = 0
        for name in ORDER:
            for rank in ranks:
                rank.update({name: average[begin:begin + size(name)]})
            begin += size(name)
        record.step(ranks)
    record.write()


if __name__ == "__main__":
    main()
