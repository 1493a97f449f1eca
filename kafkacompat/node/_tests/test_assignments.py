"""Reports of directories to the controller: in batches, until they are accepted, and only for this broker's replicas. KIP-858."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from conftest import Faults
from kafkacompat._tests.doubles import HandTime
from kafkacompat.controller.image import MetadataImage, PartitionRegistration, TopicImage
from kafkacompat.deferred import Deferred
from kafkacompat.ids import Uuid
from kafkacompat.net.channels import ConnectionLost
from kafkacompat.node.assignments_manager import (
    ASSIGNMENTS_PER_REQUEST_MAX,
    LINGER_MS,
    RETRY_MS,
    AssignmentsManager,
)
from kafkacompat.tasks import Tasks
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from kafkacompat.wire.messages.assign_replicas_to_dirs_response import (
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)

NODE, OTHER = 4, 5
A, B = b"\xa0" * 16, b"\xb0" * 16
TOPIC = b"\x07" * 16
PARTITIONS = ASSIGNMENTS_PER_REQUEST_MAX + 10


def partition(*replicas: int) -> PartitionRegistration:
    return PartitionRegistration(
        replicas, (bytes(16),) * len(replicas), replicas, (), (), (), (), replicas[0], False, 0, 0
    )


def image(metadata_version: int = 30) -> MetadataImage:
    partitions = {index: partition(NODE) for index in range(PARTITIONS)} | {PARTITIONS: partition(OTHER)}
    topic = TopicImage("t", TOPIC, partitions)
    return MetadataImage(
        offset=1,
        features={"metadata.version": metadata_version},
        topics={"t": topic},
        topics_by_id={TOPIC: topic},
    )


class AssigningBroker:
    def __init__(self) -> None:
        self.time = HandTime()
        self.image = image()
        self.sent: list[tuple[AssignReplicasToDirsRequest, Deferred[Any]]] = []
        self.accepted: list[str] = []
        self.assignments = AssignmentsManager(NODE, self, Tasks(self.time), lambda: self.image, lambda: 77)

    def request(self, message: AssignReplicasToDirsRequest, timeout_ms: int) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.sent.append((message, answer))
        return answer

    def assign(self, index: int, directory: Uuid, name: str = "") -> None:
        self.assignments.assign(TOPIC, index, directory, lambda: self.accepted.append(name))

    def wait(self, ms: int = LINGER_MS) -> None:
        self.time.advance(ms)

    def asked(self, at: int = -1) -> dict[Uuid, dict[Uuid, list[int]]]:
        return {
            directory.id: {
                topic.topic_id: [each.partition_index for each in topic.partitions]
                for topic in directory.topics
            }
            for directory in self.sent[at][0].directories
        }

    def answer(self, codes: dict[int, ErrorCode] | None = None) -> None:
        message, answer = self.sent[-1]
        answer.resolve(
            AssignReplicasToDirsResponse(
                directories=[
                    DirectoryData(
                        id=directory.id,
                        topics=[
                            TopicData(
                                topic_id=topic.topic_id,
                                partitions=[
                                    PartitionData(
                                        partition_index=each.partition_index,
                                        error_code=(codes or {}).get(each.partition_index, ErrorCode.NONE),
                                    )
                                    for each in topic.partitions
                                ],
                            )
                            for topic in directory.topics
                        ],
                    )
                    for directory in message.directories
                ]
            )
        )


def test_what_comes_together_is_told_together() -> None:
    world = AssigningBroker()
    world.assign(0, A, "first")
    world.assign(1, B, "second")
    world.assign(0, B, "third")
    assert world.sent == []
    world.wait()
    assert world.asked() == {B: {TOPIC: [1, 0]}}
    assert (world.sent[0][0].broker_id, world.sent[0][0].broker_epoch) == (NODE, 77)
    world.answer()
    assert world.accepted == ["second", "third"]
    assert world.time.pending() == []


def test_one_request_at_a_time_of_so_many_replicas() -> None:
    world = AssigningBroker()
    for index in range(PARTITIONS):
        world.assign(index, A)
    world.wait(1000)
    assert [len(world.asked(at)[A][TOPIC]) for at in range(len(world.sent))] == [ASSIGNMENTS_PER_REQUEST_MAX]
    world.answer()
    world.wait()
    assert len(world.asked()[A][TOPIC]) == 10


def test_replicas_of_others_are_left_out() -> None:
    world = AssigningBroker()
    world.assign(PARTITIONS, A)
    world.assignments.assign(b"\x09" * 16, 0, A)
    world.wait()
    assert world.sent == []
    assert world.time.pending() == []


def test_failures_and_refusals_are_told_again_later_and_later() -> None:
    world = AssigningBroker()
    world.assign(0, A, "zero")
    world.assign(1, A, "one")
    world.wait()
    world.sent[-1][1].fail(ConnectionLost("gone"))
    world.wait(RETRY_MS - 1)
    assert len(world.sent) == 1
    world.wait(1)
    world.sent[-1][1].resolve(AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    world.wait(2 * RETRY_MS - 1)
    assert len(world.sent) == 2
    world.wait(1)
    world.answer({1: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    assert world.accepted == ["zero"]
    world.wait(RETRY_MS)
    assert world.asked() == {A: {TOPIC: [1]}}
    world.answer()
    assert world.accepted == ["zero", "one"]


def test_something_newer_wins_over_an_answer_and_over_a_retry() -> None:
    world = AssigningBroker()
    world.assign(0, A, "old")
    world.wait()
    world.assign(0, B, "new")
    world.answer()
    assert world.accepted == []
    world.wait()
    assert world.asked() == {B: {TOPIC: [0]}}
    world.assign(0, A, "newest")
    world.sent[-1][1].fail(ConnectionLost("gone"))
    world.wait(RETRY_MS)
    assert world.asked() == {A: {TOPIC: [0]}}
    world.answer()
    assert world.accepted == ["newest"]


def test_before_directories_are_known_to_the_cluster_nothing_is_told() -> None:
    world = AssigningBroker()
    world.image = replace(world.image, features={"metadata.version": 16})
    world.assign(0, A, "at once")
    world.wait(1000)
    assert world.sent == []
    assert world.accepted == ["at once"]


def test_nothing_is_sent_after_the_end() -> None:
    world = AssigningBroker()
    world.assign(0, A)
    world.assignments.close()
    world.wait(1000)
    assert world.sent == []


def test_what_the_controller_has_not_accepted_is_queued() -> None:
    world = AssigningBroker()
    assert world.assignments.queued == 0
    for index in range(3):
        world.assign(index, A)
    assert world.assignments.queued == 3
    world.wait()
    world.assign(3, A)
    assert (len(world.sent), world.assignments.queued) == (1, 4)
    world.answer({1: ErrorCode.UNKNOWN_SERVER_ERROR})
    assert world.assignments.queued == 2
    world.wait(RETRY_MS)
    world.answer()
    assert world.assignments.queued == 0
    world.assign(4, A)
    world.assignments.close()
    assert world.assignments.queued == 0


def test_an_error_that_only_a_newer_controller_knows_is_a_refusal() -> None:
    world = AssigningBroker()
    world.assign(0, A, "zero")
    world.wait()
    world.sent[-1][1].resolve(AssignReplicasToDirsResponse(error_code=9999))
    assert world.assignments.queued == 1
    world.wait(RETRY_MS)
    world.answer()
    assert (world.accepted, world.assignments.queued) == (["zero"], 0)


def test_what_fails_unexpectedly_is_reported_and_sent_again(faults: Faults) -> None:
    world = AssigningBroker()
    world.assign(0, A, "zero")
    world.wait()
    world.sent[-1][1].fail(OSError(28, "the own controller has no room"))
    world.wait(RETRY_MS)
    bug = KeyError("of this node's own")
    world.sent[-1][1].fail(bug)
    assert faults.take() == [bug]
    world.wait(2 * RETRY_MS)
    world.answer()
    assert (world.accepted, world.assignments.queued) == (["zero"], 0)


def test_one_whose_acceptance_cannot_be_told_does_not_keep_the_others_from_theirs(faults: Faults) -> None:
    world = AssigningBroker()
    bug = KeyError("of the move")

    def accepted() -> None:
        raise bug

    world.assignments.assign(TOPIC, 0, A, accepted)
    world.assign(1, A, "one")
    world.wait()
    world.answer()
    assert faults.take() == [bug]
    assert (world.accepted, world.assignments.queued) == (["one"], 0)
    world.assign(2, A, "two")
    world.wait()
    world.answer()
    assert world.accepted == ["one", "two"]
