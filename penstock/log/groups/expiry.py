from __future__ import annotations

from collections.abc import Iterator

from penstock.log.groups.formats import OffsetKey
from penstock.log.groups.group import Group, State
from penstock.log.groups.offsets import OffsetTable


def expired_offsets(group: Group, offsets: OffsetTable, now: int, retention: int) -> Iterator[OffsetKey]:
    """Yield what nobody needs any more: the offsets of a group long empty, or of topics that it left long ago."""
    if group.state is State.EMPTY:
        used_until = group.since if group.protocol_type else 0
        yield from offsets.expired(group.id, used_until, now, retention)
    elif group.state is State.STABLE and (topics := group.subscribed_topics()) is not None:
        expired = offsets.expired(group.id, 0, now, retention)
        yield from (key for key in expired if key.topic not in topics)


def is_abandoned(group: Group, offsets: OffsetTable) -> bool:
    """Say whether nothing of a group is left but its name."""
    unused = group.state is State.EMPTY and not group.reserved
    return unused and not offsets.of(group.id) and not offsets.has_pending(group.id)
