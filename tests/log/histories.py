"""A judge of histories: what clients did and were told, held against what readers saw. Pure functions, no broker.

A record is named `producer/number`, numbers rising in the order of sending. What can be wrong:

    lost         acknowledged (in a transaction: and committed), and not there
    duplicated   at two offsets
    reordered    a producer's records on a partition in another order than sent
    misplaced    the acknowledged offset holds another record
    changed      two readings differ about one offset
    phantom      never sent, or not to that partition
    refused      there, though its producer was told that it is not
    aborted      of an aborted transaction, and seen by a reader of committed records
    partial      some records of a transaction and not the others, for a reader of committed records
    skipped      input behind which a consumer's offset was committed, without its output
    repeated     input that has more than one output
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Outcome = Literal["acknowledged", "refused", "unknown"]
Decision = Literal["committed", "aborted", "unknown"]
Place = tuple[str, int]


class Finding(NamedTuple):
    """Something that is wrong."""

    kind: str
    what: str


class Sent(NamedTuple):
    """One record that a producer sent, and what it was told; offset -1 if no offset was told."""

    producer: str
    number: int
    place: Place
    outcome: Outcome = "acknowledged"
    offset: int = -1
    transaction: str | None = None

    @property
    def record(self) -> str:
        """The record's name."""
        return f"{self.producer}/{self.number}"


class Seen(NamedTuple):
    """One record that a reader got."""

    place: Place
    offset: int
    record: str


@dataclass
class History:
    """Everything that happened; the last reading of each kind is of the whole log, after all clients were done."""

    sent: list[Sent] = field(default_factory=list)
    decisions: dict[str, Decision] = field(default_factory=dict)
    committed: list[Sequence[Seen]] = field(default_factory=list)
    uncommitted: list[Sequence[Seen]] = field(default_factory=list)


def judge(history: History) -> list[Finding]:
    """Return all that is wrong with a history; nothing, if the log kept its promises."""
    final = {"committed": history.committed[-1:], "uncommitted": history.uncommitted[-1:]}
    findings = list(_changed([*history.committed, *history.uncommitted]))
    for readings in final.values():
        for reading in readings:
            findings += [*_duplicated(reading), *_reordered(reading), *_phantom(history, reading)]
            findings += [*_misplaced(history, reading), *_refused(history, reading)]
    for reading in history.uncommitted[-1:]:
        findings += _lost(reading, [sent for sent in history.sent if sent.outcome == "acknowledged"])
    for reading in history.committed[-1:]:
        findings += _lost(reading, [sent for sent in history.sent if _is_promised(history, sent)])
        findings += _partial(history, reading)
    for reading in history.committed:
        findings += _aborted(history, reading)
    return findings


def judge_outputs(inputs: Iterable[Seen], outputs: Iterable[str], positions: Mapping[Place, int]) -> Iterator[Finding]:
    """Judge a consumer that writes one output per input and commits its position with it: each input once.

    `outputs` are the names of the inputs that outputs were made of, `positions` the committed offsets in the end.
    """
    made = Counter(outputs)
    inputs = list(inputs)
    for record in made.keys() - {seen.record for seen in inputs}:
        yield Finding("phantom", f"{record} has an output, and is not there itself")
    for seen in inputs:
        if made[seen.record] > 1:
            yield Finding("repeated", f"{_where(seen)} has {made[seen.record]} outputs")
        behind = seen.offset < positions.get(seen.place, 0)
        if behind and not made[seen.record]:
            yield Finding("skipped", f"{_where(seen)} has no output, and offset {positions[seen.place]} is committed")
        if made[seen.record] and not behind:
            yield Finding("partial", f"{_where(seen)} has an output, and its position is not committed")


def _is_promised(history: History, sent: Sent) -> bool:
    decided = sent.transaction is None or history.decisions.get(sent.transaction) == "committed"
    return sent.outcome == "acknowledged" and decided


def _lost(reading: Sequence[Seen], promised: Iterable[Sent]) -> Iterator[Finding]:
    there = {(seen.place, seen.record) for seen in reading}
    for sent in promised:
        if (sent.place, sent.record) not in there:
            yield Finding("lost", f"{sent.record}, acknowledged at {_at(sent.place, sent.offset)}")


def _duplicated(reading: Sequence[Seen]) -> Iterator[Finding]:
    offsets: dict[str, list[str]] = defaultdict(list)
    for seen in reading:
        offsets[seen.record].append(_at(seen.place, seen.offset))
    for record, places in offsets.items():
        if len(places) > 1:
            yield Finding("duplicated", f"{record} is at {', '.join(places)}")


def _reordered(reading: Sequence[Seen]) -> Iterator[Finding]:
    last: dict[tuple[str, Place], int] = {}
    for seen in sorted(reading, key=lambda one: (one.place, one.offset)):
        producer, _, number = seen.record.rpartition("/")
        before = last.get((producer, seen.place), -1)
        if int(number) < before:
            yield Finding("reordered", f"{_where(seen)} stands behind {producer}/{before}")
        last[producer, seen.place] = int(number)


def _phantom(history: History, reading: Sequence[Seen]) -> Iterator[Finding]:
    sent = {(one.place, one.record) for one in history.sent}
    for seen in reading:
        if (seen.place, seen.record) not in sent:
            yield Finding("phantom", f"{_where(seen)} was never sent there")


def _misplaced(history: History, reading: Sequence[Seen]) -> Iterator[Finding]:
    holds = {(seen.place, seen.offset): seen.record for seen in reading}
    for sent in history.sent:
        held = holds.get((sent.place, sent.offset), sent.record)
        if sent.outcome == "acknowledged" and held != sent.record:
            yield Finding("misplaced", f"{_at(sent.place, sent.offset)} was told to {sent.record} and holds {held}")


def _refused(history: History, reading: Sequence[Seen]) -> Iterator[Finding]:
    there = {seen.record: seen for seen in reading}
    for sent in history.sent:
        if sent.outcome == "refused" and sent.record in there:
            yield Finding("refused", f"{_where(there[sent.record])} was refused")


def _aborted(history: History, reading: Sequence[Seen]) -> Iterator[Finding]:
    transactions = {sent.record: sent.transaction for sent in history.sent if sent.transaction is not None}
    for seen in reading:
        transaction = transactions.get(seen.record)
        if transaction is not None and history.decisions.get(transaction) == "aborted":
            yield Finding("aborted", f"{_where(seen)} is of {transaction}, which was aborted")


def _partial(history: History, reading: Sequence[Seen]) -> Iterator[Finding]:
    there = {seen.record for seen in reading}
    members: dict[str, list[str]] = defaultdict(list)
    for sent in history.sent:
        if sent.transaction is not None and sent.outcome == "acknowledged":
            members[sent.transaction].append(sent.record)
    for transaction, records in members.items():
        missing = [record for record in records if record not in there]
        if missing and len(missing) < len(records):
            yield Finding("partial", f"{transaction}: {len(missing)} of {len(records)} are missing, {missing[0]} first")


def _changed(readings: Sequence[Sequence[Seen]]) -> Iterator[Finding]:
    known: dict[tuple[Place, int], str] = {}
    for reading in readings:
        for seen in reading:
            before = known.setdefault((seen.place, seen.offset), seen.record)
            if before != seen.record:
                yield Finding("changed", f"{_at(seen.place, seen.offset)} held {before}, then {seen.record}")


def _at(place: Place, offset: int) -> str:
    return f"{place[0]}-{place[1]}@{offset}"


def _where(seen: Seen) -> str:
    return f"{seen.record} at {_at(seen.place, seen.offset)}"
