"""The callback sink: calls a Python function with the rows of each epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from penstock.connectors.sinks.collect import from_ipc, to_ipc
from penstock.contracts import Epoch, Sink
from penstock.errors import BadFunction, SinkFailed
from penstock.signatures import check_call


class CallbackSink(Sink):
    """Calls a function in the driver with each epoch's rows; it is not called for an epoch without rows.

    Guarantee: at least once; a function that writes exactly once keeps `epoch.id` next to what it writes.
    """

    guarantee = "at_least_once"
    updates = True

    def __init__(self, fn: Callable[[Epoch, pa.Table], None]) -> None:
        given: object = fn
        if not callable(given):
            message = f"{fn!r} is not a function"
            raise BadFunction(message, node="callback", hint="pass a function of (epoch, table)")
        check_call(fn, ("epoch", "table"), "callback")
        self._function = fn
        self._label = getattr(fn, "__qualname__", repr(fn))
        self.name = getattr(fn, "__name__", type(fn).__name__).strip("<>")

    def prepare(self, epoch: Epoch, partition: int, batches: Iterable[pa.RecordBatch]) -> bytes:
        """Return the rows themselves as the token."""
        return to_ipc(batches)

    def commit(self, epoch: Epoch, tokens: Sequence[Any]) -> None:
        """Call the function."""
        batches = [batch for token in tokens for batch in from_ipc(token)]
        if not any(batch.num_rows for batch in batches):
            return
        table = pa.Table.from_batches(batches)
        try:
            self._function(epoch, table)
        except Exception as error:  # user code may raise anything
            message = f"the function {self._label} failed on epoch {epoch.number}: {error!r}"
            hint = "fix it, and run the job again: the epoch is repeated"
            raise SinkFailed(message, node=self.name, hint=hint) from error

    def __getstate__(self) -> dict[str, Any]:
        # The function may not be picklable, and no task calls it.
        return self.__dict__ | {"_function": None}
