"""Views: all operators of a relation in one call per bucket and epoch, so that an epoch is one consistent version.

Where the relation cannot be divided, the rows of all streams come to one bucket.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.incremental.circuit.circuit import Circuit
from penstock.incremental.circuit.state import Arrangement
from penstock.incremental.view_changes import named_changes
from penstock.incremental.view_contents import CONTENTS, contents_of
from penstock.incremental.view_expiry import Expiry
from penstock.keyed.store.store_set import StoreSet
from penstock.plan.operators.views import CHANGE, EXPIRED, MaintainView
from penstock.plan.relations import Latest, Relation
from penstock.schema import Field, Schema
from penstock.spark.lowering.buckets import Invocation, StreamRows, bucketed_streams
from penstock.spark.lowering.context import Context, column
from penstock.spark.lowering.lower import lower
from penstock.spark.lowering.partitioning import with_order
from penstock.spark.tasks.internal_columns import EVENT_TIME, ORDER
from penstock.spark.tasks.spark_types import schema_of


@lower.register
def _view(node: MaintainView, context: Context, *frames: DataFrame) -> DataFrame:
    output = Schema((*node.schema.fields, Field(ORDER, "bigint")))
    step = ViewStep.of(node)
    opened = partial(StoreSet.of, stores=step.circuit.stores + 1)
    streams = [_stream(node, number, frame, context) for number, frame in enumerate(frames)]
    return bucketed_streams(streams, step, output, context, node, opened)


def _stream(node: MaintainView, number: int, frame: DataFrame, context: Context) -> StreamRows:
    """Return the rows of a stream; equal keys of different streams have equal types, and so equal hashes."""
    packed = context.packed_rows(node, number)
    if packed is not None:
        return StreamRows(frame, packed)
    if node.over_all_time:
        frame = with_order(frame, node.streams[number])
    internal = (ORDER,) if node.over_all_time else (ORDER, EVENT_TIME)
    names = [name for name in frame.columns if name in node.streams[number].schema or name in internal]
    rows = frame.select(*map(column, names))
    return StreamRows(rows, schema_of(rows), [column(name) for name in node.divided_by(number)])


@dataclass(frozen=True)
class ViewStep:
    """What a task does with a bucket: runs the circuit on the rows that came and on those that have expired.

    The contents of the view are one more store.
    """

    circuit: Circuit
    names: tuple[str, ...]
    replaces: tuple[str, ...] | None
    contents: Arrangement
    expiries: tuple[Expiry | None, ...]

    @classmethod
    def of(cls, node: MaintainView) -> ViewStep:
        """Return the step of a node."""
        circuit = Circuit(node.relation, append_only=node.names)
        ttls = node.ttls or (None,) * len(node.streams)
        expiries = tuple(
            None if ttl is None else Expiry(number, _key_of(node.relation, name), ttl, EXPIRED)
            for number, (name, ttl) in enumerate(zip(node.names, ttls, strict=True), CONTENTS + 1)
        )
        return cls(circuit, node.names, node.replaces, contents_of(node.relation), expiries)

    @property
    def expires_by_watermark(self) -> bool:
        """Its own stores decide when it is called."""
        return False

    def __call__(self, call: Invocation) -> Iterator[pa.Table]:
        """Change the state, and yield the changes of the view."""
        state = call.store
        given = {}
        for name, expiry, rows in zip(self.names, self.expiries, call.streams, strict=True):
            if expiry is None:
                given[name] = _without(rows, (ORDER, EVENT_TIME))
                continue
            given[name], left_out = expiry.expired_and(
                _without(rows, (ORDER,)), EVENT_TIME, state, call.watermark_us, ended=call.ended
            )
            call.filtered += left_out
        changes = self.circuit.step(given, state)
        call.next_event_timer_us = min(
            (at for one in self.expiries if one is not None and (at := one.next_due(state)) is not None), default=None
        )
        if changes.num_rows:
            self.contents.add(state, changes, self.contents.hashes(changes))
            yield named_changes(changes, self.replaces, CHANGE, ORDER)


def _without(rows: pa.Table, names: tuple[str, ...]) -> pa.Table:
    there = [name for name in names if name in rows.column_names]
    return rows.drop_columns(there) if there else rows


def _key_of(relation: Relation, name: str) -> tuple[str, ...]:
    """Return the key of the rows of an input that expire."""
    found = (one for one in relation.operators if isinstance(one, Latest))
    return next(one.key for one in found if getattr(one.input, "name", None) == name)
