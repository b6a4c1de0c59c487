"""Masks secrets in quotes, which may contain their quote: with a backslash before it, or doubled as in SQL.

Such a quote may also be the end of a value, as in a path that ends in a backslash. What is unclear is masked: up to a
quote that looks like an end, or to the end of the text. Each part of a text is looked at a fixed number of times, or
one long line of a log could stop the process.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# From its first character on, and no part of it again: what one long word takes stays linear.
NAME = r"(?<![\w.%+-])[\w.%+-]++"
# A quote in a text that is itself in quotes. Each level doubles the backslashes and adds one; without a bound, each
# number of them would be looked for to the end of the text.
ESCAPED_QUOTE = r"""\\{1,31}["']"""
# What stands before a quoted value: `'name': ` or `name = `, and the b of bytes.
_BEFORE = re.compile(rf"""(?:(["'])({NAME})\1\s*[:=]\s*|({NAME})\s*=\s*)b?(?=(["']|{ESCAPED_QUOTE}))""")
# What may follow the end of a value. A word may not: the quote of `token='x` begins one.
_AFTER = r"""[\s,;.)\]}&>|"'\\]|\Z"""


def _value(quote: str) -> re.Pattern[str]:
    other = "'\"".replace(quote, "")
    # A shell ends the quotes for a quote in a value, and begins them again.
    in_shell = f"{quote}{other}{quote}{other}{quote}"
    plain = rf"{quote}(?:[^{quote}\\]|\\[^{quote}]|{in_shell})*+"
    inner = rf"(?:\\{quote}{quote}(?!{quote}|\Z)|\\.?|{quote}{quote}|{quote}(?!{_AFTER})|[^{quote}\\])*+"
    # In SQL inside of SQL the value's own quotes are doubled too.
    doubled = rf"{quote}{quote}(?!{quote}|{_AFTER}).*?{quote}{quote}"
    return re.compile(rf"{doubled}|{plain}{quote}(?!{quote})|{plain}(?=[{quote}\\]){inner}(?:{quote}|\Z)", re.DOTALL)


_VALUES = {quote: _value(quote) for quote in "'\""}
_VALUES["\\"] = re.compile(rf"({ESCAPED_QUOTE})(?:(?!(?<!\\)\1).)+(?<!\\)\1", re.DOTALL)


def without_quoted(text: str, is_secret: Callable[[str], bool], hidden: str, *, direct: bool = False) -> str:
    """Return a text without the quoted values of secret names. A value without an end and such quotes is left.

    `direct`: only of those right behind `name=`, with their quotes.

    >>> without_quoted("password = 'it''s x', n = 'y'", lambda name: name == "password", "***")
    "password = '***', n = 'y'"
    """
    pieces, at = [], 0
    for before in _BEFORE.finditer(text):
        start, name, quote = before.end(), before[2] or before[3], before[4]
        if start < at or (direct and before[0].removesuffix("b") != f"{before[3]}=") or not is_secret(name):
            continue
        value = _VALUES[quote[0]].match(text, start)
        if value and len(value[0]) > 2:
            pieces.append(text[at:start] + (hidden if direct else f"{quote}{hidden}{quote}"))
            at = value.end()
    return "".join([*pieces, text[at:]])
