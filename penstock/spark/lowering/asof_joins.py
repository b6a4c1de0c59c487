"""As-of joins: each left row is joined with the latest right row of its key that has the same time or an earlier one.

Rows of both sides wait in one bucket of keys. A left row leaves when the watermark has passed its time; of the right
rows older than the watermark only the newest of each key stays. All of it is sorting and searching whole columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.keyed.store.groups import NEVER
from penstock.keyed.table_steps import KeyedTables, TableCall
from penstock.plan.operators.joins import LATE, JoinAsof
from penstock.schema import Schema
from penstock.spark.lowering.buckets import bucketed_results
from penstock.spark.lowering.context import Context, column
from penstock.spark.lowering.lower import lower
from penstock.spark.lowering.side_outputs import divert_late_rows
from penstock.spark.tasks.internal_columns import EVENT_TIME, ORDER, PREFIX
from penstock.values.state_tables import StateTable

LEFT, RIGHT, IS_LEFT = (PREFIX + name for name in ("left", "right", "is_left"))
Numbers = npt.NDArray[np.int64]


@lower.register
def _join_asof(node: JoinAsof, context: Context, left: DataFrame, right: DataFrame) -> DataFrame:
    left, right = (
        divert_late_rows(frame, node, context, side) for frame, side in zip((left, right), LATE, strict=True)
    )
    paired = node.paired
    keys = tuple(key for key, _ in node.on)
    carried = [EVENT_TIME, *([ORDER] if ORDER in left.columns and ORDER in right.columns else [])]
    mine = _side(left, keys, [name for name in paired.left.names if name not in keys], carried, is_left=True)
    other = _side(right, tuple(key for _, key in node.on), list(paired.rest), carried, is_left=False)
    # Each side has a null column of the other's type.
    both = mine.withColumn(RIGHT, _null_like(other, RIGHT)).unionByName(other.withColumn(LEFT, _null_like(mine, LEFT)))
    step = AsofStep(keys, tuple(paired.rest.items()), node.schema, node.how == "inner", node.max_age_us)
    names = tuple(key_column(number) for number in range(len(keys)))
    tables = KeyedTables(step, names, names, expires_by_watermark=node.max_age_us is not None)
    return bucketed_results(both, [column(name) for name in names], tables, node.schema, context, node)


def _side(frame: DataFrame, keys: tuple[str, ...], names: list[str], carried: list[str], *, is_left: bool) -> DataFrame:
    parts = [column(name).alias(key_column(number)) for number, name in enumerate(keys)]
    # A struct is never empty: a side without further columns has a constant one.
    rest = F.struct(*(column(name) for name in names), *([] if names else [F.lit(True).alias("here")]))
    row = rest.alias(LEFT if is_left else RIGHT)
    return frame.select(*parts, row, F.lit(is_left).alias(IS_LEFT), *map(column, carried))


def _null_like(frame: DataFrame, name: str) -> Column:
    return F.lit(None).cast(frame.schema[name].dataType)


def key_column(number: int) -> str:
    """Return the column of a key, whatever either side calls it."""
    return f"{PREFIX}k{number}"


@dataclass(frozen=True)
class AsofStep:
    """What a task does with a bucket; `rest` are the right's columns and what results call them."""

    keys: tuple[str, ...]
    rest: tuple[tuple[str, str], ...]
    output: Schema
    inner: bool
    max_age_us: int | None

    def __call__(self, call: TableCall) -> Iterator[pa.Table]:
        """Join what is due, and store what may still match."""
        new = call.rows.drop_columns([ORDER]) if ORDER in call.rows.column_names else call.rows
        old = None if call.state is None else call.state[0].rows.select(new.schema.names).cast(new.schema)
        rows = pa.concat_tables([new.slice(0, 0) if old is None else old, new]).combine_chunks()
        sides = _Sides(rows, len(self.keys))
        due = sides.is_left & (sides.times < call.watermark_us)
        if due.any():
            yield self._results(sides, np.flatnonzero(due))
        kept = sides.kept(call.watermark_us, self.max_age_us)
        call.state = (self._state(sides, kept),) if kept.any() else None

    def _state(self, sides: _Sides, kept: npt.NDArray[np.bool_]) -> StateTable:
        """Return rows to store: left ones wait for the watermark, right ones stay until they are too old."""
        times, is_left = sides.times[kept], sides.is_left[kept]
        waiting = np.where(is_left, times + 1, NEVER)
        old_at = None if self.max_age_us is None else np.where(is_left, NEVER, times + self.max_age_us + 1)
        return StateTable(sides.rows.filter(pa.array(kept)), event=waiting, expires=old_at)

    def _results(self, sides: _Sides, indices: Numbers) -> pa.Table:
        met, found = sides.before(indices, self.max_age_us)
        if self.inner:
            indices, met, found = indices[found], met[found], found[found]
        lefts = sides.rows.take(pa.array(indices))
        rights = sides.rows.column(RIGHT).combine_chunks().take(pa.array(met, mask=~found))
        rest = {new: pc.struct_field(rights, [old]) for old, new in self.rest}
        mine = lefts.column(LEFT).combine_chunks()
        columns = {
            name: lefts.column(key_column(self.keys.index(name))) if name in self.keys else _field(mine, name)
            for name in self.output.names
            if name not in rest
        }
        made = {**columns, **rest, EVENT_TIME: lefts.column(EVENT_TIME)}
        return pa.table({name: made[name] for name in (*self.output.names, EVENT_TIME)})


class _Sides:
    """The rows of a bucket by key and time, right rows first at the same time; equal ones as they came."""

    def __init__(self, rows: pa.Table, keys: int) -> None:
        codes, known = _codes(rows, keys)
        times = rows.column(EVENT_TIME).cast(pa.int64()).to_numpy()
        is_left = rows.column(IS_LEFT).to_numpy(zero_copy_only=False)
        order = np.lexsort((is_left, times, codes))
        self.rows = rows.take(pa.array(order))
        self.codes, self.known = codes[order], known[order]
        self.times, self.is_left = times[order], is_left[order]

    def before(self, indices: Numbers, max_age_us: int | None) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Return for left rows the index of the right row that each matches, and whether there is one."""
        last = np.maximum.accumulate(np.where(self.is_left, -1, np.arange(len(self.times))))[indices]
        found = (last >= 0) & (self.codes[last] == self.codes[indices]) & self.known[indices]
        if max_age_us is not None:
            found &= self.times[indices] - self.times[last] <= max_age_us
        return np.where(found, last, 0), found

    def kept(self, watermark_us: int, max_age_us: int | None) -> npt.NDArray[np.bool_]:
        """Say which rows may still match."""
        early = self.times < watermark_us
        held = ~self.is_left & early
        newest = held & ~_followed(held, self.codes)
        if max_age_us is not None:
            newest &= self.times >= watermark_us - max_age_us
        kept: npt.NDArray[np.bool_] = np.where(early, newest, True) & (self.is_left | self.known)
        return kept


def _followed(held: npt.NDArray[np.bool_], codes: Numbers) -> npt.NDArray[np.bool_]:
    """Say of each index whether a held row of the same key comes after it."""
    indices = np.where(held, np.arange(len(held)), -1)
    last = np.full(int(codes.max(initial=-1)) + 1, -1)
    np.maximum.at(last, codes, indices)
    return last[codes] > np.arange(len(held))


def _codes(rows: pa.Table, keys: int) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Number the keys, and say of each row whether all of its key is there: null equals nothing."""
    codes: Numbers = np.zeros(rows.num_rows, np.int64)
    known = np.ones(rows.num_rows, bool)
    for number in range(keys):
        values = rows.column(key_column(number)).combine_chunks()
        encoded = values.dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
        known &= values.is_valid().to_numpy(zero_copy_only=False)
    return codes, known


def _field(rows: pa.StructArray, name: str) -> pa.Array:
    return pc.struct_field(rows, [name])
