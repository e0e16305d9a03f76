#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How far the model of time behind network_map.py and published.py is from runs: tables in Markdown.

    bench/network_replay.py [--build FOLDER] [--only REGEX] [--artopk]

Every cell is time by replay (replay_bench: ranks that train on the virtual network and sleep while a rank would compute)
over that by `abtrain plan`, for a whole run: of each phase the time of a step, by as many steps as a run has of it. What
happens once (cuts, validations) is left out of both. All-reduce and buckets are those of the map.
--artopk: instead, in milliseconds, the steps of ResNet-50 whose times AR-Topk's authors publish, with ten classes.
"""

import argparse
import json
import re
import subprocess
import sys

import build_folder
import network_map
import published

# By their column in the table; the first of them that a configuration has is replayed.
ROWS = {"dense": ["dense"], "dense_bf16": ["dense_bf16"], "late_cut_channel": ["late_cut_channel"], "local_nodes": ["local_nodes"],
        "late_cut_local_nodes": ["late_cut_local_nodes"], "acpsgd": ["acpsgd_r32", "acpsgd_r16"], "artopk_5": ["artopk_5"],
        "hitopk_5": ["hitopk_5"]}
CELLS = {
    "resnet20_dense": [(0.1, "50us"), (0.1, "4ms"), (1, "4ms")],
    "vgg16_cifar_dense": [(0.3, "50us"), (1, "50us")],
}
STEPS = 25  # so that local averaging, every 4 steps, is seen as often as it happens: a run's last step is not timed
ONCE = ["setup", "split", "evaluation"]


def replayed_steps(build, computing, samples, *settings):
    """Milliseconds of a step whose rank computes for so many seconds, by phase; `samples` are trained on in all."""
    command = [f"{build}/bench/replay_bench", "--step-ms", 1000 * computing, "--dataset", "synthetic", "--train-samples", samples,
               "--val-samples", 8, "--eval-every", 0, *settings]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"network_replay.py: {' '.join(map(str, command))}: {done.stderr.strip()}")
    lines = map(json.loads, done.stdout.splitlines())
    return {line["phase"]: line["ms_per_step"] for line in lines}


def replayed_over_planned(build, row, network):
    _, exchange = network_map.best_exchange(f"{build}/apps/abtrain", row, network)
    phases = network_map.plan(f"{build}/apps/abtrain", row, network, row.share, exchange)["plan"]["phases"]
    exposed = lambda phase: phases[phase]["communication_seconds"] - phases[phase]["hidden_seconds"]
    by_share = ["--late-cut.rank-policy", "ratio", "--late-cut.keep", row.share] if row.share else []
    replayed = replayed_steps(build, row.computing / row.steps, network_map.RANKS * network_map.BATCH * STEPS, "--config",
                              f"{network_map.HERE.parent}/apps/configs/{row.config}.toml", "--network", network,
                              "--ranks-per-node", network_map.RANKS // network_map.NODES, "--steps", STEPS, *row.flags, *exchange,
                              *by_share)
    planned = row.computing + sum(exposed(phase) for phase in phases if phase not in ONCE)
    times = {phase: phases[phase]["times"] for phase in replayed if phase in phases}
    times |= {phase: row.steps - sum(times.values()) for phase in replayed if phase not in phases}  # that sends nothing
    return sum(ms * times[phase] for phase, ms in replayed.items()) / 1000 / planned


def networks_of_the_map(build, only):
    table = network_map.rows_of_table()
    network_map.take_computing(table)
    rows = {(row.config, row.name): row for row in table if row.computing}
    print("| run | network between nodes | " + " | ".join(f"`{name}`" for name in ROWS) + " |")
    print("|---|---|" + "---|" * len(ROWS))
    for config, networks in CELLS.items():
        for gbps, latency in networks:
            network = f"latency={latency},bandwidth={gbps}Gbps"
            cells = []
            for names in ROWS.values():
                row = next((rows[config, name] for name in names if (config, name) in rows), None)
                wanted = row and re.search(only, f"{config} {network} {row.name}")
                cells.append(f"{replayed_over_planned(build, row, network):.3f}" if wanted else "–")
            print(f"| {config} | {gbps:g} Gbit/s, {latency} | {' | '.join(cells)} |", flush=True)


def artopk(build):
    """On a network slower by so much that what ranks really compute, all on the same cores, fits into what they sleep."""
    published.PROGRAM = f"{build}/apps/abtrain"
    steps, ranks = 4, 8
    print("| ResNet-50, 8 nodes, 4 ms, 20 Gbit/s | published | planned | replayed |\n|---|---|---|---|")
    for name, (figure, computing, settings) in published.ARTOPK.items():
        run = ["--batch-size", 1, "--steps", steps, *published.ARTOPK_RUN, *settings]
        planned = 1000 * published.seconds(computing, "--dataset", "synthetic", "--image-size", 224, *run) / steps
        replayed, = replayed_steps(build, computing, ranks * steps, "--image-size", 224, "--dilation", 250, *run).values()
        print(f"| {name} | {figure} | {planned:.1f} | {replayed:.1f} |", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build_folder.add_option(options, "apps/abtrain", "bench/replay_bench")
    options.add_argument("--only", default=".", help="of the map: configurations, networks and rows that match")
    options.add_argument("--artopk", action="store_true")
    given = options.parse_args()
    if given.artopk:
        artopk(given.build)
    else:
        networks_of_the_map(given.build, given.only)


if __name__ == "__main__":
    main()
