"""The translator: from a tree of Spark SQL to DuckDB's SQL, part by part, with Spark's types, or the reason why not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from sqlglot import exp

from penstock.plan.sql_expressions.parsing import parse_verbatim
from penstock.plan.sql_expressions.type_inference import Inference
from penstock.plan.sql_expressions.types import Type, common
from penstock.plan.translation.casts import widened
from penstock.plan.translation.parts import Part, duckdb_type, kinds_of, not_native, typed
from penstock.schema import Schema

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
COMPARABLE = (*_NUMBERS, "string", "boolean", "date", "timestamp")
_MOST_SQL = 20_000
# sqlglot reads other escapes than these, octal numbers among them, in other ways than Spark.
_ODD_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\[^\\nrt'\"%_]")


class Translation:
    """Translates one expression over one schema; `used` has the names of the supported forms that it needed."""

    def __init__(self, sql: str, schema: Schema, handlers: Mapping[type[exp.Expr], Handler]) -> None:
        self.schema = schema
        self.used: set[str] = set()
        self._sql = sql
        self._handlers = handlers
        self._inference = Inference(schema, sql, "expression")
        # Some handlers need a part twice, which would double the work at every level of a tree.
        self._made: dict[int, tuple[exp.Expr, Part]] = {}

    def whole(self) -> Part:
        """Translate the whole expression."""
        if _ODD_ESCAPE.search(self._sql):
            not_native("an escape in a text")
        part = self.part(parse_verbatim(self._sql, node="expression"))
        if len(part.sql) > _MOST_SQL:
            not_native("its length")
        duckdb_type(part.type)
        return part

    def part(self, tree: exp.Expr) -> Part:
        """Translate a part."""
        handler = self._handlers.get(type(tree))
        if handler is None:
            not_native(f"{type(tree).__name__.lower()}()")
        self.used.add(type(tree).__name__)
        if id(tree) not in self._made:
            self._made[id(tree)] = (tree, handler(self, tree))
        return self._made[id(tree)][1]

    def parts(self, trees: Iterable[exp.Expr]) -> list[Part]:
        """Translate some parts."""
        return [self.part(tree) for tree in trees]

    def type_of(self, tree: exp.Expr) -> Type:
        """Return Spark's type of a part."""
        return self._inference.type_of(tree)

    def made(self, tree: exp.Expr, sql: str, parts: list[Part], *, fails: bool = False) -> Part:
        """Make a part of Spark's result type; a row can make it fail where one of its parts can."""
        kind = self.type_of(tree)
        fails = fails or any(part.fails for part in parts) or _has_dates_beside_times(parts)
        return Part(typed(sql, kind), kind, tree, fails)

    def alike(self, parts: list[Part]) -> list[str]:
        """Give parts the type in which Spark compares them; across kinds the engines convert differently."""
        kind = common(part.type for part in parts)
        if kind is None or kind.name not in COMPARABLE:
            not_native(f"{kinds_of(parts)} compared")
        if kind.name != "string" and any(_is_converted(part, kind) for part in parts):
            not_native(" compared with ".join(f"a {part.type}" for part in parts[:2]))
        self.used.add(f"compare {kind.name}")
        return [widened(part, kind) for part in parts]


Handler = Callable[[Translation, exp.Expr], Part]


def _has_dates_beside_times(parts: list[Part]) -> bool:
    """Whether a date becomes a time, which those beyond 292,277 years from 1970 are not; one that is written out is."""
    dates = [part for part in parts if part.type.name == "date"]
    if not dates or not any(part.type.name == "timestamp" for part in parts):
        return False
    return not all(isinstance(part.tree, exp.Cast) and isinstance(part.tree.this, exp.Literal) for part in dates)


def _is_converted(part: Part, kind: Type) -> bool:
    """Whether Spark reads a text as another type, but for dates and times that are written out."""
    return part.type.name == "string" and (part.text is None or kind.name not in ("date", "timestamp"))
