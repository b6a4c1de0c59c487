"""Stored results: what a non-deterministic function returned in an epoch, so that no replay calls it again.

Each task stores the answers of such a node in the checkpoint, row by row with a hash of the row, before the task ends.
A task that runs again uses them: a retry or a speculative copy in the same attempt of an epoch, and every task of a
replay, once an attempt was complete. So state, output, late and rejected rows of an epoch come from the same answers.

Files are `EPOCH/NODE=PARALLELISM=PARTITION=NUMBER.arrow`. Each is written once: of two attempts of a task that run at
the same time, the second to store fails, and its retry uses what the first stored. The answers of an epoch are deleted
when the next one starts: Spark's commit log and every sink have it then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import pyarrow as pa

from penstock.errors import CheckpointDamaged, RunError, SparkFailed
from penstock.storage.file_names import file_name
from penstock.storage.folders import Folder
from penstock.storage.journals import LOST
from penstock.values.arrow_stream import STREAM_END, from_stream, to_stream

# A task stores that many rows at a time, so that its memory stays bounded; most tasks have fewer.
CHUNK_ROWS = 65_536
_REPLAY = "replay"
_SUFFIX = ".arrow"
Key = tuple[int, int]


class StoredRejection(Exception):
    """The error of a row in an earlier attempt of the same epoch; its text is the whole reason."""


class StoredAnswer(NamedTuple):
    """The result of a row in an earlier attempt: what the function returned, or why the row was rejected."""

    made: Any
    refused: str | None


@dataclass(frozen=True)
class AnswerStore:
    """The stored answers of one query; small enough to travel to every task."""

    folder: Folder

    def begin(self, epoch: int, *, complete: bool) -> None:
        """Delete what is not needed any more, and let tasks use what a complete attempt of this epoch stored."""
        for name in self.folder.names():
            if name != str(epoch) or not complete:
                self.folder.remove(name)
        if complete and (self.folder / str(epoch)).names():
            self.folder.write(f"{epoch}/{_REPLAY}", b"", sync=False)

    def names(self, epoch: int) -> tuple[str, ...]:
        """Return the files with the answers of an epoch."""
        return tuple(name for name in (self.folder / str(epoch)).names() if name.endswith(_SUFFIX))

    def require(self, epoch: int, names: Iterable[str]) -> None:
        """Raise if a file is missing: the functions would be called again for rows that sinks may have."""
        if lost := sorted({*names} - {*self.names(epoch)}):
            raise _damaged(self.folder / str(epoch), lost[0], "is missing")

    def parallelism(self, epoch: int) -> int | None:
        """Return the parallelism of the attempt that stored answers of this epoch, if one did."""
        found = (_numbers(name)[0] for name in self.names(epoch))
        return next((number for number in found if number), None)


@dataclass(frozen=True)
class NodeAnswers:
    """The stored answers of one node; `parallelism` is what its source was cut for, or 0 if it does not matter.

    In a replay the source is cut for the same parallelism, so most often a task finds all its answers in the files of
    its own partition. Rows that are not there are looked up in those of others. That is right as long as a row has one
    answer there: if two tasks could take the same one, there would be more equal rows than in the first attempt.
    """

    store: AnswerStore
    node: str
    parallelism: int

    def task(self, epoch: int, partition: int) -> TaskAnswers:
        """Return what a task needs to use and to store answers."""
        return TaskAnswers(self, epoch, partition)

    def name(self, partition: int, number: int) -> str:
        """Return the name of a file."""
        return f"{self._prefix}{self.parallelism}={partition}={number}{_SUFFIX}"

    @property
    def _prefix(self) -> str:
        return f"{file_name(self.node)}="

    def mine(self, names: Iterable[str], partition: int) -> list[str]:
        """Return the files of one partition, in the order in which they were written."""
        return sorted((name for name in self.all(names) if _numbers(name)[1] == partition), key=_numbers)

    def all(self, names: Iterable[str]) -> list[str]:
        """Return the files of this node."""
        return [name for name in names if name.startswith(self._prefix)]


class TaskAnswers:
    """The answers of one task: those that are there already, and those that it stores."""

    def __init__(self, node: NodeAnswers, epoch: int, partition: int) -> None:
        self.node, self.folder, self.partition = node, node.store.folder / str(epoch), partition
        names = self.folder.names()
        self._mine = node.mine(names, partition)
        self._others = [name for name in node.all(names) if name not in self._mine] if _REPLAY in names else []
        self._next = len(self._mine)
        self._known: dict[Key, deque[StoredAnswer]] | None = None
        self._pool: dict[Key, deque[StoredAnswer]] | None = None
        self._waiting: list[pa.Table] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self._flush()

    @property
    def empty(self) -> bool:
        """Whether there are no answers, as in the first attempt."""
        return not (self._mine or self._others)

    def take(self, key: Key) -> StoredAnswer | None:
        """Return the answer to a row, each one once; equal rows have as many answers as there were."""
        if self._known is None:
            self._known = _by_key(map(self._read, self._mine))
        found = self._known.get(key)
        if found:
            return found.popleft()
        return self._from_others(key) if self._others else None

    def put(self, keys: Sequence[pa.Array], made: pa.Array, refused: list[str | None]) -> None:
        """Store answers, at the latest when the task ends."""
        if len(made):
            columns = [*keys, made, pa.array(refused, pa.string())]
            self._waiting.append(pa.table(columns, names=["first", "second", "made", "refused"]))
            if sum(table.num_rows for table in self._waiting) >= CHUNK_ROWS:
                self._flush()

    def tables(self) -> list[pa.Table]:
        """Return the files of this partition, then those of others if the epoch is replayed, each as a table."""
        return [self._read(name) for name in (*self._mine, *self._others)]

    def write(self, table: pa.Table) -> None:
        """Write a file durably, if no other attempt of this task has."""
        name = self.node.name(self.partition, self._next)
        try:
            self.folder.write(name, to_stream(table, "lz4"), once=True)
        except FileExistsError as error:
            message = f"another attempt of task {self.partition} stored its answers first"
            hint = "Spark runs the task again, with those answers"
            raise SparkFailed(message, node=self.node.node, hint=hint, transient=True) from error
        self._next += 1

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self.write(pa.concat_tables(waiting))

    def _read(self, name: str) -> pa.Table:
        data = self.folder.read(name)
        if data is None:
            raise _damaged(self.folder, name, "is missing", self.node.node)
        try:
            return parse_answers(data)
        except ValueError as error:
            raise _damaged(self.folder, name, "cannot be read", self.node.node) from error

    def _from_others(self, key: Key) -> StoredAnswer | None:
        """Return the answer that a task of another partition stored; equal rows of several could get the same one."""
        if self._pool is None:
            self._pool = _by_key(map(self._read, self._others))
        found = self._pool.get(key)
        if not found:
            return None
        if len(found) > 1:
            raise self._ambiguous()
        return found.popleft()

    def _ambiguous(self) -> RunError:
        before = _numbers(self._others[0])[0]
        message = "the epoch is replayed with its rows in other partitions, and equal rows had several answers"
        hint = f"run the job once with the parallelism that it had before: PENSTOCK_PARALLELISM={before}"
        return SparkFailed(message, node=self.node.node, hint=hint)


def parse_answers(data: bytes) -> pa.Table:
    """Return the answers in a file; ValueError if it is damaged."""
    if not data.endswith(STREAM_END):
        message = "the file is cut off"
        raise ValueError(message)
    try:
        return from_stream(data)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error)) from error


def _damaged(folder: Folder, name: str, what: str, node: str | None = None) -> CheckpointDamaged:
    message = f"{folder}/{name} {what}: it holds what a function returned in an epoch that sinks may have a part of"
    return CheckpointDamaged(message, node=node, hint=LOST)


def _by_key(tables: Iterable[pa.Table]) -> dict[Key, deque[StoredAnswer]]:
    known: dict[Key, deque[StoredAnswer]] = {}
    for table in tables:
        columns = (table.column(name).to_pylist() for name in ("first", "second", "made", "refused"))
        for first, second, made, refused in zip(*columns, strict=True):
            known.setdefault((first, second), deque()).append(StoredAnswer(made, refused))
    return known


def _numbers(name: str) -> list[int]:
    """Return what a file's name says: parallelism, partition, number."""
    return [int(number) for number in name.removesuffix(_SUFFIX).split("=")[1:]]
