"""Folders in Hadoop file systems such as HDFS, through pyarrow; needs libhdfs and Hadoop's classes."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock.errors import SettingsError
from penstock.masking import masked

if TYPE_CHECKING:
    from penstock.storage.folders import Folder


@dataclass(frozen=True)
class HadoopFolder:
    """A folder of a file system whose `move` fails if the target exists, as in HDFS."""

    url: str = field(repr=False)
    local: None = None

    @property
    def hadoop(self) -> str:
        """Its URL."""
        return self.url

    def __str__(self) -> str:
        return masked(self.url)

    def __truediv__(self, name: str) -> HadoopFolder:
        return HadoopFolder(f"{self.url}/{name}") if name else self

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if it does not exist; one that is being replaced has its new content."""
        for path in (self._path(name), self._path(name) + _NEW):
            with contextlib.suppress(FileNotFoundError), self._system.open_input_stream(path) as file:
                return bytes(file.read())
        return None

    def write(self, name: str, data: bytes, *, once: bool = False, sync: bool = True) -> None:
        """Write a scratch file, then rename it. HDFS cannot replace a file atomically, so `read` knows both names."""
        path = self._path(name)
        scratch = f"{path}.{uuid.uuid4().hex}.tmp" if once else path + _NEW
        self._system.create_dir(path.rpartition("/")[0], recursive=True)
        with self._system.open_output_stream(scratch) as file:
            file.write(data)
        if once and self._is_there(path):
            self._system.delete_file(scratch)
            raise FileExistsError(path)
        if not once and self._is_there(path):
            self._system.delete_file(path)
        self._system.move(scratch, path)

    def names(self) -> list[str]:
        """Return the names right in it, sorted."""
        return sorted({info.base_name.removesuffix(_NEW) for info in self._listed(recursive=False)})

    def files(self) -> dict[str, int]:
        """Return all files below it with their sizes."""
        base = self._path("")
        return {info.path.removeprefix(base): info.size for info in self._listed(recursive=True) if info.is_file}

    def remove(self, name: str) -> None:
        """Remove a file or a whole folder, if it exists."""
        for path in (self._path(name), self._path(name) + _NEW):
            [info] = self._system.get_file_info([path])
            with contextlib.suppress(FileNotFoundError):
                self._system.delete_file(path) if info.is_file else self._system.delete_dir(path)

    def copy(self, names: Iterable[str], to: Folder) -> None:
        """Copy files through this machine."""
        for name in names:
            to.write(name, self.read(name) or b"")

    @property
    def _system(self) -> Any:
        parts = urlsplit(self.url)
        return _system(f"{parts.scheme}://{parts.netloc}")

    def _path(self, name: str) -> str:
        return f"{urlsplit(self.url).path}/{name}"

    def _is_there(self, path: str) -> bool:
        [info] = self._system.get_file_info([path])
        return bool(info.is_file)

    def _listed(self, *, recursive: bool) -> list[Any]:
        from pyarrow.fs import FileSelector

        selector = FileSelector(self._path("").rstrip("/"), allow_not_found=True, recursive=recursive)
        return list(self._system.get_file_info(selector))


_NEW = ".new"


@cache
def _system(base: str) -> Any:
    from pyarrow.fs import FileSystem

    try:
        return FileSystem.from_uri(f"{base}/")[0]
    except (OSError, ValueError, NotImplementedError) as error:
        message = f"{base} cannot be reached: {str(error).splitlines()[0]}"
        hint = "paths, s3://, gs:// and az:// work as they are; hdfs:// needs libhdfs, JAVA_HOME and Hadoop's CLASSPATH"
        raise SettingsError(message, hint=hint) from error
