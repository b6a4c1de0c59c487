"""The settings of the broker and of groups that can be changed while the log runs: Kafka 4.2's, by its names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.log.errors import ErrorCode, LogError
from penstock.log.storage.settings import Kind, Setting, normal_config
from penstock.log.storage.topic_settings import SETTINGS

_MOST_INT = 2**31 - 1
# Unset in Kafka, which then reads the same in hours, or has no limit.
_UNSET = ("log.flush.interval.ms", "log.retention.ms", "log.roll.jitter.ms", "log.roll.ms")
_THREADS = {"background.threads": 10, "log.cleaner.threads": 1, "num.io.threads": 8, "num.network.threads": 3}
_THREADS |= {"num.recovery.threads.per.data.dir": 2, "num.replica.fetchers": 1, "remote.log.reader.threads": 10}
_THREADS |= {f"remote.log.manager.{kind}.thread.pool.size": 10 for kind in ("copier", "expiration")}
_THREADS |= {"remote.log.manager.follower.thread.pool.size": 2}
_RATES = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.fetch.max.bytes.per.second",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)


def _of_topics() -> dict[str, Setting]:
    """Return the settings that topics take their defaults from."""
    found = {each.broker: replace(each, broker=None) for each in SETTINGS.values() if each.broker}
    return {name: replace(each, default=None) if name in _UNSET else each for name, each in found.items()}


BROKER_SETTINGS: dict[str, Setting] = dict(
    sorted(
        {
            **_of_topics(),
            **{name: Setting(Kind.INT, str(count), least=1) for name, count in _THREADS.items()},
            **{name: Setting(Kind.LONG, str(2**63 - 1), least=0) for name in _RATES},
            "log.cleaner.backoff.ms": Setting(Kind.LONG, "15000", least=0, effect=True),
            "log.cleaner.dedupe.buffer.size": Setting(Kind.LONG, "134217728"),
            "log.cleaner.io.buffer.load.factor": Setting(Kind.DOUBLE, "0.9"),
            "log.cleaner.io.buffer.size": Setting(Kind.INT, "524288", least=0),
            "log.cleaner.io.max.bytes.per.second": Setting(Kind.DOUBLE, "1.7976931348623157E308"),
            "max.connection.creation.rate": Setting(Kind.INT, str(_MOST_INT), least=0),
            "max.connections": Setting(Kind.INT, str(_MOST_INT), least=1, effect=True),
            "max.connections.per.ip": Setting(Kind.INT, str(_MOST_INT), least=1, effect=True),
            "max.connections.per.ip.overrides": Setting(Kind.STRING, ""),
            "producer.id.expiration.ms": Setting(Kind.INT, "86400000", least=1, effect=True),
            "remote.fetch.max.wait.ms": Setting(Kind.INT, "500", least=1),
            "remote.list.offsets.request.timeout.ms": Setting(Kind.LONG, "30000", least=1),
            "remote.log.index.file.cache.total.size.bytes": Setting(Kind.LONG, str(1 << 30), least=1),
            "transaction.partition.verification.enable": Setting(Kind.BOOLEAN, "true"),
        }.items()
    )
)
TOPIC_OF: Mapping[str, str] = {each.broker: name for name, each in SETTINGS.items() if each.broker}

_SESSION = Setting(Kind.INT, "45000", least=45_000, most=60_000)
_HEARTBEAT = Setting(Kind.INT, "5000", least=5_000, most=15_000)
GROUP_SETTINGS: dict[str, Setting] = {
    "consumer.heartbeat.interval.ms": replace(_HEARTBEAT, effect=True),
    "consumer.session.timeout.ms": replace(_SESSION, effect=True),
    "share.auto.offset.reset": Setting(Kind.STRING, "latest", choices=("latest", "earliest")),
    "share.heartbeat.interval.ms": _HEARTBEAT,
    "share.isolation.level": Setting(Kind.STRING, "read_uncommitted", choices=("read_committed", "read_uncommitted")),
    "share.record.lock.duration.ms": Setting(Kind.INT, "30000", least=15_000, most=60_000),
    "share.session.timeout.ms": _SESSION,
    "streams.heartbeat.interval.ms": _HEARTBEAT,
    "streams.initial.rebalance.delay.ms": Setting(Kind.INT, "3000", least=0),
    "streams.num.standby.replicas": Setting(Kind.INT, "0", least=0, most=2),
    "streams.session.timeout.ms": _SESSION,
}


def checked_broker_config(config: Mapping[str, str], fixed: Mapping[str, str]) -> dict[str, str]:
    """Return settings of the broker as they are stored; `fixed` are those that only a start can change."""
    for name in config:
        if name in fixed and name not in BROKER_SETTINGS:
            message = f"{name} cannot be changed while the log runs; it follows from how the log was started"
            raise LogError(ErrorCode.invalid_request, message)
    normal = normal_config(config, BROKER_SETTINGS, "broker", ErrorCode.invalid_request)
    least, most = (normal.get(f"log.cleaner.{end}.compaction.lag.ms") for end in ("min", "max"))
    if most is not None and int(least or 0) > int(most):
        raise LogError(ErrorCode.invalid_request, f"log.cleaner.min.compaction.lag.ms ({least}) is above max ({most})")
    return normal


def checked_group_config(config: Mapping[str, str]) -> dict[str, str]:
    """Return settings of a group as they are stored."""
    return normal_config(config, GROUP_SETTINGS, "group")
