"""File names within the limits of the system: for names of nodes, which may be of any length, and for sockets."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

# Names stand next to an epoch's number, a task's and an ending; file systems allow 255 bytes in all.
_LONGEST = 120
_LONGEST_FOLDER = 255
_LONGEST_SOCKET = 100  # the system's limit is 104 to 108 bytes


def file_name(name: str, longest: int = _LONGEST) -> str:
    """Return a name as a part of a file's name, without "=" and "/"; one that is too long ends with a hash of it.

    >>> file_name("a=b/c"), len(file_name("ü" * 500))
    ('a%3Db%2Fc', 120)
    """
    text = quote(name, safe="")
    return text if len(text) <= longest else text[: longest - 17] + "-" + _hash(name)


def source_folder(name: str) -> str:
    """Return the folder of a source in a checkpoint: its name as it is, unless that cannot be a folder's.

    >>> source_folder("Größe"), source_folder("a/b"), source_folder("..")
    ('Größe', 'a%2Fb', '%2E%2E')
    """
    whole = not {"/", "\0"} & {*name} and len(name.encode()) <= _LONGEST_FOLDER
    if whole and name.strip("."):
        return name
    return file_name(name).replace(".", "%2E")


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a path of a socket within the system's limit: through the open folder if the path itself is too long."""
    if len(os.fsencode(path)) <= _LONGEST_SOCKET:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
