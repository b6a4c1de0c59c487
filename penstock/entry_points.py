"""Entry points: the pipelines of a Python file, and how one is chosen: `FILE.py[:name] --set key=value`; SQL files."""

from __future__ import annotations

import importlib.util
import inspect
import linecache
import os
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import BadEntry, PenstockError, choices
from penstock.pipeline import Pipeline
from penstock.sql_files import pipeline_of_file
from penstock.text_arguments import read_arguments, type_hints

MODULE_PREFIX = "penstock_entry_"
_SUFFIXES = (".py", ".sql")
_UNKNOWN_ARGUMENT = re.compile(r"(?P<function>[\w.]+)\(\) got an unexpected keyword argument '(?P<argument>\w+)'")
_MISSING_ARGUMENT = re.compile(r"(?P<function>[\w.]+)\(\) missing \d+ required")
Entry = Pipeline | Callable[..., Pipeline]


def load_entry(target: str, sets: Iterable[str] = ()) -> Pipeline:
    """Return the pipeline that `FILE.py[:name]` or `FILE.sql` leads to, built with the `key=value` texts of `--set`.

    Raise BadEntry if it has none, and any error of the pipeline itself.
    """
    path, name = _split(target)
    if path.suffix == ".sql":
        return _of_sql(path, name, sets)
    entries = find_entries(_load(path))
    entry = _choose(entries, name, path)
    return _build(entry, read_sets(sets), path)


def find_entries(module: types.ModuleType) -> dict[str, Entry]:
    """Return the module's pipelines, and its own functions that are annotated to return one."""
    found: dict[str, Entry] = {}
    for name, value in vars(module).items():
        if name.startswith("_") or any(value is known for known in found.values()):
            continue
        if isinstance(value, Pipeline) or _returns_pipeline(value, module):
            found[name] = value
    return found


def _split(target: str) -> tuple[Path, str | None]:
    text, colon, name = target.rpartition(":")
    path = Path(text if colon and name.isidentifier() else target)
    if path.suffix not in _SUFFIXES and not path.is_dir():
        message = f"'{target}' is not a Python or SQL file"
        raise BadEntry(message, hint="the name of a file ends in .py or .sql, as in: penstock run vwap.py")
    if path.is_dir() or not path.exists():
        message = f"{path} is a folder" if path.is_dir() else f"file not found: {path}"
        raise BadEntry(message, hint=_neighbours(path))
    return path, name if path != Path(target) else None


def _of_sql(path: Path, name: str | None, sets: Iterable[str]) -> Pipeline:
    """Return the pipeline of an SQL file, which has one, without parameters."""
    if name is not None:
        message = f"{path} has one pipeline, and '{name}' is given"
        raise BadEntry(message, hint=f"leave the name out: {path}")
    if given := read_sets(sets):
        message = f"{path}: an SQL file takes no --set {next(iter(given))}"
        raise BadEntry(message, hint="write the value into the file, or a Python file with ps.sql_view(...)")
    return pipeline_of_file(path)


def _neighbours(path: Path) -> str:
    folder = path if path.is_dir() else path.parent
    found = [file.name for file in folder.iterdir() if file.suffix in _SUFFIXES] if folder.is_dir() else []
    return choices(f"Python and SQL files in {folder}", sorted(found)[:20], path.name)


def _load(path: Path) -> types.ModuleType:
    folder = str(path.resolve().parent)
    _check_neighbours(path)
    # Modules in the same folder can be imported, as when Python runs the file; Spark's workers use PYTHONPATH.
    if folder not in sys.path:
        sys.path.insert(0, folder)
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, known)])
    # The prefix keeps a file called duckdb.py from hiding a module that others import.
    spec = importlib.util.spec_from_file_location(f"{MODULE_PREFIX}{path.stem}", path.resolve())
    assert spec is not None and spec.loader is not None  # noqa: PT018 - a .py file always has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with _explained(path, "cannot be imported"):
        spec.loader.exec_module(module)
    return module


def _check_neighbours(path: Path) -> None:
    """Refuse files that hide modules of Python's own: Spark's workers look for modules in this folder first."""
    used = sys.stdlib_module_names & sys.modules.keys()
    for file in sorted(path.resolve().parent.glob("*.py")):
        if file.stem in used:
            beside = "" if file == path.resolve() else f" beside {path.name}"
            message = f"{file.name}{beside} hides Python's own module '{file.stem}' from Spark's workers"
            raise BadEntry(message, hint="rename the file")


class _explained:
    """Turn an exception of the user's own code into one line with its location."""

    def __init__(self, path: Path, what: str) -> None:
        self.path, self.what = path, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: Any) -> None:
        if isinstance(error, PenstockError):
            at = f"at {self.path}:{self._line(error)}"
            error.hint = f"{error.hint}\n  {at}" if error.hint else at
        elif isinstance(error, (Exception, SystemExit)):
            message = f"{self.path}:{self._line(error)} {self.what}: {type(error).__name__}: {_first(error)}"
            raise BadEntry(message, hint=self._hint(error)) from error

    def _line(self, error: BaseException) -> int | str:
        if isinstance(error, SyntaxError) and error.filename == str(self.path.resolve()):
            return error.lineno or "?"
        own = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(self.path.resolve())]
        return (own[-1].lineno or "?") if own else "?"

    def _hint(self, error: BaseException) -> str | None:
        if isinstance(error, ModuleNotFoundError):
            return f"install it where Penstock is installed: {sys.executable} -m pip install ..."
        if isinstance(error, SystemExit):
            return 'an entry file only builds pipelines; put the rest under if __name__ == "__main__":'
        line = linecache.getline(str(self.path.resolve()), _number(self._line(error)))
        shown = f"the line is: {line.strip()}" if line.strip() else None
        return "\n  ".join(part for part in (_choices(error), shown) if part) or None


def _number(line: int | str) -> int:
    return line if isinstance(line, int) else 0


def _choices(error: BaseException) -> str | None:
    """Return the choices for an unknown name of a function or object of Penstock."""
    if isinstance(error, AttributeError) and error.obj is sys.modules["penstock"]:
        return choices("penstock has", sys.modules["penstock"].__all__, error.name)
    if isinstance(error, TypeError) and (lacking := _MISSING_ARGUMENT.match(str(error))):
        found = _function(lacking["function"])
        return f"it is called as {lacking['function']}{_shown_signature(found)}" if found else None
    if isinstance(error, AttributeError) and type(error.obj).__module__.startswith("penstock."):
        public = [name for name in dir(error.obj) if not name.startswith("_")]
        return choices(f"a {type(error.obj).__name__} has", public, error.name)
    unknown = _UNKNOWN_ARGUMENT.match(str(error)) if isinstance(error, TypeError) else None
    function = _function(unknown["function"]) if unknown else None
    if unknown is None or function is None:
        return None
    known = [name for name in inspect.signature(function).parameters if name != "self"]
    return choices(f"{unknown['function']} takes", known, unknown["argument"])


def _function(name: str) -> Callable[..., Any] | None:
    """Return a function or method of Penstock's by the name that Python's errors have for it."""
    found: Any = sys.modules["penstock"]
    streams = sys.modules["penstock.stream"]
    for part in name.split("."):
        found = getattr(found, part, None) or getattr(streams, part, None)
    return found if callable(found) else None


def _shown_signature(function: Callable[..., Any]) -> str:
    """Return the parameters without their types."""
    shown = [
        each.replace(annotation=inspect.Parameter.empty)
        for name, each in inspect.signature(function).parameters.items()
        if name != "self"
    ]
    return str(inspect.Signature(shown))


def _first(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return text.strip().split("\n")[0]


def _returns_pipeline(value: object, module: types.ModuleType) -> bool:
    if not inspect.isfunction(value) or value.__module__ != module.__name__:
        return False
    returned = type_hints(value).get("return")
    if isinstance(returned, str):
        return returned.strip("\"'").rpartition(".")[2] == "Pipeline"
    return isinstance(returned, type) and issubclass(returned, Pipeline)


def _choose(entries: Mapping[str, Entry], name: str | None, path: Path) -> Entry:
    if not entries:
        message = f"{path} has no pipeline"
        hint = "write job = ps.Pipeline(...) at the top level, or a function: def job() -> ps.Pipeline:"
        raise BadEntry(message, hint=hint)
    if name is None and len(entries) == 1:
        return next(iter(entries.values()))
    if name is None:
        message = f"{path} has {len(entries)} pipelines"
        first = next(iter(entries))
        raise BadEntry(message, hint=f"{choices('pipelines there', entries)}      name one: {path}:{first}")
    if name not in entries:
        message = f"{path} has no pipeline '{name}'"
        raise BadEntry(message, hint=choices("pipelines there", entries, name))
    return entries[name]


def _build(entry: Entry, given: Mapping[str, str], path: Path) -> Pipeline:
    if isinstance(entry, Pipeline):
        if given:
            message = f"{path}: the pipeline is an object and takes no --set {next(iter(given))}"
            raise BadEntry(message, hint="write a function that takes it: def job(size: str) -> ps.Pipeline:")
        return entry
    arguments = read_arguments(entry, given, f"{path}: {entry.__name__}()")
    with _explained(path, "cannot build its pipeline"):
        built: object = entry(**arguments)
    if not isinstance(built, Pipeline):
        message = f"{path}: {entry.__name__}() returned {type(built).__name__}, not a Pipeline"
        raise BadEntry(message, hint="end it with: return ps.Pipeline(name, stream.to(sink))")
    return built


def read_sets(sets: Iterable[str]) -> dict[str, str]:
    """Return the pairs of `--set key=value`; the last one of a key counts."""
    pairs = {}
    for text in sets:
        key, equals, value = text.partition("=")
        if not (equals and key.strip()):
            message = f"--set {text}: a key and a value are needed"
            raise BadEntry(message, hint="as in: --set window=30s")
        pairs[key.strip()] = value
    return pairs
