"""ROW_NUMBER(), RANK() and DENSE_RANK() with a bound: the first n rows of each group."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.relations import Relation, Top
from penstock.plan.relations.groups import Direction, Nulls, Ties
from penstock.query.parsing import body_of, call_of, name_of, text_of
from penstock.query.relations.context import Context, Rank
from penstock.query.relations.keys import with_column
from penstock.query.relations.trees import conjuncts, own_parts, refuse

_RANKS: dict[str, Ties] = {"row_number": "row_number", "rank": "rank", "dense_rank": "dense_rank"}
# Metadata of a condition that the operator itself keeps.
DONE = "penstock_done"


def ranked_item(select: exp.Select) -> exp.Expr | None:
    """Return the item of SELECT that is a rank."""
    found = [item for item in select.expressions if is_rank(body_of(item))]
    if len(found) > 1:
        refuse("SELECT has two ranks", "compute each of them in a subquery of its own")
    return found[0] if found else None


def asked_rank(query: exp.Expr, table: str, select: exp.Select) -> Rank | None:
    """Return what a SELECT asks of the rank of a subquery or a table of WITH; None if that has none, or no bound."""
    inner = query.unnest()
    item = ranked_item(inner) if isinstance(inner, exp.Select) else None
    where = select.args.get("where")
    if item is None or where is None:
        return None
    return _bound_in(conjuncts(where.this), name_of(item), {"", table}, select)


def own_rank(select: exp.Select) -> Rank | None:
    """Return what QUALIFY asks of the rank of its own SELECT."""
    clause, item = select.args.get("qualify"), ranked_item(select)
    if clause is None:
        return None
    if item is None:
        refuse("QUALIFY without a rank in SELECT", "write SELECT ..., ROW_NUMBER() OVER (...) AS rn QUALIFY rn <= 3")
    found = _bound_in(conjuncts(clause.this), name_of(item), {""}, select)
    if found is None:
        refuse(f"QUALIFY {text_of(clause.this)} has no bound", f"write QUALIFY {name_of(item)} <= 3")
    return Rank(found.n, shown=True)


def _bound_in(conditions: list[exp.Expr], name: str, tables: set[str], select: exp.Select) -> Rank | None:
    for one in conditions:
        column, most, exact = _bound(one)
        if column is None or column.name != name or column.table not in tables or most < 1:
            continue
        starred = any(item.is_star for item in select.expressions)
        others = sum(each.name == name for each in select.find_all(exp.Column))
        shown = starred or others > 1 or not exact
        one.meta[DONE] = exact
        return Rank(most, shown)
    return None


def _bound(tree: exp.Expr) -> tuple[exp.Column | None, int, bool]:
    """Return the column, the largest number, and whether all from 1 to it are meant, of `rn <= 3` and its like."""
    if isinstance(tree, exp.Between) and _whole(tree.args["low"]) == 1:
        return _column(tree.this), _whole(tree.args["high"]), True
    if isinstance(tree, exp.In) and tree.expressions:
        numbers = [_whole(one) for one in tree.expressions]
        return _column(tree.this), max(numbers) if min(numbers) > 0 else 0, False
    if not isinstance(tree, exp.LTE | exp.LT | exp.EQ | exp.GTE | exp.GT):
        return None, 0, False
    upper = isinstance(tree, exp.LTE | exp.LT | exp.EQ)
    column, most = (tree.left, tree.right) if upper or isinstance(tree, exp.EQ) else (tree.right, tree.left)
    if isinstance(tree, exp.EQ) and _column(column) is None:
        column, most = most, column
    number = _whole(most) - isinstance(tree, exp.LT | exp.GT)
    return _column(column), number, not isinstance(tree, exp.EQ) or number == 1


def _column(tree: exp.Expr) -> exp.Column | None:
    bare = tree.unnest()
    return bare if isinstance(bare, exp.Column) else None


def _whole(tree: exp.Expr) -> int:
    bare = tree.unnest()
    return int(bare.name) if isinstance(bare, exp.Literal) and not bare.is_string and bare.name.isdigit() else 0


def is_rank(tree: exp.Expr) -> bool:
    """Whether an item is a rank."""
    return isinstance(tree.unnest(), exp.Window) and call_of(tree.unnest().this) in _RANKS


def refuse_windows(tree: exp.Expr) -> None:
    """Refuse OVER that is not a rank with a bound."""
    for part in own_parts(tree):
        if isinstance(part, exp.Window):
            hint = "ranks are available: ROW_NUMBER(), RANK() or DENSE_RANK() as an item of a subquery, and"
            hint += " rn <= n around it; an aggregate OVER (PARTITION BY k) is a join with a GROUP BY k"
            refuse(f"{text_of(part)} is not available", hint)


def ranked(
    relation: Relation, window: exp.Expr, rank: Rank | None, extra: tuple[str, ...], context: Context
) -> tuple[Relation, str | None]:
    """Return the first rows of each group by a rank, and the name of its column if it is shown."""
    name = call_of(window.this)
    if rank is None:
        hint = f"read it in a subquery: SELECT * FROM (SELECT ..., {name}() OVER (...) AS rn FROM t) WHERE rn <= 3"
        refuse(f"{text_of(window)} has no bound: a change would give every row after it another number", hint)
    if window.args.get("spec"):
        refuse(f"{text_of(window)} has a frame", "leave ROWS or RANGE out")
    keys: list[str] = [*extra]
    for part in window.args.get("partition_by") or []:
        relation, key = with_column(relation, part, context)
        keys += [key] if key not in keys else []
    order = window.args.get("order")
    by = tuple(map(ordered, order.expressions)) if order else ()
    if not by:
        refuse(f"{text_of(window)} has no ORDER BY", "order by what decides which rows are first")
    shown = context.internal("rank") if rank.shown else None
    return Top(relation, tuple(keys), rank.n, by, shown, _RANKS[name]), shown


def ordered(tree: exp.Expr) -> tuple[str, Direction, Nulls]:
    """Return one item of ORDER BY, over final columns."""
    body = tree.this if isinstance(tree, exp.Ordered) else tree
    desc = bool(tree.args.get("desc"))
    return text_of(body), "desc" if desc else "asc", "first" if tree.args.get("nulls_first") else "last"
