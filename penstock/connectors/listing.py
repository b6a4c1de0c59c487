"""Which files a path, a folder or a glob stands for."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Container, Iterator

from penstock.errors import MissingInput, SourceFailed

Keep = Callable[[str], bool]

_MAGIC = re.compile(r"[*?[]")


def ignored(name: str) -> bool:
    """Say whether a name marks a file or folder that is not data, or not yet."""
    return name.startswith(("_", ".")) or name.endswith(".tmp")


def is_glob(path: str) -> bool:
    """Say whether a path has wildcards."""
    return _MAGIC.search(path) is not None


def base_folder(path: str) -> str:
    """Return the longest part of a glob that names a folder."""
    parts = path.split(os.sep)
    plain = next(n for n, part in enumerate(parts) if is_glob(part))
    return os.sep.join(parts[:plain]) or (os.sep if path.startswith(os.sep) else ".")


def new_files(path: str, keep: Keep, known: Container[str] = ()) -> list[tuple[str, int]]:
    """Return path and size of the files that are not yet known, oldest first.

    A known file costs no system call of its own, so a folder of ten thousand is looked through quickly.
    """
    names = (name for name in _entries(path) if name not in known and keep(name))
    found = [(seen.st_mtime_ns, name, seen.st_size) for name, seen in _present(names)]
    return [(name, size) for _, name, size in sorted(found)]


def any_file(path: str, keep: Keep, known: Container[str] = ()) -> str | None:
    """Return a file that is not yet known, if there is one."""
    return next((name for name in _entries(path) if name not in known and keep(name)), None)


def source_name(path: str) -> str:
    """Return the last part of a path that says something, without wildcards and endings.

    >>> source_name("data/trades/*.csv"), source_name("data/trades.csv.gz")
    ('trades', 'trades')
    """
    for part in reversed(path.rstrip("/").split("/")):
        stem = part.split(".")[0] if not part.startswith(".") else ""
        name = re.sub(r"\[[^]]*\]|[*?]", "", stem).strip("-_ =")
        if name:
            return name
    return "files"


def refuse_missing(path: str) -> None:
    """Raise MissingInput if there is nothing to read, SettingsError's kind of mistake.

    A folder may still be empty, for files come later; a glob must match, for it is easily misspelt.
    """
    if is_glob(path):
        if next(_entries(path), None) is None:
            message = f"no file matches {path!r}"
            hint = f"check the pattern, or read the folder {base_folder(path)!r} to wait for files in it"
            raise MissingInput(message, hint=hint)
    elif not os.path.exists(path):
        message = f"there is no file or folder {path!r}"
        hint = f"create it, or set `files` so that the path is found (now looked up in {os.getcwd()!r})"
        raise MissingInput(message, hint=hint)
    folder = base_folder(path) if is_glob(path) else path
    if not os.access(folder, os.R_OK):
        message = f"{folder!r} may not be read by this user"
        raise MissingInput(message, hint=f"grant it: chmod +r {folder}")


def _entries(path: str) -> Iterator[str]:
    try:
        if is_glob(path):
            base = base_folder(path)
            rest = path.removeprefix(base).strip(os.sep) if base != "." else path
            yield from _matches(base, rest.split(os.sep))
        elif os.path.isdir(path):
            yield from _below(path)
        elif os.path.exists(path):
            yield path
    except PermissionError as error:
        message = f"{error.filename!r} may not be read by this user"
        raise SourceFailed(message, hint=f"grant it: chmod +r {error.filename}") from error


def _below(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if ignored(entry.name):
                continue
            if entry.is_dir():
                yield from _below(entry.path)
            else:
                yield entry.path


def _matches(folder: str, parts: list[str]) -> Iterator[str]:
    """Yield the files below a folder that match the parts of a pattern."""
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _matches(folder, rest or ["*"])
    if not os.path.isdir(folder):
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if ignored(entry.name):
                continue
            if part == "**" and entry.is_dir():
                yield from _matches(entry.path, parts)
            elif part != "**" and fnmatch.fnmatchcase(entry.name, part):
                yield from _reached(entry, rest)


def _reached(entry: os.DirEntry[str], rest: list[str]) -> Iterator[str]:
    if entry.is_dir():
        yield from _matches(entry.path, rest) if rest else _below(entry.path)
    elif not rest:
        yield entry.path


def _present(paths: Iterator[str]) -> Iterator[tuple[str, os.stat_result]]:
    for path in paths:
        try:
            yield path, os.stat(path)
        except FileNotFoundError:
            continue
