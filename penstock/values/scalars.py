"""Python values of scalar types, converted to Arrow without loss.

`ScalarType.exact` is the rule. A column whose Python types are all in `ScalarType.quick` is left to Arrow, which then
checks ranges and digits; everything else is converted value by value.
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

_LONGEST = 200
# The errors of Arrow for a value that it cannot convert.
REFUSED = (pa.ArrowException, ValueError, TypeError, ArithmeticError)
_NONE = type(None)
_LONGEST_SPAN = 2**63 - 1
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LATEST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


class Misfit(ValueError):
    """A Python value that a declared type cannot represent exactly; `path` leads to it from the row.

    >>> Misfit(3.7, "bigint").within(2).within("sizes").text
    "column 'sizes[2]' is bigint, and was given 3.7 (float)"

    `what` is called by another name where there is no column.
    """

    what = "the row"

    def __init__(self, value: Any, kind: str, why: str = "") -> None:
        super().__init__(value, kind, why)
        self.shown, self.kind, self.why = shown(value), kind, why
        self.path: tuple[str | int, ...] = ()

    def within(self, part: str | int) -> Misfit:
        """Return it as part of a column, of an array or of a map."""
        self.path = (part, *self.path)
        return self

    def without(self, parts: int) -> Misfit:
        """Return it without the first parts of its path."""
        self.path = self.path[parts:]
        return self

    @property
    def location(self) -> str:
        """The column, and the position in it."""
        first, *rest = self.path or ("",)
        return str(first) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)

    @property
    def text(self) -> str:
        """Return which column, its type and the value."""
        where = f"column '{self.location}'" if self.path else self.what
        return f"{where} is {self.kind}, and was given {self.shown}" + (f": {self.why}" if self.why else "")

    def __str__(self) -> str:
        return self.text


def shown(value: Any) -> str:
    """Return a value and its type, short enough for a message."""
    try:
        text = repr(value)
    except Exception:  # repr() may be user code
        text = "a value whose repr() fails"
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}..."
    return text if value is None else f"{text} ({type(value).__name__})"


Misfits = dict[int, Misfit]


class InvalidValue(Exception):
    """A value is not of a type; the message is the reason, unless it is obvious."""


@dataclass(frozen=True)
class ScalarType:
    """The rules of a scalar type."""

    arrow: pa.DataType
    exact: Callable[[Any], Any]
    quick: frozenset[type]
    agrees: Callable[[list[Any], pa.Array], bool] | None = None

    @property
    def text(self) -> str:
        """The Spark type."""
        return spark_type(self.arrow)

    def converted(self, column: list[Any]) -> tuple[pa.Array, Misfits]:
        """Return values as an Arrow array, null for those that do not fit, and the misfits."""
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
            # Not covered by a rule; Arrow reports which value it is.
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
            except (InvalidValue, *REFUSED) as error:
                wrong[number] = Misfit(value, self.text, str(error))
        return kept, wrong


def plain(kind: pa.DataType) -> ScalarType:
    """Return the rules of a type."""
    if pa.types.is_integer(kind):
        return ScalarType(kind, partial(_integer, bits=kind.bit_width), _types(int, np.int64, np.int32))
    if pa.types.is_decimal(kind):
        return ScalarType(kind, partial(_decimal, precision=kind.precision, scale=kind.scale), _types(Decimal, int))
    if kind == pa.float32():
        return ScalarType(kind, _single, _types(float, int, np.float64, np.float32), _singles_agree)
    if pa.types.is_timestamp(kind):
        return ScalarType(kind, *((_instant, _types(datetime), _have_zones) if kind.tz else _LOCAL))
    return ScalarType(kind, *_RULES[kind])


def _types(*kinds: type) -> frozenset[type]:
    return frozenset((*kinds, _NONE))


def _unboxed(value: Any) -> Any:
    """Return a NumPy scalar as the Python value that it contains."""
    return value.item() if isinstance(value, np.generic) else value


# --- numbers ------------------------------------------------------------------------------------
def _integer(value: Any, *, bits: int) -> int:
    value = _unboxed(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        message = "it is out of range"
        raise InvalidValue(message)
    return int(value)


def _double(value: Any) -> float:
    value = _unboxed(value)
    if isinstance(value, bool) or not isinstance(value, float | int | np.floating):
        raise InvalidValue
    made = float(value)
    # NaN is not equal to itself, and fits.
    if made != value and value == value:
        message = "no float is equal to it"
        raise InvalidValue(message)
    return made


def _single(value: Any) -> float:
    double = _double(value)
    with np.errstate(all="ignore"):
        made = float(np.float32(double))
    if np.isfinite(double) and (np.isinf(made) or (made == 0 and double != 0)):
        message = "it is out of range"
        raise InvalidValue(message)
    if isinstance(_unboxed(value), int) and made != double:
        message = "no float is equal to it"
        raise InvalidValue(message)
    return made


def _singles_agree(column: list[Any], array: pa.Array) -> bool:
    """Whether no number became infinite or 0."""
    doubles = pa.array(column, pa.float64()).to_numpy(zero_copy_only=False)
    singles = array.to_numpy(zero_copy_only=False)
    return not (np.isfinite(doubles) & (np.isinf(singles) | ((singles == 0) & (doubles != 0)))).any()


def _decimal(value: Any, *, precision: int, scale: int) -> Decimal:
    value = _unboxed(value)
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        raise InvalidValue
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        raise InvalidValue
    # As an integer of the smallest unit: trailing zeros are not digits that could be lost.
    text = "".join(map(str, digits)).lstrip("0")
    unit = exponent + scale
    if unit < 0:
        text, lost = text[:unit], text[unit:]
        if lost.strip("0"):
            message = f"it has more than {scale} digits after the point"
            raise InvalidValue(message)
    if text and len(text) + max(unit, 0) > precision:
        message = f"it has more than {precision} digits"
        raise InvalidValue(message)
    whole = (*map(int, text), *([0] * max(unit, 0))) if text else (0,)
    return Decimal((sign, whole, -scale))


# --- text and bytes -----------------------------------------------------------------------------
def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidValue
    made = str.__str__(value)
    try:
        made.encode()
    except UnicodeEncodeError:
        message = "it has no UTF-8 form"
        raise InvalidValue(message) from None
    return made


def _binary(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidValue
    return bytes(value)


def _boolean(value: Any) -> bool:
    made = _unboxed(value)
    if not isinstance(made, bool):
        raise InvalidValue
    return made


# --- times --------------------------------------------------------------------------------------
def _instant(value: Any) -> datetime:
    found = _datetime(value)
    if found.utcoffset() is None:
        message = "it has no time zone"
        raise InvalidValue(message)
    try:
        return found.astimezone(UTC)
    except OverflowError:
        message = "in UTC it is out of range"
        raise InvalidValue(message) from None


def _local(value: Any) -> datetime:
    if isinstance(value, np.datetime64):
        value = _of_numpy(value, "datetime64[us]", datetime)
    found = _datetime(value)
    if found.tzinfo is not None:
        message = "it has a time zone"
        raise InvalidValue(message)
    return found


def _datetime(value: Any) -> datetime:
    """Return a plain datetime; a pandas one may have nanoseconds, or be NaT."""
    # pandas' NaT is a datetime, and not equal to itself.
    if not isinstance(value, datetime) or value != value:
        raise InvalidValue
    if getattr(value, "nanosecond", 0):
        message = "it has nanoseconds"
        raise InvalidValue(message)
    plainly = getattr(value, "to_pydatetime", None)
    return plainly() if plainly else value


def _have_zones(column: list[Any], array: pa.Array) -> bool:
    """Whether each has a time zone (Arrow would assume UTC), and is in range in UTC."""
    given = [value for value in column if value is not None] if array.null_count else column
    if None in {*map(attrgetter("tzinfo"), given)}:
        return False
    found = pc.min_max(array.cast(pa.int64())).as_py()
    return not given or (found["min"] >= _EARLIEST and found["max"] <= _LATEST)


def _have_no_zones(column: list[Any], array: pa.Array) -> bool:
    """Whether none has a time zone; Arrow would convert those to UTC."""
    given = [value for value in column if value is not None] if array.null_count else column
    return {*map(attrgetter("tzinfo"), given)} <= {None}


def _date(value: Any) -> date:
    if isinstance(value, np.datetime64) and value.dtype == np.dtype("datetime64[D]"):
        value = _unboxed(value)
    if not isinstance(value, date) or isinstance(value, datetime):
        raise InvalidValue
    return value


def _span(value: Any) -> timedelta:
    if isinstance(value, np.timedelta64):
        value = _of_numpy(value, "timedelta64[us]", timedelta)
    if not isinstance(value, timedelta) or value != value:
        raise InvalidValue
    if getattr(value, "nanoseconds", 0):
        message = "it has nanoseconds"
        raise InvalidValue(message)
    if abs(value // _MICROSECOND) > _LONGEST_SPAN:
        message = "it is out of range"
        raise InvalidValue(message)
    return timedelta(value.days, value.seconds, value.microseconds)


def _of_numpy(value: Any, unit: str, kind: type) -> Any:
    made = value.astype(unit)
    if np.isnat(value) or made != value or not isinstance(made.item(), kind):
        message = "it has nanoseconds, or is out of range"
        raise InvalidValue(message)
    return made.item()


def _nothing(value: Any) -> None:
    raise InvalidValue


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
