from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import errors
from penstock.control.client import Client
from penstock.control.client.connection import ATTEMPTS
from penstock.errors import (
    AccessDenied,
    NoJobManager,
    PenstockError,
    RequestRefused,
    SettingsError,
    UnknownColumn,
    UnknownJob,
)
from tests.control.client.scripted_server import Answer, ScriptedServer, scripted_server

JOB = {"id": "01jcvwap", "name": "vwap", "state": "RUNNING", "version": 1, "created_at": "2026-11-17T10:00:00Z"}
COMMAND = {
    "id": "c1",
    "job": "01jcvwap",
    "kind": "stop",
    "requested_at": "2026-11-17T10:00:00Z",
    "state": "open",
}
CUT = Answer(cut=True)
BUSY = Answer(503, {"type": "about:blank", "title": "x", "status": 503, "detail": "the store is away"})
FOUND = Answer(200, JOB)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        yield server


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def client(server: ScriptedServer, slept: list[float]) -> Iterator[Client]:
    with Client(server.url, sleep=slept.append) as client:
        yield client


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def problem(kind: str, status: int = 422, **more: object) -> Answer:
    body = {"type": f"urn:penstock:error:{kind}", "title": kind, "status": status, "detail": "no", **more}
    return Answer(status, body, {"content-type": "application/problem+json"})


def test_without_a_job_manager_the_error_says_how_to_start_one(slept: list[float]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with Client(url, sleep=slept.append) as client, pytest.raises(NoJobManager) as refused:
        client.jobs()
    assert str(refused.value).startswith(f"no job manager at {url}\n  start one with `penstock up`")
    assert refused.value.transient
    assert slept == []


def test_a_read_is_repeated_when_the_connection_is_lost(
    client: Client, server: ScriptedServer, slept: list[float]
) -> None:
    server.answers = [FOUND, CUT, CUT, FOUND]
    client.job("vwap")
    assert client.job("vwap").name == "vwap"
    assert slept == [0.2, 0.4]


def test_a_read_is_not_repeated_forever(client: Client, server: ScriptedServer) -> None:
    server.answers = [FOUND, CUT]
    client.job("vwap")
    with pytest.raises(NoJobManager, match="is gone"):
        client.job("vwap")
    assert len(server.asked) == 1 + ATTEMPTS


def test_a_read_is_repeated_while_the_store_is_away(client: Client, server: ScriptedServer, slept: list[float]) -> None:
    server.answers = [BUSY, Answer(503, BUSY.body, {"retry-after": "3"}), FOUND]
    assert client.job("vwap").name == "vwap"
    assert slept == [0.2, 3.0]


def test_a_command_is_sent_once_only(client: Client, server: ScriptedServer) -> None:
    server.answers = [FOUND, CUT]
    with pytest.raises(NoJobManager):
        client.stop("vwap")
    assert [each.method for each in server.asked] == ["GET", "POST"]


def test_a_submission_is_repeated_with_the_same_idempotency_key(
    client: Client, server: ScriptedServer, tmp_path: Path
) -> None:
    (tmp_path / "vwap.py").write_text("x = 1\n")
    server.answers = [BUSY, Answer(201, JOB)]
    assert client.submit(tmp_path / "vwap.py").name == "vwap"
    first, second = (each.headers["idempotency-key"] for each in server.asked)
    assert first == second
    server.answers = [Answer(201, JOB)]
    client.submit(tmp_path / "vwap.py")
    assert server.asked[-1].headers["idempotency-key"] != first


def test_the_token_is_sent_and_comes_from_argument_or_environment(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers = [FOUND]
    monkeypatch.setenv("PENSTOCK_TOKEN", "pst_env")
    for token, expected in ((None, "Bearer pst_env"), ("pst_arg", "Bearer pst_arg")):
        with Client(server.url, token) as client:
            client.job("vwap")
        assert server.asked[-1].headers["authorization"] == expected


def test_a_missing_token_is_said_with_how_to_pass_one(server: ScriptedServer) -> None:
    server.answers = [problem("AccessDenied", 401, hint="the token has expired")]
    for token, hint in ((None, "set PENSTOCK_TOKEN, or pass --token"), ("pst_old", "the token has expired")):
        with Client(server.url, token) as client, pytest.raises(AccessDenied) as refused:
            client.jobs()
        assert str(refused.value.hint).startswith(hint)


def test_a_proxy_of_the_environment_is_not_used_for_this_machine(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    server.answers = [FOUND]
    with Client(server.url) as client:
        assert client.job("vwap").name == "vwap"


@pytest.mark.parametrize(
    "kind",
    [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PenstockError)],
)
def test_a_problem_is_raised_as_the_error_that_it_names(
    client: Client, server: ScriptedServer, kind: type[PenstockError]
) -> None:
    server.answers = [problem(kind.__name__, 422, hint="do it so")]
    with pytest.raises(kind) as raised:
        client.plan("vwap")
    assert type(raised.value) is kind
    assert (raised.value.message, raised.value.hint) == ("no", "do it so")


@pytest.mark.parametrize(
    ("status", "kind"), [(401, AccessDenied), (403, AccessDenied), (409, RequestRefused), (500, NoJobManager)]
)
def test_a_problem_without_an_error_goes_by_its_status(
    client: Client, server: ScriptedServer, status: int, kind: type[PenstockError]
) -> None:
    server.answers = [Answer(status, {"type": "about:blank", "title": "x", "status": status, "detail": "no"})]
    with pytest.raises(kind):
        client.command("c1")


def test_a_problem_cannot_name_a_class_that_is_no_error(client: Client, server: ScriptedServer) -> None:
    server.answers = [problem("get_close_matches"), problem("Any")]
    for _ in range(2):
        with pytest.raises(RequestRefused):
            client.command("c1")


def test_the_fields_of_a_bad_request_are_named(client: Client, server: ScriptedServer) -> None:
    mistakes = [{"field": "body.parallelism", "message": "Input should be greater than 0"}]
    server.answers = [FOUND, problem("RequestRefused", 422, errors=mistakes)]
    with pytest.raises(RequestRefused) as refused:
        client.rescale("vwap", 0)
    assert refused.value.hint == "body.parallelism: Input should be greater than 0"


def test_another_server_at_the_address_is_said_to_be_one(client: Client, server: ScriptedServer) -> None:
    server.answers = [Answer(404, b"<html>nginx</html>")]
    with pytest.raises(NoJobManager, match="answered 404 Not Found"):
        client.command("c1")


def test_an_answer_that_is_not_json_is_no_answer_of_a_job_manager(client: Client, server: ScriptedServer) -> None:
    server.answers = [Answer(200, b"<html>hello</html>")]
    with pytest.raises(NoJobManager, match="not one of a job manager"):
        client.command("c1")


def test_a_job_is_found_by_the_start_of_its_id(client: Client, server: ScriptedServer) -> None:
    server.answers = [problem("UnknownJob", 404), Answer(200, {"items": [JOB], "next": None})]
    assert client.job("01jc").id == "01jcvwap"


def test_the_start_of_several_ids_is_refused_with_them(client: Client, server: ScriptedServer) -> None:
    other = {**JOB, "id": "01jcother", "name": "other"}
    server.answers = [problem("UnknownJob", 404), Answer(200, {"items": [JOB, other], "next": None})]
    with pytest.raises(UnknownJob, match="the start of 2 ids") as refused:
        client.job("01jc")
    assert refused.value.hint == "jobs: 01jcvwap (vwap), 01jcother (other)"


def test_an_unknown_job_keeps_the_hint_of_the_job_manager(client: Client, server: ScriptedServer) -> None:
    server.answers = [problem("UnknownJob", 404, hint="did you mean 'vwap'?"), Answer(200, {"items": [], "next": None})]
    with pytest.raises(UnknownJob) as refused:
        client.job("vwpa")
    assert refused.value.hint == "did you mean 'vwap'?"


def test_all_pages_are_read(client: Client, server: ScriptedServer) -> None:
    server.answers = [Answer(200, {"items": [JOB], "next": "c 2"}), Answer(200, {"items": [JOB], "next": None})]
    assert len(client.jobs(state="RUNNING")) == 2
    assert "cursor=c" in server.asked[1].path
    assert "state=RUNNING" in server.asked[1].path


def test_a_command_is_waited_for(client: Client, server: ScriptedServer, slept: list[float]) -> None:
    done = Answer(200, {**COMMAND, "state": "done", "message": "stopped"})
    server.answers = [FOUND, Answer(202, COMMAND), Answer(200, COMMAND), done]
    assert client.wait(client.stop("vwap")).message == "stopped"
    assert slept == [0.5, 0.5]


def test_a_command_that_fails_is_an_error(client: Client, server: ScriptedServer) -> None:
    failed = Answer(200, {**COMMAND, "state": "failed", "message": "the job has ended"})
    server.answers = [FOUND, Answer(202, COMMAND), failed]
    with pytest.raises(errors.JobFailed, match="stop: the job has ended"):
        client.wait(client.stop("vwap"))


def test_a_job_is_watched_until_it_has_ended(client: Client, server: ScriptedServer) -> None:
    server.answers = [FOUND, FOUND, Answer(200, {**JOB, "state": "FINISHED"})]
    assert [job.state for job in client.watch("vwap")] == ["RUNNING", "RUNNING", "FINISHED"]


def test_the_server_comes_from_argument_environment_profile_or_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client().server == "http://127.0.0.1:8081"
    Path("penstock.toml").write_text('[settings]\nserver = "a:1"\n[profiles.prod]\nserver = "https://b:2"\n')
    assert Client().server == "http://a:1"
    assert Client(profile="prod").server == "https://b:2"
    monkeypatch.setenv("PENSTOCK_PROFILE", "prod")
    assert Client().server == "https://b:2"
    monkeypatch.setenv("PENSTOCK_SERVER", "http://c:3")
    assert Client().server == "http://c:3"
    assert Client("http://d:4/").server == "http://d:4"


@pytest.mark.parametrize("wrong", ["ftp://a:1", "http://", "http://ada:secret@a:1", "http://a:port"])
def test_a_wrong_address_is_refused_without_showing_secrets(wrong: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Client(wrong)
    assert "secret" not in str(refused.value)


def test_a_mistake_in_the_pipeline_is_the_same_error_as_of_explain(
    client: Client, server: ScriptedServer, tmp_path: Path
) -> None:
    (tmp_path / "vwap.py").write_text("x = 1\n")
    server.answers = [problem("UnknownColumn", 422, detail="aggregate 'vwap': unknown column 'pirce'", hint="columns")]
    with pytest.raises(UnknownColumn) as refused:
        client.submit(tmp_path / "vwap.py")
    assert (str(refused.value), refused.value.exit_code) == (
        "aggregate 'vwap': unknown column 'pirce'\n  columns",
        2,
    )
