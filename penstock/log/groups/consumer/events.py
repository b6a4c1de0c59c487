"""What a consumer group is asked, and what it answers. Times are milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.log.groups.consumer.state import ConsumerGroup, Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A member joins (epoch 0), is alive, leaves (-1), or leaves as a static member that will be back (-2).

    None, and -1 as the rebalance timeout, mean "as before".
    """

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout: int = -1
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as clients do after an error: then the answer does so too."""
        said = self.topics is not None or self.regex is not None
        return self.rebalance_timeout != -1 and said and self.owned is not None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Remove:
    """An administrator removes a member, by its id or its instance id."""

    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a heartbeat; `assignment` is None where the member knows it already."""

    member_id: str
    epoch: int
    heartbeat_interval: int = 0
    assignment: Partitions | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The group after an event, and what to answer."""

    group: ConsumerGroup
    answer: Answer | None = None


Event = Heartbeat | Tick | Remove
