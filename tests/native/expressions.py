"""Every form on the list of what runs natively, in expressions over rows of edges and extremes."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from penstock.schema import Schema

SCHEMA = Schema(
    "s string, t string, y tinyint, z tinyint, h smallint, l smallint, i int, j int, b bigint, c bigint,"
    " r float, q float, d double, e double,"
    " m decimal(10,2), n decimal(12,4), v decimal(18,6), w decimal(30,10), x decimal(38,2),"
    " f boolean, g boolean, ts timestamp, us timestamp, dt date, du date, k string"
)
TINY, SMALL, INT, BIG = 2**7, 2**15, 2**31, 2**63
TEXTS = [
    None,
    "",
    " ",
    "a",
    "A",
    "ab",
    "b a",
    " a\t",
    "é",
    "ÀB",
    "日本語",
    "𝒳a𝒳",
    "a%b_c",
    "a\\b",
    "a.b",
    "a\n",
    "\r\n",
]
TEXTS += [
    "x{1}",
    "abcabc",
    "\u00a0a\u3000",
    "ß",
    "Straße 5",
    "e\u0301",
    "a\u2028",
    "z\x0b",
    "'q'",
    "7",
    "-12",
    "ab\r\n",
]
DIGITS = [None, "0", " 12 ", "+5", "-7", "1.5", "1e3", "", " ", "x", "2147483648", "-2147483648", "\t9\n", "٣", "0x1f"]
DIGITS += ["1_000", "--1", "00012", "9223372036854775808", "-9223372036854775808", "1\x00", "\u00a05", "+", "1L", "5 5"]
DOUBLES = [
    None,
    0.0,
    -0.0,
    1.5,
    -2.25,
    2.5,
    -0.5,
    math.inf,
    -math.inf,
    math.nan,
    1e300,
    5e-324,
    1e10,
    9007199254740993.0,
]
DOUBLES += [2147483647.5, -2147483648.9, 9223372036854775808.0, -9223372036854775808.0, 0.49999999999999994, 127.9]
FLOATS = [None, 0.0, -0.0, 1.5, -2.25, math.inf, -math.inf, math.nan, 3.4e38, 1e-45, 0.1]
TIMES = ["0001-01-01", "0004-02-29", "1500-02-28", "1582-10-04", "1582-10-15", "1600-02-29", "1900-02-28", "1969-12-31"]
TIMES += ["1970-01-01", "2000-02-29", "2024-02-29", "2024-12-30", "2026-01-01", "2027-01-03", "9999-12-31"]
CLOCKS = [timedelta(0), timedelta(hours=23, minutes=59, seconds=59, microseconds=999_999), timedelta(microseconds=1)]
LETTERS = "ab A_%.\\\n\r\t'{}0159-+éÀß日本𝒳\u0301\u00a0\u2028\x0b\x00"
FIRST = datetime(1, 1, 1, tzinfo=UTC)
YEARS_US = (datetime(9999, 12, 31, tzinfo=UTC) - FIRST) // timedelta(microseconds=1)
BOOLEANS = [None, True, False]
DATES = [None, *(date.fromisoformat(day) for day in TIMES)]
MOMENTS = [None, *(datetime.fromisoformat(day).replace(tzinfo=UTC) + clock for day in TIMES for clock in CLOCKS)]


# Around the ends of the types, of DuckDB's timestamps, and where a date is none any more as a timestamp.
FAR_DAYS = [None, *(end + days for end in (-INT, -106_751_991, 106_751_991) for days in (0, 1, 2, 40, 200, 400))]
FAR_DAYS += [INT - days for days in (1, 2, 3, 8, 40, 200, 400)]
FIRST_US = -9_223_372_022_400_000_000
FAR_US = [
    None,
    *(-BIG + us for us in (0, 1, 2, 999, 999_999, 2_000_000)),
    *(BIG - us for us in (1, 2, 999, 10**6, 10**11)),
]
FAR_US += [FIRST_US - 1, FIRST_US, FIRST_US + 1, FIRST_US + 86_400_000_000]


def whole(limit: int) -> list[int | None]:
    """The edges of a whole-number type."""
    return [None, 0, 1, -1, 2, -7, 100, limit - 1, -limit, -limit + 1, limit // 2]


def money(digits: int, places: int) -> list[Decimal | None]:
    """The edges of a decimal type."""
    most = f"{10**digits - 1}E-{places}"
    return [None, *map(Decimal, ("0", "1", "-1", "0.5", "-0.5", "2.5", "-1.25", most, f"-{most}"))]


VALUES: dict[str, Sequence[Any]] = {
    **dict.fromkeys(("s", "t"), TEXTS),
    "k": DIGITS,
    **dict.fromkeys(("y", "z"), whole(TINY)),
    **dict.fromkeys(("h", "l"), whole(SMALL)),
    **dict.fromkeys(("i", "j"), whole(INT)),
    **dict.fromkeys(("b", "c"), whole(BIG)),
    **dict.fromkeys(("r", "q"), FLOATS),
    **dict.fromkeys(("d", "e"), DOUBLES),
    "m": money(10, 2),
    "n": money(12, 4),
    "v": money(18, 6),
    "w": money(30, 10),
    # Spark rounds some results to 34 digits, as Java does.
    "x": [*money(38, 2), Decimal(f"{'1234567890' * 4}"[:38]).scaleb(-2), Decimal(f"-{'9' * 35}E-2")],
    **dict.fromkeys(("f", "g"), BOOLEANS),
    **dict.fromkeys(("ts", "us"), MOMENTS),
    **dict.fromkeys(("dt", "du"), DATES),
}


def edges(count: int = 400) -> pa.Table:
    """Rows in which edges meet edges."""
    chance = Random(5)
    rows = [{name: chance.choice(values) for name, values in VALUES.items()} for _ in range(count)]
    return pa.Table.from_pylist(rows, schema=SCHEMA.arrow)


def far_edges(count: int = 400) -> pa.Table:
    """Such rows with dates and timestamps at the ends of their types, which Python does not have."""
    chance, rows = Random(6), edges(count)
    for name, values in {**dict.fromkeys(("ts", "us"), FAR_US), **dict.fromkeys(("dt", "du"), FAR_DAYS)}.items():
        field, width = SCHEMA.arrow.field(name), pa.int64() if values is FAR_US else pa.int32()
        column = pa.array(chance.choices(values, k=count), width).cast(field.type)
        rows = rows.set_column(rows.schema.get_field_index(name), field, column)
    return rows


def _cases(text: str) -> list[str]:
    """Read expressions that are parted by semicolons."""
    return [" ".join(case.split()) for case in text.split(";")]


CASES = {
    "arithmetic": _cases(r"""
        y + z; h + l; i + j; b + c; d + e; r + q; y - z; h - l; i - j; b - c; d - e; r - q; y * z; h * l; i * j;
        b * c; d * e; r * q; y / z; h / l; i / j; b / c; d / e; r / q; y % z; h % l; i % j; b % c; d % e; r % q;
        y div z; h div l; i div j; b div c; try_add(y, z); try_add(h, l); try_add(i, j); try_add(b, c); try_add(d, e);
        try_subtract(y, z); try_subtract(h, l); try_subtract(i, j); try_subtract(b, c); try_subtract(d, e);
        try_multiply(y, z); try_multiply(h, l); try_multiply(i, j); try_multiply(b, c); try_multiply(d, e);
        try_divide(y, z); try_divide(h, l); try_divide(i, j); try_divide(b, c); try_divide(d, e); try_mod(y, z);
        try_mod(h, l); try_mod(i, j); try_mod(b, c); try_mod(d, e); y + y; y - h; h * y; b * i; i + 1; i - 2; y + 1;
        d * b; d + i; r + r; r * d; r - 1; r * r; (b + 1) * 2; 1 - y; i + 3L; m + m; m - n; m * n; m + i; m * 2;
        n - 1; m + b; m * 0.5; i * 0.25; n + 1.5; d * 0.1; m + d; y / h; r / r; i / 2; d / 3; d / 0.5; 10 / i; m / d;
        (i + 1) / (j - 1); y % 3; i % -1; b % 7; r % r; h % y; b div 3; y div h; i div 0; i / 0; i % 0; d / 0;
        i + NULLIF(j, 0); try_multiply(y, y); try_divide(b, 0); try_subtract(h, h); try_subtract(i, 5); try_add(i, b);
        try_multiply(d, 2); try_add(y, h); try_mod(y, h); v + v; v - m; v * v; v * m; w + v;
        w - w; w + b; v * i; v * 3; w * 2; v - 1; w + 0.5
    """),
    "numbers": _cases(r"""
        -i; -b; -d; -m; -y; -r; negative(i); negative(d); negative(m); positive(i); positive(d); - -i; abs(i); abs(b);
        abs(y); abs(d); abs(r); abs(m); sign(i); sign(b); sign(d); signum(d); signum(b); floor(d); ceil(d);
        ceiling(d); floor(r); ceil(r); floor(m); ceil(n); ceiling(n); floor(i); ceil(b); ceiling(y); round(d);
        round(m); round(n, 2); round(m, 1); round(n, 0); round(i); round(b); sqrt(d); isnan(d); isnan(r); nanvl(d, e);
        -2147483648; -9223372036854775808; 2147483648; 1.5D; 1e3; -1.5e-3; 123456789012345678901234567890; -0.5; 1.50;
        10S; 3Y; -v; -w; abs(w); floor(w); ceil(v); round(w, 3); round(v)
    """),
    "logic": _cases(r"""
        s = t; s <> t; s < t; s >= t; s = 'a'; NOT (s = 'A'); s > 'Z'; s <=> t; s IS DISTINCT FROM t; b = c; b < c;
        b > 0; b <= i; i >= 1; y < h; y = z; h < l; y = 1; i <=> j; b IS NOT DISTINCT FROM c; i <> 3; d = e; d < e;
        d >= e; d > 1; d <> e; d = 0; d <=> e; d > 0.5; r > 0.1; r = r; r < d; d = b; m > n; m = 1; m < 0.5; n >= i;
        m <=> n; m = b; m > d; n <> 2.5; d > 1e3; i > 1.5; f = g; f < g; f = (b > 0); ts = us; ts < us; dt >= du;
        dt < ts; ts <=> us; dt <> du; ts > TIMESTAMP '2024-02-29 12:00:00'; dt = DATE '2000-02-29';
        ts > '2000-01-01 00:00:00.5'; dt < '1970-01-01'; f AND g; f OR g; NOT f; f AND b > 0; f OR d > 0;
        b > 0 AND d > 0 OR s = 'a'; NOT (d > e); f AND NULL; s IS NULL; d IS NULL; b IS NOT NULL; f IS NULL;
        f IS TRUE; f IS NOT FALSE; ts IS NULL; NULL OR g; i IN (1, 2, -7); s IN ('a', 'é', NULL); s NOT IN ('a', 'b');
        d IN (0, 1.5); b IN (i, 2); m IN (1, 2.5); dt IN (DATE '2024-02-29'); i BETWEEN 0 AND 100;
        d NOT BETWEEN -1 AND 2.5; s BETWEEN 'a' AND 'b'; dt BETWEEN du AND du; i <> 0 AND j / i > 1;
        i = 0 OR j / i > 1; j / i > 1 AND i <> 0; isnull(i); isnotnull(s); equal_null(d, e);
        i <> 0 AND j <> 0 AND b % i = 0; !f; f == g; i != j; 'it''s' < s; 'x{1}' = s; 'a\\b' = s; s = '\'';
        s = 'tab\t'; s = 'a\n'; v > w; w = v; v < m;
        w >= b; w = 1; v <> 0.5
    """),
    "conditions": _cases(r"""
        CASE WHEN i > 0 THEN 'up' WHEN i < 0 THEN 'down' ELSE 'flat' END; CASE WHEN f THEN i END;
        CASE i WHEN 1 THEN 2 WHEN j THEN 3 END; CASE WHEN f THEN i ELSE d END; CASE WHEN f THEN 1 ELSE 2.5 END;
        CASE WHEN i <> 0 THEN j / i ELSE 0 END; IF(f, i, j); IF(i = 0, NULL, b / i); IF(f, m, n); IF(f, dt, ts);
        IF(f, y, 5); coalesce(i, j, 0); coalesce(s, t, '-'); nvl(d, 0); ifnull(b, i); coalesce(NULL, f);
        coalesce(m, 0); nvl2(i, b, c); nvl2(s, d, i); nullif(i, j); nullif(d, e); nullif(s, ''); nullif(i, 1.0);
        greatest(i, j); least(i, j, 0); greatest(d, e); least(d, e); greatest(e, d, 0); least(s, t);
        greatest(s, t, 'b'); greatest(m, n); least(ts, us); greatest(dt, du); greatest(b, d); least(f, g);
        coalesce(i / nullif(j, 0), 0); CASE s WHEN 'a' THEN 1 WHEN 'é' THEN 2 ELSE 3 END; greatest(r, r);
        coalesce(ts, us)
    """),
    "casts": _cases(r"""
        cast(b as int); cast(i as bigint); cast(i as smallint); cast(h as tinyint); cast(y as int); b::int;
        cast(i as double); cast(b as double); cast(b as float); cast(i as float); cast(i as decimal(12,2));
        cast(b as decimal(5,0)); cast(i as string); cast(b as string); cast(y as string); cast(i as boolean);
        cast(b as boolean); cast(r as double); cast(d as int); cast(d as bigint); cast(d as tinyint);
        cast(d as smallint); cast(r as int); cast(r as bigint); cast(m as decimal(8,1)); cast(n as decimal(20,6));
        cast(n as decimal(5,0)); cast(m as int); cast(n as bigint); cast(n as tinyint); cast(m as double);
        cast(n as double); cast(m as string); cast(n as string); cast(f as int); cast(f as double); cast(f as string);
        cast(f as bigint); cast(k as int); cast(k as bigint); cast(k as tinyint); cast(ts as date);
        cast(dt as timestamp); try_cast(b as int); try_cast(k as int); try_cast(k as bigint); try_cast(d as int);
        try_cast(m as tinyint); try_cast(n as decimal(5,1)); try_cast(d as bigint); cast(s as string);
        cast(NULL as int); cast('2024-02-29' as date); cast(i as int); cast(5 as bigint); cast(1.5 as double);
        try_cast(i as string); cast(w as decimal(20,2));
        cast(v as decimal(38,18)); cast(w as string); cast(v as string); cast(w as bigint); cast(v as int);
        cast(w as decimal(38,0)); +i; +d; +m; positive(y); positive(r); +x; - +i; ceil(x); floor(x); round(x);
        round(x, 1); negative(cast(m as decimal(34,2))); x > m; coalesce(x, 0.5); nullif(x, x)
    """),
    "texts": _cases(r"""
        length(s); char_length(s); character_length(t); len(s); octet_length(s); concat(s, t); s || '-' || t;
        concat(s); trim(s); ltrim(s); rtrim(s); btrim(s); replace(s, 'a'); replace(s, 'a', t); replace(s, '', 'x');
        replace(s, t, '{}'); startswith(s, t); endswith(s, t); contains(s, t); startswith(s, 'a'); contains(s, 'b');
        instr(s, t); instr(s, 'b'); position('a' IN s); position('b', s); locate(t, s); md5(s); repeat(s, 2);
        split_part(s, 'a', 1); split_part(s, 'b', 2); split_part(s, ' ', 3);
        repeat(s, y); 'a' 'b' || s; substring(s, -30); substring(s, -2); substring(s, -1); substring(s, 0);
        substring(s, 1); substring(s, 2); substring(s, 30); substring(s, -4, -1); substring(s, -4, 0);
        substring(s, -4, 1); substring(s, -4, 3); substring(s, -2, -1); substring(s, -2, 0); substring(s, -2, 1);
        substring(s, -2, 3); substring(s, 0, -1); substring(s, 0, 0); substring(s, 0, 1); substring(s, 0, 3);
        substring(s, 1, -1); substring(s, 1, 0); substring(s, 1, 1); substring(s, 1, 3); substring(s, 2, -1);
        substring(s, 2, 0); substring(s, 2, 1); substring(s, 2, 3); substring(s, y, h); substr(s, y);
        substring(s, i, j); substring(s FROM 2 FOR 1); left(s, 2); left(s, i); left(s, 0); right(s, 2); right(s, i);
        right(s, -1); right(s, y); left(s, -5); s LIKE 'a%'; s LIKE '%b%'; s NOT LIKE '_'; s LIKE '__';
        s LIKE 'a\\%b\\_c'; s LIKE 'a|%%' ESCAPE '|'; s LIKE '%\\\\%'; s LIKE ''; s LIKE '%é%'; s LIKE 'a%\n';
        s LIKE '𝒳_𝒳'; s LIKE '%a%b%'; s LIKE 'a\%b%'; s LIKE 'a__'
    """),
    "patterns": _cases(r"""
        s RLIKE 'a'; s RLIKE '^a'; s RLIKE 'a$'; s RLIKE '^a$'; s RLIKE '^a.b$'; s RLIKE '[a-z]+';
        s RLIKE '^[A-Za-z_]+$'; s RLIKE 'a|b'; s RLIKE '^(a|ab)c*$'; s RLIKE '(ab)+'; s RLIKE 'a{2}';
        s RLIKE 'b{1,2}'; s RLIKE 'b{0,}'; s RLIKE '^$'; s RLIKE 'a?b'; s RLIKE '\\d'; s RLIKE '\\d+$';
        s RLIKE '^-?\\d+$'; s RLIKE '\\w+'; s RLIKE '\\W'; s RLIKE '\\D'; s RLIKE '\\s'; s RLIKE '\\S';
        s RLIKE 'a\\.b'; s RLIKE 'a\\\\b'; s RLIKE '[\\d.]+'; s RLIKE '[^a]'; s RLIKE '.'; s RLIKE '^.$';
        s RLIKE '^..$'; s RLIKE 'é'; s RLIKE '日.語'; s RLIKE 'a.'; s RLIKE '[a\\-z]'; s RLIKE 'x\\{1\\}';
        s RLIKE '^(?:abc)*$'; s RLIKE 'a*?b'; s RLIKE ''; s RLIKE '$'; s RLIKE '\\t'; s RLIKE '[%_]'; s RLIKE '[-a]';
        s RLIKE '[a-]'; s RLIKE 'b.*c|7'; s RLIKE '\\n'; s RLIKE '[A-Z]{1,3}'; s RLIKE '[\\s]'; s RLIKE '[\\w]+é';
        s RLIKE '\\r'; s RLIKE 'a\\$|^b'; s REGEXP 'a.*b'; regexp_like(s, '^a'); rlike(s, 'b'); regexp(s, 'b$');
        NOT s RLIKE 'a'
    """),
    "times": _cases(r"""
        year(ts); quarter(ts); month(ts); day(ts); dayofmonth(ts); dayofyear(ts); year(dt); quarter(dt); month(dt);
        day(dt); dayofmonth(dt); dayofyear(dt); weekofyear(ts); dayofweek(ts); weekday(ts); weekofyear(dt);
        dayofweek(dt); weekday(dt); hour(ts); minute(ts); second(ts); extract(year FROM ts); extract(hour FROM ts);
        extract(month FROM dt); date_trunc('year', ts); date_trunc('YYYY', ts); date_trunc('yy', ts);
        date_trunc('quarter', ts); date_trunc('month', ts); date_trunc('MON', ts); date_trunc('mm', ts);
        date_trunc('week', ts); date_trunc('day', ts); date_trunc('DD', ts); date_trunc('hour', ts);
        date_trunc('minute', ts); date_trunc('second', ts); date_trunc('millisecond', ts);
        date_trunc('microsecond', ts); trunc(dt, 'year'); trunc(dt, 'quarter'); trunc(dt, 'month'); trunc(dt, 'week');
        trunc(dt, 'MM'); trunc(dt, 'YY'); unix_timestamp(ts); unix_seconds(ts); unix_millis(ts); unix_micros(ts);
        to_unix_timestamp(ts); unix_date(dt); timestamp_seconds(i); timestamp_seconds(b); timestamp_millis(i);
        timestamp_millis(b div 1001); timestamp_micros(b div 2); to_date(ts); to_date(dt); to_timestamp(ts);
        date_add(dt, y); date_sub(dt, 30); datediff(dt, du); date_diff(du, dt); dateadd(dt, 3); last_day(dt); dt + 1;
        dt - y; dt + INTERVAL 3 DAYS; dt + INTERVAL 1 MONTH; dt - INTERVAL '3' MONTH; dt - INTERVAL 1 YEAR;
        dt + INTERVAL '5' YEARS; dt - INTERVAL '1' WEEK; ts + INTERVAL 5 MINUTES; ts - INTERVAL '1' DAY;
        ts + INTERVAL 250 MILLISECONDS; ts - INTERVAL 36 HOURS; ts + INTERVAL '-7' SECOND;
        ts + INTERVAL 1 MICROSECOND; TIMESTAMP '1582-10-10 00:00:00'; DATE '0001-01-01'; ts >= dt;
        unix_millis(ts - INTERVAL 1 WEEK)
    """),
}


def random_rows(seed: int, count: int = 60) -> pa.Table:
    """Rows of any values, of which some are edges."""
    chance = Random(seed)
    draw: dict[str, Callable[[], Any]] = {
        "string": lambda: "".join(chance.choices(LETTERS, k=chance.randrange(8))),
        "tinyint": lambda: chance.randrange(-TINY, TINY),
        "smallint": lambda: chance.randrange(-SMALL, SMALL),
        "int": lambda: chance.randrange(-INT, INT),
        "bigint": lambda: chance.randrange(-BIG, BIG),
        "float": lambda: struct.unpack("f", chance.randbytes(4))[0],
        "double": lambda: struct.unpack("d", chance.randbytes(8))[0],
        "decimal(10,2)": lambda: Decimal(f"{chance.randrange(-(10**10) + 1, 10**10)}E-2"),
        "decimal(12,4)": lambda: Decimal(f"{chance.randrange(-(10**12) + 1, 10**12)}E-4"),
        "decimal(18,6)": lambda: Decimal(f"{chance.randrange(-(10**18) + 1, 10**18)}E-6"),
        "decimal(30,10)": lambda: Decimal(f"{chance.randrange(-(10**30) + 1, 10**30)}E-10"),
        "decimal(38,2)": lambda: Decimal(f"{chance.randrange(-(10**38) + 1, 10**38)}E-2"),
        "boolean": lambda: chance.random() < 0.5,
        "timestamp": lambda: FIRST + timedelta(microseconds=chance.randrange(YEARS_US)),
        "date": lambda: FIRST.date() + timedelta(microseconds=chance.randrange(YEARS_US)),
    }
    rows = [
        {f.name: draw[f.type]() if chance.random() < 0.7 else chance.choice(VALUES[f.name]) for f in SCHEMA}
        for _ in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA.arrow)
