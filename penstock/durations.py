"""Spans of time, as users write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from penstock.errors import BadValue

Span = str | timedelta
Time = str | datetime

_UNITS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
# Ten thousand years: sums of times and spans stay within 64 bits.
_LONGEST_US = 3_650_000 * _UNITS["d"]
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def micros(span: Span, what: str = "span") -> int:
    """Return a span in microseconds.

    >>> micros("1m30s")
    90000000
    """
    if isinstance(span, timedelta):
        total = span // timedelta(microseconds=1)
    elif isinstance(span, str) and re.fullmatch(rf"\s*(?:{_PART.pattern}\s*)+", span):
        total = round(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(span)))
    else:
        message = f"{span!r} is not a span of time"
        raise BadValue(message, node=what, hint='write a number and a unit: "500ms", "5s", "10m", "1h", "1d"')
    if total > _LONGEST_US:
        message = f"{span!r} is too long"
        raise BadValue(message, node=what, hint=f"the longest span is {_LONGEST_US // _UNITS['d']}d")
    if total < 0:
        message = f"{span!r} is negative"
        raise BadValue(message, node=what, hint="a span of time is zero or more")
    return total


def span_text(us: int) -> str:
    """Write microseconds in the largest unit that fits.

    >>> span_text(90_000_000)
    '90s'
    """
    for unit in ("d", "h", "m", "s", "ms"):
        if us and us % _UNITS[unit] == 0:
            return f"{us // _UNITS[unit]}{unit}"
    return f"{us / 1_000}ms" if us else "0s"


def instant(time: Time, what: str = "time") -> datetime:
    """Return a point in time; one without a zone is refused, because it means another instant elsewhere.

    >>> instant("2026-01-01T10:02Z").isoformat()
    '2026-01-01T10:02:00+00:00'
    """
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            message = f"{time!r} is not a time"
            raise BadValue(message, node=what, hint='write it as "2026-01-01T10:02:00Z"') from None
    if not isinstance(time, datetime):
        message = f"{time!r} is not a time"
        raise BadValue(
            message, node=what, hint='write it as "2026-01-01T10:02:00Z", or pass a datetime with a time zone'
        )
    if time.tzinfo is None:
        message = f"{time.isoformat()} has no time zone"
        raise BadValue(message, node=what, hint=f'did you mean "{time.isoformat()}Z"?')
    return time.astimezone(UTC)
