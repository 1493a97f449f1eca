"""Kafkas of others: what their documents, or their public sources, say that they refuse. Nothing else of them is imitated.

- redpanda: the APIs and versions in the sources of Redpanda 24.3.
- event-hubs: Azure Event Hubs accepts only gzip, answers other codecs with UNSUPPORTED_FOR_MESSAGE_FORMAT, and closes the
  connection of a Produce that is larger than 1,046,528 bytes. Session timeouts are between 6 s and 5 min.
- msk-express: the Express brokers of Amazon MSK keep three replicas of each topic, and min.insync.replicas is not the user's.
  It needs three nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkacompat.records.batch import BatchCorrupt, iterate_batches
from kafkacompat.records.compression import GZIP, NONE
from kafkacompat.testing.faults import Close, Effect, Error, Rule, Selector
from kafkacompat.testing.versions import PROTOCOLS, Release
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.tables import APIS

EVENT_HUBS_REQUEST_BYTES_MAX = 1_046_528
EXPRESS_REPLICAS = 3
MIN_ISR = "min.insync.replicas"

_REDPANDA_APIS = {
    "Produce": (0, 7),
    "Fetch": (4, 11),
    "ListOffsets": (0, 4),
    "Metadata": (0, 8),
    "OffsetCommit": (1, 8),
    "OffsetFetch": (1, 7),
    "FindCoordinator": (0, 3),
    "JoinGroup": (0, 6),
    "Heartbeat": (0, 4),
    "LeaveGroup": (0, 4),
    "SyncGroup": (0, 4),
    "DescribeGroups": (0, 5),
    "ListGroups": (0, 4),
    "SaslHandshake": (0, 1),
    "ApiVersions": (0, 3),
    "CreateTopics": (0, 6),
    "DeleteTopics": (0, 5),
    "DeleteRecords": (0, 2),
    "InitProducerId": (0, 3),
    "OffsetForLeaderEpoch": (0, 4),
    "AddPartitionsToTxn": (0, 3),
    "AddOffsetsToTxn": (0, 1),
    "EndTxn": (0, 3),
    "TxnOffsetCommit": (0, 3),
    "DescribeAcls": (0, 2),
    "CreateAcls": (0, 2),
    "DeleteAcls": (0, 2),
    "DescribeConfigs": (0, 4),
    "AlterConfigs": (0, 2),
    "DescribeLogDirs": (0, 2),
    "SaslAuthenticate": (0, 2),
    "CreatePartitions": (0, 3),
    "DeleteGroups": (0, 2),
    "IncrementalAlterConfigs": (0, 1),
    "AlterPartitionReassignments": (0, 0),
    "ListPartitionReassignments": (0, 0),
    "OffsetDelete": (0, 0),
    "DescribeClientQuotas": (0, 1),
    "AlterClientQuotas": (0, 1),
    "DescribeProducers": (0, 0),
    "DescribeTransactions": (0, 0),
    "ListTransactions": (0, 0),
}


class Flavor(NamedTuple):
    name: str
    release: Release | None
    """The APIs, versions and features that it shows. None: those of this package."""
    rules: tuple[Rule, ...]
    """What it refuses."""
    settings: Mapping[str, str]
    """Defaults of the node's settings."""
    nodes_min: int = 1


def flavor(name: str) -> Flavor:
    """Raises ValueError."""
    if name not in _FLAVORS:
        raise ValueError(f"flavor={name!r} is not known; known are {', '.join(sorted(_FLAVORS))}")
    return _FLAVORS[name]


def _always(api: str, effect: Effect, when: Any) -> Rule:
    return Rule(effect, Selector(api=api), times=None, when=when, optional=True)


def _records(request: Any) -> list[Any]:
    return [
        partition.records
        for topic in request.topic_data
        for partition in topic.partition_data
        if partition.records is not None
    ]


def _has_other_codec(request: Any) -> bool:
    try:
        return any(
            each.codec not in (NONE, GZIP)
            for records in _records(request)
            for each in iterate_batches(records)
        )
    except BatchCorrupt:
        return False  # the node refuses it


def _is_too_large(request: Any) -> bool:
    return sum(map(len, _records(request))) > EVENT_HUBS_REQUEST_BYTES_MAX


def _has_other_replicas(request: Any) -> bool:
    return any(
        any(len(one.broker_ids) != EXPRESS_REPLICAS for one in each.assignments)
        if each.assignments
        else each.replication_factor not in (-1, EXPRESS_REPLICAS)
        for each in request.topics
    )


def _sets_min_isr(request: Any) -> bool:
    elements = request.topics if hasattr(request, "topics") else request.resources
    return any(config.name == MIN_ISR for element in elements for config in element.configs)


_FLAVORS = {
    "redpanda": Flavor(
        "redpanda",
        Release(
            "Redpanda 24.3",
            {key: _REDPANDA_APIS[api.name] for key, api in APIS.items() if api.name in _REDPANDA_APIS},
            {},
            {PROTOCOLS: "classic"},
        ),
        (),
        {},
    ),
    "event-hubs": Flavor(
        "event-hubs",
        None,
        (
            _always("Produce", Close(), _is_too_large),
            _always("Produce", Error(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), _has_other_codec),
        ),
        {"group.min.session.timeout.ms": "6000", "group.max.session.timeout.ms": "300000"},
    ),
    "msk-express": Flavor(
        "msk-express",
        None,
        (
            _always("CreateTopics", Error(ErrorCode.INVALID_REPLICATION_FACTOR), _has_other_replicas),
            *(
                _always(api, Error(ErrorCode.INVALID_CONFIG), _sets_min_isr)
                for api in ("CreateTopics", "AlterConfigs", "IncrementalAlterConfigs")
            ),
        ),
        {"default.replication.factor": "3", MIN_ISR: "2", "auto.create.topics.enable": "false"},
        nodes_min=EXPRESS_REPLICAS,
    ),
}
