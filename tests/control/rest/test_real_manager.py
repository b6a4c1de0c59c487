"""The API over the real job manager, with real driver processes that run scripted jobs instead of Spark."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from websockets.sync.client import connect

from penstock.control.rest.app import create_app
from penstock.control.rest.problems import SCHEMA_PATH
from penstock.control.security.tokens import Access
from penstock.control.store.repositories.versions import Version
from tests.control.rest.memory_broker import MemoryBroker
from tests.control.rest.serving import serving
from tests.control.rest.test_openapi import CHECKS, EXAMPLES, NAMES
from tests.control.supervisor.running_manager import RunningManager, end_drivers
from tests.promtool import complaints
from tests.waiting import wait_for

PIPELINE = """
import penstock as ps

def numbers(behaviour: str = "run") -> ps.Pipeline:
    return ps.Pipeline("numbers", ps.from_items([{"n": 1}], "n bigint").filter("n > 0").to(ps.console()))
"""
# They start processes that would load Spark, or change what the others ask for.
NOT_HERE = {"get_state", "create_token", "list_diverted", "replay_rows"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, RunningManager]]:
    data = tmp_path_factory.mktemp("data")
    manager = RunningManager(data)

    @asynccontextmanager
    async def leading(_: Any) -> AsyncIterator[None]:
        leader = asyncio.create_task(manager.leadership.run())
        yield
        leader.cancel()
        await asyncio.gather(leader, return_exceptions=True)

    app = create_app(manager.manager, Access(manager.store.tokens), MemoryBroker(), lifespan=leading)
    try:
        with serving(app) as url:
            yield url, manager
    finally:
        manager.store.close()
        manager._loop.close()  # it leads on the loop of the server instead
        end_drivers(data)


@pytest.fixture
def api(running: tuple[str, RunningManager]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{running[0]}/api/v1", timeout=60, trust_env=False) as client:
        yield client


def state_of(api: httpx.Client, job: str) -> str:
    return str(api.get(f"/jobs/{job}").json()["state"])


def submit(api: httpx.Client, code: str = PIPELINE, key: str | None = None, **fields: str) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return api.post("/jobs", files={"file": ("counting.py", code)}, data=fields, headers=headers)


@pytest.mark.slow
def test_a_job_is_submitted_watched_stopped_and_deleted(running: tuple[str, RunningManager], api: httpx.Client) -> None:
    url = running[0].replace("http", "ws")
    with connect(f"{url}/api/v1/events", proxy=None) as socket:
        response = submit(api, key="once", settings='{"connections": {"crm": "postgresql://ada:topsecret@a/b"}}')
        assert response.status_code == 201, response.text
        job = response.json()["id"]
        assert (response.json()["name"], response.json()["version"]) == ("numbers", 1)
        again = submit(api, key="once", settings='{"connections": {"crm": "postgresql://ada:topsecret@a/b"}}')
        assert (again.status_code, again.json()["id"]) == (200, job)
        assert submit(api, key="once").status_code == 409
        wait_for(lambda: state_of(api, job) == "RUNNING", "the job does not run")
        assert any(json.loads(socket.recv(20)).get("job") == job for _ in range(20))
    wait_for(lambda: api.get("/jobs/numbers/epochs").json()["items"], "there is no epoch")
    assert api.get(f"/jobs/{job}").json()["pid"]
    assert api.get("/jobs/numbers/plan").json()["plan"]
    with connect(f"{url}/api/v1/events?job={job}", proxy=None) as socket:
        epoch = next(event for event in map(json.loads, socket) if event["kind"] == "epoch")
        assert epoch["nodes"]["filter"]["in"] == epoch["nodes"]["filter"]["used"] >= 10
        wait_for(lambda: after(api, epoch["epoch"]), "the epoch is not stored")
        nodes = api.get("/jobs/numbers/nodes").json()
        assert [node["name"] for node in nodes["items"]] == ["items", "filter", "console"]
        assert nodes["items"][1]["counts"]["in"] >= epoch["nodes"]["filter"]["in"]
    stopped = api.post("/jobs/numbers/stop", json={"savepoint": "friday"})
    assert stopped.status_code == 202
    wait_for(lambda: state_of(api, job) == "STOPPED", "the job does not stop")
    wait_for(
        lambda: api.get(stopped.headers["location"].removeprefix("/api/v1")).json()["state"] != "open", "it is open"
    )
    assert api.get("/jobs/numbers/transitions").json()["items"][0]["to"] == "STOPPED"
    assert api.get("/jobs/numbers/nodes/filter/sample").json()["rows"] == [{"n": 1}]
    assert api.get("/jobs/numbers/nodes/filtre/sample").status_code == 404
    refused = api.get("/jobs/numbers/diverted")
    assert (refused.status_code, "no rejected_to" in refused.json()["detail"]) == (409, True)
    assert api.post("/jobs/numbers/replay", json={"kind": "late"}).status_code == 409
    assert api.get("/jobs/numbers/versions/1/source").text == PIPELINE
    assert api.get("/jobs/numbers/versions/1/difference").json()["changed"] == []
    for path in (
        f"/jobs/{job}",
        "/jobs",
        "/jobs/numbers/plan",
        "/cluster",
        "/jobs/numbers/logs",
        "/jobs/numbers/commands",
    ):
        found = api.get(path)
        assert (found.status_code, "topsecret" in found.text) == (200, False), path
    assert api.delete("/jobs/numbers").status_code == 202
    wait_for(lambda: api.get(f"/jobs/{job}").status_code == 404, "the job is still there")
    assert "delete_job" in [entry["action"] for entry in api.get("/audit").json()["items"]]


def test_promtool_finds_nothing_wrong_with_the_page_of_a_running_job(
    running: tuple[str, RunningManager], api: httpx.Client
) -> None:
    job = running[1].add("measured")
    wait_for(lambda: api.get(f"/jobs/{job}/epochs").json()["items"], "there is no epoch")
    page = httpx.get(f"{running[0]}/metrics").content
    assert f'penstock_records_processed_total{{job="{job}"'.encode() in page
    assert complaints(page) == ""
    api.post(f"/jobs/{job}/cancel")


def test_a_secret_of_the_store_reaches_the_driver_and_nobody_else(
    running: tuple[str, RunningManager], api: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert api.put("/secrets/CRM", json={"value": "topsecret"}).status_code == 200
    refused = api.put("/secrets/CRM", json={"value": "topsecret\0"})
    assert (refused.status_code, "topsecret" in refused.text) == (422, False)
    job = running[1].add("asking", settings={"connections": {"crm": "postgresql://ada:${secret:CRM}@a/b"}})
    with running[1].store.begin() as write:
        write.versions.add(Version(job=job, number=2, entry="job.py", digest="", settings=running[1].get(job).settings))
    wait_for(lambda: state_of(api, job) == "RUNNING", "the job does not run")
    running[1].store.commands.add(job, "update", {"version": 2})
    running[1].leadership.wake()
    wait_for(lambda: api.get(f"/jobs/{job}").json()["running_version"] == 2, "the job is not updated")
    pid = api.get(f"/jobs/{job}").json()["pid"]
    assert b"PENSTOCK_SECRET_CRM=topsecret" in Path(f"/proc/{pid}/environ").read_bytes()
    for path in ("/secrets", "/audit", f"/jobs/{job}", f"/jobs/{job}/logs"):
        assert "topsecret" not in api.get(path).text
    assert "topsecret" not in caplog.text
    runs = running[1].data.runs
    assert not [path for path in runs.rglob("*.*") if path.is_file() and b"topsecret" in path.read_bytes()]
    assert "set_secret" in [entry["action"] for entry in api.get("/audit").json()["items"]]
    assert api.delete("/secrets/CRM").status_code == 204
    assert api.delete("/secrets/CRM").status_code == 404
    api.post(f"/jobs/{job}/cancel")


def test_rows_of_a_job_are_read_with_the_secrets_of_the_store(api: httpx.Client) -> None:
    api.put("/secrets/DATABASE", json={"value": "topsecret"})
    settings = '{"connections": {"crm": "postgresql://ada:${secret:DATABASE}@a/b"}}'
    job = submit(api, name="with-secret", settings=settings).json()["id"]
    found = api.get(f"/jobs/{job}/nodes/filter/sample")
    assert found.json().get("rows") == [{"n": 1}], found.text
    api.post(f"/jobs/{job}/cancel")


def after(api: httpx.Client, epoch: int) -> bool:
    """Say whether the nodes of an epoch are stored."""
    found = api.get("/jobs/numbers/nodes").json()["epoch"]
    return found is not None and found >= epoch


def test_a_mistake_in_a_pipeline_is_the_error_that_explain_prints(api: httpx.Client) -> None:
    response = submit(api, PIPELINE.replace("n > 0", "m > 0"))
    problem = response.json()
    assert (response.status_code, problem["title"]) == (422, "UnknownColumn")
    assert "unknown column 'm'" in problem["detail"]
    assert "did you mean 'n'" in problem["hint"] or "columns here: n" in problem["hint"]
    assert api.get("/jobs?name=numbers").json()["items"] == []


def test_a_plan_is_shown_before_it_is_submitted_and_nothing_is_stored(
    running: tuple[str, RunningManager], api: httpx.Client
) -> None:
    versions = running[1].data.path / "versions"
    before = sorted(versions.iterdir())
    found = api.post("/plans", files={"file": ("counting.py", PIPELINE)}).json()
    assert [(node["name"], node["inputs"]) for node in found["nodes"]] == [
        ("items", []),
        ("filter", ["items"]),
        ("console", ["filter"]),
    ]
    assert (found["nodes"][1]["detail"], found["nodes"][1]["columns"]) == ("n > 0", {"n": "bigint"})
    assert found["warnings"] == ["sink 'console': at_least_once, " + found["plan"]["sinks"][0]["guarantee_reason"]]
    assert found["explain"].startswith("pipeline numbers")
    wrong = api.post("/plans", files={"file": ("counting.py", PIPELINE.replace("n > 0", "m > 0"))})
    assert (wrong.status_code, wrong.json()["title"]) == (422, "UnknownColumn")
    assert sorted(versions.iterdir()) == before


@pytest.fixture(scope="module")
def schema(running: tuple[str, RunningManager]) -> Any:
    running[1].add("vwap")
    config = schemathesis.Config.from_dict({"generation": {"with-security-parameters": False}})
    return schemathesis.openapi.from_url(running[0] + SCHEMA_PATH, config=config)


def with_pipeline(case: schemathesis.Case) -> schemathesis.Case:
    """Put a pipeline into an upload: any other file would only show that it is refused."""
    if isinstance(case.body, dict) and "file" in case.body:
        case.body = {**case.body, "file": PIPELINE.encode()}
    return case


# The manager runs in a thread of this process and draws random delays, which hypothesis takes for the strategy's.
@pytest.mark.filterwarnings("ignore:Do not use the .random. module inside strategies")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_HERE])
def test_no_answer_of_the_real_manager_is_a_500_or_undocumented(schema: Any, name: str) -> None:
    operation = schema.find_operation_by_id(name)
    known = {"path_parameters": {"job": "vwap"}} if "{job}" in operation.path else {}
    statuses: list[int] = []
    for mode, fixed in ((GenerationMode.POSITIVE, known), (GenerationMode.NEGATIVE, {})):
        cases = operation.as_strategy(generation_mode=mode, **fixed)

        @settings(
            max_examples=EXAMPLES // 2,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=HealthCheck,
        )
        @given(cases.map(with_pipeline) if mode.is_positive else cases)
        def answers(case: schemathesis.Case) -> None:
            statuses.append(case.call_and_validate(checks=CHECKS, timeout=60).status_code)

        try:
            answers()
        except Unsatisfiable:  # an operation without parameters has no wrong ones
            assert mode is GenerationMode.NEGATIVE
    if name == "create_job":
        assert 201 in statuses
