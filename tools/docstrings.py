"""How docstrings become Markdown; an extension of Griffe, which reads them for the API reference.

Doctests stay where they are and become code blocks. In the docstring of a class, a line that begins with the name of an
attribute describes it, and becomes an item of a list.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Class, Extension, Object


class Docstrings(Extension):
    """Rewrites each docstring once, when its object was read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is None:
            return
        text = obj.docstring.value
        if isinstance(obj, Class):
            text = _listed(text, {*obj.members})
        obj.docstring.value = _fenced(text)


def _fenced(text: str) -> str:
    """Put each paragraph that begins with a doctest into a code block."""
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n\n".join(f"```pycon\n{one}\n```" if one.startswith(">>>") else one for one in paragraphs)


def _listed(text: str, names: set[str]) -> str:
    lines = []
    for line in text.splitlines():
        described = re.match(r"(\w+):?\s+(\S.*)", line)
        known = described is not None and described[1] in names
        # A list is a paragraph of its own.
        lines += [""] if known and lines and lines[-1] and not lines[-1].startswith("- ") else []
        lines += [f"- `{described[1]}`: {described[2]}" if described and known else line]
    return "\n".join(lines)
