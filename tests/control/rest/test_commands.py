"""Commands: stored, answered with 202, and followed by their id."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.control.rest.memory_manager import MemoryManager


@pytest.mark.parametrize(
    ("path", "body", "kind", "arguments"),
    [
        ("stop", None, "stop", {}),
        ("stop", {"savepoint": False}, "stop", {}),
        ("stop", {"savepoint": True}, "stop", {"savepoint": True}),
        ("stop", {"savepoint": "before-1.2"}, "stop", {"savepoint": "before-1.2"}),
        ("cancel", None, "cancel", {}),
        ("restart", None, "restart", {}),
        ("rescale", {"parallelism": 4}, "rescale", {"parallelism": 4}),
        ("savepoints", None, "savepoint", {}),
        ("savepoints", {"name": "friday"}, "savepoint", {"name": "friday"}),
    ],
)
def test_a_command_is_accepted_and_can_be_followed(
    api: httpx.Client, manager: MemoryManager, path: str, body: Any, kind: str, arguments: dict[str, Any]
) -> None:
    manager.add("vwap")
    response = api.post(f"/jobs/vwap/{path}", json=body) if body is not None else api.post(f"/jobs/vwap/{path}")
    assert response.status_code == 202
    command = response.json()
    assert (command["kind"], command["arguments"], command["state"]) == (kind, arguments, "open")
    assert command["requested_by"] == "local"
    assert response.headers["location"] == f"/api/v1/commands/{command['id']}"
    assert api.get(f"/commands/{command['id']}").json() == command
    assert api.get("/jobs/vwap/commands").json()["items"] == [command]


def test_an_update_uploads_a_new_version(api: httpx.Client, manager: MemoryManager) -> None:
    job = manager.add("vwap")
    fields = {"arguments": '{"window": "10s"}', "allow_drop": "true"}
    response = api.post("/jobs/vwap/update", files={"file": ("vwap.py", b"x = 2\n")}, data=fields)
    assert (response.status_code, response.json()["kind"]) == (202, "update")
    assert manager.sources[job.id].content == b"x = 2\n"
    (update,) = manager.updates
    assert (update.settings, update.arguments, update.allow_drop) == (None, {"window": "10s"}, True)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("stop", {"savepoint": "../escape"}),
        ("stop", {"savepiont": True}),
        ("savepoints", {"name": "a/b"}),
        ("rescale", {"parallelism": 0}),
        ("rescale", {}),
        ("rescale", [1]),
    ],
)
def test_a_command_with_a_wrong_body_is_refused(
    api: httpx.Client, manager: MemoryManager, path: str, body: Any
) -> None:
    manager.add("vwap")
    response = api.post(f"/jobs/vwap/{path}", json=body)
    assert (response.status_code, manager.asked) == (422, [])


def test_a_body_that_is_not_json_is_refused(api: httpx.Client, manager: MemoryManager) -> None:
    manager.add("vwap")
    headers = {"content-type": "application/json"}
    assert api.post("/jobs/vwap/rescale", content=b"{", headers=headers).status_code == 422
    assert api.post("/jobs/vwap/rescale", content=b"\xff\xfe", headers=headers).status_code in (400, 422)
    assert manager.asked == []
