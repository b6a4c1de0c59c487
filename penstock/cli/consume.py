"""`penstock consume`: records of a topic, printed."""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from penstock.cli.access import on_broker
from penstock.cli.places import Place, locate, read_place
from penstock.cli.signals import asked_to_stop

if TYPE_CHECKING:
    from confluent_kafka import Message

    from penstock.cli.brokers import Cluster
    from penstock.cli.reading import Reading

Format = Literal["json", "raw"]
_encode = json.JSONEncoder(ensure_ascii=False).encode


@on_broker
def consume(
    cluster: Cluster,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more, until Ctrl-C.")] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="beginning|end|TIME|OFFSET",
            help="Where to begin; default: what the group has committed, else the beginning.",
        ),
    ] = None,
    max: Annotated[int | None, typer.Option(min=1, help="Stop after that many records.")] = None,
    group: Annotated[str | None, typer.Option(help="Share the topic with this group; commits what is printed.")] = None,
    format: Annotated[
        Format, typer.Option(help="json: one object per record. raw: the value as it is, and a newline.")
    ] = "json",
    partition: Annotated[int | None, typer.Option(min=0, help="Read this partition only.")] = None,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Show records of open and aborted transactions too.")
    ] = False,
) -> None:
    """Print the records that a topic holds now, or follow it."""
    from penstock.cli.reading import Reading

    place = _place(start, group)
    partitions = cluster.partitions(topic, partition, make=True)
    find = partial(locate, cluster, topic, partitions, uncommitted=uncommitted)
    starts, ends = find(place) if place else {}, None if follow else find(Place("end"))
    reading = Reading(cluster, topic, starts, ends, group=group, uncommitted=uncommitted, say=_say)
    with reading, asked_to_stop(Console(stderr=True)) as asked, _quiet_when_nobody_reads():
        if group and partition is None:
            reading.share()
        else:
            reading.own(partitions, growing=follow and partition is None)
        _print(reading, asked, max or sys.maxsize, _WRITERS[format])


def _place(text: str | None, group: str | None) -> Place | None:
    if text is None:
        return None if group else Place("beginning")
    return read_place(text, "--from")


def _print(reading: Reading, asked: threading.Event, left: int, write: Callable[[Message], bytes]) -> None:
    out = sys.stdout.buffer
    while left and not reading.done and not asked.is_set():
        records = reading.read(left)
        out.writelines(map(write, records))
        out.flush()
        reading.printed()
        left -= len(records)


def _raw(record: Message) -> bytes:
    return (record.value() or b"") + b"\n"


def _json(record: Message) -> bytes:
    headers: list[tuple[str, Any]] = list(record.headers() or [])  # type: ignore[arg-type]
    value = {
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
        "timestamp": _time(record),
        **_text("key", record.key()),
        **_text("value", record.value()),
        "headers": [{"key": key, **_text("value", value)} for key, value in headers],
    }
    return _encode(value).encode() + b"\n"


_WRITERS: dict[Format, Callable[[Message], bytes]] = {"json": _json, "raw": _raw}


def _time(record: Message) -> str | None:
    kind, ms = record.timestamp()
    if not kind:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _text(name: str, data: Any) -> dict[str, str | None]:
    """Return bytes as text if they are, else in base 64 under another name."""
    if not isinstance(data, bytes):
        return {name: data}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


@contextmanager
def _quiet_when_nobody_reads() -> Iterator[None]:
    """End well when the reader of a pipe has had enough, as `head` does."""
    try:
        yield
    except BrokenPipeError:
        # Python flushes standard output once more when it exits, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str) -> None:
    typer.echo(text, err=True)
