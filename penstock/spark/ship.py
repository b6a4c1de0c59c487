"""The user's code on its way to Spark's workers.

A function is pickled by reference when its module can be imported; a worker cannot import the file that `penstock run`
was given, a test module or a package that is not installed there. Such modules go by value.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from penstock.functions import row_class
from penstock.plan.graph import Graph
from penstock.plan.stateful import Aggregate

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")})


def ship_code(graph: Graph) -> None:
    """Have the modules of the user's functions, aggregators, sources and sinks pickled by value."""
    for thing in _things(graph):
        module = sys.modules.get(getattr(thing, "__module__", ""))
        if module is not None and _is_users(module):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _things(graph: Graph) -> Iterator[Any]:
    for node in graph.nodes:
        for fn in node.functions:
            yield fn
            yield row_class(fn)
        if isinstance(node, Aggregate):
            yield from map(type, node.python.values())
    yield from (type(read.source) for read in graph.reads)
    yield from (type(write.sink) for write in graph.writes)


def _is_users(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or module.__name__.partition(".")[0] == "penstock" or file is None:
        return False
    return not file.startswith(_INSTALLED)
