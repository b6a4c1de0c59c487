"""`penstock consume`: print the records of a topic."""

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

from penstock.cli.kafka_client.access import on_broker
from penstock.cli.kafka_client.positions import Position, parse_position, resolve_position
from penstock.cli.signals import stop_requested

if TYPE_CHECKING:
    from confluent_kafka import Message

    from penstock.cli.kafka_client.cluster import Cluster
    from penstock.cli.kafka_client.consumer import TopicReader

Format = Literal["json", "raw"]
_encode = json.JSONEncoder(ensure_ascii=False).encode


@on_broker
def consume(
    cluster: Cluster,
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    follow: Annotated[bool, typer.Option("--follow", help="Wait for new records, until Ctrl-C.")] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="beginning|end|TIME|OFFSET",
            help="Where to start; default: the committed offsets of the group, else the beginning.",
        ),
    ] = None,
    max: Annotated[int | None, typer.Option(min=1, help="Stop after this many records.")] = None,
    group: Annotated[str | None, typer.Option(help="Join this consumer group, and commit what is printed.")] = None,
    format: Annotated[
        Format, typer.Option(help="json: one object per record. raw: only the value, and a newline.")
    ] = "json",
    partition: Annotated[int | None, typer.Option(min=0, help="Read this partition only.")] = None,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Include records of open and aborted transactions.")
    ] = False,
) -> None:
    """Print the records of a topic, or follow it.

    Example: penstock consume orders --from 2026-01-01T10:00Z --max 10
    """
    from penstock.cli.kafka_client.consumer import TopicReader

    position = _start_position(start, group)
    partitions = cluster.partitions(topic, partition, make=True)
    find = partial(resolve_position, cluster, topic, partitions, uncommitted=uncommitted)
    starts, ends = find(position) if position else {}, None if follow else find(Position("end"))
    reading = TopicReader(cluster, topic, starts, ends, group=group, uncommitted=uncommitted, say=_say)
    with reading, stop_requested(Console(stderr=True)) as asked, _ignoring_closed_pipe():
        if group and partition is None:
            reading.share()
        else:
            reading.own(partitions, growing=follow and partition is None)
        _print(reading, asked, max or sys.maxsize, _WRITERS[format])


def _start_position(text: str | None, group: str | None) -> Position | None:
    if text is None:
        return None if group else Position("beginning")
    return parse_position(text, "--from")


def _print(reading: TopicReader, asked: threading.Event, left: int, write: Callable[[Message], bytes]) -> None:
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
    """Return bytes as text if they are UTF-8, else in base64 under another name."""
    if not isinstance(data, bytes):
        return {name: data}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


@contextmanager
def _ignoring_closed_pipe() -> Iterator[None]:
    """Exit cleanly when the pipe is closed, as by `head`."""
    try:
        yield
    except BrokenPipeError:
        # Python flushes standard output at exit, which would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str) -> None:
    typer.echo(text, err=True)
