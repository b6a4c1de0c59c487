"""Which partitions and sources are idle, and the times that are declared for them: pure decisions.

What has to be known of a partition is how far it was read. A source that has no partitions is one, under the name "".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.plan.nodes import EventTime
from penstock.plan.queries import time_key
from penstock.spark.epochs.records import Totals
from penstock.windows import FIRST_US

# Each declared time is a write to the checkpoint, so it is not done in every epoch.
PAUSE_SECONDS = 1.0
Given = Mapping[EventTime, Mapping[str, Hashable]]


@dataclass
class IdleWatch:
    """Decides for one query; it is given what partitions have delivered, and when one looked."""

    times: Sequence[EventTime]
    partitioned: bool = False
    _seen: dict[EventTime, dict[str, tuple[Hashable, float]]] = field(default_factory=dict)
    _idle: dict[EventTime, set[str]] = field(default_factory=dict)
    _declared: dict[EventTime, float] = field(default_factory=dict)

    @property
    def needed(self) -> bool:
        """Whether anything can be left out."""
        several = len(self.times) > 1 or self.partitioned
        return several and any(time.idle_after_us is not None for time in self.times)

    def look(self, given: Given, now: float) -> None:
        """Note how far each partition was read at a moment when all were asked for more."""
        for time in self.times:
            before, parts = self._seen.get(time, {}), given[time]
            self._seen[time] = {
                name: (at, before[name][1]) if name in before and before[name][0] == at else (at, now)
                for name, at in parts.items()
            }
            after = time.idle_after_us
            seen = self._seen[time].items()
            self._idle[time] = {n for n, (_, since) in seen if after is not None and now - since >= after / 1e6}

    def is_idle(self, time: EventTime) -> bool:
        """Say whether all partitions of an event time are idle."""
        return bool(self._idle.get(time)) and len(self._idle[time]) == len(self._seen[time])

    def idle_partitions(self, time: EventTime) -> set[str]:
        """Return the partitions of an event time that are idle."""
        return self._idle.get(time, set())

    def lifts(self, totals: Totals, now: float) -> Iterator[tuple[str, int]]:
        """Yield the times to declare: (key of the event time, microseconds)."""
        others = self._others(totals)
        for time in (time for time in self.times if self._idle.get(time)):
            own = self._reached(time, totals)
            known = [own] if own is not None else []
            if self.is_idle(time) and others is not None:
                known.append(others + time.max_delay_us)
            newest = totals.newest.get(time_key(time), FIRST_US)
            if max(known, default=newest) > newest and now - self._declared.get(time, 0.0) >= PAUSE_SECONDS:
                self._declared[time] = now
                yield time_key(time), max(known)

    def _others(self, totals: Totals) -> int | None:
        """Return the smallest watermark of the event times that are not idle; None if one has none yet."""
        reached = [(time, self._reached(time, totals)) for time in self.times if not self.is_idle(time)]
        known = [at - time.max_delay_us for time, at in reached if at is not None]
        return min(known) if known and len(known) == len(reached) else None

    def _reached(self, time: EventTime, totals: Totals) -> int | None:
        """Return the newest time that an event time has reached without its idle partitions.

        If all are idle, none holds another back: the furthest counts. A partition that gave no time is left out.
        """
        key = time_key(time)
        newest, parts = totals.newest.get(key), totals.partitions.get(key, {})
        idle = self._idle.get(time, set())
        if not parts:
            return newest
        at = min((at for name, at in parts.items() if name not in idle), default=max(parts.values()))
        return at if newest is None else max(at, newest)
