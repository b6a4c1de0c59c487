"""Lists the files of a path, a folder or a glob."""

from __future__ import annotations

import fnmatch
import logging
import os
import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import NamedTuple

from penstock.errors import MissingInput, SourceFailed, choices
from penstock.storage.durable_files import describe_owner

Keep = Callable[[str], bool]
_log = logging.getLogger(__name__)

_MAGIC = re.compile(r"[*?[]")
# The most file names in a message.
_SHOWN = 5


# Names that programs give to files that are not data, or not yet: checksums, and files that are still being written.
IGNORED_ENDINGS = ("._COPYING_", ".crc", ".tmp", ".temp", ".inprogress", ".partial", ".filepart", ".swp", "~")


class ListedFile(NamedTuple):
    """A file as it was when it was found."""

    path: str
    size: int
    modified: int


def ignored(name: str) -> bool:
    """Return whether a file or folder is hidden or temporary by its name; `_a=1` is a partition, as in Spark.

    >>> [ignored(name) for name in ("_SUCCESS", ".a.csv.crc", "a.csv._COPYING_", "_day=1", "a.csv")]
    [True, True, True, False, False]
    """
    hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return hidden or name.endswith(IGNORED_ENDINGS)


def is_glob(path: str) -> bool:
    """Return whether a path has wildcards."""
    return _MAGIC.search(path) is not None


def base_folder(path: str) -> str:
    """Return the longest part of a glob that names a folder."""
    parts = path.split(os.sep)
    plain = next(n for n, part in enumerate(parts) if is_glob(part))
    return os.sep.join(parts[:plain]) or (os.sep if path.startswith(os.sep) else ".")


def _none_known(path: str) -> bool:
    return False


def new_files(path: str, keep: Keep, known: Keep = _none_known) -> list[ListedFile]:
    """Return unknown files, oldest first.

    A known file costs no system call, so a folder of ten thousand files is listed quickly.
    """
    names = (name for name in _entries(path) if not known(name) and keep(name))
    found = (ListedFile(name, seen.st_size, seen.st_mtime_ns) for name, seen in _present(names))
    return sorted(found, key=lambda file: (file.modified, file.path))


def any_file(path: str, keep: Keep, known: Keep = _none_known) -> str | None:
    """Return an unknown file, if there is one."""
    return next((name for name in _entries(path) if not known(name) and keep(name)), None)


def source_name(path: str) -> str:
    """Return the last meaningful part of a path, without wildcards and extensions.

    >>> source_name("data/trades/*.csv"), source_name("data/trades.csv.gz")
    ('trades', 'trades')
    """
    for part in reversed(path.rstrip("/").split("/")):
        stem = part.split(".")[0] if not part.startswith(".") else ""
        name = re.sub(r"\[[^]]*\]|[*?]", "", stem).strip("-_ =")
        if name:
            return name
    return "files"


def check_exists(path: str) -> None:
    """Raise MissingInput if the path cannot be read.

    A folder may be empty and a glob may match nothing, because files can arrive later; the folder itself must exist.
    """
    folder = base_folder(path) if is_glob(path) else path
    if not os.path.exists(folder):
        what = f"no file matches {path!r}: there is no folder {folder!r}" if folder != path else ""
        message = what or f"there is no file or folder {path!r}"
        hint = f"create it, or set `files` so that the path is found (now looked up in {os.getcwd()!r})"
        raise MissingInput(message, hint=_beside(folder) + hint)
    if not os.access(folder, os.R_OK):
        message = f"cannot read {folder!r}: permission denied; {describe_owner(folder)}"
        raise MissingInput(message, hint=f"run as its owner, or grant access: chmod +r {folder}")


def report_waiting(path: str, keep: Keep) -> None:
    """Log that there is no file yet: a misspelt pattern would wait forever."""
    if any_file(path, keep) is None:
        what = f"no file matches {path!r} yet" if is_glob(path) else f"there is no file to read in {path!r} yet"
        others = _names(base_folder(path) if is_glob(path) else path)
        there = f"\n  it contains other files: {', '.join(others[:_SHOWN])}" if others else ""
        _log.warning("%s: waiting for the first%s", what, there)


def _beside(missing: str) -> str:
    """Return a hint with the content of the folder in which a path is missing, and a suggestion."""
    above, _, name = missing.rstrip(os.sep).rpartition(os.sep)
    while above and not os.path.isdir(above):
        above, _, name = above.rpartition(os.sep)
    others = _names(above or (os.sep if missing.startswith(os.sep) else "."))
    close = get_close_matches(name, others, n=1)
    shown = [*close, *(other for other in others if other not in close)][:_SHOWN]
    return f"{choices(f'in {above or os.curdir}', shown, name)}\n  " if shown else ""


def _names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not ignored(name))
    except OSError:
        return []


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
        message = f"cannot read {error.filename!r}: permission denied; {describe_owner(error.filename)}"
        raise SourceFailed(message, hint=f"run as its owner, or grant access: chmod +r {error.filename}") from error


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
