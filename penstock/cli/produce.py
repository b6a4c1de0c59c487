"""`penstock produce`: send lines to a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer

from penstock.cli.kafka_client.access import on_broker
from penstock.cli.topic import pairs
from penstock.errors import RowRejected, UnknownSetting

if TYPE_CHECKING:
    from penstock.cli.kafka_client.cluster import Cluster
    from penstock.cli.kafka_client.producer import Record

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]


@on_broker
def produce(
    cluster: Cluster,
    topic: Annotated[str, typer.Argument(help="The topic, which must exist.")],
    key_sep: Annotated[
        str | None,
        typer.Option(metavar="SEP", help=r"Separator of key and value in a line; '\t' is a tab. Default: no key."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Read this file instead of standard input.")
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Send all records to this partition.")] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Header of every record, repeatable.")
    ] = None,
    compression: Annotated[Compression, typer.Option(help="Compression of batches.")] = "none",
) -> None:
    """Send each line of standard input as a record, and print how many were acknowledged (idempotent, acks=all).

    Example: echo 'ada:{"amount": 3}' | penstock produce orders --key-sep :
    """
    from penstock.cli.kafka_client.producer import RecordSender

    headers = list(pairs(header, "--header").items())
    cluster.partitions(topic, partition, make=True)
    sender = RecordSender(cluster, topic, -1 if partition is None else partition, headers, compression)
    with file.open("rb") if file else nullcontext(sys.stdin.buffer) as lines:
        try:
            sender.send(_records(lines, key_sep))
        except RowRejected as error:
            error.hint = f"{sender.finish()} before it; it and the following lines were not sent"
            raise
        except KeyboardInterrupt:
            typer.echo(sender.finish())
            raise typer.Exit(130) from None
    typer.echo(sender.finish())


def _records(lines: BinaryIO, key_sep: str | None) -> Iterator[Record]:
    if key_sep is None:
        yield from ((None, line.removesuffix(b"\n")) for line in lines)
        return
    separator = key_sep.replace("\\t", "\t").encode()
    if not separator:
        message = "--key-sep is empty"
        raise UnknownSetting(message, hint=r"pass the separator of key and value, such as ':' or '\t'")
    for number, line in enumerate(lines, 1):
        key, found, value = line.removesuffix(b"\n").partition(separator)
        if not found:
            message = f"line {number} has no separator {key_sep!r}"
            raise RowRejected(message)
        yield key, value
