#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the late cut costs on a CPU: a step before the cut, one that is observed, the cut, a step after it.

    bench/cut_cost.py --data-dir CIFAR10 [--build FOLDER] [--config NAME] [--conv-factors spatial] [--ratio R] [--rounds N]
                      [--threads N]

Short runs of one rank, dense until the cut, in turn with runs that are never cut; medians of steps, as ratios of one
round. Ranks r are a share of all (--ratio), as what data choose after so few steps is not what they choose later.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import build_folder

HERE = pathlib.Path(__file__).resolve().parent
STEPS, OBSERVED = 150, 20


def seconds_of_steps(program, config, data, threads, flags, folder):
    command = [program, "train", "--config", HERE.parent / "apps/configs" / f"{config}.toml", "--data-dir", data, "--ranks", "1",
               "--threads", str(threads), "--ranks-per-node", "0", "--steps", str(STEPS), "--warmup-epochs", "0",
               "--log-every", "1", "--val-samples", "100", "--eval-every", "0", "--out", folder, *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"cut_cost.py: {done.stderr.strip()}")
    lines = [json.loads(line) for line in open(pathlib.Path(folder, "metrics.jsonl"))]
    batch = 32
    steps = [(line["phase"], batch / line["images_per_second"]) for line in lines if line["kind"] == "step"]
    return steps, json.loads(pathlib.Path(folder, "summary.json").read_text())


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data-dir", required=True)
    build_folder.add_option(options, "apps/abtrain")
    options.add_argument("--config", default="vgg16_cifar_dense")
    options.add_argument("--conv-factors", choices=("spatial", "channel"), default="spatial")
    options.add_argument("--ratio", type=float, default=0.25)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--threads", type=int, default=2)
    given = options.parse_args()
    program = f"{given.build}/apps/abtrain"
    cut = ["--method", "late-cut", "--late-cut.full-rank-method", "dense", "--late-cut.low-rank-method", "dense",
           "--late-cut.at", "0.5", "--late-cut.rank-policy", "ratio", "--late-cut.keep", str(given.ratio),
           "--late-cut.conv-factors", given.conv_factors]
    rows, compression = [], 0
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as folder:
            dense, _ = seconds_of_steps(program, given.config, given.data_dir, given.threads, ["--method", "dense"], folder + "/d")
            steps, summary = seconds_of_steps(program, given.config, given.data_dir, given.threads, cut, folder + "/a")
        compression = summary["compression_ratio"]
        first_low = next(i for i, (phase, _) in enumerate(steps) if phase == "low-rank")
        full = [seconds for _, seconds in steps[10:first_low - OBSERVED]]
        observed = [seconds for _, seconds in steps[first_low - OBSERVED:first_low - 1]]
        low = [seconds for _, seconds in steps[first_low + 5:]]
        plain = statistics.median(full)
        rows.append({"dense run": statistics.median(s for _, s in dense[10:]) / plain,
                     "observed": statistics.median(observed) / plain,
                     "cut": (steps[first_low - 1][1] - statistics.median(observed)) / plain,
                     "low-rank": statistics.median(low) / plain, "ms": 1000 * plain})
    print(f"{given.config}, one rank, {given.threads} threads, batch 32; model {compression:.2f} : 1 after the cut")
    print(f"a step at full rank: {statistics.median(row['ms'] for row in rows):.1f} ms; in such steps, median (least to most) of "
          f"{given.rounds} rounds:")
    for name in ("dense run", "observed", "cut", "low-rank"):
        values = [row[name] for row in rows]
        print(f"  {name:<10} {statistics.median(values):6.2f}  ({min(values):.2f} to {max(values):.2f})")


if __name__ == "__main__":
    main()
