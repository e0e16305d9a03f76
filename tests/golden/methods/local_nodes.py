# SPDX-License-Identifier: MIT
"""Local SGD between nodes: gradients averaged inside a node in every step, parameters over all ranks in every third."""

from problem import SHAPES, STEPS, Rank, Record, mean

RANKS, NODE, H = 5, 2, 3


def main():
    ranks = [Rank(i) for i in range(RANKS)]
    record = Record(
        "local", RANKS, f"average_every = {H}\nnode_size = 0\n", ranks_per_node=NODE, name="local_nodes"
    )
    for step in range(STEPS):
        for first in range(0, RANKS, NODE):
            node = ranks[first : first + NODE]
            gradients = {name: mean([r.gradient(name, step) for r in node]) for name in SHAPES}
            for r in node:
                r.update(gradients)
        if (step + 1) % H == 0 or step + 1 == STEPS:
            for name in SHAPES:
                average = mean([r.w[name] for r in ranks])
                for r in ranks:
                    r.w[name] = list(average)
        record.step(ranks)
    record.write()


if __name__ == "__main__":
    main()
