"""`window(ts, '1 minute')` and `session_window(ts, '5 minutes')` in GROUP BY, and the columns that name a window."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from penstock.errors import BadExpression, MissingEventTime, choices
from penstock.plan.physical.queries import event_times_of
from penstock.query.parsing import NODE, WINDOW_CALLS, call_of, text_of
from penstock.stream import Stream
from penstock.windows import Window, session, sliding, tumbling

_BOUNDS = {"start": "window_start", "end": "window_end"}
_WHOLE = "named_struct('start', window_start, 'end', window_end)"
_UNITS = {"millisecond": "ms", "second": "s", "minute": "m", "hour": "h", "day": "d"}


def is_window(tree: exp.Expr) -> bool:
    """Return whether a tree is a window of GROUP BY."""
    return call_of(tree) in WINDOW_CALLS


def window_in(tree: exp.Expr) -> exp.Expr | None:
    """Return the call of the window that a tree is, or is a bound of; None if it is neither."""
    whole = tree.unnest()
    call = whole.this.unnest() if isinstance(whole, exp.Dot) else whole
    return call if is_window(call) else None


def window_calls(tree: exp.Expr) -> list[exp.Expr]:
    """Return the windows that a tree calls."""
    return [one for one in tree.find_all(exp.Anonymous) if is_window(one)]


def names_window(tree: exp.Expr, names: set[str]) -> bool:
    """Return whether a tree has a column that is a window, or a bound of one, by one of these names."""
    return any(column.parts[0].name in names for column in tree.find_all(exp.Column))


def common_window(parts: Iterable[exp.Expr], stream: Stream) -> Window | None:
    """Return the window of GROUP BY; None if it has none."""
    found = {window_of(call, stream) for part in parts if (call := window_in(part)) is not None}
    if len(found) > 1:
        message = "GROUP BY has two windows"
        raise BadExpression(message, node=NODE, hint="group by one of them, and the result by the other")
    return next(iter(found), None)


def check_calls(trees: Iterable[exp.Expr], window: Window | None, stream: Stream) -> None:
    """Refuse windows in SELECT and HAVING that are not the one of the group: its bounds would be shown for theirs."""
    for call in (one for tree in trees for one in window_calls(tree)):
        if window is None:
            message = f"{text_of(call)} is neither an aggregate nor in GROUP BY"
            raise BadExpression(message, node=NODE, hint=f"add {text_of(call)} to GROUP BY")
        if window_of(call, stream) != window:
            message = f"{text_of(call)} is another window than that of GROUP BY, {window}"
            raise BadExpression(message, node=NODE, hint="use window.start and window.end, the bounds of the group")


def refuse_ungrouped(trees: Iterable[exp.Expr]) -> None:
    """Refuse windows without GROUP BY."""
    for call in (one for tree in trees for one in window_calls(tree)):
        message = f"GROUP BY is missing: {text_of(call)} is the window of a group"
        hint = f"GROUP BY {text_of(call)}, or use date_trunc('minute', ts) for a row's own minute"
        raise BadExpression(message, node=NODE, hint=hint)


def window_of(call: exp.Expr, stream: Stream) -> Window:
    """Return the window that a call means."""
    text, given = text_of(call), list(call.expressions)
    if not stream.node.event_time:
        message = f"GROUP BY {text} needs an event time"
        raise MissingEventTime(message, node=NODE, hint='call .event_time("ts", max_delay="5s") on the stream first')
    _check_time(given[0] if given else None, stream, text)
    return window_by(call)


def window_by(call: exp.Expr) -> Window:
    """Return the window of the spans of a call, over whatever time."""
    text, given = text_of(call), list(call.expressions)
    most = 2 if call_of(call) == "session_window" else 4
    if not 2 <= len(given) <= most or not all(isinstance(one, exp.Literal | exp.Interval) for one in given[1:]):
        message = f"GROUP BY {text}: a column and one to {most - 1} spans are needed"
        raise BadExpression(message, node=NODE, hint="write window(ts, '10 minutes'[, '5 minutes'[, '1 minute']])")
    spans = [span_of(one) for one in given[1:]]
    if call_of(call) == "session_window":
        return session(spans[0])
    if len(spans) == 1:
        return tumbling(spans[0])
    offset = spans[2] if len(spans) > 2 else "0s"
    return tumbling(spans[0], offset=offset) if spans[0] == spans[1] else sliding(spans[0], spans[1], offset=offset)


def _check_time(tree: exp.Expr | None, stream: Stream, text: str) -> None:
    """Refuse a window over another column than the event time, which results would silently use."""
    declared = {time.column for time in event_times_of(stream.node)}
    mine = isinstance(tree, exp.Column) and (tree.name in declared or not declared & set(stream.schema.names))
    if tree is not None and not mine and call_of(tree) != "window_time":
        message = f"GROUP BY {text}: windows use the event time, and {text_of(tree)} is not it"
        raise BadExpression(message, node=NODE, hint=choices("event time", declared & set(stream.schema.names)))


def with_bounds(tree: exp.Expr, names: set[str]) -> exp.Expr:
    """Return a tree in which windows, by their call or by one of their names, are columns of the result."""
    whole = exp.Paren(this=tree.copy())
    for one in list(whole.find_all(exp.Column, exp.Anonymous)):
        if isinstance(one, exp.Column) and one.parts[0].name in names:
            one.replace(_bound([part.name for part in one.parts[1:]], text_of(one)))
        elif isinstance(one, exp.Anonymous) and is_window(one):
            above = _dot_of(one)
            parts = [above.expression.name] if above else []
            (above or one).replace(_bound(parts, text_of(above or one)))
    found: exp.Expr = whole.this
    return found


def _dot_of(call: exp.Expr) -> exp.Expr | None:
    """Return what takes a bound of a window: `window(...).start`, or `(window(...)).start`."""
    inner = call
    while isinstance(inner.parent, exp.Paren):
        inner = inner.parent
    return inner.parent if isinstance(inner.parent, exp.Dot) and inner.parent.this is inner else None


def _bound(parts: list[str], text: str) -> exp.Expr:
    if not parts:
        return exp.maybe_parse(_WHOLE, dialect="spark")
    if len(parts) > 1 or parts[0] not in _BOUNDS:
        message = f"{text}: a window has a start and an end"
        raise BadExpression(message, node=NODE, hint=choices("columns", ["window.start", "window.end"]))
    return exp.column(_BOUNDS[parts[0]])


def span_of(tree: exp.Expr) -> str:
    """Convert Spark's '60 seconds' to Penstock's "60s"."""
    text = f"{tree.this.name} {tree.args['unit'].name}" if isinstance(tree, exp.Interval) else tree.name
    words = text.lower().removeprefix("interval ").split()
    if len(words) == 2 and words[1].rstrip("s") in _UNITS:
        return f"{words[0]}{_UNITS[words[1].rstrip('s')]}"
    return text
