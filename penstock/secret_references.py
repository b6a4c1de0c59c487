"""References to secrets, `${secret:NAME}`, in settings and arguments: what is stored and sent instead of the value.

The job manager finds the values when it starts a driver, and passes them as variables `PENSTOCK_SECRET_NAME`; the
driver puts them into place. So no value is in a database, a file, a log or a response.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.errors import MissingSecret

PREFIX = "PENSTOCK_SECRET_"
_REFERENCE = re.compile(r"\$\{secret:([^}]*)\}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")


def is_reference(text: str) -> bool:
    """Return whether a text is a reference to a secret and nothing else, so that it can be shown.

    >>> is_reference("${secret:API}"), is_reference("${secret:API}abc"), is_reference("${secret:abc")
    (True, False, False)
    """
    found = _REFERENCE.fullmatch(text)
    return found is not None and _NAME.fullmatch(found[1]) is not None


def references(value: Any) -> frozenset[str]:
    """Return the names of the secrets that a JSON value refers to.

    >>> sorted(references({"url": "postgresql://ada:${secret:CRM}@db/shop", "keys": ["${secret:API}", 3]}))
    ['API', 'CRM']
    """
    return frozenset(_found(value))


def with_values(value: Any, find: Callable[[str], str]) -> Any:
    """Return a JSON value with the values of its secrets, which `find` returns by their names.

    >>> with_values({"password": "${secret:CRM}", "rows": 3}, {"CRM": "abc"}.__getitem__)
    {'password': 'abc', 'rows': 3}
    """
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: find(_checked(found[1])), value)
    if isinstance(value, Mapping):
        return {with_values(name, find): with_values(inner, find) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [with_values(inner, find) for inner in value]
    return value


def from_environment(environment: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that finds secrets in the variables `PENSTOCK_SECRET_NAME`, and raises MissingSecret.

    >>> from_environment({"PENSTOCK_SECRET_CRM": "abc"})("CRM")
    'abc'
    """

    def find(name: str) -> str:
        if PREFIX + name not in environment:
            raise missing(name, f"set {PREFIX}{name}")
        return environment[PREFIX + name]

    return find


def missing(name: str, hint: str) -> MissingSecret:
    """Return the error of a secret that cannot be found."""
    return MissingSecret(f"there is no secret {name!r}", node="secrets", hint=hint)


def _found(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (_checked(name) for name in _REFERENCE.findall(value))
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _found(name)
            yield from _found(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _found(inner)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        message = f"${{secret:{name[:100]}}} is not a reference to a secret"
        raise MissingSecret(
            message, node="secrets", hint="a name has letters, digits and '_', and starts with a letter"
        )
    return name
