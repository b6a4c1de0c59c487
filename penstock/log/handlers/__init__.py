"""What each request does: one file per family."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from penstock.log.calls import Call
from penstock.log.handlers import (
    cluster,
    config_lists,
    configs,
    consumer_groups,
    fetch,
    groups,
    metadata,
    offsets,
    positions,
    produce,
    security,
    topic_pages,
    topics,
    transactions,
)
from penstock.log.protocol.messages import Fields

Handler = Callable[[Call, Any], Coroutine[Any, Any, Fields]]

# Read from the bytes and answered without a task of their own.
HOT: dict[str, Callable[[Call, memoryview, int], None]] = {"produce": produce.produce, "fetch": fetch.fetch}
COROUTINES: dict[str, Handler] = {
    **cluster.HANDLERS,
    **config_lists.HANDLERS,
    **configs.HANDLERS,
    **consumer_groups.HANDLERS,
    **groups.HANDLERS,
    **metadata.HANDLERS,
    **offsets.HANDLERS,
    **positions.HANDLERS,
    **security.HANDLERS,
    **topic_pages.HANDLERS,
    **topics.HANDLERS,
    **transactions.HANDLERS,
}
