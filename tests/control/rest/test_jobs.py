"""Jobs over HTTP, from a client's side."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from penstock.control.machine.states import JobState
from tests.control.rest.memory_manager import MemoryManager

CODE = b"import penstock as ps\n"


def submit(
    api: httpx.Client, headers: dict[str, str] | None = None, content: bytes = CODE, **fields: Any
) -> httpx.Response:
    return api.post("/jobs", files={"file": ("vwap.py", content)}, data=fields, headers=headers)


def test_a_submission_returns_the_job_and_where_it_is(api: httpx.Client, manager: MemoryManager) -> None:
    options = {"name": "prices", "entry": "vwap", "until": "ended", "parallelism": 2, "pool": "small", "cores": 0.5}
    response = submit(api, settings='{"lane": "spark"}', arguments='{"window": "30s"}', **options)
    assert response.status_code == 201
    job = response.json()
    assert response.headers["location"] == f"/api/v1/jobs/{job['id']}"
    assert {name: job[name] for name in options} == options
    assert (job["state"], job["settings"], job["arguments"]) == ("CREATED", {"lane": "spark"}, {"window": "30s"})
    assert api.get(f"/jobs/{job['id']}").json() == job
    assert manager.sources[job["id"]].content == CODE


def test_a_job_has_the_fields_that_clients_were_promised(api: httpx.Client, manager: MemoryManager) -> None:
    manager.add("vwap")
    promised = {"id", "name", "state", "version", "restarts", "pid", "started_at", "ended_at", "error", "lag"}
    assert promised | {"rows_per_second", "checkpoint"} <= {*api.get("/jobs/vwap").json()}


def test_the_same_key_and_request_create_one_job(api: httpx.Client, manager: MemoryManager) -> None:
    key = {"Idempotency-Key": "abc-1"}
    first, again = submit(api, key, name="a"), submit(api, key, name="a")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert first.headers["location"] == again.headers["location"]
    assert len(manager.jobs) == 1


@pytest.mark.parametrize("changed", [{"name": "b"}, {"name": "a", "content": b"x = 1\n"}])
def test_the_same_key_with_another_request_is_refused(api: httpx.Client, changed: dict[str, Any]) -> None:
    key = {"Idempotency-Key": "abc-1"}
    submit(api, key, name="a")
    response = submit(api, key, **changed)
    assert response.status_code == 409
    assert response.json()["hint"] == "choose a new key"


def test_a_name_that_is_taken_is_refused(api: httpx.Client) -> None:
    submit(api, name="a")
    response = submit(api, name="a")
    assert (response.status_code, response.json()["title"]) == (409, "JobExists")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"settings": "{"}, "Invalid JSON"),
        ({"settings": "[1]"}, "dictionary"),
        ({"arguments": '{"a": NaN}'}, "NaN"),
        ({"arguments": json.dumps({"a": "\x00"})}, "NUL"),
        ({"until": "never"}, "stopped"),
        ({"parallelism": "0"}, "greater than or equal to 1"),
        ({"paralellism": "2"}, "did you mean 'parallelism'?"),
        ({"name": "a\x00b"}, "pattern"),
    ],
)
def test_a_field_that_is_wrong_is_named(api: httpx.Client, fields: dict[str, str], said: str) -> None:
    response = submit(api, **fields)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert said in response.json()["detail"]
    assert next(iter(fields)) in response.text


@pytest.mark.parametrize("filename", ["vwap.txt", ".py", "vwap.pickle", "a\x7f.py"])
def test_a_file_that_is_neither_python_nor_a_zip_is_refused(api: httpx.Client, filename: str) -> None:
    response = api.post("/jobs", files={"file": (filename, CODE)})
    assert (response.status_code, response.json()["title"]) == (422, "BadEntry")


@pytest.mark.parametrize("filename", ["../../etc/vwap.py", "C:\\jobs\\vwap.py"])
def test_the_name_of_a_file_has_no_folder_in_it(api: httpx.Client, manager: MemoryManager, filename: str) -> None:
    response = api.post("/jobs", files={"file": (filename, CODE)})
    assert response.status_code == 201
    assert manager.sources[response.json()["id"]].filename == "vwap.py"


@pytest.mark.parametrize("policy", ["none", "fixed_delay:delay=5s", '{"kind": "none"}'])
def test_a_restart_policy_is_json_or_text(api: httpx.Client, policy: str) -> None:
    expected = {"kind": "none"} if policy.startswith("{") else {"kind": policy}
    assert submit(api, restart_policy=policy).json()["restart_policy"] == expected


def test_a_submission_without_a_file_is_refused(api: httpx.Client) -> None:
    response = api.post("/jobs", data={"name": "a"})
    assert response.status_code == 422
    assert "body.file" in response.json()["detail"]


def test_jobs_are_listed_by_pages_the_newest_first(api: httpx.Client, manager: MemoryManager) -> None:
    names = [manager.add(f"job-{number}").name for number in range(7)]
    found: list[str] = []
    cursor = ""
    while cursor is not None:
        page = api.get("/jobs", params={"limit": 3, "cursor": cursor, "state": "", "name": ""}).json()
        found += [job["name"] for job in page["items"]]
        cursor = page["next"]
    assert found == names[::-1]


def test_jobs_are_filtered_by_state_and_name(api: httpx.Client, manager: MemoryManager) -> None:
    manager.add("prices", JobState.RUNNING), manager.add("orders", JobState.FAILED), manager.add("late-prices")

    def names(**params: Any) -> list[str]:
        return [job["name"] for job in api.get("/jobs", params=params).json()["items"]]

    assert names(state="FAILED") == names(state="failed") == ["orders"]
    assert names(name="prices") == ["late-prices", "prices"]
    assert len(names(state=["RUNNING", "FAILED"])) == 3


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "state=ASLEEP", "cursor=%00", "stat=RUNNING", "cursor=abc"])
def test_a_query_that_is_wrong_is_refused(api: httpx.Client, query: str) -> None:
    assert api.get(f"/jobs?{query}").status_code == 422


def test_an_unknown_job_comes_with_the_name_that_was_meant(api: httpx.Client, manager: MemoryManager) -> None:
    manager.add("vwap")
    for path in ("", "/plan", "/epochs", "/logs", "/metrics", "/state", "/logs?follow=true"):
        response = api.get(f"/jobs/vwpa{path}")
        assert response.status_code == 404
        assert "did you mean 'vwap'?" in response.json()["hint"]


def test_a_running_job_is_not_deleted(api: httpx.Client, manager: MemoryManager) -> None:
    manager.add("a"), manager.add("b", JobState.STOPPED)
    assert api.delete("/jobs/a").status_code == 409
    response = api.delete("/jobs/b")
    assert (response.status_code, response.json()["kind"]) == (202, "delete")


def test_no_response_has_a_secret_that_masking_knows(api: httpx.Client, manager: MemoryManager) -> None:
    secrets = {"connections": {"crm": "postgresql://ada:topsecret@a/shop"}, "spark": {"fs.s3a.secret.key": "topsecret"}}
    arguments = {"api_token": "topsecret", "login": "${secret:CRM}"}
    submit(api, name="a", settings=json.dumps(secrets), arguments=json.dumps(arguments))
    manager.fail(manager.add("b", checkpoint="s3://KEY:topsecret@lake/b"))
    manager.lines = ["connecting with sasl.password=topsecret"]
    paths = ["/jobs", "/jobs/a", "/jobs/b", "/cluster"]
    nouns = ("plan", "logs", "logs?follow=true", "checkpoints", "exceptions", "commands")
    for path in [*paths, *(f"/jobs/a/{noun}" for noun in nouns)]:
        response = api.get(path)
        assert response.status_code == 200
        assert "topsecret" not in response.text
    assert "${secret:CRM}" in api.get("/jobs/a").text
