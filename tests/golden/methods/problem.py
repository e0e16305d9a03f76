# SPDX-License-Identifier: MIT
"""The run that every method here goes through: three small parameters, a few ranks, eight updates by SGD.

Every program of this folder computes one method in float64, from its publication, and writes NAME.json with what the
parameters and the method's memory are after every update. tests/train/method_golden_test.cpp lets the strategy of that name
do the same run. Python's standard library is all that is needed.

A tensor is a list of numbers, row by row.  u(name) are numbers in [-1, 1) by formula (formula_init.h):
  parameter   w = u(name) / 2
  gradient    g = w / 2 + u("NAME common STEP") + u("NAME rank RANK step STEP") / 2
  update      v = 0.9 v + g + 0.01 w,  w = w - 0.1 v
"""

import copy
import json
import math
import pathlib

SHAPES = {"linear.weight": (6, 5), "conv.weight": (4, 3, 3, 3), "bias": (6,)}
STEPS, RATE, MOMENTUM, DECAY = 8, 0.1, 0.9, 0.01
MASK = (1 << 64) - 1


def size(name):
    return math.prod(SHAPES[name])


def stream(name):
    """FNV-1a, 64 bits."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def uniform(name, count):
    """Upper 24 bits of splitmix64, as numbers in [-1, 1)."""
    seed, numbers = stream(name), []
    for i in range(1, count + 1):
        z = (seed + i * 0x9E3779B97F4A7C15) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        numbers.append(((z ^ (z >> 31)) >> 40) * 2.0**-23 - 1.0)
    return numbers


def philox(seed, stream_number, index):
    """Philox4x32-10 (Salmon et al. 2011): four 32-bit numbers."""
    low = 0xFFFFFFFF
    c = [index & low, index >> 32, stream_number & low, stream_number >> 32]
    k = [seed & low, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & low, (p0 >> 32) ^ c[3] ^ k[1], p0 & low]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
    return c


def normal(seed, name, count):
    """Box-Muller: standard normal numbers 0 ... count-1 of the stream `name`."""
    numbers = []
    for i in range(count):
        b = philox(seed, stream(name), i)
        u, angle = ((b[0] >> 8) + 0.5) * 2.0**-24, 2 * math.pi * (b[1] >> 8) * 2.0**-24
        numbers.append(math.sqrt(-2 * math.log(u)) * math.cos(angle))
    return numbers


def mean(vectors):
    return [sum(values) / len(vectors) for values in zip(*vectors)]


class Rank:
    """The replica of one rank with the state of its optimizer."""

    def __init__(self, rank, momentum=MOMENTUM):
        self.rank, self.momentum = rank, momentum
        self.w = {name: [u / 2 for u in uniform(name, size(name))] for name in SHAPES}
        self.v = {name: [0.0] * size(name) for name in SHAPES}

    def gradient(self, name, step):
        common = uniform(f"{name} common {step}", size(name))
        own = uniform(f"{name} rank {self.rank} step {step}", size(name))
        return [w / 2 + a + b / 2 for w, a, b in zip(self.w[name], common, own)]

    def update(self, gradients, rate=RATE):
        for name, g in gradients.items():
            w = self.w[name]
            self.v[name] = [self.momentum * v + x + DECAY * y for v, x, y in zip(self.v[name], g, w)]
            self.w[name] = [y - rate * v for y, v in zip(w, self.v[name])]


class Record:
    """What happened, for NAME.json, where NAME is the method or, for another variant of it, `name`."""

    def __init__(self, method, ranks, settings, common="", ranks_per_node=0, schedule="constant", name=None,
                 momentum=MOMENTUM):
        self.name, self.steps = name or method, []
        self.text = {
            "ranks": ranks,
            "ranks_per_node": ranks_per_node,
            "config": f'method = "{method}"\noptimizer = "sgd"\nlr = {RATE}\nmomentum = {momentum}\n'
            f'weight_decay = {DECAY}\nschedule = "{schedule}"\nsteps = {STEPS}\nseed = 0\n'
            f"{common}" + (f"[{method}]\n{settings}" if settings else ""),
        }

    def step(self, ranks, state=None, mean_state=None):
        """After an update. state: by the name in a checkpoint, one list of numbers for each rank; or one for all.
        mean_state: the mean over ranks, where only that is known."""
        parameters = {name: [list(r.w[name]) for r in ranks] for name in SHAPES}
        step = {"parameters": parameters, "state": copy.deepcopy(state or {})}
        if mean_state:
            step["mean_state"] = {name: [list(values)] for name, values in mean_state.items()}
        self.steps.append(step)

    def write(self):
        def rounded(x):
            return [rounded(v) for v in x] if isinstance(x, list) else float(f"{x:.9g}")

        def merged(lists):
            return lists[:1] if all(v == lists[0] for v in lists) else lists

        steps = [{part: {k: merged(rounded(v)) for k, v in step[part].items()} for part in step} for step in self.steps]
        path = pathlib.Path(__file__).parent / f"{self.name}.json"
        lines = ",\n".join(json.dumps(step) for step in steps)
        head = json.dumps(self.text)[:-1]
        path.write_text(f'{head}, "steps": [\n{lines}\n]}}\n')
