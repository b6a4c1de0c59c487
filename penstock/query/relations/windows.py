"""Windows over a time column: tumbling and hopping as computed columns, sessions by the gaps between rows.

A view has no watermark: a window is a column like any other, and its result follows every change of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.plan.relations import Aggregate, Distinct, Filter, Join, Project, Relation, Union
from penstock.plan.sql_expressions.expression import scalar
from penstock.query.parsing import WINDOW_CALLS, call_of, text_of
from penstock.query.relations.context import Context, extended
from penstock.query.relations.keys import null_safe, with_column
from penstock.query.relations.trees import NODE, final_column, own_parts, refuse
from penstock.query.windows import span_of, window_by, window_calls
from penstock.schema import quoted
from penstock.windows import Window, sliding, tumbling

_MOST_COPIES = 1000
_FUNCTIONS = {"tumble": 3, "hop": 4}


def window_call(parts: Sequence[exp.Expr]) -> exp.Expr | None:
    """Return the call of the window in GROUP BY."""
    found = [call for part in parts for call in window_calls(part)]
    if len({window_by(call) for call in found}) > 1 or len({text_of(call.expressions[0]) for call in found}) > 1:
        refuse("GROUP BY has two windows", "group by one of them in a subquery, and the result by the other")
    return found[0] if found else None


def assigned(
    relation: Relation, time: exp.Expr, window: Window, context: Context, keys: Sequence[str] = ()
) -> tuple[Relation, str, str]:
    """Return each row once for each of its windows, with the start and the end of it, and the names of these columns.

    Rows without a time are in no window. `keys` are the columns that sessions are apart by.
    """
    relation, column = with_column(relation, time, context, "time")
    field = relation.schema.field(column)
    if field.type != "timestamp":
        refuse(f"a window over {text_of(time)}, which is {field.type}", "cast it: CAST(... AS TIMESTAMP)")
    if field.nullable:
        relation = Filter(relation, f"{column} IS NOT NULL")
    names = context.internal("window_start"), context.internal("window_end")
    if window.kind == "session":
        return _sessions(relation, column, window.size_us, keys, names, context), *names
    copies = -(-window.size_us // window.slide_us)
    if copies > _MOST_COPIES:
        refuse(f"{window}: each row would be in {copies} windows", "use a longer slide")
    parts = tuple(_one_of(relation, column, window, number, names) for number in range(copies))
    return (Union(parts) if len(parts) > 1 else parts[0]), *names


def _one_of(relation: Relation, time: str, window: Window, number: int, names: tuple[str, str]) -> Relation:
    """Return each row with the last window that it is in, or the one that began `number` slides before that."""
    us, slide = f"unix_micros({time})", window.slide_us
    shifted = f"({us} - {window.offset_us})" if window.offset_us else us
    start = f"{us} - ({shifted} % {slide} + {slide}) % {slide}" + (f" - {number * slide}" if number else "")
    made = [(names[0], f"timestamp_micros({start})"), (names[1], f"timestamp_micros({start} + {window.size_us})")]
    whole = extended(relation, made)
    # The last copy may have ended before the row, unless slides fill the window.
    cut = (number + 1) * slide > window.size_us
    return Filter(whole, f"{names[1]} > {time}") if cut else whole


def _sessions(
    relation: Relation, time: str, gap_us: int, keys: Sequence[str], names: tuple[str, str], context: Context
) -> Relation:
    """Return each row with its session: it starts at a time with none within the gap before, as Spark has it.

    A session of a start ends with the first time that has none within the gap after it. Rows exactly a gap apart
    are of one session.
    """
    times = Distinct(Project(relation, tuple((name, quoted(name)) for name in (*keys, time))))
    starts = _lonely(times, time, keys, f"{{other}} < {{own}} AND {{other}} + {_span(gap_us)} >= {{own}}", context)
    ends = _lonely(times, time, keys, f"{{other}} > {{own}} AND {{own}} + {_span(gap_us)} >= {{other}}", context)
    ends, theirs = _copied(ends, (*keys, time), context)
    start, end = names[0], theirs[time]
    left, right, on = null_safe(starts, ends, [(key, theirs[key]) for key in keys], context)
    both = Join(left, right, on, "inner", f"{end} >= {time}")
    sessions: Relation = Aggregate(both, (*keys, time), ((names[1], f"min({end})"),))
    last = context.internal("last")
    renames = {key: context.internal(key) for key in keys}
    columns = [*((new, quoted(key)) for key, new in renames.items()), (start, quoted(time)), (last, names[1])]
    sessions = Project(sessions, (*columns, (names[1], f"{names[1]} + {_span(gap_us)}")))
    left, right, on = null_safe(relation, sessions, list(renames.items()), context)
    return Join(left, right, on, "inner", f"{time} >= {start} AND {time} <= {last}")


def _lonely(times: Relation, time: str, keys: Sequence[str], near: str, context: Context) -> Relation:
    """Return the times that have no other one near."""
    others, theirs = _copied(times, (*keys, time), context)
    left, right, on = null_safe(times, others, [(key, theirs[key]) for key in keys], context)
    alone = Join(left, right, on, "anti", near.format(own=quoted(time), other=theirs[time]))
    return Project(alone, tuple((name, quoted(name)) for name in (*keys, time)))


def _copied(relation: Relation, columns: Sequence[str], context: Context) -> tuple[Relation, dict[str, str]]:
    """Return the relation under other names, and these."""
    names = {column: context.internal(column) for column in columns}
    return Project(relation, tuple((new, quoted(old)) for old, new in names.items())), names


def _span(us: int) -> str:
    if us % 1_000:
        return f"INTERVAL {us} MICROSECONDS"
    return f"INTERVAL {us // 1_000_000} SECONDS" if us % 1_000_000 == 0 else f"INTERVAL {us // 1_000} MILLISECONDS"


def with_bounds(tree: exp.Expr, names: set[str], window: Window, start: str, end: str) -> exp.Expr:
    """Return a tree in which the bounds of the window, by its call or by one of its names, are columns."""
    whole = exp.Paren(this=tree.copy())
    bounds = {"start": start, "end": end}
    for part in list(own_parts(whole)):
        if isinstance(part, exp.Column) and part.parts[0].name in names:
            part.replace(_bound([one.name for one in part.parts[1:]], bounds))
        elif isinstance(part, exp.Anonymous) and call_of(part) in WINDOW_CALLS:
            if window_by(part) != window:
                refuse(f"{text_of(part)} is another window than that of GROUP BY", "use window.start and window.end")
            above: exp.Expr = part
            while isinstance(above.parent, exp.Paren) and above.parent is not whole:
                above = above.parent
            dot = above.parent if isinstance(above.parent, exp.Dot) else None
            (dot or part).replace(_bound([dot.expression.name] if dot else [], bounds))
    found: exp.Expr = whole.this
    return found


def _bound(parts: list[str], bounds: dict[str, str]) -> exp.Expr:
    if len(parts) != 1 or parts[0] not in bounds:
        refuse("a window as one column is not available in sql_view()", "use window.start and window.end")
    return final_column(bounds[parts[0]])


def table_function(call: exp.Expr, context: Context) -> Relation:
    """Return TUMBLE(table, time, size) or HOP(table, time, slide, size): rows with window_start and window_end."""
    name, given = call_of(call), list(call.expressions)
    if len(given) != _FUNCTIONS.get(name) or not all(isinstance(one, exp.Column) for one in given[:2]):
        hint = "TUMBLE(table, time, INTERVAL '10 seconds') and HOP(table, time, slide, size) are"
        refuse(f"FROM {text_of(call)} is not available", hint)
    relation = context.table(given[0].name)
    scalar(text_of(given[1]), relation.schema, node=f"{NODE} / {name.upper()}")
    spans = [span_of(one) for one in given[2:]]
    window = tumbling(spans[0]) if name == "tumble" else sliding(spans[1], spans[0])
    rows, start, end = assigned(relation, given[1], window, context)
    columns = [(one, quoted(one)) for one in relation.schema.names]
    return Project(rows, (*columns, ("window_start", start), ("window_end", end)))
