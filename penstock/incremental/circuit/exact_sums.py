"""Sums that are exact, so that they can be added to and subtracted from for ever: whole numbers, decimals, doubles.

A whole number or a decimal is several limbs of 32 bits, one column of the state each. A double is a whole number of
units of 2**-1126; a sum of them is one Python number for each group.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.incremental.circuit.row_identity import Grouping, Numbers

Doubles = npt.NDArray[np.float64]
_MASK = 0xFFFFFFFF
_BITS = np.int64(32)
# frexp gives the smallest double as 0.5 * 2**-1073, and of its fraction 53 bits are used.
UNIT = 1126
_HALF = 27


def limbs_of(column: pa.Array, count: int) -> list[Numbers]:
    """Return values that are not null as limbs; the last one is signed."""
    if pa.types.is_decimal(column.type):
        pairs = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset : 2 * (column.offset + len(column))]
        found = [part for word in (pairs[0::2], pairs[1::2]) for part in (word & _MASK, word >> _BITS)]
        # The upper half of the lower word is not signed.
        found[1] = found[1] & _MASK
    else:
        values = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        found = [values & _MASK, values >> _BITS]
    return found[:count]


def carried(limbs: Sequence[Numbers]) -> list[Numbers]:
    """Return limbs in normal form: all but the last are from 0 up to 2**32."""
    found: list[Numbers] = []
    carry = np.zeros_like(limbs[0])
    for limb in limbs[:-1]:
        whole = limb + carry
        found.append(whole & _MASK)
        carry = whole >> _BITS
    return [*found, limbs[-1] + carry]


def numbers_of(limbs: Sequence[Numbers]) -> list[int]:
    """Return limbs as Python numbers."""
    columns = [limb.tolist() for limb in limbs]
    return [sum(part << (32 * place) for place, part in enumerate(row)) for row in zip(*columns, strict=True)]


def to_longs(limbs: Sequence[Numbers]) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Return two limbs as numbers of 64 bits, and which of them do not fit."""
    low, high = limbs
    wrong = (high < -(1 << 31)) | (high >= 1 << 31)
    return (np.where(wrong, 0, high) << _BITS) | low, wrong


def to_doubles(limbs: Sequence[Numbers]) -> Doubles:
    """Return limbs as the nearest doubles, or almost."""
    found = np.zeros(len(limbs[0]))
    for limb in reversed(limbs):
        found = found * float(1 << 32) + limb
    return found


def to_decimals(limbs: Sequence[Numbers], scale: int) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return four limbs as decimals of 38 digits, and which of them do not fit."""
    a, b, c, d = limbs
    wrong = (d < -(1 << 31)) | (d >= 1 << 31)
    words = np.empty(2 * len(a), np.int64)
    words[0::2], words[1::2] = a | (b << _BITS), c | (np.where(wrong, 0, d) << _BITS)
    # 128 bits hold more than 38 digits.
    low, high = words[0::2].view(np.uint64), words[1::2]
    (most, most_low), (least, least_low) = divmod(10**38, 1 << 64), divmod(-(10**38), 1 << 64)
    wrong |= (high > most) | ((high == most) & (low >= np.uint64(most_low)))
    wrong |= (high < least) | ((high == least) & (low <= np.uint64(least_low)))
    array = pa.Array.from_buffers(pa.decimal128(38, scale), len(a), [None, pa.py_buffer(words.tobytes())])
    return array, wrong


# --- doubles ------------------------------------------------------------------------------------------


def doubles_by_group(values: Doubles, weights: Numbers, groups: Grouping, *, squared: bool = False) -> list[int]:
    """Return the sum of finite doubles of each group, in units of 2**-1126; of squares in the square of the unit."""
    fractions, exponents = np.frexp(values)
    mantissas = (fractions * float(1 << 53)).astype(np.int64)
    places = exponents.astype(np.int64) - 53 + UNIT
    if squared:
        return _squares(mantissas, places, weights, groups)
    if not len(values):
        return [0] * len(groups)
    base = int(places.min()) // 32
    width = (int(places.max()) + _HALF) // 32 - base + 3
    table = np.zeros((width, len(groups)), np.int64)
    for part, shift in ((mantissas & ((1 << _HALF) - 1), 0), (mantissas >> _HALF, _HALF)):
        at = places + shift
        piece, limb = part << (at % 32), at // 32 - base
        np.add.at(table, (limb, groups.ids), (piece & _MASK) * weights)
        np.add.at(table, (limb + 1, groups.ids), (piece >> _BITS) * weights)
    limbs = carried(list(table))
    low = np.stack(limbs[:-1], axis=1).astype("<u4").tobytes()
    size = 4 * (width - 1)
    tops = limbs[-1].tolist()
    return [
        (int.from_bytes(low[number * size : (number + 1) * size], "little") + (top << (8 * size))) << (32 * base)
        for number, top in enumerate(tops)
    ]


def _squares(mantissas: Numbers, places: Numbers, weights: Numbers, groups: Grouping) -> list[int]:
    totals = [0] * len(groups)
    rows = zip(groups.ids.tolist(), mantissas.tolist(), places.tolist(), weights.tolist(), strict=True)
    for group, mantissa, place, weight in rows:
        totals[group] += (mantissa * mantissa * weight) << (2 * place)
    return totals


def to_bytes(number: int) -> bytes:
    """Return a number as bytes: how many bytes of zeros were left out, and the others. 0 is nothing."""
    if not number:
        return b""
    skipped = ((number & -number).bit_length() - 1) // 8
    number >>= 8 * skipped
    return skipped.to_bytes(2, "little") + number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)


def from_bytes(data: bytes) -> int:
    """Return the number of `to_bytes`."""
    return int.from_bytes(data[2:], "little", signed=True) << (8 * int.from_bytes(data[:2], "little")) if data else 0


def ratio(number: int, divisor: int) -> float:
    """Return the double nearest to a ratio; infinite if it is too large."""
    try:
        return number / divisor
    except OverflowError:
        return float("inf") if (number > 0) == (divisor > 0) else float("-inf")


def half_up(number: int, divisor: int) -> int:
    """Return a ratio rounded to the nearest whole number, half away from zero, as Spark rounds decimals."""
    rounded = (2 * abs(number) + divisor) // (2 * divisor)
    return rounded if number >= 0 else -rounded


def valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Say which values are not null."""
    found: npt.NDArray[np.bool_] = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return found
