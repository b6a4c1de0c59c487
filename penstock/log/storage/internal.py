"""Internal topics: the broker stores its own state in them, so their names are reserved and they stay compacted."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.log.errors import ErrorCode, LogError

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"

# A start replays both, and only closed segments are compacted: small segments keep the start short.
_COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(8 << 20)}
INTERNAL_TOPICS: Mapping[str, Mapping[str, str]] = {CONSUMER_OFFSETS: _COMPACTED, TRANSACTION_STATE: _COMPACTED}


def refuse_internal(name: str, action: str) -> None:
    """Refuse a client's request to change what only the broker may change."""
    if name in INTERNAL_TOPICS:
        message = f"cannot {action} {name}: it is an internal topic of the broker, which creates and writes it itself"
        raise LogError(ErrorCode.invalid_topic_exception, message)


def check_internal_config(name: str, config: Mapping[str, str]) -> None:
    """Refuse settings under which an internal topic would lose records."""
    if name in INTERNAL_TOPICS and config.get("cleanup.policy") != "compact":
        message = f"{name} is an internal topic: its cleanup.policy stays 'compact', or committed state would expire"
        raise LogError(ErrorCode.invalid_config, message)
