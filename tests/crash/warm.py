"""A driver that is started before it is needed: Spark is up, and it runs one `penstock run` after another.

Starting a JVM takes longer than most runs of the matrix. Orders come as JSON lines on standard input: arguments, the
environment, Spark's session settings, the file for what the job prints, and the faults of its tasks. The exit code of
each goes to standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from penstock.cli import main as penstock
from penstock.settings import PREFIX, Settings
from penstock.spark.session.spark_session import session
from tests.crash.faults import failing_tasks


def main() -> None:
    """Say that Spark is up, then run what comes."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    session(Settings.load())
    own = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    print("ready", file=answers)
    for line in sys.stdin:
        print(_run(json.loads(line), own), file=answers)


def _run(order: dict[str, Any], own: dict[str, str]) -> int:
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    os.environ.update(own | order["env"])
    sys.argv = ["penstock", *order["arguments"]]
    with _printing_to(order["output"]):
        for name, value in order["spark"].items():
            session(Settings.load()).conf.set(name, value)
        with failing_tasks(order["faults"]) if order["faults"] else contextlib.nullcontext():
            try:
                penstock()
            except SystemExit as end:
                return int(end.code or 0)
    return 0


@contextlib.contextmanager
def _printing_to(path: str) -> Iterator[None]:
    kept = os.dup(1), os.dup(2)
    with open(path, "ab") as output:
        for number in (1, 2):
            os.dup2(output.fileno(), number)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, was in zip((1, 2), kept, strict=True):
            os.dup2(was, number)
            os.close(was)


if __name__ == "__main__":
    main()
