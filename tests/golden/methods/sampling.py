# SPDX-License-Identifier: MIT
"""MSTopK's selection (arXiv 2010.10458): a threshold by halving, then a run of what lies below it."""

import math

from problem import philox, stream

MASK = (1 << 64) - 1


def below(stream_number, index, n):
    """A uniform integer in [0, n) from Philox, seed 0."""
    b = philox(0, stream_number & MASK, index)
    return (b[0] * n + ((b[1] * n) >> 32)) >> 32


def select(x, k, rounds, rank, step):
    """k indices, in rising order."""
    a = [abs(v) for v in x]
    low, high, mean, largest = 0.0, 1.0, sum(a) / len(a), max(a)
    k1, t1, k2, t2 = 0, math.inf, len(a), 0.0
    for _ in range(rounds):
        ratio = (low + high) / 2
        threshold = mean + ratio * (largest - mean)
        count = sum(v >= threshold for v in a)
        if count <= k:
            high = ratio
            if count > k1:
                k1, t1 = count, threshold
        else:
            low = ratio
            if count < k2:
                k2, t2 = count, threshold
    sure = [i for i, v in enumerate(a) if v >= t1]
    between = [i for i, v in enumerate(a) if t2 <= v < t1]
    need = k - len(sure)
    start = below(stream("mstopk") + rank, step, len(between) - need + 1)
    return sorted(sure + between[start : start + need])
