"""Positions in a topic, as users write them: beginning, end, a time or an offset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from penstock.durations import instant
from penstock.errors import BadValue, UnknownSetting

if TYPE_CHECKING:
    from penstock.cli.kafka_client.cluster import Cluster

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Position:
    """The beginning, the end, the first record from a time on (in ms since 1970), or an offset."""

    text: str
    time: int | None = None
    offset: int | None = None


def parse_position(text: str, option: str) -> Position:
    """Parse a position; a time without a zone is refused.

    >>> parse_position("2026-01-01T10:02Z", "--from").time
    1767261720000
    """
    if text in ("beginning", "end"):
        return Position(text)
    if text.isdecimal():
        return Position(text, offset=int(text))
    try:
        time = instant(text, option)
    except BadValue as error:
        if "zone" in error.message:
            raise
        message = f"{option} {text!r} is not a position in a topic"
        hint = 'write beginning, end, an offset such as 42, or a time such as "2026-01-01T10:02:00Z"'
        raise BadValue(message, hint=hint) from None
    # Rounded up: a record in the same millisecond may precede the time.
    return Position(text, time=-((_EPOCH - time) // timedelta(milliseconds=1)))


def resolve_position(
    cluster: Cluster, topic: str, partitions: list[int], position: Position, *, uncommitted: bool = True
) -> dict[int, int]:
    """Return the offset of a position in each partition; an offset out of range is refused."""

    def find(at: Literal["beginning", "end"] | int) -> dict[int, int]:
        found = cluster.offsets([(topic, each) for each in partitions], at, uncommitted=uncommitted)
        return {partition: offset for (_, partition), offset in found.items()}

    if position.text == "beginning":
        return find("beginning")
    ends = find("end")
    if position.time is not None:
        return {
            partition: offset if offset >= 0 else ends[partition] for partition, offset in find(position.time).items()
        }
    if position.offset is None:
        return ends
    starts = find("beginning")
    return {partition: _checked(topic, partition, position.offset, starts, ends) for partition in partitions}


def _checked(topic: str, partition: int, offset: int, starts: Mapping[int, int], ends: Mapping[int, int]) -> int:
    if starts[partition] <= offset <= ends[partition]:
        return offset
    message = f"partition {partition} of '{topic}' has no offset {offset}"
    hint = f"available offsets are {starts[partition]} to {ends[partition]}"
    hint += "; --partition P chooses one partition" if len(ends) > 1 else ""
    raise UnknownSetting(message, hint=hint)
