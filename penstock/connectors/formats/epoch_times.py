"""Numbers as timestamps: the number of digits before the point determines the unit since 1970.

| digits | unit |
|---|---|
| 9 or 10 | seconds |
| 12 or 13 | milliseconds |
| 15 or 16 | microseconds |
| 18 or 19 | nanoseconds |

So each unit has the same times, 1973-03-03 to 2286-11-20 (before 1970: 1653-02-10 to 1966-10-31), and no number is read
in two ways. 0 is 1970 in every unit. Other numbers are no times: they would have to be guessed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Context, Decimal, DecimalException

import pyarrow as pa
import pyarrow.compute as pc

ZONED = pa.timestamp("us", "UTC")
NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?"
RULE = (
    "a number that is a time has 9 or 10 digits (seconds since 1970), 12 or 13 (milliseconds), "
    "15 or 16 (microseconds) or 18 or 19 (nanoseconds)"
)
# The smallest number of each unit, the end of its range, and how many microseconds are so many units.
RANGES = (
    (10**8, 10**10, 1_000_000, 1),
    (10**11, 10**13, 1_000, 1),
    (10**14, 10**16, 1, 1),
    (10**17, 10**19, 1, 1_000),
)
_WHOLE = r"^-?[0-9]{1,18}$"
# Enough for all that is a time; rounding down before a division does not alter what is rounded down after it.
_BILLIONTHS = Context(prec=30, rounding=ROUND_FLOOR)
_BILLIONTH = Decimal("1e-9")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def epoch_us(text: str) -> int | None:
    """Return the microseconds since 1970 that a number means, rounded down; None if it is not a time.

    >>> epoch_us("1767268800.5"), epoch_us("1767268800500"), epoch_us("2026")
    (1767268800500000, 1767268800500000, None)
    """
    try:
        number = Decimal(text)
    except DecimalException:  # an exponent that no computer holds
        return None
    if not number:
        return 0
    size = number.copy_abs()  # exact: abs() rounds, and raises if the exponent is far out
    for first, end, times, per in RANGES:
        if first <= size < end:
            return int(number.quantize(_BILLIONTH, context=_BILLIONTHS).scaleb(9, _BILLIONTHS)) * times // (per * 10**9)
    return None


def epoch_text(number: str) -> str | None:
    """Return a number as a time in ISO-8601, or None if it is no time.

    >>> epoch_text("1767268800")
    '2026-01-01T12:00:00+00:00'
    """
    found = epoch_us(number)
    return None if found is None else (_EPOCH + timedelta(microseconds=found)).isoformat()


def instants_of(numbers: pa.Array) -> pa.Array:
    """Return whole numbers as times; raise ArrowInvalid if one is no time."""
    found, size = pa.nulls(len(numbers), pa.int64()), pc.abs(numbers)
    for first, end, times, per in RANGES:
        inside = pc.and_(pc.greater_equal(size, first), pc.less(size, min(end, 2**63 - 1)))
        chosen = pc.if_else(inside, numbers, 0)
        found = pc.if_else(inside, _floored(chosen, per) if per > 1 else pc.multiply(chosen, times), found)
    found = pc.if_else(pc.equal(numbers, 0), 0, found)
    if found.null_count != numbers.null_count:
        raise pa.ArrowInvalid(RULE)
    return found.cast(ZONED)


def _floored(numbers: pa.Array, per: int) -> pa.Array:
    """Divide, rounded down; Arrow rounds towards zero."""
    found = pc.divide(numbers, per)
    return pc.if_else(pc.greater(pc.multiply(found, per), numbers), pc.subtract(found, 1), found)


def instants_of_text(numbers: pa.Array) -> pa.Array:
    """Return numbers that are written as JSON has them as times; raise ArrowInvalid if one is no time."""
    if pc.all(pc.match_substring_regex(numbers, _WHOLE), min_count=0).as_py():
        return instants_of(numbers.cast(pa.int64()))
    found = [None if text is None else epoch_us(text) for text in numbers.to_pylist()]
    if found.count(None) != numbers.null_count:
        raise pa.ArrowInvalid(RULE)
    return pa.array(found, pa.int64()).cast(ZONED)
