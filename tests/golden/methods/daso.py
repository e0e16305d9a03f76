# SPDX-License-Identifier: MIT
"""DASO (arXiv 2104.05588) in cycling epochs: nodes of unequal size send every second step and merge one step later.

Of every node one rank sends, the next one for every exchange; a node counts by its ranks. The last step of an epoch
averages instead.
"""

from problem import SHAPES, STEPS, Rank, Record, mean

RANKS, NODE, EPOCH, B, S = 5, 2, 7, 2, 1


def weighted_mean(vectors, weights):
    return [sum(w * x for w, x in zip(weights, values)) / sum(weights) for values in zip(*vectors)]


def main(name="daso", skips=B, wait=S):
    ranks = [Rank(i) for i in range(RANKS)]
    nodes = [ranks[first : first + NODE] for first in range(0, RANKS, NODE)]
    sizes = [len(node) for node in nodes]
    record = Record(
        "daso",
        RANKS,
        f"blocking_epochs = 0\ncooldown_epochs = 0\nstart_skips = {skips}\nstart_wait = {wait}\n",
        ranks_per_node=NODE,
        name=name,
    )
    record.text["steps_per_epoch"] = EPOCH
    exchange, pending = 0, None
    for step in range(STEPS):
        b, last = step % EPOCH, min(EPOCH, STEPS - step // EPOCH * EPOCH) - 1
        for node in nodes:
            gradients = {p: mean([r.gradient(p, step) for r in node]) for p in SHAPES}
            for r in node:
                r.update(gradients)
        senders = [node[exchange % len(node)] for node in nodes]
        sent = {p: weighted_mean([r.w[p] for r in senders], sizes) for p in SHAPES}
        if b == last:
            for r in ranks:
                r.w = {p: list(sent[p]) for p in SHAPES}
            exchange = 0
        else:
            due = pending if pending and pending["step"] == b else None
            if due:
                pending = None
            if b % skips == 0 and b + wait < last:
                pending = {"step": b + wait, "mean": sent, "exchange": exchange}
                exchange += 1
            if due:
                m = len(nodes)
                for node in nodes:
                    sender = node[due["exchange"] % len(node)]
                    merged = {
                        p: [(2 * wait * x + m * y) / (2 * wait + m) for x, y in zip(sender.w[p], due["mean"][p])]
                        for p in SHAPES
                    }
                    for r in node:
                        r.w = {p: list(merged[p]) for p in SHAPES}
        record.step(ranks)
    record.write()


if __name__ == "__main__":
    main()
