"""A look at a topic: which one it is, and where its partitions begin and end. It is taken at least once an epoch.

Two requests do, straight to the brokers that know. Whatever goes wrong with them is left to librdkafka, which follows a
partition to its new leader, and in whose words errors are told.
"""

from __future__ import annotations

from confluent_kafka import KafkaException

from penstock.connectors.cluster import Cluster
from penstock.connectors.offsets import Look
from penstock.connectors.records import leaders


def look_at(cluster: Cluster, name: str) -> Look | None:
    """Return a topic as it is now, or None if there is none."""
    connection = cluster.connection
    if leaders.speaks(connection):
        try:
            topic = leaders.topic(connection, name)
            return Look(topic.id, *leaders.edges(connection, topic)) if topic else None
        except (KafkaException, leaders.NotSpoken):
            leaders.forget(connection, name)
    described = cluster.describe(name)
    if described is None:
        return None
    return Look(described.id, cluster.starts(name, described.partitions), cluster.ends(name, described.partitions))


def ends_of(cluster: Cluster, name: str, look: Look) -> dict[int, int]:
    """Return where the partitions that were seen end now."""
    connection = cluster.connection
    if leaders.speaks(connection):
        try:
            return leaders.edges(connection, leaders.known(connection, name), starts=False)[1]
        except (KafkaException, leaders.NotSpoken):
            leaders.forget(connection, name)
    return cluster.ends(name, look.ends)
