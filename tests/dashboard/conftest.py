"""A browser for the tests of the dashboard. Where there is none, they are skipped, with what to run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from penstock.dashboard.app import INDEX, STATIC
from tests.dashboard.browsing import Tab, new_tab
from tests.dashboard.servers import Up

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


# Not for the whole run: while Playwright has its loop, no other test in this process can have one.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium without a window."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no Chromium here: make browser")
    if not (STATIC / INDEX).exists():
        pytest.skip("the dashboard is not built: make dashboard")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def tab(browser: Browser, up: Up) -> Iterator[Tab]:
    """Return a tab on the server of the module, as an admin; a complaint of its console fails the test."""
    opened = new_tab(browser, up.url, token=up.token)
    yield opened
    opened.page.context.close()
    assert opened.complaints == []


@pytest.fixture
def tab_of(browser: Browser, up: Up) -> Iterator[Callable[[str | None], Tab]]:
    """Open tabs with other tokens, or with none."""
    opened: list[Tab] = []

    def open_one(token: str | None) -> Tab:
        opened.append(new_tab(browser, up.url, token=token))
        return opened[-1]

    yield open_one
    for each in opened:
        each.page.context.close()
