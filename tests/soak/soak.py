# SPDX-License-Identifier: MIT
"""Trains small runs, lets them fail at random moments of their work, and looks at what is left (tests/soak.sh).

A run is dense or AB-training or a late cut, on ranks that are threads or processes. It is started, suffers one fault, is
started again, and so on; in the end it finishes undisturbed. After each fault:
- the exit code is that of the fault, a failure is told in one sentence, and a crash in none;
- no process is left;
- the next start goes on from the newest checkpoint that is whole.
In the end the model and the losses of all steps are, bit for bit, those of the run that nothing befell.
"""

import argparse
import collections
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib

RANKS = 4
LIMIT_S = 240  # of one start: what takes longer hangs
STOPPED = 75
METHODS = {
    "dense": ["--method", "dense"],
    "ab": ["--method", "ab", "--ab.group-size", "2", "--ab.first-split", "4", "--ab.cycle-steps", "6", "--ab.full-rank-steps",
           "2"],
    "late-cut": ["--method", "late-cut", "--late-cut.at", "0.3,0.7", "--late-cut.keep", "0.9,0.8", "--late-cut.gather-steps",
                 "3"],
}


class Failure(Exception):
    pass


def check(good, message):
    if not good:
        raise Failure(message)


def png(rng):
    """32 x 32 pixels of noise."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    rows = b"".join(b"\0" + rng.randbytes(96) for _ in range(32))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def make_images(folder):
    rng = random.Random(0)
    for part, count in (("train", 12), ("val", 5)):
        for label in ("cat", "dog"):
            os.makedirs(f"{folder}/{part}/{label}")
            for i in range(count):
                with open(f"{folder}/{part}/{label}/{i:02}.png", "wb") as file:
                    file.write(png(rng))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)


class End:
    """How one start of the program ended."""

    def __init__(self, code, out, err, marks):
        self.code, self.out, self.err, self.marks = code, out, err, marks

    def sentences(self):
        return [line for line in self.err.splitlines() if line.startswith("abtrain: ")]


class Soak:
    def __init__(self, build, seed, work):
        self.program = os.path.abspath(f"{build}/apps/abtrain")
        self.points = os.path.abspath(f"{build}/tests/libfault_points.so")
        self.mpiexec = shutil.which("mpiexec")
        for needed in (self.program, self.points):
            check(os.path.exists(needed), f"there is no {needed}; build the targets abtrain_program and fault_points")
        self.rng = random.Random(seed)
        self.work = work
        self.images = f"{work}/images"
        self.starts = 0
        self.counts = collections.Counter()  # of faults, by more than is printed
        self.whole = {}  # of each kind of run: model, losses and how often it comes to each point
        make_images(self.images)

    def start(self, kind, out, fault=None, rank=None, timeout=60, shell="", counts=None):
        """One start of a run. `fault` is for fault_points.cpp."""
        method, transport = kind
        self.starts += 1
        name, mark = f"soak-{os.getpid()}-{self.starts}", f"{self.work}/mark"
        if os.path.exists(mark):
            os.remove(mark)
        command = [self.program, "train", "--model", "mlp", "--width", "0.05", "--image-size", "8", "--dataset",
                   "imagenet", "--data-dir", self.images, "--batch-size", "2", "--steps", "24", "--lr", "0.01",
                   "--log-every", "1", "--save-every", "4", "--eval-every", "2", "--timeout-s", str(timeout), "--threads", "1",
                   "--out", out, "--resume", "auto", *METHODS[method]]
        if shell:
            command = ["sh", "-c", f'exec "$@" {shell}', "sh", *command]
        if transport == "mpi":
            command = [self.mpiexec, "--oversubscribe", "--allow-run-as-root", "-np", str(RANKS), *command]
        else:
            command += ["--ranks", str(RANKS)]
        environment = dict(os.environ, OMP_NUM_THREADS="1", LD_PRELOAD=self.points, SOAK_MARK=mark, SOAK_RUN=name)
        environment["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0:detect_leaks=0"
        if fault:
            environment["SOAK_FAULT"] = fault
        if rank is not None and transport == "mpi":
            environment["SOAK_RANK"] = str(rank)
        if counts:
            environment["SOAK_COUNTS"] = counts
        with open(f"{self.work}/stdout", "wb") as stdout, open(f"{self.work}/stderr", "wb") as stderr:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                       start_new_session=True)
            began = time.monotonic()
            while process.poll() is None:
                time.sleep(0.02)
                # Threads of one process stand still together, and go on together. The mark comes before the signal.
                if fault and fault.endswith("stop") and transport == "threads" and os.path.exists(mark):
                    time.sleep(0.3)
                    process.send_signal(signal.SIGCONT)
                if time.monotonic() - began > LIMIT_S:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    raise Failure(f"still running after {LIMIT_S} s")
        self.check_nothing_runs(name)
        marks = read(mark).decode().split() if os.path.exists(mark) else []
        return End(process.returncode, read(f"{self.work}/stdout").decode(errors="replace"),
                   read(f"{self.work}/stderr").decode(errors="replace"), marks)

    def check_nothing_runs(self, name):
        """A launcher may return a moment before the last rank that it ended is gone."""
        marker, deadline = f"SOAK_RUN={name}".encode() + b"\0", time.monotonic() + 30
        while True:
            left = []
            for process in filter(str.isdigit, os.listdir("/proc")):
                try:
                    if marker in read(f"/proc/{process}/environ"):
                        left.append(process)
                except OSError:
                    pass
            if not left:
                return
            check(time.monotonic() < deadline, f"processes {', '.join(left)} are left")
            time.sleep(0.1)

    def result(self, out):
        lines = [json.loads(line) for line in read(f"{out}/metrics.jsonl").splitlines()]
        return read(f"{out}/model.safetensors"), [(line["step"], line["loss"]) for line in lines if line["kind"] == "step"]

    def undisturbed(self, kind):
        if kind not in self.whole:
            out, counts = f"{self.work}/whole-{'-'.join(kind)}", f"{self.work}/counts-{'-'.join(kind)}"
            end = self.start(kind, out, counts=counts)
            check(end.code == 0, f"the undisturbed run ended with {end.code}: {end.err}")
            reached = collections.defaultdict(dict)
            for line in read(counts).decode().splitlines():
                rank, point, number = line.split()
                reached[int(rank)][point] = int(number)
            self.whole[kind] = (*self.result(out), reached)
            check(len(self.whole[kind][1]) == 24, "the undisturbed run lacks steps")
        return self.whole[kind]

    @staticmethod
    def checkpoints(out):
        folder = f"{out}/checkpoints"
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return sorted(int(name[5:]) for name in names if name.startswith("step_"))

    @staticmethod
    def check_beginning(end, checkpoints):
        """A start goes on from the newest of these."""
        if checkpoints:
            check(f"resuming at step {checkpoints[-1]} " in end.out, f"did not resume at step {checkpoints[-1]}")
        else:
            check("resuming" not in end.out, "resumed without a checkpoint")

    @staticmethod
    def check_end(end, codes, sentence=""):
        """One of these codes; a failure is one sentence (over MPI one of each rank that has failed)."""
        check(end.code in codes, f"exit code {end.code}, expected {' or '.join(map(str, codes))}")
        if end.code in (2, 3, 4, 5, 6):
            check(end.sentences() and sentence in end.err, f"no sentence with '{sentence}'")
        if end.code in (0, STOPPED):
            check(not end.sentences(), "a sentence about a failure without one")
        check("terminate called" not in end.err and "Sanitizer" not in end.err, "crashed")

    # --- The faults. Each starts a run in `out` once or twice and returns (phase, the code of the end); phase None:
    # the run ended before the fault.

    def at_point(self, kind, out, action, codes, sentence="", points=None, timeout=60):
        reached = self.undisturbed(kind)[2]
        rank = self.rng.randrange(RANKS) if kind[1] == "mpi" else 0
        here = [p for p in sorted(reached[rank]) if points is None or p in points]
        point = self.rarest(here, lambda p: self.counts[action, kind[1], p])
        # Later starts come to a point less often.
        number = self.rng.randint(1, max(1, reached[rank][point] // self.rng.choice((1, 1, 2, 4))))
        before = self.checkpoints(out)
        end = self.start(kind, out, f"{point} {number} {action}", rank, timeout)
        if not end.marks:
            # On a machine that is too busy, ranks may miss each other for so short a time.
            self.check_end(end, [0] if timeout == 60 else [0, *codes])
            self.check_beginning(end, before)
            return None, end
        self.counts[action, kind[1], point] += 1
        self.check_end(end, codes, sentence)
        # A process that dies takes along what it has not yet printed.
        if action != "kill" and kind[1] == "threads":
            self.check_beginning(end, before)
        return point, end

    def kill(self, kind, out):
        # mpirun ends the others, and may return the code of one that noticed first.
        return self.at_point(kind, out, "kill", [-9] if kind[1] == "threads" else [137, 6])

    def term(self, kind, out):
        # After the last training step is saved there may be nothing left to stop.
        point, end = self.at_point(kind, out, "term", [STOPPED, 0])
        # mpirun ends the others as soon as one has ended with that code.
        if end.code == STOPPED and kind[1] == "threads":
            check("stopped as told" in end.out, "does not say that it stopped as told")
        return point, end

    def stop(self, kind, out):
        if kind[1] == "threads":
            return self.at_point(kind, out, "stop", [0])
        return self.at_point(kind, out, "stop", [6], "rank", points=("train", "split", "checkpoint"),
                             timeout=8)

    def stalled_read(self, kind, out):
        return self.at_point(kind, out, "stall", [3], "have delivered nothing", points=("train", "evaluation"),
                             timeout=8)

    def full_disk(self, kind, out):
        point, end = self.at_point(kind, out, "full", [0], points=("checkpoint",))
        if point:
            check("warning: cannot save the checkpoint" in end.err, "does not say that a checkpoint was not saved")
        return point, end

    def closed_stderr(self, kind, out):
        before = self.checkpoints(out)
        end = self.start(kind, out, shell=self.rng.choice(("2>&-", "2>/dev/full", ">&- 2>&-", "<&- >&- 2>&-")))
        self.check_end(end, [0])
        return "all", end

    def damaged_image(self, kind, out):
        """One byte of an image, or its end. An image to train on may not be needed any more."""
        part = self.rng.choice(("train", "val"))
        file = f"{self.images}/{part}/{self.rng.choice(('cat', 'dog'))}/{self.rng.randrange(5):02}.png"
        whole = read(file)
        at = self.rng.randrange(len(whole))
        write(file, whole[:at] if self.rng.random() < 0.5 else whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1:])
        try:
            end = self.start(kind, out)
        finally:
            write(file, whole)
        self.check_end(end, [3] if part == "val" else [0, 3], os.path.relpath(file, self.images))
        return "evaluation" if part == "val" else "train", end

    def damaged_checkpoint(self, kind, out):
        """Of a run that was killed: the newest checkpoint is passed over; the only one is an error."""
        self.at_point(kind, out, "kill", [-9] if kind[1] == "threads" else [137, 6])
        steps = self.checkpoints(out)
        if os.path.exists(f"{out}/summary.json") or not steps:
            return None, End(0 if not steps else 1, "", "", [])
        folder = f"{out}/checkpoints/step_{steps[-1]:012}"
        file = f"{folder}/{self.rng.choice(sorted(os.listdir(folder)))}"
        whole = read(file)
        at = self.rng.randrange(len(whole))
        write(file, whole[:at] + (bytes([whole[at] ^ 1]) + whole[at + 1:] if self.rng.random() < 0.5 else b""))
        end = self.start(kind, out)
        if len(steps) > 1:
            self.check_end(end, [0])
            check(f"{folder} is passed over" in end.err, "does not say that a checkpoint is passed over")
            self.check_beginning(end, steps[:-1])
        else:
            self.check_end(end, [4], "none of the 1 checkpoints")
            shutil.rmtree(f"{out}/checkpoints")
        return "resume", end

    def rarest(self, choices, count):
        """One of those that were chosen least often, half of the time."""
        fewest = min(map(count, choices))
        return self.rng.choice([c for c in choices if count(c) == fewest or self.rng.random() < 0.25])

    def episode(self, number, counts):
        kinds = [(m, t) for m in METHODS for t in ("threads", "mpi") if t == "threads" or self.mpiexec]
        kind = self.rng.choice(kinds)
        faults = [self.kill, self.term, self.stop, self.stalled_read, self.full_disk, self.closed_stderr,
                  self.damaged_image, self.damaged_checkpoint]
        out = f"{self.work}/run-{number}"
        story = [" ".join(kind)]
        try:
            model, losses, _ = self.undisturbed(kind)
            for _ in range(self.rng.randint(1, 3)):
                fault = self.rarest(faults, lambda f: self.counts[f, kind])
                self.counts[fault, kind] += 1
                story.append(fault.__name__)
                phase, end = fault(kind, out)
                name = "dead_peer" if fault == self.kill and kind[1] == "mpi" else fault.__name__
                if phase:
                    counts[name, phase] += 1
                    story[-1] += f" in {phase} (exit {end.code})"
                if os.path.exists(f"{out}/summary.json"):
                    break
            if not os.path.exists(f"{out}/summary.json"):
                story.append("last start")
                before = self.checkpoints(out)
                end = self.start(kind, out)
                self.check_end(end, [0])
                self.check_beginning(end, before)
            check(self.result(out) == (model, losses), "the model or the losses are not those of the undisturbed run")
            left = [name for name in os.listdir(out) if name.endswith(".tmp") or name == "run.lock"]
            check(not left, f"files are left: {', '.join(left)}")
            shutil.rmtree(out)
        except Failure as failure:
            raise Failure(f"{', '.join(story)}: {failure}") from None


def table(counts):
    phases = [p for p in ("train", "split", "checkpoint", "evaluation", "result", "resume", "all")
              if any(phase == p for _, phase in counts)]
    print(f"{'fault':20}" + "".join(f"{phase:>12}" for phase in phases))
    for name in sorted({name for name, _ in counts}):
        print(f"{name:20}" + "".join(f"{counts[name, phase]:12}" for phase in phases))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--build", default="build")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    counts = collections.Counter()
    work = tempfile.mkdtemp(prefix="abtrain_soak_")
    number = 0
    soak = None
    try:
        soak = Soak(options.build, options.seed, work)
        while time.monotonic() < end or number == 0:
            number += 1
            soak.episode(number, counts)
    except Failure as failure:
        print(f"run {number} of seed {options.seed}: {failure}")
        for name in ("stdout", "stderr"):
            path = f"{work}/{name}"
            print(f"--- {name}\n{read(path).decode(errors='replace')[-3000:] if os.path.exists(path) else ''}")
        print(f"--- what is left is in {work}")
        sys.exit(1)
    shutil.rmtree(work)
    table(counts)
    print(f"seed {options.seed}: {number} runs with {sum(counts.values())} faults in {soak.starts} starts; "
          "nothing lost, nothing hung")


main()
