# SPDX-License-Identifier: MIT
"""DeMo (arXiv 2411.19870): momentum of which the largest cosine coefficients travel, and updates that are signs."""

import math

from problem import RATE, SHAPES, STEPS, Rank, Record, size

RANKS, TOPK, DECAY, SIDE = 3, 6, 0.9, 64
COSINES = [
    [math.sqrt((2 if u else 1) / SIDE) * math.cos(math.pi * (2 * x + 1) * u / (2 * SIDE)) for x in range(SIDE)]
    for u in range(SIDE)
]


def view(name, values):
    """Rows of the matrix, one of a vector. All parameters here fit in one tile."""
    rows = SHAPES[name][0] if len(SHAPES[name]) > 1 else 1
    columns = size(name) // rows
    return [values[i * columns : (i + 1) * columns] for i in range(rows)]


def bases(rows):
    """Cosines down a column of the tile, which a vector has not."""
    return COSINES if rows > 1 else [[1.0]]


def transform(a):
    """All coefficients of the matrix behind which the tile is zero, by their places in the tile."""
    down = bases(len(a))
    across = [[sum(c[x] * v for x, v in enumerate(row)) for c in COSINES] for row in a]
    return [sum(c[y] * row[u] for y, row in enumerate(across)) for c in down for u in range(SIDE)]


def restore(coefficients, rows, columns):
    """The part of the tile that the matrix fills, from coefficients by their places."""
    down = bases(rows)
    return [
        sum(v * down[at // SIDE][y] * COSINES[at % SIDE][x] for at, v in coefficients.items())
        for y in range(rows)
        for x in range(columns)
    ]


def main():
    ranks = [Rank(i, momentum=0) for i in range(RANKS)]
    delta = {name: [[0.0] * size(name) for _ in ranks] for name in SHAPES}
    record = Record("demo", RANKS, f"topk = {TOPK}\ndecay = {DECAY}\n", schedule="linear", momentum=0)
    for step in range(STEPS):
        rate = RATE * (1 - step / STEPS)
        updates = {}
        for name in SHAPES:
            sent = []
            for i, rank in enumerate(ranks):
                d = [DECAY * m + rate * g for m, g in zip(delta[name][i], rank.gradient(name, step))]
                matrix = view(name, d)
                c = transform(matrix)
                chosen = sorted(range(len(c)), key=lambda at: -abs(c[at]))
                assert abs(c[chosen[TOPK - 1]]) > abs(c[chosen[TOPK]]) * (1 + 1e-4), "float32 may choose others"
                sent.append({at: c[at] for at in chosen[:TOPK]})
                back = restore(sent[-1], len(matrix), len(matrix[0]))
                delta[name][i] = [a - b for a, b in zip(d, back)]
            mean = {}
            for at in set().union(*sent):
                values = [s[at] for s in sent if at in s]
                mean[at] = sum(values) / len(values)
            q = restore(mean, len(matrix), len(matrix[0]))
            assert min(map(abs, q)) > 1e-5 * max(map(abs, q)), "float32 may have another sign"
            updates[name] = [math.copysign(1.0, v) for v in q]
        for rank in ranks:
            rank.update(updates, rate)
        record.step(ranks, {f"demo.{name}.residual": delta[name] for name in SHAPES})
    record.write()


if __name__ == "__main__":
    main()
