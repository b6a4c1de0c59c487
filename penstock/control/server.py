"""The job manager as a process: `penstock up` with an event log of its own, `penstock server` alone."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from penstock.control.broker.broker import Broker
from penstock.control.rest.app import create_app
from penstock.control.security.tokens import Access
from penstock.control.store.repositories.leases import MANAGER
from penstock.control.store.store import Store
from penstock.control.supervisor.data_folder import DataFolder, FolderLock
from penstock.control.supervisor.drivers.launchers import LocalLauncher
from penstock.control.supervisor.embedded_log import EmbeddedLog
from penstock.control.supervisor.event_bus import EventBus
from penstock.control.supervisor.leader.leadership import Leadership
from penstock.control.supervisor.options import Options
from penstock.control.supervisor.requests.job_manager import JobManager
from penstock.errors import PortTaken, SettingsError, StoreUnavailable
from penstock.settings import Settings

_THREADS = 16
_CONNECT_SECONDS = 60.0
_RETRY_SECONDS = 1.0
# Settings of this process that are not for its jobs.
_OWN = ("checkpoints", "savepoints")
_IMAGE = "spark.kubernetes.container.image"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listen:
    """Where the server listens, with TLS if it has a certificate, and what it serves beside the API."""

    host: str = "127.0.0.1"
    port: int = 8081
    tls_cert: Path | None = None
    tls_key: Path | None = None
    allowed_hosts: Sequence[str] = ()
    dashboard: ASGIApp | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return False

    def url(self, port: int) -> str:
        """The URL of the server."""
        scheme = "https" if self.tls_cert else "http"
        return f"{scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{port}"


def run_up(
    data: Path,
    host: str = "127.0.0.1",
    port: int = 8081,
    *,
    log_port: int | None = None,
    spares: int = 1,
    spark_master: str | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    allowed_hosts: Sequence[str] = (),
    dashboard: ASGIApp | None = None,
) -> None:
    """Run the event log and the job manager over one data folder until SIGINT or SIGTERM, then stop all jobs."""
    folder = DataFolder(data.absolute())
    folder.create()
    lock = FolderLock(folder.path)
    lock.acquire()
    listen = Listen(host, port, tls_cert, tls_key, allowed_hosts, dashboard)
    options = Options(folder, base_settings(spark_master=spark_master), spares=spares)
    log = EmbeddedLog(folder.log, port=log_port if log_port is not None or port else 0)
    try:
        asyncio.run(_serve(folder.store_url, options, listen, log))
    finally:
        lock.release()


def run_server(
    store: str | None = None,
    *,
    data: Path = Path(".penstock"),
    host: str = "127.0.0.1",
    port: int = 8081,
    log: str | None = None,
    spark_master: str | None = None,
    checkpoints: str | None = None,
    spares: int = 1,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    allowed_hosts: Sequence[str] = (),
    dashboard: ASGIApp | None = None,
) -> None:
    """Run the job manager alone until SIGINT or SIGTERM; its jobs go on, and the next manager adopts them."""
    folder = DataFolder(data.absolute(), checkpoints)
    folder.create()
    listen = Listen(host, port, tls_cert, tls_key, allowed_hosts, dashboard)
    options = Options(folder, base_settings(log=log, spark_master=spark_master), spares=spares)
    asyncio.run(_serve(store or folder.store_url, options, listen, None))


def base_settings(**given: Any) -> dict[str, Any]:
    """Return the settings that every job starts from: those of this process that are not defaults.

    Relative paths of sources and sinks start from the folder that the manager was started in.
    """
    loaded, defaults = Settings.load(**given), Settings()
    if loaded.master.startswith("k8s://") and _IMAGE not in loaded.spark:
        message = f"{loaded.master}: the image of the executors is not set"
        raise SettingsError(message, hint=f'set it in penstock.toml: [settings.spark] "{_IMAGE}" = "IMAGE"')
    changed = {
        part.name: getattr(loaded, part.name)
        for part in fields(Settings)
        if part.name not in _OWN and getattr(loaded, part.name) != getattr(defaults, part.name)
    }
    return {**changed, "files": str(Path(loaded.files).absolute())}


async def _serve(store_url: str, options: Options, listen: Listen, log: EmbeddedLog | None) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for noisy in ("alembic", "httpx", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "manager"))
    stop = _stop_on_signal()
    sockets = [_bind(listen)]
    if log is not None:
        address = await log.start()
        options = replace(
            options, settings={**options.settings, "log": address.bootstrap}, log_metrics=lambda: log.address.metrics
        )
    store = Store(store_url)
    try:
        await _migrate(store)
        await _serve_until(stop, store, options, listen, sockets, log)
    finally:
        store.close()
        if log is not None:
            await log.stop()


async def _serve_until(
    stop: asyncio.Event,
    store: Store,
    options: Options,
    listen: Listen,
    sockets: list[socket.socket],
    log: EmbeddedLog | None,
) -> None:
    bus = EventBus(time.time)
    leadership = Leadership(store, options, LocalLauncher(), bus)
    if log is not None:
        # The lock of the data folder is ours, so whoever has the lease is dead.
        leadership.take_over(await asyncio.to_thread(store.leases.find, MANAGER))
    access = Access(store.tokens, open_to_others=not listen.is_loopback)
    manager = JobManager(store, options, leadership, access)
    server = _server(manager, access, options, listen)
    tasks = [asyncio.create_task(leadership.run()), asyncio.create_task(server.serve(sockets))]
    tasks += [asyncio.create_task(log.watch())] if log is not None else []
    await _until_started(server, tasks[1])
    # What was loaded is there until the end: a collection that looks at all of it is a pause for every request.
    gc.freeze()
    url = listen.url(sockets[0].getsockname()[1])
    print(f"job manager on {url}", flush=True)
    if log is not None:
        print(f"log on {log.address.bootstrap}", flush=True)
    if listen.dashboard is not None:
        print(f"dashboard on {url}", flush=True)
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait((waiting, *tasks), return_when=asyncio.FIRST_COMPLETED)
    await _shut_down(leadership, with_jobs=log is not None)
    bus.close()
    server.should_exit = True
    await asyncio.wait((tasks[1],), timeout=10)
    for task in (*tasks, waiting):
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await leadership.release()
    for result in results:
        if isinstance(result, Exception):
            raise result


async def _shut_down(leadership: Leadership, *, with_jobs: bool) -> None:
    term = leadership.term
    if term is None:
        return
    if with_jobs:
        print("stopping the jobs; the next `penstock up` resumes them", flush=True)
        await term.shut_down()
    else:
        await term.leave()


def _server(manager: JobManager, access: Access, options: Options, listen: Listen) -> uvicorn.Server:
    log = options.settings.get("log")
    hosts = (*listen.allowed_hosts, listen.host)
    app = create_app(manager, access, Broker(log) if log else None, hosts=hosts, dashboard=listen.dashboard)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=3,
        ssl_certfile=listen.tls_cert,
        ssl_keyfile=listen.tls_key,
    )
    return _Server(config)


class _Server(uvicorn.Server):
    """Leaves signals to the manager, which stops the jobs first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _until_started(server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
    while not server.started and not serving.done():
        await asyncio.sleep(0.02)
    if serving.done():
        await serving


async def _migrate(store: Store) -> None:
    """Bring the store to this version; a database that is just starting is waited for."""
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            await asyncio.to_thread(store.migrate)
        except StoreUnavailable as error:
            if time.monotonic() > deadline:
                raise
            _logger.warning("%s", error.message)
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            return


def _stop_on_signal() -> asyncio.Event:
    """Set an event at the first signal; a second SIGINT ends the process at once, and leaves jobs to be adopted."""
    stop = asyncio.Event()

    def ask(number: signal.Signals) -> None:
        if stop.is_set() and number == signal.SIGINT:
            os._exit(130)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ask, number)
    return stop


def _bind(listen: Listen) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        made = socket.create_server((listen.host, listen.port), family=family, backlog=2048)
        # Connections inherit it. asyncio sets it on sockets of its own only; without it the body of a response waits
        # for the client to acknowledge the head, which takes 40 ms.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    except OSError as error:
        address = f"{listen.host}:{listen.port}"
        if isinstance(error, socket.gaierror):
            message = f"{address} is not an address of this machine: {error.strerror}"
            raise SettingsError(message, hint="give an address with --host") from error
        message = f"cannot listen on {address}: {error.strerror}"
        raise PortTaken(message, hint="choose another port with --port; 0 is a free one") from error
