"""Functions of text. Case is not here: Spark maps it by ICU (ß is SS), DuckDB letter by letter."""

from __future__ import annotations

from penstock.plan.portable.forms import Form
from penstock.plan.portable.parts import Part

_ALL = 2**31 - 1


def _not_negative(sql: str) -> str:
    """Write max(x, 0); DuckDB's greatest would make 0 of null."""
    return f"(CASE WHEN {sql} < 0 THEN 0 ELSE {sql} END)"


def _substring(text: Part, start: Part, length: Part | None = None) -> str:
    """Cut text as Spark does: 0 is the first place, and places before the text count in the length."""
    size = length.sql if length else str(_ALL)
    if start.number is not None and start.number >= 0:
        return f"substring({text.sql}, {max(1, int(start.number))}, {_not_negative(size)})"
    before = _not_negative(f"({start.sql} - 1)")
    first = f"(CASE WHEN {start.sql} < 0 THEN length({text.sql}) + {start.sql} ELSE {before} END)"
    end = f"({first} + CAST({size} AS BIGINT))"
    begin = _not_negative(first)
    return f"substring({text.sql}, {begin} + 1, {_not_negative(f'({end} - {begin})')})"


def _left(text: Part, length: Part) -> str:
    return f"left({text.sql}, {_not_negative(length.sql)})"


def _right(text: Part, length: Part) -> str:
    return f"right({text.sql}, {_not_negative(length.sql)})"


def _repeat(text: Part, count: Part) -> str:
    return f"repeat({text.sql}, {_not_negative(count.sql)})"


def _concat(*parts: Part) -> str:
    return "(" + " || ".join(part.sql for part in parts) + ")"


TEXTS = [
    Form("length char_length character_length len", "string", "length({0})"),
    Form("octet_length", "string", "strlen({0})"),
    Form("concat", "string*", _concat),
    Form("trim btrim", "string", "trim({0}, ' ')"),
    Form("ltrim", "string", "ltrim({0}, ' ')"),
    Form("rtrim", "string", "rtrim({0}, ' ')"),
    Form("substring", "string int", _substring),
    Form("substring", "string int int", _substring),
    Form("left", "string int", _left),
    Form("right", "string int", _right),
    Form("replace", "string string", "replace({0}, {1}, '')"),
    Form("replace", "string string string", "replace({0}, {1}, {2})"),
    Form("startswith", "string string", "starts_with({0}, {1})"),
    Form("endswith", "string string", "ends_with({0}, {1})"),
    Form("contains", "string string", "contains({0}, {1})"),
    Form("instr", "string string", "instr({0}, {1})"),
    Form("position locate", "string string", "instr({1}, {0})"),
    Form("repeat", "string int", _repeat),
    Form("md5", "string", "md5({0})"),
]
