"""Which Python values a type without parts holds, and as what Arrow is given them.

`Plain.exact` is the rule. A column whose Python types are all in `Plain.quick` is left to Arrow, which then checks what
a type does not say (ranges, digits); everything else is taken value by value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.schema import spark_type
from penstock.values.misfit import Misfit

# All that Arrow raises for a value that it cannot take.
REFUSED = (pa.ArrowException, ValueError, TypeError, ArithmeticError)
Misfits = dict[int, Misfit]
_NONE = type(None)
_LONGEST_SPAN = 2**63 - 1
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LATEST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


class Wrong(Exception):
    """A value is not of a type; the text says why, where that is not plain from the value."""


@dataclass(frozen=True)
class Plain:
    """A type without parts."""

    arrow: pa.DataType
    exact: Callable[[Any], Any]
    quick: frozenset[type]
    agrees: Callable[[list[Any], pa.Array], bool] | None = None

    @property
    def text(self) -> str:
        """The Spark type."""
        return spark_type(self.arrow)

    def converted(self, column: list[Any]) -> tuple[pa.Array, Misfits]:
        """Return values in Arrow, null for those that do not fit, and these."""
        if {*map(type, column)} <= self.quick:
            try:
                array = pa.array(column, self.arrow)
            except REFUSED:
                return self._one_by_one(column)
            if self.agrees is None or self.agrees(column, array):
                return array, {}
        return self._one_by_one(column)

    def _one_by_one(self, column: list[Any]) -> tuple[pa.Array, Misfits]:
        kept, wrong = self._each(column, self.exact)
        try:
            return pa.array(kept, self.arrow), wrong
        except REFUSED:
            # What no rule foresees; Arrow says which it is.
            kept, more = self._each(kept, lambda value: pa.scalar(value, self.arrow))
            return pa.array(kept, self.arrow), wrong | more

    def _each(self, column: list[Any], take: Callable[[Any], Any]) -> tuple[list[Any], Misfits]:
        kept: list[Any] = [None] * len(column)
        wrong: Misfits = {}
        for number, value in enumerate(column):
            if value is None:
                continue
            try:
                kept[number] = take(value)
            except (Wrong, *REFUSED) as error:
                wrong[number] = Misfit(value, self.text, str(error))
        return kept, wrong


def plain(kind: pa.DataType) -> Plain:
    """Return the rules of a type."""
    if pa.types.is_integer(kind):
        return Plain(kind, partial(_integer, bits=kind.bit_width), _types(int, np.int64, np.int32))
    if pa.types.is_decimal(kind):
        return Plain(kind, partial(_decimal, precision=kind.precision, scale=kind.scale), _types(Decimal, int))
    if kind == pa.float32():
        return Plain(kind, _single, _types(float, int, np.float64, np.float32), _singles_agree)
    if pa.types.is_timestamp(kind):
        return Plain(kind, *((_instant, _types(datetime), _have_zones) if kind.tz else _LOCAL))
    return Plain(kind, *_RULES[kind])


def _types(*kinds: type) -> frozenset[type]:
    return frozenset((*kinds, _NONE))


def _unboxed(value: Any) -> Any:
    """Return a NumPy scalar as the Python value that it holds."""
    return value.item() if isinstance(value, np.generic) else value


# --- numbers ------------------------------------------------------------------------------------


def _integer(value: Any, *, bits: int) -> int:
    value = _unboxed(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Wrong
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        message = "it is out of range"
        raise Wrong(message)
    return int(value)


def _double(value: Any) -> float:
    value = _unboxed(value)
    if isinstance(value, bool) or not isinstance(value, float | int | np.floating):
        raise Wrong
    made = float(value)
    # NaN is not equal to itself, and fits.
    if made != value and value == value:
        message = "no float is equal to it"
        raise Wrong(message)
    return made


def _single(value: Any) -> float:
    double = _double(value)
    with np.errstate(all="ignore"):
        made = float(np.float32(double))
    if np.isfinite(double) and (np.isinf(made) or (made == 0 and double != 0)):
        message = "it is out of range"
        raise Wrong(message)
    if isinstance(_unboxed(value), int) and made != double:
        message = "no float is equal to it"
        raise Wrong(message)
    return made


def _singles_agree(column: list[Any], array: pa.Array) -> bool:
    """Whether no number became infinite or 0."""
    doubles = pa.array(column, pa.float64()).to_numpy(zero_copy_only=False)
    singles = array.to_numpy(zero_copy_only=False)
    return not (np.isfinite(doubles) & (np.isinf(singles) | ((singles == 0) & (doubles != 0)))).any()


def _decimal(value: Any, *, precision: int, scale: int) -> Decimal:
    value = _unboxed(value)
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        raise Wrong
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        raise Wrong
    # As a whole number of the smallest unit: trailing zeros are no digits that could be lost.
    text = "".join(map(str, digits)).lstrip("0")
    unit = exponent + scale
    if unit < 0:
        text, lost = text[:unit], text[unit:]
        if lost.strip("0"):
            message = f"it has more than {scale} digits after the point"
            raise Wrong(message)
    if text and len(text) + max(unit, 0) > precision:
        message = f"it has more than {precision} digits"
        raise Wrong(message)
    whole = (*map(int, text), *([0] * max(unit, 0))) if text else (0,)
    return Decimal((sign, whole, -scale))


# --- text and bytes -----------------------------------------------------------------------------


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise Wrong
    made = str.__str__(value)
    try:
        made.encode()
    except UnicodeEncodeError:
        message = "it has no UTF-8 form"
        raise Wrong(message) from None
    return made


def _binary(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise Wrong
    return bytes(value)


def _boolean(value: Any) -> bool:
    made = _unboxed(value)
    if not isinstance(made, bool):
        raise Wrong
    return made


# --- times --------------------------------------------------------------------------------------


def _instant(value: Any) -> datetime:
    found = _datetime(value)
    if found.utcoffset() is None:
        message = "it has no time zone"
        raise Wrong(message)
    try:
        return found.astimezone(UTC)
    except OverflowError:
        message = "in UTC it is out of range"
        raise Wrong(message) from None


def _local(value: Any) -> datetime:
    if isinstance(value, np.datetime64):
        value = _of_numpy(value, "datetime64[us]", datetime)
    found = _datetime(value)
    if found.tzinfo is not None:
        message = "it has a time zone"
        raise Wrong(message)
    return found


def _datetime(value: Any) -> datetime:
    """Return a plain datetime; one of pandas may have nanoseconds, or be none."""
    # pandas' NaT is a datetime, and not equal to itself.
    if not isinstance(value, datetime) or value != value:
        raise Wrong
    if getattr(value, "nanosecond", 0):
        message = "it has nanoseconds"
        raise Wrong(message)
    plainly = getattr(value, "to_pydatetime", None)
    return plainly() if plainly else value


def _have_zones(column: list[Any], array: pa.Array) -> bool:
    """Whether each has a time zone, for Arrow takes those without for UTC; and whether it is a time of UTC too."""
    given = [value for value in column if value is not None] if array.null_count else column
    if None in {*map(attrgetter("tzinfo"), given)}:
        return False
    found = pc.min_max(array.cast(pa.int64())).as_py()
    return not given or (found["min"] >= _EARLIEST and found["max"] <= _LATEST)


def _have_no_zones(column: list[Any], array: pa.Array) -> bool:
    """Whether none has a time zone; of those that have, Arrow takes the time in UTC."""
    given = [value for value in column if value is not None] if array.null_count else column
    return {*map(attrgetter("tzinfo"), given)} <= {None}


def _date(value: Any) -> date:
    if isinstance(value, np.datetime64) and value.dtype == np.dtype("datetime64[D]"):
        value = _unboxed(value)
    if not isinstance(value, date) or isinstance(value, datetime):
        raise Wrong
    return value


def _span(value: Any) -> timedelta:
    if isinstance(value, np.timedelta64):
        value = _of_numpy(value, "timedelta64[us]", timedelta)
    if not isinstance(value, timedelta) or value != value:
        raise Wrong
    if getattr(value, "nanoseconds", 0):
        message = "it has nanoseconds"
        raise Wrong(message)
    if abs(value // _MICROSECOND) > _LONGEST_SPAN:
        message = "it is out of range"
        raise Wrong(message)
    return timedelta(value.days, value.seconds, value.microseconds)


def _of_numpy(value: Any, unit: str, kind: type) -> Any:
    made = value.astype(unit)
    if np.isnat(value) or made != value or not isinstance(made.item(), kind):
        message = "it has nanoseconds, or is out of range"
        raise Wrong(message)
    return made.item()


def _nothing(value: Any) -> None:
    raise Wrong


_LOCAL = (_local, _types(datetime), _have_no_zones)
_RULES: dict[pa.DataType, tuple[Callable[[Any], Any], frozenset[type]]] = {
    pa.float64(): (_double, _types(float, int, np.float64, np.float32)),
    pa.bool_(): (_boolean, _types(bool, np.bool_)),
    pa.string(): (_string, _types(str)),
    pa.binary(): (_binary, _types(bytes)),
    pa.date32(): (_date, _types(date)),
    pa.duration("us"): (_span, _types(timedelta)),
    pa.null(): (_nothing, _types()),
}
