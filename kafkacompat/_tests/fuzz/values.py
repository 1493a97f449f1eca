"""Values of fields, honest and hostile, by the field's name and kind.

Names decide first: a group's name is one of few, so that requests meet. What memory knows of a name is mostly what is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkacompat.controller.features import LATEST_METADATA_VERSION, SUPPORTED_FEATURES
from kafkacompat.partition.list_offsets import FIRST_VERSIONS
from kafkacompat.quota.client_quotas import ENTITY_TYPES
from kafkacompat.wire.definition import FieldSpec

from .choices import Choices, happens, one_of
from .memory import Memory

WITNESSED_TOPIC, WITNESS_GROUP = "witnessed", "witness-group"
"""The well-behaved client's own. Nobody may change or delete these; everybody may write to the topic and read it."""
TOPICS = ("t0", "t1", "compacted", "made")
GROUPS = ("g0", "g1", "")
TRANSACTIONAL_IDS = ("tx0", "tx1", "tx2")
LONG = "x" * 300
STRINGS = (
    "",
    "a",
    "x" * 249,
    LONG,
    ".",
    "..",
    "../../etc/passwd",
    "a/b",
    "nul\0inside",
    "snow\u2603man",
    "\U0001f4a3",
    "a b",
    "%s%n",
    "__consumer_offsets",
    "__transaction_state",
    "__cluster_metadata",
    "t0.x",
    "t0_x",
    "-1",
    "1",
    "2",
    "99999999999999999999",
    "[",
    "(a+)+$",
)
HUGE = "y" * 32_000
INTS = {
    "int8": (0, 1, 2, -1, 127, -128, 4, 8, 16, 32),
    "int16": (0, 1, -1, 2, 32767, -32768),
    "uint16": (0, 1, 9092, 65535),
    "int32": (0, 1, -1, 2, 3, 2**31 - 1, -(2**31), -2, 100, 10_000),
    "uint32": (0, 1, 2**32 - 1),
    "int64": (0, 1, -1, -2, 2**63 - 1, -(2**63), 2**31, 1_700_000_000_000, 5),
}
TOPIC_CONFIGS = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "segment.bytes",
    "segment.ms",
    "segment.index.bytes",
    "index.interval.bytes",
    "max.message.bytes",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "min.insync.replicas",
    "compression.type",
    "min.cleanable.dirty.ratio",
    "delete.retention.ms",
    "flush.messages",
    "flush.ms",
    "file.delete.delay.ms",
    "leader.replication.throttled.replicas",
    "unclean.leader.election.enable",
    "remote.storage.enable",
    "preallocate",
)
BROKER_CONFIGS = (
    "log.retention.ms",
    "log.cleaner.threads",
    "log.cleaner.io.max.bytes.per.second",
    "num.io.threads",
    "leader.replication.throttled.rate",
    "log.segment.bytes",
    "compression.type",
    "min.insync.replicas",
    "log.roll.ms",
    "listeners",
    "advertised.listeners",
    "log.dirs",
    "node.id",
    "cordoned.log.dirs",
)
"""But message.max.bytes: below what a group's own records take nobody joins any more, in Kafka as here."""
QUOTAS = ("producer_byte_rate", "request_percentage", "connection_creation_rate")
CONFIG_VALUES = (
    "compact",
    "delete",
    "compact,delete",
    "",
    "-1",
    "0",
    "1",
    "100",
    "1000",
    "1048576",
    "2147483647",
    "9223372036854775807",
    "99999999999999999999",
    "true",
    "false",
    "maybe",
    "gzip",
    "zstd",
    "producer",
    "LogAppendTime",
    "CreateTime",
    "0.5",
    "nan",
    "1e309",
    "*",
    "0:1,1:1",
    ",,,",
    "\u2603",
)
POOLS: dict[str, tuple[Any, ...]] = {
    "group_id": GROUPS,
    "groups": GROUPS,
    "groups_names": GROUPS,
    "transactional_id": TRANSACTIONAL_IDS,
    "v3_and_below_transactional_id": TRANSACTIONAL_IDS,
    "transactional_ids": TRANSACTIONAL_IDS,
    "transactional_id_pattern": ("", "tx.*", "(a+)+$", "[", "t" * 300, ".*", "(?i)TX0", "\\"),
    "entity_type": ENTITY_TYPES,
    "key": (*GROUPS, *TRANSACTIONAL_IDS, *QUOTAS),
    "coordinator_keys": (*GROUPS, *TRANSACTIONAL_IDS),
    "key_type": (0, 1, 0, 1, 2, 7, -1),
    "topic": TOPICS,
    "topic_names": TOPICS,
    "resource_name": (*TOPICS, "1", "", "2", "g0", "client-metrics"),
    "resource_type": (2, 2, 2, 4, 4, 8, 16, 32, 0, 99),
    "resource_types": (2, 4, 8, 16, 32, 0, 99),
    "configuration_keys": (*TOPIC_CONFIGS, *BROKER_CONFIGS),
    "value": CONFIG_VALUES,
    "config_operation": (0, 0, 0, 1, 2, 3, 9),
    "partition": (0, 0, 0, 1, 2, -1, 99, 2**31 - 1),
    "partition_index": (0, 0, 0, 1, 2, -1, 99, 2**31 - 1),
    "index": (0, 0, 0, 1, 2, -1, 99, 2**31 - 1),
    "partitions": (0, 0, 0, 1, 2, -1, 99, 2**31 - 1),
    "partition_indexes": (0, 0, 0, 1, 2, -1, 99, 2**31 - 1),
    "num_partitions": (1, 1, 2, -1, 0, 3, -2),
    "count": (1, 2, 3, 4, 0, -1),
    "replication_factor": (1, 1, -1, 0, 2, 32767, -2),
    "broker_ids": (1, 1, 1, 2, -1, 0),
    "replicas": (1, 1, 1, 2, -1, 0),
    "broker_id": (1, 2, 3, -1, 0),
    "acks": (-1, -1, -1, 1, 0, 2, -2),
    "timeout_ms": (1000, 10_000, 0, -1, 2**31 - 1, 100),
    "max_wait_ms": (0, 0, 0, 100, 500, 10_000, -1),
    "min_bytes": (0, 1, 1, 100, 2**31 - 1, -1),
    "max_bytes": (2**31 - 1, 1_000_000, 0, 1, -1, 1000),
    "partition_max_bytes": (1_000_000, 1_000_000, 2**31 - 1, 0, 1, -1),
    "fetch_offset": (0, 0, 1, 2, 5, -1, 2**63 - 1, 100),
    "session_timeout_ms": (10_000, 6_000, 45_000, 0, -1, 2**31 - 1, 1_800_000),
    "rebalance_timeout_ms": (5_000, 1_000, 60_000, -1, 0, 2**31 - 1),
    "protocol_type": ("consumer", "consumer", "consumer", "connect", "", "share"),
    "protocol_name": ("range", "range", "roundrobin", "", "x"),
    "group_instance_id": ("i0", "i1", "i0", "", LONG),
    "member_id": ("", "", "m", "i0", LONG),
    "reason": ("", "because", LONG),
    "isolation_level": (0, 1, 0, 1, 2, -1),
    "timestamp": (*FIRST_VERSIONS, 0, 1_700_000_000_000, 2**63 - 1, -(2**63)),
    "transaction_timeout_ms": (60_000, 60_000, 1000, 100, 0, -1, 900_000, 900_001, 2**31 - 1),
    "states_filter": ("Stable", "Empty", "Dead", "", "stable", "x", LONG),
    "state_filters": ("Ongoing", "Empty", "CompleteCommit", "", "x"),
    "types_filter": ("classic", "consumer", "share", "streams", "", "x"),
    "mechanism": ("PLAIN", "SCRAM-SHA-256", "", "x"),
    "client_software_name": ("kafkacompat-fuzz", "", "a b", LONG, "a\n"),
    "client_software_version": ("1.0", "", "!", LONG),
    "path": ("/data/a", "/data/b", "/data/c", "", "relative", "/etc"),
    "feature": (*SUPPORTED_FEATURES, "x", ""),
    "max_version_level": (0, 1, 2, 3, 25, LATEST_METADATA_VERSION, LATEST_METADATA_VERSION + 1, -1, 32767),
    "upgrade_type": (1, 1, 2, 3, 0, 9),
    "election_type": (0, 0, 1, 2, -1),
    "controller_id": (1, 2, 3, -1, 0),
    "candidate_id": (1, 2, 3, -1, 0),
    "topic_name": TOPICS,
    "leader_epoch": (0, 1, 2, 3, -1, 2**31 - 1),
    "replica_epoch": (0, 1, 2, 3, 4, 10, -1, 2**31 - 1),
    "voter_id": (1, 2, 3, -1, 0),
    "leader_id": (1, 2, -1, 0),
    "replica_id": (-1, -1, -1, -1, 1, 2, -2, 0),
    "cluster_id": ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAQ", "other", ""),
    "endpoint_type": (1, 1, 2, 0, 9),
    "host": ("host-2", "", "x", LONG),
    "response_partition_limit": (2000, 1, 2, 0, -1),
    "generation_id": (0, 1, 2, -1, 2**31 - 1),
    "generation_id_or_member_epoch": (-1, 0, 1, 2, 2**31 - 1),
    "member_epoch": (-1, 0, 1, -2),
    "committed_offset": (0, 1, 5, 100, -1, 2**63 - 1, -(2**63)),
    "committed_metadata": ("", "m", "", LONG, "z" * 5000),
    "transaction_version": (0, 1, 2, 3, -1),
    "coordinator_epoch": (0, 0, 1, -1, 2**31 - 1),
}
"""Honest ones more often than others."""
LEARNED = {
    "producer_id": "producer_id",
    "v3_and_below_producer_id": "producer_id",
    "producer_id_filters": "producer_id",
    "producer_epoch": "producer_epoch",
    "v3_and_below_producer_epoch": "producer_epoch",
    "session_id": "session_id",
    "offset": "offset",
    "fetch_offset": "offset",
    "committed_offset": "offset",
    "log_start_offset": "offset",
    "current_leader_epoch": "leader_epoch",
    "leader_epoch": "leader_epoch",
    "last_fetched_epoch": "leader_epoch",
    "committed_leader_epoch": "leader_epoch",
    "topic_id": "topic_id",
    "member_id": "member_id",
    "generation_id": "generation_id",
    "generation_id_or_member_epoch": "generation_id",
    "voter_directory_id": "directory_id",
    "replica_directory_id": "directory_id",
    "broker_epoch": "broker_epoch",
    "coordinator_epoch": "coordinator_epoch",
    "partition_epoch": "partition_epoch",
    "path": "path",
}
"""Fields that are mostly filled with what an answer said."""
UUIDS = (bytes(16), bytes(15) + b"\1", b"\xff" * 16, bytes(range(16)))
NAMED_AFTER_STRUCT = {
    "Config": (*TOPIC_CONFIGS, *BROKER_CONFIGS),
    "Protocol": ("range", "roundrobin", "x", ""),
}
SCRAM = {
    "mechanism": (1, 1, 2, 2, 0, 3, -1),
    "iterations": (4096, 4096, 16384, 4095, 16385, 0, -1, 2**31 - 1),
}
LISTENERS = ("PLAINTEXT", "CONTROLLER", "", "x")


class Vocabulary:
    """What an author says: values by the name of a field, and the names of what is mostly said as it was learned."""

    def __init__(
        self, pools: Mapping[str, tuple[Any, ...]] = POOLS, learned: Mapping[str, str] = LEARNED
    ) -> None:
        self._pools = pools
        self.learned = learned

    def pool_of(self, struct_name: str, field: FieldSpec) -> tuple[Any, ...] | None:
        """What a field is mostly one of; None where only its kind tells."""
        if struct_name.startswith("ScramCredential") and field.name in SCRAM:
            return SCRAM[field.name]
        if field.name != "name":
            return self._pools.get(field.name)
        for part, pool in NAMED_AFTER_STRUCT.items():
            if part in struct_name:
                return pool
        if "Listener" in struct_name or "Feature" in struct_name or "Endpoint" in struct_name:
            return LISTENERS
        return TOPICS


PLAIN = Vocabulary()


def subscription(choices: Choices) -> bytes:
    """A consumer's, as the classic protocol has it; often not quite."""
    topics = [one_of(choices, TOPICS) for _ in range(choices.below(3))]
    found = one_of(choices, (0, 1, 2, 3, -1, 99)).to_bytes(2, "big", signed=True) + len(topics).to_bytes(
        4, "big"
    )
    for topic in topics:
        found += len(topic).to_bytes(2, "big") + topic.encode()
    found += b"\xff\xff\xff\xff\0\0\0\0"
    return found if not happens(choices, 30) else found[: choices.below(len(found))]


class Values:
    """Draws one value after another."""

    def __init__(self, choices: Choices, memory: Memory, vocabulary: Vocabulary) -> None:
        self._choices = choices
        self._memory = memory
        self._learned = vocabulary.learned

    def draw(self, pool: tuple[Any, ...] | None, field: FieldSpec, version: int) -> Any:
        choices = self._choices
        if field.nullable(version) and happens(choices, 30):
            return None
        learned = self._learned.get(field.name)
        if learned is not None and happens(choices, 170):
            known = self._memory.values.get(learned)
            if known:
                return known[choices.below(len(known))]
        if pool is not None and field.kind != "float64" and not happens(choices, 24):
            return one_of(choices, pool)
        return self.of_kind(field.kind)

    def of_kind(self, kind: str) -> Any:
        choices = self._choices
        if kind == "bool":
            return bool(choices.below(2))
        if kind == "string":
            return HUGE if happens(choices, 1) else one_of(choices, STRINGS)
        if kind == "uuid":
            return one_of(choices, UUIDS)
        if kind == "bytes":
            return subscription(choices) if happens(choices, 160) else choices.raw(choices.below(64))
        if kind == "float64":
            return one_of(choices, (0.0, -1.0, 0.5, 1024.0, float("inf"), float("nan")))
        if happens(choices, 16) and kind in ("int32", "int64"):
            return choices.below(1000)
        return one_of(choices, INTS[kind])
