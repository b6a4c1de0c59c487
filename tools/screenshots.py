"""Pictures of the dashboard with real jobs: `make screenshots` writes docs/images/dashboard-*.png, light and dark.

It runs `penstock up` over a folder of its own, feeds a topic, and submits the jobs in `screenshot_jobs.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[1]
JOBS = ROOT / "tools" / "screenshot_jobs.py"
SYMBOLS = ("AAPL", "ADBE", "AMD", "AMZN", "AVGO", "GOOG", "META", "MSFT", "NFLX", "NVDA", "ORCL", "TSLA")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
# Picture -> page, and what must be there before it is taken.
PAGES = {
    "overview": ("#/", "tbody tr"),
    "job": ("#/jobs/vwap?node=aggregate", "[data-node]"),
    "charts": ("#/jobs/vwap/charts", ".u-over"),
    "topics": ("#/topics", "tbody tr"),
    "messages": ("#/topics/trades", "tbody tr"),
    "sql": ("#/sql", "textarea, [contenteditable], input"),
}
_ADDRESSES = re.compile(r"^(dashboard|log) on (\S+)$", re.MULTILINE)


def main() -> int:
    """Take the pictures and return an exit code."""
    given = _arguments()
    with tempfile.TemporaryDirectory() as folder, _running(Path(folder)) as (url, log), _feed(log):
        _submit(url, Path(folder))
        print(f"jobs run for {given.seconds:g} s, so that charts have something to show: {url}")
        time.sleep(given.seconds)
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=given.browser, args=ARGUMENTS)
            for scheme in ("light", "dark"):
                _take(browser, url, scheme, Path(given.out))
            browser.close()
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    parser.add_argument("--out", default=str(ROOT / "docs" / "images"))
    return parser.parse_args()


@contextmanager
def _running(folder: Path) -> Iterator[tuple[str, str]]:
    """Run `penstock up`; yields the addresses of the dashboard and of the log."""
    said = folder / "output.log"
    command = [sys.executable, "-m", "penstock.cli", "up", "--data", str(folder / "data"), "--port", "0"]
    with said.open("wb") as output:
        process = subprocess.Popen([*command, "--spares", "0"], stdout=output, stderr=subprocess.STDOUT, cwd=folder)
    try:
        found: dict[str, str] = {}
        while len(found) < 2 and process.poll() is None:
            time.sleep(0.2)
            found = dict(_ADDRESSES.findall(said.read_text(errors="replace")))
        if len(found) < 2:
            message = f"penstock up did not start:\n{said.read_text(errors='replace')}"
            raise SystemExit(message)
        yield found["dashboard"], found["log"]
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def _feed(log: str) -> Iterator[None]:
    """Produce trades to the topic `trades`, of which a few are late and a few are none."""
    for topic in ("trades", "vwap", "late-trades", "bad-trades", "trade-counts"):
        subprocess.run(
            [sys.executable, "-m", "penstock.cli", "topic", "create", topic, "--partitions", "2", "--broker", log],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    ended = Event()
    thread = Thread(target=_produce, args=(log, ended), daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


def _produce(log: str, ended: Event) -> None:
    producer, made = Producer({"bootstrap.servers": log}), random.Random(7)
    prices = {symbol: made.uniform(60, 400) for symbol in SYMBOLS}
    began = time.time()
    while not ended.wait(0.25):
        now = time.time()
        for _ in range(int(150 * (1 + 0.6 * math.sin((now - began) / 25) + 0.2 * made.random()))):
            symbol = made.choice(SYMBOLS)
            prices[symbol] *= 1 + made.gauss(0, 0.0004)
            producer.produce("trades", _trade(symbol, prices[symbol], now, made), key=symbol)
        producer.flush()


def _trade(symbol: str, price: float, now: float, made: random.Random) -> str:
    if made.random() < 0.001:
        return "not a trade"
    at = datetime.fromtimestamp(now - (90 if made.random() < 0.003 else 0), UTC)
    size = made.choice((0, 10, 50, 100, 200, 500))
    return json.dumps({"symbol": symbol, "price": round(price, 2), "size": size, "ts": at.isoformat()})


def _submit(url: str, folder: Path) -> None:
    submissions = (
        ("vwap", [f"{ROOT / 'examples' / 'vwap_topics.py'}", "--set", "window=30s", "--pool", "prices"]),
        ("trade-counts", [f"{JOBS}:trade_counts", "--pool", "prices"]),
        ("backfill", [f"{JOBS}:backfill", "--set", f"out={folder / 'backfill'}", "--until", "ended"]),
        ("orders-by-customer", [f"{JOBS}:orders", "--set", f"out={folder / 'orders'}", "--restart", "none"]),
    )
    for name, options in submissions:
        command = [sys.executable, "-m", "penstock.cli", "submit", *options, "--name", name, "--server", url]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _take(browser: Browser, url: str, scheme: str, out: Path) -> None:
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, color_scheme=scheme, device_scale_factor=1.5, reduced_motion="reduce"
    )
    page = context.new_page()
    for name, (where, wanted) in PAGES.items():
        _open(page, f"{url}/{where}", wanted)
        page.screenshot(path=out / f"dashboard-{name}-{scheme}.png")
        print(out / f"dashboard-{name}-{scheme}.png")
    context.close()


def _open(page: Page, address: str, wanted: str) -> None:
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector(wanted, timeout=30_000)
    page.wait_for_timeout(2_500)  # samples and charts


if __name__ == "__main__":
    sys.exit(main())
