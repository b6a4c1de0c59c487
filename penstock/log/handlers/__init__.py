"""The request handlers, one module per family of requests; `COROUTINES` and `HOT` are the dispatch tables."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from penstock.log.handlers import (
    acls,
    authentication,
    configs,
    consumer_groups,
    fetch,
    groups,
    list_offsets,
    metadata,
    offsets,
    produce,
    quotas,
    topics,
    transactions,
)
from penstock.log.protocol.messages import Fields
from penstock.log.request_context import Call

Handler = Callable[[Call, Any], Coroutine[Any, Any, Fields]]

# The hot path: decoded from the bytes by hand, and answered without a task of their own.
HOT: dict[str, Callable[[Call, memoryview, int], None]] = {"produce": produce.produce, "fetch": fetch.fetch}
COROUTINES: dict[str, Handler] = {
    **acls.HANDLERS,
    **authentication.HANDLERS,
    **configs.HANDLERS,
    **consumer_groups.HANDLERS,
    **groups.HANDLERS,
    **list_offsets.HANDLERS,
    **metadata.HANDLERS,
    **offsets.HANDLERS,
    **quotas.HANDLERS,
    **topics.HANDLERS,
    **transactions.HANDLERS,
}
