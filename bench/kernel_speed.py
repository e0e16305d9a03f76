#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How fast our main kernels can be on an H100 by what the compiler made of them, without one: a table in Markdown.

    bench/kernel_speed.py --build build-cuda

The library needs kernels for sm_90 (CMAKE_CUDA_ARCHITECTURES=90-real). Counted are the instructions of the loops over Packs.
cuobjdump and nvdisasm come with CUDA's toolkit, or as the packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm.
"""

import argparse
import collections
import re
import subprocess

MULTIPROCESSORS, CLOCK, BYTES_A_SECOND, LATENCY = 132, 1.755e9, 3.35e12, 0.7e-6
SLOTS_A_SECOND = MULTIPROCESSORS * CLOCK * 4 * 32  # instructions of threads
BF16, FP32 = "ab::bfloat16", "float"

# What it does; name; threads of a block; elements that each loop takes at a time (0: an alternative that does not run), those
# with the most bytes an iteration of all its loops; bytes of an element in memory.
KERNELS = [
    ("batch norm: moments", f"ChunkMoments<{BF16}>", 256, [32], 2),
    ("batch norm: y, with ReLU", rf"Normalise<{BF16}, \(\S*\)2, false>", 256, [32], 4.125),
    ("batch norm: sums of gradients", rf"ChunkGradSums<{BF16}, \(\S*\)2>", 256, [32], 4.125),
    ("batch norm: dx", rf"NormaliseBackward<{BF16}, \(\S*\)2, false>", 256, [32], 6.125),
    ("layer norm: y", f"LayerNorm<{BF16}>", 128, [8, 8, 4], 4),
    ("layer norm: dx", f"LayerNormBackward<{BF16}>", 128, [4, 4, 0, 4], 6),
    ("softmax, 197 columns", f"Softmax<{BF16}>", 32, [8, 8, 8, 8], 4),
    ("ReLU", f"Packed<8>, Relu<float>, {BF16}", 256, [8], 4),
    ("GELU", f"Packed<8>, Gelu<float>, {BF16}", 256, [8], 4),
    ("GELU: dx", f"Packed<8>, GeluBackward<float>, {BF16}", 256, [8], 6),
    ("dropout", f"Packed<8>, Dropout<float>, {BF16}", 256, [8], 4),
    ("cast, float32 to bfloat16", f"Packed<4>, Same<float>, {BF16}, float>", 256, [4], 6),
    ("SGD with momentum", "UpdateSlices<SgdUpdate", 256, [4], 20),
    ("AdamW", "UpdateSlices<AdamWUpdate", 256, [4], 28),
    ("LARS: norms", "LarsSquares>", 256, [4, 4], 8),
    ("LARS: update", "LarsUpdate>", 256, [4], 20),
    ("exact selection: a digit", "CountDigits>", 256, [4], 4),
    ("selection: counts of blocks", "CountBlock>", 32, [4], 4),
    ("orthonormal rows: products", "GramOfRows>", 256, [4], 20),
    ("images: crop, normalise, mix", f"FinishImages<{BF16}>", 128, [1], 3),
]


def dump(library, *options):
    """What cuobjdump says of each kernel, by its name without namespaces."""
    text = subprocess.run(["cuobjdump", *options, library], check=True, capture_output=True, text=True).stdout
    text = subprocess.run(["c++filt"], input=text, check=True, capture_output=True, text=True).stdout
    parts = re.split(r"Function\s?:? (void ab::cuda::.*?_kernel<.*)", text)
    names = (name.replace("ab::kernels::", "").rsplit(">(", 1)[0] + ">" for name in parts[1::2])  # no parameters
    return dict(zip(names, parts[2::2]))


def accesses(instruction):
    """Bytes of a thread that it reads, and writes."""
    found = re.search(r"\b(LDG|STG|LD|ST)\.E(\S*)", instruction)
    if not found:
        return 0, 0
    width = re.search(r"\.[US]?(8|16|64|128)\b", found[2])
    size = int(width[1]) // 8 if width else 4
    return (size, 0) if found[1].startswith("LD") else (0, size)


def instructions_between(code, targets, begin, end):
    """On the shortest way; what is left behind the last Pack is a way round it."""
    distance, queue = {begin: 1}, collections.deque([begin])
    while queue and end not in distance:
        i = queue.popleft()
        ways = [targets[i]] if i in targets else []
        if not re.match(r"(BRA|EXIT)\b", code[i][1]):
            ways.append(i + 1)
        for way in ways:
            if distance.setdefault(way, distance[i] + 1) == distance[i] + 1:
                queue.append(way)
    return distance[end]


def loops_of(sass, is_index_kernel):
    """A row kernel's innermost loops, and an index kernel's outermost: instructions, bytes read, bytes written."""
    code = [(int(at, 16), what) for at, what in re.findall(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", sass, re.M)]
    index = {at: i for i, (at, _) in enumerate(code)}
    branches = {i: re.search(r"\bBRA\b.*?(0x[0-9a-f]+)", what) for i, (_, what) in enumerate(code)}
    targets = {i: index[int(found[1], 16)] for i, found in branches.items() if found}
    loops = {}
    for i, target in targets.items():
        if target < i:
            loops[target] = max(loops.get(target, 0), i)
    for begin, end in sorted(loops.items()):
        if is_index_kernel:
            packs = [i for i in range(begin, end) if re.search(r"\bLDG?\.E\.(64|128)", code[i][1])]
            if not packs:
                continue
            count = instructions_between(code, targets, begin, packs[-1]) + instructions_between(code, targets, packs[-1], end) - 1
            body = [what for _, what in code[packs[0] : end] if re.search(r"\.E\.(64|128)", what)]
        elif any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in loops.items()):
            continue
        else:
            body = [what for _, what in code[begin : end + 1]]
            count = len(body)
        sizes = [accesses(what) for what in body]
        yield count, sum(read for read, _ in sizes), sum(written for _, written in sizes)


def row(what, name, body, registers, threads, elements, size):
    loops = list(loops_of(body, "index_kernel" in name))
    hottest = sorted(range(len(loops)), key=lambda i: -sum(loops[i][1:]))[: len(elements)]
    used = [(loops[i], n) for i, n in zip(sorted(hottest), elements) if n]
    instructions = sum(loop[0] / n for loop, n in used)
    blocks = min(65536 // (-(-registers // 8) * 8 * threads), 2048 // threads, 32)
    in_flight = blocks * threads * min(loop[1] for loop, _ in used)
    issue = size / BYTES_A_SECOND / (instructions / SLOTS_A_SECOND)
    waiting = in_flight / (BYTES_A_SECOND / MULTIPROCESSORS * LATENCY)
    return (f"| {what} | {registers} | {blocks} of {threads} | {instructions:.1f} | {size:g} | {in_flight / 1024:.0f} "
            f"| {100 * min(1, issue, waiting):.0f} % |")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--build", default="build-cuda", help="folder of the build (default: build-cuda)")
    library = options.parse_args().build + "/libabtrain.a"
    sass, resources = dump(library, "--dump-sass"), dump(library, "--dump-resource-usage")
    print("| kernel | registers | blocks on a multiprocessor | instructions an element | bytes an element | KiB in flight "
          "| share of the memory's speed |\n|---|---|---|---|---|---|---|")
    for what, pattern, threads, elements, size in KERNELS:
        name = next(name for name in sass if re.search(pattern, name))
        registers = int(re.search(r"REG:(\d+)", resources[name])[1])
        print(row(what, name, sass[name], registers, threads, elements, size))


if __name__ == "__main__":
    main()
