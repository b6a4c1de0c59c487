"""The log as a process: start, serve, drain, stop."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from penstock.durations import micros
from penstock.errors import SettingsError
from penstock.log.broker import Broker
from penstock.log.groups.consumer.state import ConsumerSettings
from penstock.log.groups.coordinator import GroupSettings
from penstock.log.monitoring.metrics import MetricsServer
from penstock.log.monitoring.process_memory import limit_heap_growth
from penstock.log.network.limits import Limits
from penstock.log.network.server import Address, Server
from penstock.log.security.setup import open_security
from penstock.log.security.tls import server_context
from penstock.log.storage.syncer import Policy

_OWN_FILES = 1000  # for segments in use, segments that slow clients still read, and the rest


@dataclass(frozen=True)
class Options:
    """The options of `penstock log serve`."""

    data: Path
    listen: str = "127.0.0.1:9092"
    sync: Policy = "always"
    advertise: str | None = None
    metrics: str | None = None
    partitions: int = 1
    auto_create: bool = True
    login: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    super_users: tuple[str, ...] = ()
    acls: bool = False
    node_id: int = 1
    group_min_session_timeout: str = "6s"
    group_initial_rebalance_delay: str = "3s"
    group_consumer_session_timeout: str = "45s"
    group_consumer_heartbeat_interval: str = "5s"


async def serve_until_stopped(options: Options, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, then stop gracefully."""
    limit_heap_growth()
    limits = _many_files()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    address = Address.parse(options.listen)
    _refuse_unusable(options.data)
    broker = _broker(options, address, limits)
    server = Server(broker, address, _tls(options))
    await broker.start()
    listening = await server.start()
    metrics = await _serve_metrics(options, broker, say)
    say(f"listening on {listening}")
    await stop.wait()
    await server.stop()
    if metrics is not None:
        await metrics.stop()
    await broker.stop()


def _many_files() -> Limits:
    """Raise the limit of descriptors, and limit connections so that enough are left for segments."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return Limits()
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return Limits(connections=max(min(Limits.connections, most - _OWN_FILES), most // 4))


def _refuse_unusable(data: Path) -> None:
    try:
        data.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=data).close()
    except OSError as error:
        why = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        message = f"cannot use the data folder {data}: {why}"
        raise SettingsError(message, hint="give a folder that this user may write to: --data DIR") from error


def _broker(options: Options, address: Address, limits: Limits) -> Broker:
    security = open_security(
        options.data,
        address.host,
        login=options.login,
        tls=options.tls_cert is not None,
        client_certificates=options.client_ca is not None,
        super_users=options.super_users,
        acls=options.acls,
    )
    group_settings, node_id = _group_settings(options), options.node_id
    broker = Broker(
        options.data,
        sync=options.sync,
        security=security,
        limits=limits,
        group_settings=group_settings,
        node_id=node_id,
    )
    broker.auto_create = options.auto_create
    broker.default_partitions = options.partitions
    advertised = Address.parse(options.advertise) if options.advertise else address
    broker.host, broker.port = advertised.host, advertised.port
    return broker


def _group_settings(options: Options) -> GroupSettings:
    session = milliseconds("--group-consumer-session-timeout", options.group_consumer_session_timeout)
    interval = milliseconds("--group-consumer-heartbeat-interval", options.group_consumer_heartbeat_interval)
    least = milliseconds("--group-min-session-timeout", options.group_min_session_timeout)
    if interval >= session:
        message = f"a heartbeat every {interval} ms cannot keep a session of {session} ms alive"
        raise SettingsError(message, hint="--group-consumer-heartbeat-interval has to be below the session timeout")
    if least > GroupSettings().max_session:
        message = f"--group-min-session-timeout is above the longest session, {GroupSettings().max_session} ms"
        raise SettingsError(message, hint="give a shorter one, for example 6s")
    return GroupSettings(
        initial_delay=milliseconds("--group-initial-rebalance-delay", options.group_initial_rebalance_delay, least=0),
        min_session=least,
        consumer=ConsumerSettings(session_timeout=session, heartbeat_interval=interval),
    )


def milliseconds(flag: str, text: str, least: int = 1) -> int:
    """Read a duration such as 500ms, 3s or 2m.

    >>> milliseconds("--delay", "3s"), milliseconds("--delay", "500ms")
    (3000, 500)
    """
    number = micros(text, flag) // 1000
    if not least <= number < 2**31:
        message = f"{flag} is {least} ms to {2**31 - 1} ms, not {text}"
        raise SettingsError(message, hint="write for example 500ms, 3s or 2m")
    return number


def _tls(options: Options) -> ssl.SSLContext | None:
    if options.tls_cert is None and options.tls_key is None and options.client_ca is None:
        return None
    if options.tls_cert is None or options.tls_key is None:
        message = "TLS needs a certificate and its key"
        raise SettingsError(message, hint="give both: --tls-cert FILE --tls-key FILE")
    return server_context(options.tls_cert, options.tls_key, options.client_ca, require_client=not options.login)


async def _serve_metrics(options: Options, broker: Broker, say: Callable[[str], None]) -> MetricsServer | None:
    if options.metrics is None:
        return None
    where = Address.parse(options.metrics)
    server = MetricsServer(lambda: broker.metrics.render(broker))
    port = await server.start(where.host, where.port)
    say(f"metrics on http://{Address(where.host, port)}/metrics")
    return server
