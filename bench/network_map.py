#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Which method is the fastest on which network, from the runs of rivals.tsv: a table in Markdown.

    bench/network_map.py [--build FOLDER] [--loss POINTS] [--json FILE]

The time of a run is what one rank computes, as bench/computing.py measured it (methods that only train, and dense, compute
alike), and the communication that delays it, as `abtrain plan --network` has it for that method, bytes and overlap: no run
was made on such a network. Rows that have not been measured are left out. Ranks r that only training tells are stood for
by one share of all, chosen so that as many parameters remain. A method counts where it ends at most POINTS (1) below dense
training, means over seeds. Times are given in that of dense training with 16 bits on the same network; κ is the time that
a float32 gradient takes between nodes over that of computing a step.

"Dense in the time of `ab`" is what dense training reaches, with 32 and with 16 bits, if it ends when `ab` does, with a
learning rate that falls over the shorter run: interpolated between the runs dense_bf16_eN of N epochs.
"""

import argparse
import collections
import csv
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
NODES, RANKS, BATCH = 2, 4, 32
NETWORKS = [(gbps, latency) for latency in ("50us", "1ms", "4ms") for gbps in (0.1, 1, 10, 100)]
ONLY_TRAIN = re.compile("(dense|dense_bf16|local|local_nodes|diloco|daso)$")  # compute nothing beside training
COMPUTES_AS = {"ab_local_nodes": "ab_local"}
NOT_METHODS = re.compile("ab_(r[0-9]|dense_c|whole|quarter|acpsgd_)|narrow|dense_bf16_e")  # settings tried on the way, controls


class Row:
    def __init__(self, lines):
        self.name, self.config = lines[0]["row"], lines[0]["config"]
        self.flags = lines[0]["flags"].split()
        self.top1 = sum(float(line["top1"]) for line in lines) / len(lines)
        self.steps = int(lines[0]["steps"])
        self.parameters = int(lines[0]["parameters_final"])
        self.whole_parameters = int(lines[0]["parameters_full"])
        self.share = None
        self.computing = None  # seconds of a run


def rows_of_table():
    by_row = collections.defaultdict(list)
    with open(HERE / "rivals.tsv", newline="") as table:
        for line in csv.DictReader(table, delimiter="\t"):
            by_row[line["config"], line["row"]].append(line)
    return [Row(lines) for lines in by_row.values()]


def take_computing(rows):
    with open(HERE / "computing.tsv", newline="") as table:
        lines = {(line["config"], line["row"]): line for line in csv.DictReader(table, delimiter="\t")}
    for row in rows:
        measured = "dense" if ONLY_TRAIN.match(row.name) else COMPUTES_AS.get(row.name, row.name)
        dense, own = lines.get((row.config, "dense")), lines.get((row.config, measured))
        if not dense:
            sys.exit(f"network_map.py: computing.tsv has no dense training of {row.config}; bench/computing.py measures it")
        if own:
            row.computing = float(dense["seconds"]) * float(own["of_dense"])


def plan(program, row, network=None, share=None):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "plan.json")
        command = [program, "plan", "--config", HERE.parent / "apps/configs" / f"{row.config}.toml", "--ranks-per-node",
                   str(RANKS // NODES), "--no-activations", "--out", out, *row.flags]
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


def seconds(program, row, network):
    if row.share is None:
        row.share = share_of_ranks(program, row) if row.parameters < row.whole_parameters else 0
    phases = plan(program, row, network, row.share)["plan"]["phases"].values()
    return row.computing + sum(p["communication_seconds"] - p["hidden_seconds"] for p in phases)


def top1_of_part(curve, part):
    """Of dense training for that part of the steps: of points (part, top-1), in between."""
    if part < curve[0][0]:
        return f"below {curve[0][1]:.1f}"
    for (p0, a0), (p1, a1) in zip(curve, curve[1:]):
        if part <= p1:
            return f"{a0 + (a1 - a0) * (part - p0) / (p1 - p0):.1f}"
    return f"{curve[-1][1]:.1f}"


def table_of(program, config, rows, loss):
    dense = next(row for row in rows if row.name == "dense")
    target = dense.top1 - loss
    methods = [row for row in rows if row.computing and not NOT_METHODS.match(row.name)]
    curve = sorted((row.steps / dense.steps, row.top1) for row in rows if row.name.startswith("dense_bf16"))
    bytes_of_dense = 4 * dense.whole_parameters * 2 * (NODES - 1) / NODES
    cells = []
    for gbps, latency in NETWORKS:
        network = f"latency={latency},bandwidth={gbps}Gbps"
        times = {row.name: seconds(program, row, network) for row in methods}
        near = sorted((row for row in methods if row.top1 >= target), key=lambda row: times[row.name])
        kappa = bytes_of_dense / (gbps * 1e9 / 8) / (dense.computing / dense.steps)
        cells.append({"config": config, "gbps": gbps, "latency": latency, "kappa": kappa, "times": times,
                      "fastest": near[0].name, "second": near[1].name if len(near) > 1 else "",
                      "dense_in_time_of_ab": [top1_of_part(curve, times["ab"] / times[name])
                                              for name in ("dense", "dense_bf16")]})
    return cells


def markdown(cells):
    shown = ["dense", "ab", "powersgd", "local_nodes", "ab_local_nodes"]
    print(f"| network between nodes | κ | fastest | next | time of {', '.join(f'`{name}`' for name in shown)} | "
          "dense in the time of `ab` |")
    print("|---|---|---|---|---|---|")
    for cell in cells:
        base = cell["times"]["dense_bf16"]
        part = lambda name: f"{cell['times'][name] / base:.2f}" if name in cell["times"] else "–"
        print(f"| {cell['gbps']:g} Gbit/s, {cell['latency']} | {cell['kappa']:.2g} | `{cell['fastest']}` {part(cell['fastest'])} | "
              f"`{cell['second']}` {part(cell['second'])} | {', '.join(map(part, shown))} | "
              f"{', '.join(cell['dense_in_time_of_ab'])} |")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--build", default="build", help="folder of the build (default: build)")
    options.add_argument("--loss", type=float, default=1.0, metavar="POINTS", help="below dense training (default: 1)")
    options.add_argument("--json", help="also write all times, in seconds")
    given = options.parse_args()
    by_config = collections.defaultdict(list)
    rows = rows_of_table()
    take_computing(rows)
    for row in rows:
        by_config[row.config].append(row)
    cells = []
    for config, rows in by_config.items():
        print(f"\n{config}\n")
        of_config = table_of(f"{given.build}/apps/abtrain", config, rows, given.loss)
        markdown(of_config)
        cells += of_config
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(cells, indent=1))


if __name__ == "__main__":
    main()
