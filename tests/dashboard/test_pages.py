"""Every page of the dashboard over a real job on Spark: it opens, fits, is accessible, and its figures are right."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.dashboard.browsing import AXE, NARROW, WIDE, Tab, new_tab
from tests.dashboard.servers import Up
from tests.waiting import wait_for

PRICES = """
import penstock as ps

def prices() -> ps.Pipeline:
    trades = ps.read_topic("trades", schema="symbol string not null, price double, size bigint, ts timestamp")
    sums = (
        trades.filter("size > 0")
        .event_time("ts", max_delay="5s")
        .key_by("symbol")
        .window(ps.tumbling("10s"), late_to=ps.topic("late"))
        .aggregate(price="avg(price)", trades="count(*)")
    )
    return ps.Pipeline("prices", sums.to(ps.topic("prices", key="symbol")), rejected_to=ps.topic("bad"))
"""
BEGINNING = datetime(2026, 11, 17, 12, tzinfo=UTC)
FIRST_ROWS, MORE_ROWS = 12, 5
# What these show is there before the job runs: they are visited while it starts.
BEFORE = {
    "topics": "/topics",
    "messages": "/topics/trades",
    "partitions": "/topics/trades/partitions",
    "submit": "/submit",
    "sql": "/sql",
}
OF_JOB = {
    "overview": "/",
    "graph": "/jobs/prices",
    "charts": "/jobs/prices/charts",
    "epochs": "/jobs/prices/epochs",
    "checkpoints": "/jobs/prices/checkpoints",
    "versions": "/jobs/prices/versions",
    "exceptions": "/jobs/prices/exceptions",
    "logs": "/jobs/prices/logs",
    "configuration": "/jobs/prices/configuration",
    "groups": "/groups",
    "state": "/state/prices",
    "rejected": "/state/prices/rejected",
}
PAGES = BEFORE | OF_JOB


@dataclass
class Visit:
    """What was seen of a page."""

    complaints: list[str]
    overflow: dict[int, list[str]]
    faults: list[str]


def produce(up: Up, rows: int, first: int = 0) -> None:
    for number in range(first, first + rows):
        at = (BEGINNING + timedelta(seconds=number)).isoformat()
        trade = {"symbol": ("AAPL", "MSFT")[number % 2], "price": 100 + number, "size": 1, "ts": at}
        up.produce("trades", key=trade["symbol"], value=json.dumps(trade))


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    server = Up(tmp_path_factory.mktemp("pages"), scripted=False)
    try:
        server.start()
        for topic in ("trades", "prices", "late", "bad"):
            server.call("POST", "/topics", json={"name": topic})
        produce(server, FIRST_ROWS)
        server.produce("trades", value="no trade")
        server.submit(PRICES, name="prices")
        yield server
    finally:
        server.end()


@pytest.fixture(scope="module")
def job(up: Up) -> str:
    """Return the name of the job once it has read what was there."""
    wait_for(lambda: read(up, "filter") == FIRST_ROWS, "the job has not read the trades", seconds=120)
    return "prices"


def read(up: Up, node: str) -> int:
    """Return how many rows a node was given."""
    found = next(each for each in up.get("/jobs/prices/nodes")["items"] if each["name"] == node)
    return int(found["counts"]["in"]) if found["counts"] else 0


@pytest.fixture(scope="module")
def visits(window: BrowserContext, up: Up, request: pytest.FixtureRequest) -> Callable[[str], Visit]:
    """Return what is seen of a page, every other one in dark colours."""

    @functools.cache
    def visited(name: str) -> Visit:
        if name in OF_JOB:
            request.getfixturevalue("job")
        tab = new_tab(window, up.url)
        dark = list(PAGES).index(name) % 2
        tab.page.emulate_media(color_scheme="dark" if dark else "light", reduced_motion="reduce")
        found = visit(tab, PAGES[name])
        tab.page.close()
        return found

    return visited


def visit(tab: Tab, address: str) -> Visit:
    tab.open(address)
    settled(tab)
    faults = tab.faults() if AXE.exists() else []
    overflow = {width: tab.overflow(width) for width in (NARROW, WIDE)}
    return Visit(tab.complaints, overflow, faults)


def settled(tab: Tab) -> None:
    """Wait until a page has what it shows."""
    expect(tab.page.get_by_role("heading", level=1)).to_be_visible()
    expect(tab.page.locator("[aria-busy=true]")).to_have_count(0)


@pytest.mark.parametrize("name", PAGES)
def test_page_opens_without_an_error(visits: Callable[[str], Visit], name: str) -> None:
    assert visits(name).complaints == []


@pytest.mark.parametrize("name", PAGES)
def test_page_fits_into_a_wide_and_a_narrow_window(visits: Callable[[str], Visit], name: str) -> None:
    assert visits(name).overflow == {WIDE: [], NARROW: []}


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: make dashboard")
@pytest.mark.parametrize("name", PAGES)
def test_page_has_no_serious_fault_of_accessibility(visits: Callable[[str], Visit], name: str) -> None:
    assert visits(name).faults == []


@pytest.mark.slow
def test_pages_leave_nothing_behind_when_others_are_opened(tab: Tab, job: str) -> None:
    for address in PAGES.values():
        tab.open(address)
        settled(tab)
    assert tab.complaints == []


def test_the_graph_has_the_nodes_of_the_plan(tab: Tab, up: Up, job: str) -> None:
    tab.open(f"/jobs/{job}")
    nodes = tab.page.locator("[data-node]")
    planned = [node["name"] for node in up.get(f"/jobs/{job}/plan")["plan"]["nodes"]]
    expect(nodes).to_have_count(len(planned))
    assert sorted(nodes.evaluate_all("found => found.map((node) => node.dataset.node)")) == sorted(planned)


def test_figures_move_and_are_those_of_the_api(tab: Tab, up: Up, job: str) -> None:
    tab.open(f"/jobs/{job}")
    node = tab.page.locator("[data-node=filter]")
    expect(node).to_have_attribute("aria-label", re.compile(rf"\b{FIRST_ROWS} rows"))
    produce(up, MORE_ROWS, FIRST_ROWS)
    expect(node).to_have_attribute("aria-label", re.compile(rf"\b{FIRST_ROWS + MORE_ROWS} rows"))
    wait_for(lambda: read(up, "filter") == FIRST_ROWS + MORE_ROWS, "the API has other figures than the page")
    epoch = tab.figure("Epoch")
    wait_for(lambda: epoch.inner_text() == f"{up.get(f'/jobs/{job}')['epoch']:,}", "the page has another epoch")


def test_the_state_of_a_key_is_found(tab: Tab, job: str) -> None:
    tab.open(f"/state/{job}?key=AAPL")
    rows = tab.page.get_by_role("region", name="State of aggregate")
    expect(rows).to_contain_text("AAPL")
    expect(rows).not_to_contain_text("MSFT")


def test_a_rejected_row_is_shown_with_its_reason_and_its_bytes(tab: Tab, job: str) -> None:
    tab.open(f"/state/{job}/rejected")
    tab.page.locator("li .line", has_text="no trade").click()
    expect(tab.page.locator(".detail")).to_contain_text("6e 6f 20 74 72 61 64 65")
    expect(tab.button("Replay")).to_be_visible()
