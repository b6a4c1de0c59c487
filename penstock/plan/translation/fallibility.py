"""Which expressions can fail on a row, where in them, and why: division by zero, overflow, text that does not convert.

Both lanes evaluate such expressions so that a failure rejects the row instead of stopping the job. An expression that
is not proven safe here counts as fallible: that costs time, never a result. The probes of an expression are its parts
that can fail, in the order of evaluation; the first that fails on a rejected row is the reason, alike in both lanes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp

from penstock.errors import PipelineError
from penstock.plan.sql_expressions.arithmetic_types import SIGNS, no_digit_is_cut, operate
from penstock.plan.sql_expressions.evaluation_order import (
    CHOICES,
    COALESCE,
    CONDITIONAL,
    alike,
    closed,
    inputs,
    text_of,
)
from penstock.plan.sql_expressions.parsing import parse_verbatim
from penstock.plan.sql_expressions.result_types import CannotTellType
from penstock.plan.sql_expressions.type_inference import Inference
from penstock.plan.sql_expressions.types import STRING, VOID, Type, common, holds_exactly, operands
from penstock.plan.translation import translate
from penstock.plan.translation.parts import NotNative, Part
from penstock.schema import Schema

_ZERO, _OVERFLOW, _RANGE = "division by zero", "overflow", "the index is out of range"
_CONVERTED, _PARSED = "a text cannot be converted", "the text cannot be parsed"
# More probes than this make the code that Spark generates too long; then the reason names the whole expression.
_MOST_PROBES = 12
# Functions that take values of one common type and raise nothing themselves.
_ALIKE = (*COALESCE, *CONDITIONAL, "greatest", "least", "nullif", "equal_null", "array")
# Functions that take values of any type and never raise.
_SAFE = (
    *("isnull", "isnotnull", "struct", "named_struct", "size", "cardinality", "typeof", "hash", "xxhash64"),
    *("upper", "lower", "ucase", "lcase", "initcap", "reverse", "md5", "sha", "sha1", "crc32", "base64"),
)
# Functions of numbers that give NaN, infinity or null where they have no result; a text would be converted first.
_MATH = (
    *("exp", "expm1", "ln", "log", "log2", "log10", "log1p", "pow", "power", "sqrt", "cbrt", "degrees", "radians"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "isnan", "nanvl", "positive"),
)
_READERS = (
    "to_timestamp",
    "to_date",
    "unix_timestamp",
    "to_unix_timestamp",
    "timestamp",
    "date",
    "to_number",
    "from_csv",
)
# Functions that try all that they do.
_TRIED = (
    *("try_add", "try_subtract", "try_multiply", "try_divide", "try_mod", "try_sum", "try_avg", "try_to_binary"),
    *("try_to_number", "try_url_decode", "try_parse_json", "try_validate_utf8", "try_aes_decrypt"),
)
# Functions that try to read a value, but not the key by which they do: which one is right for certain, and where it is.
_PATTERNS = {"try_parse_url": (r"\w+", 2), "try_variant_get": (r"\$(\.[A-Za-z_]\w*|\[\d{1,9}\])*", 1)}
_TRY_READERS = ("try_to_date", "try_to_timestamp", "try_to_time")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_PLAIN = (exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.HexString, exp.RawString)
_LOGIC = (exp.And, exp.Or, exp.Not, exp.Is, exp.Paren, exp.Alias, exp.Dot)
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In)


@dataclass(frozen=True)
class Probe:
    """A part of an expression that can fail: `sql` is null or a value where it does not; `reason` is for the user."""

    sql: str
    reason: str


@lru_cache(maxsize=4096)
def can_fail(sql: str, schema: Schema) -> bool:
    """Return whether a row can make an expression fail.

    >>> can_fail("a / b", Schema("a double, b double")), can_fail("a / 2", Schema("a double"))
    (True, False)
    """
    return next(_Failures(sql, schema).found(), None) is not None


@lru_cache(maxsize=4096)
def probes(sql: str, schema: Schema) -> tuple[Probe, ...]:
    """Return the parts of an expression that can fail, in the order of evaluation; none if they are too many.

    >>> for probe in probes("cast(s as int) + 1", Schema("s string")):
    ...     print(probe.reason)
    "CAST(s AS INT)" failed in "cast(s as int) + 1": it cannot be cast to int
    "cast(s as int) + 1" failed: overflow
    """
    found = list(_Failures(sql, schema).found())
    return tuple(found) if len(found) <= _MOST_PROBES else ()


def generic_reason(sql: str) -> str:
    """Return the reason of a failure that no probe explains."""
    return f'"{_one_line(sql)}" failed'


class _Failures:
    """Walks one expression; `guards` are the conditions under which a part is evaluated at all."""

    def __init__(self, sql: str, schema: Schema) -> None:
        self.sql = sql
        self.tree = parse_verbatim(sql, node="expression")
        self.translation = translate(sql, schema)
        self.inference = Inference(schema, sql, "expression")

    def found(self) -> Iterator[Probe]:
        yield from self._parts(self.tree, ())

    def _parts(self, tree: exp.Expr, guards: tuple[str, ...]) -> Iterator[Probe]:
        if isinstance(tree, _PLAIN) or self._is_safe(tree):
            return
        for part, more in inputs(tree):
            yield from self._parts(part, (*guards, *more))
        try:
            reason = self._own(tree)
        except (PipelineError, CannotTellType):
            reason = "its values do not fit"
        if reason is not None:
            yield self._probe(tree, guards, reason)

    def _probe(self, tree: exp.Expr, guards: tuple[str, ...], reason: str) -> Probe:
        whole = tree is self.tree
        text = self.sql if whole else text_of(tree)
        where = f'"{_one_line(text)}" failed' if whole else f'"{_one_line(text)}" failed in "{_one_line(self.sql)}"'
        guarded = f"CASE WHEN {' AND '.join(guards)} THEN {closed(text)} END" if guards else text
        return Probe(guarded, f"{where}: {reason}")

    def _is_safe(self, tree: exp.Expr) -> bool:
        """Whether a part as a whole is on the list of what is compared with Spark, as one that never fails."""
        try:
            return not self.translation.part(tree).fails
        except (NotNative, PipelineError, CannotTellType):
            return False

    def _own(self, tree: exp.Expr) -> str | None:
        """Return why a part can fail although its own parts do not, or None."""
        if isinstance(tree, _LOGIC):
            return None
        if type(tree) in SIGNS:
            return self._arithmetic(tree)
        if isinstance(tree, exp.Cast):
            return None if tree.args.get("safe") else self._cast(tree)
        if isinstance(tree, exp.Neg):
            return _OVERFLOW
        if isinstance(tree, exp.Interval):
            return None if isinstance(tree.this, exp.Literal) else _OVERFLOW
        if isinstance(tree, (*_COMPARED, *CHOICES)):
            return self._converted(tree)
        if isinstance(tree, exp.Like | exp.ILike) and _is_pattern(tree.expression):
            return None
        if isinstance(tree, exp.Bracket):
            return self._indexed(tree)
        if isinstance(tree, exp.Anonymous):
            return self._call(tree)
        return "its values do not fit"

    def _arithmetic(self, tree: exp.Expr) -> str | None:
        sign = SIGNS[type(tree)]
        sides = (tree.this, tree.expression)
        sizes = operands(sides, self.inference.types_of(sides))
        if STRING in sizes:
            return f"{_CONVERTED}, {_ZERO} or {_OVERFLOW}"
        kind = operate(sign, *sizes)
        if sign in ("/", "%", "div"):
            return _divided(sign, kind, tree.expression)
        if kind is not None and kind.name in ("float", "double"):
            return None
        if kind is not None and kind.name == "decimal" and no_digit_is_cut(sign, *sizes):
            return None
        return _OVERFLOW

    def _cast(self, tree: exp.Expr) -> str | None:
        source, kind = self.inference.type_of(tree.this), self.inference.type_of(tree)
        return None if _never_fails(source, kind) else f"it cannot be cast to {kind}"

    def _converted(self, tree: exp.Expr) -> str | None:
        """Spark converts values of several types to one, as a string beside a number, and fails where it cannot."""
        for group in alike(tree):
            kinds = self.inference.types_of(group)
            kind = common(kinds)
            if kind is None:
                return _CONVERTED
            pairs = zip(group, kinds, strict=True)
            if not all(_never_fails(one, kind) or _is_plain_date(part, kind) for part, one in pairs):
                return _CONVERTED
        return None

    def _indexed(self, tree: exp.Expr) -> str | None:
        kind = self.inference.type_of(tree.this)
        if kind.name == "array":
            return _RANGE
        return (
            _CONVERTED if kind.name == "map" and self.inference.type_of(tree.expressions[0]) != kind.parts[0] else None
        )

    def _call(self, tree: exp.Expr) -> str | None:
        name = tree.name.lower()
        if name in _ALIKE:
            return self._converted(tree)
        if name in _SAFE:
            return None
        if name.startswith("try_"):
            return self._tried(name, tree)
        kinds = self.inference.types_of(tree.expressions)
        if name in _MATH or (name in ("round", "bround") and kinds[0].name in ("float", "double")):
            return None if all(kind.is_numeric or kind == VOID for kind in kinds) else _CONVERTED
        if name in ("get", "hex", "concat"):
            return None if _takes_as_they_are(name, kinds) else _CONVERTED
        if name == "element_at":
            return _RANGE if kinds[0].name == "array" else _CONVERTED if kinds[1] != kinds[0].parts[0] else None
        if name in ("abs", "negative"):
            return _OVERFLOW
        return _PARSED if name in _READERS else f"{name}() does not take these values"

    def _tried(self, name: str, tree: exp.Expr) -> str | None:
        """Return why a `try_` function can fail after all: they do not try everything."""
        given = tree.expressions
        if name == "try_element_at":
            kinds = self.inference.types_of(given)
            if kinds[0].name == "array":
                return None if Part("", VOID, given[1]).number else "the index is 0"
            return None if kinds[1] == kinds[0].parts[0] else _CONVERTED
        if name in _TRY_READERS:
            return None if all(map(_is_time_format, given[1:])) else "the format is not one"
        if name in _PATTERNS:
            pattern, at = _PATTERNS[name]
            return None if all(_is_literal(one, pattern) for one in given[at : at + 1]) else "the key is not one"
        return None if name in _TRIED and len(given) <= 3 else f"{name}() does not take these values"


def _is_literal(tree: exp.Expr, pattern: str) -> bool:
    """Whether a text is written out, and of a form."""
    return isinstance(tree, exp.Literal) and tree.is_string and re.fullmatch(pattern, tree.name, re.ASCII) is not None


def _is_time_format(tree: exp.Expr) -> bool:
    """Whether a format is written out, and of letters that every format may have."""
    return isinstance(tree, exp.Literal) and tree.is_string and set(re.findall("[A-Za-z]", tree.name)) <= set("yMdHmsS")


def _takes_as_they_are(name: str, kinds: tuple[Type, ...]) -> bool:
    """Whether a function takes values of these types without a conversion that can fail."""
    if name == "get":
        return kinds[1].is_integer and kinds[1].name != "bigint"
    if name == "hex":
        return kinds[0].is_integer or kinds[0].name in ("string", "binary")
    # Values that are no arrays become strings.
    return not any(kind.parts for kind in kinds) or len(set(kinds)) == 1


def _is_pattern(tree: exp.Expr) -> bool:
    """Whether a LIKE pattern is written out and has no escape, which could be a wrong one."""
    return isinstance(tree, exp.Literal) and tree.is_string and "\\" not in tree.name


def _divided(sign: str, kind: Type | None, divisor: exp.Expr) -> str | None:
    exact = kind is not None and kind.name == "decimal"
    if exact or sign == "div":
        number = Part("", VOID, divisor).number
        return None if number and number != -1 and not exact else f"{_ZERO} or {_OVERFLOW}"
    return None if _is_not_zero(divisor.unnest()) else _ZERO


def _is_not_zero(divisor: exp.Expr) -> bool:
    """Whether a divisor is a number that is written out, or `nullif(x, 0)`; as a double, `1e-400` is 0."""
    if isinstance(divisor, exp.Anonymous) and divisor.name.lower() == "nullif":
        return Part("", VOID, divisor.expressions[1]).number == 0
    number = Part("", VOID, divisor).number
    return number is not None and float(number) != 0


def _never_fails(source: Type, kind: Type) -> bool:
    if source in (kind, VOID):
        return True
    if kind == STRING:
        return not source.parts
    if kind.name in ("float", "double"):
        return source.is_numeric or source.name == "boolean"
    if kind.name == "boolean":
        return source.is_numeric
    if source.name == "boolean" and kind.is_integer:
        return True
    # Of the dates only those within 292,277 years of 1970 are times.
    return holds_exactly(kind, source) or (source.name, kind.name) == ("timestamp", "date")


def _is_plain_date(tree: exp.Expr, kind: Type) -> bool:
    """Whether a part is `DATE '2026-01-01'`, beside times."""
    written = isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal) and tree.this.is_string
    return written and kind.name == "timestamp" and _DATE.fullmatch(tree.this.name) is not None


def _one_line(sql: str) -> str:
    return " ".join(sql.split())
