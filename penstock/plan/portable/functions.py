"""The functions that mean the same in both engines.

Each form is compared with Spark in tests/native: a test fails if one of them has no case there.
"""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.portable.numbers import NUMBERS
from penstock.plan.portable.parts import Part, kinds_of, safe_after_first, stay
from penstock.plan.portable.texts import TEXTS
from penstock.plan.portable.times import TIMES
from penstock.plan.portable.translation import Translation

ALL = (*NUMBERS, *TEXTS, *TIMES)
_BY_NAME = {name: [form for form in ALL if name in form.names.split()] for form in ALL for name in form.names.split()}


def called(translation: Translation, name: str, tree: exp.Expr, parts: list[Part]) -> Part:
    """Write a call by the form that takes arguments of these types."""
    kinds = [part.type for part in parts]
    form = next((form for form in _BY_NAME.get(name, ()) if form.fits(kinds)), None)
    if form is None:
        stay(f"{name}({kinds_of(parts)})" if name in _BY_NAME else f"{name}()")
    safe_after_first(parts, f"{name}()")
    translation.used.add(f"{name}({form.takes})")
    return translation.made(tree, form.write(parts), parts, fails=form.fails)
