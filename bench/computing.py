#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long a rank computes in a run with each method of rivals.tsv, and in dense training: writes computing.tsv.

    bench/computing.py --data-dir CIFAR10 [--build FOLDER] [--rounds N] [--only REGEX]

Short runs of four ranks with one thread each, every row once in a round, each between two of dense training, in whose
mean it is given; a phase lasts for the same share of the run as in the whole run, but for the steps that AB-training
observes before a cut, which are so many in any run. Ranks r are one share of all that leaves as many parameters as the
row has, as what data choose after so few steps is not what they choose later. Communication is in memory and is part of
the time; so is whatever compresses. What the cut itself takes is left out (bench/cut_cost.py).
"""

import argparse
import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import network_map

STEPS, OF_DENSE, OBSERVED, STARTING = 60, 20, 20, 3
LEFT_OUT = re.compile("ab_groups")  # its phases are so many steps, not shares of a run


def steps_of(program, row, data, count, share):
    """(phase, seconds) of each step."""
    flags = ["--ab.rank-policy", "ratio", "--ab.ratio", str(share)] if share else []
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "train", "--config", network_map.HERE.parent / "apps/configs" / f"{row.config}.toml",
                   "--data-dir", data, *row.flags, *flags, "--threads", "1", "--ranks-per-node", "2", "--steps", str(count),
                   "--warmup-steps", "5", "--log-every", "1", "--eval-every", "0", "--val-samples", "100", "--out", folder,
                   "--overwrite"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"computing.py: {row.name}, {row.config}: {done.stderr.strip()}")
        lines = map(json.loads, open(pathlib.Path(folder, "metrics.jsonl")))
        images = network_map.RANKS * network_map.BATCH
        return [(line["phase"], images / line["images_per_second"]) for line in lines if line["kind"] == "step"]


def mean_of_most(seconds):
    """Without the slowest tenth."""
    return statistics.mean(sorted(seconds)[:len(seconds) - len(seconds) // 10])


def seconds_of_run(steps, whole):
    """Of a run of that many steps."""
    total, cut = 0, next((i for i, (phase, _) in enumerate(steps) if phase == "low-rank"), None)
    for phase in {phase for phase, _ in steps}:
        at = [i for i, (other, _) in enumerate(steps) if other == phase]
        observed = [i for i in at if cut is not None and cut - OBSERVED <= i < cut]
        plain = [i for i in at[STARTING:] if i not in observed]
        mean = mean_of_most([steps[i][1] for i in plain])
        total += mean * whole * len(at) / len(steps)
        if observed:
            total += OBSERVED * (mean_of_most([steps[i][1] for i in observed[:-1]]) - mean)
    return total


def keep(rows, of_dense, seconds_of_dense):
    """Puts them into the table, beside the rows that it has of others."""
    path = network_map.HERE / "computing.tsv"
    lines = {}
    if path.exists():
        with open(path, newline="") as table:
            lines = {(line["config"], line["row"]): line for line in csv.DictReader(table, delimiter="\t")}
    numbers = lambda seconds, parts: {"seconds": f"{seconds:.1f}"} | {
        column: f"{of(parts):.3f}" for column, of in (("of_dense", statistics.median), ("least", min), ("most", max))}
    for config, seconds in seconds_of_dense.items():
        if seconds:
            lines[config, "dense"] = numbers(statistics.median(seconds), [1])
    for row, parts in zip(rows, of_dense):
        lines[row.config, row.name] = numbers(statistics.median(parts) * statistics.median(seconds_of_dense[row.config]), parts)
    with open(path, "w", newline="") as out:
        table = csv.DictWriter(out, ["row", "config", "seconds", "of_dense", "least", "most"], delimiter="\t", lineterminator="\n")
        table.writeheader()
        for (config, row), line in sorted(lines.items(), key=lambda item: (item[0][0], item[0][1] != "dense", item[0][1])):
            table.writerow(line | {"row": row, "config": config})


def measured(row):
    return not (LEFT_OUT.match(row.name) or network_map.ONLY_TRAIN.match(row.name) or
                network_map.NOT_METHODS.match(row.name))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data-dir", required=True)
    options.add_argument("--build", default="build")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", default=".", help="rows whose 'NAME CONFIG' this matches")
    given = options.parse_args()
    program = f"{given.build}/apps/abtrain"
    table = network_map.rows_of_table()
    dense = {row.config: row for row in table if row.name == "dense"}
    rows = [row for row in table if measured(row) and re.search(given.only, f"{row.name} {row.config}")]
    rows.sort(key=lambda row: row.config)
    shares = [network_map.share_of_ranks(program, row) if row.parameters < row.whole_parameters else 0 for row in rows]
    of_dense, seconds_of_dense = [[] for _ in rows], {config: [] for config in dense}
    part_of_a_core = min(os.cpu_count(), network_map.RANKS) / network_map.RANKS

    def seconds(row, count, share=0):
        return part_of_a_core * seconds_of_run(steps_of(program, row, given.data_dir, count, share), row.steps)

    for _ in range(given.rounds):
        for row, share, parts in zip(rows, shares, of_dense):
            before = seconds(dense[row.config], OF_DENSE)
            own = seconds(row, STEPS, share)
            after = seconds(dense[row.config], OF_DENSE)
            seconds_of_dense[row.config] += [before, after]
            parts.append(own / statistics.mean([before, after]))
            print(f"{row.config}, {row.name}: {parts[-1]:.3f} of dense ({before:.0f} and {after:.0f} s)", flush=True)
        keep(rows, of_dense, seconds_of_dense)


if __name__ == "__main__":
    main()
