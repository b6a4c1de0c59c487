"""The definition of a Kafka config: its type, default and valid values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from penstock.log.errors import ErrorCode, LogError

LARGEST_LONG = 2**63 - 1


class Kind(IntEnum):
    """The type of a config, numbered as in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Source(IntEnum):
    """Where a value comes from, numbered as in DescribeConfigs."""

    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    STATIC = 4
    DEFAULT = 5
    GROUP = 8


_RANGES = {Kind.INT: (-(2**31), 2**31 - 1), Kind.LONG: (-(2**63), 2**63 - 1), Kind.DOUBLE: (None, None)}


@dataclass(frozen=True)
class Setting:
    """One config. `broker` is the broker config that provides the default of a topic config.

    `effect`: whether this log acts on it; a config without effect is validated, stored and reported.
    """

    kind: Kind
    default: str | None
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    broker: str | None = None
    effect: bool = False
    accepts: Callable[[Any], str | None] = lambda _: None  # returns what is wrong with a parsed value

    def parse(self, name: str, text: str) -> Any:
        """Parse and validate a value."""
        value = self._typed(name, text)
        for item in value if isinstance(value, tuple) else (value,):
            if self.choices and item not in self.choices:
                raise _invalid(name, text, f"valid are {', '.join(self.choices)}")
        if self.kind in _RANGES:
            self._check_range(name, text, value)
        problem = self.accepts(value)
        if problem:
            raise _invalid(name, text, problem)
        return value

    def _typed(self, name: str, text: str) -> Any:
        text = text.strip()
        if self.kind is Kind.LIST:
            return split_list(text)
        if self.kind is Kind.STRING:
            return text
        if self.kind is Kind.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise _invalid(name, text, "it is true or false")
            return text.lower() == "true"
        try:
            return float(text) if self.kind is Kind.DOUBLE else int(text)
        except ValueError:
            raise _invalid(name, text, f"it is a number of type {self.kind.name}") from None

    def _check_range(self, name: str, text: str, value: float) -> None:
        narrowest, widest = _RANGES[self.kind]
        least = narrowest if self.least is None else self.least
        most = widest if self.most is None else self.most
        # Written so that NaN, which compares with nothing, is refused.
        if not ((least is None or value >= least) and (most is None or value <= most)):
            raise _invalid(name, text, f"it is a number from {least} to {most}")

    def normal(self, name: str, text: str) -> str:
        """Validate a value and return it in its normal form."""
        value = self.parse(name, text)
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, bool):
            return str(value).lower()
        return str(value) if isinstance(value, int) else text.strip()


def split_list(text: str) -> tuple[str, ...]:
    """Return the items of a list config, each once."""
    return tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))


def normal_config(
    config: Mapping[str, str], known: Mapping[str, Setting], owner: str, code: ErrorCode = ErrorCode.invalid_config
) -> dict[str, str]:
    """Validate and normalise configs; refuse unknown ones and invalid values."""
    normal = {}
    for name, value in config.items():
        setting = known.get(name)
        if setting is None:
            raise LogError(code, f"unknown {owner} setting {name!r}; there are {', '.join(known)}")
        try:
            normal[name] = setting.normal(name, value)
        except LogError as error:
            raise LogError(code, error.message) from None
    return normal


def _invalid(name: str, text: str, why: str) -> LogError:
    return LogError(ErrorCode.invalid_config, f"invalid value {text!r} for {name}: {why}")
