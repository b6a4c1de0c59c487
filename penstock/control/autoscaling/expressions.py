"""A user's function of the figures, as an expression: `ceil(lag / 5000)`. Nothing else can be called or read."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import BadValue, choices

NODE = "autoscaling expression"
_LONGEST = 500
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "sqrt": math.sqrt,
    "min": min,
    "max": max,
    "abs": abs,
}
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class NotMeasured(Exception):
    """The expression needs a figure that the job does not have now."""


def check_expression(text: Any, names: set[str]) -> None:
    """Refuse what is not an expression of these names."""
    for node in ast.walk(_parsed(text)):
        if isinstance(node, ast.Name) and node.id not in names | set(_FUNCTIONS):
            message = f"unknown figure {node.id!r} in {text!r}"
            raise BadValue(message, node=NODE, hint=choices("figures", sorted(names), node.id))
        if isinstance(node, ast.Call) and not _is_known_call(node):
            message = f"unknown function in {text!r}"
            raise BadValue(message, node=NODE, hint=choices("functions", _FUNCTIONS))
        if reason := _refusal(node):
            message = f"{reason} in {text!r}"
            raise BadValue(message, node=NODE, hint="use numbers, figures, + - * / // %, comparisons, x if c else y")


def evaluate(text: str, figures: Mapping[str, float]) -> float:
    """Return the value of a checked expression.

    >>> evaluate("ceil(lag / 5000)", {"lag": 12000})
    3.0
    """
    try:
        value = float(_value(_parsed(text).body, figures))
    except (ArithmeticError, ValueError, TypeError, RecursionError) as error:
        message = f"{text!r} has no value: {error}"
        raise NotMeasured(message) from None
    if not math.isfinite(value):
        message = f"{text!r} is not finite"
        raise NotMeasured(message)
    return value


_ALLOWED = (
    ast.Expression,
    ast.Constant,
    ast.Name,
    ast.Load,
    ast.Call,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.IfExp,
    *_OPERATORS,
)


def _parsed(text: Any) -> ast.Expression:
    if not isinstance(text, str) or not 0 < len(text) <= _LONGEST:
        message = f"an expression is a text of 1 to {_LONGEST} characters"
        raise BadValue(message, node=NODE, hint="write for example ceil(lag / 5000)")
    try:
        return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        message = f"{text!r} is not an expression"
        raise BadValue(message, node=NODE, hint="write for example ceil(lag / 5000)") from None


def _refusal(node: ast.AST) -> str | None:
    if not isinstance(node, _ALLOWED):
        return f"{type(node).__name__} is not allowed"
    if isinstance(node, ast.Constant) and not isinstance(node.value, int | float):
        return "only numbers are allowed as constants"
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        return "only one comparison at a time is allowed"
    return None


def _is_known_call(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and bool(node.args) and not node.keywords


def _value(node: ast.AST, figures: Mapping[str, float]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            if name not in figures:
                message = f"{name} is not measured"
                raise NotMeasured(message)
            return figures[name]
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATORS[type(operation)](_value(left, figures), _value(right, figures))
        case ast.UnaryOp(op=operation, operand=operand):
            return _OPERATORS[type(operation)](_value(operand, figures))
        case ast.Compare(left=left, ops=[operation], comparators=[right]):
            return _OPERATORS[type(operation)](_value(left, figures), _value(right, figures))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, figures) else orelse, figures)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _FUNCTIONS[name](*(_value(arg, figures) for arg in args))
        case _:
            message = f"{type(node).__name__} is not allowed"
            raise TypeError(message)
