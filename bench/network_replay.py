#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How far the model of time behind network_map.py is from runs: for some of its networks, a table in Markdown.

    bench/network_replay.py [--build FOLDER] [--only REGEX]

Every cell is time by replay (replay_bench: four ranks that train on the virtual network and sleep while a rank would
compute) over that by `abtrain plan`, for a whole run: of each phase the time of a step, by as many steps as a run has of
it. What happens once (cuts, validations) is left out of both. All-reduce and buckets are those of the map.
"""

import argparse
import json
import re
import subprocess
import sys

import network_map

ROWS = ["dense", "dense_bf16", "ab", "local_nodes", "ab_local_nodes"]
CELLS = {
    "resnet20_dense": [(0.1, "50us"), (1, "4ms")],
    "vgg16_cifar_dense": [(0.3, "50us"), (1, "50us")],
}
STEPS = 25  # so that local averaging, every 4 steps, is seen as often as it happens: a run's last step is not timed
ONCE = ["setup", "split", "evaluation"]


def replayed_steps(program, row, network, exchange):
    """Milliseconds of a step, by phase."""
    command = [program, "--config", f"{network_map.HERE.parent}/apps/configs/{row.config}.toml", "--step-ms",
               str(1000 * row.computing / row.steps), "--network", network, "--ranks-per-node",
               str(network_map.RANKS // network_map.NODES), "--steps", str(STEPS), "--dataset", "synthetic",
               "--train-samples", str(network_map.RANKS * network_map.BATCH * STEPS), "--val-samples", "8",
               "--eval-every", "0", *row.flags, *exchange]
    if row.share:
        command += ["--ab.rank-policy", "ratio", "--ab.ratio", str(row.share), "--ab.directions", "weight"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"network_replay.py: {row.name}, {row.config}: {done.stderr.strip()}")
    lines = map(json.loads, done.stdout.splitlines())
    return {line["phase"]: line["ms_per_step"] for line in lines}


def replayed_over_planned(build, row, network):
    _, exchange = network_map.best_exchange(f"{build}/apps/abtrain", row, network)
    phases = network_map.plan(f"{build}/apps/abtrain", row, network, row.share, exchange)["plan"]["phases"]
    exposed = lambda phase: phases[phase]["communication_seconds"] - phases[phase]["hidden_seconds"]
    replayed = replayed_steps(f"{build}/bench/replay_bench", row, network, exchange)
    planned = row.computing + sum(exposed(phase) for phase in phases if phase not in ONCE)
    times = {phase: phases[phase]["times"] for phase in replayed if phase in phases}
    times |= {phase: row.steps - sum(times.values()) for phase in replayed if phase not in phases}  # that sends nothing
    return sum(ms * times[phase] for phase, ms in replayed.items()) / 1000 / planned


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--build", default="build", help="folder of the build (default: build)")
    options.add_argument("--only", default=".", help="networks and configurations that match")
    given = options.parse_args()
    table = network_map.rows_of_table()
    network_map.take_computing(table)
    rows = {(row.config, row.name): row for row in table}
    print("| run | network between nodes | " + " | ".join(f"`{name}`" for name in ROWS) + " |")
    print("|---|---|" + "---|" * len(ROWS))
    for config, networks in CELLS.items():
        for gbps, latency in networks:
            network = f"latency={latency},bandwidth={gbps}Gbps"
            if not re.search(given.only, f"{config} {network}"):
                continue
            ratios = [f"{replayed_over_planned(given.build, rows[config, name], network):.3f}" for name in ROWS]
            print(f"| {config} | {gbps:g} Gbit/s, {latency} | {' | '.join(ratios)} |", flush=True)


if __name__ == "__main__":
    main()
