# SPDX-License-Identifier: MIT
"""Streaming DiLoCo: two fragments take turns, travel while a step is computed, and are mixed with what it changed.

The counter runs from 1 to h = H/F. At h - OVERLAP the outer gradient of the fragment leaves, at h it has arrived.
"""

from problem import SHAPES, STEPS, Rank, Record, mean

RANKS, H, F, OVERLAP, MIX, RATE_OUTER, MOMENTUM_OUTER = 3, 6, 2, 1, 0.25, 0.6, 0.8
FRAGMENTS = [["linear.weight", "bias"], ["conv.weight"]]  # each tensor in turn to the one that has the fewest numbers


def main():
    ranks = [Rank(i) for i in range(RANKS)]
    shared = {name: list(ranks[0].w[name]) for name in SHAPES}
    velocity = {name: [0.0] * len(shared[name]) for name in SHAPES}
    record = Record(
        "diloco",
        RANKS,
        f"inner_steps = {H}\nfragments = {F}\noverlap_steps = {OVERLAP}\nmixing = {MIX}\n"
        f"outer_lr = {RATE_OUTER}\nouter_momentum = {MOMENTUM_OUTER}\n",
        name="diloco_streaming",
    )
    counter, turn, in_flight = 0, 0, {}
    for step in range(STEPS):
        for r in ranks:
            r.update({name: r.gradient(name, step) for name in SHAPES})
        counter += 1
        if counter == H // F - OVERLAP:
            for name in FRAGMENTS[turn]:
                in_flight[name] = mean([[a - b for a, b in zip(shared[name], r.w[name])] for r in ranks])
        if counter == H // F:
            for name in FRAGMENTS[turn]:
                delta = in_flight.pop(name)
                velocity[name] = [MOMENTUM_OUTER * v + d for v, d in zip(velocity[name], delta)]
                shared[name] = [
                    w - RATE_OUTER * (d + MOMENTUM_OUTER * v) for w, d, v in zip(shared[name], delta, velocity[name])
                ]
                for r in ranks:
                    r.w[name] = [(1 - MIX) * g + MIX * own for g, own in zip(shared[name], r.w[name])]
            counter, turn = 0, (turn + 1) % F
        state = {}
        for f, names in enumerate(FRAGMENTS):
            state[f"diloco.{f}.global"] = [sum((shared[name] for name in names), [])]
            state[f"diloco.{f}.velocity"] = [sum((velocity[name] for name in names), [])]
            if names[0] in in_flight:
                state[f"diloco.{f}.arrived"] = [sum((in_flight[name] for name in names), [])]
        record.step(ranks, state)
    record.write()


if __name__ == "__main__":
    main()
