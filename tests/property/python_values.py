"""Random Python values for declared types: those that a type holds, and those that it does not."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

Make = Callable[[Random], Any]


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Plain(enum.Enum):
    ONE = 1


@dataclass
class Point:
    a: Any
    b: Any = "b"


NAIVE = datetime(2026, 3, 29, 1, 30, 15, 123456)  # noqa: DTZ001 (what some types hold)
AWARE = NAIVE.replace(tzinfo=UTC)
EAST, WEST = (timezone(timedelta(hours=hours)) for hours in (14, -12))
DAY = date(2026, 3, 29)
# Of no type at all, or of one that the function did not mean.
ALIENS = [object, complex(1, 2), {1, 2}, frozenset({1}), Plain.ONE, pd.NA, pd.NaT, Ellipsis, math.sqrt]


def integers(bits: int) -> tuple[Make, Make]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    good = [low, high, 0, -1, np.int8(5), np.int64(7), np.uint8(9), Level.HIGH]
    bad = [low - 1, high + 1, 2**63, 2**64, 10**30, 10**5000, 3.0, 3.7, -0.0, math.nan, math.inf, True, "5", b"5"]
    bad += [Decimal(5), np.float64(2.5), np.bool_(True), np.uint64(2**64 - 1), NAIVE, [1], {"a": 1}]
    return _or(good, lambda chance: chance.randint(low, high)), _or(bad, lambda chance: chance.uniform(-9, 9))


def _or(values: list[Any], make: Make) -> Make:
    return lambda chance: chance.choice(values) if chance.random() < 0.7 else make(chance)


def _of(*values: Any) -> Make:
    return lambda chance: chance.choice(values)


def _float(chance: Random) -> float:
    return chance.uniform(-1, 1) * 10.0 ** chance.randint(-300, 300)


def _text(chance: Random) -> str:
    return "".join(chr(chance.choice([97, 0, 233, 0x4E2D, 0x1F600])) for _ in range(chance.randint(0, 5)))


def _time(chance: Random) -> datetime:
    seconds = chance.randint(-62_000_000_000, 253_000_000_000)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(0, seconds, chance.randrange(10**6))


DOUBLES = (
    _or(
        [0.0, -0.0, math.nan, math.inf, 5e-324, 1, 2**53, 2**60, np.float32(0.1), np.float64(1e300), np.int8(3)], _float
    ),
    _of(2**53 + 1, 10**400, True, "1.5", Decimal("1.5"), b"1", np.bool_(False), NAIVE, [1.0]),
)
FLOATS = (
    _or([0.0, math.nan, -math.inf, 3.4e38, 1e-45, 16_777_216, 2**30], lambda chance: chance.uniform(-1e30, 1e30)),
    _of(1e300, -1e39, 1e-300, 2**24 + 1, 2**53 + 1, True, "1.5", Decimal(1), np.float64(1e300)),
)
DECIMALS = (
    _or(
        [Decimal("1.5"), Decimal("-999.99"), Decimal("1.2300"), Decimal("1E+2"), 5, -999, np.int64(4)],
        lambda chance: Decimal(chance.randint(-99_999, 99_999)).scaleb(-2),
    ),
    _of(
        Decimal("1.234"),
        Decimal("NaN"),
        Decimal("Infinity"),
        Decimal("sNaN"),
        1000,
        Decimal("1E+9999"),
        Decimal("1E-9999"),
        1.5,
        True,
        "1.5",
    ),
)
TIMES = (
    _or(
        [
            AWARE,
            AWARE.astimezone(ZoneInfo("Europe/Berlin")),
            pd.Timestamp(AWARE),
            datetime.max.replace(tzinfo=UTC),
            datetime.min.replace(tzinfo=UTC),
        ],
        _time,
    ),
    _of(
        NAIVE,
        DAY,
        5,
        1.5,
        "2026-01-01T00:00:00Z",
        pd.Timestamp("2026-01-01T00:00:00.123456789Z"),
        datetime.max.replace(tzinfo=WEST),
        datetime.min.replace(tzinfo=EAST),
        np.datetime64("2026-01-01"),
        pd.NaT,
    ),
)
LOCAL_TIMES = (
    _of(NAIVE, datetime.max, datetime.min, pd.Timestamp(NAIVE), np.datetime64("2026-01-01T00:00:00")),  # noqa: DTZ901
    _of(AWARE, DAY, 5, "2026-01-01", np.datetime64("NaT"), np.datetime64("2026-01-01T00:00:00.123456789"), pd.NaT),
)
STRINGS = (
    _or(["", "a\x00b", Colour.RED, np.str_("n")], _text),
    _of(b"x", 5, 1.5, True, "\ud800", "a\udfff", ["a"], NAIVE),
)
BYTES = (_of(b"", b"\xff\x00", bytearray(b"q"), np.bytes_(b"z")), _of("x", 5, [1, 2], bytearray, 1.5))
SPANS = (
    _of(timedelta(0), timedelta(-3, 5, 7), timedelta(days=100_000_000), pd.Timedelta(5, "s"), np.timedelta64(5, "s")),
    _of(5, 1.5, "1s", timedelta.max, pd.Timedelta(5, "ns"), np.timedelta64("NaT"), DAY),
)
BIGINT = integers(64)


def _lists(part: tuple[Make, Make]) -> tuple[Make, Make]:
    good, bad = part
    kinds: list[Callable[[list[Any]], Any]] = [list, tuple]
    return (
        lambda chance: chance.choice(kinds)(
            [good(chance) if chance.random() < 0.9 else None for _ in range(chance.randint(0, 4))]
        ),
        lambda chance: chance.choice(
            [[good(chance), bad(chance)], [bad(chance)], "text", b"bytes", {1: 2}, {1}, 5, iter]
        ),
    )


def _maps(part: tuple[Make, Make]) -> tuple[Make, Make]:
    good, bad = part
    return (
        lambda chance: chance.choice([dict, lambda pairs: list(pairs)])(
            [(f"k{n}", good(chance)) for n in range(chance.randint(0, 3))]
        ),
        lambda chance: chance.choice(
            [{"k": bad(chance)}, {1: good(chance)}, {None: good(chance)}, [("k", 1), ("k", 2)], [1], "text", 5]
        ),
    )


def _structs(chance: Random) -> Any:
    a = BIGINT[0](chance)
    return chance.choice([{"a": a, "b": "x"}, {"a": a}, {}, Point(a), {"b": None}])


def _no_structs(chance: Random) -> Any:
    return chance.choice(
        [{"a": BIGINT[1](chance)}, {"a": 1, "z": 2}, {"a": 1, "b": 2}, Point(1.5), (1, "x"), [("a", 1)], "text", 5]
    )


# By declared type: what makes values that it holds, and what makes others.
TYPES: dict[str, tuple[Make, Make]] = {
    **{name: integers(bits) for name, bits in (("bigint", 64), ("int", 32), ("smallint", 16), ("tinyint", 8))},
    "double": DOUBLES,
    "float": FLOATS,
    "boolean": (_of(True, False, np.bool_(True)), _of(0, 1, 1.0, "true", b"", np.int8(1))),
    "string": STRINGS,
    "binary": BYTES,
    "decimal(5,2)": DECIMALS,
    "timestamp": TIMES,
    "timestamp_ntz": LOCAL_TIMES,
    "date": (
        _of(DAY, date.min, date.max, np.datetime64("2026-01-01")),
        _of(NAIVE, AWARE, 5, "2026-01-01", pd.Timestamp(NAIVE)),
    ),
    "interval day to second": SPANS,
    "array<bigint>": _lists(BIGINT),
    "array<array<string>>": _lists(_lists(STRINGS)),
    "map<string,bigint>": _maps(BIGINT),
    "map<string,array<timestamp>>": _maps(_lists(TIMES)),
    "struct<a:bigint,b:string>": (_structs, _no_structs),
    "array<struct<a:bigint,b:string>>": _lists((_structs, _no_structs)),
}


@dataclass(frozen=True)
class Case:
    """A value for a column of a type, and whether the type holds it."""

    kind: str
    value: Any
    fits: bool


def cases(seed: int, count: int) -> list[Case]:
    """Return random values, about half of which fit."""
    chance = Random(seed)
    found = []
    for number in range(count):
        kind = list(TYPES)[number % len(TYPES)]
        good, bad = TYPES[kind]
        fits = chance.random() < 0.5
        strange = chance.random() < 0.2
        found.append(Case(kind, good(chance) if fits else chance.choice(ALIENS) if strange else bad(chance), fits))
    return found


def is_same(found: Any, given: Any, kind: str) -> bool:
    """Whether what came out is what went in: the same value, in the form that the type has in Python."""
    if given is None or found is None:
        return given is found
    if kind.startswith("array<"):
        part = kind.removeprefix("array<")[:-1]
        return len(found) == len(given) and all(is_same(a, b, part) for a, b in zip(found, given, strict=True))
    if kind.startswith("map<"):
        part = kind.removeprefix("map<string,")[:-1]
        left, right = dict(found), dict(given)
        return left.keys() == right.keys() and all(is_same(left[key], right[key], part) for key in left)
    if kind.startswith("struct<"):
        row = given if isinstance(given, dict) else vars(given)
        types = {"a": "bigint", "b": "string"}
        return all(is_same(found.get(name), row.get(name), part) for name, part in types.items())
    if isinstance(given, np.generic):
        given = given.astype("M8[us]").item() if isinstance(given, np.datetime64) and kind != "date" else given
        given = given.astype("m8[us]").item() if isinstance(given, np.timedelta64) else given
        given = given.item() if isinstance(given, np.generic) else given
    if kind == "float":
        given = float(np.float32(given))
    if isinstance(given, float) and math.isnan(given):
        return isinstance(found, float) and math.isnan(found)
    return bool(found == given) and isinstance(found, _PYTHON[kind.partition("(")[0]])


_PYTHON: dict[str, type] = {
    **dict.fromkeys(("bigint", "int", "smallint", "tinyint"), int),
    **dict.fromkeys(("double", "float"), float),
    "boolean": bool,
    "string": str,
    "binary": bytes,
    "decimal": Decimal,
    "timestamp": datetime,
    "timestamp_ntz": datetime,
    "date": date,
    "interval day to second": timedelta,
}
