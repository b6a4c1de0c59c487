"""Pages of the dashboard in a browser."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page

from tests.waiting import becomes

ROOT = Path(__file__).parents[2]
AXE = ROOT / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
WIDE, NARROW = 1280, 400
HEIGHT = 860
# Faults that stop someone from using a page; lesser ones are advice.
SERIOUS = ("serious", "critical")
# What a browser says by itself of a response that the page expects.
_EXPECTED = "Failed to load resource"
_FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
_BEYOND = """[...document.querySelectorAll('main *')]
  .filter((each) => each.getBoundingClientRect().right > document.documentElement.clientWidth)
  .map((each) => each.outerHTML.slice(0, 120))"""
# What is drawn to the width of the window follows it in the next frames.
_FRAMES_SECONDS = 2.0


@dataclass
class Tab:
    """A page in a browser, with what its console and its scripts complained of."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and _EXPECTED not in message.text:
            self.complaints.append(message.text)

    def open(self, address: str) -> None:
        """Go to a page by what follows `#` in its address."""
        self.page.goto(f"{self.url}/#{address}")

    def text(self, text: str) -> Locator:
        """Return the first element with a text."""
        return self.page.get_by_text(text).first

    def button(self, name: str) -> Locator:
        """Return the button with exactly this name."""
        return self.page.get_by_role("button", name=name, exact=True)

    def figure(self, label: str) -> Locator:
        """Return the value of the figure with a label."""
        return self.page.locator(".figure", has=self.page.locator(f".label:text-is('{label}')")).locator(".value")

    @property
    def dialog(self) -> Locator:
        """The dialog that is open."""
        return self.page.get_by_role("dialog")

    def overflow(self, width: int) -> list[str]:
        """Return what is beyond the right edge of the window, if the page can be scrolled to it."""
        self.page.set_viewport_size({"width": width, "height": HEIGHT})
        # Playwright's own waiting evaluates a text in the page, which the page's policy forbids.
        if becomes(lambda: self.page.evaluate(_FITS), seconds=_FRAMES_SECONDS):
            return []
        found: list[str] = self.page.evaluate(_BEYOND)
        return found

    def faults(self) -> list[str]:
        """Return the serious faults that axe-core finds on the page."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text())
        found: list[dict[str, Any]] = self.page.evaluate("axe.run().then((result) => result.violations)")
        return [
            f"{fault['id']}: {fault['help']}: {json.dumps([node['html'][:160] for node in fault['nodes'][:3]])}"
            for fault in found
            if fault["impact"] in SERIOUS
        ]


def new_context(browser: Browser) -> BrowserContext:
    """Return a private window for some tabs, which share what it has cached."""
    context = browser.new_context(viewport={"width": WIDE, "height": HEIGHT})
    context.set_default_timeout(30_000)
    return context


def new_tab(context: BrowserContext, url: str, token: str | None = None) -> Tab:
    """Open a tab; with a token, already logged in."""
    page = context.new_page()
    if token:
        page.add_init_script(f"sessionStorage.setItem('penstock.token', {json.dumps(token)})")
    return Tab(page, url)
