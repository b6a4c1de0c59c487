"""Quotas: byte rates per user and client id, and the throttle time of clients that exceed them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock.storage.durable_files import JsonFile, damaged_file

FILE_NAME = "quotas.json"
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
KEYS = (PRODUCE, FETCH)
DEFAULT = "<default>"  # every name without a quota of its own, as in Kafka
BURST_SECONDS = 1.0
LONGEST_MS = 30_000
_CACHED = 10_000


class Entity(NamedTuple):
    """Who a quota applies to; None for any, DEFAULT for all without a quota of their own."""

    user: str | None = None
    client_id: str | None = None


@dataclass
class Bucket:
    """A token bucket; below zero the client has to wait."""

    rate: float
    tokens: float
    at: float

    def take(self, size: int, now: float) -> float:
        """Take bytes and return the seconds until the bucket is not negative any more."""
        self.refill(now)
        self.tokens -= size
        return max(0.0, -self.tokens / self.rate)

    def refill(self, now: float) -> None:
        """Add the tokens of the time that has passed."""
        self.tokens = min(self.rate * BURST_SECONDS, self.tokens + self.rate * (now - self.at))
        self.at = now

    @property
    def is_full(self) -> bool:
        """Whether it is full, and can be dropped."""
        return self.tokens >= self.rate * BURST_SECONDS


class Quotas:
    """The quotas of a data folder and their usage. `clock` is monotonic, in seconds."""

    def __init__(self, data: Path, clock: Callable[[], float]) -> None:
        self._file = JsonFile(data / FILE_NAME)
        self._clock = clock
        self._buckets: dict[tuple[str, Entity], Bucket] = {}
        self._chosen: dict[tuple[str, str, str], Bucket | None] = {}
        self.rules = self._load()

    def charge(self, key: str, principal: str, client_id: str, size: int) -> int:
        """Count bytes that a client sent or received.

        Return the throttle time in milliseconds, for which its connection is muted.
        """
        if not self.rules:
            return 0
        chosen = (key, principal, client_id)
        bucket = self._chosen[chosen] if chosen in self._chosen else self._choose(chosen)
        return min(LONGEST_MS, round(1000 * bucket.take(size, self._clock()))) if bucket else 0

    @property
    def tracked(self) -> int:
        """How many clients and buckets are in memory."""
        return len(self._chosen) + len(self._buckets)

    def change(self, entity: Entity, rates: Mapping[str, float | None]) -> None:
        """Set rates of an entity, and remove those that are None."""
        kept = {**self.rules.get(entity, {}), **rates}
        rule = {key: rate for key, rate in kept.items() if rate is not None}
        rules = {**self.rules, entity: rule}
        self._store({each: rates for each, rates in rules.items() if rates})

    def _choose(self, chosen: tuple[str, str, str]) -> Bucket | None:
        key, principal, client_id = chosen
        self._forget()
        found = choose_rule(self.rules, key, principal.removeprefix("User:"), client_id)
        self._chosen[chosen] = bucket = self._bucket(key, *found) if found else None
        return bucket

    def _bucket(self, key: str, owner: Entity, rate: float) -> Bucket:
        new = Bucket(rate, rate * BURST_SECONDS, self._clock())
        return self._buckets.setdefault((key, owner), new)

    def _forget(self) -> None:
        """Limit the number of cached clients, who choose their client ids; buckets below zero are kept."""
        if len(self._chosen) < _CACHED:
            return
        self._chosen.clear()
        for bucket in self._buckets.values():
            bucket.refill(self._clock())
        self._buckets = {owner: bucket for owner, bucket in self._buckets.items() if not bucket.is_full}

    def _store(self, rules: dict[Entity, dict[str, float]]) -> None:
        self._file.write({"version": 1, "quotas": [{**each._asdict(), "rates": rules[each]} for each in rules]})
        self.rules = rules
        self._buckets.clear()
        self._chosen.clear()

    def _load(self) -> dict[Entity, dict[str, float]]:
        kept = self._file.read()
        try:
            return {Entity(each["user"], each["client_id"]): each["rates"] for each in kept.get("quotas", [])}
        except (AttributeError, KeyError, TypeError) as error:
            raise damaged_file(self._file.path, f"no quotas can be read from it ({type(error).__name__})") from None


def choose_rule(
    rules: Mapping[Entity, Mapping[str, float]], key: str, user: str, client_id: str
) -> tuple[Entity, float] | None:
    """Return the entity that a client is counted under, and its rate: the first match in Kafka's order."""
    for named_user in (user, DEFAULT, None):
        for named_client in (client_id, DEFAULT, None):
            rate = rules.get(Entity(named_user, named_client), {}).get(key)
            if rate is not None:
                owner = Entity(user if named_user else None, client_id if named_client else None)
                return owner, rate
    return None
