#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tables of accuracy, bytes and size of README.md and RESULTS.md, from the runs of convergence.tsv and rivals.tsv, in Markdown.

    bench/rivals_table.py --readme         the rows of METHODS of convergence.tsv: README.md
    bench/rivals_table.py --convergence    every row of it: RESULTS.md
    bench/rivals_table.py                  every row of rivals.tsv: RESULTS.md
    bench/rivals_table.py --write          puts all three into these files
"""

import argparse
import collections
import csv
import pathlib
import re
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
MODELS = [("vgg16_cifar_dense", "VGG16, half width"), ("resnet20_dense", "ResNet-20")]
CONVERGING = "conv6_cifar"
# Of README.md: the words, and the row.
METHODS = [("dense, 32 bits", "dense"), ("dense, 16 bits", "dense_bf16"), ("PowerSGD, r = n/4", "powersgd"),
           ("local averaging between nodes", "local_nodes"), ("local averaging", "local"), ("ACP-SGD, r = 32", "acpsgd"),
           ("**late cut**", "late_cut"), ("**late cut**, to a sixth", "late_cut_5"), ("**late cut**, to a tenth", "late_cut_8"),
           ("a net of half the width", "narrow"), ("**AB-training**, 32 bits", "ab")]
# In RESULTS.md these come first, the others by their names.
FIRST = """dense dense_bf16 late_cut late_cut_ratio50 late_cut_channel late_cut_acpsgd late_cut_local late_cut_local_nodes ab powersgd
    acpsgd_r32 local local_nodes daso diloco_half_lr diloco scalecom_10 scalecom mstopk_3 mstopk hitopk_5 hitopk artopk_5 artopk
    narrow""".split()
README_HEAD = "| | top-1 | bytes | between nodes | model |"
CONVERGENCE_HEAD = "| row | top-1, seeds 0 1 2 | mean | below `dense` | over six views | bytes saved | across nodes | model |"
RESULTS_HEAD = "| model | row | top-1, seeds 0 1 2 | mean | below `dense` | bytes saved | across nodes | model |"


class Row:
    def __init__(self, lines, of_dense):
        lines = sorted(lines, key=lambda line: int(line["seed"]))
        dense = {line["seed"]: line for line in of_dense}
        self.top1 = [float(line["top1"]) for line in lines]
        self.mean = statistics.mean(self.top1)
        self.over_views = statistics.mean(float(line["views_top1"]) for line in lines) if "views_top1" in lines[0] else None
        self.below = statistics.mean(float(dense[line["seed"]]["top1"]) - float(line["top1"]) for line in lines)
        part = lambda column: statistics.mean(float(line[column]) / float(dense[line["seed"]][column]) for line in lines)
        self.saved, self.saved_across = 100 * (1 - part("sent_bytes")), 100 * (1 - part("inter_node_bytes"))
        self.smaller = statistics.mean(int(of_dense[0]["parameters_full"]) / int(line["parameters_final"]) for line in lines)

    @property
    def by_seed(self):
        return " ".join(f"{top1:.2f}" for top1 in self.top1)


def read_rows(name, configs):
    lines = collections.defaultdict(list)
    with open(HERE / f"{name}.tsv", newline="") as table:
        for line in csv.DictReader(table, delimiter="\t"):
            if line["config"] in configs:
                lines[line["config"], line["row"]].append(line)
    return {key: Row(of_row, lines[key[0], "dense"]) for key, of_row in lines.items()}


def ratio(row, digits):
    return "1 : 1" if row.smaller < 1.005 else f"{row.smaller:.{digits}f} : 1"


def percent(saved):
    return "0" if abs(saved) < 0.05 else "–" if saved == 100 else f"{saved:.1f} %"


def readme_table(rows):
    yield README_HEAD
    yield "|" + "---|" * 5
    for words, name in METHODS:
        row = rows[CONVERGING, name]
        saved = ["0" if abs(saved) < 0.05 else f"−{saved:.0f} %" for saved in (row.saved, row.saved_across)]
        yield f"| {words} | {row.mean:.1f} % | {saved[0]} | {saved[1]} | {ratio(row, 1)} |"


def results_table(rows):
    yield RESULTS_HEAD
    yield "|" + "---|" * 8
    for config, title in MODELS:
        names = [name for of_config, name in rows if of_config == config]
        for name in sorted(names, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name)):
            row = rows[config, name]
            yield (f"| {title} | `{name}` | {row.by_seed} | {f'{row.mean:.2f}' if len(row.top1) > 1 else ''} | {row.below:.1f} | "
                   f"{percent(row.saved)} | {percent(row.saved_across)} | {ratio(row, 2)} |")
            title = ""


def convergence_table(rows):
    yield CONVERGENCE_HEAD
    yield "|" + "---|" * 8
    for (_, name), row in rows.items():
        yield (f"| `{name}` | {row.by_seed} | {row.mean:.2f} | {row.below:.2f} | {row.over_views:.2f} | {percent(row.saved)} | "
               f"{percent(row.saved_across)} | {ratio(row, 2)} |")


def replace_table(path, head, lines):
    text = path.read_text(encoding="utf-8")
    table = re.compile(re.escape(head) + r"\n(\|.*\n)*")
    if len(table.findall(text)) != 1:
        sys.exit(f"rivals_table.py: {path} should have one table that begins with {head}")
    path.write_text(table.sub(lambda _: "\n".join(lines) + "\n", text), encoding="utf-8")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--readme", action="store_true")
    options.add_argument("--convergence", action="store_true")
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    short = read_rows("rivals", [config for config, _ in MODELS])
    converged = read_rows("convergence", [CONVERGING])
    if given.write:
        replace_table(HERE.parent / "README.md", README_HEAD, readme_table(converged))
        replace_table(HERE / "RESULTS.md", RESULTS_HEAD, results_table(short))
        replace_table(HERE / "RESULTS.md", CONVERGENCE_HEAD, convergence_table(converged))
    else:
        print("\n".join(readme_table(converged) if given.readme else
                        convergence_table(converged) if given.convergence else results_table(short)))


if __name__ == "__main__":
    main()
