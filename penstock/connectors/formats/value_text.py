"""Values as text that every reader accepts: ISO-8601 times, decimals without exponents."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc


def iso(times: pa.Array) -> pa.Array:
    """Return times as ISO-8601 text, with Z if they are instants."""
    # Arrow looks the zone up for each value: without it, this is ten times as fast.
    text = times.cast(pa.timestamp(times.type.unit)).cast(pa.string())
    text = pc.replace_substring(text, " ", "T", max_replacements=1)
    return pc.binary_join_element_wise(text, "Z", "") if times.type.tz else text


def decimal_text(numbers: pa.Array) -> pa.Array:
    """Return decimals with all their positions; Arrow writes small ones, and zero, with an exponent.

    >>> decimal_text(pa.array([Decimal("0E-10"), None], pa.decimal128(20, 10))).to_pylist()
    ['0.0000000000', None]
    """
    text = numbers.cast(pa.string())
    odd = pc.match_substring(text, "E")
    if not pc.any(odd).as_py():
        return text
    plain = [f"{Decimal(one):f}" for one in text.filter(odd).to_pylist()]
    return pc.replace_with_mask(text, pc.fill_null(odd, False), pa.array(plain, pa.string()))


def has_exponents(numbers: pa.Array) -> bool:
    """Return whether Arrow would write some of a column's decimals with an exponent."""
    return pa.types.is_decimal(numbers.type) and bool(
        pc.any(pc.match_substring(numbers.cast(pa.string()), "E")).as_py()
    )
