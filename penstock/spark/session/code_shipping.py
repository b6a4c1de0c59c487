"""Ships the user's code and our own to Spark's workers.

A function is pickled by reference when its module can be imported; a worker cannot import the file that `penstock run`
was given, a test module or a package that is not installed there. Such modules go by value. Executors on a cluster have
neither the user's folder nor, perhaps, this version of Penstock: an archive of both is sent to them.
"""

from __future__ import annotations

import hashlib
import marshal
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from penstock.plan.graph import Graph
from penstock.signatures import row_class

Value = TypeVar("Value")
# Pickled by value without being asked.
_SCRIPT = "__main__"
# The flag of bytecode that has a hash of its source, with which it need not be compared.
_NOT_COMPARED = (1).to_bytes(4, "little")
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")})


def ship_code(graph: Graph) -> None:
    """Have the modules of the user's functions, aggregators, sources and sinks pickled by value."""
    for module in _modules(graph):
        if module.__name__ != _SCRIPT:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def sent(value: Value) -> Value:
    """Return a value as a task gets it."""
    copy: Value = cloudpickle.loads(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]
    return copy


def ship_archive(graph: Graph, spark: SparkSession) -> None:
    """Send Penstock, and what the user's modules import of the user's own, to executors that are not this machine's."""
    context = spark.sparkContext
    if str(context.master).partition("[")[0] == "local":
        return
    imported = {_top(module) for module in _reached(graph) if module.__name__ != _SCRIPT}
    archive = _archive([Path(__file__).parents[2], *sorted(imported)])
    if archive.name not in (context._python_includes or ()):
        context.addPyFile(str(archive))


def _modules(graph: Graph) -> Iterator[ModuleType]:
    for thing in _code_objects(graph):
        module = _module_of(thing)
        if module is not None and _is_users(module):
            yield module


def _code_objects(graph: Graph) -> Iterator[Any]:
    for node in graph.nodes:
        for fn in node.functions:
            yield fn
            yield row_class(fn)
        yield from node.classes
    yield from (type(read.source) for read in graph.reads)
    yield from (type(write.sink) for write in graph.writes)


def _module_of(thing: Any) -> ModuleType | None:
    name = getattr(thing, "__module__", None)
    return sys.modules.get(name) if isinstance(name, str) else None


def _is_users(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if module.__name__.partition(".")[0] == "penstock" or file is None:
        return False
    return not file.startswith(_INSTALLED)


def _reached(graph: Graph) -> set[ModuleType]:
    """Return the user's modules that those of the graph import, themselves included."""
    found: set[ModuleType] = set()
    open_ = list(_modules(graph))
    while open_:
        module = open_.pop()
        if module in found:
            continue
        found.add(module)
        used = (value if isinstance(value, ModuleType) else _module_of(value) for value in vars(module).values())
        open_ += [one for one in used if one is not None and _is_users(one)]
    return found


def _top(module: ModuleType) -> Path:
    """Return what Python has to find to import a module: its file, or the folder of its outermost package."""
    path = Path(str(module.__file__))
    depth = module.__name__.count(".") + (path.name == "__init__.py")
    return path.parents[depth - 1] if depth else path


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Where archives stay as long as this process lives: Spark reads them whenever a new executor asks."""
    return tempfile.TemporaryDirectory(prefix="penstock-ship-")


def _archive(paths: list[Path]) -> Path:
    """Write Python files and packages to an archive that is named after what it holds."""
    files = {file: f"{path.name}/{file.relative_to(path)}" for path in paths for file in sorted(path.rglob("*.py"))}
    files |= {path: path.name for path in paths if path.is_file()}
    digest = hashlib.sha256(b"".join(name.encode() + file.read_bytes() for file, name in files.items()))
    archive = Path(_folder().name) / f"penstock-{digest.hexdigest()[:12]}.zip"
    if not archive.exists():
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for file, name in files.items():
                packed.write(file, name)
                if bytecode := _bytecode(file):
                    packed.writestr(f"{name}c", bytecode)
    return archive


def _bytecode(file: Path) -> bytes:
    """Return a module as Python stores it compiled: without it, each worker would compile what it imports.

    A worker with another version of Python, or a file that cannot be compiled, has the source beside it.
    """
    try:
        code = SourceFileLoader(file.stem, str(file)).get_code(file.stem)
    except (SyntaxError, ValueError):  # a ValueError for null bytes
        return b""
    return MAGIC_NUMBER + _NOT_COMPARED + source_hash(file.read_bytes()) + marshal.dumps(code)
