"""The contract test of sinks, Penstock's own and those of users."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.contracts import Epoch, Sink, answers_committed
from penstock.schema import Schema

Row = dict[str, Any]
SCHEMA = "id bigint, word string"
_LINEAGE = "suite"
_BOUNDS, _OTHER = "0" * 32, "1" * 32


class _Torn(Exception):
    """Raised by the rows of a task that is lost."""


def check_sink(make: Callable[[], Sink], read_back: Callable[[], Iterable[Row]]) -> None:
    """Check a sink against its `guarantee`: each epoch's rows are written, and as often as promised.

    `make` returns the sink as a restarted job would create it, for the same target each time; that is empty at first.
    `read_back` returns the rows that a reader finds in the target, with the columns of "id bigint, word string".
    """
    sink = make()
    suite = _Suite(make, read_back, sink.name)
    steps = [suite.writes_an_epoch, suite.accepts_gaps, suite.raises_what_rows_raise]
    if sink.guarantee != "at_most_once":
        steps += [suite.takes_a_replay, suite.takes_a_second_try_of_a_task, suite.goes_on_after_a_crash]
        steps += [suite.aborts, suite.commits_twice, suite.keeps_sinks_apart, suite.starts_a_new_lineage]
        steps += [suite.skips_no_other_input]
    for step in steps:
        step()


class _Suite:
    """The steps, each with epochs and rows of its own; `expected` has the rows that must have been written so far."""

    def __init__(self, make: Callable[[], Sink], read_back: Callable[[], Iterable[Row]], name: str) -> None:
        self.make, self.read_back, self.name = make, read_back, name
        self.expected: list[Row] = []
        self._ids, self._epochs = itertools.count(1), itertools.count()
        sink = self._opened()
        self._by_input = sink.newest_epochs(_LINEAGE, name) is None and not answers_committed(sink)

    def writes_an_epoch(self) -> None:
        """Rows of an epoch can be read after its commit."""
        self._write(self._opened(), self._epoch(), self._rows(4))
        self._check("an epoch was written")

    def accepts_gaps(self) -> None:
        """Epoch numbers may be left out."""
        for _ in range(3):
            next(self._epochs)
        self._write(self._opened(), self._epoch(), self._rows(2))
        self._check("epoch numbers were left out")

    def takes_a_replay(self) -> None:
        """A restarted job writes its last epoch again."""
        epoch, rows = self._epoch(), self._rows(3)
        self._write(self._opened(), epoch, rows)
        self._write(self._opened(), epoch, rows)
        self._check("an epoch was replayed")

    def takes_a_second_try_of_a_task(self) -> None:
        """A task ran twice, and only the second token is committed."""
        sink, epoch, (one, two) = self._opened(), self._epoch(), self._split(self._rows(4))
        _in_task(sink).prepare(epoch, 0, _batches(one))
        self._commit(
            sink, epoch, [_in_task(sink).prepare(epoch, n, _batches(part)) for n, part in enumerate((one, two))]
        )
        self._check("a task ran twice")

    def goes_on_after_a_crash(self) -> None:
        """A job crashed between prepare and commit."""
        epoch, rows = self._epoch(), self._rows(3)
        self._prepare(self._opened(), epoch, rows)
        self._write(self._opened(), epoch, rows)
        self._check("a job died before the commit")

    def aborts(self) -> None:
        """Aborted rows cannot be read; a sink that writes in `prepare` has nothing to abort."""
        sink = self._opened()
        if sink.partitions is None:
            epoch, rows = self._epoch(), self._rows(2)
            self.expected = self.expected[:-2]
            sink.abort(epoch, self._prepare(sink, epoch, rows))
            self._write(sink, self._epoch(), self._rows(1))
            self._check("an epoch was aborted and the next one written")

    def commits_twice(self) -> None:
        """The driver does not know whether its commit succeeded."""
        sink, epoch = self._opened(), self._epoch()
        tokens = self._prepare(sink, epoch, self._rows(2))
        sink.commit(epoch, tokens)
        sink.commit(epoch, tokens)
        self._check("an epoch was committed twice")

    def keeps_sinks_apart(self) -> None:
        """Two sinks of one pipeline have the same epoch numbers."""
        number = next(self._epochs)
        for name in (self.name, f"{self.name}-late"):
            self._write(self._opened(name), self._named(_LINEAGE, name, number), self._rows(1))
        self._check("two sinks wrote the same epoch")

    def starts_a_new_lineage(self) -> None:
        """A fork counts its epochs from the start."""
        sink = self._opened(lineage="fork")
        self._write(sink, self._named("fork", self.name, 0), self._rows(2))
        self._check("a new lineage began")

    def skips_no_other_input(self) -> None:
        """With an older checkpoint other rows come under a number that was used: the job must see it, or write them."""
        epoch = self._epoch()
        self._write(self._opened(), epoch, self._rows(2))
        other, sink = replace(epoch, bounds=_OTHER), self._opened()
        newest = sink.newest_epochs(epoch.lineage, epoch.sink)
        if newest is not None and sink.guarantee == "exactly_once":
            assert newest.get(epoch.number) == epoch.bounds, (
                f"{self.name}: newest_epochs() returned {dict(newest)} after epoch {epoch.number} with bounds "
                f"{epoch.bounds!r} was written"
            )
        elif not sink.committed(other):
            self._write(sink, other, self._rows(2))
            self._check("an epoch's number was used for other input")

    def raises_what_rows_raise(self) -> None:
        """An error of the rows stops the task; a sink that is exactly once shows none of them."""
        sink, epoch, rows = self._opened(), self._epoch(), self._rows(2)
        self.expected = self.expected[:-2]
        try:
            _in_task(sink).prepare(epoch, 0, _torn(rows))
        except Exception as error:  # a sink may wrap the error in one of its own, of any type
            if not _caused_by(error, _Torn):
                raise
        else:
            message = f"{self.name}: prepare() swallowed the error that its rows raised"
            raise AssertionError(message)
        if sink.guarantee == "exactly_once":
            self._check("a task died among its rows")
            self.expected += rows
            self._write(self._opened(), epoch, rows)
            self._check("a task died among its rows and ran again")

    def _opened(self, name: str | None = None, lineage: str = _LINEAGE) -> Sink:
        sink = self.make()
        sink.check()
        sink.open(Schema(SCHEMA), ())
        sink.bind_lineage(lineage, name or self.name)
        return sink

    def _epoch(self) -> Epoch:
        return self._named(_LINEAGE, self.name, next(self._epochs))

    def _named(self, lineage: str, name: str, number: int) -> Epoch:
        """Name an epoch as the epoch writer does."""
        return Epoch(lineage, name, number, _BOUNDS, self._by_input)

    def _rows(self, count: int) -> list[Row]:
        rows = [{"id": (number := next(self._ids)), "word": f"word {number}"} for _ in range(count)]
        self.expected += rows
        return rows

    def _split(self, rows: Sequence[Row]) -> tuple[Sequence[Row], Sequence[Row]]:
        return rows[: len(rows) // 2], rows[len(rows) // 2 :]

    def _prepare(self, sink: Sink, epoch: Epoch, rows: Sequence[Row]) -> list[Any]:
        parts = [rows] if sink.partitions == 1 else self._split(rows)
        tasks = [(number, part) for number, part in enumerate(parts) if part]
        return [_in_task(sink).prepare(epoch, number, _batches(part)) for number, part in tasks]

    def _commit(self, sink: Sink, epoch: Epoch, tokens: list[Any]) -> None:
        if sink.committed(epoch):
            sink.abort(epoch, tokens)
        else:
            sink.commit(epoch, tokens)

    def _write(self, sink: Sink, epoch: Epoch, rows: Sequence[Row]) -> None:
        """Write an epoch as the epoch writer does."""
        self._commit(sink, epoch, self._prepare(sink, epoch, rows))

    def _check(self, after: str) -> None:
        found = Counter((row["id"], row["word"]) for row in self.read_back())
        wanted = Counter((row["id"], row["word"]) for row in self.expected)
        lost, extra = wanted - found, found - wanted
        often = self.make().guarantee == "at_least_once"
        assert not lost, f"{self.name}: after {after} rows are missing: {sorted(lost)}"
        assert often or not extra, f"{self.name}: after {after} rows are duplicated: {sorted(extra)}"


def _in_task(sink: Sink) -> Sink:
    """Return the sink as a task gets it: pickled on its way there."""
    from penstock.spark.session.code_shipping import sent

    return sent(sink)


def _batches(rows: Sequence[Row]) -> Iterator[pa.RecordBatch]:
    for row in rows:
        yield pa.RecordBatch.from_pylist([row], schema=Schema(SCHEMA).arrow)


def _torn(rows: Sequence[Row]) -> Iterator[pa.RecordBatch]:
    yield from _batches(rows)
    raise _Torn


def _caused_by(error: BaseException | None, kind: type[Exception]) -> bool:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error is not None
