"""The tables of what broker listeners and controller listeners serve: ApiVersions, dispatch and the compatibility page read them.

Ranges are Kafka 4.3's, and so is which listener serves what. A module is imported with the first request for its key, so that
a start imports nothing it does not need; a test holds each module's HANDLER equal to its row here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkacompat.api.handler import Handler


class Entry(NamedTuple):
    key: int
    name: str
    module: str
    """Below kafkacompat.api."""
    min_version: int
    max_version: int
    advertised_min_version: int
    """What ApiVersions says; differs from min_version for Produce only."""


def _entry(key: int, name: str, module: str, low: int, high: int, advertised_low: int | None = None) -> Entry:
    return Entry(key, name, module, low, high, low if advertised_low is None else advertised_low)


ENTRIES: tuple[Entry, ...] = (
    _entry(0, "Produce", "produce", 3, 13, advertised_low=0),
    _entry(1, "Fetch", "fetch", 4, 18),
    _entry(2, "ListOffsets", "list_offsets", 1, 11),
    _entry(3, "Metadata", "metadata", 0, 13),
    _entry(8, "OffsetCommit", "offset_commit", 2, 10),
    _entry(9, "OffsetFetch", "offset_fetch", 1, 10),
    _entry(10, "FindCoordinator", "find_coordinator", 0, 6),
    _entry(11, "JoinGroup", "join_group", 0, 9),
    _entry(12, "Heartbeat", "heartbeat", 0, 4),
    _entry(13, "LeaveGroup", "leave_group", 0, 5),
    _entry(14, "SyncGroup", "sync_group", 0, 5),
    _entry(15, "DescribeGroups", "describe_groups", 0, 6),
    _entry(16, "ListGroups", "list_groups", 0, 5),
    _entry(17, "SaslHandshake", "sasl_handshake", 0, 1),
    _entry(18, "ApiVersions", "api_versions", 0, 4),
    _entry(19, "CreateTopics", "create_topics", 2, 7),
    _entry(20, "DeleteTopics", "delete_topics", 1, 6),
    _entry(21, "DeleteRecords", "delete_records", 0, 2),
    _entry(22, "InitProducerId", "init_producer_id", 0, 5),
    _entry(23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", 2, 4),
    _entry(24, "AddPartitionsToTxn", "add_partitions_to_txn", 0, 5),
    _entry(25, "AddOffsetsToTxn", "add_offsets_to_txn", 0, 4),
    _entry(26, "EndTxn", "end_txn", 0, 5),
    _entry(27, "WriteTxnMarkers", "write_txn_markers", 1, 2),
    _entry(28, "TxnOffsetCommit", "txn_offset_commit", 0, 5),
    _entry(32, "DescribeConfigs", "describe_configs", 1, 4),
    _entry(33, "AlterConfigs", "alter_configs", 0, 2),
    _entry(34, "AlterReplicaLogDirs", "alter_replica_log_dirs", 1, 2),
    _entry(35, "DescribeLogDirs", "describe_log_dirs", 1, 5),
    _entry(36, "SaslAuthenticate", "sasl_authenticate", 0, 2),
    _entry(37, "CreatePartitions", "create_partitions", 0, 3),
    _entry(42, "DeleteGroups", "delete_groups", 0, 2),
    _entry(43, "ElectLeaders", "elect_leaders", 0, 2),
    _entry(44, "IncrementalAlterConfigs", "incremental_alter_configs", 0, 1),
    _entry(45, "AlterPartitionReassignments", "alter_partition_reassignments", 0, 1),
    _entry(46, "ListPartitionReassignments", "list_partition_reassignments", 0, 0),
    _entry(47, "OffsetDelete", "offset_delete", 0, 0),
    _entry(55, "DescribeQuorum", "describe_quorum", 0, 2),
    _entry(57, "UpdateFeatures", "update_features", 0, 2),
    _entry(60, "DescribeCluster", "describe_cluster", 0, 2),
    _entry(61, "DescribeProducers", "describe_producers", 0, 0),
    _entry(64, "UnregisterBroker", "unregister_broker", 0, 0),
    _entry(65, "DescribeTransactions", "describe_transactions", 0, 0),
    _entry(66, "ListTransactions", "list_transactions", 0, 2),
    _entry(74, "ListConfigResources", "list_config_resources", 0, 1),
    _entry(75, "DescribeTopicPartitions", "describe_topic_partitions", 0, 0),
    _entry(80, "AddRaftVoter", "add_raft_voter", 0, 1),
    _entry(81, "RemoveRaftVoter", "remove_raft_voter", 0, 0),
)

CONTROLLER_ENTRIES: tuple[Entry, ...] = (
    _entry(1, "Fetch", "quorum_fetch", 4, 18),
    _entry(17, "SaslHandshake", "sasl_handshake", 0, 1),
    _entry(18, "ApiVersions", "controller_api_versions", 0, 4),
    _entry(19, "CreateTopics", "create_topics", 2, 7),
    _entry(20, "DeleteTopics", "delete_topics", 1, 6),
    _entry(32, "DescribeConfigs", "describe_configs", 1, 4),
    _entry(33, "AlterConfigs", "alter_configs", 0, 2),
    _entry(36, "SaslAuthenticate", "sasl_authenticate", 0, 2),
    _entry(37, "CreatePartitions", "create_partitions", 0, 3),
    _entry(43, "ElectLeaders", "elect_leaders", 0, 2),
    _entry(44, "IncrementalAlterConfigs", "incremental_alter_configs", 0, 1),
    _entry(45, "AlterPartitionReassignments", "alter_partition_reassignments", 0, 1),
    _entry(46, "ListPartitionReassignments", "list_partition_reassignments", 0, 0),
    _entry(52, "Vote", "vote", 0, 2),
    _entry(53, "BeginQuorumEpoch", "begin_quorum_epoch", 0, 1),
    _entry(54, "EndQuorumEpoch", "end_quorum_epoch", 0, 1),
    _entry(55, "DescribeQuorum", "describe_quorum", 0, 2),
    _entry(56, "AlterPartition", "alter_partition", 2, 3),
    _entry(57, "UpdateFeatures", "update_features", 0, 2),
    _entry(58, "Envelope", "envelope", 0, 0),
    _entry(59, "FetchSnapshot", "fetch_snapshot", 0, 1),
    _entry(60, "DescribeCluster", "describe_controllers", 0, 2),
    _entry(62, "BrokerRegistration", "broker_registration", 0, 4),
    _entry(63, "BrokerHeartbeat", "broker_heartbeat", 0, 2),
    _entry(64, "UnregisterBroker", "unregister_broker", 0, 0),
    _entry(67, "AllocateProducerIds", "allocate_producer_ids", 0, 0),
    _entry(70, "ControllerRegistration", "controller_registration", 0, 0),
    _entry(73, "AssignReplicasToDirs", "assign_replicas_to_dirs", 0, 0),
    _entry(80, "AddRaftVoter", "add_raft_voter", 0, 1),
    _entry(81, "RemoveRaftVoter", "remove_raft_voter", 0, 0),
    _entry(82, "UpdateRaftVoter", "update_raft_voter", 0, 0),
)


class ApiTable:
    """What one kind of listener serves."""

    __slots__ = ("by_key", "entries")

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self.by_key = {entry.key: entry for entry in entries}

    def serves(self, key: int, version: int) -> bool:
        entry = self.by_key.get(key)
        return entry is not None and entry.min_version <= version <= entry.max_version

    def load(self, key: int) -> Handler:
        """The handler of a key that is in the table."""
        handler: Handler = import_module(f"kafkacompat.api.{self.by_key[key].module}").HANDLER
        return handler


BROKER_APIS = ApiTable(ENTRIES)
CONTROLLER_APIS = ApiTable(CONTROLLER_ENTRIES)
