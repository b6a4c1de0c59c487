"""A browser for the tests of the dashboard. Where there is none, they are skipped, with what to run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from penstock.dashboard.app import INDEX, STATIC
from tests.dashboard.browsing import Tab, new_context, new_tab
from tests.dashboard.servers import Up

# On a machine that is busy with other tests.
expect.set_options(timeout=30_000)
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


@pytest.fixture(scope="module")
def window(browser: Browser) -> BrowserContext:
    """Return the private window of a module's tabs."""
    return new_context(browser)


@pytest.fixture
def tab(window: BrowserContext, up: Up) -> Iterator[Tab]:
    """Return a tab on the server of the module, as an admin; a complaint of its console fails the test."""
    opened = new_tab(window, up.url, up.token)
    yield opened
    opened.page.close()
    assert opened.complaints == []


@pytest.fixture
def tab_of(window: BrowserContext, up: Up) -> Iterator[Callable[[str | None], Tab]]:
    """Open tabs with other tokens, or with none."""
    opened: list[Tab] = []

    def open_one(token: str | None) -> Tab:
        opened.append(new_tab(window, up.url, token))
        return opened[-1]

    yield open_one
    for each in opened:
        each.page.close()
