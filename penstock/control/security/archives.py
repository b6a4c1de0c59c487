"""Zip files from outside: unpacked within limits, and never outside of their folder."""

from __future__ import annotations

import io
import os
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath

from penstock.errors import BadArchive

_CHUNK = 64 * 1024
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENTRY_SIGNATURE = b"PK\x01\x02"
_RESERVED = frozenset('<>:"|?*') | {chr(code) for code in range(32)} | {"\x7f"}
_LONGEST_PART = 255
# Below this size a high ratio is that of a file of blanks, and harms nobody.
_SMALL = 1024 * 1024
_DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError, OverflowError)


@dataclass(frozen=True)
class Limits:
    """The most that a zip file may have. `ratio`: unpacked size to packed size."""

    packed_bytes: int = 50 * 1024**2
    unpacked_bytes: int = 200 * 1024**2
    files: int = 10_000
    ratio: int = 200
    depth: int = 32
    path_bytes: int = 1_000


def unpack(data: bytes, folder: Path, limits: Limits | None = None) -> list[Path]:
    """Unpack a zip file into an empty folder; return its files. Raises BadArchive before anything unsafe is written.

    Files get the mode 600, whatever the archive says. After an error the folder may have some of the files: delete it.
    """
    limits = limits or Limits()
    _refuse(_size_problems(data, limits))
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            _refuse(problems(infos, limits))
            return list(_written(archive, infos, folder, limits, len(data)))
    except _DAMAGED as error:
        message = f"the zip file is damaged, or is none: {error}"
        raise BadArchive(message, node="source", hint="zip the folder of the pipeline again") from error


def problems(infos: Sequence[zipfile.ZipInfo], limits: Limits) -> Iterator[str]:
    """Yield what is wrong with the entries of an archive, as far as they say it themselves."""
    if len(infos) > limits.files:
        yield f"it has {len(infos)} entries, and {limits.files} are allowed"
    for info in infos:
        yield from _kind_problems(info)
        yield from _name_problems(info, limits)
    yield from _unpacked_problems(sum(info.file_size for info in infos), sum(i.compress_size for i in infos), limits)
    files = [PurePosixPath(info.filename) for info in infos if not info.is_dir()]
    yield from _clashes(files, [PurePosixPath(info.filename) for info in infos if info.is_dir()])
    if not files:
        yield "it has no files"


def _refuse(found: Iterator[str]) -> None:
    problem = next(found, None)
    if problem is not None:
        message = f"the zip file is refused: {problem}"
        raise BadArchive(message, node="source", hint="zip only the source files of the pipeline, by relative paths")


def _size_problems(data: bytes, limits: Limits) -> Iterator[str]:
    if len(data) > limits.packed_bytes:
        yield f"it has {len(data)} bytes, and {limits.packed_bytes} are allowed"
    # Counted before it is read: a directory of millions of entries takes long to read.
    if data.count(_ENTRY_SIGNATURE) > limits.files:
        yield f"it has more than {limits.files} entries"


def _kind_problems(info: zipfile.ZipInfo) -> Iterator[str]:
    name, kind = info.filename, stat.S_IFMT(info.external_attr >> 16)
    if kind == stat.S_IFLNK:
        yield f"{name!r} is a link"
    elif kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        yield f"{name!r} is neither a file nor a folder"
    if info.flag_bits & 0x1:
        yield f"{name!r} is encrypted"
    if info.compress_type not in _METHODS:
        yield f"{name!r} is compressed by another method than deflate"


def _name_problems(info: zipfile.ZipInfo, limits: Limits) -> Iterator[str]:
    name, shown = info.filename, repr(info.filename[:100])
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or "\\" in name or name[1:2] == ":":
        yield f"{shown} is an absolute path, or one of Windows"
    if ".." in parts:
        yield f"{shown} leads out of the folder"
    if "" in parts or "." in parts:
        yield f"{shown} has an empty part, or '.'"
    if "\0" in info.orig_filename or not _RESERVED.isdisjoint(name):
        yield f"{shown} has characters that not every file system allows"
    if any(part != part.strip() or part.endswith(".") for part in parts):
        yield f"{shown} has a part with blanks around it, or a '.' at its end"
    sizes = [len(part.encode("utf-8", "surrogatepass")) for part in parts]
    if len(parts) > limits.depth or sum(sizes) + len(parts) > limits.path_bytes or max(sizes) > _LONGEST_PART:
        yield f"{shown} is too deep or too long"
    if name.encode("utf-8", "replace").decode() != name:
        yield f"{shown} is not Unicode"


def _unpacked_problems(unpacked: int, packed: int, limits: Limits) -> Iterator[str]:
    if unpacked > limits.unpacked_bytes:
        yield f"it unpacks to more than {limits.unpacked_bytes} bytes"
    if unpacked > _SMALL and unpacked > limits.ratio * max(packed, 1):
        yield f"it unpacks to more than {limits.ratio} times its size"


def _clashes(files: Sequence[PurePosixPath], named: Sequence[PurePosixPath]) -> Iterator[str]:
    """Yield names that are the same on a file system that ignores case or the form of accents.

    Folders are those that are entries of their own, `named`, and those that other entries are in.
    """
    around = chain.from_iterable(list(path.parents)[:-1] for path in chain(files, named))
    folders = dict.fromkeys(chain(named, around))
    seen: dict[str, PurePosixPath] = {}
    for path in chain(folders, files):
        other = seen.setdefault(_folded(path), path)
        # Two files with one name are one path, but two items.
        if other is not path:
            yield f"{str(path)!r} and {str(other)!r} have the same name where case does not count"


def _folded(path: PurePosixPath) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", str(path)).casefold())


def _written(
    archive: zipfile.ZipFile, infos: Sequence[zipfile.ZipInfo], folder: Path, limits: Limits, packed: int
) -> Iterator[Path]:
    # Sizes are counted again: what an archive says of itself may be wrong, and its entries may share their bytes.
    unpacked = 0
    for info in infos:
        path = folder.joinpath(*PurePosixPath(info.filename).parts)
        if info.is_dir():
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            continue
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _created(path) as file, archive.open(info) as source:
            while chunk := source.read(_CHUNK):
                unpacked += len(chunk)
                _refuse(_unpacked_problems(unpacked, packed, limits))
                file.write(chunk)
        yield path


def _created(path: Path) -> io.BufferedWriter:
    # Never through a link, and never over a file that was there before.
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")
