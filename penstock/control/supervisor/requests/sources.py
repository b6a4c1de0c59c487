"""Uploaded sources: a Python or SQL file, or a zip of a folder, stored as the folder of a version."""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from penstock.control.security.archives import unpack
from penstock.control.supervisor.data_folder import DataFolder, disk_full
from penstock.control.supervisor.pending_submissions import remove_version
from penstock.errors import BadEntry, UnknownJob, choices

_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.(py|sql)")
_ENTRY_NAME = re.compile(r"[^\W\d]\w*")
# If a folder has several files, these are tried.
_USUAL = ("main.py", "pipeline.py", "job.py")
_ENTRIES = (".py", ".sql")


@dataclass(frozen=True)
class StoredSource:
    """The source of a version: its folder, its entry as `FILE.py[:name]` or `FILE.sql`, and its digest."""

    folder: Path
    entry: str
    digest: str

    @property
    def target(self) -> Path:
        """The entry file."""
        return self.folder / self.entry.partition(":")[0]

    @property
    def name(self) -> str | None:
        """The name of the pipeline in the file, if one was given."""
        return self.entry.partition(":")[2] or None


def store_source(
    data: DataFolder, job: str, number: int, filename: str, content: bytes, entry: str | None
) -> StoredSource:
    """Store an uploaded source; raises BadEntry or BadArchive, and leaves nothing behind then."""
    data.check_space(len(content))
    folder = data.version(job, number).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
        files = _write(folder, filename, content)
        return StoredSource(folder, _entry(files, entry), hashlib.sha256(content).hexdigest())
    except BaseException as error:
        remove_version(data, job, number)
        full = disk_full(error, folder) if isinstance(error, OSError) else None
        if full is not None:
            raise full from error
        raise


def entry_text(data: DataFolder, job: str, number: int, entry: str) -> str:
    """Return the entry file of a version as text."""
    path = data.version(job, number) / entry.partition(":")[0]
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        message = f"the source of version {number} is not on this machine"
        raise UnknownJob(message, hint="ask the job manager that it was submitted to") from None


def _write(folder: Path, filename: str, content: bytes) -> list[str]:
    if content[:4] == b"PK\x03\x04" or filename.lower().endswith(".zip"):
        unpacked = unpack(content, folder)
        return sorted(str(path.relative_to(folder)) for path in unpacked if path.suffix in _ENTRIES)
    if not _FILE_NAME.fullmatch(filename):
        message = f"{filename!r} is not the name of a Python or SQL file"
        hint = "upload NAME.py, NAME.sql, or a zip of a folder; letters, digits, '_', '-' and '.'"
        raise BadEntry(message, hint=hint)
    (folder / filename).write_bytes(content)
    return [filename]


def _entry(files: list[str], entry: str | None) -> str:
    """Return the entry as `FILE.py[:name]` or `FILE.sql`.

    >>> _entry(["vwap.py"], "prices"), _entry(["a.py", "b.py"], "b.py"), _entry(["vwap.py"], None)
    ('vwap.py:prices', 'b.py', 'vwap.py')
    """
    file, _, name = (entry or "").partition(":")
    if file and not file.endswith(_ENTRIES):
        file, name = "", file if not name else f"{file}:{name}"
    if name and not _ENTRY_NAME.fullmatch(name):
        message = f"entry = {entry!r} does not name a pipeline"
        hint = "write NAME, FILE.py, FILE.py:NAME or FILE.sql, with a variable or function of the file"
        raise BadEntry(message, hint=hint)
    if file and file not in files:
        message = f"entry = {entry!r}: the source has no file {file!r}"
        raise BadEntry(message, hint=choices("files", files, file))
    chosen = file or _usual(files)
    return f"{chosen}:{name}" if name else chosen


def _usual(files: list[str]) -> str:
    top = [file for file in files if "/" not in file]
    python = [file for file in top if file.endswith(".py")]
    # SQL beside Python is what the Python reads.
    for names in (python, top):
        if len(names) == 1:
            return names[0]
    found = next((file for file in _USUAL if file in top), None)
    if found is None:
        message = "the source has several Python and SQL files" if files else "the source has no Python or SQL file"
        hint = f"name the one with the pipeline: entry=FILE.py; {choices('files', files)}"
        raise BadEntry(message, hint=hint)
    return found
