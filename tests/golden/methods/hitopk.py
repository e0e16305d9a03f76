# SPDX-License-Identifier: MIT
"""HiTopKComm (arXiv 2010.10458) on two nodes of two ranks: slices of node sums, selected between nodes."""

from problem import SHAPES, STEPS, Rank, Record, mean, size
from sampling import select

NODES, LOCAL, WARMUP, DENSITY, ROUNDS = 2, 2, 1, 0.2, 25


def main():
    ranks = [Rank(i) for i in range(NODES * LOCAL)]
    total = sum(size(name) for name in SHAPES)
    length = -(-total // LOCAL)
    error = [[0.0] * length for _ in ranks]
    settings = f"density = {DENSITY}\nrounds = {ROUNDS}\n"
    record = Record("hitopk", len(ranks), settings, common=f"dense_steps = {WARMUP}\n", ranks_per_node=LOCAL)
    for step in range(STEPS):
        gradients = [[v for name in SHAPES for v in r.gradient(name, step)] for r in ranks]
        average = mean(gradients)
        if step >= WARMUP:
            average = [0.0] * total
            for rank in range(len(ranks)):
                node, local = divmod(rank, LOCAL)
                members = gradients[node * LOCAL : (node + 1) * LOCAL]
                begin, end = local * length, min((local + 1) * length, total)
                m = [sum(g[i] for g in members) + error[rank][i - begin] for i in range(begin, end)]
                for i in select(m, int(DENSITY * length), ROUNDS, rank, step):
                    average[begin + i] += m[i] / len(ranks)
                    m[i] = 0.0
                error[rank] = m + [0.0] * (length - len(m))
        begin = 0
        for name in SHAPES:
            end = begin + size(name)
            for rank in ranks:
                rank.update({name: average[begin:end]})
            begin = end
        record.step(ranks, {"hitopk.residual": error} if step >= WARMUP else {})
    record.write()


if __name__ == "__main__":
    main()
