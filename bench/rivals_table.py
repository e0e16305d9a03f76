#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tables of accuracy, bytes and size of README.md and RESULTS.md, from the runs of rivals.tsv and convergence.tsv, in Markdown.

    bench/rivals_table.py                  every row of rivals.tsv: RESULTS.md
    bench/rivals_table.py --readme         the rows of METHODS alone: README.md
    bench/rivals_table.py --convergence    every row of convergence.tsv: RESULTS.md
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
# Of README.md: the words, and the row of both models.
METHODS = [("dense, 32 bits", "dense"), ("dense, 16 bits", "dense_bf16"), ("**late cut**", "late_cut"),
           ("**late cut** by nodes, `--preset nodes`", "late_cut_local_nodes"), ("**AB-training**, one seed on VGG16", "ab"),
           ("PowerSGD, r = n/4", "powersgd"), ("local averaging between nodes", "local_nodes")]
# In RESULTS.md these come first, the others by their names.
FIRST = """dense dense_bf16 late_cut late_cut_ratio50 late_cut_channel late_cut_acpsgd late_cut_local late_cut_local_nodes ab powersgd
    acpsgd_r32 local local_nodes daso diloco_half_lr diloco scalecom_10 scalecom mstopk_3 mstopk hitopk_5 hitopk artopk_5 artopk
    narrow""".split()
README_HEAD = "| | VGG16, half width | bytes | model | ResNet-20 | bytes | model |"
CONVERGENCE_HEAD = "| row | top-1, by seed | mean | over six views | mean | bytes saved | across nodes | model |"
RESULTS_HEAD = "| model | row | top-1, seeds 0 1 2 | mean | below `dense` | bytes saved | across nodes | model |"


class Row:
    def __init__(self, lines, of_dense):
        lines = sorted(lines, key=lambda line: int(line["seed"]))
        dense = {line["seed"]: line for line in of_dense}
        self.top1 = [float(line["top1"]) for line in lines]
        self.mean = statistics.mean(self.top1)
        self.below = statistics.mean(float(dense[line["seed"]]["top1"]) - float(line["top1"]) for line in lines)
        part = lambda column: statistics.mean(float(line[column]) / float(dense[line["seed"]][column]) for line in lines)
        self.saved, self.saved_across = 100 * (1 - part("sent_bytes")), 100 * (1 - part("inter_node_bytes"))
        self.smaller = statistics.mean(int(of_dense[0]["parameters_full"]) / int(line["parameters_final"]) for line in lines)


def read_rows():
    lines = collections.defaultdict(list)
    with open(HERE / "rivals.tsv", newline="") as table:
        for line in csv.DictReader(table, delimiter="\t"):
            lines[line["config"], line["row"]].append(line)
    return {key: Row(of_row, lines[key[0], "dense"]) for key, of_row in lines.items()}


def ratio(row, digits):
    return "1 : 1" if row.smaller < 1.005 else f"{row.smaller:.{digits}f} : 1"


def readme_table(rows):
    yield README_HEAD
    yield "|" + "---|" * 7
    for words, name in METHODS:
        cells = [words]
        for config, _ in MODELS:
            row = rows[config, name]
            saved = "0" if abs(row.saved) < 0.05 else f"−{row.saved:.0f} %"
            if row.saved_across - row.saved > 1:
                saved += f" (−{row.saved_across:.0f} %)"
            cells += [f"{row.mean:.1f} %", saved, ratio(row, 1)]
        yield f"| {' | '.join(cells)} |"


def results_table(rows):
    yield RESULTS_HEAD
    yield "|" + "---|" * 8
    for config, title in MODELS:
        names = [name for of_config, name in rows if of_config == config]
        for name in sorted(names, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name)):
            row = rows[config, name]
            percent = lambda saved: "0" if abs(saved) < 0.05 else f"{saved:.1f} %"
            yield (f"| {title} | `{name}` | {' '.join(f'{top1:.2f}' for top1 in row.top1)} | "
                   f"{f'{row.mean:.2f}' if len(row.top1) > 1 else ''} | {row.below:.1f} | {percent(row.saved)} | {percent(row.saved_across)} | "
                   f"{ratio(row, 2)} |")
            title = ""


def convergence_table():
    lines = collections.defaultdict(list)
    with open(HERE / "convergence.tsv", newline="") as table:
        for line in csv.DictReader(table, delimiter="\t"):
            lines[line["row"]].append(line)
    mean = lambda name, column: statistics.mean(float(line[column]) for line in lines[name])
    in_order = lambda name, column: " ".join(line[column] for line in sorted(lines[name], key=lambda line: int(line["seed"])))
    yield CONVERGENCE_HEAD
    yield "|" + "---|" * 8
    for name in lines:
        dense = "dense_10_epochs" if name.endswith("_10_epochs") else "dense"
        saved = [f"{100 * (1 - mean(name, c) / mean(dense, c)):.1f} %" if mean(name, c) > 0 and dense in lines else "–"
                 for c in ("sent_bytes", "inter_node_bytes")]
        smaller = mean(name, "parameters_full") / mean(name, "parameters_final")
        yield (f"| `{name}` | {in_order(name, 'top1')} | {mean(name, 'top1'):.2f} | {in_order(name, 'views_top1')} | "
               f"{mean(name, 'views_top1'):.2f} | {' | '.join(saved)} | {f'{smaller:.2f} : 1' if smaller > 1.005 else '1 : 1'} |")


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
    rows = read_rows()
    if given.write:
        replace_table(HERE.parent / "README.md", README_HEAD, readme_table(rows))
        replace_table(HERE / "RESULTS.md", RESULTS_HEAD, results_table(rows))
        replace_table(HERE / "RESULTS.md", CONVERGENCE_HEAD, convergence_table())
    elif given.convergence:
        print("\n".join(convergence_table()))
    else:
        print("\n".join(readme_table(rows) if given.readme else results_table(rows)))


if __name__ == "__main__":
    main()
