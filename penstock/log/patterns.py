"""Regular expressions over transactional ids, matched in linear time: backtracking could block the broker.

Parsed by Python's parser, matched by a finite automaton. As in Kafka (RE2), look-around and back references are
refused. See also `groups/consumer/regex.py`, which matches topic names and caches its automaton.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from re import error as PatternError
from typing import Any, NoReturn

from penstock.log.errors import ErrorCode, LogError

_parser: Any = import_module("re._parser")
_MOST_STATES = 200
_CATEGORIES: dict[str, Callable[[str], bool]] = {
    "CATEGORY_DIGIT": str.isdigit,
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_WORD": lambda character: character.isalnum() or character == "_",
}
Fits = Callable[[str], bool]


def matcher(pattern: str) -> Fits:
    """Compile a pattern to a function that matches whole texts; refuse an invalid one."""
    try:
        tree = _parser.parse(pattern)
        if tree.state.flags & ~_parser.SRE_FLAG_UNICODE:
            _refuse("flags are not supported")
        automaton = _Automaton()
        end = automaton.add(list(tree), 0)
    except (PatternError, RecursionError, OverflowError) as error:
        message = f"{pattern!r} is no regular expression that can be used: {error}"
        raise LogError(ErrorCode.invalid_regular_expression, message) from None
    return lambda text: end in automaton.run(text)


class _Automaton:
    """State 0 is the start. `free` edges need no character, only their condition; `edges` consume a character."""

    def __init__(self) -> None:
        self.free: list[list[tuple[int, str]]] = [[]]
        self.edges: list[list[tuple[int, Fits]]] = [[]]

    def state(self) -> int:
        if len(self.free) >= _MOST_STATES:
            _refuse(f"it needs more than {_MOST_STATES} states")
        self.free.append([])
        self.edges.append([])
        return len(self.free) - 1

    def add(self, nodes: Iterable[Any], start: int) -> int:
        """Append a sequence to a state; return the end state."""
        for operation, value in nodes:
            start = self._one(str(operation), value, start)
        return start

    def _one(self, operation: str, value: Any, start: int) -> int:
        match operation:
            case "SUBPATTERN":
                if value[1] or value[2]:
                    _refuse("flags are not supported")
                return self.add(value[-1], start)
            case "BRANCH":
                return self._joined([self.add(branch, start) for branch in value[1]])
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeated(value[0], value[1], value[2], start)
            case "AT":
                return self._joined([start], str(value))
        end = self.state()
        self.edges[start].append((end, _character(operation, value)))
        return end

    def _joined(self, ends: Sequence[int], condition: str = "") -> int:
        together = self.state()
        for end in ends:
            self.free[end].append((together, condition))
        return together

    def _repeated(self, least: int, most: Any, nodes: Any, start: int) -> int:
        for _ in range(least):
            start = self.add(nodes, start)
        if most is _parser.MAXREPEAT:
            again = self._joined([start])
            self.free[self.add(nodes, again)].append((again, ""))
            return again
        ends = [start]
        for _ in range(least, most):
            ends.append(self.add(nodes, ends[-1]))
        return self._joined(ends)

    def run(self, text: str) -> set[int]:
        """Return the states after a text."""
        states = self._closed({0}, True, not text)
        for at, character in enumerate(text):
            reached = {end for state in states for end, fits in self.edges[state] if fits(character)}
            states = self._closed(reached, False, at == len(text) - 1)
        return states

    def _closed(self, states: set[int], first: bool, last: bool) -> set[int]:
        holds = {"": True, "AT_BEGINNING": first, "AT_BEGINNING_STRING": first, "AT_END": last, "AT_END_STRING": last}
        found, todo = set(states), list(states)
        while todo:
            for end, condition in self.free[todo.pop()]:
                if end not in found and holds.get(condition, False):
                    found.add(end)
                    todo.append(end)
        return found


def _character(operation: str, value: Any) -> Fits:
    match operation:
        case "LITERAL":
            return lambda character: ord(character) == value
        case "NOT_LITERAL":
            return lambda character: ord(character) != value
        case "ANY":
            return lambda character: character != "\n"
        case "RANGE":
            return lambda character: value[0] <= ord(character) <= value[1]
        case "CATEGORY":
            name = str(value)
            inner = _CATEGORIES[name.replace("_NOT_", "_")]
            return (lambda character: not inner(character)) if "_NOT_" in name else inner
        case "IN":
            negated = str(value[0][0]) == "NEGATE"
            parts = [_character(str(kind), each) for kind, each in value[negated:]]
            return lambda character: any(part(character) for part in parts) is not negated
    _refuse(f"{operation.lower()} is not supported")


def _refuse(why: str) -> NoReturn:
    raise PatternError(why)
