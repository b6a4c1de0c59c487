"""What an operator does with jobs in the dashboard, what a viewer cannot, and what is seen without a connection.

The job manager and its drivers are real; what the drivers run is scripted, so that a job starts in a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.dashboard.browsing import Tab
from tests.dashboard.servers import Up
from tests.waiting import wait_for

NUMBERS = """
import penstock as ps

def numbers(behaviour: str = "run", least: int = 0) -> ps.Pipeline:
    rows = ps.from_items([{"n": 1}], "n bigint")
    return ps.Pipeline("numbers", rows.filter(f"n > {least}").to(ps.console()))
"""
UPDATED = NUMBERS.replace("n > {least}", "n >= {least}")
MARKUP = "<b>bold<b><img src=x onerror=alert(1)>"
MISSPELLED = NUMBERS.replace('filter(f"n > {least}")', 'filter("m > 0")')


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    server = Up(tmp_path_factory.mktemp("actions"), scripted=True)
    try:
        server.start()
        server.token = server.create_token("ada", "admin")
        yield server
    finally:
        server.end()


@pytest.fixture(scope="module")
def job(up: Up) -> str:
    """Return the id of a job that runs, or ran."""
    return up.submit(NUMBERS, name="numbers")


@pytest.fixture
def on_job(tab: Tab, up: Up, job: str) -> Tab:
    """Return a tab with the page of a job that runs."""
    if up.state(job) in ("STOPPED", "CANCELED"):
        up.call("POST", f"/jobs/{job}/restart")
    wait_for(lambda: up.state(job) == "RUNNING", "the job does not run")
    tab.open(f"/jobs/{job}")
    expect(tab.page.get_by_role("heading", level=1)).to_contain_text("numbers")
    expect(tab.page.get_by_role("heading", level=1)).to_contain_text("Running")
    return tab


def act(tab: Tab, action: str, confirm: str) -> None:
    """Open the dialog of an action and confirm it."""
    tab.button(action).click()
    tab.dialog.get_by_role("button", name=confirm).click()
    expect(tab.dialog).to_have_count(0)


def test_stop_creates_a_savepoint_with_its_name(on_job: Tab, up: Up, job: str) -> None:
    on_job.button("Stop").click()
    on_job.dialog.get_by_label("Name of the savepoint").fill("friday")
    on_job.dialog.get_by_role("button", name="Stop the job").click()
    expect(on_job.page.get_by_role("heading", level=1)).to_contain_text("Stopped")
    wait_for(lambda: "friday" in savepoints(up, job), "there is no savepoint")


def savepoints(up: Up, job: str) -> list[str]:
    return [each["name"] for each in up.get(f"/jobs/{job}/savepoints")["items"]]


def test_cancel_is_confirmed_first(on_job: Tab, up: Up, job: str) -> None:
    on_job.button("Cancel").click()
    on_job.button("Keep as it is").click()
    assert up.state(job) == "RUNNING"
    act(on_job, "Cancel", "Cancel the job")
    expect(on_job.page.get_by_role("heading", level=1)).to_contain_text("Canceled")
    assert up.state(job) == "CANCELED"


@pytest.mark.slow
def test_restart_starts_the_job_again(on_job: Tab, up: Up, job: str) -> None:
    before = up.get(f"/jobs/{job}")["started_at"]
    act(on_job, "Restart", "Restart the job")
    wait_for(lambda: up.get(f"/jobs/{job}")["started_at"] != before, "it was not started again")
    expect(on_job.page.get_by_role("heading", level=1)).to_contain_text("Running")


@pytest.mark.slow
def test_rescale_changes_the_parallelism(on_job: Tab, up: Up, job: str) -> None:
    on_job.button("Rescale").click()
    on_job.dialog.get_by_label("Parallelism").fill("3")
    on_job.dialog.get_by_role("button", name="Rescale the job").click()
    wait_for(lambda: up.get(f"/jobs/{job}")["parallelism"] == 3, "it was not rescaled")


@pytest.mark.slow
def test_update_runs_a_new_version(on_job: Tab, up: Up, job: str, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(UPDATED)
    on_job.button("Update").click()
    on_job.dialog.locator("input[type=file]").set_input_files(tmp_path / "job.py")
    on_job.dialog.get_by_role("button", name="Update the job").click()
    wait_for(lambda: up.get(f"/jobs/{job}")["running_version"] == 2, "the new version does not run")
    expect(on_job.text("version 2")).to_be_visible()


def test_a_file_is_checked_submitted_and_watched(tab: Tab, up: Up, tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(NUMBERS)
    tab.open("/submit")
    tab.page.locator("input[type=file]").set_input_files(tmp_path / "counting.py")
    expect(tab.page.locator("[data-node]")).to_have_count(3)
    tab.page.get_by_label("Name of the job").fill("counting")
    tab.button("Start the job").click()
    expect(tab.text("First epoch:")).to_be_visible()
    assert up.state("counting") == "RUNNING"
    up.call("POST", "/jobs/counting/cancel")


@pytest.mark.slow
def test_a_folder_is_zipped_in_the_browser(tab: Tab, tmp_path: Path) -> None:
    folder = tmp_path / "prices"
    (folder / ".venv").mkdir(parents=True)
    (folder / "main.py").write_text(NUMBERS.replace("import", "from least import LEAST\nimport", 1))
    (folder / "least.py").write_text("LEAST = 0\n")
    (folder / ".venv" / "large.py").write_text("no = code")
    tab.open("/submit")
    tab.button("Folder").click()
    tab.page.locator("input[type=file]").set_input_files(folder)
    expect(tab.page.locator("[data-node]")).to_have_count(3)
    expect(tab.text("large.py")).to_have_count(0)


def test_a_mistake_is_shown_before_anything_starts(tab: Tab, up: Up, tmp_path: Path) -> None:
    (tmp_path / "misspelled.py").write_text(MISSPELLED)
    before = len(up.get("/jobs")["items"])
    tab.open("/submit")
    tab.page.locator("input[type=file]").set_input_files(tmp_path / "misspelled.py")
    expect(tab.page.get_by_role("alert")).to_contain_text("unknown column 'm'")
    assert len(up.get("/jobs")["items"]) == before


def test_markup_in_a_name_and_an_error_is_text(tab: Tab, up: Up, tmp_path: Path) -> None:
    job = up.submit(NUMBERS, name=MARKUP, arguments='{"behaviour": "mistake"}')
    wait_for(lambda: up.state(job) == "FAILED", "it did not fail")
    for address in ("/", f"/jobs/{job}", f"/state/{job}", "/sql"):
        tab.open(address)
        expect(tab.page.locator(":is(a, h1, option)", has_text=MARKUP).first).to_be_attached()
        assert tab.page.locator("main b:text-is('bold'), main img").count() == 0
    (tmp_path / "wrong.py").write_text(NUMBERS.replace('f"n > {least}"', repr(MARKUP)))
    tab.open("/submit")
    tab.page.locator("input[type=file]").set_input_files(tmp_path / "wrong.py")
    expect(tab.page.get_by_role("alert")).to_contain_text("<b>bold")
    assert tab.page.locator("main b:text-is('bold'), main img").count() == 0


def test_a_viewer_sees_no_action_and_cannot_act(tab_of: Callable[[str | None], Tab], up: Up, job: str) -> None:
    token = up.create_token("eve", "viewer")
    tab = tab_of(token)
    for address in (f"/jobs/{job}", "/topics", "/"):
        tab.open(address)
        expect(tab.page.get_by_role("heading", level=1)).to_be_visible()
        expect(tab.text("viewer")).to_be_visible()
        for name in ("Stop", "Cancel", "Restart", "Rescale", "Update", "Create a topic"):
            expect(tab.button(name)).to_have_count(0)
        expect(tab.page.get_by_role("link", name="Submit")).to_have_count(0)
    for path in ("stop", "cancel", "restart", "rescale", "savepoints"):
        assert up.call("POST", f"/jobs/{job}/{path}", token, json={}).status_code == 403
    assert up.call("POST", "/jobs", token, files={"file": ("job.py", NUMBERS)}).status_code == 403
    assert up.call("POST", "/topics", token, json={"name": "mine"}).status_code == 403


def test_a_wrong_token_is_refused(tab_of: Callable[[str | None], Tab], up: Up) -> None:
    tab = tab_of(None)
    tab.open("/")
    tab.page.get_by_label("Token").fill("pst_wrong")
    tab.button("Log in").click()
    expect(tab.page.get_by_role("alert")).to_contain_text("the token is not known")
    assert up.token is not None
    tab.page.get_by_label("Token").fill(up.token)
    tab.button("Log in").click()
    expect(tab.page.get_by_role("heading", name="Overview")).to_be_visible()


@pytest.mark.slow
def test_a_lost_connection_is_shown_and_comes_back(tab_of: Callable[[str | None], Tab], up: Up, job: str) -> None:
    if up.state(job) != "RUNNING":
        up.call("POST", f"/jobs/{job}/restart")
        wait_for(lambda: up.state(job) == "RUNNING", "the job does not run")
    tab = tab_of(up.token)
    tab.open(f"/jobs/{job}")
    epoch = tab.figure("Epoch")
    expect(epoch).not_to_have_text("–")
    up.stop()
    expect(tab.page.get_by_role("alert")).to_contain_text("Connection lost")
    last = epoch.inner_text()
    up.start()
    expect(tab.text("Connection lost")).to_have_count(0)
    expect(epoch).not_to_have_text(last)
