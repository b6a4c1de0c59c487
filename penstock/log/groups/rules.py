from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupRules:
    """Settings of all groups, in milliseconds; the defaults are Kafka's but for the first.

    A new group waits `initial_delay` for more members before its first generation. Kafka waits 3 s, for many machines
    that are deployed together; on a laptop somebody is looking, and a second rebalance takes milliseconds.
    """

    initial_delay: int = 100
    min_session: int = 6_000
    max_session: int = 30 * 60_000
    offsets_retention: int = 7 * 24 * 3_600_000
    sweep_every: int = 10 * 60_000
    max_metadata_bytes: int = 4096
