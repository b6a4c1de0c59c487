"""Topics with their figures, with librdkafka (loaded with this module)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import ClusterMetadata, ConfigResource, ConfigSource, NewTopic, ResourceType, TopicMetadata

from penstock.connectors.topics.log_dirs import Sizes, partition_sizes
from penstock.control.api import topics as api
from penstock.control.broker.client import SECONDS, KafkaClient
from penstock.control.broker.rates import Rates

_CONFIG_SECONDS = 30.0
_Config = Mapping[str, Any]
Item = TypeVar("Item", bound=api.TopicFigures)


class Topics:
    """Lists, describes, creates and deletes topics."""

    def __init__(self, client: KafkaClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._rates = Rates(clock)
        self._configs: dict[str, tuple[float, _Config]] = {}

    def summaries(self, *, internal: bool) -> api.TopicList:
        """List the topics."""
        cluster = self._client.cluster()
        shown = {name: about for name, about in sorted(cluster.topics.items()) if internal or not _is_internal(name)}
        first, last = self._offsets(shown)
        rates = self._rates.measure(_sums(last))
        sizes = self._sizes(cluster)
        items = []
        for name, about in shown.items():
            mine = [(name, number) for number in about.partitions]
            figures = self._figures(mine, first, last, rates, sizes)
            items.append(
                api.TopicSummary(name=name, partitions=len(mine), internal=_is_internal(name), **figures),
            )
        known = self._known_configs(shown)
        return api.TopicList(items=[_with_config(item, known.get(item.name)) for item in items])

    def describe(self, name: str) -> api.Topic:
        """Return a topic with its partitions and its configuration."""
        about = self._client.about(name)
        first, last = self._offsets({name: about})
        sizes = self._sizes(self._client.cluster())
        config = self._known_configs([name], fresh=True)[name]
        figures = self._figures([*last], first, last, self._rates.measure(_sums(last)), sizes)
        partitions = [
            api.Partition(
                partition=number,
                beginning=first[name, number],
                end=last[name, number],
                leader=about.partitions[number].leader,
                replicas=about.partitions[number].replicas,
                in_sync=about.partitions[number].isrs,
                bytes=sizes.get((name, number)) if sizes is not None else None,
            )
            for number in sorted(about.partitions)
        ]
        return _with_config(api.Topic(name=name, partitions=partitions, config=_own(config), **figures), config)

    def create(self, new: api.NewTopic) -> api.Topic:
        """Create a topic."""
        made = NewTopic(new.name, new.partitions, new.replicas or -1, config=new.config)
        with self._client.translated(f"topic '{new.name}'"):
            asked = self._client.admin.create_topics([made], operation_timeout=SECONDS, **self._client.patience)
            self._client.settle(asked)
        return self.describe(new.name)

    def delete(self, name: str) -> None:
        """Delete a topic that exists."""
        self._client.about(name)
        with self._client.translated(f"topic '{name}'"):
            asked = self._client.admin.delete_topics([name], operation_timeout=SECONDS, **self._client.patience)
            self._client.settle(asked)
        self._configs.pop(name, None)

    def _offsets(self, topics: Mapping[str, TopicMetadata]) -> tuple[Sizes, Sizes]:
        asked = [(name, number) for name, about in topics.items() for number in sorted(about.partitions)]
        return self._client.offsets(asked, "beginning"), self._client.offsets(asked, "end")

    def _sizes(self, cluster: ClusterMetadata) -> Sizes | None:
        """Return the sizes of partitions; None if this user may not see them, or the broker does not tell."""
        addresses = [(str(each.host), each.port) for each in cluster.brokers.values()]
        try:
            return partition_sizes(self._client.connection, addresses)
        except KafkaException:
            return None

    def _figures(
        self,
        mine: Collection[tuple[str, int]],
        first: Sizes,
        last: Sizes,
        rates: Mapping[str, float],
        sizes: Sizes | None,
    ) -> dict[str, Any]:
        name = next(iter(mine), ("", 0))[0]
        return {
            "messages": sum(max(0, last[each] - max(0, first[each])) for each in mine),
            "bytes": None if sizes is None else sum(sizes.get(each, 0) for each in mine),
            "rate": rates.get(name),
        }

    def _known_configs(self, names: Collection[str], *, fresh: bool = False) -> dict[str, _Config]:
        """Return the configuration of topics; a recent one if it may be some seconds old."""
        now = self._clock()
        old = [name for name in names if fresh or now - self._configs.get(name, (-1e9, {}))[0] > _CONFIG_SECONDS]
        if old:
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in old]
            with self._client.translated("configurations of topics"):
                asked = self._client.admin.describe_configs(resources, **self._client.patience)
                for resource, future in asked.items():
                    self._configs[resource.name] = (now, future.result())
        return {name: self._configs[name][1] for name in names if name in self._configs}


def _is_internal(name: str) -> bool:
    return name.startswith("__")


def _sums(ends: Sizes) -> dict[str, int]:
    found: dict[str, int] = {}
    for (name, _), end in ends.items():
        found[name] = found.get(name, 0) + end
    return found


def _with_config(item: Item, config: _Config | None) -> Item:
    values = {key: each.value for key, each in (config or {}).items()}
    kept = values.get("retention.ms")
    item.retention_ms = int(kept) if kept is not None else None
    item.cleanup_policy = values.get("cleanup.policy")
    return item


def _own(config: _Config) -> dict[str, str | None]:
    # librdkafka returns the source as a number, whatever the stubs say.
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG
    return {key: each.value for key, each in sorted(config.items()) if ConfigSource(each.source) == own}
