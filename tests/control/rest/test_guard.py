"""Who may send requests: this machine, or the holder of a token with the role that a route needs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from penstock.control.rest.app import create_app
from penstock.errors import StoreUnavailable
from tests.control.rest.memory_manager import MemoryManager
from tests.control.rest.serving import serving
from tests.waiting import wait_for


@dataclass(frozen=True)
class Holder:
    name: str
    role: str


class Tokens:
    """A token for each role: pst_viewer, pst_operator, pst_admin."""

    away = False

    def required(self) -> bool:
        return True

    def known_requirement(self) -> bool | None:
        return None

    def authenticate(self, token: str) -> Holder | None:
        if self.away:
            raise StoreUnavailable("the database does not answer", transient=True)
        role = token.removeprefix("pst_")
        return Holder(f"{role}-token", role) if role in ("viewer", "operator", "admin") else None


# Every operation, and the least role that may use it; None needs no token at all.
ROLES: dict[str, str | None] = {
    "get_health": None,
    "get_readiness": None,
    "get_metrics_page": "viewer",
    "list_jobs": "viewer",
    "get_job": "viewer",
    "get_plan": "viewer",
    "list_versions": "viewer",
    "list_epochs": "viewer",
    "list_checkpoints": "viewer",
    "list_savepoints": "viewer",
    "list_transitions": "viewer",
    "list_exceptions": "viewer",
    "list_commands": "viewer",
    "get_command": "viewer",
    "get_metrics": "viewer",
    "get_state": "viewer",
    "get_logs": "viewer",
    "stream_events": "viewer",
    "get_cluster": "viewer",
    "list_topics": "viewer",
    "get_topic": "viewer",
    "list_messages": "viewer",
    "list_groups": "viewer",
    "get_group": "viewer",
    "create_job": "operator",
    "stop_job": "operator",
    "cancel_job": "operator",
    "restart_job": "operator",
    "rescale_job": "operator",
    "update_job": "operator",
    "create_savepoint": "operator",
    "delete_job": "operator",
    "produce_message": "operator",
    "reset_group": "operator",
    "list_tokens": "admin",
    "create_token": "admin",
    "revoke_token": "admin",
    "list_audit": "admin",
    "list_secrets": "admin",
    "set_secret": "admin",
    "delete_secret": "admin",
}
ORDER = ("viewer", "operator", "admin")


def operations() -> dict[str, tuple[str, str]]:
    paths = create_app(MemoryManager()).openapi()["paths"]
    found = [(method, path, about) for path, each in paths.items() for method, about in each.items()]
    return {about["operationId"]: (method.upper(), path) for method, path, about in found}


OPERATIONS = operations()


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[str, MemoryManager, Tokens]]:
    manager, tokens = MemoryManager(), Tokens()
    with serving(create_app(manager, tokens)) as url:
        yield url, manager, tokens


@pytest.fixture(scope="module")
def client(guarded: tuple[str, MemoryManager, Tokens]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=guarded[0], trust_env=False) as found:
        yield found


def test_every_operation_is_in_the_table_of_roles() -> None:
    assert {*OPERATIONS} == {*ROLES}


def status(client: httpx.Client, operation: str, role: str | None) -> int:
    method, path = OPERATIONS[operation]
    headers = {"authorization": f"Bearer pst_{role}"} if role else {}
    with client.stream(method, path.replace("{", "").replace("}", ""), headers=headers) as response:
        return response.status_code


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_a_role_may_use_an_operation_if_the_table_says_so(
    client: httpx.Client, guarded: tuple[str, MemoryManager, Tokens], operation: str
) -> None:
    needed = ROLES[operation]
    assert (status(client, operation, None) == 401) == (needed is not None)
    assert (status(client, operation, "stranger") == 401) == (needed is not None)
    for role in ORDER if needed else ():
        # A stream of events is endless, but its status comes at once.
        refused = ORDER.index(role) < ORDER.index(needed or "viewer")
        assert (status(client, operation, role) == 403) == refused, role


def test_a_refusal_says_which_role_is_needed(client: httpx.Client) -> None:
    response = client.delete("/api/v1/jobs/a", headers={"authorization": "Bearer pst_viewer"})
    assert (response.status_code, response.headers["content-type"]) == (403, "application/problem+json")
    assert "needs the role operator" in response.json()["detail"]


def test_a_request_without_a_token_says_how_to_get_one(client: httpx.Client) -> None:
    response = client.get("/api/v1/jobs")
    assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
    assert "penstock token create" in response.json()["hint"]


def test_while_the_store_is_away_nobody_is_authenticated(
    client: httpx.Client, guarded: tuple[str, MemoryManager, Tokens], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded[2], "away", True)
    response = client.get("/api/v1/jobs", headers={"authorization": "Bearer pst_admin"})
    assert (response.status_code, "retry-after" in response.headers) == (503, True)
    assert client.get("/health").status_code == 200


def test_every_write_of_a_known_caller_is_audited(
    client: httpx.Client, guarded: tuple[str, MemoryManager, Tokens]
) -> None:
    manager = guarded[1]
    manager.entries.clear()
    manager.add("audited")
    for role, path in (("operator", "/api/v1/jobs/audited/stop"), ("viewer", "/api/v1/jobs/audited/cancel")):
        client.post(path, headers={"authorization": f"Bearer pst_{role}"})
    client.get("/api/v1/jobs", headers={"authorization": "Bearer pst_viewer"})
    client.post("/api/v1/jobs/audited/stop")
    # A request is recorded after it was answered.
    wait_for(lambda: len(manager.entries) >= 2, "the requests were not recorded")
    found = [(entry.who, entry.action, entry.target, entry.outcome) for entry in manager.entries]
    assert found == [
        ("operator-token", "stop_job", "/api/v1/jobs/audited/stop", "202"),
        ("viewer-token", "cancel_job", "/api/v1/jobs/audited/cancel", "403"),
    ]
    assert manager.entries[0].address == "127.0.0.1"


def test_with_a_token_the_server_may_have_any_name(client: httpx.Client) -> None:
    headers = {"authorization": "Bearer pst_viewer", "host": "jobs.example"}
    assert client.get("/api/v1/jobs", headers=headers).status_code == 200


def test_the_text_of_a_token_is_returned_once(client: httpx.Client) -> None:
    admin = {"authorization": "Bearer pst_admin"}
    made = client.post("/api/v1/tokens", json={"name": "ci", "role": "operator"}, headers=admin)
    assert (made.status_code, made.json()["token"][:4]) == (201, "pst_")
    (listed,) = client.get("/api/v1/tokens", headers=admin).json()["items"]
    assert "token" not in listed
    assert client.delete(f"/api/v1/tokens/{listed['id']}", headers=admin).status_code == 204
    assert client.delete(f"/api/v1/tokens/{listed['id']}", headers=admin).status_code == 404


@pytest.mark.parametrize(
    ("query", "protocols", "accepted"),
    [
        ("?token=pst_viewer", None, True),
        ("?job=watched&token=pst_viewer", None, True),
        ("", ["penstock.v1", "bearer.pst_viewer"], True),
        ("", None, False),
        ("?token=pst_stranger", None, False),
        ("", ["penstock.v1", "bearer.nobody"], False),
    ],
)
def test_a_websocket_has_its_token_in_the_query_or_the_protocol(
    guarded: tuple[str, MemoryManager, Tokens], query: str, protocols: Any, accepted: bool
) -> None:
    guarded[1].add("watched")
    url = f"{guarded[0].replace('http', 'ws')}/api/v1/events{query}"
    if accepted:
        with connect(url, subprotocols=protocols, proxy=None) as socket:
            assert '"subscribed"' in str(socket.recv(5))
            assert socket.subprotocol == ("penstock.v1" if protocols else None)
    else:
        with pytest.raises(InvalidStatus) as refused:
            connect(url, subprotocols=protocols, proxy=None)
        assert refused.value.response.status_code == 401


def test_a_token_in_the_query_counts_for_streams_only(client: httpx.Client) -> None:
    assert client.get("/api/v1/jobs?token=pst_viewer").status_code == 401
    with client.stream("GET", "/api/v1/events/stream?token=pst_viewer") as response:
        assert response.status_code == 200


# Without tokens.


def ask(address: str = "127.0.0.1", method: str = "GET", **headers: str) -> httpx.Response:
    """Send one request as a client at this address."""
    app = create_app(MemoryManager(), hosts=headers.pop("hosts", "").split() or ())

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app, client=(address, 4711))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8081") as client:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return await client.request(method, "/api/v1/jobs", headers=named)

    return asyncio.run(send())


@pytest.mark.parametrize("host", ["127.0.0.1:8081", "localhost:8081", "LOCALHOST", "[::1]:8081", "127.0.0.2"])
def test_without_tokens_this_machine_may_do_everything(host: str) -> None:
    assert ask(host=host).status_code == 200
    assert ask("::1", host=host).status_code == 200
    assert ask("::ffff:127.0.0.1", host=host).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8081", "127.0.0.1.evil.example", "", "localhost.evil"])
def test_a_name_that_resolves_to_loopback_is_refused(host: str) -> None:
    """DNS rebinding: the browser believes that 127.0.0.1 is the attacker's host."""
    assert ask(host=host).status_code == 403


@pytest.mark.parametrize("address", ["192.0.2.7", "10.0.0.1", "2001:db8::1", "::ffff:192.0.2.7"])
def test_without_tokens_other_machines_are_refused(address: str) -> None:
    assert ask(address).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://[::1"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"},
        {"origin": "https://evil.example", "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
    ],
)
def test_pages_of_other_websites_are_refused(headers: dict[str, str]) -> None:
    """A form may be posted to another origin without asking: on loopback it would run code."""
    assert ask(method="POST", **headers).status_code == 403


def test_the_own_page_and_links_to_it_are_not_refused() -> None:
    assert ask(origin="http://127.0.0.1:8081").status_code == 200
    assert ask(sec_fetch_site="cross-site", sec_fetch_mode="navigate").status_code == 200


@pytest.mark.parametrize("header", ["x_forwarded_for", "forwarded", "x_real_ip"])
def test_behind_a_proxy_a_token_is_required(header: str) -> None:
    assert ask(**{header: "192.0.2.7"}).status_code == 401


def test_further_names_of_this_machine_are_given_as_hosts() -> None:
    assert ask(host="jobs.example:8081", hosts="jobs.example").status_code == 200
    assert ask(host="127.0.0.1:8081", hosts="jobs.example").status_code == 200
    assert ask(host="evil.example", hosts="jobs.example").status_code == 403


def test_cors_is_closed_unless_an_origin_is_allowed() -> None:
    asked = {"origin": "https://ops.example", "access-control-request-method": "POST"}

    async def preflight(**options: Any) -> httpx.Response:
        app = create_app(MemoryManager(), **options)
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.options("/api/v1/jobs", headers=asked)

    closed, opened = asyncio.run(preflight()), asyncio.run(preflight(origins=["https://ops.example"]))
    assert "access-control-allow-origin" not in closed.headers
    assert opened.headers["access-control-allow-origin"] == "https://ops.example"
