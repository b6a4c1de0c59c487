"""The source of a job as it is sent to the job manager: a Python or SQL file, or a zip of a folder."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import BadEntry, choices

MAX_FILES = 2_000
MAX_BYTES = 20_000_000
# Code and what code reads at its start. Data stays where it is: a job reads it from its source.
SUFFIXES = frozenset(
    (".py", ".sql", ".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".txt", ".avsc", ".proto", ".j2")
)
_NO_CODE = frozenset(("__pycache__", "node_modules", "build", "dist", "spark-warehouse"))
# Equal folders give equal bytes, so that the job manager can see that a version did not change.
_DATE = (1980, 1, 1, 0, 0, 0)
_MAIN = ("main.py", "pipeline.py", "job.py")
_ENTRIES = (".py", ".sql")


@dataclass(frozen=True)
class Source:
    """A file to send, and which pipeline of it to run: `name`, or `FILE.py[:name]` or `FILE.sql` in a zip."""

    filename: str
    content: bytes
    entry: str | None

    @property
    def media_type(self) -> str:
        """The media type of the file."""
        known = {".zip": "application/zip", ".sql": "application/sql"}
        return known.get(Path(self.filename).suffix, "text/x-python")


def read_source(target: str | Path) -> Source:
    """Read `FILE.py[:name]`, `FILE.sql`, or a folder or zip with `:FILE.py[:name]` or `:FILE.sql` after it.

    Of a folder, code and small texts are sent; hidden files, virtual environments and data are not. Without a file
    a folder must have main.py, pipeline.py, job.py, or one Python or SQL file. Raise BadEntry for anything else.
    """
    path, entry = _split(str(target))
    if path.is_dir():
        chosen = entry or _main_of(path)
        _check_entry(path, chosen)
        return Source(f"{path.resolve().name or 'job'}.zip", zipped(path), chosen)
    content = path.read_bytes()
    if len(content) > MAX_BYTES:
        message = f"{path} has {len(content):,} bytes; the limit is {MAX_BYTES:,}"
        raise BadEntry(message, hint="send code only; data belongs into a source of the pipeline")
    return Source(path.name, content, entry)


def _split(target: str) -> tuple[Path, str | None]:
    """Split at the last colon with a path that exists before it."""
    parts = target.split(":")
    ends = [end for end in range(len(parts), 0, -1) if Path(":".join(parts[:end])).exists()]
    end = ends[0] if ends else 1
    path, entry = Path(":".join(parts[:end])), ":".join(parts[end:]) or None
    if path.is_dir() or (path.is_file() and path.suffix in (*_ENTRIES, ".zip")):
        return path, entry
    if path.is_file() or path.suffix not in (*_ENTRIES, ".zip", ""):
        message = f"'{target}' is not a Python or SQL file, a folder or a zip"
        raise BadEntry(message, hint="as in: penstock submit vwap.py")
    message = f"file not found: {path}"
    hint = choices(f"Python and SQL files in {path.parent}", _entry_files(path.parent), path.name)
    raise BadEntry(message, hint=hint)


def _main_of(folder: Path) -> str:
    files = _entry_files(folder)
    python = [name for name in files if name.endswith(".py")]
    found = [name for name in _MAIN if name in python]
    # SQL beside Python is what the Python reads.
    for names in (python, files):
        found = found or (names if len(names) == 1 else [])
    if found:
        return found[0]
    message = f"{folder} has {len(files)} Python and SQL files, and none of them is main.py"
    first = files[0] if files else "FILE.py"
    raise BadEntry(message, hint=f"{choices('files there', files)}      name one: {folder}:{first}")


def _check_entry(folder: Path, entry: str) -> None:
    file = entry.partition(":")[0]
    if not file.endswith(_ENTRIES):
        message = f"'{folder}:{entry}' names no Python or SQL file of the folder"
        raise BadEntry(message, hint=f"as in: {folder}:{_main_of(folder)}:{entry}")
    if not (folder / file).is_file():
        message = f"file not found: {folder / file}"
        raise BadEntry(message, hint=choices("files there", _entry_files(folder), file))


def _entry_files(folder: Path) -> list[str]:
    """Return the files that may have a pipeline: those of Python first."""
    found = [file.name for file in folder.iterdir() if file.suffix in _ENTRIES] if folder.is_dir() else []
    return sorted(found, key=lambda name: (name.endswith(".sql"), name))[:20]


def zipped(folder: Path) -> bytes:
    """Return a folder's code as a zip; equal folders give equal bytes. Raise BadEntry above the limits."""
    files = sorted(_code_files(folder))
    _check_limits(folder, files)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for file in files:
            name = zipfile.ZipInfo(file.relative_to(folder).as_posix(), _DATE)
            archive.writestr(name, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _code_files(folder: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        # A virtual environment may have any name; pyvenv.cfg is what makes it one.
        folders[:] = [name for name in folders if _is_code_folder(Path(here, name))]
        for name in files:
            file = Path(here, name)
            if file.suffix in SUFFIXES and not name.startswith(".") and not file.is_symlink():
                yield file


def _is_code_folder(folder: Path) -> bool:
    return not (folder.name.startswith(".") or folder.name in _NO_CODE or (folder / "pyvenv.cfg").exists())


def _check_limits(folder: Path, files: list[Path]) -> None:
    if len(files) > MAX_FILES:
        message = f"{folder} has {len(files):,} files of code; the limit is {MAX_FILES:,}"
        raise BadEntry(message, hint="submit the folder of the job, not that of all projects")
    sizes = {file: file.stat().st_size for file in files}
    if sum(sizes.values()) > MAX_BYTES:
        largest = sorted(sizes, key=lambda file: -sizes[file])[:3]
        message = f"{folder} has {sum(sizes.values()):,} bytes of code and texts; the limit is {MAX_BYTES:,}"
        named = ", ".join(f"{file.relative_to(folder)} ({sizes[file]:,})" for file in largest)
        raise BadEntry(message, hint=f"the largest: {named}; data belongs into a source of the pipeline")
