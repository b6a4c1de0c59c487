"""A query as it was written: what it reads, and its outermost ORDER BY and LIMIT, which a stream does not have."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from penstock.errors import BadExpression
from penstock.query.parsing import NODE, WINDOW_CALLS, call_of, read_query, text_of


@dataclass
class Statement:
    """One SELECT: `tree` is without its ORDER BY, LIMIT and OFFSET."""

    text: str
    tree: exp.Expr
    order: list[exp.Ordered] = field(default_factory=list)
    limit: int | None = None
    offset: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether nothing was taken off."""
        return not self.order and self.limit is None and not self.offset

    @property
    def job_text(self) -> str:
        """The query as a job would run it: as it was written, or without what a stream does not have."""
        if self.is_plain:
            return self.text.strip().rstrip(";").strip()
        return self.tree.sql("spark", normalize_functions=False, pretty=True)

    @property
    def left_out(self) -> str | None:
        """What of the query a stream does not have, for a note; None if nothing."""
        words = {"ORDER BY": self.order, "LIMIT": self.limit is not None, "OFFSET": self.offset}
        found = [word for word, given in words.items() if given]
        return f"without {' and '.join(found)}: a stream has no end" if found else None

    @property
    def tables(self) -> list[str]:
        """The names of the tables that it reads, without those that it defines by WITH."""
        own = {one.alias for one in self.tree.find_all(exp.CTE)}
        found = (one for one in self.tree.find_all(exp.Table) if isinstance(one.this, exp.Identifier))
        return list(dict.fromkeys(one.name for one in found if one.name not in own and not one.args.get("db")))

    @property
    def columns(self) -> set[str]:
        """The names of all columns in it."""
        return {column.name for column in self.tree.find_all(exp.Column)} | {
            column.name for one in self.order for column in one.find_all(exp.Column)
        }

    @property
    def times(self) -> set[str]:
        """The columns that windows are over."""
        calls = (one for one in self.tree.find_all(exp.Anonymous) if call_of(one) in WINDOW_CALLS)
        return {one.expressions[0].name for one in calls if one.expressions and _is_column(one.expressions[0])}


def read_statement(text: str) -> Statement:
    """Read one SELECT."""
    tree = read_query(text)
    if not isinstance(tree, exp.Select | exp.Union | exp.Subquery) or tree.find(exp.Into):
        words = "SELECT INTO" if tree.find(exp.Into) else tree.key.upper()
        message = f"{words} is not available here: the console only reads"
        raise BadExpression(message, node=NODE, hint="write SELECT ... FROM topic")
    order, limit, offset = tree.args.get("order"), tree.args.get("limit"), tree.args.get("offset")
    found = Statement(text, tree, list(order.expressions) if order else [], _number(limit), _number(offset) or 0)
    for part in ("order", "limit", "offset"):
        tree.set(part, None)
    return found


def _number(clause: exp.Expr | None) -> int | None:
    if clause is None:
        return None
    given = clause.args.get("expression") or clause.args.get("count")
    if not isinstance(given, exp.Literal) or given.is_string or not given.name.isdigit():
        message = f"{text_of(clause).strip()}: a whole number is needed"
        raise BadExpression(message, node=NODE, hint="write LIMIT 100")
    return int(given.name)


def _is_column(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Column)
