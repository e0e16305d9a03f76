#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What each method of rivals.list computes: CPU seconds of one rank for a run of 1,560 steps, compression included.

    bench/computing.py --data-dir CIFAR10 [--build FOLDER] [--config REGEX] [--rounds N] [--steps N] [--write]

For a quiet machine. Short runs of each method, in turn, a few rounds: a run of N steps and one of 10 differ in steps alone, and the
one of 10 differs from dense training's in what a run pays once, such as AB-training's cut. Shares of a run are shares of
a short one too. Of methods that compute nothing beside training only dense is run. Medians; --write puts them into computing.tsv,
which network_map.py reads.
"""

import argparse
import collections
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
RANKS, FEW, WHOLE = 4, 10, 1560
ONLY_TRAIN = re.compile("(dense_bf16|local|local_nodes|diloco|daso)$")
NOT_METHODS = re.compile("ab_(r[0-9]|dense_c|whole|quarter)|narrow|dense_bf16_e")  # settings tried on the way, controls


def rows_of_list():
    for line in open(HERE / "rivals.list"):
        if line.strip() and not line.startswith("#"):
            row, config, _, flags = (part.strip() for part in line.split("|"))
            if not ONLY_TRAIN.match(row) and not NOT_METHODS.match(row):
                yield row, config, flags.split()


def cpu_seconds(program, config, data, flags, steps):
    """Of one rank."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "train", "--config", HERE.parent / "apps/configs" / f"{config}.toml", "--data-dir", data, "--threads", "1",
                   "--ranks-per-node", "2", "--steps", str(steps), "--val-samples", "100", "--eval-every", "0", "--out",
                   f"{folder}/run", *flags]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"computing.py: {' '.join(flags)}, {config}: {done.stderr.strip()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / RANKS


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data-dir", required=True)
    options.add_argument("--build", default="build")
    options.add_argument("--config", default=".", metavar="REGEX", help="of rows and configs: only those that match")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--write", action="store_true", help="the medians, to computing.tsv")
    given = options.parse_args()
    program = f"{given.build}/apps/abtrain"
    rows = [row for row in rows_of_list() if re.search(given.config, f"{row[0]} {row[1]}")]
    long, short = collections.defaultdict(list), collections.defaultdict(list)
    for _ in range(given.rounds):
        for row, config, flags in rows:
            short[row, config].append(cpu_seconds(program, config, given.data_dir, flags, FEW))
            long[row, config].append(cpu_seconds(program, config, given.data_dir, flags, given.steps))
    lines = ["row\tconfig\tcpu_seconds\tms_per_step\tleast\tmost"]
    for row, config, _ in rows:
        once = statistics.median(short[row, config]) - statistics.median(short["dense", config])
        steps = [(l - s) / (given.steps - FEW) for l, s in zip(long[row, config], short[row, config])]
        seconds = statistics.median(steps) * WHOLE + max(0, once)
        lines.append("\t".join([row, config, f"{seconds:.1f}", *(f"{1000 * value:.1f}" for value in
                                                                   (statistics.median(steps), min(steps), max(steps)))]))
    print("\n".join(lines))
    if given.write:
        (HERE / "computing.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
