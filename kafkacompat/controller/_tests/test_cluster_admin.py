"""Elections, reassignments, features and the quorum's description through a complete local controller."""

from __future__ import annotations

from typing import Any

from kafkacompat.api.request_context import RequestContext
from kafkacompat.controller._tests.harness import DIRECTORY_ID, Harness
from kafkacompat.raft.snapshot import batch_records
from kafkacompat.records.batch import iterate_batches
from kafkacompat.records.control import ControlType, parse_control_key
from kafkacompat.wire.messages import describe_quorum_request as quorum
from kafkacompat.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest
from kafkacompat.wire.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from kafkacompat.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

ELR = "eligible.leader.replicas.version"


def call(harness: Harness, command: Any, request: Any, version: int = 2) -> Any:
    answer = command(request, RequestContext(0, version, 0, None, 0, "PLAINTEXT", "127.0.0.1"))
    harness.workers.run_all()
    return answer.result()


def describe(harness: Harness) -> Any:
    topics = [
        quorum.TopicData(
            topic_name="__cluster_metadata", partitions=[quorum.PartitionData(partition_index=0)]
        )
    ]
    answer = call(harness, harness.controller.describe_quorum, quorum.DescribeQuorumRequest(topics=topics))
    return answer.topics[0].partitions[0]


def updates(*levels: tuple[str, int, int], validate_only: bool = False) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        validate_only=validate_only,
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in levels
        ],
    )


def control_types(harness: Harness) -> list[int | None]:
    view = memoryview(harness.data())
    return [
        parse_control_key(record.key)
        for header in iterate_batches(view)
        if header.is_control
        for record in batch_records(view, header)
    ]


def test_the_quorum_of_one_has_a_high_watermark_once_its_epoch_is_durable() -> None:
    harness = Harness()
    harness.driver.start(harness.machine)
    early = describe(harness)
    assert (early.error_code, early.leader_id, early.high_watermark) == (0, 1, -1)
    harness.workers.run_all()
    partition = describe(harness)
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 1)
    assert partition.high_watermark == harness.log.log_end_offset
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.replica_directory_id) == (1, bytes(16))
    assert (voter.log_end_offset, voter.last_fetch_timestamp) == (
        harness.log.log_end_offset,
        harness.world.now_ms(),
    )


def test_kraft_version_rises_in_the_quorums_own_records_and_stays_over_a_restart() -> None:
    harness = Harness().start()
    harness.serve()
    raise_it = updates(("kraft.version", 1, 1), (ELR, 0, 2))
    assert call(
        harness, harness.controller.update_features, updates(("kraft.version", 1, 1), ("x", 1, 1))
    ).error_code
    assert ControlType.KRAFT_VERSION not in control_types(harness)
    assert call(harness, harness.controller.update_features, raise_it).error_code == 0
    assert harness.image.features["kraft.version"] == 1
    assert ELR not in harness.image.features
    assert control_types(harness)[-2:] == [ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]
    assert describe(harness).current_voters[0].replica_directory_id == DIRECTORY_ID
    length = len(control_types(harness))
    assert call(harness, harness.controller.update_features, updates(("kraft.version", 1, 1))).error_code == 0
    assert len(control_types(harness)) == length, "there already"

    again = harness.after_kill().start()
    assert again.image.features["kraft.version"] == 1
    assert ELR not in again.image.features
    (voter,) = describe(again).current_voters
    assert (voter.replica_id, voter.replica_directory_id) == (1, DIRECTORY_ID)


def test_elections_and_reassignments_of_one_node_change_nothing() -> None:
    harness = Harness().start()
    harness.serve()
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    call(harness, harness.controller.create_topics, CreateTopicsRequest(topics=[topic]))
    before = harness.log.log_end_offset
    elected = call(harness, harness.controller.elect_leaders, ElectLeadersRequest(topic_partitions=None))
    assert [each.partition_result for each in elected.replica_election_results] == [[]]
    here = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[1])])
    moved = call(
        harness,
        harness.controller.alter_partition_reassignments,
        AlterPartitionReassignmentsRequest(topics=[here]),
    )
    assert moved.responses[0].partitions[0].error_code == 0
    ongoing = call(
        harness, harness.controller.list_partition_reassignments, ListPartitionReassignmentsRequest()
    )
    assert (ongoing.topics, harness.log.log_end_offset) == ([], before)
