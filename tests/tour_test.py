#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The teaching page of lowrank_tour in a browser: it draws, its controls move what they should, its model of time is that of
abtrain plan, and its NumPy computes what its words say.   tour_test.py LOWRANK_TOUR ABTRAIN"""

import html
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import browser

SKIPPED = 77


def expect(holds, words):
    if not holds:
        sys.exit("tour_test.py: " + words)


def move(control, value):
    """Script that moves a control as a reader does."""
    return f"""(() => {{ const e = document.getElementById("{control}"); e.value = {json.dumps(value)};
               e.dispatchEvent(new Event("input")); }})();"""


# The page after a guess, on the slowest network.
MOVED = move("guess", "40") + 'document.getElementById("guessed").click();' + move("bandwidth", 0) + move("latency", 12)


def check_published(page):
    """The page of the repository is this one; its numbers may differ with the processor."""
    published = pathlib.Path(__file__).parent.parent / "bench/figures/lowrank_tour.html"
    frame = [re.sub(r'(id="data" type="application/json">)[^\n]*', r"\1", file.read_text()) for file in (page, published)]
    expect(frame[0] == frame[1], f"{published.name} shows other code or words; make it anew: lowrank_tour --html {published}")


def check_looks(page):
    for width in (400, 1600):
        for dark in (False, True):
            for moved in ("", MOVED):
                faults = browser.page_faults(page, width, dark, before=moved)
                expect(not faults, f"at {width} pixels, {'dark' if dark else 'light'}: {'; '.join(faults[:5])}")


def check_controls(page):
    """Each control, where it stands and moved."""
    seen = browser.open_page(page, 1000, script=f"""(async () => {{
        const text = id => document.getElementById(id).textContent, marks = id => document.querySelectorAll("#" + id + " path, #" + id + " rect").length;
        const pixels = () => document.querySelector("#filters canvas").toDataURL();
        const veiled = () => document.getElementById("veil").classList.contains("on");
        const seen = {{veiled: veiled(), draws: ["directions", "sensitivity", "gradient", "time-spectrum", "time-loss", "blocks", "timeline", "three-losses",
                       "three-bytes", "who-wins"].filter(id => marks(id) === 0)}};
        document.getElementById("guess").value = "40";
        document.getElementById("guessed").click();
        seen.verdict = text("verdict"), seen.lifted = !veiled();
        {move("r", 3)}; seen.few = [text("r-facts"), pixels()];
        {move("r", 15)}; seen.all = [text("r-facts"), pixels()];
        {move("time", 0)}; seen.begin = text("time-facts") + text("time-says");
        {move("time", 1000)}; seen.end = text("time-facts") + text("time-says");
        {move("bandwidth", 0)}; seen.slow = text("who-says");
        {move("model", "vit_b_16")}; seen.model = text("who-wins"); {move("model", "resnet50")}; seen.other = text("who-wins");
        {move("bandwidth", 20)}; {move("compute", 12)}; {move("latency", 0)}; seen.fast = text("who-says");
        return seen;
    }})()""")
    expect(seen["errors"] == [], f"its console says {seen['errors']}")
    seen = seen["value"]
    expect(seen["draws"] == [], f"nothing is drawn in {seen['draws']}")
    expect(seen["veiled"] and seen["lifted"] and re.search(r"\d+.*\d+", seen["verdict"]), "the guess is not answered")
    expect(seen["few"][0] != seen["all"][0] and seen["few"][1] != seen["all"][1], "r moves neither figures nor filters")
    expect("warmup" in seen["begin"] and "end" in seen["end"], f"the time bar says '{seen['begin']}', '{seen['end']}'")
    expect("least time" in seen["slow"], f"a slow network: '{seen['slow']}'")
    expect(seen["model"] != seen["other"], "two models take the same time")
    expect("Dense training" in seen["fast"], f"a fast one: '{seen['fast']}'")


def check_times(page, abtrain, folder):
    """The delay of runs by the page's script and by the program, on three networks."""
    networks = {"latency=2us,bandwidth=100Gbps": 20, "latency=50us,bandwidth=10Gbps": 40, "latency=1ms,bandwidth=2Gbps": 200}
    for network, step_ms in networks.items():
        latency, bandwidth = re.fullmatch(r"latency=(\w+),bandwidth=(\d+)Gbps", network).groups()
        seconds = float(re.match(r"\d+", latency)[0]) * {"us": 1e-6, "ms": 1e-3}[latency[-2:]]
        rows = browser.open_page(page, 1000, script=f"""Object.values(D.plans).flat().map(m => [m.flags, exposed(m,
            {{latency: {seconds}, bandwidth: {float(bandwidth) * 1e9 / 8}}}, {step_ms / 1e3})])""")["value"]
        for flags, exposed in rows:
            out = folder / "plan.json"
            subprocess.run([abtrain, "plan", *flags.split(), "--network", network, "--step-ms", str(step_ms), "--out", out],
                           check=True, stdout=subprocess.DEVNULL)
            phases = json.loads(out.read_text())["plan"]["phases"].values()
            planned = sum(phase["communication_seconds"] - phase["hidden_seconds"] for phase in phases)
            expect(abs(exposed - planned) <= 1e-6 * planned,
                   f"{flags} over {network}: the page says {exposed:.2f} s, abtrain plan {planned:.2f}")
            out.unlink()


def check_numpy(page):
    import numpy as np
    names = {"np": np}
    for code in re.findall(r'<pre class="numpy">(.*?)</pre>', page.read_text(), re.S):
        exec(html.unescape(code), names)
    drawn = np.random.default_rng(0)
    w, r = drawn.normal(size=(12, 9)), 4
    sigma = np.linalg.svd(w, compute_uv=False)
    a, b = names["cut"](w, r)
    expect(np.isclose(np.linalg.norm(w - a @ b) ** 2, (sigma[r:] ** 2).sum()), "cut() is not the nearest of rank r")

    y, g = drawn.normal(size=(500, 12)) @ drawn.normal(size=(12, 12)), drawn.normal(size=(500, 12)) @ drawn.normal(size=(12, 12))
    increases, project = names["loss_directions"](y, g)
    c, gauss_newton = np.cov(y.T, bias=True), g.T @ g / len(g)
    gauss_newton += 1e-2 * np.diag(np.diag(gauss_newton))
    rest = np.eye(12) - project(r)
    expect(np.isclose(np.trace(gauss_newton @ rest @ c @ rest.T) / 2, increases[r:].sum()), "loss_directions() does not price a cut")
    outer, inner, bias = names["late_cut"](w, np.zeros(12), y, g, share=0.9)
    kept = outer.shape[1]
    expect(increases[:kept].sum() >= 0.9 * increases.sum() > increases[:kept - 1].sum(), "late_cut() keeps another share")
    expect(np.allclose(outer @ inner, project(kept) @ w) and np.allclose(bias, (np.eye(12) - project(kept)) @ y.mean(0)),
           "late_cut() is not P W with its bias")

    gradients, errors, q = [drawn.normal(size=(12, 9)) for _ in range(3)], [np.zeros((12, 9))] * 3, drawn.normal(size=(r, 9))
    sent = 0
    for _ in range(400):
        approximation, errors, q = names["power_sgd"](gradients, errors, q)
        sent = sent + approximation
    expect(np.allclose(sent / 400, sum(gradients) / 3, atol=0.05), "power_sgd() loses what its errors should bring back")

    names["mean_over_group"] = lambda gradient: gradient
    dw, (u, v) = drawn.normal(size=(12, 9)), (names["split"](w, r, False)[0], names["split"](w, r, True)[1])
    a = names["low_rank_step"](*names["split"](w, r, True), dw, 0.1, True)[0]
    b = names["low_rank_step"](*names["split"](w, r, False), dw, 0.1, False)[1]
    start = names["split"](w, r, True)[0] @ v
    expect(np.allclose(a @ v, start - 0.1 * dw @ v.T @ v), "a step of A is not the projected gradient")
    expect(np.allclose(u @ b, start - 0.1 * u @ u.T @ dw), "a step of B is not the projected gradient")
    joined = names["rejoin"](u, v, a, b)
    expect(np.allclose(u.T @ joined @ v.T, (u.T @ a + b @ v.T) / 2), "rejoin() does not take the mean of the corners")
    expect(np.linalg.matrix_rank(joined) == 2 * r, "rejoin() is not of rank 2r")


def main():
    tour, abtrain = sys.argv[1:3]
    if not browser.is_there() or not importlib.util.find_spec("numpy"):
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        page, again = folder / "page.html", folder / "again.html"
        for file in (page, again):
            subprocess.run([tour, "--html", file], check=True, stdout=subprocess.DEVNULL)
        expect(page.read_bytes() == again.read_bytes(), "two runs make two pages")
        check_published(page)
        check_numpy(page)
        check_looks(page)
        check_controls(page)
        check_times(page, abtrain, folder)


main()
