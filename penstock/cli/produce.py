"""`penstock produce`: lines into a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import typer

from penstock.cli.access import on_broker
from penstock.cli.tables import counted
from penstock.cli.topic import pairs
from penstock.errors import RowRejected, SinkFailed, UnknownSetting

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from penstock.cli.brokers import Cluster

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Record = tuple[bytes | None, bytes]


@on_broker
def produce(
    cluster: Cluster,
    topic: Annotated[str, typer.Argument(help="The topic, which must be there.")],
    key_sep: Annotated[
        str | None, typer.Option(metavar="SEP", help=r"Each line is a key, this, and the value; '\t' is a tab.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Read this file instead of standard input.")
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Send all to this partition.")] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A header of every record.")] = None,
    compression: Annotated[Compression, typer.Option(help="How batches are compressed.")] = "none",
) -> None:
    """Send each line as a record, and say how many the broker acknowledged (idempotent, acks=all)."""
    headers = list(pairs(header, "--header").items())
    cluster.partitions(topic, partition)
    sender = Sender(cluster, topic, -1 if partition is None else partition, headers, compression)
    with file.open("rb") if file else nullcontext(sys.stdin.buffer) as lines:
        try:
            sender.send(_records(lines, key_sep))
        except RowRejected as error:
            error.hint = f"{sender.finish()} before it; nothing from it on was sent"
            raise
        except KeyboardInterrupt:
            typer.echo(sender.finish())
            raise typer.Exit(130) from None
    typer.echo(sender.finish())


class Sender:
    """Sends records and knows how many were acknowledged: all that were sent and did not fail."""

    def __init__(
        self, cluster: Cluster, topic: str, partition: int, headers: list[tuple[str, str]], compression: Compression
    ) -> None:
        from confluent_kafka import Producer

        self._to: dict[str, Any] = {"topic": topic, "partition": partition}
        if headers:
            self._to["headers"] = headers
        self._sent = self._failed = 0
        self._failure: KafkaError | None = None
        config = cluster.config(
            enable_idempotence=True,
            compression_type=compression,
            partitioner="murmur2_random",  # as Java's clients do, so that one key is in one partition
            message_max_bytes=64 << 20,  # the topic's own limit decides
            queue_buffering_max_kbytes=64 << 10,
            message_timeout_ms=60_000,
            delivery_report_only_error=True,  # a call into Python per record would halve the speed
        )
        self._producer = Producer({**config, "on_delivery": self._on_failure})

    def send(self, records: Iterable[Record]) -> None:
        """Hand the records to librdkafka, which sends them in batches; stop at the first that is known to fail."""
        from confluent_kafka import KafkaException

        for key, value in records:
            try:
                self._send_when_there_is_room(key, value)
            except KafkaException as error:
                self._on_failure(error.args[0])
            self._sent += 1
            if self._failure:
                break

    def _send_when_there_is_room(self, key: bytes | None, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(key=key, value=value, **self._to)
            except BufferError:
                self._producer.poll(0.005)
            else:
                self._producer.poll(0)
                return

    def finish(self) -> str:
        """Wait until every record is acknowledged or has failed, and say how many were acknowledged."""
        while self._producer.flush(1):
            pass
        said = f"{counted(self._sent - self._failed, 'record')} acknowledged"
        if self._failure:
            message = f"{counted(self._failed, 'record')} not acknowledged: {self._failure.str()}"
            raise SinkFailed(message, hint=f"{said}; nothing more was sent")
        return said

    def _on_failure(self, error: KafkaError, _message: Message | None = None) -> None:
        self._failed += 1
        self._failure = self._failure or error


def _records(lines: BinaryIO, key_sep: str | None) -> Iterator[Record]:
    if key_sep is None:
        yield from ((None, line.removesuffix(b"\n")) for line in lines)
        return
    separator = key_sep.replace("\\t", "\t").encode()
    if not separator:
        message = "--key-sep is empty"
        raise UnknownSetting(message, hint=r"say what stands between key and value, such as ':' or '\t'")
    for number, line in enumerate(lines, 1):
        key, found, value = line.removesuffix(b"\n").partition(separator)
        if not found:
            message = f"line {number} has no separator {key_sep!r}"
            raise RowRejected(message)
        yield key, value
