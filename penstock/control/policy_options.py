"""Policies as users write them: JSON, or text such as `fixed_delay:delay=5s,attempts=3`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from penstock.durations import micros
from penstock.errors import BadValue, choices

P = TypeVar("P")
# What an option is read as; any other name is a text or a truth value, and is passed on.
SPAN, NUMBER, COUNT = "span", "number", "count"


def read_policy(
    value: str | Mapping[str, Any], policies: Mapping[str, type[P]], types: Mapping[str, str], node: str
) -> P:
    """Return the policy of this `kind` with its options; unknown kinds and options are refused with the known ones."""
    options = _parsed(value, node)
    kind = str(options.pop("kind", ""))
    if kind not in policies:
        message = f"unknown policy {kind!r}"
        raise BadValue(message, node=node, hint=choices("policies", policies, kind))
    known = [field.name for field in fields(policies[kind])]  # type: ignore[arg-type]
    for name in options:
        if name not in known:
            message = f"{kind} has no option {name!r}"
            raise BadValue(message, node=node, hint=choices(f"options of {kind}", known, name))
    return policies[kind](**{name: _read(name, option, types.get(name), node) for name, option in options.items()})


def policy_text(kind: str, options: Mapping[str, Any]) -> str:
    """Write a policy as the text that `read_policy` reads."""
    written = ",".join(f"{name}={_text(value)}" for name, value in options.items())
    return f"{kind}:{written}" if written else kind


def at_least(node: str, least: float, **values: Any) -> None:
    """Refuse values that are not finite numbers, or less than the least."""
    for name, value in values.items():
        if not _is_number(value) or isinstance(value, str) or not value >= least:
            message = f"{name}={value!r} is not a number of {least:g} or more"
            raise BadValue(message, node=node, hint=f"pass {name}={least:g} or more")


def whole_from(node: str, least: int, most: int, **values: Any) -> None:
    """Refuse values that are not whole numbers in this range."""
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            message = f"{name}={value!r} is not a whole number from {least} to {most}"
            raise BadValue(message, node=node, hint=f"pass {name}={least} to {name}={most}")


def _parsed(value: str | Mapping[str, Any], node: str) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, str):
        message = f"{value!r} is neither text nor an object"
        raise BadValue(message, node=node, hint='write {"kind": ...} or kind:name=value,name=value')
    kind, _, rest = value.strip().partition(":")
    options: dict[str, Any] = {"kind": kind.strip()}
    for pair in filter(None, map(str.strip, _split(rest))):
        name, equals, option = pair.partition("=")
        if not equals:
            message = f"{pair!r} is not name=value"
            raise BadValue(message, node=node, hint="write kind:name=value,name=value")
        options[name.strip()] = option.strip()
    return options


def _split(text: str) -> list[str]:
    """Split at commas that are not within parentheses: an option may be an expression."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _read(name: str, value: Any, type: str | None, node: str) -> Any:
    if type is None:
        return value
    if value is None or value == "unlimited":
        return None
    if type == SPAN and isinstance(value, str) and not _is_number(value):
        return micros(value, node) / 1_000_000
    if not _is_number(value):
        message = f"{name}={value!r} is not a number"
        raise BadValue(message, node=node, hint="pass a number" + (" or a span such as 10s" if type == SPAN else ""))
    number = float(value)
    return int(number) if type == COUNT and number.is_integer() else number


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        return abs(float(value)) < float("inf")
    except (ValueError, OverflowError):
        return False


def _text(value: Any) -> str:
    if value is None:
        return "unlimited"
    return repr(value) if isinstance(value, float) else str(value)
