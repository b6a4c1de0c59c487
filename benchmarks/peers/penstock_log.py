"""Penstock's own log, as `penstock log serve` runs it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Literal

from benchmarks.peers.broker import Broker

Sync = Literal["always", "interval", "none"]
_LISTENING = re.compile(r"^listening on (\S+:\d+)$", re.MULTILINE)


class PenstockServer(Broker):
    """Penstock's log on this machine, with a sync policy."""

    def __init__(self, sync: Sync = "none", parent: Path | None = None) -> None:
        super().__init__(parent)
        self._sync = sync

    def _prepare(self, folder: Path) -> list[str]:
        serve = [sys.executable, "-m", "penstock.cli", "log", "serve", "--group-initial-rebalance-delay", "100ms"]
        return [*serve, "--data", str(folder / "data"), "--listen", "127.0.0.1:0", "--sync", self._sync]

    def _address(self, log: Path) -> str | None:
        found = _LISTENING.search(log.read_text(errors="replace"))
        return found[1] if found else None
