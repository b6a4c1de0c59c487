"""Schemas: written as a Spark DDL string, a dataclass or a dict; every node has one."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cached_property

import pyarrow as pa

from penstock import ddl as ddl_faults
from penstock.ddl import NO_COLUMNS, NO_COLUMNS_IN_DDL
from penstock.errors import BadSchema, UnknownColumn, choices

if typing.TYPE_CHECKING:
    from sqlglot import exp

Shape = typing.Union[str, type, Mapping[str, str], "Schema"]

_PYTHON = {
    str: "string",
    int: "bigint",
    float: "double",
    bool: "boolean",
    bytes: "binary",
    datetime: "timestamp",
    date: "date",
    Decimal: "decimal(38,18)",
    timedelta: "interval day to second",
}
_ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "tinyint": pa.int8(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "date": pa.date32(),
    "void": pa.null(),
    "interval day to second": pa.duration("us"),
}
_ONE_NAME = re.compile(r"`(?:[^`]|``)+`")


@dataclasses.dataclass(frozen=True)
class Field:
    """One column: its name, its Spark type in lower case, and whether it may be null."""

    name: str
    type: str
    nullable: bool = True

    @property
    def arrow(self) -> pa.Field:
        """The same column for Arrow."""
        return pa.field(self.name, arrow_type(self.type), self.nullable)


class Schema:
    """An ordered set of columns.

    >>> Schema("symbol string not null, price double") + {"size": "bigint"}
    Schema('symbol string not null, price double, size bigint')
    """

    fields: tuple[Field, ...]

    def __init__(self, shape: Shape | tuple[Field, ...]) -> None:
        self.fields = _fields(shape)
        _check_names(self.names, None if isinstance(shape, tuple) else "schema")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The column names, in order."""
        return tuple(field.name for field in self.fields)

    @cached_property
    def types(self) -> dict[str, str]:
        """Each column's Spark type."""
        return {field.name: field.type for field in self.fields}

    @cached_property
    def arrow(self) -> pa.Schema:
        """The same schema for Arrow."""
        return pa.schema([field.arrow for field in self.fields])

    @property
    def ddl(self) -> str:
        """The same schema as a Spark DDL string."""
        return ", ".join(f"{ddl_name(f.name)} {f.type}{'' if f.nullable else ' not null'}" for f in self.fields)

    def field(self, name: str) -> Field:
        """Return one column; raise UnknownColumn, with the known ones, if there is none."""
        for field in self.fields:
            if field.name == name:
                return field
        message = f"unknown column '{name}'"
        raise UnknownColumn(message, hint=choices("columns here", self.names, name))

    def nullable(self) -> Schema:
        """Return the schema without `not null`."""
        return Schema(tuple(Field(f.name, f.type) for f in self.fields))

    def __add__(self, shape: Shape) -> Schema:
        more = Schema(shape)
        kept = tuple(f for f in self.fields if f.name not in more.names)
        return Schema(kept + more.fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.fields)

    def __repr__(self) -> str:
        return f"Schema({self.ddl!r})"


def quoted(name: str) -> str:
    """Quote a name for Spark SQL where that is needed.

    >>> quoted("price"), quoted("größe"), quoted("a.b"), quoted("from")
    ('price', '`größe`', '`a.b`', '`from`')
    """
    return name if _is_plain(name, NO_COLUMNS) else _in_backticks(name)


def bare(sql: str) -> str:
    """Return the column's own name if the expression is just that, and the expression if not.

    >>> bare("`order id`"), bare("`a` + `b`")
    ('order id', '`a` + `b`')
    """
    # A value that is not a string is refused where the expression is typed, with its node.
    is_one_name = isinstance(sql, str) and _ONE_NAME.fullmatch(sql)
    return sql[1:-1].replace("``", "`") if is_one_name else sql


def ddl_name(name: str) -> str:
    """Quote a name for a schema; fewer names need it there than in an expression."""
    return name if _is_plain(name, NO_COLUMNS_IN_DDL) else _in_backticks(name)


def _is_plain(name: str, words: frozenset[str]) -> bool:
    # Spark reads unquoted names of ASCII letters, digits and "_" only.
    return name.isascii() and name.isidentifier() and name.lower() not in words


def _in_backticks(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def parse_type(text: str) -> str:
    """Return a Spark type in normal form; an unknown type is refused."""
    try:
        return Schema(f"x {text}").fields[0].type
    except BadSchema:
        message = f"{text!r} is not a type"
        raise BadSchema(message, hint=ddl_faults.unknown_type(text)) from None


def type_of(hint: object) -> str:
    """Return the Spark type of a Python type, as an annotation names it.

    >>> type_of(list[float])
    'array<double>'
    """
    return _from_hint(hint, "type")[0]


def arrow_type(text: str) -> pa.DataType:
    """Return the Arrow type that carries a Spark type."""
    if text in _ARROW:
        return _ARROW[text]
    from sqlglot import exp

    tree = exp.DataType.build(text, dialect="spark")
    match tree.this:
        case exp.DataType.Type.DECIMAL:
            return pa.decimal128(*(int(part.name) for part in tree.expressions))
        case exp.DataType.Type.ARRAY:
            return pa.list_(arrow_type(_type_text(tree.expressions[0])))
        case exp.DataType.Type.MAP:
            key, value = (arrow_type(_type_text(part)) for part in tree.expressions)
            return pa.map_(key, value)
        case exp.DataType.Type.STRUCT:
            return pa.struct([(part.name, arrow_type(_type_text(part.args["kind"]))) for part in tree.expressions])
    message = f"type {text!r} has no Arrow form"
    raise BadSchema(message, hint=choices("types", _ARROW))


def spark_type(arrow: pa.DataType) -> str:
    """Return the Spark type of an Arrow type, as read from a Parquet file or a batch."""
    for text, known in _ARROW.items():
        if known == arrow:
            return text
    if pa.types.is_timestamp(arrow):
        return "timestamp" if arrow.tz else "timestamp_ntz"
    if pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return "string"
    if pa.types.is_dictionary(arrow):
        return spark_type(arrow.value_type)
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_map(arrow):
        return f"map<{spark_type(arrow.key_type)},{spark_type(arrow.item_type)}>"
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return f"array<{spark_type(arrow.value_type)}>"
    if pa.types.is_struct(arrow):
        parts = ",".join(f"{ddl_name(part.name)}:{spark_type(part.type)}" for part in arrow)
        return f"struct<{parts}>"
    if pa.types.is_unsigned_integer(arrow):
        return "decimal(20,0)" if arrow.bit_width == 64 else "bigint"
    message = f"Arrow type {arrow} has no Spark form"
    raise BadSchema(message)


def from_arrow(schema: pa.Schema) -> Schema:
    """Return the schema of an Arrow table."""
    return Schema(tuple(Field(f.name, spark_type(f.type)) for f in schema))


def _fields(shape: Shape | tuple[Field, ...]) -> tuple[Field, ...]:
    if isinstance(shape, Schema):
        return shape.fields
    if isinstance(shape, tuple):
        return shape
    if isinstance(shape, str):
        return _from_ddl(shape)
    if isinstance(shape, Mapping):
        return _from_ddl(", ".join(f"{_given_name(name)} {_written(name, kind)}" for name, kind in shape.items()))
    if dataclasses.is_dataclass(shape):
        return _from_dataclass(shape)
    message = f"{shape!r} is not a schema"
    raise BadSchema(message, node="schema", hint='pass a DDL string ("a string, b bigint"), a dataclass or a dict')


def _written(name: object, kind: object) -> str:
    """Return the type of a column of a dict; a Python type is refused with the Spark type."""
    if isinstance(name, str) and name and isinstance(kind, str) and kind.strip():
        return kind
    message = f"column {name!r} has the type {kind!r}, which is not a string"
    meant = f' "{_PYTHON[kind]}"' if isinstance(kind, type) and kind in _PYTHON else ' "bigint"'
    raise BadSchema(message, node="schema", hint=f"write the type as Spark SQL has it: {{{name!r}:{meant}}}")


def _from_ddl(ddl: str) -> tuple[Field, ...]:
    # Imported here: Spark's workers import this module and parse nothing.
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    if (fault := ddl_faults.fault(ddl)) is not None:
        raise _bad(fault, ddl)
    try:
        tree = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", dialect="spark")
        columns = tree.this.expressions
        if not columns or not all(isinstance(column.this, exp.Identifier) for column in columns):
            raise _unreadable(ddl)
        return tuple(_from_column(column) for column in columns)
    except (SqlglotError, AttributeError, KeyError) as error:
        raise _unreadable(ddl) from error


def _unreadable(ddl: str) -> BadSchema:
    parts = ddl_faults.split(ddl)
    wrong = next((part for part in parts[:-1] if not _is_readable(part)), parts[-1])
    return _bad(ddl_faults.unreadable(wrong), ddl)


def _bad(fault: ddl_faults.Fault, ddl: str) -> BadSchema:
    return BadSchema(fault.message(ddl), node="schema", hint=fault.hint)


def _is_readable(part: str) -> bool:
    try:
        _from_ddl(part)
    except BadSchema:
        return False
    return True


def _given_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        message = f"{name!r} cannot be the name of a column"
        raise BadSchema(message, hint="the name of a column is a string that is not empty")
    return ddl_name(name)


def _from_column(column: exp.Expression) -> Field:
    from sqlglot import exp

    constraints = [part.args["kind"] for part in column.args.get("constraints") or []]
    required = any(
        isinstance(kind, exp.NotNullColumnConstraint) and not kind.args.get("allow_null") for kind in constraints
    )
    return Field(column.name, _type_text(column.args["kind"]), not required)


def _type_text(tree: exp.Expression) -> str:
    """Return a parsed type in normal form."""
    from sqlglot import exp

    kind = tree.this
    if kind == exp.DataType.Type.STRUCT:
        parts = (f"{ddl_name(p.name)}:{_type_text(p.args['kind'])}" for p in tree.expressions)
        return f"struct<{','.join(parts)}>"
    if kind in (exp.DataType.Type.ARRAY, exp.DataType.Type.MAP):
        return f"{tree.this.value.lower()}<{','.join(map(_type_text, tree.expressions))}>"
    if kind == exp.DataType.Type.DECIMAL:
        given = [part.name for part in tree.expressions]
        precision, scale = [*given, "0"][:2] if given else ("10", "0")
        return f"decimal({precision},{scale})"
    if kind in (exp.DataType.Type.VARCHAR, exp.DataType.Type.CHAR):
        return "string"
    text = tree.sql("spark").lower()
    if text not in _ARROW:
        message = f"unknown type {text!r}"
        raise BadSchema(message, node="schema", hint=ddl_faults.unknown_type(text))
    return text


def _from_dataclass(shape: type) -> tuple[Field, ...]:
    try:
        hints = typing.get_type_hints(shape)
    except NameError as error:
        message = f"{shape.__name__}: an annotation names {error.name!r}, which is not defined"
        raise BadSchema(message, hint="import it, or define it above the class") from None
    return tuple(
        Field(f.name, *_from_hint(hints[f.name], f"{shape.__name__}.{f.name}")) for f in dataclasses.fields(shape)
    )


def _from_hint(hint: object, where: str) -> tuple[str, bool]:
    """Return the Spark type of a Python annotation, and whether it may be null."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        given = [arg for arg in args if arg is not type(None)]
        if len(given) != 1:
            message = f"{where}: {hint} may be of {len(given)} types, and a column can have one"
            raise BadSchema(message, hint="annotate it with one of them, or with one of them | None")
        return _from_hint(given[0], where)[0], True
    if hint in _PYTHON:
        return _PYTHON[hint], False
    if origin is list:
        return f"array<{_from_hint(args[0], where)[0]}>", False
    if origin is dict:
        return f"map<{_from_hint(args[0], where)[0]},{_from_hint(args[1], where)[0]}>", False
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        parts = ",".join(f"{ddl_name(f.name)}:{f.type}" for f in _from_dataclass(hint))
        return f"struct<{parts}>", False
    message = f"{where}: no Spark type for the annotation {hint!r}"
    known = [kind.__name__ for kind in _PYTHON]
    raise BadSchema(message, hint=choices("annotations", [*known, "list[T]", "dict[K, V]"]))


def _check_names(names: tuple[str, ...], node: str | None) -> None:
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()
    if twice:
        message = f"column {', '.join(sorted(twice))!r} occurs twice"
        raise BadSchema(message, node=node, hint="give each column a name of its own")
    for name in names:
        if not name or (not name.isprintable() and {"Cc", "Cs"} & {*map(unicodedata.category, name)}):
            what = "is empty" if not name else "holds a control character"
            message = f"{name!r} cannot be the name of a column: it {what}"
            hint = "choose another name; letters, digits, spaces and other characters are allowed"
            raise BadSchema(message, node=node, hint=hint)
