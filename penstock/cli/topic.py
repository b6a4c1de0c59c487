"""`penstock topic`: create, list, alter and delete topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import command_group
from penstock.cli.kafka_client.access import on_broker
from penstock.cli.tables import Json, count_text, show_json, show_table
from penstock.errors import BrokerRefused, UnknownSetting

if TYPE_CHECKING:
    from confluent_kafka.admin import ConfigEntry

    from penstock.cli.kafka_client.cluster import Cluster

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the topic.")]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="Config, repeatable, such as retention.ms=86400000."),
]

app = command_group("Create, list, describe, alter and delete topics.")


@app.command()
@on_broker
def create(
    cluster: Cluster,
    name: Name,
    partitions: Annotated[int, typer.Option(min=1, help="Number of partitions.")] = 1,
    config: Configs = None,
) -> None:
    """Create a topic.

    Example: penstock topic create orders --partitions 4 --config retention.ms=86400000
    """
    from confluent_kafka.admin import NewTopic

    cluster.topics()
    new = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=pairs(config, "--config"))
    with _invalid_numbers_refused(name, partitions):
        cluster.settle(cluster.admin.create_topics([new], **cluster.patience))
    typer.echo(f"created topic {name} with {count_text(partitions, 'partition')}")


@app.command("list")
@on_broker
def list_(
    cluster: Cluster,
    internal: Annotated[bool, typer.Option("--internal", help="Include the internal topics of the broker.")] = False,
    json: Json = False,
) -> None:
    """List the topics.

    Example: penstock topic list
    """
    topics = cluster.topics()
    names = sorted(topics) if internal else cluster.visible(topics)
    if json:
        show_json([{"topic": name, "partitions": len(topics[name].partitions)} for name in names])
    else:
        show_table(["topic", "partitions"], [[name, len(topics[name].partitions)] for name in names])


@app.command()
@on_broker
def describe(cluster: Cluster, name: Name, json: Json = False) -> None:
    """Show the partitions of a topic, their offsets, and the configs that are set on it.

    Example: penstock topic describe orders
    """
    rows, config = _partitions(cluster, name), _own_config(cluster, name)
    if json:
        show_json({"topic": name, "partitions": rows, "config": config})
        return
    typer.echo(f"topic {name}: {count_text(len(rows), 'partition')}")
    show_table(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows])
    for key, value in config.items():
        typer.echo(f"{key}={value}")


@app.command()
@on_broker
def alter(
    cluster: Cluster,
    name: Name,
    partitions: Annotated[int | None, typer.Option(min=1, help="New number of partitions; it can only grow.")] = None,
    config: Configs = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Config to reset to its default, repeatable.")
    ] = None,
) -> None:
    """Change the configs of a topic, or add partitions.

    Example: penstock topic alter orders --partitions 8 --unset retention.ms
    """
    if not (partitions or config or unset):
        message = "nothing to alter"
        raise UnknownSetting(message, hint="pass --partitions N, --config KEY=VALUE or --unset KEY")
    there = len(cluster.partitions(name))
    if partitions is not None and partitions <= there:
        message = f"topic '{name}' has {count_text(there, 'partition')} already"
        raise BrokerRefused(message, hint=f"partitions can only be added: --partitions {there + 1} or more")
    if config or unset:
        _alter_config(cluster, name, pairs(config, "--config"), unset or [])
    if partitions is not None:
        _add_partitions(cluster, name, partitions)
    typer.echo(f"altered topic {name}")


@app.command()
@on_broker
def delete(cluster: Cluster, name: Name) -> None:
    """Delete a topic and all its records.

    Example: penstock topic delete orders
    """
    cluster.partitions(name)
    cluster.settle(cluster.admin.delete_topics([name], **cluster.patience))
    typer.echo(f"deleted topic {name}")


def pairs(texts: Iterable[str] | None, option: str) -> dict[str, str]:
    """Parse options of the form KEY=VALUE."""
    parts = [(text, *text.partition("=")) for text in texts or []]
    for text, key, equals, _ in parts:
        if not (key and equals):
            message = f"{option} {text!r} is not KEY=VALUE"
            raise UnknownSetting(message)
    return {key: value for _, key, _, value in parts}


def _partitions(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    asked = [(name, partition) for partition in cluster.partitions(name)]
    about = cluster.topics()[name].partitions
    starts, ends = cluster.offsets(asked, "beginning"), cluster.offsets(asked, "end")
    return [
        {
            "partition": each[1],
            "beginning": starts[each],
            "end": ends[each],
            "leader": about[each[1]].leader,
            "replicas": about[each[1]].replicas,
            "in_sync": about[each[1]].isrs,
        }
        for each in asked
    ]


def _own_config(cluster: Cluster, name: str) -> dict[str, str | None]:
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    asked = cluster.admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)], **cluster.patience)
    entries: dict[str, ConfigEntry] = cluster.settle(asked)
    # librdkafka returns the source as a number, whatever the stubs say.
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG
    return {key: each.value for key, each in sorted(entries.items()) if ConfigSource(each.source) == own}


def _alter_config(cluster: Cluster, name: str, config: dict[str, str], unset: list[str]) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    changes = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()]
    changes += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in unset]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
    cluster.settle(cluster.admin.incremental_alter_configs([resource], **cluster.patience))


def _add_partitions(cluster: Cluster, name: str, total: int) -> None:
    from confluent_kafka.admin import NewPartitions

    with _invalid_numbers_refused(name, total):
        cluster.settle(cluster.admin.create_partitions([NewPartitions(name, total)], **cluster.patience))


@contextmanager
def _invalid_numbers_refused(name: str, partitions: int) -> Iterator[None]:
    try:
        yield
    except ValueError as error:  # librdkafka refuses it before sending
        message = f"topic '{name}' cannot have {partitions:,} partitions: {error}"
        raise UnknownSetting(message, hint="Penstock's log allows up to 10,000 per topic") from error


def _cell(value: Any) -> str | int:
    return ",".join(map(str, value)) if isinstance(value, list) else value
