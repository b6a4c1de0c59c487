"""The rules by which the result type of a Spark function follows from its arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from sqlglot import exp

from penstock.errors import BadSchema
from penstock.plan.arithmetic import bits, operate, scaled
from penstock.plan.literals import operands
from penstock.plan.types import (
    BIGINT,
    BINARY,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    VOID,
    Type,
    array,
    as_decimal,
    common,
    decimal,
    read,
    struct,
)
from penstock.schema import Schema

# The parts of times and intervals, in each of Spark's spellings.
_SECONDS = re.compile("s|sec(ond)?s?")
_SMALL_FIELDS = re.compile("mon(th)?s?|h|hrs?|hours?|m|min(ute)?s?")
_FIELDS = re.compile("y(ea)?rs?|years?|y|yearofweek|quarter|qtr|w|weeks?|d|days?|(dayofweek|dow)(_iso)?|doy")


class CannotTellType(Exception):
    """A function that Spark has, but whose result type is not known here."""


@dataclass(frozen=True)
class Call:
    """A function call: the types of its arguments, the arguments, and a way to look into a lambda."""

    name: str
    args: tuple[Type, ...]
    nodes: tuple[exp.Expr, ...]
    body: Callable[[exp.Expr, tuple[Type, ...]], Type]

    def literal(self, index: int) -> str:
        """Return the text of an argument that must be a literal; the type cannot be told without it."""
        node = self.nodes[index] if index < len(self.nodes) else None
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
            return f"-{node.this.name}"
        if not isinstance(node, exp.Literal):
            raise CannotTellType
        return node.name

    def whole(self, index: int) -> int:
        """Return the value of an argument that must be a whole literal."""
        try:
            return int(self.literal(index))
        except ValueError:
            raise CannotTellType from None


Rule = Callable[[Call], Type | None]


def number(kind: Type) -> Type | None:
    """Return the number that an argument becomes where Spark wants one."""
    if kind in (STRING, VOID):
        return DOUBLE
    return kind if kind.is_numeric else None


def first(call: Call) -> Type | None:
    """Return the type of the first argument; `mode()` without one lacks its WITHIN GROUP."""
    return call.args[0] if call.args else None


def common_of_all(call: Call) -> Type | None:
    """Return the type that all arguments have in common."""
    return common(call.args)


def _operator(sign: str, call: Call) -> Type | None:
    return operate(sign, *operands(call.nodes, call.args))


def _signed(call: Call) -> Type | None:
    return call.args[0] if call.args[0].is_interval else number(call.args[0])


def _sign(call: Call) -> Type | None:
    return DOUBLE if _signed(call) else None


def _same_bits(call: Call) -> Type | None:
    return bits(call.args[0], call.args[0])


def _shift(call: Call) -> Type | None:
    return BIGINT if call.args[0] == BIGINT else INT


def _rounded(call: Call) -> Type | None:
    kind = number(call.args[0])
    if kind is None or kind.name != "decimal":
        return kind
    return _rounded_decimal(kind, call.whole(1) if len(call.args) > 1 else 0)


def _rounded_decimal(kind: Type, places: int) -> Type:
    whole = kind.size[0] - kind.size[1] + 1
    if places < 0:
        return decimal(max(whole, 1 - places), 0)
    return decimal(whole + min(places, kind.size[1]), min(places, kind.size[1]))


def _up_or_down(call: Call) -> Type | None:
    kind = number(call.args[0])
    if kind is None:
        return None
    if len(call.args) > 1:
        exact = {"double": decimal(30, 15), "float": decimal(14, 7)}.get(kind.name, as_decimal(kind))
        return _rounded_decimal(exact, call.whole(1))
    if kind.name != "decimal":
        return BIGINT
    return kind if kind.size[1] == 0 else decimal(kind.size[0] - kind.size[1] + 1, 0)


def _sum(call: Call) -> Type | None:
    kind = call.args[0]
    if kind.is_interval:
        return kind
    if kind.is_integer:
        return BIGINT
    if kind.name == "decimal":
        return decimal(kind.size[0] + 10, kind.size[1])
    return DOUBLE if number(kind) else None


def _average(call: Call) -> Type | None:
    kind = call.args[0]
    if kind.is_interval:
        return scaled(kind)
    if kind.name == "decimal":
        return decimal(kind.size[0] + 4, kind.size[1] + 4)
    return DOUBLE if number(kind) else None


def _extreme_by(call: Call) -> Type | None:
    return array(call.args[0]) if len(call.args) > 2 else call.args[0]


def _percentile(call: Call) -> Type | None:
    kind = scaled(call.args[0]) if call.args[0].is_interval else DOUBLE
    return array(kind) if any(arg.name == "array" for arg in call.args[1:]) else kind


def _approximate_percentile(call: Call) -> Type | None:
    kind = DOUBLE if call.args[0] in (STRING, VOID) else call.args[0]
    return array(kind) if call.args[1].name == "array" else kind


def _histogram(call: Call) -> Type | None:
    return array(struct([("x", call.args[0]), ("y", DOUBLE)]))


def _top(call: Call) -> Type | None:
    return array(struct([("item", call.args[0]), ("count", BIGINT)]))


def _text_or_bytes(call: Call) -> Type | None:
    """Type functions that cut or pad: bytes stay bytes unless text is mixed in."""
    mixed = STRING in call.args[1:]
    return BINARY if call.args[0] == BINARY and not mixed else STRING


def _concatenated(call: Call) -> Type | None:
    if any(arg.parts for arg in call.args):
        kind = common(call.args)
        return kind if kind and kind.name == "array" else None
    return BINARY if call.args and set(call.args) == {BINARY} else STRING


def _decoded(call: Call) -> Type | None:
    if len(call.args) == 2:
        return STRING
    results = call.args[2::2] if len(call.args) % 2 else (*call.args[2::2], call.args[-1])
    return common(results)


def _if_null_or_not(call: Call) -> Type | None:
    return common(call.args[1:])


def _zero_if_null(call: Call) -> Type | None:
    return common((call.args[0], INT))


def _parsed(call: Call) -> Type | None:
    """Type from_json and its like by their schema, which must be a literal."""
    text = call.literal(1)
    try:
        if "<" in text.split()[0]:
            return read(text)
        return struct((field.name, read(field.type)) for field in Schema(text))
    except (BadSchema, IndexError):
        raise CannotTellType from None


def _variant_part(call: Call) -> Type | None:
    return read(call.literal(2)) if len(call.args) > 2 else Type("variant")


def _second(call: Call) -> Type | None:
    return call.args[1]


def _timestamp_plus(call: Call) -> Type | None:
    kind = call.args[-1]
    return TIMESTAMP if kind in (DATE, STRING) else kind


def date_field(name: str, kind: Type) -> Type | None:
    """Return the type of a part of a time, as `extract` gives it; None if there is no such part."""
    name = name.lower()
    if _SECONDS.fullmatch(name):
        return decimal(8, 6)
    if _SMALL_FIELDS.fullmatch(name):
        return Type("tinyint") if kind.is_interval else INT
    return INT if _FIELDS.fullmatch(name) else None


def _date_part(call: Call) -> Type | None:
    return date_field(call.literal(0), call.args[1])


_BY_RULE: list[tuple[str, Rule]] = [
    ("min max mode nullif nullifzero", first),
    ("coalesce greatest ifnull least nvl", common_of_all),
    ("nvl2", _if_null_or_not),
    ("zeroifnull", _zero_if_null),
    ("abs negative positive", _signed),
    ("sign signum", _sign),
    ("shiftleft shiftright shiftrightunsigned", _shift),
    ("bit_and bit_or bit_xor", _same_bits),
    ("round bround", _rounded),
    ("ceil ceiling floor", _up_or_down),
    ("sum try_sum", _sum),
    ("avg mean try_avg regr_avgy", _average),
    ("regr_avgx", lambda call: _average(replace(call, args=call.args[1:]))),
    ("max_by min_by", _extreme_by),
    ("percentile percentile_cont percentile_disc median", _percentile),
    ("approx_percentile percentile_approx", _approximate_percentile),
    ("histogram_numeric", _histogram),
    ("approx_top_k", _top),
    ("substr substring left lpad rpad overlay listagg string_agg", _text_or_bytes),
    ("concat", _concatenated),
    ("elt", lambda call: BINARY if set(call.args[1:]) == {BINARY} else STRING),
    ("decode", _decoded),
    ("from_json from_csv from_xml", _parsed),
    ("variant_get try_variant_get", _variant_part),
    ("time_bucket", _second),
    ("timestampadd", _timestamp_plus),
    ("date_part datepart extract", _date_part),
    ("try_add", partial(_operator, "+")),
    ("try_subtract", partial(_operator, "-")),
    ("try_multiply", partial(_operator, "*")),
    ("try_divide", partial(_operator, "/")),
    ("mod pmod try_mod", partial(_operator, "%")),
]
SCALARS: dict[str, Rule] = {name: rule for names, rule in _BY_RULE for name in names.split()}
