"""The client of the job manager."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from penstock.control.api.access import NewToken, Role, Secret, Token
from penstock.control.api.commands import Command
from penstock.control.api.events import Event
from penstock.control.api.history import Epoch, JobException, Savepoint, Transition
from penstock.control.api.jobs import Job, Plan, Until, Version
from penstock.control.api.nodes import Node, NodeList
from penstock.control.api.pages import Page
from penstock.control.api.samples import Diverted, DivertedKind, DivertedRow, NodeSample, Replayed
from penstock.control.client.connection import DEFAULT, TIMEOUT_SECONDS, Connection
from penstock.control.client.events import events_in
from penstock.control.client.queries import rows_in
from penstock.control.client.responses import json_of, read
from penstock.control.client.submission import send_submission, send_update
from penstock.errors import JobFailed, UnknownJob, choices
from penstock.settings import server_address

PAGE = 200
POLL_SECONDS = 0.5
REPLAY_SECONDS = 600.0


class Client:
    """A client of the job manager: submits jobs, watches and changes them.

    `server` is the address of the job manager; without it PENSTOCK_SERVER, then `server` in penstock.toml, then
    http://127.0.0.1:8081. `token` is for a job manager that requires one; without it PENSTOCK_TOKEN. A job is
    named by its name, its id, or the start of its id. Requests that only read are repeated if the connection is lost.

    >>> with Client("127.0.0.1:8081") as client:
    ...     client.server
    'http://127.0.0.1:8081'
    """

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        *,
        profile: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        secret = token or os.environ.get("PENSTOCK_TOKEN") or None
        self._http = Connection(server or server_address(profile) or DEFAULT, secret, sleep=sleep, timeout=timeout)
        self._sleep = sleep

    @property
    def server(self) -> str:
        """The address of the job manager."""
        return self._http.server

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(
        self,
        file: str | Path,
        name: str | None = None,
        *,
        until: Until = "stopped",
        parallelism: int | None = None,
        pool: str | None = None,
        restart_policy: str | Mapping[str, Any] | None = None,
        autoscaling: str | Mapping[str, Any] | None = None,
        memory: str | None = None,
        cores: float | None = None,
        settings: Mapping[str, Any] | None = None,
        arguments: Mapping[str, Any] | None = None,
        **more_arguments: Any,
    ) -> Job:
        """Submit `FILE.py[:name]`, `FILE.sql` or `FOLDER[:FILE]`, and return the new job.

        The job manager builds the plan first; a mistake in the pipeline is raised as `penstock explain` prints it.
        Keywords that are no options are arguments of the function that builds the pipeline; `arguments` takes those
        whose names are options.
        """
        options = {
            "name": name,
            "until": until,
            "parallelism": parallelism,
            "pool": pool,
            "restart_policy": restart_policy,
            "autoscaling": autoscaling,
            "memory": memory,
            "cores": cores,
            "settings": settings or {},
            "arguments": {**(arguments or {}), **more_arguments},
        }
        return read(Job, send_submission(self._http, file, options))

    def jobs(self, *, state: str | None = None, name: str | None = None) -> list[Job]:
        """Return the jobs, newest first: all, those in a state, or those with a text in their name."""
        return [read(Job, item) for item in self._items("/jobs", state=state, name=name)]

    def job(self, job: str) -> Job:
        """Return a job."""
        try:
            return self._get(job)
        except UnknownJob as error:
            # A name or a whole id is found at once; the start of an id is looked for among all.
            found = [one for one in self.jobs() if one.id.startswith(job)] if job else []
            if len(found) != 1:
                raise _ambiguous(job, found) if found else error from None
            return found[0]

    def stop(self, job: str, *, savepoint: str | bool = False) -> Command:
        """Finish the epoch and stop; `savepoint` is a name, or True for a name by the time."""
        return self._command(job, "stop", savepoint=savepoint)

    def cancel(self, job: str) -> Command:
        """End a job without finishing its epoch."""
        return self._command(job, "cancel")

    def restart(self, job: str) -> Command:
        """Start a job again from its checkpoint."""
        return self._command(job, "restart")

    def rescale(self, job: str, parallelism: int) -> Command:
        """Stop with a savepoint, and continue with another parallelism."""
        return self._command(job, "rescale", parallelism=parallelism)

    def update(
        self,
        job: str,
        file: str | Path,
        *,
        allow_drop: bool = False,
        settings: Mapping[str, Any] | None = None,
        arguments: Mapping[str, Any] | None = None,
        **more_arguments: Any,
    ) -> Command:
        """Stop with a savepoint and start a new version; the old one is started again if the new one does not run.

        Arguments and settings that are not given stay as they are. `allow_drop` accepts that changed nodes lose state.
        """
        given = {**(arguments or {}), **more_arguments}
        options = {"settings": settings, "arguments": given or None, "allow_drop": allow_drop}
        return read(Command, send_update(self._http, self._path(job, "update"), file, options))

    def savepoint(self, job: str, name: str | None = None) -> Command:
        """Create a savepoint of a running job; without a name, one by the time."""
        return self._command(job, "savepoints", name=name)

    def delete(self, job: str) -> Command:
        """Delete a job that has ended, with its history and its checkpoint."""
        return read(Command, json_of(self._http.request("DELETE", self._path(job))))

    def command(self, command: str) -> Command:
        """Return a command by its id: whether it was carried out, or why not."""
        return read(Command, self._http.get(f"/commands/{quote(command, safe='')}"))

    def plan(self, job: str) -> Plan:
        """Return the physical plan of a job's current version."""
        return read(Plan, self._http.get(self._path(job, "plan")))

    def nodes(self, job: str) -> list[Node]:
        """Return the nodes of a job's plan with their row counts, rates, state and watermarks."""
        return read(NodeList, self._http.get(self._path(job, "nodes"))).items

    def sample(self, job: str, node: str, *, limit: int = 20) -> NodeSample:
        """Return some rows of a node, from where they are stored, or computed from rows of its source."""
        path = self._path(job, "nodes", quote(node, safe=""), "sample")
        return read(NodeSample, self._http.get(path, {"limit": limit}))

    def diverted(self, job: str, kind: DivertedKind = "rejected", *, limit: int = 50) -> list[DivertedRow]:
        """Return the newest rejected or late rows of a job, newest first."""
        return read(Diverted, self._http.get(self._path(job, "diverted"), {"kind": kind, "limit": limit})).items

    def replay(self, job: str, *, limit: int | None = None) -> Replayed:
        """Send rejected rows back to their source, each once; `limit` is the most that each source gets."""
        body = {"kind": "rejected", **({"limit": limit} if limit else {})}
        return read(
            Replayed, json_of(self._http.request("POST", self._path(job, "replay"), json=body, timeout=REPLAY_SECONDS))
        )

    def epochs(self, job: str, *, limit: int = 20) -> list[Epoch]:
        """Return the newest epochs of a job, newest first."""
        return [read(Epoch, item) for item in self._page(job, "epochs", limit)]

    def history(self, job: str, *, limit: int = 100) -> list[Transition]:
        """Return the newest transitions of a job's state, newest first, each with its cause."""
        return [read(Transition, item) for item in self._page(job, "transitions", limit)]

    def exceptions(self, job: str, *, limit: int = 20) -> list[JobException]:
        """Return the newest errors of a job's runs, newest first."""
        return [read(JobException, item) for item in self._page(job, "exceptions", limit)]

    def savepoints(self, job: str, *, limit: int = 100) -> list[Savepoint]:
        """Return the newest savepoints of a job, newest first."""
        return [read(Savepoint, item) for item in self._page(job, "savepoints", limit)]

    def versions(self, job: str, *, limit: int = 100) -> list[Version]:
        """Return the versions of a job's source, newest first."""
        return [read(Version, item) for item in self._page(job, "versions", limit)]

    def logs(self, job: str, *, tail: int = 100, follow: bool = False) -> Iterator[str]:
        """Return the last lines of a job's driver; with `follow`, then each new one until the job is deleted."""
        with self._http.lines(self._path(job, "logs"), {"tail": tail, "follow": follow}) as lines:
            yield from lines

    def events(self, job: str | None = None) -> Iterator[Event]:
        """Return what happens to a job, or to all, as it happens. The first event is of kind `subscribed`."""
        chosen = self.job(job).id if job else None
        with self._http.lines("/events/stream", {"job": chosen}) as lines:
            yield from events_in(lines)

    def watch(self, job: str) -> Iterator[Job]:
        """Return a job again and again, twice a second, until it is in a final state."""
        current = self.job(job)
        while True:
            yield current
            if current.state.is_final:
                return
            self._sleep(POLL_SECONDS)
            current = self._get(current.id)

    def wait(self, command: Command) -> Command:
        """Wait until a command was carried out and return it; raise JobFailed if it could not be."""
        *_, last = self.watch_command(command)
        return last

    def watch_command(self, command: Command) -> Iterator[Command]:
        """Return a command again and again, twice a second, until it was carried out; raise JobFailed if it failed."""
        while True:
            if command.state == "failed":
                message = f"{command.kind}: {command.message or 'the job manager could not carry it out'}"
                raise JobFailed(message, hint=f"penstock job history {command.job} has what happened")
            yield command
            if command.state == "done":
                return
            self._sleep(POLL_SECONDS)
            command = self.command(command.id)

    def query(
        self, sql: str, *, limit: int = 200, timeout: float = 10, **sources: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the rows of a SELECT over topics; `sources` describe tables: `t={"topic": "trades", "limit": 500}`."""
        asked = {"sql": sql, "limit": limit, "timeout": timeout, "sources": sources}
        # It takes a moment to start, besides its own time.
        response = self._http.request("POST", "/queries", json=asked, repeatable=True, timeout=timeout + 30)
        return rows_in(response.text)

    def tokens(self) -> list[Token]:
        """Return the tokens of the job manager, without their texts."""
        return [read(Token, item) for item in read(Page[Any], self._http.get("/tokens")).items]

    def create_token(self, name: str, role: Role = "viewer") -> NewToken:
        """Create a token; its text is in this response only."""
        response = self._http.request("POST", "/tokens", json={"name": name, "role": role})
        return read(NewToken, json_of(response))

    def revoke_token(self, token: str) -> None:
        """Revoke a token by its id."""
        self._http.request("DELETE", f"/tokens/{quote(token, safe='')}")

    def secrets(self) -> list[Secret]:
        """Return the secrets in the store of the job manager, without values."""
        return [read(Secret, item) for item in read(Page[Any], self._http.get("/secrets")).items]

    def set_secret(self, name: str, value: str) -> Secret:
        """Set a secret, or change it; jobs refer to it by `${secret:NAME}`."""
        response = self._http.request("PUT", f"/secrets/{quote(name, safe='')}", json={"value": value})
        return read(Secret, json_of(response))

    def delete_secret(self, name: str) -> None:
        """Delete a secret by its name."""
        self._http.request("DELETE", f"/secrets/{quote(name, safe='')}")

    def _get(self, job: str) -> Job:
        return read(Job, self._http.get(f"/jobs/{quote(job, safe='')}"))

    def _path(self, job: str, *rest: str) -> str:
        return "/".join(["/jobs", self.job(job).id, *rest])

    def _command(self, job: str, kind: str, **arguments: Any) -> Command:
        response = self._http.request("POST", self._path(job, kind), json=arguments or None)
        return read(Command, json_of(response))

    def _page(self, job: str, what: str, limit: int) -> list[Any]:
        return read(Page[Any], self._http.get(self._path(job, what), {"limit": limit})).items

    def _items(self, path: str, **filters: str | None) -> Iterator[Any]:
        cursor: str | None = None
        while True:
            page = read(Page[Any], self._http.get(path, {**filters, "cursor": cursor, "limit": PAGE}))
            yield from page.items
            cursor = page.next
            if cursor is None:
                return


def _ambiguous(job: str, found: list[Job]) -> UnknownJob:
    message = f"'{job}' is the start of {len(found)} ids"
    return UnknownJob(message, hint=choices("jobs", [f"{one.id} ({one.name})" for one in found[:10]]))
