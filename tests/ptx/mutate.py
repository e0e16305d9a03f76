#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How many faults in kernels a test notices: changes one instruction of the PTX at a place that the test ran.

    tests/ptx/mutate.py build-cuda                  # op_test's cases for a GPU; a table by kind
    tests/ptx/mutate.py build-cuda --kinds barrier=60 shuffle=10 --seed 2 --verbose

A change that turns out to alter nothing counts as unnoticed. Fails where a smaller share than usual is noticed.
"""
import argparse
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile


def shift_address(match):
    return f"{match[1]}+{int(match[2] or 0) + 4}]"


# Of each kind: how many places are tried, which share of changes is noticed at least, a pattern and its replacement.
KINDS = {
    "misaligned": (30, 1.0, r"(ld\.global(?:\.nc)?\.v4\.\S+\s.*\[%rd\d+)(?:\+(\d+))?\]", shift_address),
    "barrier": (60, 0.4, r"bar\.sync\s+0", ""),
    "shuffle": (10, 0.6, r"(shfl\.sync\.bfly\.b32\s+\S+,\s+\S+,\s+)\S+,", r"\g<1>0,"),
    "comparison": (40, 0.1, r"(setp\.)lt(\.[su])", r"\1le\2"),
}


def run(build, folder, files, coverage=None):
    environment = dict(os.environ, LD_PRELOAD=str(build / "tests/ptx/libptx_gpu.so"), PTX_FILES=str(files),
                       PTX_ROW_BLOCK=os.environ.get("PTX_ROW_BLOCK", "256"), OMP_NUM_THREADS="1")
    if coverage:
        environment["PTX_COVERAGE"] = str(coverage)
    try:
        return subprocess.run([build / "tests/engine_tests", "--gtest_filter=*OpTest.*Gpu*:FusedRelu*Gpu*"], env=environment, cwd=folder,
                              capture_output=True, timeout=600).returncode
    except subprocess.TimeoutExpired:
        return 124


def places_that_ran(coverage, pattern):
    """File and number of each line that ran and matches."""
    lines = coverage.read_text().splitlines()
    ran = {}
    for head, numbers in zip(lines[::2], lines[1::2]):
        ran.setdefault(head.split()[0], set()).update(map(int, numbers.split()))
    return [(path, number) for path in sorted(ran)
            for number, text in enumerate(pathlib.Path(path).read_text().splitlines(), 1)
            if number in ran[path] and re.search(pattern, text)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--kinds", nargs="*", default=[f"{kind}={count}" for kind, (count, *_) in KINDS.items()])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="name the places that were not noticed")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    originals = (build / "tests/ptx/kernels").read_text()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        files, coverage, mutant = folder / "files", folder / "coverage", folder / "mutant.ptx"
        files.write_text(originals)
        if run(build, folder, files, coverage) != 0:
            raise SystemExit("mutate.py: the test fails as it is")
        too_few = False
        for kind, count in (argument.split("=") for argument in arguments.kinds):
            _, least, pattern, replacement = KINDS[kind]
            places = places_that_ran(coverage, pattern)
            chosen = random.Random(arguments.seed).sample(places, min(int(count), len(places)))
            noticed = 0
            for path, number in chosen:
                lines = pathlib.Path(path).read_text().splitlines()
                lines[number - 1] = re.sub(pattern, replacement, lines[number - 1], count=1)
                mutant.write_text("\n".join(lines) + "\n")
                files.write_text(originals.replace(path + "\n", f"{mutant}\n"))
                if run(build, folder, files) != 0:
                    noticed += 1
                elif arguments.verbose:
                    print(f"  not noticed: {pathlib.Path(path).name}:{number}", flush=True)
            print(f"{kind:12} {noticed:3} of {len(chosen):3} noticed, of {len(places)} places", flush=True)
            too_few |= noticed < least * len(chosen)
    return too_few


sys.exit(main())
