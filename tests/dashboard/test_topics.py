"""Topics, consumer groups and the SQL console in a browser, over the log of `penstock up`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Dialog, expect

from tests.dashboard.browsing import Tab
from tests.dashboard.servers import ROOT, Up
from tests.waiting import wait_for

MARKUP = "<b>bold</b><img src=x onerror=alert(1)>"
TRADES = [{"symbol": "AAPL", "price": 90.5 + at, "size": at} for at in range(20)]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    server = Up(tmp_path_factory.mktemp("topics"), scripted=True)
    try:
        server.start()
        server.call("POST", "/topics", json={"name": "trades", "partitions": 2})
        for trade in TRADES:
            server.produce("trades", key="AAPL", value=json.dumps(trade), headers={"from": "test"}, partition=0)
        server.produce("trades", key=MARKUP, value=json.dumps({"symbol": MARKUP, "price": 1.0}), partition=1)
        yield server
    finally:
        server.end()


def lines(tab: Tab) -> int:
    return tab.page.locator("tr.line").count()


def test_a_topic_is_created_and_deleted(tab: Tab, up: Up) -> None:
    tab.open("/topics")
    tab.button("Create a topic").click()
    tab.dialog.get_by_label("Name").fill("orders")
    tab.dialog.get_by_label("Partitions").fill("3")
    tab.button("Create").click()
    expect(tab.page.get_by_role("heading", level=1)).to_contain_text("orders")
    assert len(up.get("/topics/orders")["partitions"]) == 3
    tab.button("Delete").click()
    expect(tab.button("Delete for ever")).to_be_disabled()
    tab.page.get_by_label("Type its name to confirm").fill("orders")
    tab.button("Delete for ever").click()
    expect(tab.page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
    assert up.call("GET", "/topics/orders").status_code == 404


def test_messages_are_found_by_sql_key_text_and_offset(tab: Tab) -> None:
    tab.open("/topics/trades")
    expect(tab.page.locator("tr.line")).to_have_count(len(TRADES) + 1)
    for kind, text, expected in (("sql", "price > 105", 5), ("key", "AAPL", 20), ("text", '"size": 7', 1)):
        tab.page.get_by_label("Filter by").select_option(kind)
        tab.page.get_by_label("Filter", exact=True).fill(text)
        tab.button("Read").click()
        expect(tab.page.locator("tr.line")).to_have_count(expected)
    tab.open("/topics/trades?from=offset&at=17&partition=0")
    tab.page.reload()
    expect(tab.page.locator("tr.line")).to_have_count(3)


def test_a_message_is_shown_decoded_with_its_headers(tab: Tab) -> None:
    tab.open("/topics/trades?partition=0")
    tab.page.get_by_role("button", name="Message 3 of partition 0").click()
    expect(tab.page.locator(".detail pre")).to_contain_text('"price": 93.5')
    expect(tab.page.get_by_role("table", name="Headers")).to_contain_text("from")
    tab.button("Bytes").click()
    expect(tab.page.locator(".detail pre")).to_contain_text("000000  7b 22 73")


def test_a_produced_message_is_seen_live(tab: Tab, up: Up) -> None:
    tab.open("/topics/trades")
    expect(tab.page.locator("tr.line").first).to_be_visible()
    with tab.page.expect_response(lambda response: response.url.endswith("/messages/stream")):
        tab.button("Live").click()
    tab.button("Produce a message").click()
    tab.dialog.get_by_role("textbox", name="Key").fill("MSFT")
    tab.dialog.get_by_label("Value", exact=True).fill('{"symbol": "MSFT", "price": 7}')
    tab.button("Produce").click()
    expect(tab.page.locator("tr.line")).to_have_count(1)
    expect(tab.page.locator("tr.line")).to_contain_text("MSFT")
    found = up.call("GET", "/topics/trades/messages", params={"key": "MSFT"}).json()["items"]
    assert [each["json"]["price"] for each in found] == [7]


def test_markup_in_a_message_and_a_key_is_text(tab: Tab) -> None:
    said: list[str] = []

    def heard(dialog: Dialog) -> None:
        said.append(dialog.message)
        dialog.dismiss()

    tab.page.on("dialog", heard)
    tab.open("/topics/trades?partition=1")
    tab.page.locator("tr.line", has_text="<b>bold</b>").first.click()
    expect(tab.page.locator(".detail pre")).to_contain_text("<b>bold</b>")
    tab.open("/sql")
    tab.page.get_by_role("textbox", name="Query").fill("SELECT symbol FROM trades WHERE price = 1")
    tab.page.keyboard.press("Control+Enter")
    expect(tab.page.get_by_role("region", name="Rows of the result")).to_contain_text("<b>bold</b>")
    assert tab.page.locator("main b:text-is('bold'), main img").count() == 0
    assert said == []


def test_a_query_streams_its_rows_and_explains_itself(tab: Tab) -> None:
    tab.open("/sql")
    tab.page.get_by_role("textbox", name="Query").fill(
        "SELECT symbol, count(*) AS n FROM trades WHERE size >= 0 GROUP BY 1"
    )
    tab.page.keyboard.press("Control+Enter")
    expect(tab.page.get_by_role("region", name="Rows of the result")).to_contain_text("20")
    expect(tab.page.get_by_role("region", name="As a job")).to_contain_text("aggregate 'aggregate'")
    tab.page.get_by_role("textbox", name="Query").fill("SELECT pirce FROM trades")
    tab.button("Run Ctrl ↵").click()
    expect(tab.page.get_by_role("alert")).to_contain_text("did you mean 'price'?")
    tab.page.reload()
    expect(tab.page.get_by_label("Earlier queries").locator("option")).to_have_count(3)


@pytest.mark.slow
def test_a_group_without_members_is_reset(tab: Tab, up: Up) -> None:
    command = [sys.executable, "-m", "penstock.cli", "consume", "trades", "--group", "readers", "--max", "8"]
    subprocess.run([*command, "--broker", up.log], cwd=ROOT, check=True, capture_output=True)
    wait_for(lambda: up.get("/groups/readers")["members"] == [], "the reader has not left")
    tab.open("/groups")
    tab.page.get_by_role("link", name="readers").click()
    tab.button("Reset offsets").click()
    tab.dialog.get_by_role("button", name="End").click()
    tab.dialog.get_by_role("button", name="Reset offsets").click()
    expect(tab.text("Offsets of readers are set")).to_be_visible()
    assert up.get("/groups/readers")["lag"] == 0
