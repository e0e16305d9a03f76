#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Speeds that publications report, beside what `abtrain plan` finds for the same set-up: a table in Markdown.

    bench/published.py [--build FOLDER]

Where a publication does not say how long its steps compute, or over what, that is chosen here so that dense training
communicates for the share of its time that the publication reports, and the figure of the method follows from it.
Compression counts where the publication's figure includes it.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import build_folder

PROGRAM = "build/apps/abtrain"
ONCE = ["setup", "split", "evaluation"]


def plan(*settings):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "plan.json")
        dataset = [] if "--dataset" in settings else ["--dataset", "imagenet"]
        done = subprocess.run([PROGRAM, "plan", *dataset, "--out", out, *map(str, settings)],
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"published.py: {' '.join(map(str, settings))}: {done.stderr.strip()}")
        return json.loads(out.read_text())


def seconds(computing, *settings):
    """Of a run whose steps compute for `computing` seconds each, validations left out."""
    of_run = plan("--step-ms", 1000 * computing, *settings)
    phases = [phase for name, phase in of_run["plan"]["phases"].items() if name not in ONCE]
    return of_run["steps"] * computing + sum(p["communication_seconds"] - p["hidden_seconds"] for p in phases)


def bandwidth_where(share, computing, *settings):
    """In Gbit/s, where communication delays dense training for that share of its time."""
    low, high = 1e-2, 1e4
    computed = plan(*settings)["steps"] * computing
    for _ in range(22):
        middle = (low * high) ** 0.5
        time = seconds(computing, *settings, "--network", f"latency=10us,bandwidth={middle}Gbps")
        low, high = (middle, high) if 1 - computed / time > share else (low, middle)
    return high


# AR-Topk (arXiv 2312.02493), ResNet-50 on 8 nodes, 4 ms, 20 Gbit/s: computing takes 24.9 ms, selection 3.1. Of each row its
# published ms a step, seconds of computing here, settings.
ARTOPK_RUN = ["--model", "resnet50", "--ranks", 8, "--ranks-per-node", 1, "--network", "latency=4ms,bandwidth=20Gbps"]
STAR = ["--method", "artopk", "--dense-steps", 0, "--artopk.ratio"]
ARTOPK = {
    "dense, one ring after backward": (152.5, 0.0249, ["--allreduce", "ring", "--bucket-mb", 1000]),
    "STAR by trees, 0.1": (100.8, 0.028, ["--allreduce", "tree", *STAR, 0.1]),
    "STAR by trees, 0.01": (67.7, 0.028, ["--allreduce", "tree", *STAR, 0.01]),
    "STAR by trees, 0.001": (64.4, 0.028, ["--allreduce", "tree", *STAR, 0.001]),
}


def artopk():
    run = ["--batch-size", 32, "--steps", 1000, *ARTOPK_RUN]
    name = "AR-Topk, ms a step: "
    for row, (published, computing, settings) in ARTOPK.items():
        yield (name + row, f"{published}", f"{seconds(computing, *run, *settings):.1f}",
               "our broadcast takes two rounds whatever the number of ranks, theirs three" if row.endswith("0.001") else "")
    yield (name + "STAR by direct exchange, 0.001", "–", f"{seconds(0.028, *run, *STAR, 0.001):.1f}",
           "the algorithm matters more than the ratio")
    small = [*run[:-1], "latency=50us,bandwidth=20Gbps"]
    yield (name + "at 50 µs: dense in buckets, 32 and 16 bits", "–",
           f"{seconds(0.0249, *small):.1f}, {seconds(0.0249, *small, '--comm-dtype', 'bf16'):.1f}",
           f"STAR 0.001: {seconds(0.028, *small, *STAR, 0.001):.1f}")


def scalecom():
    """ScaleCom (arXiv 2104.11125), 8 images a worker: communication 56 % of a step with 128 workers, below 3 % compressed."""
    run = ["--model", "resnet50", "--ranks-per-node", 1, "--batch-size", 8, "--steps", 1000, "--bucket-mb", 1000]
    computing = 0.005
    network = ["--network", f"latency=10us,bandwidth={bandwidth_where(0.56, computing, *run, '--ranks', 128)}Gbps"]
    times = {ranks: [seconds(computing, *run, *network, "--ranks", ranks, *method) for method in
                     ([], ["--method", "scalecom", "--dense-steps", 0],
                      ["--method", "mstopk", "--dense-steps", 0])] for ranks in (8, 32, 128)}
    share = 1 - 1000 * computing / times[128][1]
    yield ("ScaleCom: communication, share of a step with 128 workers", "56 % → below 3 %", f"56 % → {100 * share:.1f} %",
           "most of it the classifier, which our settings exchange whole")
    gains = lambda method: ", ".join(f"{times[ranks][0] / times[ranks][method]:.2f}" for ranks in times)
    yield ("ScaleCom: times as fast as dense with 8, 32, 128 workers", "constant", gains(1),
           f"a gather of every rank's own selection (MSTopK): {gains(2)}")


def daso():
    """DASO (arXiv 2104.05588), ResNet-50, 90 epochs, 4 GPUs a node: 34 % less time than data-parallel training."""
    run = ["--model", "resnet50", "--ranks", 16, "--ranks-per-node", 4, "--batch-size", 256, "--epochs", 90]
    method = ["--method", "daso", "--preset", "release", "--daso.stability", "1"]
    computing = 0.7
    part = lambda gbps, other: seconds(computing, *run, *network(gbps), *method) / seconds(computing, *run, *network(gbps), *other)
    network = lambda gbps: ["--network", f"latency=5us,bandwidth={gbps}Gbps"]
    low, high = 1.0, 100.0
    for _ in range(30):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if part(middle, []) < 0.66 else (low, middle)
    yield ("DASO: less time than dense, 32 bits", "34 %", f"34 % at {high:.1f} Gbit/s between nodes (steps of 0.7 s)",
           f"there {100 * (1 - part(high, ['--comm-dtype', 'bf16'])):.0f} % less than dense with 16 bits")


def qsr():
    """QSR (arXiv 2310.14423), ViT-B, 300 epochs on 16 GPUs: 26.7 → 20.2 hours."""
    steps = 93600
    run = ["--model", "vit_b_16", "--ranks", 16, "--ranks-per-node", 8, "--batch-size", 256, "--steps", steps, "--lr", 0.008,
           "--optimizer", "adamw", "--warmup-steps", 10000, "--min-lr", 1e-6]
    computing = 0.73 * 26.7 * 3600 / steps  # so that 27 % are communication
    for how, settings in ("in one after backward", ["--bucket-mb", 1000]), ("in buckets during backward", []):
        network = ["--network", f"latency=10us,bandwidth={bandwidth_where(0.27, computing, *run, *settings)}Gbps"]
        hours = [seconds(computing, *run, *settings, *network, *method) / 3600
                 for method in ([], ["--method", "local", "--preset", "qsr-vit-b"])]
        yield f"QSR: hours, if dense communicates 27 % of its time, {how}", "26.7 → 20.2", f"{hours[0]:.1f} → {hours[1]:.1f}", ""


def acpsgd():
    """ACP-SGD (arXiv 2306.08881): 1.43 times as fast as PowerSGD in the mean, 1 to 100 Gbit/s, up to 64 GPUs."""
    run = ["--model", "resnet50", "--ranks", 32, "--ranks-per-node", 4, "--batch-size", 64, "--steps", 1000]
    for gbps in (1, 10, 100):
        times = []
        for latency in ("50us", "4ms"):
            network = ["--network", f"latency={latency},bandwidth={gbps}Gbps"]
            of = lambda method: seconds(0.2, *run, *network, "--method", method, f"--{method}.rank", 4, "--dense-steps", 0)
            times.append(f"{of('powersgd') / of('acpsgd'):.2f}")
        yield (f"ACP-SGD: times as fast as PowerSGD, r = 4, {gbps} Gbit/s, 50 µs and 4 ms", "1.43 in the mean", ", ".join(times),
               "what compression takes is left out" if gbps == 1 else "")


def main():
    global PROGRAM
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build_folder.add_option(options, "apps/abtrain")
    PROGRAM = f"{options.parse_args().build}/apps/abtrain"
    print("| figure | published | planned here | |\n|---|---|---|---|")
    for figures in artopk, scalecom, daso, qsr, acpsgd:
        for figure, published, here, remark in figures():
            print(f"| {figure} | {published} | {here} | {remark} |", flush=True)


if __name__ == "__main__":
    main()
