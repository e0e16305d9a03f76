# SPDX-License-Identifier: MIT
"""Small matrices as lists of rows."""

import math

from problem import SHAPES


def view(name, values):
    """A gradient as the matrix [n, m] whose rows are those of its first dimension."""
    m = len(values) // SHAPES[name][0]
    return [values[i : i + m] for i in range(0, len(values), m)]


def flat(a):
    return [v for row in a for v in row]


def transpose(a):
    return [list(column) for column in zip(*a)]


def product(a, b):
    columns = transpose(b)
    return [[sum(x * y for x, y in zip(row, column)) for column in columns] for row in a]


def minus(a, b):
    return [[x - y for x, y in zip(r, s)] for r, s in zip(a, b)]


def plus(a, b):
    return [[x + y for x, y in zip(r, s)] for r, s in zip(a, b)]


def mean(matrices):
    total = matrices[0]
    for a in matrices[1:]:
        total = plus(total, a)
    return [[v / len(matrices) for v in row] for row in total]


def gram_schmidt(a):
    """Orthonormal columns that span those of `a`, from left to right."""
    done = []
    for column in transpose(a):
        for _ in range(2):
            for other in done:
                dot = sum(x * y for x, y in zip(other, column))
                column = [x - dot * y for x, y in zip(column, other)]
        norm = math.sqrt(sum(x * x for x in column))
        done.append([x / norm for x in column])
    return transpose(done)
