"""The APIs and versions that are served: ApiVersions replies from this table.

The newest versions are those of Kafka 4.2, but for EndTxn 5 and TxnOffsetCommit 5, which belong to its second kind of
transactions (KIP-890): clients use them only where the feature `transaction.version` is 2, which is not offered here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Api:
    """One API: Kafka's key, kio's name, the versions served, the first flexible one."""

    key: int
    name: str
    oldest: int
    newest: int
    flexible: int

    @property
    def offered(self) -> tuple[int, int]:
        """The versions that ApiVersions reports.

        As in Kafka 4, Produce is offered from version 0 on, although such old ones are refused: otherwise librdkafka
        before 2.8 does not compress with gzip, snappy and lz4 (KAFKA-18659).
        """
        return (0 if self.key == 0 else self.oldest), self.newest

    def serves(self, version: int) -> bool:
        """Return whether a version is served."""
        return self.oldest <= version <= self.newest

    def is_flexible(self, version: int) -> bool:
        """Return whether a version has compact fields and tags."""
        return version >= self.flexible


_NEVER = 99
_TABLE = (
    Api(0, "produce", 3, 13, 9),
    Api(1, "fetch", 4, 18, 12),
    Api(2, "list_offsets", 1, 11, 6),
    Api(3, "metadata", 0, 13, 9),
    Api(8, "offset_commit", 2, 10, 8),
    Api(9, "offset_fetch", 1, 10, 6),
    Api(10, "find_coordinator", 0, 6, 3),
    Api(11, "join_group", 0, 9, 6),
    Api(12, "heartbeat", 0, 4, 4),
    Api(13, "leave_group", 0, 5, 4),
    Api(14, "sync_group", 0, 5, 4),
    Api(15, "describe_groups", 0, 6, 5),
    Api(16, "list_groups", 0, 5, 3),
    Api(17, "sasl_handshake", 0, 1, _NEVER),
    Api(18, "api_versions", 0, 4, 3),
    Api(19, "create_topics", 2, 7, 5),
    Api(20, "delete_topics", 1, 6, 4),
    Api(21, "delete_records", 0, 2, 2),
    Api(22, "init_producer_id", 0, 5, 2),
    Api(23, "offset_for_leader_epoch", 2, 4, 4),
    Api(24, "add_partitions_to_txn", 0, 5, 3),
    Api(25, "add_offsets_to_txn", 0, 4, 3),
    Api(26, "end_txn", 0, 4, 3),
    Api(28, "txn_offset_commit", 0, 4, 3),
    Api(29, "describe_acls", 1, 3, 2),
    Api(30, "create_acls", 1, 3, 2),
    Api(31, "delete_acls", 1, 3, 2),
    Api(32, "describe_configs", 1, 4, 4),
    Api(33, "alter_configs", 0, 2, 2),
    Api(35, "describe_log_dirs", 1, 4, 2),
    Api(36, "sasl_authenticate", 0, 2, 2),
    Api(37, "create_partitions", 0, 3, 2),
    Api(42, "delete_groups", 0, 2, 2),
    Api(44, "incremental_alter_configs", 0, 1, 1),
    Api(46, "list_partition_reassignments", 0, 0, 0),
    Api(47, "offset_delete", 0, 0, _NEVER),
    Api(48, "describe_client_quotas", 0, 1, 1),
    Api(49, "alter_client_quotas", 0, 1, 1),
    Api(50, "describe_user_scram_credentials", 0, 0, 0),
    Api(51, "alter_user_scram_credentials", 0, 0, 0),
    Api(60, "describe_cluster", 0, 2, 0),
    Api(61, "describe_producers", 0, 0, 0),
    Api(65, "describe_transactions", 0, 0, 0),
    Api(66, "list_transactions", 0, 2, 0),
    Api(68, "consumer_group_heartbeat", 0, 1, 0),
    Api(69, "consumer_group_describe", 0, 1, 0),
    Api(74, "list_config_resources", 0, 1, 0),
    Api(75, "describe_topic_partitions", 0, 0, 0),
)
APIS: dict[int, Api] = {api.key: api for api in _TABLE}
BY_NAME: dict[str, Api] = {api.name: api for api in _TABLE}
