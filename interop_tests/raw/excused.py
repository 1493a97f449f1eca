"""The permitted differences between the responses of Apache Kafka and kafkacompat, each with the reason.

NOT_COMPARED are fields of responses. NOT_SENT are requests whose response from Kafka is accidental or missing. The
author sends another request instead, because later responses would differ too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from kafkacompat._tests.fuzz.values import TOPICS, WITNESSED_TOPIC
from kafkacompat.group.consumer_protocol import MalformedSubscription, subscribed_topics
from kafkacompat.wire.config_resources import ConfigResourceType

NOT_COMPARED: dict[tuple[str, str], str] = {
    (
        "ApiVersionsResponse",
        "api_keys",
    ): "the APIs that are served are listed in docs/reference/compatibility.md",
    ("ApiVersionsResponse", "supported_features"): "so are the features",
    ("ApiVersionsResponse", "finalized_features"): "and which of them clients are told",
    ("ApiVersionsResponse", "finalized_features_epoch"): "an offset of the metadata log",
    ("DescribeQuorumResponse", "log_end_offset"): "an offset of the metadata log",
    ("DescribeQuorumResponse", "high_watermark"): "an offset of the metadata log",
    ("DescribeQuorumResponse", "leader_epoch"): "how many elections there were",
    ("DescribeQuorumResponse", "last_fetch_timestamp"): "a time",
    ("DescribeQuorumResponse", "last_caught_up_timestamp"): "a time",
    ("DescribeLogDirsResponse", "partition_size"): "bytes of the files",
    ("DescribeLogDirsResponse", "total_bytes"): "the machine's",
    ("DescribeLogDirsResponse", "usable_bytes"): "the machine's",
}


class NotSent(NamedTuple):
    reason: str
    apis: frozenset[str]
    forbids_message: Callable[[Any, int], bool]
    """The name of a message and its version."""

    def forbids(self, api: str, message: Any, version: int) -> bool:
        return api in self.apis and self.forbids_message(message, version)


def is_repeated(items: Iterable[Hashable]) -> bool:
    items = list(items)
    return len(items) > len(set(items))


def length_of(records: bytes | None) -> int:
    """The length in the first batch's header, which may be negative."""
    return int.from_bytes((records or b"")[8:12], "big", signed=True)


def is_subscription(metadata: bytes) -> bool:
    """Whether a member's metadata is a consumer's subscription, or ends before its topics do."""
    try:
        subscribed_topics(metadata)
    except MalformedSubscription:
        return len(metadata) < 6
    return True


BROKER, LOGGERS = 4, 8
RESOURCE_TYPES = {each for each in ConfigResourceType if each is not ConfigResourceType.UNKNOWN}
ADDRESSES = {"listeners", "advertised.listeners", "log.dirs"}
PARTITIONS_OF_A_TOPIC = 2
EXISTING = {*TOPICS, WITNESSED_TOPIC, "barrier"}
"""Topics that may exist, with so many partitions or more."""
METADATA_MAX = 4096
"""The value of offset.metadata.max.bytes."""


def of_offset_fetch(message: Any) -> Iterator[Iterable[Hashable]]:
    yield [group.group_id for group in message.groups]
    for topics in (message.topics, *(group.topics for group in message.groups)):
        yield [(topic.name, getattr(topic, "topic_id", None)) for topic in topics or ()]
        yield from (topic.partition_indexes for topic in topics or ())


NAMED: dict[str, Callable[[Any], Iterator[Iterable[Hashable]]]] = {
    "DescribeGroups": lambda message: iter([message.groups]),
    "DescribeConfigs": lambda message: iter(
        [[(each.resource_type, each.resource_name) for each in message.resources]]
    ),
    "DescribeProducers": lambda message: iter(
        [[topic.name for topic in message.topics], *(topic.partition_indexes for topic in message.topics)]
    ),
    "DescribeTransactions": lambda message: iter([message.transactional_ids]),
    "OffsetFetch": of_offset_fetch,
    "OffsetForLeaderEpoch": lambda message: iter(
        [
            [topic.topic for topic in message.topics],
            *([each.partition for each in topic.partitions] for topic in message.topics),
        ]
    ),
}
"""The lists of a message in which no element may appear twice."""

NOT_SENT_WITHOUT_RIGHTS: tuple[NotSent, ...] = (
    NotSent(
        "the refusal of a question about all users is never answered: it has a row for each user that the request names",
        frozenset({"DescribeUserScramCredentials"}),
        lambda message, version: message.users is None,
    ),
)
"""Where the sender may lack rights."""

NOT_SENT_OF_SHARES: tuple[NotSent, ...] = (
    NotSent(
        "a negative number of records or bytes is waited for (docs/reference/compatibility.md)",
        frozenset({"ShareFetch"}),
        lambda message, version: message.max_records < 0 or message.max_bytes < 0,
    ),
)
"""Of an author who knows share groups: the requests of another one do not come so far."""

NOT_SENT: tuple[NotSent, ...] = (
    NotSent(
        "a broker of Kafka's forgets who is added to a mechanism by the change that deletes its last user (ScramDelta)",
        frozenset({"AlterUserScramCredentials"}),
        lambda message, version: bool(message.deletions and message.upsertions),
    ),
    NotSent(
        "a consumer's metadata that is no subscription ends the timer of the group's rebalance, and no member is answered",
        frozenset({"JoinGroup"}),
        lambda message, version: (
            message.protocol_type == "consumer"
            and not all(is_subscription(bytes(each.metadata)) for each in message.protocols)
        ),
    ),
    NotSent(
        "an isolation level that has no name fails the request in the middle of its partitions",
        frozenset({"Fetch", "ListOffsets"}),
        lambda message, version: message.isolation_level not in (0, 1),
    ),
    NotSent(
        "under a quota throttle times, and when the next request is read, depend on the moments of the requests before",
        frozenset({"AlterClientQuotas"}),
        lambda message, version: (
            not message.validate_only and any(not op.remove for entry in message.entries for op in entry.ops)
        ),
    ),
    NotSent(
        "a config operation that has no name fails the whole request, not the resource",
        frozenset({"IncrementalAlterConfigs"}),
        lambda message, version: any(
            config.config_operation not in (0, 1, 2, 3)
            for resource in message.resources
            for config in resource.configs
        ),
    ),
    NotSent(
        "the shard of a fetch session that is negative, or beyond the last one, fails the request",
        frozenset({"Fetch"}),
        lambda message, version: not 0 <= message.session_id < 2**31 - 8,
    ),
    NotSent(
        "after a topic without name and id in an answer, the next one's name fails the request",
        frozenset({"Fetch"}),
        lambda message, version: (
            version >= 13 and any(topic.topic_id == bytes(16) for topic in message.topics)
        ),
    ),
    NotSent(
        "a voter's listener without a name ends the process",
        frozenset({"AddRaftVoter"}),
        lambda message, version: any(not listener.name for listener in message.listeners),
    ),
    NotSent(
        "of a partition that is named twice the last mention is written, and the answer may be another's",
        frozenset({"Produce"}),
        lambda message, version: is_repeated(
            (topic.name, topic.topic_id, partition.index)
            for topic in message.topic_data
            for partition in topic.partition_data
        ),
    ),
    NotSent(
        "a cursor beyond what a topic may have runs over, and the next one is negative",
        frozenset({"DescribeTopicPartitions"}),
        lambda message, version: message.cursor is not None and message.cursor.partition_index > 2**30,
    ),
    NotSent(
        "a negative number of bytes fails the partitions that are read",
        frozenset({"Fetch"}),
        lambda message, version: (
            message.max_bytes < 0
            or any(
                partition.partition_max_bytes < 0
                for topic in message.topics
                for partition in topic.partitions
            )
        ),
    ),
    NotSent(
        "a broker's settings and loggers are compared name by name in tests of their own",
        frozenset({"DescribeConfigs"}),
        lambda message, version: any(
            each.resource_type == LOGGERS
            or (
                each.resource_type == BROKER
                and not (each.configuration_keys and ADDRESSES.isdisjoint(each.configuration_keys))
            )
            for each in message.resources
        ),
    ),
    NotSent(
        "a batch whose length goes beyond 31 bits with its overhead fails the request",
        frozenset({"Produce"}),
        lambda message, version: any(
            length_of(partition.records) > 2**31 - 13
            for topic in message.topic_data
            for partition in topic.partition_data
        ),
    ),
    NotSent(
        "a request that names a resource twice is never answered; all types without a name are one",
        frozenset({"AlterConfigs"}),
        lambda message, version: is_repeated(
            (each.resource_type if each.resource_type in RESOURCE_TYPES else None, each.resource_name)
            for each in message.resources
        ),
    ),
    NotSent(
        "a partition without records is never answered, nor are the others",
        frozenset({"Produce"}),
        lambda message, version: any(
            partition.records is None for topic in message.topic_data for partition in topic.partition_data
        ),
    ),
    NotSent(
        "a request for no transactions is never answered; one that is named twice is answered as its last mention",
        frozenset({"AddPartitionsToTxn"}),
        lambda message, version: (
            version >= 4
            and (
                not message.transactions
                or is_repeated(each.transactional_id for each in message.transactions)
            )
        ),
    ),
    NotSent(
        "a marker for partitions that are not there, after others, is never answered; nor is a partition that is named twice",
        frozenset({"WriteTxnMarkers"}),
        lambda message, version: (
            len(message.markers) > 1
            or any(
                is_repeated(
                    (topic.name, index) for topic in marker.topics for index in topic.partition_indexes
                )
                for marker in message.markers
            )
        ),
    ),
    NotSent(
        "a transaction version that has no name fails the marker",
        frozenset({"WriteTxnMarkers"}),
        lambda message, version: any(marker.transaction_version < 0 for marker in message.markers),
    ),
    NotSent(
        "what is named twice is answered once by ours (docs/reference/compatibility.md)",
        frozenset(NAMED),
        lambda message, version: any(
            is_repeated(names) for names in NAMED[type(message).__name__[: -len("Request")]](message)
        ),
    ),
    NotSent(
        "a protocol that a member names twice has more supporters than the group has members, and nobody is answered",
        frozenset({"JoinGroup"}),
        lambda message, version: is_repeated(each.name for each in message.protocols),
    ),
    NotSent(
        "Kafka asks half a minute long for the state of a partition that its topic does not have (docs/reference/compatibility.md)",
        frozenset({"DescribeShareGroupOffsets"}),
        lambda message, version: any(
            index >= PARTITIONS_OF_A_TOPIC
            for group in message.groups
            if group.group_id
            for topic in group.topics or ()
            if topic.topic_name in EXISTING
            for index in topic.partitions
        ),
    ),
    NotSent(
        "a negative partition spoils the record of a share group (docs/reference/compatibility.md)",
        frozenset({"AlterShareGroupOffsets"}),
        lambda message, version: any(
            partition.partition_index < 0
            for topic in message.topics
            if topic.topic_name in EXISTING
            for partition in topic.partitions
        ),
    ),
    NotSent(
        "an offset commit that is refused for its metadata leaves a group behind that is not written",
        frozenset({"OffsetCommit", "TxnOffsetCommit"}),
        lambda message, version: any(
            len(partition.committed_metadata or "") > METADATA_MAX
            for topic in message.topics
            for partition in topic.partitions
        ),
    ),
)


UNKNOWN_SERVER_ERROR = -1
WITHOUT_TOPIC = (3, 100)


def is_lost_share_fetch(ours: Any, theirs: Any) -> bool:
    """Kafka loses the whole answer over a partition whose topic does not exist (docs/reference/compatibility.md)."""
    return (
        type(ours).__name__ == type(theirs).__name__ == "ShareFetchResponse"
        and theirs.error_code == UNKNOWN_SERVER_ERROR
        and any(one.error_code in WITHOUT_TOPIC for topic in ours.responses for one in topic.partitions)
    )
