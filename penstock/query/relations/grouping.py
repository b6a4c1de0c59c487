"""GROUP BY: keys and aggregates as columns of one relation, and the other clauses over these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.errors import choices
from penstock.plan.relations import Aggregate, Distinct, Project, Relation
from penstock.query.parsing import text_of
from penstock.query.relations.context import Context
from penstock.query.relations.keys import with_column
from penstock.query.relations.trees import aggregates_in, columns_of, final_column, queries_in, refuse
from penstock.schema import quoted

_SETS = {"rollup": "ROLLUP", "cube": "CUBE", "grouping_sets": "GROUPING SETS", "totals": "WITH TOTALS"}


@dataclass(frozen=True)
class Grouped:
    """The groups, with their keys and aggregates by their SQL."""

    relation: Relation
    keys: dict[str, str]
    calls: dict[str, str]

    def over(self, tree: exp.Expr) -> exp.Expr:
        """Return an expression over the groups' columns; one that is neither a key nor an aggregate is refused."""
        whole = exp.Paren(this=tree.copy())
        _replace(whole, self.keys, self.calls)
        found: exp.Expr = whole.this
        open_columns = columns_of(found) - {*self.relation.schema.names}
        if open_columns:
            hint = choices("group by", self.keys) if self.keys else f"aggregate it: max({min(open_columns)})"
            refuse(f"'{min(open_columns)}' in {text_of(tree)} is neither an aggregate nor in GROUP BY", hint)
        return found


def grouped(
    relation: Relation, keys: Sequence[exp.Expr], trees: Sequence[exp.Expr], extra: tuple[str, ...], context: Context
) -> Grouped:
    """Group rows by keys, and by the columns `extra`, for the aggregates that trees call."""
    names: dict[str, str] = {}
    for key in keys:
        if aggregates_in(key):
            refuse(f"GROUP BY {text_of(key)}: it is an aggregate", "group by columns, and aggregate the others")
        relation, names[text_of(key.unnest())] = with_column(relation, key, context)
    calls: dict[str, str] = {}
    for call in (call for tree in trees for call in aggregates_in(tree)):
        if queries_in(call):
            refuse(f"a subquery in {text_of(call)}", "compute it in a subquery of FROM, and aggregate its column")
        calls.setdefault(text_of(call), context.internal("value"))
    by = tuple(dict.fromkeys((*extra, *names.values())))
    if by and not calls:
        return Grouped(Distinct(Project(relation, tuple((key, quoted(key)) for key in by))), names, calls)
    return Grouped(Aggregate(relation, by, tuple((name, sql) for sql, name in calls.items())), names, calls)


def _replace(tree: exp.Expr, keys: dict[str, str], calls: dict[str, str]) -> None:
    if isinstance(tree, exp.Query):
        return
    for child in list(tree.iter_expressions()):
        text = text_of(child) if not isinstance(child, exp.Query | exp.Identifier | exp.Var) else ""
        name = calls.get(text) or keys.get(text)
        if name is None:
            _replace(child, keys, calls)
        else:
            child.replace(final_column(name))


def refuse_sets(select: exp.Select) -> None:
    """Refuse ROLLUP and its relatives."""
    group = select.args.get("group") or exp.Group()
    found = [words for part, words in _SETS.items() if group.args.get(part)]
    found += [_SETS[one.key] for one in group.expressions if one.key in _SETS]
    found += ["GROUPING SETS" for one in group.expressions if isinstance(one, exp.GroupingSets)]
    if found:
        refuse(f"GROUP BY {found[0]} is not available", "write one query for each grouping, and UNION ALL them")
