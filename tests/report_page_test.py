# SPDX-License-Identifier: MIT
"""The page of `abtrain compare --out` as a browser shows it, of three runs that this trains:
    python3 tests/report_page_test.py PROGRAM
Exit code 77: there is no Chromium here. The screenshots are left in $REPORT_SCREENSHOTS where that names a folder.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import browser

RUNS = {
    "dense": [],
    "ab": ["--ab.group-size", "1", "--ab.first-split", "8", "--ab.cycle-steps", "8", "--ab.full-rank-steps", "2"],
    "late-cut": ["--late-cut.at", "0.5", "--late-cut.keep", "0.8"],
}

# A page with one of each fault.
PLANTED = """<!doctype html><title>planted</title><body style="background: #fff"><div style="width: 700px">wide</div>
<p style="color: #999">pale</p><svg viewBox="0 0 100 40" width="300"><text x="10" y="20" font-size="8">one</text>
<text x="14" y="20" font-size="8">two</text><text x="95" y="10" font-size="8">three</text></svg>
<script>console.error("told"); missing.call();</script><img src="http://127.0.0.1:9/x.png"></body>"""
FOUND = ["the page is 708 wide in 400", "contrast 2.85: pale", "one on the other: one, two", "outside its drawing: three",
         "told", "ReferenceError: missing", "loads http://127.0.0.1:9/x.png"]

# What the charts of the report say, by title.
CHARTS = """[...document.querySelectorAll("figure")].map(figure => ({
  title: figure.querySelector("figcaption").firstChild.textContent,
  how: figure.querySelector("figcaption p")?.textContent ?? "",
  marks: [...figure.querySelectorAll(".mark")].map(mark => mark.querySelector("title").textContent),
  axes: [...figure.querySelectorAll(".axis")].map(axis => axis.textContent),
  coloured: figure.querySelectorAll(".curve:not(.grey)").length, grey: figure.querySelectorAll(".curve.grey").length,
  keys: [...figure.querySelectorAll(".legend i")].map(key => [getComputedStyle(key).width, getComputedStyle(key).height]),
  legend: [...figure.querySelectorAll(".legend span")].map(entry => entry.textContent)}))"""


def trained_report(program, folder):
    for method, settings in RUNS.items():
        subprocess.run([program, "train", "--model", "resnet20", "--width", "0.25", "--dataset", "synthetic", "--data-dir",
                        folder / "images", "--method", method, "--ranks", "2", "--batch-size", "8", "--steps", "32",
                        "--train-samples", "128", "--val-samples", "40", "--log-every", "2", "--threads", "1", "--out",
                        folder / method, *settings], check=True, stdout=subprocess.DEVNULL)
    page = folder / "report.html"
    subprocess.run([program, "compare", *(folder / method for method in RUNS), "--out", page], check=True,
                   stdout=subprocess.DEVNULL)
    return page


def splits_of(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["step"] for line in lines if line["kind"] == "split"]


def chart_faults(charts, folder):
    by_title = {chart["title"]: chart for chart in charts}
    faults = [f"no sentence: {chart['title']}" for chart in charts if not chart["how"].endswith(".")]
    splits, cuts = splits_of(folder / "ab"), splits_of(folder / "late-cut")
    marks = [f"ab: split after step {splits[0]}, the first of {len(splits)} splits", f"late-cut: cut after step {cuts[0]}"]
    for title, axes in {"Training loss": ["step", "cross entropy, nats"],
                        "Accuracy on the validation images": ["step", "top-1, %"],
                        "Bytes sent by rank 0": ["step", "sent since the start, MB"],
                        "Accuracy for the bytes sent so far": ["sent since the start, MB", "top-1, %"],
                        "Accuracy against time": ["time, s", "top-1, %"],
                        "Bytes by phase of training": ["wire per rank, MB"]}.items():
        chart = by_title.get(title, {})
        if chart.get("axes") != axes:
            faults.append(f"{title}: axes {chart.get('axes')}")
        if "Bytes by" not in title and "against" not in title and sorted(chart.get("marks", [])) != marks:
            faults.append(f"{title}: marks {chart.get('marks')}")
    for title, chart in by_title.items():
        if title.startswith("Accuracy against") and "Pareto front" not in chart["legend"]:
            faults.append(f"{title}: the Pareto front has no name")
        if "by directions" in title and (chart["coloured"] != 6 or len(chart["legend"]) != 6 or chart["grey"] < 6):
            faults.append(f"{title}: {chart['coloured']} curves, {chart['grey']} grey, {len(chart['legend'])} in the legend")
    if any(width != height for width, height in by_title["Bytes by phase of training"]["keys"]):
        faults.append("the keys of bars are not square")
    return faults


def main():
    if not browser.is_there():
        print("there is no chromium")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        planted = folder / "planted.html"
        planted.write_text(PLANTED)
        told = browser.page_faults(planted, 400)
        faults = [f"page_faults() does not see: {fault}" for fault in FOUND if not any(fault in text for text in told)]

        page = trained_report(pathlib.Path(sys.argv[1]).resolve(), folder)
        pictures = pathlib.Path(os.environ.get("REPORT_SCREENSHOTS", folder))
        for width in (400, 1600):
            for dark in (False, True):
                name = f"{width}_{'dark' if dark else 'light'}"
                faults += [f"{name}: {fault}" for fault in browser.page_faults(page, width, dark, pictures / f"{name}.png")]
        faults += chart_faults(browser.open_page(page, 1600, script=CHARTS)["value"], folder)
    print("\n".join(faults) or "nothing overflows, overlaps or fades; charts have their sentences, marks, units and keys")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
