# SPDX-License-Identifier: MIT
"""Opens a page in headless Chromium and says what a reader would see there.

    findings = open_page("report.html", width=400, dark=True, script="[document.title]")

It speaks the DevTools protocol over a pipe, so that widths are exact and nothing is added to the page. page_faults() looks
for what no page of ours may have.
"""

import base64
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

LIMIT_S = 60  # of one page; Chromium is killed then


class _Browser:
    """A Chromium with one empty page, for a `with` statement."""

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory()
        # Chromium reads commands from descriptor 3 and writes to 4; the ends lie above them, out of bash's way.
        pipes = os.pipe() + os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in pipes]
        for end in pipes:
            os.close(end)
        command = ["timeout", "-s", "KILL", str(LIMIT_S), "chromium", "--headless", "--no-sandbox", "--disable-gpu",
                   "--remote-debugging-pipe", "--hide-scrollbars", f"--user-data-dir={self.profile.name}", "about:blank"]
        self.process = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[3]}', "bash", *command],
                                        pass_fds=(ends[0], ends[3]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(ends[0]), os.close(ends[3])
        self.replies, self.commands = os.fdopen(ends[2], "rb"), os.fdopen(ends[1], "wb", buffering=0)
        self.rest, self.count, self.session, self.errors, self.loaded = b"", 0, None, [], False
        pages = self.call("Target.getTargets")["targetInfos"]
        target = next(page["targetId"] for page in pages if page["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return self

    def __exit__(self, *_):
        try:
            self.commands.close(), self.replies.close()  # Chromium ends without them
            self.process.wait()
        finally:
            self.profile.cleanup()

    def receive(self):
        while b"\0" not in self.rest:
            piece = os.read(self.replies.fileno(), 1 << 16)
            if not piece:
                raise RuntimeError(f"Chromium ended, or took longer than {LIMIT_S} s")
            self.rest += piece
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        event, said = message.get("method"), message.get("params", {})
        if event == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(value.get("value", value.get("description"))) for value in said["args"]))
        elif event == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.errors.append(said["entry"]["text"] + " " + said["entry"].get("url", ""))
        elif event == "Network.requestWillBeSent" and not said["request"]["url"].startswith(("file:", "data:")):
            self.errors.append("loads " + said["request"]["url"])
        self.loaded |= event == "Page.loadEventFired"
        return message

    def call(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.commands.write(json.dumps(message).encode() + b"\0")
        while (reply := self.receive()).get("id") != self.count:
            pass
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']['message']}")
        return reply["result"]

    def value_of(self, script):
        reply = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in reply:
            raise RuntimeError(reply["exceptionDetails"]["exception"]["description"])
        return reply["result"].get("value")


def open_page(path, width, dark=False, script="null", screenshot=None, height=900):
    """The value of a JavaScript expression, which may be a promise, in the page when it has loaded. The page is opened anew,
    `width` CSS pixels wide, in a light or dark colour scheme. `screenshot` is a PNG file to write, of the whole page.
    Findings are {"value": …, "errors": [what the console showed, what was thrown, what came from outside]}."""
    with _Browser() as browser:
        for domain in ("Page", "Runtime", "Log", "Network"):
            browser.call(domain + ".enable")
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        browser.call("Emulation.setEmulatedMedia",
                     features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        browser.loaded = False
        browser.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        while not browser.loaded:
            browser.receive()
        value = browser.value_of(script)
        if screenshot:
            tall = browser.value_of("document.documentElement.scrollHeight")
            picture = browser.call("Page.captureScreenshot", captureBeyondViewport=True,
                                   clip={"x": 0, "y": 0, "width": width, "height": tall, "scale": 1})
            pathlib.Path(screenshot).write_bytes(base64.b64decode(picture["data"]))
        return {"value": value, "errors": browser.errors}


# A list of sentences on what is wrong with the page as it stands.
_FAULTS = r"""(() => {
  const faults = [], root = document.documentElement;
  const said = node => node.textContent.trim().replace(/\s+/g, " ").slice(0, 60);
  if (root.scrollWidth > root.clientWidth) {
    const widest = [...document.querySelectorAll("body *")].find(e => e.getBoundingClientRect().right > root.clientWidth + 0.5);
    faults.push(`the page is ${root.scrollWidth} wide in ${root.clientWidth}: ${widest ? widest.outerHTML.slice(0, 100) : ""}`);
  }

  // Every run of text that is seen, with the box around it.
  const texts = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!said(node) || element.closest("title, script, style, template")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (box.width > 0 && element.checkVisibility({opacityProperty: true, visibilityProperty: true}))
      texts.push({node, element, box, svg: element.closest("svg")});
  }

  // Colours as the browser mixes them: WCAG's contrast of the text with what lies behind it.
  const pixel = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = colour => {
    pixel.clearRect(0, 0, 1, 1), pixel.fillStyle = colour, pixel.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pixel.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const luminance = colour => {
    const [r, g, b] = colour.map(c => (c /= 255, c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element, box) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor));
    let colour = rgba(getComputedStyle(root).colorScheme.includes("dark") && matchMedia("(prefers-color-scheme: dark)").matches ?
                      "#121212" : "#fff");
    for (const layer of layers.reverse()) colour = over(layer, colour);
    // Inside a drawing: the shapes before the text that its middle lies in.
    const x = box.left + box.width / 2, y = box.top + box.height / 2;
    for (const shape of element.closest("svg")?.querySelectorAll("rect, circle, path, polygon") ?? []) {
      const style = getComputedStyle(shape), around = shape.getBoundingClientRect();
      if (style.fill == "none" || shape.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_PRECEDING) continue;
      if (x < around.left || x > around.right || y < around.top || y > around.bottom) continue;
      const fill = rgba(style.fill);
      fill[3] *= style.fillOpacity * style.opacity;
      colour = over(fill, colour);
    }
    return colour;
  };
  for (const {node, element, box, svg} of texts) {
    const style = getComputedStyle(element), below = behind(element, box), ink = rgba(svg ? style.fill : style.color);
    for (let e = element; e; e = e.parentElement) ink[3] *= getComputedStyle(e).opacity;
    const [low, high] = [luminance(over(ink, below)), luminance(below)].sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) faults.push(`contrast ${contrast.toFixed(2)}: ${said(node)}`);
  }

  for (const [i, a] of texts.entries()) {
    if (!a.svg) continue;
    const around = a.svg.getBoundingClientRect();
    if (a.box.left < around.left - 1 || a.box.right > around.right + 1 || a.box.top < around.top - 1 ||
        a.box.bottom > around.bottom + 1)
      faults.push(`outside its drawing: ${said(a.node)}`);
    for (const b of texts.slice(i + 1))
      if (b.svg == a.svg && Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left) > 0.5 &&
          Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top) > 0.5 &&
          a.element.closest("text") != b.element.closest("text"))
        faults.push(`one on the other: ${said(a.node)}, ${said(b.node)}`);
  }
  return faults;
})()"""


def page_faults(path, width, dark=False, screenshot=None, before=""):
    """Sentences on what is wrong with a page, once the statements `before` have run in it: an error on its console, something loaded from outside, a page wider than its
    window, text of a drawing on other text or outside the drawing, text whose contrast is less than 4.5."""
    findings = open_page(path, width, dark, before + _FAULTS, screenshot)
    return findings["errors"] + findings["value"]


def is_there():
    return shutil.which("chromium") is not None
