#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the figures of the README files: method.svg, accuracy.svg, size.svg and spectrum.svg, from the tables beside
this file, ../convergence.tsv and ../epochs20.tsv.

    bench/figures/draw.py            writes them beside this file
    bench/figures/draw.py FOLDER     writes them to FOLDER; the tests compare these with the ones in the repository

Needs nothing but Python 3. Colours follow the reader's light or dark theme.
"""

import argparse
import csv
import math
import pathlib

HERE = pathlib.Path(__file__).resolve().parent

# Names of colours, for a light page and for a dark one.
COLOURS = {
    "page": ("#ffffff", "#0d1117"),
    "panel": ("#f6f8fa", "#151b23"),
    "line": ("#d1d9e0", "#3d444d"),
    "text": ("#1f2328", "#f0f6fc"),
    "muted": ("#59636e", "#9198a1"),
    "w": ("#4f5bd5", "#8b93f8"),
    "a": ("#d2691e", "#f0965a"),
    "b": ("#12857f", "#3fbfb6"),
    "ink": ("#ffffff", "#0d1117"),  # on a filled shape
}


def style(theme):
    rules = []
    for name, shades in COLOURS.items():
        rules.append(f".{name}{{fill:{shades[theme]}}}.{name}-line{{stroke:{shades[theme]}}}")
    return "".join(rules)


class Svg:
    """A picture under construction. Shapes take their colours by name."""

    def __init__(self, width, height, title):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="{title}" '
            'font-family="-apple-system, \'Segoe UI\', \'Noto Sans\', Helvetica, Arial, sans-serif" font-size="14">',
            f"<title>{title}</title>",
            f"<style>{style(0)}@media (prefers-color-scheme:dark){{{style(1)}}}</style>",
            f'<rect class="page" width="{width}" height="{height}" rx="8"/>',
        ]

    def rect(self, x, y, width, height, colour, radius=3.0, **more):
        self.add("rect", colour, more, x=x, y=y, width=width, height=height, rx=radius)

    def circle(self, x, y, radius, colour, **more):
        self.add("circle", colour, more, cx=x, cy=y, r=radius)

    def line(self, x1, y1, x2, y2, colour, width=1.0, **more):
        more["stroke_width"] = width
        self.add("line", f"{colour}-line", more, x1=x1, y1=y1, x2=x2, y2=y2)

    def path(self, points, colour, width=2.0, **more):
        more.update(fill="none", stroke_width=width, stroke_linejoin="round")
        self.add("polyline", f"{colour}-line", more, points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points))

    def arrow(self, x1, y1, x2, y2, colour="muted"):
        self.line(x1, y1, x2, y2, colour, 1.5)
        dx, dy = x2 - x1, y2 - y1
        length = (dx * dx + dy * dy) ** 0.5
        dx, dy = 7 * dx / length, 7 * dy / length
        ends = [(x2 - dx - dy * 0.6, y2 - dy + dx * 0.6), (x2, y2), (x2 - dx + dy * 0.6, y2 - dy - dx * 0.6)]
        self.path(ends, colour, 1.5)

    def text(self, x, y, words, colour="text", anchor="start", size=14, **more):
        more.update(text_anchor=anchor, font_size=size)
        self.add("text", colour, more, words, x=x, y=y)

    def label(self, x, y, words, colour, anchor, size=14, font_weight=600):
        """Text that stays readable where it lies on lines."""
        self.text(x, y, words, f"{colour} page-line", anchor, size, font_weight=font_weight, stroke_width=6,
                  stroke_linejoin="round", paint_order="stroke")

    def add(self, tag, colour, more, words=None, **places):
        values = {**places, **more}
        attributes = "".join(f' {name.replace("_", "-")}="{self.number(value)}"' for name, value in values.items())
        end = "/>" if words is None else f">{words}</{tag}>"
        self.parts.append(f'<{tag} class="{colour}"{attributes}{end}')

    @staticmethod
    def number(value):
        return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)

    def __str__(self):
        return "\n".join(self.parts) + "\n</svg>\n"


def table(name):
    """The rows of NAME.tsv, as dictionaries; lines that open with # are comments."""
    with open(HERE / f"{name}.tsv", encoding="utf-8") as file:
        return list(csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t"))


# ---- The method -----------------------------------------------------------------------------------------------------

SIDE, THIN = 72, 18  # W is SIDE × SIDE; a factor is THIN wide
TOP, LANE, GAP = 74, 92, 14  # two lanes of ranks
BOTTOM = TOP + 2 * LANE + GAP


def ranks(svg, x, y, numbers, colour):
    """Ranks that average their gradients: numbered discs on a line."""
    svg.line(x, y, x + 24 * (len(numbers) - 1), y, colour, 2)
    for i, number in enumerate(numbers):
        svg.circle(x + 24 * i, y, 9, colour)
        svg.text(x + 24 * i, y + 4, number, "ink", "middle", 11, font_weight=600)


def matrix(svg, x, y, width, height, name, colour, trained=True):
    if trained:
        svg.rect(x, y, width, height, colour)
    else:
        svg.rect(x + 0.75, y + 0.75, width - 1.5, height - 1.5, f"{colour} {colour}-line", fill_opacity=0.12,
                 stroke_width=1.5, stroke_dasharray="4 3")
    svg.text(x + width / 2, y + height / 2 + 5, name, "ink" if trained else colour, "middle", 15, font_weight=600)


def panel(svg, x, y, width, height):
    svg.rect(x, y, width, height, "panel line-line", 8.0, stroke_width=1)


def heading(svg, x, title, words):
    svg.text(x, 32, title, "text", "middle", 16, font_weight=600)
    svg.text(x, 53, words, "muted", "middle", 13)


def full_rank(svg, x, width, title):
    """A phase in which all ranks train W."""
    centre = x + width / 2
    heading(svg, centre, title, "all ranks train W")
    panel(svg, x, TOP, width, BOTTOM - TOP)
    matrix(svg, centre - SIDE / 2, TOP + 40, SIDE, SIDE, "W", "w")
    ranks(svg, centre - 36, BOTTOM - 46, "0123", "w")


def low_rank(svg, x, width):
    """A phase in which one group trains A and the other B."""
    heading(svg, x + width / 2, "low rank, in groups", "one factor trains, one is frozen")
    for lane, (numbers, trained) in enumerate((("01", "a"), ("23", "b"))):
        y = TOP + lane * (LANE + GAP)
        panel(svg, x, y, width, LANE)
        matrix(svg, x + 18, y + 10, THIN, SIDE, "A", "a", trained == "a")
        svg.text(x + 46, y + 51, "·", "muted", "middle", 20)
        matrix(svg, x + 56, y + 37, SIDE, THIN, "B", "b", trained == "b")
        svg.text(x + 145, y + 39, f"trains {trained.upper()}", trained, size=14, font_weight=600)
        ranks(svg, x + 156, y + 61, numbers, trained)


def turn(svg, x, width, title, words, out):
    """Between two phases: one becomes two (out), or two become one."""
    centre, middle = x + width / 2, (TOP + BOTTOM) / 2
    upper, lower = TOP + LANE / 2, BOTTOM - LANE / 2
    svg.text(centre, middle - 3, title, "text", "middle", 14, font_weight=600)
    svg.text(centre, middle + 15, words, "muted", "middle", 12)
    for lane in (upper, lower):
        side = -30 if lane == upper else 30
        if out:
            svg.arrow(x + 16, middle + side, x + width - 16, lane)
        else:
            svg.arrow(x + 16, lane, x + width - 16, middle + side)


def method():
    """W → A·B → groups → W over time; below it, what a rank exchanges in a step."""
    sent = {row["phase"]: float(row["megabytes"]) for row in table("method")}
    svg = Svg(1000, 452, "AB-training over time: all ranks train W; W is split into A and B; one group of ranks trains "
              "A, the other B; both are rejoined to W, which all ranks train for a while before it is split again")
    full = [(20, 140, "warm-up"), (540, 140, "rebound")]
    low = [(240, 220), (760, 220)]
    for x, width, title in full:
        full_rank(svg, x, width, title)
    for x, width in low:
        low_rank(svg, x, width)
    turn(svg, 160, 80, "split", "W ≈ A·B", True)
    turn(svg, 460, 80, "rejoin", "A, B → W", False)
    turn(svg, 680, 80, "split", "again", True)

    base, height = 428, 82
    svg.text(20, base - height - 28, "gradient that a rank averages with others in every step", font_weight=600)
    svg.text(980, base - height - 28, "to scale: VGG16 at half width, r = n/4", "muted", "end", 13)
    svg.line(20, base, 980, base, "line", 1.5)

    def bar(x, width, megabytes, colour):
        tall = height * megabytes / sent["full rank"]
        svg.rect(x, base - tall, width, tall, colour, 2.0)
        svg.text(x + width / 2, base - tall - 7, f"{megabytes:.1f} MB", colour, "middle", 13, font_weight=600)

    for x, width, _ in full:
        bar(x, width, sent["full rank"], "w")
    for x, width in low:
        half = (width - 8) / 2
        bar(x, half, sent["trains A"], "a")
        bar(x + half + 8, half, sent["trains B"], "b")
    return svg


# ---- Measured: accuracy against traffic -----------------------------------------------------------------------------


def axes(svg, x, y, width, height, x_range, y_range, x_ticks, y_ticks, x_label, y_label):
    """Draws grid and labels; returns the function from values to places."""
    def place(u, v):
        return (x + width * (u - x_range[0]) / (x_range[1] - x_range[0]),
                y + height * (1 - (v - y_range[0]) / (y_range[1] - y_range[0])))
    for tick in y_ticks:
        _, at = place(x_range[0], tick)
        svg.line(x, at, x + width, at, "line")
        svg.text(x - 8, at + 4.5, f"{tick:g}", "muted", "end", 12)
    for tick in x_ticks:
        at, _ = place(tick, y_range[0])
        svg.line(at, y + height, at, y + height + 5, "line")
        svg.text(at, y + height + 20, f"{tick:g}", "muted", "middle", 12)
    svg.text(x + width / 2, y + height + 42, x_label, "muted", "middle", 13)
    svg.text(x - 36, y - 14, y_label, "muted", size=13)
    return place


def log_axes(svg, x, y, width, height, x_range, y_range, x_ticks, y_ticks, x_label, y_label):
    """The same with x to a logarithmic scale."""
    place = axes(svg, x, y, width, height, tuple(map(math.log, x_range)), y_range, [], y_ticks, x_label, y_label)
    for tick in x_ticks:
        at, _ = place(math.log(tick), y_range[0])
        svg.line(at, y + height, at, y + height + 5, "line")
        svg.text(at, y + height + 20, f"{tick:g}", "muted", "middle", 12)
    return lambda u, v: place(math.log(u), v)


def runs_of(rows, config):
    """The runs of one network, as lists by the name of their row; one run is one seed."""
    runs = {}
    for row in rows:
        if row["config"] == config:
            runs.setdefault(row["row"], []).append(row)
    return runs


def mean(runs, value):
    return sum(map(value, runs)) / len(runs)


# Rows of convergence.tsv that have a place in the picture.
NAMED = {"dense": ("dense, 32 bits", "w"), "dense_bf16": ("dense, 16 bits", "w"), "late_cut": ("late cut", "a"),
         "late_cut_5": ("late cut", "a"), "late_cut_8": ("late cut", "a"), "late_cut_16": ("late cut", "a"), "ab": ("AB-training", "b"),
         "powersgd": ("PowerSGD", "muted"), "int8": ("8 bits", "muted"), "acpsgd": ("ACP-SGD", "muted"), "dion": ("Dion", "muted"),
         "local": ("local averaging", "muted"),
         "local_nodes": ("averaging between nodes", "muted"), "daso": ("DASO", "muted"), "diloco": ("DiLoCo", "muted"),
         "scalecom": ("ScaleCom", "muted"), "mstopk": ("MSTopK", "muted"), "hitopk": ("HiTopKComm", "muted"),
         "artopk": ("AR-Topk", "muted"), "narrow": ("narrower", "muted"), "short": ("shorter", "muted")}


def place_labels(labels, points, frame):
    """Puts (x, y, words, colour) near their points, so that none lies on another or on a point, nor leaves the frame:
    (x, y, words, colour, anchor) and where a line from the point ends, or None beside it."""
    left, top, right, bottom = frame
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    steps = [(dx, dy) for away in (0, 14, 28, 42, 56, 70, 84, 98, 112, 126) for dy in (away, -away)
             for dx in (10, -10, 24, -24, 44, -44)]
    for x, y, words, colour in sorted(labels, key=lambda label: (label[1], label[0])):
        width = 7.2 * len(words) + 3.5 * sum(map(str.isupper, words))
        for dx, dy in sorted(steps, key=lambda step: abs(step[0]) + 1.4 * abs(step[1])):
            end = x + dx + (width if dx > 0 else -width)
            box = (min(x + dx, end), y + dy - 7, max(x + dx, end), y + dy + 7)
            if (left < box[0] and box[2] < right and top < box[1] and box[3] < bottom
                    and all(box[2] < l or box[0] > r or box[3] < t or box[1] > b for l, t, r, b in taken)):
                break
        taken.append(box)
        lead = (x + dx * 0.8, y + dy) if abs(dx) + abs(dy) > 20 else None
        yield x + dx, y + dy + 4, words, colour, "start" if dx > 0 else "end", lead


def accuracy():
    """Each row a point, the mean of its seeds: what it reached, against what a rank sent between nodes for it and against the model
    that it leaves. Those below the frame lie on its edge, with their number."""
    svg = Svg(960, 490, "Measured on CIFAR-10, two nodes of two ranks, twelve epochs: accuracy against bytes sent between nodes and "
              "against the size of the model, for dense data parallel, late cut, AB-training and rivals")
    runs = {name: of_row for name, of_row in runs_of(table("../convergence"), "conv6_cifar").items() if name in NAMED}
    top1 = {name: mean(runs[name], lambda run: float(run["top1"])) for name in runs}
    sent = {name: mean(runs[name], lambda run: float(run["inter_node_bytes"])) / 1e9 for name in runs}
    left = {name: mean(runs[name], lambda run: int(run["parameters_final"])) / 1e6 for name in runs}
    cut, dense, low, high = "late_cut", "dense", 89, 94
    smaller = {name: left[dense] / left[name] for name in runs}
    panels = [("Bytes", f"late cut: {100 * (1 - sent[cut] / sent[dense]):.0f} % fewer bytes, {top1[dense] - top1[cut]:.1f} points lower",
               sent, (0.1, 6), [0.1, 0.2, 0.5, 1, 2, 5], "sent between nodes, per rank over the whole run, GB",
               [name for name in runs if not name.startswith("late_cut_")]),
              ("Size", f"{smaller['late_cut_5']:.0f} : 1 by a late cut is {top1[dense] - top1['late_cut_5']:.1f} points lower, "
               f"{smaller['narrow']:.0f} : 1 by a narrower net {top1[dense] - top1['narrow']:.1f}",
               left, (0.08, 2.4), [0.1, 0.2, 0.5, 1, 2], "weights of the model that is left, million",
               [dense, "narrow", *(name for name in runs if name.startswith("late_cut"))])]
    for i, (title, words, value, span, ticks, label, names) in enumerate(panels):
        x, y, width, height = 62 + 480 * i, 96, 390, 332
        svg.text(x - 36, 28, title, "text", size=16, font_weight=600)
        svg.text(x - 36, 50, words, "muted", size=13)
        place = log_axes(svg, x, y, width, height, span, (low, high), ticks, range(low, high + 1), label, "top-1, %")
        best, line = 0, []
        for name in sorted(names, key=lambda name: (value[name], -top1[name])):  # the best of those that are no larger
            if top1[name] > best:
                line += [place(value[name], max(best, low)), place(value[name], max(top1[name], low))]
                best = top1[name]
        svg.path([*line, place(span[1], best)], "line", 1.5)
        at = {name: place(value[name], max(top1[name], low)) for name in names}
        ratio = lambda name: f", {smaller[name]:.0f} : 1" if i and name.startswith(cut) else ""
        labels = [(*at[name], NAMED[name][0] + ratio(name) + (f", {top1[name]:.1f}" if top1[name] < low else ""), NAMED[name][1])
                  for name in names]
        placed = list(place_labels(labels, at.values(), (x, y - 10, x + width + 20, y + height)))
        for (label_x, label_y, _, colour), (*_, lead) in zip(sorted(labels, key=lambda l: (l[1], l[0])), placed):
            if lead:
                svg.line(label_x, label_y, *lead, colour, 0.7)
        for name in names:
            svg.circle(*at[name], 5, NAMED[name][1])
        for label_x, label_y, words, colour, anchor, _ in placed:
            svg.label(label_x, label_y, words, colour, anchor, 12)
    return svg


# ---- Measured: accuracy against the size of the model ---------------------------------------------------------------


# Beginnings of the names of rows of epochs20.tsv: those of a kind are joined, from dense training on.
KINDS = [("dense", "dense", "w"), ("powersgd", "PowerSGD", "muted"), ("late_cut", "late cut", "a"),
         ("channel", "channel factors", "b"), ("narrow", "dense, narrower", "muted")]


def size():
    """What runs of twenty epochs leave: each setting a point, the mean over its seeds of how far it ends from dense training."""
    svg = Svg(960, 426, "Measured on CIFAR-10, twenty epochs: accuracy, less that of dense training with the same seed, against the "
              "number of weights that are left, for PowerSGD, late cut and narrower dense nets")
    low, high = -4, 1
    panels = [("vgg16_cifar_dense", "VGG16 at half width", (0.5, 4.5), [0.5, 1, 2, 4]),
              ("resnet20_dense", "ResNet-20", (0.09, 0.3), [0.1, 0.15, 0.2, 0.3])]
    for i, (config, title, weights, ticks) in enumerate(panels):
        x, y, width, height = 62 + 480 * i, 96, 390, 268
        svg.text(x - 36, 28, title, "text", size=16, font_weight=600)
        place = log_axes(svg, x, y, width, height, weights, (low, high), ticks, range(low, high + 1),
                         "weights of the model that is left, million", "top-1, points from dense training with the same seed")
        runs = runs_of(table("../epochs20"), config)
        dense = {run["seed"]: float(run["top1"]) for run in runs["dense"]}
        means = {name: (mean(runs[name], lambda run: int(run["parameters_final"])) / 1e6,
                        mean(runs[name], lambda run: float(run["top1"]) - dense[run["seed"]])) for name in runs}
        at = {name: place(*means[name]) for name in means}
        of_kind = lambda kind: sorted((name for name in runs if name.startswith(kind)), key=lambda name: -means[name][0])
        labels = []
        for kind, words, colour in reversed(KINDS):
            names = of_kind(kind)
            if kind in ("late_cut", "channel", "narrow"):
                svg.path([at["dense"], *(at[name] for name in names)], colour, 1.2, stroke_dasharray="3 4")
            for name in names:
                svg.circle(*at[name], 5, colour)
            labels += [(*at[name], words, colour) for name in names[-1:]]
        for label_x, label_y, words, colour, anchor, _ in place_labels(labels, at.values(), (x, y - 10, x + width + 20, y + height)):
            svg.label(label_x, label_y, words, colour, anchor, 12)
        narrow = of_kind("narrow")[-1]
        cut = next(name for name in of_kind("late_cut") + of_kind("channel") if abs(means[name][0] / means[narrow][0] - 1) < 0.1)
        svg.text(x - 36, 50, f"at {means['dense'][0] / means[cut][0]:.1f} : 1 a late cut is {-means[cut][1]:.1f} points below dense, "
                 f"a narrower net, about as small, {-means[narrow][1]:.1f}", "muted", size=13)
    return svg


# ---- Measured: the spectrum of a trained weight ---------------------------------------------------------------------


def spectrum():
    """Singular values of two convolutions of one network: new, at the time of the first split, and trained."""
    rows = table("spectrum")
    svg = Svg(960, 404, "Singular values of two convolutions of a VGG16 at half width: new, after one epoch and after "
              "three")
    panels = [("features.7.weight", "an early convolution, 64 × 288"),
              ("features.40.weight", "the last convolution, 256 × 2304")]
    for i, (layer, title) in enumerate(panels):
        x, y, width, height = 62 + 480 * i, 96, 390, 246
        values = [row for row in rows if row["layer"] == layer]
        n = len(values)
        svg.text(x - 36, 28, title, "text", size=16, font_weight=600)
        place = axes(svg, x, y, width, height, (1, n), (0, 4), [1, n // 4, n // 2, 3 * n // 4, n], range(5),
                     "direction i, strongest first", "σᵢ")
        cut, top = place(n // 4, 4)
        svg.line(cut, top, cut, y + height, "muted", 1.5, stroke_dasharray="5 4")
        svg.label(cut + 8, top + 16, "cut to r = n/4", "muted", "start", 13, font_weight=400)
        shares = []
        for j, (column, colour, name) in enumerate((("new", "muted", "new"), ("epoch1", "b", "after 1 epoch"),
                                                    ("epoch3", "w", "after 3 epochs"))):
            sigma = [float(row[column]) for row in values]
            svg.path([place(k + 1, value) for k, value in enumerate(sigma)], colour, 2.5)
            share = sum(v * v for v in sigma[:n // 4]) / sum(v * v for v in sigma)
            shares.append(f"{100 * share:.0f} %")
            svg.line(x + 224, y + 38 + 21 * j, x + 246, y + 38 + 21 * j, colour, 2.5)
            svg.label(x + 254, y + 42.5 + 21 * j, name, colour, "start", 13)
        svg.text(x - 36, 50, f"the first quarter holds {shares[0]}, {shares[1]}, {shares[2]} of Σσ²", "muted", size=13)
    return svg


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", nargs="?", type=pathlib.Path, default=HERE)
    folder = options.parse_args().folder
    for figure in (method, accuracy, size, spectrum):
        (folder / f"{figure.__name__}.svg").write_text(str(figure()), encoding="utf-8")


if __name__ == "__main__":
    main()
