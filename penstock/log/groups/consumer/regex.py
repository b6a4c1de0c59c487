"""Regular expressions over topic names, matched in linear time.

Clients choose the expression and the broker has one thread, so with Python's backtracking matcher one request could
block all clients. As in Kafka (RE2), look-around and back references are refused. Expressions are parsed by Python's
parser and compiled to a finite automaton.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from importlib import import_module
from typing import Any, NoReturn

from penstock.log.errors import ErrorCode, LogError

NAME_CHARACTERS = string.ascii_letters + string.digits + "._-"
_MOST_STATES = 2_000
_MOST_CACHED = 20_000
_LONGEST = 1_000
_parser: Any = import_module("re._parser")


class TopicPattern:
    """A compiled expression; `matches` matches whole topic names."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._empty: list[list[int]] = []  # by state: transitions without a character
        self._edges: list[tuple[frozenset[str], int] | None] = []  # by state: its transition, and the characters of it
        self._only_at: dict[int, tuple[bool, bool]] = {}  # states that exist at the start or at the end only
        self._cached: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        if len(expression) > _LONGEST:
            self._refuse(f"it is longer than {_LONGEST} characters")
        try:
            tree = _parser.parse(expression)
            start, self._end = self._new(), self._new()
            self._build(list(tree), start, self._end, bool(tree.state.flags & re.IGNORECASE))
        except (re.error, RecursionError, OverflowError) as error:
            self._refuse(str(error))
        self._start = self._closure([start], at_start=True, at_end=False)
        self._start_of_empty = self._closure([start], at_start=True, at_end=True)

    def matches(self, name: str) -> bool:
        """Return whether the expression matches a whole name."""
        if not name:
            return self._end in self._start_of_empty
        states = self._start
        for character in name[:-1]:
            states = self._step(states, character, at_end=False)
        return self._end in self._step(states, name[-1], at_end=True)

    def _step(self, states: frozenset[int], character: str, *, at_end: bool) -> frozenset[int]:
        key = states, character + "$" * at_end
        found = self._cached.get(key)
        if found is None:
            edges = (self._edges[state] for state in states)
            reached = [edge[1] for edge in edges if edge is not None and character in edge[0]]
            found = self._closure(reached, at_start=False, at_end=at_end)
            if len(self._cached) >= _MOST_CACHED:
                self._cached.clear()
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

    def _build(self, items: list[Any], start: int, end: int, ignore_case: bool) -> None:
        """Add states and edges for a sequence of parsed items that lead from one state to another."""
        for place, (kind, value) in enumerate(items):
            following = end if place == len(items) - 1 else self._new()
            self._build_one(str(kind), value, start, following, ignore_case)
            start = following
        if not items:
            self._empty[start].append(end)

    def _build_one(self, kind: str, value: Any, start: int, end: int, ignore_case: bool) -> None:
        if kind in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            first = self._new()
            self._empty[start].append(first)
            self._edges[first] = _characters(kind, value, ignore_case), end
        elif kind in ("MAX_REPEAT", "MIN_REPEAT"):
            self._repeat(value, start, end, ignore_case)
        elif kind == "BRANCH":
            for branch in value[1]:
                self._build(list(branch), start, end, ignore_case)
        elif kind == "SUBPATTERN":
            _, added, removed, inner = value
            ignores = (ignore_case or bool(added & re.IGNORECASE)) and not removed & re.IGNORECASE
            self._build(list(inner), start, end, ignores)
        elif kind == "AT" and str(value) in _ANCHORS:
            state = self._new()
            self._only_at[state] = _ANCHORS[str(value)]
            self._empty[start].append(state)
            self._empty[state].append(end)
        else:
            self._refuse(f"{kind.lower().replace('_', ' ')} is not supported")

    def _repeat(self, value: Any, start: int, end: int, ignore_case: bool) -> None:
        least, most, items = value[0], value[1], list(value[2])
        for _ in range(least):
            following = self._new()
            self._build(items, start, following, ignore_case)
            start = following
        if str(most) == "MAXREPEAT":
            again = self._new()
            self._empty[start].append(again)
            self._build(items, again, again, ignore_case)
            self._empty[again].append(end)
            return
        for _ in range(most - least):
            self._empty[start].append(end)
            following = self._new()
            self._build(items, start, following, ignore_case)
            start = following
        self._empty[start].append(end)

    def _refuse(self, why: str) -> NoReturn:
        message = f"{self._expression[:100]!r} is not a valid regular expression for topics: {why}"
        raise LogError(ErrorCode.invalid_regular_expression, message)


_ANCHORS = {
    "AT_BEGINNING": (True, False),
    "AT_BEGINNING_STRING": (True, False),
    "AT_END": (False, True),
    "AT_END_STRING": (False, True),
}
_CATEGORIES = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}


def _characters(kind: str, value: Any, ignore_case: bool) -> frozenset[str]:
    """Return the characters of topic names that an item matches."""
    if kind == "ANY":
        return frozenset(NAME_CHARACTERS)
    if kind in ("LITERAL", "NOT_LITERAL"):
        named = _cased({chr(value)}, ignore_case)
        return frozenset(NAME_CHARACTERS) - named if kind == "NOT_LITERAL" else named
    parts = [(str(each), argument) for each, argument in value]
    found: set[str] = set()
    for part, argument in parts:
        if part == "LITERAL":
            found.add(chr(argument))
        elif part == "RANGE":
            found.update(each for each in NAME_CHARACTERS if argument[0] <= ord(each) <= argument[1])
        elif part == "CATEGORY":
            found.update(_category(str(argument).removeprefix("CATEGORY_")))
    named = _cased(found, ignore_case)
    return frozenset(NAME_CHARACTERS) - named if ("NEGATE", None) in parts else named


def _category(name: str) -> set[str]:
    pattern = re.compile(_CATEGORIES[name.removeprefix("NOT_")])
    return {each for each in NAME_CHARACTERS if bool(pattern.match(each)) != name.startswith("NOT_")}


def _cased(characters: set[str], ignore_case: bool) -> frozenset[str]:
    if not ignore_case:
        return frozenset(characters)
    return frozenset(characters | {each.lower() for each in characters} | {each.upper() for each in characters})
