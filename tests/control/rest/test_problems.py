"""Every error is a problem that says what to do."""

from __future__ import annotations

import errno

import httpx
import pytest
from starlette.responses import PlainTextResponse

from penstock import errors
from penstock.control.rest.app import create_app
from penstock.control.rest.problems import problem_of
from penstock.errors import PenstockError
from tests.control.rest.memory_manager import MemoryManager
from tests.control.rest.serving import serving


def problem(response: httpx.Response) -> dict[str, object]:
    assert response.headers["content-type"] == "application/problem+json"
    found: dict[str, object] = response.json()
    assert found["status"] == response.status_code
    return found


def test_a_mistake_in_a_pipeline_has_the_text_that_explain_prints(api: httpx.Client, manager: MemoryManager) -> None:
    message, hint = "unknown column 'pirce'", "columns here: price      did you mean 'price'?"
    manager.failure = error = errors.UnknownColumn(message, node="aggregate 'vwap'", hint=hint)
    response = api.post("/jobs", files={"file": ("vwap.py", b"x = 1")})
    found = problem(response)
    assert (response.status_code, found["title"], found["type"]) == (
        422,
        "UnknownColumn",
        "urn:penstock:error:UnknownColumn",
    )
    assert f"{found['node']}: {found['detail']}\n  {found['hint']}" == str(error)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.UnknownJob("a"), 404),
        (errors.CheckpointMissing("a"), 404),
        (errors.AccessDenied("a"), 403),
        (errors.JobExists("a"), 409),
        (errors.RequestRefused("a"), 409),
        (errors.CheckpointInUse("a"), 409),
        (errors.BadArchive("a"), 422),
        (errors.MissingSecret("a"), 422),
        (errors.UnknownSetting("a"), 422),
        (errors.StoreUnavailable("a", transient=True), 503),
        (errors.Fenced("a"), 503),
        (errors.SourceFailed("a", transient=True), 503),
        (errors.DiskFull("a"), 507),
        (OSError(errno.ENOSPC, "No space left on device"), 507),
    ],
)
def test_an_error_has_its_status(api: httpx.Client, manager: MemoryManager, error: Exception, status: int) -> None:
    manager.failure = error
    response = api.get("/jobs")
    assert problem(response)["status"] == status
    assert ("retry-after" in response.headers) == (status == 503)


@pytest.mark.parametrize("bug", [ZeroDivisionError("secret of the code"), OSError(errno.EIO, "secret of the code")])
def test_an_unexpected_error_has_no_internals(api: httpx.Client, manager: MemoryManager, bug: Exception) -> None:
    manager.failure = bug
    response = api.get("/jobs")
    assert problem(response)["status"] == 500
    assert "secret of the code" not in response.text
    assert type(bug).__name__ not in response.text


def test_paths_and_methods_that_there_are_not_are_problems(api: httpx.Client) -> None:
    assert problem(api.get("/jbos"))["status"] == 404
    response = api.put("/jobs", json={})
    assert problem(response)["status"] == 405
    assert response.headers["allow"] == "GET, POST"


def test_a_disk_that_is_full_during_an_upload_is_a_problem(api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("starlette.datastructures.UploadFile.write", full)
    response = api.post("/jobs", files={"file": ("a.py", b"x = 1")})
    assert (problem(response)["status"], problem(response)["title"]) == (507, "DiskFull")


def test_what_was_sent_is_not_repeated_in_a_problem(api: httpx.Client) -> None:
    response = api.post("/jobs/a/rescale", json={"parallelism": "topsecret"})
    assert problem(response)["status"] == 422
    assert "topsecret" not in response.text


def test_pages_of_the_dashboard_are_beside_the_api() -> None:
    dashboard = PlainTextResponse("the dashboard")
    with serving(create_app(MemoryManager(), dashboard=dashboard)) as url, httpx.Client(trust_env=False) as client:
        assert client.get(f"{url}/").text == client.get(f"{url}/jobs/vwap").text == "the dashboard"
        assert client.get(f"{url}/health").json()["status"] == "ok"
        assert problem(client.get(f"{url}/api/v1/jbos"))["status"] == 404
        assert problem(client.put(f"{url}/api/v1/jobs"))["status"] == 405


def test_every_error_of_penstock_has_a_status() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PenstockError)]
    assert len(kinds) > 40
    for kind in kinds:
        assert 400 <= problem_of(kind("a")).status < 600


def test_the_manager_is_ready_or_says_what_is_missing(api: httpx.Client, manager: MemoryManager) -> None:
    root = str(api.base_url).removesuffix("/api/v1/")
    assert api.get(f"{root}/health").json()["status"] == "ok"
    assert api.get(f"{root}/ready").json()["ready"] is True
    assert "penstock_jobs 1" in api.get(f"{root}/metrics").text
    manager.ready = False
    response = api.get(f"{root}/ready")
    assert problem(response)["errors"] == [{"field": "store", "message": "no answer of the database"}]
    assert "retry-after" in response.headers
