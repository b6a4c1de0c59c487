"""`penstock group`: list, describe, reset and delete consumer groups."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import command_group
from penstock.cli.kafka_client.access import on_broker
from penstock.cli.kafka_client.positions import parse_position, resolve_position
from penstock.cli.tables import Cell, Json, count_text, show_json, show_table
from penstock.errors import BrokerRefused, UnknownGroup, choices

if TYPE_CHECKING:
    from confluent_kafka.admin import ConsumerGroupDescription, ConsumerGroupListing, MemberDescription

    from penstock.cli.kafka_client.cluster import Cluster, Partition

Name = Annotated[str, typer.Argument(metavar="GROUP", help="Consumer group.")]

app = command_group("List, describe, reset and delete consumer groups.")


@app.command("list")
@on_broker
def list_(cluster: Cluster, json: Json = False) -> None:
    """List the groups and their states.

    Example: penstock group list
    """
    groups = _states(cluster)
    if json:
        show_json([{"group": name, "state": state} for name, state in groups.items()])
    else:
        show_table(["group", "state"], list(groups.items()))


@app.command()
@on_broker
def describe(cluster: Cluster, group: Name, json: Json = False) -> None:
    """Show the members of a group, and the committed offset and lag of each partition.

    Example: penstock group describe reports
    """
    about = _describe(cluster, group)
    rows = _progress(cluster, about)
    members = [_member(each) for each in about.members]
    if json:
        show_json({"group": group, "state": _state(about), "members": members, "partitions": rows})
        return
    typer.echo(f"group {group}: {_state(about)}, {count_text(len(members), 'member')}")
    for each in members:
        typer.echo(f"  {each['member']} at {each['host']}")
    head = ["topic", "partition", "committed", "end", "lag", "member"]
    show_table(head, [list(row.values()) for row in rows])


@app.command()
@on_broker
def reset(
    cluster: Cluster,
    group: Name,
    topic: Annotated[str, typer.Option(help="Name of the topic.")],
    to: Annotated[str, typer.Option(metavar="beginning|end|TIME|OFFSET", help="The new position.")],
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Apply the change; without it, only show it.")] = False,
) -> None:
    """Reset the committed offsets of a group, which must have no members.

    Example: penstock group reset reports --topic orders --to beginning --execute
    """
    position = parse_position(to, "--to")
    new = resolve_position(cluster, topic, cluster.partitions(topic, partition), position)
    known = group in _states(cluster)
    if known:
        _refuse_if_active(_describe(cluster, group))
    committed = _committed(cluster, group) if known else {}
    show_table(
        ["topic", "partition", "committed", "new"],
        [[topic, each, committed.get((topic, each)), offset] for each, offset in new.items()],
    )
    if not execute:
        typer.echo("nothing was changed; add --execute to do it")
        return
    _commit(cluster, group, topic, new)
    typer.echo(f"group {group} continues from there")


@app.command()
@on_broker
def delete(cluster: Cluster, group: Name) -> None:
    """Delete a group and its committed offsets; it must have no members.

    Example: penstock group delete reports
    """
    _refuse_if_active(_describe(cluster, group))
    cluster.settle(cluster.admin.delete_consumer_groups([group], **cluster.patience))
    typer.echo(f"deleted group {group}")


def _states(cluster: Cluster) -> dict[str, str]:
    from confluent_kafka import KafkaException

    cluster.topics()
    found = cluster.admin.list_consumer_groups(**cluster.patience).result()
    for error in found.errors:
        raise error if isinstance(error, KafkaException) else KafkaException(error)
    return {each.group_id: _state(each) for each in sorted(found.valid, key=lambda each: str(each.group_id))}


def _describe(cluster: Cluster, group: str) -> ConsumerGroupDescription:
    groups = _states(cluster)
    if group not in groups:
        message = f"there is no group '{group}' at {cluster.access.servers}"
        raise UnknownGroup(message, hint=choices("groups there", groups, group))
    about: ConsumerGroupDescription = cluster.settle(
        cluster.admin.describe_consumer_groups([group], **cluster.patience)
    )
    return about


def _state(group: ConsumerGroupDescription | ConsumerGroupListing) -> str:
    return str(group.state.name).lower().replace("_", " ")


def _member(member: MemberDescription) -> dict[str, Any]:
    return {"member": member.member_id, "client": member.client_id, "host": member.host}


def _refuse_if_active(about: ConsumerGroupDescription) -> None:
    if about.members:
        who = ", ".join(f"{each.client_id} at {each.host}" for each in about.members)
        message = f"group '{about.group_id}' has {count_text(len(about.members), 'active member')}: {who}"
        raise BrokerRefused(message, hint="stop them first; nothing was changed")


def _committed(cluster: Cluster, group: str) -> dict[Partition, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = cluster.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], **cluster.patience)
    found = cluster.settle(asked).topic_partitions
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def _commit(cluster: Cluster, group: str, topic: str, offsets: dict[int, int]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

    wanted = [TopicPartition(topic, each, offset) for each, offset in offsets.items()]
    request = ConsumerGroupTopicPartitions(group, wanted)
    answer = cluster.settle(cluster.admin.alter_consumer_group_offsets([request], **cluster.patience))
    for each in answer.topic_partitions:
        if each.error:
            raise KafkaException(each.error)


def _progress(cluster: Cluster, about: ConsumerGroupDescription) -> list[dict[str, Cell]]:
    committed = _committed(cluster, about.group_id)
    owners = {
        (each.topic, each.partition): member.member_id
        for member in about.members
        for each in member.assignment.topic_partitions
    }
    ends = _ends(cluster, {*committed, *owners})
    return [_row(each, committed.get(each), ends.get(each), owners.get(each)) for each in sorted({*committed, *owners})]


def _row(partition: Partition, committed: int | None, end: int | None, member: str | None) -> dict[str, Cell]:
    lag = None if committed is None or end is None else end - committed
    topic, number = partition
    return {"topic": topic, "partition": number, "committed": committed, "end": end, "lag": lag, "member": member}


def _ends(cluster: Cluster, partitions: Collection[Partition]) -> dict[Partition, int]:
    """Return the end offsets of the existing partitions: a group may have offsets of deleted topics."""
    topics = cluster.topics()
    there = [(topic, each) for topic, each in partitions if topic in topics and each in topics[topic].partitions]
    return cluster.offsets(there, "end")
