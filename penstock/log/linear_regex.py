"""Regular expressions over topic names and transactional ids, matched in linear time.

Clients choose the expression and the broker has one thread, so with Python's backtracking matcher one request could
block all clients. As in Kafka (RE2), look-around and back references are refused. Expressions are parsed by Python's
parser and compiled to a finite automaton, whose steps are cached.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, NoReturn

from penstock.log.errors import ErrorCode, LogError

_MOST_STATES = 2_000
_MOST_CACHED = 200_000  # states in all cached steps
_LONGEST = 1_000
_FLAGS = int(re.IGNORECASE | re.DOTALL)
_parser: Any = import_module("re._parser")
Fits = Callable[[str], bool]


class LinearRegex:
    """A compiled expression; `matches` matches whole texts.

    >>> [LinearRegex("(?i:ord).*").matches(name) for name in ("orders", "ORDERS", "my-orders")]
    [True, True, False]
    """

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._empty: list[list[int]] = []  # by state: transitions without a character
        self._edges: list[tuple[Fits, int] | None] = []  # by state: its transition, and the characters of it
        self._only_at: dict[int, tuple[bool, bool]] = {}  # states that exist at the start or at the end only
        self._cached: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._cached_states = 0
        if len(expression) > _LONGEST:
            self._refuse(f"it is longer than {_LONGEST} characters")
        try:
            tree = _parser.parse(expression)
            start, self._end = self._new(), self._new()
            self._build(list(tree), start, self._end, self._flags(tree.state.flags & ~int(re.UNICODE)))
        except (re.error, RecursionError, OverflowError) as error:
            self._refuse(str(error))
        self._start = self._closure([start], at_start=True, at_end=False)
        self._start_of_empty = self._closure([start], at_start=True, at_end=True)

    def matches(self, text: str) -> bool:
        """Return whether the expression matches a whole text."""
        if not text:
            return self._end in self._start_of_empty
        states = self._start
        for character in text[:-1]:
            states = self._step(states, character, at_end=False)
        return self._end in self._step(states, text[-1], at_end=True)

    def _step(self, states: frozenset[int], character: str, *, at_end: bool) -> frozenset[int]:
        key = states, character + "$" * at_end
        found = self._cached.get(key)
        if found is None:
            edges = (self._edges[state] for state in states)
            reached = [edge[1] for edge in edges if edge is not None and edge[0](character)]
            found = self._closure(reached, at_start=False, at_end=at_end)
            self._cached_states += len(found) + 1
            if self._cached_states > _MOST_CACHED:
                self._cached.clear()
                self._cached_states = len(found) + 1
            self._cached[key] = found
        return found

    def _closure(self, states: Iterable[int], *, at_start: bool, at_end: bool) -> frozenset[int]:
        found: set[int] = set()
        todo = list(states)
        while todo:
            state = todo.pop()
            start_only, end_only = self._only_at.get(state, (False, False))
            if state not in found and (at_start or not start_only) and (at_end or not end_only):
                found.add(state)
                todo += self._empty[state]
        return frozenset(found)

    def _new(self) -> int:
        if len(self._empty) >= _MOST_STATES:
            self._refuse("it is too large")
        self._empty.append([])
        self._edges.append(None)
        return len(self._empty) - 1

    def _flags(self, flags: int) -> int:
        if flags & ~_FLAGS:
            self._refuse("flags other than i and s are not supported")
        return flags

    def _build(self, items: list[Any], start: int, end: int, flags: int) -> None:
        """Add states and edges for a sequence of parsed items that lead from one state to another."""
        for place, (kind, value) in enumerate(items):
            following = end if place == len(items) - 1 else self._new()
            self._build_one(str(kind), value, start, following, flags)
            start = following
        if not items:
            self._empty[start].append(end)

    def _build_one(self, kind: str, value: Any, start: int, end: int, flags: int) -> None:
        if kind in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            first = self._new()
            self._empty[start].append(first)
            self._edges[first] = _characters(kind, value, flags), end
        elif kind in ("MAX_REPEAT", "MIN_REPEAT"):
            self._repeat(value, start, end, flags)
        elif kind == "BRANCH":
            for branch in value[1]:
                self._build(list(branch), start, end, flags)
        elif kind == "SUBPATTERN":
            _, added, removed, inner = value
            self._build(list(inner), start, end, (flags | self._flags(added)) & ~removed)
        elif kind == "AT" and str(value) in _ANCHORS:
            state = self._new()
            self._only_at[state] = _ANCHORS[str(value)]
            self._empty[start].append(state)
            self._empty[state].append(end)
        else:
            self._refuse(f"{kind.lower().replace('_', ' ')} is not supported")

    def _repeat(self, value: Any, start: int, end: int, flags: int) -> None:
        least, most, items = value[0], value[1], list(value[2])
        for _ in range(least):
            following = self._new()
            self._build(items, start, following, flags)
            start = following
        if str(most) == "MAXREPEAT":
            again = self._new()
            self._empty[start].append(again)
            self._build(items, again, again, flags)
            self._empty[again].append(end)
            return
        for _ in range(most - least):
            self._empty[start].append(end)
            following = self._new()
            self._build(items, start, following, flags)
            start = following
        self._empty[start].append(end)

    def _refuse(self, why: str) -> NoReturn:
        message = f"{self._expression[:100]!r} is not a regular expression that the log supports: {why}"
        raise LogError(ErrorCode.invalid_regular_expression, message)


_ANCHORS = {
    "AT_BEGINNING": (True, False),
    "AT_BEGINNING_STRING": (True, False),
    "AT_END": (False, True),
    "AT_END_STRING": (False, True),
}
_CATEGORIES = {name: re.compile(text) for name, text in (("DIGIT", r"\d"), ("SPACE", r"\s"), ("WORD", r"\w"))}


def _characters(kind: str, value: Any, flags: int) -> Fits:
    """Return which characters an item matches."""
    if kind == "ANY":
        return lambda character: character != "\n" or bool(flags & re.DOTALL)
    given = [(str(each), argument) for each, argument in value] if kind == "IN" else [("LITERAL", value)]
    negated = kind == "NOT_LITERAL" or ("NEGATE", None) in given
    parts = [_part(each, argument) for each, argument in given if each != "NEGATE"]

    def fits(character: str) -> bool:
        cases = _cases(character) if flags & re.IGNORECASE else {character}
        return any(part(each) for part in parts for each in cases) is not negated

    return fits


def _part(kind: str, value: Any) -> Fits:
    if kind == "LITERAL":
        return chr(value).__eq__
    if kind == "RANGE":
        return lambda character: value[0] <= ord(character) <= value[1]
    name = str(value).removeprefix("CATEGORY_")
    pattern = _CATEGORIES[name.removeprefix("NOT_")]
    return lambda character: bool(pattern.match(character)) != name.startswith("NOT_")


def _cases(character: str) -> set[str]:
    return {each for each in (character, character.lower(), character.upper()) if len(each) == 1}
