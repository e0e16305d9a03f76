#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training speed of abtrain and PyTorch on the same step, in turns on one machine.

    PYTHON=venv/bin/python bench/peers/compare_train.py --model resnet20 --rounds 5
    bench/peers/compare_train.py --device cuda --model resnet50 --classes 1000 --image-size 224 --precision bf16

Every contestant is a process that warms up once and then takes turns of --steps steps, round by round, so that all of
them meet the same machine. Prints a table: milliseconds per step and images per second (medians over the rounds), and
how many times as fast as each PyTorch of the same precision the contestants of abtrain are (median, lowest and highest
ratio of a round). Needs Python's standard library alone; $PYTHON names the one that has torch. A contestant that does
not get ready in time, or fails, is reported with its reason, and the others go on.
Exit codes: 0, or 1 when a contestant of abtrain failed, 2 wrong flags.
"""

import argparse
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

PEERS = Path(__file__).resolve().parent
ROOT = PEERS.parents[1]

# Name: precision (None: that of --precision), what is added to the flags, whether it has the machine to itself while it
# warms up, because it times algorithms then.
OURS = {
    "abtrain": (None, ["--cuda-graph", "auto"], False),
    "abtrain without graph": (None, ["--cuda-graph", "off"], False),
    "abtrain --autotune": (None, ["--cuda-graph", "auto", "--autotune"], True),
    "abtrain fp32": ("fp32", ["--cuda-graph", "auto"], False),
    "abtrain tf32": ("tf32", ["--cuda-graph", "auto"], False),
}
TORCH = {
    "PyTorch": (None, [], False),
    "PyTorch compiled": (None, ["--compile"], False),
    "PyTorch max-autotune": (None, ["--compile", "max-autotune"], True),
    "PyTorch contiguous": (None, ["--layout", "contiguous"], False),
    "PyTorch fp32": ("fp32", [], False),
    "PyTorch tf32": ("tf32", [], False),
}
DEFAULT = {
    "cpu": ["abtrain", "PyTorch"],
    "cuda": ["abtrain", "abtrain without graph", "abtrain --autotune", "PyTorch", "PyTorch compiled"],
}


class Contestant:
    """A process that answers each line of its input with one of its output."""

    def __init__(self, name: str, precision: str, command: list, threads: int, limit: float):
        self.name, self.precision, self.limit = name, precision, limit
        self.is_ours = name in OURS
        self.milliseconds, self.images, self.failure = [], [], None
        self._log = tempfile.TemporaryFile("w+")
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
                                         env=environment, text=True)
        self._lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _next_line(self, seconds: float):
        try:
            line = self._lines.get(timeout=max(seconds, 0.1))
        except queue.Empty:
            self.fail(f"no answer within {seconds:.0f} s" if seconds > 0 else "no time was left for it")
            return None
        if line is None:
            self._process.wait()
            self._log.seek(0)
            said = [text for text in self._log.read().splitlines() if text.strip()]
            self.fail(said[-1] if said else f"ended with exit code {self._process.returncode}")
            return None
        return json.loads(line)

    def fail(self, why: str) -> None:
        self.failure = why
        self._process.kill()

    def wait_until_ready(self, deadline: float) -> None:
        if not self.failure:
            self._next_line(min(self.limit, deadline - time.monotonic()))

    def take_turn(self, deadline: float) -> None:
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # its output tells why
        turn = self._next_line(deadline - time.monotonic())
        if turn:
            self.milliseconds.append(turn["ms_per_step"])
            self.images.append(turn["images_per_second"])

    def end(self) -> None:
        try:
            self._process.stdin.close()
            self._process.wait(timeout=10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
        self._process.wait()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vgg16_bn_cifar")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--width", type=float, default=1.0, help="multiplies the channels; for abtrain alone")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32", "bf16"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10, help="steps of a turn")
    parser.add_argument("--warmup", type=int, default=3, help="untimed steps before the first turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contestants", metavar="NAME,NAME", help="of: " + ", ".join([*OURS, *TORCH]))
    parser.add_argument("--optimizer", default="default", choices=["default", "foreach", "fused"], help="PyTorch's")
    parser.add_argument("--ready-limit", type=float, default=300, metavar="SECONDS", help="for each contestant to warm up")
    parser.add_argument("--limit", type=float, default=3600, metavar="SECONDS",
                        help="for everything: no new round begins when it may be missed")
    parser.add_argument("--train-bench", type=Path, default=Path(os.environ.get("TRAIN_BENCH", ROOT / "build/bench/train_bench")))
    args = parser.parse_args()
    args.contestants = args.contestants.split(",") if args.contestants else DEFAULT[args.device]
    for name in args.contestants:
        if name not in OURS and name not in TORCH:
            parser.error(f"there is no contestant '{name}'; choose of {', '.join([*OURS, *TORCH])}")
    if args.width != 1 and any(name in TORCH for name in args.contestants):
        parser.error("PyTorch's networks have no --width; leave its contestants out")
    if not os.access(args.train_bench, os.X_OK):
        parser.error(f"{args.train_bench} is missing; build the preset default, or name a build's with --train-bench")
    return args


def start(name: str, args: argparse.Namespace) -> Contestant:
    precision, added, _ = OURS.get(name) or TORCH[name]
    precision = precision or args.precision
    command = [str(args.train_bench), "--width", str(args.width)] if name in OURS else [
        os.environ.get("PYTHON", "python3"), str(PEERS / "torch_train.py"), "--optimizer", args.optimizer]
    for flag in ("model", "classes", "batch", "image_size", "device", "threads", "steps", "warmup"):
        command += ["--" + flag.replace("_", "-"), str(getattr(args, flag))]
    command += ["--precision", precision, "--turns", *added]
    return Contestant(name, precision, command, args.threads, args.ready_limit)


def warm_up(args: argparse.Namespace, deadline: float) -> list:
    """In two waves, those of PyTorch first, since compiling keeps processors busy; then one by one those that time."""
    contestants = {}
    alone = [name for name in args.contestants if (OURS.get(name) or TORCH[name])[2]]
    together = [name for name in args.contestants if name not in alone]
    waves = [[n for n in together if n in TORCH], [n for n in together if n in OURS], *([name] for name in alone)]
    for wave in waves:
        for name in wave:
            contestants[name] = start(name, args)
        for name in wave:
            contestants[name].wait_until_ready(deadline - args.limit / 4)  # those who are ready get their turns
    return [contestants[name] for name in args.contestants]


def take_turns(contestants: list, rounds: int, deadline: float) -> None:
    longest = 0.0
    for _ in range(rounds):
        begin = time.monotonic()
        if begin + longest > deadline:
            break
        for contestant in contestants:
            if not contestant.failure:
                contestant.take_turn(deadline)
        longest = max(longest, time.monotonic() - begin)


def ratios(ours: Contestant, peer: Contestant) -> str:
    by_round = [a / b for a, b in zip(ours.images, peer.images)]
    return f"{statistics.median(by_round):.2f} ({min(by_round):.2f}-{max(by_round):.2f}) times as fast as {peer.name}"


def print_table(contestants: list) -> None:
    for c in contestants:
        if c.failure:
            print(f"{c.name}: {c.failure}")
            continue
        text = f"{c.name}: {statistics.median(c.milliseconds):.2f} ms a step, {statistics.median(c.images):.1f} images/s"
        peers = [p for p in contestants if c.is_ours and not p.is_ours and not p.failure and p.precision == c.precision]
        print("; ".join([text, *(ratios(c, peer) for peer in peers)]))


def main() -> int:
    args = parse_arguments()
    deadline = time.monotonic() + args.limit
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{args.model}, batch {args.batch} of {args.image_size}x{args.image_size}, {args.classes} classes, {args.device}, "
          f"{args.precision}, {args.threads} threads, {args.rounds} rounds of {args.steps} steps, load {load}", flush=True)
    contestants = warm_up(args, deadline)
    take_turns(contestants, args.rounds, deadline)
    for contestant in contestants:
        contestant.end()
        if not contestant.images and not contestant.failure:
            contestant.failure = "no time was left for a turn"
    print_table(contestants)
    return int(any(c.is_ours and c.failure for c in contestants))


if __name__ == "__main__":
    sys.exit(main())
