"""What the state of a group has for its aggregates: whole numbers that changes add to, and exact sums of doubles.

Each accumulator takes one column of values, in which null does not count. Its columns of the state are whole numbers
(`ints` of them) or, for sums of doubles, a number as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ExpressionFailed
from penstock.incremental.circuit.exact_sums import (
    UNIT,
    carried,
    doubles_by_group,
    from_bytes,
    half_up,
    limbs_of,
    numbers_of,
    ratio,
    to_decimals,
    to_doubles,
    to_longs,
    valid,
)
from penstock.incremental.circuit.row_identity import Grouping, Numbers
from penstock.plan.checked_operator import OWN_COLUMNS

What = Literal["count", "true", "whole", "decimal", "nan", "inf", "-inf", "double", "square"]
_LIMBS = {"whole": 2, "decimal": 4}
_HINT = (
    "sum a wider type: sum(cast(... as decimal(38,2))); a view that is changed needs a new checkpoint\n"
    "  no row is lost: the epoch is not committed, and the next run reads it again"
)


@dataclass(frozen=True)
class Accumulator:
    """One sum over a group: of the column `source`, kept in the columns `column`, `column`_1, ..."""

    what: What
    source: str
    column: str

    @property
    def ints(self) -> tuple[str, ...]:
        """The columns of whole numbers."""
        if self.what in ("double", "square"):
            return ()
        return tuple(f"{self.column}_{number}" for number in range(_LIMBS.get(self.what, 1)))

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns of exact numbers."""
        return (self.column,) if self.what in ("double", "square") else ()

    def total(self, values: pa.Array | None, weights: Numbers, groups: Grouping) -> list[Numbers] | list[int]:
        """Return the sums of each group, one array for each column of whole numbers; without values those of none."""
        if values is None:
            return [np.zeros(0, np.int64) for _ in self.ints]
        there = valid(values)
        match self.what:
            case "count":
                return [groups.total(np.where(there, weights, 0))]
            case "true":
                return [groups.total(np.where(pc.fill_null(values, False).to_numpy(zero_copy_only=False), weights, 0))]
            case "whole" | "decimal":
                filled = pc.fill_null(values, pa.scalar(Decimal(0) if self.what == "decimal" else 0, values.type))
                limbs = limbs_of(filled, _LIMBS[self.what])
                return [groups.total(np.where(there, limb, 0) * weights) for limb in limbs]
        doubles = pc.fill_null(values, 0.0).cast(pa.float64()).to_numpy(zero_copy_only=False)
        match self.what:
            case "nan":
                return [groups.total(np.where(np.isnan(doubles), weights, 0))]
            case "inf":
                return [groups.total(np.where(doubles == np.inf, weights, 0))]
            case "-inf":
                return [groups.total(np.where(doubles == -np.inf, weights, 0))]
        finite = np.where(np.isfinite(doubles), doubles, 0.0)
        return doubles_by_group(finite, weights, groups, squared=self.what == "square")

    def carried(self, sums: Sequence[Numbers]) -> list[Numbers]:
        """Return the columns of whole numbers in normal form."""
        return carried(sums) if self.what in _LIMBS else list(sums)


Finish = Literal["count", "sum", "avg", "bool_and", "bool_or", "stddev_samp", "stddev_pop", "var_samp", "var_pop"]


@dataclass(frozen=True)
class Result:
    """The value of an aggregate, of accumulators: `parts` has their columns by what they are."""

    name: Finish
    parts: tuple[tuple[What, str], ...]
    type: pa.DataType
    label: str
    scale: int = 0

    def of(self, rows: pa.Table) -> pa.Array:
        """Return the value of each group."""
        columns = dict(self.parts)
        count = _ints(rows, columns["count"], 1)[0]
        match self.name:
            case "count":
                return pa.array(count)
            case "bool_and" | "bool_or":
                true = _ints(rows, columns["true"], 1)[0]
                return pa.array(true == count if self.name == "bool_and" else true > 0, mask=count == 0)
            case "sum":
                return self._sum(rows, columns, count)
            case "avg":
                return self._average(rows, columns, count)
            case _:
                return self._spread(rows, columns, count)

    def _sum(self, rows: pa.Table, columns: dict[What, str], count: Numbers) -> pa.Array:
        if "double" in columns:
            return pa.array(self._doubles(rows, columns), mask=count == 0)
        if "whole" in columns:
            longs, wrong = to_longs(_ints(rows, columns["whole"], 2))
            self._check(rows, wrong)
            return pa.array(longs, mask=count == 0)
        decimals, wrong = to_decimals(_ints(rows, columns["decimal"], 4), self.scale)
        self._check(rows, wrong)
        try:
            fits = decimals.cast(self.type)
        except pa.ArrowInvalid:
            self._check(rows, np.array([not _fits(one, self.type) for one in decimals]))
        return pc.if_else(pa.array(count != 0), fits, pa.scalar(None, self.type))

    def _check(self, rows: pa.Table, wrong: npt.NDArray[np.bool_]) -> None:
        if wrong.any():
            group = rows.slice(int(np.flatnonzero(wrong)[0]), 1).to_pylist()[0]
            keys = {name: value for name, value in group.items() if not name.startswith(OWN_COLUMNS)}
            of = f"the group {keys}" if keys else "all rows"
            kind = "bigint" if self.type == pa.int64() else f"decimal({self.type.precision},{self.type.scale})"
            message = f'"{self.label}" failed on {of}: the sum is out of range for {kind}'
            raise ExpressionFailed(message, hint=_HINT)

    def _average(self, rows: pa.Table, columns: dict[What, str], count: Numbers) -> pa.Array:
        if "double" in columns:
            return pa.array(self._doubles(rows, columns, count), mask=count == 0)
        if "whole" in columns:
            with np.errstate(all="ignore"):
                return pa.array(to_doubles(_ints(rows, columns["whole"], 2)) / count, mask=count == 0)
        sums = numbers_of(_ints(rows, columns["decimal"], 4))
        up = 10 ** (self.type.scale - self.scale)
        found = [half_up(one * up, n) if n else None for one, n in zip(sums, count.tolist(), strict=True)]
        return pa.array([None if one is None else Decimal(one).scaleb(-self.type.scale) for one in found], self.type)

    def _doubles(self, rows: pa.Table, columns: dict[What, str], divisors: Numbers | None = None) -> list[float]:
        exact = map(from_bytes, rows.column(columns["double"]).to_pylist())
        by = [1] * rows.num_rows if divisors is None else divisors.tolist()
        found = [ratio(one, n << UNIT) if n else 0.0 for one, n in zip(exact, by, strict=True)]
        special = [_ints(rows, columns[what], 1)[0] for what in ("nan", "inf", "-inf")]
        if any(one.any() for one in special):
            nan, more, less = (one != 0 for one in special)
            made = np.where(more, np.inf, np.where(less, -np.inf, found))
            return [float(one) for one in np.where(nan | (more & less), np.nan, made)]
        return found

    def _spread(self, rows: pa.Table, columns: dict[What, str], count: Numbers) -> pa.Array:
        """Variances, as ratios of exact numbers."""
        sums = map(from_bytes, rows.column(columns["double"]).to_pylist())
        squares = map(from_bytes, rows.column(columns["square"]).to_pylist())
        special = np.sum([_ints(rows, columns[what], 1)[0] for what in ("nan", "inf", "-inf")], axis=0)
        sample = self.name.endswith("samp")
        found: list[float | None] = []
        for one, square, n, odd in zip(sums, squares, count.tolist(), special.tolist(), strict=True):
            divisor = n - 1 if sample else n
            if divisor <= 0:
                found.append(None)
            elif odd:
                found.append(float("nan"))
            else:
                variance = ratio(n * square - one * one, (n * divisor) << (2 * UNIT))
                found.append(variance**0.5 if self.name.startswith("stddev") else variance)
        return pa.array(found, pa.float64())


def _fits(value: pa.Scalar, kind: pa.DataType) -> bool:
    try:
        value.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _ints(rows: pa.Table, column: str, count: int) -> list[Numbers]:
    return [rows.column(f"{column}_{number}").to_numpy() for number in range(count)]
