#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long a rank computes in a run with each method of rivals.tsv, and in dense training: writes computing.tsv.

    bench/computing.py --data-dir CIFAR10 [--build FOLDER] [--rounds N] [--only REGEX]

Short runs of four ranks with one thread each, every row once in a round, each between two of dense training, in whose
mean it is given; a phase lasts for the same share of the run as in the whole run. Communication is in memory and is part
of the time; so is whatever compresses. Runs with a cut are left out, as ranks that data choose after so few steps are not
those of a whole run: network_map.py puts theirs together.
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

import build_folder
import network_map

STEPS, OF_DENSE, STARTING = 60, 20, 3


def steps_of(program, row, data, count):
    """(phase, seconds) of each step."""
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "train", "--config", network_map.HERE.parent / "apps/configs" / f"{row.config}.toml",
                   "--data-dir", data, *row.flags, "--threads", "1", "--ranks-per-node", "2", "--steps", str(count),
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
    total = 0
    for phase in {phase for phase, _ in steps}:
        seconds = [of_step for other, of_step in steps if other == phase]
        total += mean_of_most(seconds[STARTING:]) * whole * len(seconds) / len(steps)
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
    return not (network_map.ONLY_TRAIN.match(row.name) or re.match("late_cut|ab$|narrow|dense_bf16_e", row.name))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data-dir", required=True)
    build_folder.add_option(options, "apps/abtrain")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", default=".", help="rows whose 'NAME CONFIG' this matches")
    given = options.parse_args()
    program = f"{given.build}/apps/abtrain"
    table = network_map.rows_of_table()
    dense = {row.config: row for row in table if row.name == "dense"}
    rows = [row for row in table if measured(row) and re.search(given.only, f"{row.name} {row.config}")]
    rows.sort(key=lambda row: row.config)
    of_dense, seconds_of_dense = [[] for _ in rows], {config: [] for config in dense}
    part_of_a_core = min(os.cpu_count(), network_map.RANKS) / network_map.RANKS

    def seconds(row, count):
        return part_of_a_core * seconds_of_run(steps_of(program, row, given.data_dir, count), row.steps)

    for _ in range(given.rounds):
        for row, parts in zip(rows, of_dense):
            before = seconds(dense[row.config], OF_DENSE)
            own = seconds(row, STEPS)
            after = seconds(dense[row.config], OF_DENSE)
            seconds_of_dense[row.config] += [before, after]
            parts.append(own / statistics.mean([before, after]))
            print(f"{row.config}, {row.name}: {parts[-1]:.3f} of dense ({before:.0f} and {after:.0f} s)", flush=True)
        keep(rows, of_dense, seconds_of_dense)


if __name__ == "__main__":
    main()
