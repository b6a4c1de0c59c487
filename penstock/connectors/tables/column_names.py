"""Names that a database cannot give its columns."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import BadSchema

_LONGEST = 63
_SYSTEM = ("cmax", "cmin", "ctid", "tableoid", "xmax", "xmin")


def refuse_names(url: str, names: tuple[str, ...], table: str) -> None:
    """Raise BadSchema for a column that the database at an address cannot have; a mere name says nothing of it."""
    found = (
        _sqlite(names) if url.startswith("sqlite:") else _postgres(names) if url.startswith("postgres") else iter(())
    )
    for wrong in found:
        message = f"table {table}: {wrong}"
        raise BadSchema(message, hint='rename it before the table: .rename(other="...")')


def _sqlite(names: tuple[str, ...]) -> Iterator[str]:
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(_ascii_lower(name), name)) != name:
            yield f"the columns '{other}' and '{name}' differ only in case, and SQLite takes them for one"


def _postgres(names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        if len(name.encode()) > _LONGEST:
            yield f"the column '{name}' is longer than the {_LONGEST} bytes that PostgreSQL allows"
        if name in _SYSTEM:
            yield f"PostgreSQL has a column '{name}' of its own in every table"


def _ascii_lower(name: str) -> str:
    return "".join(sign.lower() if sign.isascii() else sign for sign in name)
