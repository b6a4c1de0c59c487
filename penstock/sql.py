"""SQL over streams: a query becomes the same nodes that the fluent calls make."""

from __future__ import annotations

from penstock.errors import BadValue
from penstock.query.parsing import NODE
from penstock.query.select import build
from penstock.stream import Stream


def sql(query: str, /, **inputs: Stream) -> Stream:
    """Query streams with Spark SQL; each table name is a keyword.

    >>> import penstock as ps
    >>> trades = ps.datagen("trades", rows=10)
    >>> sql("SELECT symbol, price * size AS value FROM trades WHERE size > 0", trades=trades).schema
    Schema('symbol string, value double')

    A group by `window(ts, '60 seconds')` or `session_window(ts, '10 minutes')` makes windows; `window.start` and
    `window.end` are their bounds. WITH, subqueries in FROM, LATERAL VIEW, DISTINCT and UNION are supported too.
    """
    for name, stream in inputs.items():
        if not isinstance(stream, Stream):
            message = f"{name} is {stream!r}, not a stream"
            raise BadValue(message, node=NODE, hint="pass streams by their table name: trades=stream")
    return build(query, inputs)
