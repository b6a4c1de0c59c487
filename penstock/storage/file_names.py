"""File names for names of nodes, which may contain any character and be longer than a file system allows."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

# Names stand next to an epoch's number, a task's and an ending; file systems allow 255 bytes in all.
_LONGEST = 120
_LONGEST_FOLDER = 255


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
