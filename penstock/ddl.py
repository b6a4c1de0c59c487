"""Errors in a schema that is written as DDL: which column, what is wrong, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

# Words that name a column only in backticks, as Spark's parser and sqlglot read them: in a schema.
NO_COLUMNS_IN_DDL = frozenset(
    (
        *("any", "case", "constraint", "current_date", "current_timestamp", "current_user", "exclude"),
        *("false", "like", "not", "null", "select", "session_user", "true", "unique", "with"),
    )
)
# The same in an expression.
NO_COLUMNS = NO_COLUMNS_IN_DDL | frozenset(
    (
        *("alter", "and", "as", "between", "call", "create", "cross", "current_path", "distinct", "drop"),
        *("else", "except", "execute", "explain", "fetch", "for", "from", "grant", "having", "if", "ilike"),
        *("inner", "insert", "intersect", "into", "join", "lateral", "minus", "on", "or", "outer", "qualify"),
        *("rename", "revoke", "rollback", "serdeproperties", "show", "tablesample", "then", "uncache"),
        *("union", "using", "values", "when", "where"),
    )
)
HOW = 'write columns as "name type, name type not null", as in Spark\'s CREATE TABLE'
_TYPES = [
    "string",
    "bigint",
    "long",
    "int",
    "integer",
    "smallint",
    "short",
    "tinyint",
    "byte",
    "double",
    "float",
    "real",
    "boolean",
    "binary",
    "timestamp",
    "timestamp_ntz",
    "timestamp_ltz",
    "date",
    "decimal",
    "dec",
    "numeric",
    "array",
    "map",
    "struct",
    "char",
    "varchar",
    "void",
    "variant",
    "interval",
]
_MEANT = {
    "float64": "double",
    "float32": "float",
    "int64": "bigint",
    "int32": "int",
    "int16": "smallint",
    "uint64": "decimal(20,0)",
    "number": "decimal(38,18)",
    "object": "string",
    "json": "string",
    "list": "array<TYPE>",
    "dict": "map<string,TYPE>",
    "datetime64": "timestamp",
}
_SHOWN = (
    "string, bigint, int, double, boolean, timestamp, date, decimal(p,s), binary, array<T>, map<K,V>, struct<name: T>"
)
_NAME = re.compile(r"\s*(`(?:[^`]|``)*`|[^\s,<>()`:;]+)\s*")
_DECIMAL = re.compile(r"\b(?:decimal|dec|numeric)\s*\(([^)]*)\)", re.IGNORECASE)
_NOT_HERE = re.compile(r"\b(primary\s+key|default|unique|auto_increment|generated|check|references)\b", re.IGNORECASE)
_OPEN, _CLOSE = "<(", ">)"


@dataclass(frozen=True)
class Fault:
    """A mistake: the column that has it, what it is, and what to do."""

    column: str
    what: str
    hint: str = HOW

    def message(self, ddl: str) -> str:
        """Return the message for a whole schema."""
        where = f"column '{self.column}' " if self.column else ""
        return f"{where}{self.what} in {ddl!r}"


def fault(ddl: str) -> Fault | None:
    """Return the first mistake in the outer form of a schema: brackets, commas, names, sizes.

    >>> fault("a array<int, b string").what
    "has '<' without '>'"
    """
    if not ddl.strip():
        return Fault("", "no column is given")
    if (wrong := _brackets(ddl)) is not None:
        return wrong
    parts = split(ddl)
    for number, part in enumerate(parts):
        if not part.strip():
            end = "at its end" if number == len(parts) - 1 else f"before column {number + 1}"
            return Fault("", f"there is an extra comma {end},")
        if (wrong := _column(part)) is not None:
            return wrong
    return None


def unreadable(part: str) -> Fault:
    """Return why one column, whose outer form is right, cannot be read."""
    name, rest = named(part)
    if not rest:
        return Fault(name, "has no type", f"{_choices()}\n  {HOW}")
    if rest.startswith(":"):
        return Fault(
            name, "has a ':' before its type", f"write {name} {rest[1:].strip()}: only fields of a struct<> have a ':'"
        )
    if ";" in part:
        return Fault(name, "is followed by a ';'", "put commas between columns")
    return _of_type(name, rest)


def unknown_type(text: str) -> str:
    """Return a hint for a type that Spark does not have: the closest type, and a list.

    >>> unknown_type("strng").splitlines()[0]
    "did you mean 'string'?"
    """
    word = re.split(r"[\s(<]", text.strip().lower(), maxsplit=1)[0]
    close = _MEANT.get(word) or next(iter(get_close_matches(word, _TYPES, 1)), None)
    return (f"did you mean '{close}'?\n  " if close else "") + _choices()


def split(text: str) -> list[str]:
    """Split at the commas outside of brackets and backticks."""
    parts, depth, quoted, start = [], 0, False, 0
    for at, sign in enumerate(text):
        quoted ^= sign == "`"
        if quoted:
            continue
        depth += (sign in _OPEN) - (sign in _CLOSE)
        if sign == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def named(part: str) -> tuple[str, str]:
    """Return the name of a column, and the rest of its definition."""
    found = _NAME.match(part)
    if found is None:
        return part.strip(), ""
    return found[1].strip("`").replace("``", "`"), part[found.end() :].strip()


def _choices() -> str:
    return f"types: {_SHOWN}"


def _brackets(ddl: str) -> Fault | None:
    opened: list[tuple[str, int]] = []
    for at, sign in _unquoted(ddl):
        if sign in _OPEN:
            opened.append((sign, at))
        elif sign in _CLOSE:
            wanted = _OPEN[_CLOSE.index(sign)]
            if not opened or opened.pop()[0] != wanted:
                return Fault(_column_at(ddl, at), f"has {sign!r} without {wanted!r}")
    if opened:
        sign, at = opened[-1]
        return Fault(_column_at(ddl, at), f"has {sign!r} without {_CLOSE[_OPEN.index(sign)]!r}")
    return None


def _unquoted(text: str) -> Iterator[tuple[int, str]]:
    quoted = False
    for at, sign in enumerate(text):
        quoted ^= sign == "`"
        if not quoted:
            yield at, sign


def _column_at(ddl: str, position: int) -> str:
    """Return the name of the column at a position in the DDL."""
    return named(split(ddl[:position])[-1])[0]


def _column(part: str) -> Fault | None:
    name, rest = named(part)
    if found := _NOT_HERE.search(re.sub(r"<.*>|'[^']*'", "", rest)):
        hint = 'only NOT NULL may follow a type; give defaults with coalesce(...), keys with key="..." of the sink'
        return Fault(name, f"has '{found[1].lower()}', which a schema cannot hold,", hint)
    for size in _DECIMAL.findall(rest):
        if not _is_size(size):
            return Fault(
                name, f"has decimal({size})", "write decimal(p,s): p digits, 1 to 38, s of them after the point"
            )
    return _nested(name, rest)


def _is_size(text: str) -> bool:
    found = re.fullmatch(r"\s*(\d+)\s*(?:,\s*(\d+)\s*)?", text)
    return found is not None and 1 <= int(found[1]) <= 38 and int(found[2] or 0) <= int(found[1])


def _nested(name: str, text: str) -> Fault | None:
    """Check the element types of array<>, map<> and struct<>."""
    found = re.match(r"(array|map|struct)\b\s*(<(.*)>)?", text, re.IGNORECASE | re.DOTALL)
    if found is None:
        return None
    kind, inner = found[1].lower(), found[3]
    parts = split(inner) if inner and inner.strip() else []
    wanted = {"array": "array<TYPE>", "map": "map<KEY TYPE,TYPE>", "struct": "struct<name: TYPE, name: TYPE>"}[kind]
    if (kind == "array" and len(parts) != 1) or (kind == "map" and len(parts) != 2) or not parts:
        return Fault(name, f"has {found[0].strip()!r}", f"write {wanted}")
    if kind != "struct":
        return next((wrong for part in parts if (wrong := _nested(name, part.strip()))), None)
    return _fields(name, parts, wanted)


def _fields(name: str, parts: list[str], wanted: str) -> Fault | None:
    seen: set[str] = set()
    for part in parts:
        field, kind = named(part)
        kind = kind.removeprefix(":").strip()
        if not kind:
            return Fault(f"{name}.{field}", "has no type", f"write {wanted}")
        if field in seen:
            return Fault(name, f"has the field '{field}' twice", "give each field a name of its own")
        seen.add(field)
        if (wrong := _nested(f"{name}.{field}", kind)) is not None:
            return wrong
    return None


def _of_type(name: str, rest: str) -> Fault:
    """Return what is wrong with the type of a column, or with what follows the type."""
    inner = re.match(r"(array|map|struct)\s*<(.*)>", rest, re.IGNORECASE | re.DOTALL)
    if inner is not None:
        for part in split(inner[2]):
            field, kind = named(part) if inner[1].lower() == "struct" else ("", part)
            kind = kind.removeprefix(":").strip()
            if _first_word(kind) not in _TYPES or "<" in kind:
                return _of_type(f"{name}.{field}" if field else name, kind)
    word, _, after = rest.partition(" ")
    if _first_word(rest) in _TYPES and after and inner is None:
        meant = "did you mean 'not null'?" if after.strip().lower().startswith("not") else "put a comma between columns"
        return Fault(name, f"has '{after.strip()}' after its type {word}", f"{meant}\n  {HOW}")
    spaced = f"\n  a name with a space is written in backticks: `{name} {word}` {after}" if after else ""
    return Fault(name, f"has the unknown type '{rest if inner else word}'", unknown_type(rest) + spaced)


def _first_word(text: str) -> str:
    return re.split(r"[\s(<]", text.strip().lower(), maxsplit=1)[0]
