"""The dashboard in a browser: time until it can be used, cost of live updates, and memory of a tab that stays open.

    python -m benchmarks.dashboard --minutes 10 --rate 50

It needs Chromium (`--browser /usr/bin/chromium`) and the built pages (`make dashboard`).
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from benchmarks.dashboard_server import LARGE
from benchmarks.process import environment
from penstock.dashboard.app import STATIC

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--enable-precise-memory-info"]
INTERACTIVE_SECONDS = 1.0
GROWTH = 0.20
_ADDRESS = re.compile(r"^dashboard on (\S+)$", re.MULTILINE)
_MB = 2**20
# When what the page is for is there, and the main thread has handled a frame and a task after it.
_WATCH = """(() => {
  const wanted = SELECTOR, least = LEAST;
  const look = () => {
    if (document.querySelectorAll(wanted).length < least) return requestAnimationFrame(look);
    requestAnimationFrame(() => setTimeout(() => { window.__usable = performance.now(); }));
  };
  requestAnimationFrame(look);
})();"""
_FRAMES = """() => new Promise((done) => {
  let frames = 0; const start = performance.now(); let longest = 0, last = start;
  const count = (now) => {
    frames += 1; longest = Math.max(longest, now - last); last = now;
    if (now - start < 5000) requestAnimationFrame(count);
    else done({ fps: 1000 * frames / (now - start), longest });
  };
  requestAnimationFrame(count);
})"""


def main() -> int:
    """Measure, print a table and write JSON; return 1 if a bar is missed."""
    given = _arguments()
    with _server(given.jobs, given.nodes, given.rate) as url, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=given.browser, args=ARGUMENTS)
        found: dict[str, Any] = {
            "assets": assets(STATIC),
            "overview": usable(browser, url, "tbody tr", given.jobs, given.runs),
            "graph": usable(browser, f"{url}/#/jobs/{LARGE}", "[data-node]", 100, given.runs),
            "live_overview": live(browser, url, "tbody tr"),
            "live_graph": live(browser, f"{url}/#/jobs/{LARGE}", "[data-node]"),
        }
        if given.minutes:
            found["memory_overview"] = memory(browser, url, given.minutes / 2)
            found["memory_graph"] = memory(browser, f"{url}/#/jobs/{LARGE}", given.minutes / 2)
        browser.close()
    found |= {"jobs": given.jobs, "nodes": given.nodes, "events_per_second": given.rate}
    Path(given.json).write_text(json.dumps(found, indent=2))
    print(json.dumps(found, indent=2))
    return 0 if _reached(found) else 1


def _reached(found: dict[str, Any]) -> bool:
    quick = all(found[page]["median_s"] < INTERACTIVE_SECONDS for page in ("overview", "graph"))
    return quick and all(found[name]["growth"] <= GROWTH for name in found if name.startswith("memory"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=50, help="events a second")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=10, help="of the memory measurement, half each page; 0: none")
    parser.add_argument("--browser", default="/usr/bin/chromium")
    parser.add_argument("--json", default="dashboard.json")
    return parser.parse_args()


@contextmanager
def _server(jobs: int, nodes: int, rate: float) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "output.log"
        command = [sys.executable, "-m", "benchmarks.dashboard_server", folder, str(jobs), str(nodes), str(rate)]
        with said.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment())
        try:
            yield _address(process, said)
        finally:
            process.terminate()
            process.wait(30)


def _address(process: subprocess.Popen[bytes], said: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if found := _ADDRESS.search(said.read_text(errors="replace")):
            return found[1]
        time.sleep(0.05)
    raise RuntimeError("the job manager did not start: " + said.read_text(errors="replace")[-500:])


def assets(static: Path) -> dict[str, float]:
    """Return the size of the pages in KB, as stored and as sent with gzip."""
    files = [path for path in static.rglob("*") if path.is_file()]
    sent = sum(len(gzip.compress(path.read_bytes(), 9)) for path in files)
    return {"kb": sum(path.stat().st_size for path in files) / 1000, "gzip_kb": sent / 1000}


def usable(browser: Browser, url: str, selector: str, least: int, runs: int) -> dict[str, float]:
    """Return the seconds from navigation until the page can be used, with an empty cache, and what was sent."""
    taken, sent = [], 0.0
    for _ in range(runs):
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        page.add_init_script(_WATCH.replace("SELECTOR", json.dumps(selector)).replace("LEAST", str(least)))
        page.goto(url)
        page.wait_for_function("window.__usable !== undefined", timeout=30_000)
        taken.append(page.evaluate("window.__usable") / 1000)
        sizes = "performance.getEntriesByType('resource').reduce((sum, each) => sum + each.transferSize, 0)"
        sent = page.evaluate(sizes) / 1000
        context.close()
    return {"median_s": statistics.median(taken), "slowest_s": max(taken), "fastest_s": min(taken), "received_kb": sent}


def live(browser: Browser, url: str, selector: str) -> dict[str, float]:
    """Return frames a second and the share of the main thread's time while events come, for 5 seconds."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector(selector)
    page.wait_for_timeout(3_000)
    session = _metrics_session(page)
    before, began = _metric(session, "TaskDuration"), time.monotonic()
    frames = page.evaluate(_FRAMES)
    busy = (_metric(session, "TaskDuration") - before) / (time.monotonic() - began)
    context.close()
    return {"frames_per_s": frames["fps"], "longest_frame_ms": frames["longest"], "main_thread_busy": busy}


def memory(browser: Browser, url: str, minutes: float) -> dict[str, Any]:
    """Return the heap of a tab after garbage collection, ten times over so many minutes, and how much it grew."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(url)
    session = _metrics_session(page)
    page.wait_for_timeout(min(20_000, minutes * 6_000))  # charts and buffers are full then
    samples = []
    for _ in range(10):
        page.wait_for_timeout(minutes * 6_000)
        session.send("HeapProfiler.collectGarbage")
        samples.append({"heap_mb": _metric(session, "JSHeapUsedSize") / _MB, "nodes": _metric(session, "Nodes")})
    context.close()
    first, last = (statistics.mean(each["heap_mb"] for each in part) for part in (samples[:3], samples[-3:]))
    return {"minutes": minutes, "samples": samples, "growth": last / first - 1}


def _metrics_session(page: Page) -> CDPSession:
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    return session


def _metric(session: CDPSession, name: str) -> float:
    return next(
        float(each["value"]) for each in session.send("Performance.getMetrics")["metrics"] if each["name"] == name
    )


if __name__ == "__main__":
    sys.exit(main())
