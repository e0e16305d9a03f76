# SPDX-License-Identifier: MIT
"""Local SGD with the Quadratic Synchronization Rule (arXiv 2310.14423), after one step of post-local SGD."""

import math

from problem import RATE, SHAPES, STEPS, Rank, Record, mean

RANKS, H, ALPHA, EVERY_STEP_UNTIL = 3, 2, 0.15, 1


def rate(step):
    """Cosine to zero."""
    return RATE * (1 + math.cos(math.pi * step / STEPS)) / 2


def round_length(step):
    if step < EVERY_STEP_UNTIL:
        return 1
    return min(max(H, math.floor((ALPHA / rate(step)) ** 2)), STEPS - step)


def main():
    ranks = [Rank(i) for i in range(RANKS)]
    record = Record(
        "local",
        RANKS,
        f"average_every = {H}\nqsr_alpha = {ALPHA}\n",
        common=f"dense_steps = {EVERY_STEP_UNTIL}\n",
        schedule="cosine",
        name="local_qsr",
    )
    left, lengths = round_length(0), [round_length(0)]
    for step in range(STEPS):
        for r in ranks:
            r.update({name: r.gradient(name, step) for name in SHAPES}, rate(step))
        left -= 1
        if left == 0:
            for name in SHAPES:
                average = mean([r.w[name] for r in ranks])
                for r in ranks:
                    r.w[name] = list(average)
            if step + 1 < STEPS:
                left = round_length(step + 1)
                lengths.append(left)
        record.step(ranks)
    assert lengths == [1, 2, 4, 1], lengths
    record.write()


if __name__ == "__main__":
    main()
