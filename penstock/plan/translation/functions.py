"""The functions that mean the same in both engines.

Each form is compared with Spark in tests/native: a test fails if one of them has no case there.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from penstock.plan.translation.parts import Form, Part, kinds_of, not_native, safe_after_first
from penstock.plan.translation.times import TIMES
from penstock.plan.translation.translator import Translation

_ALL = 2**31 - 1
# Of java.math.MathContext.DECIMAL128.
_JAVA_DIGITS = 34


def _not_negative(sql: str) -> str:
    """Write max(x, 0); DuckDB's greatest would make 0 of null."""
    return f"(CASE WHEN {sql} < 0 THEN 0 ELSE {sql} END)"


def _substring(text: Part, start: Part, length: Part | None = None) -> str:
    """Cut text as Spark does: 0 is the first position, and positions before the text count in the length."""
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


def _split_part(text: Part, separator: Part, number: Part) -> str:
    """Cut text at a separator; what the engines make of an empty one, and of a number below 1, is not compared."""
    if not separator.text or number.number is None or number.number < 1:
        not_native("split_part() with a separator or a number that is not written out")
    return f"split_part({text.sql}, {separator.sql}, {number.sql})"


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
    Form("split_part", "string string int", _split_part),
    Form("md5", "string", "md5({0})"),
]


def _whole(call: str) -> str:
    """Round to a bigint as Java does, to which NaN is 0; what is too large raises."""
    return f"CASE WHEN isnan({{0}}) THEN 0 ELSE CAST({call}({{0}}) AS BIGINT) END"


def _rounded(part: Part, places: Part) -> str:
    """Round a decimal; the number of places is part of Spark's result type, so it is written out."""
    if places.number is None or not 0 <= places.number <= part.type.size[1]:
        not_native("round() to more places than the decimal has")
    return f"round({part.sql}, {int(places.number)})"


def _of_few_digits(call: str) -> Callable[[Part], str]:
    """Write a sign of a decimal: Spark negates as Java does, which rounds to 34 digits, and may then not fit."""

    def write(part: Part) -> str:
        if part.type.size[0] > _JAVA_DIGITS:
            not_native(f"the negative of a {part.type}")
        return call.format(part.sql)

    return write


_SIGN = "CASE WHEN {0} > 0 AND NOT isnan({0}) THEN 1 WHEN {0} < 0 THEN -1 ELSE {0} END"
NUMBERS = [
    Form("abs", "whole", "abs({0})", fails=True),
    Form("abs", "float", "abs({0})"),
    Form("abs", "decimal", _of_few_digits("abs({0})")),
    Form("negative", "whole", "(0 - {0})", fails=True),
    Form("negative", "float", "(-{0})"),
    Form("negative", "decimal", _of_few_digits("(-{0})")),
    Form("positive", "whole", "{0}"),
    Form("positive", "float", "{0}"),
    Form("positive", "decimal", "{0}"),
    Form("sign signum", "whole", "sign({0})"),
    Form("sign signum", "double", _SIGN),
    Form("floor ceil ceiling", "whole", "{0}"),
    Form("floor", "float", _whole("floor"), fails=True),
    Form("ceil ceiling", "float", _whole("ceil"), fails=True),
    Form("floor", "decimal", "floor({0})"),
    Form("ceil ceiling", "decimal", "ceil({0})"),
    Form("round", "whole", "{0}"),
    # No decimal is -0: Spark rounds by way of one.
    Form("round", "double", "(round({0}) + 0.0::DOUBLE)"),
    Form("round", "decimal", "round({0}, 0)"),
    Form("round", "decimal int", _rounded),
    Form("sqrt", "double", "CASE WHEN {0} < 0 THEN 'nan'::DOUBLE ELSE sqrt({0}) END"),
    Form("isnan", "float", "coalesce(isnan({0}), FALSE)"),
    Form("nanvl", "double double", "CASE WHEN isnan({0}) THEN {1} ELSE {0} END"),
]
ALL = (*NUMBERS, *TEXTS, *TIMES)
_BY_NAME = {name: [form for form in ALL if name in form.names.split()] for form in ALL for name in form.names.split()}


def called(translation: Translation, name: str, tree: exp.Expr, parts: list[Part]) -> Part:
    """Write a call by the form that takes arguments of these types."""
    kinds = [part.type for part in parts]
    form = next((form for form in _BY_NAME.get(name, ()) if form.fits(kinds)), None)
    if form is None:
        not_native(f"{name}({kinds_of(parts)})" if name in _BY_NAME else f"{name}()")
    safe_after_first(parts, f"{name}()")
    translation.used.add(f"{name}({form.takes})")
    return translation.made(tree, form.write(parts), parts, fails=form.fails)
