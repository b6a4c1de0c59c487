r"""Patterns that both engines read alike: LIKE, and the common part of Java's and RE2's regular expressions.

A pattern is parsed and rewritten: Java's `.` leaves out five ends of line, its `$` also matches before a last one,
its `\s` knows the vertical tab. What is read is literals, classes, groups, alternatives and repetitions.
"""

from __future__ import annotations

import re

from penstock.plan.translation.parts import not_native, text_literal

_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_ANY = f"[^{_LINE_ENDS}]"
_END = rf"(?:\r\n|[{_LINE_ENDS}])?\z"
_SETS = {
    "d": "0-9",
    "w": "0-9A-Za-z_",
    "s": r"\t\n\x{b}\f\r ",
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_REPEAT = re.compile(r"(?:[*+?]|\{(\d{1,3})(?:,(\d{0,3}))?\})\??(?!\+)")
_SPECIAL = set("*+?{")
_MOST_REPEATS = 1000


def like(pattern: str, escape: str) -> str:
    """Write the right side of LIKE; Spark refuses an escape before anything but itself, `_` and `%`."""
    if len(escape) != 1 or escape in "%_":
        not_native(f"LIKE with the escape {escape!r}")
    quoted = re.escape(escape)
    if not re.fullmatch(f"(?s)(?:[^{quoted}]|{quoted}[_%{quoted}])*", pattern):
        not_native("LIKE with a stray escape")
    return f"{text_literal(pattern)} ESCAPE {text_literal(escape)}" if escape in pattern else text_literal(pattern)


def matches(pattern: str) -> str:
    """Write a Java pattern for RE2, as `find` uses it."""
    return _Reader(pattern).whole()


class _Reader:
    """Reads a pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._ends_line = False
        self._takes_return = False
        self._counted = 1

    def whole(self) -> str:
        written = self._alternatives(0)
        if self._at < len(self._pattern):
            self._stays()
        # Between \r and \n there is no end of line for Java: only a pattern that matches no \r is never there.
        if self._ends_line and self._takes_return:
            self._stays()
        return written

    def _stays(self) -> None:
        not_native(f"the pattern '{self._pattern}'")

    def _peek(self, count: int = 1) -> str:
        return self._pattern[self._at : self._at + count]

    def _take(self) -> str:
        found = self._peek()
        if not found:
            self._stays()
        self._at += 1
        return found

    def _alternatives(self, depth: int) -> str:
        found = [self._sequence(depth)]
        while self._peek() == "|":
            self._take()
            found.append(self._sequence(depth))
        return "|".join(found)

    def _sequence(self, depth: int) -> str:
        found = []
        while self._peek() not in ("", "|", ")"):
            if self._peek() == "$":
                found.append(self._end(depth))
            elif self._peek() == "^":
                self._take()
                found.append(r"\A")
                self._no_repeat()
            else:
                found.append(self._atom(depth) + self._repeat())
        return "".join(found)

    def _end(self, depth: int) -> str:
        self._take()
        if depth or self._peek() not in ("", "|"):
            self._stays()
        self._ends_line = True
        return _END

    def _no_repeat(self) -> None:
        if self._peek() in _SPECIAL:
            self._stays()

    def _repeat(self) -> str:
        if self._peek() not in _SPECIAL:
            return ""
        found = _REPEAT.match(self._pattern, self._at)
        if found is None:
            self._stays()
            return ""
        least, most = int(found[1] or 1), int(found[2] or found[1] or 1)
        # RE2 multiplies nested counts and refuses the result above a limit.
        self._counted *= max(1, most)
        if self._counted > _MOST_REPEATS or least > most:
            self._stays()
        self._at = found.end()
        self._no_repeat()
        return found[0]

    def _atom(self, depth: int) -> str:
        taken = self._take()
        if taken == "(":
            return self._group(depth)
        if taken == "[":
            return self._class()
        if taken == "\\":
            return self._escape(in_class=False)
        if taken == ".":
            return _ANY
        if taken in _SPECIAL:
            self._stays()
        return self._literal(taken)

    def _group(self, depth: int) -> str:
        if self._peek() == "?" and self._peek(2) != "?:":
            self._stays()
        if self._peek(2) == "?:":
            self._at += 2
        inner = self._alternatives(depth + 1)
        if self._peek() != ")":
            self._stays()
        self._take()
        return f"(?:{inner})"

    def _escape(self, *, in_class: bool) -> str:
        taken = self._take()
        if taken.lower() in _SETS and (taken.islower() or not in_class):
            self._takes_return = self._takes_return or taken in "sDW"
            if in_class:
                return _SETS[taken]
            return f"[{'^' if taken.isupper() else ''}{_SETS[taken.lower()]}]"
        if taken in _CONTROLS:
            return self._literal(_CONTROLS[taken])
        if not taken.isascii() or taken.isalnum() or taken == "_":
            self._stays()
        return self._literal(taken)

    def _literal(self, char: str) -> str:
        self._takes_return = self._takes_return or char == "\r"
        return char if char.isalnum() and char.isascii() else f"\\x{{{ord(char):x}}}"

    def _class(self) -> str:
        negated = self._peek() == "^"
        if negated:
            self._take()
            self._takes_return = True
        items: list[str] = []
        while self._peek() != "]" or not items:
            items.append(self._item(first=not items))
        self._take()
        return f"[{'^' if negated else ''}{''.join(items)}]"

    def _item(self, *, first: bool) -> str:
        """Read a character, a set or a range of a class; intersections and nested classes are Java's own."""
        taken = self._take()
        if taken in "[&]^" or (taken == "-" and self._peek() != "]" and not first):
            self._stays()
        least = self._escape(in_class=True) if taken == "\\" else self._literal(taken)
        if self._peek() != "-" or self._peek(2) == "-]":
            return least
        self._take()
        last = self._take()
        if not (taken.isascii() and taken.isalnum() and last.isascii() and last.isalnum() and taken <= last):
            self._stays()
        return f"{least}-{last}"
