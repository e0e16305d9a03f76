#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Which method is the fastest on which network, from the runs of rivals.tsv: a table in Markdown.

    bench/network_map.py [--build FOLDER] [--config NAME] [--network GBITS,LATENCY]...

The time of a run is what one rank computes, as bench/computing.py measured it (methods that only train, and dense, compute
alike; rows of FULL_RANK_AS as their full-rank method up to the cut, which itself takes STEPS_OF_CUT, and from there the part of
it that `low_rank_step` in rivals.tsv or equal_time.tsv has), and the communication that delays it, as `abtrain plan --network`
has it for that method, bytes and overlap: no run was made on such a network. Dense training and its rivals alike have the
all-reduce (`--allreduce auto`) and, of BUCKETS, the size that suit them best on that network. Rows that have not been measured
are left out. Ranks r that only training tells are stood for by one share of all, chosen so that as many parameters remain.
Times are given in that of dense training with 16 bits on the same network; κ is the time that a float32 gradient takes between
nodes over that of computing a step.

Within so many points of dense training with 32 bits and the same seeds: who gets there first, and who needs up to a twentieth
longer (¹: of one seed). Whoever ends nearer than that trains for less long: as much less as costs dense training the points to
spare, with a learning rate that falls over the shorter run, interpolated between the runs dense_bf16_eN of N epochs. So is
what dense training with 16 bits loses in the time of `late_cut`. `dense_late` is dense training whose float32 gradients travel in
one piece around a ring, after backward.
"""

import argparse
import collections
import csv
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import build_folder

HERE = pathlib.Path(__file__).resolve().parent
NODES, RANKS, BATCH = 2, 4, 32
NETWORKS = [(gbps, latency) for latency in ("50us", "4ms") for gbps in (0.03, 0.1, 0.3, 1, 10)]
BUCKETS = (0.0625, 0.125, 0.25, 0.5, 1, 2, 4, 8)  # MiB
POINTS = (0.5, 1, 2)  # below dense training
AS_FAST = 1.05
ONLY_TRAIN = re.compile("(dense|dense_bf16|local|local_nodes|diloco|diloco_half_lr|daso)$")  # compute nothing beside training
# The first of them that was measured on a model.
FULL_RANK_AS = {"late_cut": ["powersgd"], "late_cut_channel": ["powersgd"], "late_cut_acpsgd": ["acpsgd_r32", "acpsgd_r16"],
                "late_cut_local": ["dense"], "late_cut_local_nodes": ["dense"]}
CUT_AT = 0.7
STEPS_OF_CUT = {"channel": 12, "spatial": 33}  # by bench/cut_cost.py: with what observing adds, on one rank


class Row:
    def __init__(self, lines, low_rank_steps):
        self.name, self.config = lines[0]["row"], lines[0]["config"]
        self.flags = lines[0]["flags"].split()
        self.top1 = {line["seed"]: float(line["top1"]) for line in lines}
        self.steps = int(lines[0]["steps"])
        self.parameters = statistics.mean(int(line["parameters_final"]) for line in lines)
        self.whole_parameters = int(lines[0]["parameters_full"])
        self.low_rank_step = statistics.median(low_rank_steps) if low_rank_steps else None  # of one at full rank
        self.share = None
        self.computing = None  # seconds of a run

    def below(self, dense):
        """Points, mean over the seeds that both have."""
        return statistics.mean(dense.top1[seed] - top1 for seed, top1 in self.top1.items() if seed in dense.top1)


def network_of(text):
    gbps, latency = text.split(",")
    return float(gbps), latency


def rows_of_table():
    by_row, low_rank_steps = collections.defaultdict(list), collections.defaultdict(list)
    for name in ("rivals", "equal_time"):
        with open(HERE / f"{name}.tsv", newline="") as table:
            for line in csv.DictReader(table, delimiter="\t"):
                key = line["config"], line["row"]
                if name == "rivals":
                    by_row[key].append(line)
                if line["low_rank_step"] != "-":
                    low_rank_steps[key].append(float(line["low_rank_step"]))
    return [Row(lines, low_rank_steps[key]) for key, lines in by_row.items()]


def take_computing(rows):
    with open(HERE / "computing.tsv", newline="") as table:
        lines = {(line["config"], line["row"]): line for line in csv.DictReader(table, delimiter="\t")}
    for row in rows:
        measured = FULL_RANK_AS.get(row.name, ["dense" if ONLY_TRAIN.match(row.name) else row.name])
        dense = lines.get((row.config, "dense"))
        own = next((lines[row.config, name] for name in measured if (row.config, name) in lines), None)
        if not dense:
            sys.exit(f"network_map.py: computing.tsv has no dense training of {row.config}; bench/computing.py measures it")
        if own:
            row.computing = float(dense["seconds"]) * float(own["of_dense"])
            if row.name in FULL_RANK_AS:
                if not row.low_rank_step:
                    sys.exit(f"network_map.py: no line of {row.name}, {row.config}, has its low_rank_step")
                factors = "channel" if "channel" in row.flags else "spatial"
                row.computing *= CUT_AT + (1 - CUT_AT) * row.low_rank_step + STEPS_OF_CUT[factors] / row.steps


def plan(program, row, network=None, share=None, flags=()):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "plan.json")
        command = [program, "plan", "--config", HERE.parent / "apps/configs" / f"{row.config}.toml", "--ranks-per-node",
                   str(RANKS // NODES), "--out", out, *row.flags, *flags]
        if network:
            command += ["--network", network, "--step-ms", str(1000 * row.computing / row.steps)]
        if share:
            command += ["--ratio", str(share)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"network_map.py: {row.name}, {row.config}: {done.stderr.strip()}")
        return json.loads(out.read_text())


def share_of_ranks(program, row):
    """The share of all singular values with which the plan ends with the row's parameters."""
    low, high = 1e-3, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        if plan(program, row, share=middle)["parameters_final"] < row.parameters:
            low = middle
        else:
            high = middle
    return high


def seconds(program, row, network, flags):
    if row.share is None:
        row.share = share_of_ranks(program, row) if row.parameters < row.whole_parameters else 0
    phases = plan(program, row, network, row.share, flags)["plan"]["phases"].values()
    return row.computing + sum(p["communication_seconds"] - p["hidden_seconds"] for p in phases)


def best_exchange(program, row, network):
    """The seconds of a run and the flags, with the all-reduce and the size of buckets that suit it best."""
    sizes = ["--bucket-mb", "--acpsgd.bucket-mb"] if "acpsgd" in row.flags else ["--bucket-mb"]
    tried = [["--allreduce", "auto", *(text for size in sizes for text in (size, str(mib)))] for mib in BUCKETS]
    return min((seconds(program, row, network, flags), flags) for flags in tried)


def between(points, x):
    """At x, of points (x, y) that rise in x: on straight lines, as at the last one behind it, None before the first."""
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 <= x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1] if x > points[-1][0] else None


def cell_of(program, rows, gbps, latency):
    """Of one network: the times of all methods in that of dense training with 16 bits, and the fastest."""
    network = f"latency={latency},bandwidth={gbps}Gbps"
    by_name = {row.name: row for row in rows}
    dense, sixteen = by_name["dense"], by_name["dense_bf16"]
    shorter = [(row.steps / sixteen.steps, row.below(dense)) for row in rows if row.name.startswith("dense_bf16")]
    methods = [row for row in rows if row.computing]
    seconds_of = {row.name: best_exchange(program, row, network)[0] for row in methods}
    seconds_of["dense_late"] = seconds(program, dense, network, ["--allreduce", "ring", "--bucket-mb", "1024"])
    times = {name: time / seconds_of["dense_bf16"] for name, time in seconds_of.items()}
    fastest = []
    for points in POINTS:
        part = lambda row: between(sorted((below, part) for part, below in shorter), sixteen.below(dense) + (points - row.below(dense)))
        near = {row.name: times[row.name] * part(row) for row in methods if row.below(dense) <= points}
        least = min(near.values())
        fastest.append({name: near[name] for name in sorted(near, key=near.get) if near[name] <= AS_FAST * least})
    kappa = 4 * dense.whole_parameters * 2 * (NODES - 1) / NODES / (gbps * 1e9 / 8) / (dense.computing / dense.steps)
    return {"gbps": gbps, "latency": latency, "kappa": kappa, "times": times, "fastest": fastest,
            "of_one_seed": [row.name for row in rows if len(row.top1) == 1],
            "dense_below_in_time_of_late_cut": between(sorted(shorter), min(times["late_cut"], 1))}


def markdown(cells):
    shown = ["dense_late", "dense", "late_cut", "late_cut_channel", "powersgd", "local_nodes", "late_cut_local_nodes"]
    print(f"| network between nodes | κ | {' | '.join(f'within {points:g}' for points in POINTS)} | "
          f"time of {', '.join(f'`{name}`' for name in shown)} | below: dense in the time of `late_cut` |")
    print("|---|---|" + "---|" * (len(POINTS) + 2))
    for cell in cells:
        names = lambda near: ", ".join(f"`{name}`{'¹' if name in cell['of_one_seed'] else ''} {time:.2f}" for name, time in near.items())
        part = lambda name: f"{cell['times'][name]:.2f}" if name in cell["times"] else "–"
        below = cell["dense_below_in_time_of_late_cut"]
        print(f"| {cell['gbps']:g} Gbit/s, {cell['latency']} | {cell['kappa']:.2g} | {' | '.join(map(names, cell['fastest']))} | "
              f"{', '.join(map(part, shown))} | {'more than was trained' if below is None else f'{below:.1f}'} |")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build_folder.add_option(options, "apps/abtrain")
    options.add_argument("--config", help="of that one alone")
    options.add_argument("--network", action="append", type=network_of, metavar="GBITS,LATENCY",
                         help="between nodes, in place of those of the table: 25,5us; may be given again")
    given = options.parse_args()
    by_config = collections.defaultdict(list)
    rows = rows_of_table()
    take_computing(rows)
    for row in rows:
        by_config[row.config].append(row)
    if given.config not in (None, *by_config):
        options.error(f"--config: rivals.tsv has {', '.join(by_config)}")
    for config, rows in by_config.items():
        if given.config in (None, config):
            print(f"\n{config}\n")
            markdown([cell_of(f"{given.build}/apps/abtrain", rows, gbps, latency) for gbps, latency in given.network or NETWORKS])


if __name__ == "__main__":
    main()
