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
# What stands before a quoted value: `'name': ` or `name = `.
_BEFORE = re.compile(rf"""(?:(["'])({NAME})\1\s*[:=]\s*b?|({NAME})\s*=\s*)(?=["'])""")
# What may follow the end of a value. A word may not: the quote of `token='x` begins one.
_AFTER = r"""[\s,;.)\]}&>|"'\\]|\Z"""


def _value(quote: str) -> re.Pattern[str]:
    plain = rf"{quote}(?:[^{quote}\\]|\\[^{quote}])*+"
    inner = rf"(?:\\.?|{quote}{quote}|{quote}(?!{_AFTER})|[^{quote}\\])*+"
    return re.compile(rf"{plain}{quote}(?!{quote})|{plain}(?=[{quote}\\]){inner}(?:{quote}|\Z)", re.DOTALL)


_VALUES = {quote: _value(quote) for quote in "'\""}


def without_quoted(text: str, is_secret: Callable[[str], bool], hidden: str, *, direct: bool = False) -> str:
    """Return a text without the quoted values of secret names. A value without an end and such quotes is left.

    `direct`: only of those right behind `name=`.

    >>> without_quoted("password = 'it''s x', n = 'y'", lambda name: name == "password", "***")
    "password = '***', n = 'y'"
    """
    pieces, at = [], 0
    for before in _BEFORE.finditer(text):
        start, quote = before.end(), text[before.end()]
        if start < at or (direct and before[0] != f"{before[3]}=") or not is_secret(before[2] or before[3]):
            continue
        value = _VALUES[quote].match(text, start)
        if value and len(value[0]) > 2:
            pieces.append(f"{text[at:start]}{quote}{hidden}{quote}")
            at = value.end()
    return "".join([*pieces, text[at:]])
