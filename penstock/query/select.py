"""SELECT, FROM, WITH, WHERE and UNION: a query as the nodes that the fluent calls make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from penstock.errors import BadExpression, choices
from penstock.plan.operators.deduplication import Distinct
from penstock.plan.operators.node import Node
from penstock.plan.sql_expressions.expression import aggregate_calls
from penstock.plan.sql_expressions.types import STRING, common_of_two, read
from penstock.query.generators import exploded_item, generator_item, lateral_view
from penstock.query.grouping import Item, grouped
from penstock.query.parsing import NODE, body_of, name_of, read_query, text_of
from penstock.query.scope import Scope
from penstock.query.state_names import with_state_names
from penstock.query.windows import refuse_ungrouped
from penstock.schema import Field, quoted
from penstock.stream import Stream


@dataclass(frozen=True)
class Tables:
    """The tables that a query can read, and the names of those that it defines: by WITH, or as a subquery."""

    streams: Mapping[str, Stream]
    own: dict[Node, str] = field(default_factory=dict)
    bounded: bool = False

    def adding(self, name: str, stream: Stream) -> Tables:
        """Return them with one more, which shadows another of its name."""
        return replace(self, streams={**self.streams, name: self.made(name, stream)})

    def made(self, name: str, stream: Stream) -> Stream:
        """Record the name of a table; the first name counts."""
        if name:
            self.own.setdefault(stream.node, name)
        return stream


_REFUSED = {
    "joins": ("JOIN", "join streams by .join(...), and query the result"),
    "order": ("ORDER BY", "a stream has no end; .window(...).top(n, by) ranks within windows"),
    "sort": ("SORT BY", "a stream has no end"),
    "cluster": ("CLUSTER BY", "leave it out"),
    "distribute": ("DISTRIBUTE BY", "leave it out"),
    "limit": ("LIMIT", "a stream has no end; .window(...).top(n, by) takes the best rows of each window"),
    "offset": ("OFFSET", "a stream has no end"),
    "windows": ("WINDOW", "GROUP BY window(ts, '1 minute')"),
    "qualify": ("QUALIFY", "use .window(...).top(n, by)"),
    "pivots": ("PIVOT", "aggregate with FILTER (WHERE ...), one column each"),
    "sample": ("TABLESAMPLE", "filter with rand() < 0.1 in a map, or by a hash of a column"),
    "match": ("MATCH_RECOGNIZE", "write a process function"),
    "into": ("INTO", "end the stream with .to(sink)"),
}


def build(query: str, inputs: Mapping[str, Stream]) -> Stream:
    """Return the stream of a query over these tables."""
    tables = Tables(inputs)
    return with_state_names(_query(read_query(query), tables), inputs.values(), tables.own)


def build_bounded(tree: exp.Expr, inputs: Mapping[str, Stream]) -> Stream:
    """Return the nodes of a query over tables that have an end, so that every group is final, and may be all rows."""
    return _query(tree, Tables(inputs, bounded=True))


def _query(tree: exp.Expr, tables: Tables) -> Stream:
    tables = _with(tree, tables)
    if isinstance(tree, exp.Subquery | exp.Paren):
        _refuse(tree)
        return _query(tree.this, tables)
    if isinstance(tree, exp.Union):
        _refuse(tree)
        return _distinct(_united(tree, _query(tree.left, tables), _query(tree.right, tables)), tree)
    if not isinstance(tree, exp.Select):
        message = f"{tree.key.upper()} cannot be streamed"
        raise BadExpression(message, node=NODE, hint="write SELECT ... FROM name, or combine two with UNION ALL")
    _refuse(tree)
    return _distinct(_select(tree, tables), tree)


def _refuse(tree: exp.Expr) -> None:
    for part, (words, hint) in _REFUSED.items():
        if tree.args.get(part):
            message = f"{words} is not available in sql()"
            raise BadExpression(message, node=NODE, hint=hint)


def _with(tree: exp.Expr, tables: Tables) -> Tables:
    """Return the tables that a query can read: its own by WITH shadow those around it."""
    clause = tree.args.get("with_") or tree.args.get("with")
    if clause is None:
        return tables
    if clause.args.get("recursive"):
        message = "WITH RECURSIVE is not available in sql()"
        raise BadExpression(message, node=NODE, hint="a stream has no end, so a query cannot read its own result")
    for table in clause.expressions:
        tables = tables.adding(table.alias, _renamed(_query(table.this, tables), table))
    return tables


def _renamed(stream: Stream, tree: exp.Expr) -> Stream:
    """Give the columns of a table the names of its alias, as in `WITH t(a, b) AS (...)`."""
    alias = tree.args.get("alias")
    names = [column.name for column in alias.args.get("columns") or []] if isinstance(alias, exp.TableAlias) else []
    if not names:
        return stream
    if len(names) != len(stream.schema.names):
        message = f"table '{tree.alias}' has {len(stream.schema.names)} columns, and {len(names)} names are given"
        raise BadExpression(message, node=NODE, hint=choices("columns", stream.schema.names))
    new = {name: old for name, old in zip(names, stream.schema.names, strict=True) if name != old}
    return stream.rename(new) if new else stream


def _distinct(stream: Stream, tree: exp.Expr) -> Stream:
    """Keep each different row once; rows of an updating stream differ by their key."""
    clause = tree.args.get("distinct")
    if not clause:
        return stream
    if isinstance(clause, exp.Distinct) and clause.args.get("on"):
        message = "DISTINCT ON is not available in sql()"
        raise BadExpression(message, node=NODE, hint="use .deduplicate(keys, within=...)")
    return stream if stream.node.updating else Stream(Distinct(input=stream.node))


def _select(tree: exp.Select, tables: Tables) -> Stream:
    scope = _from(tree, tables)
    for lateral in tree.args.get("laterals") or []:
        scope = lateral_view(scope, lateral)
    if where := tree.args.get("where"):
        scope = scope.on(scope.stream.filter(text_of(scope.resolved(where.this))))
    groups = tree.args.get("group") or tree.args.get("having") or any(map(aggregate_calls, tree.expressions))
    generator = generator_item(tree.expressions)
    if generator is not None and groups:
        message = f"SELECT {text_of(body_of(generator))} beside an aggregate or GROUP BY"
        raise BadExpression(message, node=NODE, hint="use LATERAL VIEW: it comes before GROUP BY")
    made: list[tuple[str, str]] = []
    if generator is not None:
        stream, made = exploded_item(scope, generator)
        scope = scope.on(stream)
    items = _items(tree.expressions, scope, generator, made)
    if groups:
        return grouped(tree, items, scope, bounded=tables.bounded)
    refuse_ungrouped(item.body for item in items)
    chosen = {item.name: text_of(item.body) for item in items}
    same = list(chosen) == list(scope.stream.schema.names) and all(sql == quoted(name) for name, sql in chosen.items())
    return scope.stream if same else scope.stream.select(chosen)


def _from(tree: exp.Select, tables: Tables) -> Scope:
    source = tree.args.get("from_") or tree.args.get("from")
    table = source.this if source else None
    if isinstance(table, exp.Subquery):
        _refuse(table)
        made = tables.made(table.alias, _renamed(_query(table.this, _with(table, tables)), table))
        return Scope.of(made, table.alias)
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier) or table.args.get("db"):
        message = (
            f"FROM {text_of(table)} is not available" if table else "FROM is missing: the query reads from nothing"
        )
        raise BadExpression(message, node=NODE, hint=choices("tables", tables.streams))
    _refuse(table)
    if table.name not in tables.streams:
        message = f"unknown table '{table.name}'"
        raise BadExpression(message, node=NODE, hint=choices("tables", tables.streams, table.name))
    return Scope.of(_renamed(tables.streams[table.name], table), table.alias_or_name)


def _items(
    given: Sequence[exp.Expr], scope: Scope, generator: exp.Expr | None, made: Sequence[tuple[str, str]]
) -> list[Item]:
    """Return the result columns: stars and a generator as their columns."""
    items: list[Item] = []
    for one in given:
        if one is generator:
            items += [Item(name, _column(column)) for name, column in made]
        elif isinstance(one, exp.Star) or (isinstance(one, exp.Column) and isinstance(one.this, exp.Star)):
            items += _star(one, scope)
        else:
            items.append(
                Item(name_of(one, scope.stream.schema.names), _with_aliases(scope.resolved(body_of(one)), items, scope))
            )
    names = [item.name for item in items]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        message = f"SELECT has two columns called '{twice}'"
        raise BadExpression(message, node=NODE, hint=f"name one of them: ... AS {twice}_2")
    return items


def _star(tree: exp.Expr, scope: Scope) -> list[Item]:
    star = tree if isinstance(tree, exp.Star) else tree.this
    if star.args.get("replace") or star.args.get("rename"):
        message = "* REPLACE and * RENAME are not available in sql()"
        raise BadExpression(message, node=NODE, hint="name the columns one by one, or use .with_columns()")
    found = scope.star(tree.table if isinstance(tree, exp.Column) else "")
    without = {column.name for column in star.args.get("except_") or star.args.get("except") or []}
    unknown = without - {one.name for one in found}
    if unknown:
        message = f"* EXCEPT: unknown column '{min(unknown)}'"
        raise BadExpression(message, node=NODE, hint=choices("columns", [one.name for one in found], min(unknown)))
    return [Item(one.name, _column(one.column)) for one in found if one.name not in without]


def _with_aliases(tree: exp.Expr, items: Sequence[Item], scope: Scope) -> exp.Expr:
    """Let an item name earlier ones by their aliases, as Spark does, where no column has that name."""
    earlier = {item.name: item.body for item in items if item.name not in scope.stream.schema.names}
    whole = exp.Paren(this=tree)
    for column in list(whole.find_all(exp.Column)):
        body = earlier.get(column.name) if len(column.parts) == 1 else None
        if body is not None:
            column.replace(exp.Paren(this=body.copy()))
    found: exp.Expr = whole.this
    return found


def _column(name: str) -> exp.Expr:
    return exp.column(exp.to_identifier(name, quoted=not name.isidentifier()))


def _united(tree: exp.Union, left: Stream, right: Stream) -> Stream:
    """Return the union of two queries: columns match by position, as in Spark, and have the left's names."""
    if tree.args.get("by_name") and set(left.schema.names) == set(right.schema.names):
        right = right.select(*map(quoted, left.schema.names))
    mine, theirs = left.schema.fields, right.schema.fields
    if len(mine) != len(theirs) or (tree.args.get("by_name") and left.schema.names != right.schema.names):
        message = f"UNION: the left side has {len(mine)} columns, and the right has {len(theirs)}"
        raise BadExpression(message, node=NODE, hint=f"left: {left.schema.ddl}\n  right: {right.schema.ddl}")
    types = [_common_type(one, other, number) for number, (one, other) in enumerate(zip(mine, theirs, strict=True), 1)]
    names = left.schema.names
    return _cast(left, names, types).union(_cast(right, names, types))


def _common_type(one: Field, other: Field, number: int) -> str:
    """Return the type of a column that both sides become: the wider number, the time of a date."""
    kinds = read(one.type), read(other.type)
    found = None if STRING in kinds and kinds[0] != kinds[1] else common_of_two(*kinds)
    if found is None:
        message = f"UNION: column {number} is {one.type} on the left ({one.name}) and {other.type} on the right"
        raise BadExpression(message, node=NODE, hint=f"cast one of them: CAST({other.name} AS {one.type})")
    return str(found)


def _cast(stream: Stream, names: Sequence[str], types: Sequence[str]) -> Stream:
    given = stream.schema.fields
    chosen = {
        name: quoted(old.name) if old.type == kind else f"CAST({quoted(old.name)} AS {kind})"
        for name, old, kind in zip(names, given, types, strict=True)
    }
    same = all(sql == quoted(name) for name, sql in chosen.items()) and tuple(names) == stream.schema.names
    return stream if same else stream.select(chosen)
