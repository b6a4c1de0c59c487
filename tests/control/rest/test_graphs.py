"""Who asks, the plan before a submission, the nodes of a job, and small charts of all jobs."""

from __future__ import annotations

import httpx

from penstock.control.api.version import VERSION
from penstock.control.rest.app import create_app
from penstock.control.security.roles import Role
from tests.control.rest.memory_manager import MemoryManager
from tests.control.rest.serving import serving


class OneToken:
    """Access with a single token."""

    name, role = "ada", Role.VIEWER

    def required(self) -> bool:
        return True

    def authenticate(self, token: str, /) -> OneToken | None:
        return self if token == "right" else None


def test_a_session_without_tokens_is_the_local_admin(api: httpx.Client) -> None:
    found = api.get("/session").json()
    assert found == {"name": "local", "role": "admin", "token_required": False, "version": VERSION}


def test_a_session_needs_the_right_token_where_one_is_required() -> None:
    with serving(create_app(MemoryManager(), OneToken())) as url, httpx.Client(trust_env=False) as client:
        path = f"{url}/api/v1/session"
        assert client.get(path).status_code == 401
        wrong = client.get(path, headers={"Authorization": "Bearer wrong"})
        assert (wrong.status_code, wrong.headers["content-type"]) == (401, "application/problem+json")
        right = client.get(path, headers={"Authorization": "Bearer right"}).json()
        assert right == {"name": "ada", "role": "viewer", "token_required": True, "version": VERSION}
        plan = client.post(
            f"{url}/api/v1/plans", files={"file": ("a.py", "")}, headers={"Authorization": "Bearer right"}
        )
        assert plan.status_code == 403


def test_nodes_have_counts_under_the_word_in_and_no_secret(manager: MemoryManager, api: httpx.Client) -> None:
    manager.add("vwap")
    answer = api.get("/jobs/vwap/nodes")
    counts = answer.json()["items"][1]["counts"]
    assert (counts.pop("in"), sum(counts.values()), counts["filtered"]) == (5, 5, 2)
    assert "topsecret" not in answer.text
    assert api.get("/jobs/other/nodes").status_code == 404


def test_sparklines_are_of_all_jobs(api: httpx.Client) -> None:
    assert api.get("/sparklines").json() == {
        "name": "rows_per_second",
        "items": [{"job": "job0001", "points": [[1.0, 2.0]]}],
    }
    assert api.get("/sparklines", params={"minutes": 0}).status_code == 422


def test_rows_of_a_job_are_shown_and_rejected_ones_sent_back(manager: MemoryManager, api: httpx.Client) -> None:
    manager.add("vwap")
    assert api.get("/jobs/vwap/nodes/sink prices/sample").json()["rows"] == [{"n": 1}]
    assert api.get("/jobs/vwap/diverted", params={"kind": "late"}).json()["kind"] == "late"
    assert api.get("/jobs/vwap/diverted", params={"kind": "lost"}).status_code == 422
    assert api.post("/jobs/vwap/replay", json={"kind": "rejected", "limit": 2}).json()["replayed"] == 2


def test_the_source_of_a_version_is_for_operators_only() -> None:
    manager = MemoryManager()
    manager.add("vwap")
    with serving(create_app(manager, OneToken())) as url, httpx.Client(trust_env=False) as client:
        client.headers["Authorization"] = "Bearer right"
        assert client.get(f"{url}/api/v1/jobs/vwap/versions/1/source").status_code == 403
        assert client.get(f"{url}/api/v1/jobs/vwap/versions/1/difference?to=2").json()["state"] == "kept"
        assert client.post(f"{url}/api/v1/jobs/vwap/replay", json={}).status_code == 403
