"""Times before year 1 and after 9999, which Python's datetime cannot have: as ISO-8601 with a signed year, and back.

The calendar repeats every 400 years, so a time is calculated in the years 1970 to 2369 and moved.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_UNIX = datetime(1970, 1, 1, tzinfo=UTC)
_CYCLE_YEARS, _CYCLE = 400, timedelta(days=146_097)
_MICROSECOND = timedelta(microseconds=1)
DAY_US = 86_400_000_000
_WIDE = re.compile(r"([+-]\d{4,})(-.*)")


def wide_text(us: int) -> str:
    """Return a time in microseconds since 1970 as text, without a zone.

    >>> wide_text(2**63 - 1), wide_text(-(10**17))
    ('+294247-01-10T04:00:54.775807', '-1199-02-15T14:13:20')
    """
    cycles, rest = divmod(us, _CYCLE // _MICROSECOND)
    found = _UNIX + rest * _MICROSECOND
    return f"{found.year + cycles * _CYCLE_YEARS:+05}{found.replace(tzinfo=None).isoformat()[4:]}"


def wide_us(text: str) -> int | None:
    """Return the microseconds since 1970 of a text with a signed year; None if its year has no sign.

    >>> wide_us("+294247-01-10T04:00:54.775807Z"), wide_us("2026-01-01T00:00:00Z")
    (9223372036854775807, None)
    """
    found = _WIDE.fullmatch(text)
    if found is None:
        return None
    cycles, years = divmod(int(found[1]) - _UNIX.year, _CYCLE_YEARS)
    moment = datetime.fromisoformat(f"{_UNIX.year + years}{found[2]}")
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - _UNIX) // _MICROSECOND + cycles * (_CYCLE // _MICROSECOND)
