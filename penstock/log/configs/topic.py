"""All topic configs of Kafka 4.2, with its names, types, defaults and ranges; and the internal topics.

The broker stores its own state in internal topics, so their names are reserved and they stay compacted.

Two configs differ. `segment.bytes`: recovery scans one segment, so a smaller default starts faster, and segments may be
smaller than Kafka's 1 MiB. `remote.storage.enable` can only be false: there is no tiered storage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.kafka.compression import CODECS
from penstock.log.configs.definition import LARGEST_LONG, Kind, Setting, normal_config
from penstock.log.errors import ErrorCode, LogError

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
# Both are replayed at the start, and only closed segments are compacted: small segments make it fast.
_COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(8 << 20)}
INTERNAL_TOPICS: Mapping[str, Mapping[str, str]] = {CONSUMER_OFFSETS: _COMPACTED, TRANSACTION_STATE: _COMPACTED}
_DAY = 24 * 3600 * 1000
_FOREVER = str(LARGEST_LONG)
_REPLICA = re.compile(r"\d+:\d+")
_POLICIES = ("compact", "delete")


def refuse_internal(name: str, action: str) -> None:
    """Refuse a client's request to change an internal topic."""
    if name in INTERNAL_TOPICS:
        message = f"cannot {action} {name}: it is an internal topic of the broker, which creates and writes it itself"
        raise LogError(ErrorCode.invalid_topic_exception, message)


def refuse_reserved(name: str) -> None:
    """Refuse a client's topic whose name is, or collides with, that of an internal topic."""
    refuse_internal(name, "create")
    internal = folded(name)
    if internal in INTERNAL_TOPICS:
        message = f"cannot create {name}: it differs only in '.' and '_' from the internal topic {internal}"
        raise LogError(ErrorCode.invalid_topic_exception, message)


def folded(name: str) -> str:
    """Return the name under which Kafka has a topic's metrics, which no two topics share: it has no dots."""
    return name.replace(".", "_")


def check_internal_config(name: str, config: Mapping[str, str]) -> None:
    """Refuse settings under which an internal topic would lose records."""
    if name in INTERNAL_TOPICS and config.get("cleanup.policy") != "compact":
        message = f"{name} is an internal topic: its cleanup.policy stays 'compact', or committed state would expire"
        raise LogError(ErrorCode.invalid_config, message)


def _replicas(value: tuple[str, ...]) -> str | None:
    fits = value == ("*",) or all(_REPLICA.fullmatch(item) for item in value)
    return None if fits else "write * or PARTITION:BROKER,PARTITION:BROKER,..."


def _gzip_level(value: int) -> str | None:
    return None if value == -1 or 1 <= value <= 9 else "it is 1 to 9, or -1 for the default"


def _no_tiers(value: bool) -> str | None:
    return "this log has no tiered storage" if value else None


def _lag(name: str, default: str, least: int = 0) -> Setting:
    return Setting(Kind.LONG, default, least=least, broker=f"log.cleaner.{name}", effect=True)


SETTINGS: dict[str, Setting] = {
    "cleanup.policy": Setting(Kind.LIST, "delete", choices=_POLICIES, broker="log.cleanup.policy", effect=True),
    "compression.gzip.level": Setting(
        Kind.INT, "-1", broker="compression.gzip.level", effect=True, accepts=_gzip_level
    ),
    "compression.lz4.level": Setting(Kind.INT, "9", least=1, most=17, broker="compression.lz4.level", effect=True),
    "compression.type": Setting(
        Kind.STRING, "producer", choices=(*CODECS, "producer"), broker="compression.type", effect=True
    ),
    "compression.zstd.level": Setting(
        Kind.INT, "3", least=-131072, most=22, broker="compression.zstd.level", effect=True
    ),
    "delete.retention.ms": _lag("delete.retention.ms", str(_DAY)),
    "file.delete.delay.ms": Setting(Kind.LONG, "60000", least=0, broker="log.segment.delete.delay.ms"),
    "flush.messages": Setting(Kind.LONG, _FOREVER, least=1, broker="log.flush.interval.messages"),
    "flush.ms": Setting(Kind.LONG, _FOREVER, least=0, broker="log.flush.interval.ms"),
    "follower.replication.throttled.replicas": Setting(Kind.LIST, "", accepts=_replicas),
    "index.interval.bytes": Setting(Kind.INT, "4096", least=0, broker="log.index.interval.bytes"),
    "leader.replication.throttled.replicas": Setting(Kind.LIST, "", accepts=_replicas),
    "local.retention.bytes": Setting(Kind.LONG, "-2", least=-2, broker="log.local.retention.bytes"),
    "local.retention.ms": Setting(Kind.LONG, "-2", least=-2, broker="log.local.retention.ms"),
    "max.compaction.lag.ms": _lag("max.compaction.lag.ms", _FOREVER, least=1),
    "max.message.bytes": Setting(Kind.INT, "1048588", least=0, broker="message.max.bytes", effect=True),
    "message.timestamp.after.max.ms": Setting(
        Kind.LONG, "3600000", least=0, broker="log.message.timestamp.after.max.ms", effect=True
    ),
    "message.timestamp.before.max.ms": Setting(
        Kind.LONG, _FOREVER, least=0, broker="log.message.timestamp.before.max.ms", effect=True
    ),
    "message.timestamp.type": Setting(
        Kind.STRING,
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        broker="log.message.timestamp.type",
        effect=True,
    ),
    "min.cleanable.dirty.ratio": Setting(
        Kind.DOUBLE, "0.5", least=0, most=1, broker="log.cleaner.min.cleanable.ratio", effect=True
    ),
    "min.compaction.lag.ms": _lag("min.compaction.lag.ms", "0"),
    "min.insync.replicas": Setting(Kind.INT, "1", least=1, broker="min.insync.replicas"),
    "preallocate": Setting(Kind.BOOLEAN, "false", broker="log.preallocate"),
    "remote.log.copy.disable": Setting(Kind.BOOLEAN, "false"),
    "remote.log.delete.on.disable": Setting(Kind.BOOLEAN, "false"),
    "remote.storage.enable": Setting(Kind.BOOLEAN, "false", accepts=_no_tiers),
    "retention.bytes": Setting(Kind.LONG, "-1", broker="log.retention.bytes", effect=True),
    "retention.ms": Setting(Kind.LONG, str(7 * _DAY), least=-1, broker="log.retention.ms", effect=True),
    "segment.bytes": Setting(Kind.INT, str(1 << 28), least=1024, broker="log.segment.bytes", effect=True),
    "segment.index.bytes": Setting(Kind.INT, "10485760", least=4, broker="log.index.size.max.bytes"),
    "segment.jitter.ms": Setting(Kind.LONG, "0", least=0, broker="log.roll.jitter.ms"),
    "segment.ms": Setting(Kind.LONG, str(7 * _DAY), least=1, broker="log.roll.ms", effect=True),
    "unclean.leader.election.enable": Setting(Kind.BOOLEAN, "false", broker="unclean.leader.election.enable"),
}


def checked_config(config: Mapping[str, str], topic: str = "") -> dict[str, str]:
    """Validate and normalise topic configs.

    Refuse unknown ones, invalid values, and those that would make an internal topic lose records.
    """
    normal = normal_config(config, SETTINGS, "topic")
    check_internal_config(topic, normal)
    least, most = (int(normal.get(f"{end}.compaction.lag.ms", 0)) for end in ("min", "max"))
    if "max.compaction.lag.ms" in normal and least > most:
        message = f"min.compaction.lag.ms ({least}) is above max.compaction.lag.ms ({most})"
        raise LogError(ErrorCode.invalid_config, message)
    return normal
