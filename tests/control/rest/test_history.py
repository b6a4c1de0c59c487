"""What a job has done, over HTTP."""

from __future__ import annotations

import httpx
import pytest

from tests.control.rest.memory_manager import MemoryManager


@pytest.mark.parametrize("noun", ["epochs", "checkpoints", "savepoints", "exceptions", "transitions", "versions"])
def test_histories_are_pages(api: httpx.Client, manager: MemoryManager, noun: str) -> None:
    manager.add("vwap")
    page = api.get(f"/jobs/vwap/{noun}").json()
    assert {*page} == {"items", "next"}
    assert page["items"]


def test_epochs_are_paged(api: httpx.Client, manager: MemoryManager) -> None:
    manager.add("vwap")
    page = api.get("/jobs/vwap/epochs", params={"limit": 6}).json()
    rest = api.get("/jobs/vwap/epochs", params={"limit": 6, "cursor": page["next"]}).json()
    assert [epoch["number"] for epoch in page["items"] + rest["items"]] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert rest["next"] is None


def test_a_transition_has_from_and_to(api: httpx.Client, manager: MemoryManager) -> None:
    manager.add("vwap")
    (found,) = api.get("/jobs/vwap/transitions").json()["items"]
    assert (found["from"], found["to"], found["cause"]) == ("CREATED", "STARTING", "submitted")


def test_metrics_are_chosen_by_name_and_resolution(api: httpx.Client, manager: MemoryManager) -> None:
    manager.add("vwap")
    params = {"name": ["lag", "restarts_total"], "resolution": 60, "start": "2026-11-17T09:00:00Z"}
    found = api.get("/jobs/vwap/metrics", params=params).json()["items"]
    assert [(series["metric"], series["resolution"]) for series in found] == [("lag", 60), ("restarts_total", 60)]
    assert api.get("/jobs/vwap/metrics", params={"resolution": 7}).status_code == 422


def test_a_key_is_looked_up_in_the_state(api: httpx.Client, manager: MemoryManager) -> None:
    manager.add("vwap")
    assert api.get("/jobs/vwap/state", params={"key": "AAPL"}).json()["rows"] == [{"symbol": "AAPL"}]


def test_the_tail_of_a_log_is_text(api: httpx.Client, manager: MemoryManager) -> None:
    manager.add("vwap")
    response = api.get("/jobs/vwap/logs", params={"tail": 2})
    assert response.text == "second\nthird\n"
    assert response.headers["content-type"].startswith("text/plain")


def test_a_log_is_followed_line_by_line(api: httpx.Client, manager: MemoryManager) -> None:
    manager.add("vwap")
    with api.stream("GET", "/jobs/vwap/logs", params={"tail": 1, "follow": True}) as response:
        assert list(response.iter_lines()) == ["third", "password=***"]


@pytest.mark.parametrize("follow", [False, True])
def test_a_private_key_over_several_lines_of_a_log_is_masked(
    api: httpx.Client, manager: MemoryManager, follow: bool
) -> None:
    manager.add("vwap")
    manager.lines = ["-----BEGIN PRIVATE KEY-----", "MC4CAQAwBQYDK2VwBCIE", "-----END PRIVATE KEY-----", "done"]
    with api.stream("GET", "/jobs/vwap/logs", params={"tail": 9, "follow": follow}) as response:
        shown = list(response.iter_lines())[:4]
    assert shown == ["-----BEGIN PRIVATE KEY-----***", "***", "***-----END PRIVATE KEY-----", "done"]


def test_a_plan_is_that_of_a_version(api: httpx.Client, manager: MemoryManager) -> None:
    manager.add("vwap")
    assert api.get("/jobs/vwap/plan", params={"version": 3}).json()["version"] == 3
    assert api.get("/jobs/vwap/plan", params={"version": 0}).status_code == 422
