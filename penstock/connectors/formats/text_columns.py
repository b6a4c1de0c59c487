"""Converts columns of text to typed columns, and finds the values that do not fit; and back to text.

Arrow's csv and json readers stop at the first bad value and take 0.3 ms to start again; here the bad values
of a column are found in bulk. What fits is what Arrow's readers take, less three things they take silently:
hexadecimal integers (0xFF is -1 as a tinyint), decimals with more digits than declared, and numbers that are too large
for a double (1e400 is infinity to them); and more times than they take: fractions of a second with more than six
digits, `t` and `z`, and numbers as `epoch_times` has them.

The text that is written is what every reader accepts: ISO-8601 times, decimals without exponents.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.formats.epoch_times import NUMBER, ZONED, instants_of_text
from penstock.connectors.formats.wide_times import wide_texts

NAIVE = pa.timestamp("us")
TRUE, FALSE = ["true", "True", "TRUE"], ["false", "False", "FALSE"]

_ZONE = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_DATE = r"\d{4}-\d\d-\d\d"
_NUMBER = r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?"
_SMALL = 8
# What Arrow does not take: letters in lower case, and digits after the sixth, which are dropped as Spark drops them.
_ODD = r"[tz]|\.\d{7}"
_FRACTION = r"^(\S{10}[T ]\S{8}\.\d{6})\d+"


def convert(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a text column in its type; raise ArrowInvalid if a value does not fit."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return text.cast(kind)
    if not pc.all(_plausible(text, kind), min_count=0).as_py():
        message = f"a value that is no {kind}"
        raise pa.ArrowInvalid(message)
    if kind == ZONED:
        return _times(text)
    if kind == NAIVE:
        return plain_times(text).cast(kind)
    found = pc.utf8_trim(text, " \t").cast(kind)
    if pa.types.is_floating(kind) and overflowed([found]):
        # Arrow reads a number that is too large as infinity, which only a word should be.
        written = pc.match_substring_regex(text, r"[0-9]")
        if pc.any(pc.and_(pc.is_inf(found), written)).as_py():
            message = f"a number that is too large for a {kind}"
            raise pa.ArrowInvalid(message)
    return found


def overflowed(columns: Iterable[pa.Array | pa.ChunkedArray]) -> bool:
    """Return whether a column of floating point numbers contains an infinity."""
    return any(pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py() for column in columns)


def instants(text: pa.Array) -> pa.Array:
    """Return times as instants; one without a zone is in UTC."""
    text = plain_times(text)
    zoned, none = pc.match_substring_regex(text, _ZONE), pa.scalar(None, pa.string())
    apart = pc.if_else(zoned, text, none).cast(ZONED)
    local = pc.if_else(zoned, none, text).cast(NAIVE)
    return pc.coalesce(apart, local.cast(ZONED))


def plain_times(text: pa.Array) -> pa.Array:
    """Return times as Arrow takes them, to the microsecond.

    >>> plain_times(pa.array(["2026-01-01t12:00:00.123456789z"]))[0].as_py()
    '2026-01-01T12:00:00.123456Z'
    """
    if not pc.any(pc.match_substring_regex(text, _ODD)).as_py():
        return text
    return pc.replace_substring_regex(pc.ascii_upper(text), _FRACTION, r"\1")


def _times(text: pa.Array) -> pa.Array:
    """Return what csv has as times: texts and numbers."""
    number, none = pc.match_substring_regex(text, f"^{NUMBER}$"), pa.scalar(None, pa.string())
    if not pc.any(number).as_py():
        return instants(text)
    counted = instants_of_text(pc.if_else(number, text, none))
    return pc.coalesce(counted, instants(pc.if_else(number, none, text)))


def written_as(text: pa.ChunkedArray) -> pa.DataType:
    """Return the type that reads all these times directly: with zone, without, or text if it is none of them."""
    zoned = pc.match_substring_regex(text, _ZONE)
    odd = pc.match_substring_regex(text, rf"{_ODD}|^{NUMBER}$")
    if pc.any(odd).as_py():
        return pa.string()
    if pc.all(zoned, min_count=0).as_py():
        return ZONED
    return pa.string() if pc.any(zoned).as_py() else NAIVE


def misfits(text: pa.Array, kind: pa.DataType) -> list[int]:
    """Return the positions of the values that do not fit."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return []
    likely = pc.fill_null(_plausible(text, kind), True)
    found: list[int] = pc.indices_nonzero(pc.invert(likely)).to_pylist()
    rest = pc.indices_nonzero(likely)
    values = text.take(rest)
    positions = rest.to_pylist()
    return sorted(found + [positions[n] for n in _bisected(values, kind)])


def _bisected(values: pa.Array, kind: pa.DataType) -> list[int]:
    found: list[int] = []
    pieces = [(0, len(values))]
    while pieces:
        at, size = pieces.pop()
        try:
            convert(values.slice(at, size), kind)
        except pa.ArrowInvalid:
            step = 1 if size <= _SMALL else -(-size // 2)
            if size == 1:
                found.append(at)
            else:
                pieces += [(n, min(step, at + size - n)) for n in range(at, at + size, step)]
    return found


def _plausible(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return for each value whether it looks like the type; what does not cannot fit."""
    if pa.types.is_boolean(kind):
        return pc.if_else(text.is_null(), None, pc.is_in(text, pa.array(TRUE + FALSE)))
    return pc.match_substring_regex(text, _look(kind))


def _look(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        text = rf"{_DATE}([Tt ]\d\d.*)?"
        return rf"^({text}|{NUMBER})$" if kind == ZONED else f"^{text}$"
    if pa.types.is_date(kind):
        return rf"^[ \t]*{_DATE}[ \t]*$"
    if pa.types.is_integer(kind):
        return r"^[ \t]*-?[0-9]+[ \t]*$"
    if pa.types.is_floating(kind):
        return rf"^[ \t]*({_NUMBER}|[-+]?[nNiI].*)[ \t]*$"
    return rf"^[ \t]*{_NUMBER}[ \t]*$"


def iso(times: pa.Array) -> pa.Array:
    """Return times or dates as ISO-8601 text, with Z if they are instants.

    A year before 1 or after 9999 is signed: Arrow would write some of them as no time.
    """
    if (wide := wide_texts(times)) is not None:
        return wide
    if pa.types.is_date(times.type):
        return times.cast(pa.string())
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
