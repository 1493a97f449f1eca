"""Requests for many new partitions: each opens the logs that it names, a few in a step."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.api._tests.kit import Anything, Api
from kafkacompat.api._tests.test_long_requests import lookups, stepping_api
from kafkacompat.api._tests.test_produce import request as produce_request
from kafkacompat.api._tests.test_produce import transactional
from kafkacompat.partition._tests.kit import topic_image
from kafkacompat.ports.dispatcher import Pending
from kafkacompat.tasks import Tasks
from kafkacompat.txn.marker_writer import LocalMarkerWriter
from kafkacompat.txn.service import Transactions
from kafkacompat.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kafkacompat.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkacompat.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from kafkacompat.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkacompat.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

COUNT = 200
ALL = range(COUNT)
OPENED_A_STEP_MAX = 20
"""At up to a millisecond each."""


class Directories:
    """Opens a log as Placement does."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def alter(self, name: Any, path: str) -> int:
        self._api.world.manager.core(name)
        return 0


REQUESTS = {
    "ListOffsets": (lambda api: lookups(COUNT), 7),
    "OffsetForLeaderEpoch": (
        lambda api: OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic="t", partitions=[OffsetForLeaderPartition(partition=each) for each in ALL]
                )
            ]
        ),
        4,
    ),
    "DeleteRecords": (
        lambda api: DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="t",
                    partitions=[DeleteRecordsPartition(partition_index=each, offset=0) for each in ALL],
                )
            ]
        ),
        2,
    ),
    "DescribeProducers": (
        lambda api: DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=list(ALL))]),
        0,
    ),
    "AlterReplicaLogDirs": (
        lambda api: AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path="/data/b", topics=[AlterReplicaLogDirTopic(name="t", partitions=list(ALL))]
                )
            ]
        ),
        2,
    ),
    "WriteTxnMarkers": (
        lambda api: WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=4,
                    topics=[WritableTxnMarkerTopic(name="t", partition_indexes=list(ALL))],
                )
            ]
        ),
        1,
    ),
    "a Produce of a transaction": (
        lambda api: produce_request(
            *[("t", each, transactional(b"a")) for each in ALL], transactional_id="tx", api=api
        ),
        12,
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_of_many_new_partitions_opens_a_few_logs_in_each_step(name: str) -> None:
    make, version = REQUESTS[name]
    api = stepping_api(topic_image("t", COUNT))
    time: HandTime = api.world.time
    api.node.directories = Directories(api)
    tasks = Tasks(time)
    markers = LocalMarkerWriter(api.world.manager, Anything(), time, tasks, 30_000)
    api.node.transactions = Transactions(Anything(), markers, api.verifier, tasks)

    def opened() -> int:
        return len(api.world.log_manager.logs)

    before = opened()
    assert before < COUNT // 2
    reply = api.send(make(api), version)
    assert isinstance(reply, Pending)
    while True:
        assert opened() - before <= OPENED_A_STEP_MAX
        before = opened()
        if before == COUNT:
            break
        time.fire_next()
