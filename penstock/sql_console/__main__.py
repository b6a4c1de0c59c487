"""`python -m penstock.sql_console`: one request on standard input, the answer on standard output, a JSON text a line.

The request is `{"kind": "query" or "filter", "connection": {...}, "seconds": N, ...}`. Nothing of it is in the
environment or among the arguments, for it has the password of the log. An error is `{"error": {...}}`, the last line.
The caller passes a clean environment, and kills the process when it takes too long.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.abc import MetaPathFinder
from typing import Any


class _WithoutPandas(MetaPathFinder):
    """Hides pandas: PyArrow loads it where it finds it, which takes a second, and nothing here needs it."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise for pandas."""
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def main() -> int:
    """Answer one request."""
    sys.meta_path.insert(0, _WithoutPandas())
    # Loaded before the request comes: a process may wait for it.
    import duckdb  # noqa: F401

    from penstock.sql_console import filter, query
    from penstock.sql_console.sandbox import set_limits

    request = json.loads(sys.stdin.readline() or "{}")
    if not request:
        return 0
    set_limits(float(request.get("seconds") or 10))
    kinds = {"query": query.answer, "filter": filter.answer}
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in _safely(kinds[request["kind"]], request):
        answer.write(f"{line}\n")
        answer.flush()
    return 0


def _safely(answer: Any, request: Mapping[str, Any]) -> Iterator[str]:
    from penstock.connectors.topics.connection import Connection
    from penstock.errors import ExpressionFailed, PenstockError

    try:
        yield from answer(request, Connection(**request["connection"]))
    except PenstockError as error:
        yield _error(error)
    except MemoryError:
        message = "the query needs more memory than the console gives it"
        yield _error(ExpressionFailed(message, hint="read fewer rows, or group by fewer values"))
    except RecursionError:
        message = "the query is nested too deeply"
        yield _error(ExpressionFailed(message, hint="write it with fewer parentheses or subqueries"))


def _error(error: Any) -> str:
    parts = {name: getattr(error, name) for name in ("message", "node", "hint", "transient")}
    return json.dumps({"error": {"type": type(error).__name__, **parts}})


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
