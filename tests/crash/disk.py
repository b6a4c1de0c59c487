"""A small disk of a run's own, that can be full: a tmpfs, which only root may mount."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Self

PIECES = (1 << 16, 1 << 12, 1)


class SmallDisk:
    """A mount at a folder; `fill` takes what room is left, `free` gives it back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def mounted(cls, folder: Path, megabytes: int) -> Self:
        """Mount a new one."""
        folder.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
        subprocess.run(mount, check=True, capture_output=True)
        return cls(folder)

    @staticmethod
    def can_be_had() -> bool:
        """Whether this user may mount one."""
        return os.geteuid() == 0 and subprocess.run(["mount", "--version"], capture_output=True).returncode == 0

    def fill(self, leave_bytes: int = 0) -> None:
        """Write until nothing more fits; then give so much room back."""
        with (self.folder / "ballast").open("wb", buffering=0) as file:
            for size in PIECES:
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue
            file.truncate(file.tell() - leave_bytes)

    def free(self) -> None:
        """Give the room back."""
        (self.folder / "ballast").unlink()

    def end(self) -> None:
        """Unmount it, whoever still has a file open there."""
        subprocess.run(["umount", "-l", str(self.folder)], check=True)
