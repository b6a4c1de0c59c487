from __future__ import annotations

from dataclasses import dataclass, field

from penstock.log.groups.consumer.state import ConsumerSettings


@dataclass(frozen=True, slots=True)
class GroupRules:
    """Settings of all groups, in milliseconds; the defaults are Kafka's but for the first.

    A new group waits `initial_delay` for more members before its first generation. Kafka waits 3 s, for many machines
    that are deployed together, and so does `penstock log serve`; inside another process somebody is looking, and a
    second rebalance takes milliseconds.
    """

    initial_delay: int = 100
    min_session: int = 6_000
    max_session: int = 30 * 60_000
    offsets_retention: int = 7 * 24 * 3_600_000
    sweep_every: int = 10 * 60_000
    max_metadata_bytes: int = 4096
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)  # groups of the new protocol

    def described(self) -> dict[str, str]:
        """Return those that a start can choose, under Kafka's names."""
        numbers = {
            "group.consumer.heartbeat.interval.ms": self.consumer.heartbeat_interval,
            "group.consumer.session.timeout.ms": self.consumer.session_timeout,
            "group.initial.rebalance.delay.ms": self.initial_delay,
            "group.max.session.timeout.ms": self.max_session,
            "group.min.session.timeout.ms": self.min_session,
        }
        # Members of both protocols cannot be in one group.
        policy = {"group.consumer.migration.policy": "disabled"}
        return policy | {name: str(number) for name, number in numbers.items()}
