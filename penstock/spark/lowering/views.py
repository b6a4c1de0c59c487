"""Views: all operators of a relation in one call per bucket and epoch, so that an epoch is one consistent version.

Rows of several streams come to a bucket in one table, with a column for each stream. Where the relation cannot be
divided, all of them come to bucket 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.incremental.circuit.circuit import Circuit
from penstock.incremental.circuit.state import Arrangement
from penstock.incremental.view_changes import named_changes
from penstock.incremental.view_contents import CONTENTS, contents_of
from penstock.incremental.view_expiry import Expiry
from penstock.keyed.store.store_set import StoreSet
from penstock.plan.operators.view_partitioning import OneBucket
from penstock.plan.operators.views import CHANGE, EXPIRED, MaintainView
from penstock.plan.relations import Latest, Relation
from penstock.schema import Field, Schema
from penstock.spark.lowering.buckets import Invocation, bucketed
from penstock.spark.lowering.context import Context, column
from penstock.spark.lowering.lower import lower
from penstock.spark.tasks.internal_columns import EVENT_TIME, ORDER, PREFIX

_DIVIDED_BY = PREFIX + "divided_by"
_STREAM = PREFIX + "stream"


@lower.register
def _view(node: MaintainView, context: Context, *frames: DataFrame) -> DataFrame:
    output = Schema((*node.schema.fields, Field(ORDER, "bigint")))
    step = ViewStep.of(node)
    if len(frames) == 1:
        given, by = frames[0], [column(name) for name in node.state_keys]
        given = given if node in context.packed else _carried(given, node)
    else:
        given, by = _united(node, frames), [column(_DIVIDED_BY)]
    opened = partial(StoreSet.of, stores=step.circuit.stores + 1)
    made = bucketed(given, by, step, output, context, node, timed=False, opened=opened)
    return context.counted(made, node)


def _carried(frame: DataFrame, node: MaintainView) -> DataFrame:
    names = [name for name in frame.columns if name in node.streams[0].schema.names or name in _internal(node, frame)]
    return frame.select(*map(column, names))


def _internal(node: MaintainView, frame: DataFrame) -> list[str]:
    times = [] if node.over_all_time else [EVENT_TIME]
    return [name for name in (ORDER, *times) if name in frame.columns]


def _united(node: MaintainView, frames: tuple[DataFrame, ...]) -> DataFrame:
    """Return the rows of all streams: those of each in a column of its own, which is null in the others."""
    ordered = any(ORDER in frame.columns for frame in frames)
    timed = not node.over_all_time
    kinds = [frame.select(_row(node, number)).schema[0].dataType for number, frame in enumerate(frames)]
    parts = []
    for number, frame in enumerate(frames):
        others = (F.lit(None).cast(kind).alias(_column(i)) for i, kind in enumerate(kinds) if i != number)
        order = [column(ORDER) if ORDER in frame.columns else F.lit(0).cast("bigint").alias(ORDER)] if ordered else []
        no_time = F.lit(None).cast("timestamp").alias(EVENT_TIME)
        time = [column(EVENT_TIME) if EVENT_TIME in frame.columns else no_time] if timed else []
        parts.append(frame.select(_divided_by(node, number), _row(node, number), *others, *order, *time))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return whole


def _row(node: MaintainView, number: int) -> Column:
    return F.struct(*map(column, node.streams[number].schema.names)).alias(_column(number))


def _column(number: int) -> str:
    return f"{_STREAM}{number}"


def _divided_by(node: MaintainView, number: int) -> Column:
    """Return what decides the bucket: equal keys of different streams have equal types, and so equal hashes."""
    division = node.division
    if isinstance(division, OneBucket):
        return F.lit(0).cast("bigint").alias(_DIVIDED_BY)
    return F.xxhash64(*map(column, division[node.names[number]])).alias(_DIVIDED_BY)


@dataclass(frozen=True)
class ViewStep:
    """What a task does with a bucket: runs the circuit on the rows that came and on those that have expired.

    `single` is whether rows of the one stream come as they are. The contents of the view are one more store.
    """

    circuit: Circuit
    names: tuple[str, ...]
    single: bool
    replaces: tuple[str, ...] | None
    contents: Arrangement
    expiries: tuple[Expiry | None, ...]

    @classmethod
    def of(cls, node: MaintainView) -> ViewStep:
        """Return the step of a node."""
        circuit = Circuit(node.relation)
        ttls = node.ttls or (None,) * len(node.streams)
        expiries = tuple(
            None if ttl is None else Expiry(number, _key_of(node.relation, name), ttl, EXPIRED)
            for number, (name, ttl) in enumerate(zip(node.names, ttls, strict=True), CONTENTS + 1)
        )
        return cls(circuit, node.names, len(node.streams) == 1, node.replaces, contents_of(node.relation), expiries)

    @property
    def expires_by_watermark(self) -> bool:
        """Its own stores decide when it is called."""
        return False

    def __call__(self, call: Invocation) -> Iterator[pa.Table]:
        """Change the state, and yield the changes of the view."""
        state = call.store
        given = {}
        for number, (name, expiry) in enumerate(zip(self.names, self.expiries, strict=True)):
            rows = self._rows(call.rows, number)
            if expiry is not None:
                rows, left_out = expiry.expired_and(rows, EVENT_TIME, state, call.watermark_us, ended=call.ended)
                call.filtered += left_out
            elif EVENT_TIME in rows.column_names:
                rows = rows.drop_columns([EVENT_TIME])
            given[name] = rows
        changes = self.circuit.step(given, state)
        call.next_event_timer_us = min(
            (at for one in self.expiries if one is not None and (at := one.next_due(state)) is not None), default=None
        )
        if changes.num_rows:
            self.contents.add(state, changes, self.contents.hashes(changes))
            yield named_changes(changes, self.replaces, CHANGE, ORDER)

    def _rows(self, rows: pa.Table, number: int) -> pa.Table:
        """Return the rows of a stream, in their order."""
        if self.single:
            return rows.drop_columns([ORDER]) if ORDER in rows.column_names else rows
        mine = rows.filter(pc.is_valid(rows.column(_column(number))))
        flat = pa.Table.from_struct_array(mine.column(_column(number)))
        return flat.append_column(EVENT_TIME, mine.column(EVENT_TIME)) if EVENT_TIME in mine.column_names else flat


def _key_of(relation: Relation, name: str) -> tuple[str, ...]:
    """Return the key of the rows of an input that expire."""
    found = (one for one in relation.operators if isinstance(one, Latest))
    return next(one.key for one in found if getattr(one.input, "name", None) == name)
