"""The versions of a table that a stream is joined with: which one each epoch sees, stored until no replay needs it.

Spark reads the table before the epoch's other tasks run, in one task. That task decides: it reads the table again if it
is time to, and writes durably, once, which version the epoch sees. So an epoch that is computed again after a crash
sees the same rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.tables.source import TableSource
from penstock.durations import span_text
from penstock.errors import CheckpointDamaged, PenstockError, SourceFailed
from penstock.spark.tasks.internal_columns import PREFIX
from penstock.storage.folders import Folder
from penstock.storage.journals import LOST

UNTIL = PREFIX + "until"
NEWEST = "newest.json"
EPOCHS = "epochs"
VERSION = re.compile(r"[0-9a-f]{16}\.arrow")
# In NEWEST: the newest epoch with a version, and from which epoch on each version was seen.
_EPOCH, _SEEN = "epoch", "seen"
# A table that could not be read is tried again after this time, or after `refresh` if that is shorter.
RETRY_S = 10.0
LONGER = 'read_table(..., max_staleness="1h") waits longer'


@dataclass(frozen=True)
class Versions:
    """One table in one query, and the folder of its versions; it travels to the task that reads it."""

    folder: Folder
    source: TableSource
    key: tuple[str, ...]
    valid_from: str | None
    refresh_s: float
    kept_epochs: int
    label: str
    max_staleness_s: float = 600

    def seen_by(self, epoch: int) -> pa.Table:
        """Return the table as an epoch sees it; outside of any epoch, as it was read last."""
        return self._rows(self._decided(epoch) if epoch >= 0 else self._newest())

    def _decided(self, epoch: int) -> str:
        decided = self.folder / EPOCHS
        if (before := decided.read(str(epoch))) is not None:
            return before.decode(errors="replace")
        version = self._seen_before(epoch) or self._newest()
        # Another task of the same epoch may be reading the table for another branch.
        with contextlib.suppress(FileExistsError):
            decided.write(str(epoch), version.encode(), once=True)
        version = (decided.read(str(epoch)) or b"").decode()
        self._remember(epoch, version)
        self._expire(epoch - self.kept_epochs)
        return version

    def _known(self) -> dict[str, Any]:
        known: dict[str, Any] = json.loads(self.folder.read(NEWEST) or "{}")
        return known

    def _seen_before(self, epoch: int) -> str | None:
        """Return the version that an epoch has seen before, if the file that says so is lost."""
        known = self._known()
        if epoch > known.get(_EPOCH, -1):
            return None
        versions = [version for first, version in known[_SEEN] if first <= epoch]
        if not versions:
            message = f"{self.folder}/{EPOCHS}/{epoch}, the version of the table that the epoch saw, is missing"
            raise CheckpointDamaged(message, node=self.label, hint=LOST)
        return str(versions[-1])

    def _remember(self, epoch: int, version: str) -> None:
        """Store the version of an epoch a second time: a replay must not take another because one file is lost."""
        known = self._known()
        if epoch <= known.get(_EPOCH, -1):
            return
        seen = known.get(_SEEN, [])
        old = [one for one in seen if one[0] <= epoch - 2 * self.kept_epochs]
        seen = seen[max(len(old) - 1, 0) :]
        if not seen or seen[-1][1] != version:
            seen.append([epoch, version])
        self.folder.write(NEWEST, json.dumps(known | {_EPOCH: epoch, _SEEN: seen}).encode())

    def _newest(self) -> str:
        """Return the newest version, read again if it is time to."""
        known = self._known()
        pause = self.refresh_s if "away" not in known else min(self.refresh_s, RETRY_S)
        if known and 0 <= time.time() - known["at"] < pause:
            return str(known["version"])
        try:
            stamp = repr(self.source.stamp())
            if known and "away" not in known and stamp == known["stamp"] != repr(None):
                return str(known["version"])
            now = {"at": time.time(), "version": self._write(self._whole()), "stamp": stamp}
            now |= {name: known[name] for name in (_EPOCH, _SEEN) if name in known}
        except PenstockError as error:
            error.node = error.node or self.label
            if not known or not error.transient:
                raise
            now = self._unreadable(known, error)
        self.folder.write(NEWEST, json.dumps(now).encode())
        return str(now["version"])

    def _unreadable(self, known: dict[str, Any], error: PenstockError) -> dict[str, Any]:
        """Stay with the last version, and record since when, which the driver reports; up to `max_staleness`."""
        now = time.time()
        away = known.get("away") or {"since": now, "read": known["at"], "why": error.message, "hint": error.hint}
        if now - away["since"] > self.max_staleness_s:
            message = f"it could not be read for {span_text(round(now - away['since']) * 1_000_000)}: {error.message}"
            hint = f"run the job again when it can: it resumes from its checkpoint; {LONGER}"
            raise SourceFailed(message, node=self.label, hint=hint, transient=True)
        return known | {"at": now, "away": away}

    def _whole(self) -> pa.Table:
        """Return the rows in the order of their keys, so that equal tables are equal files."""
        order = [*self.key, *([self.valid_from] if self.valid_from else [])]
        rows = self.source.rows()
        known = rows.filter(_all_known(rows, order)).sort_by([(name, "ascending") for name in order]).combine_chunks()
        same = _same_as_next(known, order)
        if self.source.unique and pc.any(same).as_py():
            found = known.select(order).slice(pc.index(same, True).as_py(), 1).to_pylist()[0]
            message = f"table {self.source.name} has two rows for {found}"
            hint = "make the key unique, or name all its columns: key=[...]"
            history = '; for versions of a row, say since when each applies: valid_from="column"'
            raise SourceFailed(message, node=self.label, hint=hint if self.valid_from else hint + history)
        return known if self.valid_from is None else _with_until(known, list(self.key), self.valid_from)

    def _write(self, rows: pa.Table) -> str:
        data = _file(rows)
        version = f"{hashlib.sha256(data).hexdigest()[:16]}.arrow"
        if version not in self.folder.names():
            self.folder.write(version, data)
        return version

    def _rows(self, version: str) -> pa.Table:
        """Return a version, from this machine's disk without a copy."""
        try:
            if self.folder.local is not None:
                return pa.ipc.open_file(pa.memory_map(str(self.folder.local / version))).read_all()
            return pa.ipc.open_file(self.folder.read(version)).read_all()
        except (FileNotFoundError, TypeError, ValueError) as error:
            message = f"{self.folder}/{version}, the table as an epoch saw it, is damaged or missing: {error}"
            raise CheckpointDamaged(message, node=self.label, hint=LOST) from error

    def _expire(self, before: int) -> None:
        """Delete what no epoch from this one on needs."""
        decided = self.folder / EPOCHS
        old = [name for name in decided.names() if name.isdigit() and int(name) < before]
        if len(old) < self.kept_epochs:
            return
        for name in old:
            decided.remove(name)
        seen = {(decided.read(name) or b"").decode() for name in decided.names()}
        seen |= {str(self._known().get("version"))}
        for name in self.folder.names():
            if name.endswith(".arrow") and name not in seen:
                self.folder.remove(name)


def _all_known(rows: pa.Table, names: list[str]) -> pa.Array:
    """Say of each row whether no key is null: one with a null never matches."""
    known = pa.array([True] * rows.num_rows, pa.bool_())
    for name in names:
        known = pc.and_(known, pc.is_valid(rows.column(name)))
    return known


def _same_as_next(rows: pa.Table, names: list[str]) -> pa.Array:
    """Say of each row but the last whether the next one agrees in these columns."""
    same = pa.array([True] * max(rows.num_rows - 1, 0), pa.bool_())
    for name in names:
        values = rows.column(name)
        same = pc.and_(same, pc.equal(values.slice(0, len(same)), values.slice(1)))
    return same


def _with_until(rows: pa.Table, key: list[str], valid_from: str) -> pa.Table:
    """Say of each version until when it applies: since when the next of the same key does."""
    kind = pa.timestamp("us", "UTC")
    if not rows.num_rows:
        return rows.append_column(UNTIL, pa.array([], kind))
    same, since = _same_as_next(rows, key), rows.column(valid_from).cast(kind)
    following = pc.if_else(same, since.slice(1), pa.scalar(None, kind))
    return rows.append_column(UNTIL, pa.chunked_array([*_chunks(following), pa.nulls(1, kind)]))


def _chunks(values: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]


def _file(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data
