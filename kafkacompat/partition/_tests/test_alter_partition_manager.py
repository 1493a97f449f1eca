"""Proposals to the controller: batches, one request at a time, and repeated sends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from conftest import Faults
from kafkacompat._tests.doubles import HandTime
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import open_log
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.partition import alter_partition_manager
from kafkacompat.partition._tests.kit import broker_epoch, broker_image, partition_image
from kafkacompat.partition._tests.services import partition_services
from kafkacompat.partition.alter_partition_manager import RETRY_MS, AlterPartitionManager
from kafkacompat.partition.partition import Altered, Partition, Standing
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_partition_response import (
    AlterPartitionResponse,
    PartitionData,
    TopicData,
)

TOPIC_ID = b"t" * 16
EPOCH = 4


class Desk:
    """The requests sent, with methods to answer them."""

    def __init__(
        self,
        halt: Callable[[BaseException], None] | None = None,
        altered: Callable[[Partition, Altered], None] | None = None,
    ) -> None:
        self.time = HandTime()
        self.sent: list[tuple[Any, Deferred[Any]]] = []
        self.outcomes: list[tuple[int, Altered]] = []
        self.alters = AlterPartitionManager(
            partition_services(1, None, self.time, None, halt=halt),
            lambda: 50,
            self._send,
            altered or self._altered,
        )

    def _send(self, request: Any) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.sent.append((request, answer))
        return answer

    def _altered(self, core: Partition, outcome: Altered) -> None:
        self.outcomes.append((core.topic_partition.partition, outcome))

    def partitions(self, at: int = -1) -> list[int]:
        return [one.partition_index for topic in self.sent[at][0].topics for one in topic.partitions]

    def answer(self, errors: dict[int, int], at: int = -1) -> None:
        request, answer = self.sent[at]
        asked = {one.partition_index: one for topic in request.topics for one in topic.partitions}
        rows = [
            PartitionData(
                partition_index=index,
                error_code=error,
                leader_id=1,
                leader_epoch=EPOCH,
                isr=[state.broker_id for state in asked[index].new_isr_with_epochs],
                partition_epoch=asked[index].partition_epoch + 1,
            )
            for index, error in errors.items()
        ]
        answer.resolve(AlterPartitionResponse(topics=[TopicData(topic_id=TOPIC_ID, partitions=rows)]))


def partition(index: int) -> Partition:
    """A partition led here, which node 2 asks to join."""
    name = TopicPartition("t", index)
    standing = Standing()
    standing.brokers = {2: broker_image(2)}
    core = Partition(1, name, TOPIC_ID, open_log(MemoryDisk()), standing)
    core.become(partition_image(replicas=(1, 2), isr=(1,), epoch=EPOCH), 0)
    core.update_follower_fetch_state(2, 0, 0, broker_epoch(2), 0)
    return core


def submit(desk: Desk, *cores: Partition) -> None:
    for core in cores:
        proposal = core.maybe_expand_isr(2)
        assert proposal is not None
        desk.alters.submit(core, proposal)


def test_one_request_is_in_flight_and_the_next_takes_all_that_waited() -> None:
    desk = Desk()
    first, second, third = partition(0), partition(1), partition(2)
    submit(desk, first, second, third)
    assert len(desk.sent) == 1
    request = desk.sent[0][0]
    assert (request.broker_id, request.broker_epoch) == (1, 50)
    row = request.topics[0].partitions[0]
    assert [(state.broker_id, state.broker_epoch) for state in row.new_isr_with_epochs] == [
        (1, 50),
        (2, broker_epoch(2)),
    ]
    assert (row.leader_epoch, row.partition_epoch) == (EPOCH, 3 * EPOCH)
    desk.answer({0: 0})
    assert desk.outcomes == [(0, Altered.COMMITTED)]
    assert first.isr == (1, 2)
    assert desk.partitions() == [1, 2]
    desk.answer({1: ErrorCode.INELIGIBLE_REPLICA, 2: 0})
    assert desk.outcomes[1:] == [(1, Altered.REJECTED), (2, Altered.COMMITTED)]
    assert len(desk.sent) == 2


def test_a_request_has_a_bounded_number_of_partitions_and_the_others_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alter_partition_manager, "SENT_AT_ONCE_MAX", 3)
    desk = Desk()
    cores = [partition(index) for index in range(9)]
    submit(desk, *cores)
    desk.answer({0: 0})
    assert desk.partitions() == [1, 2, 3]
    # Proposals that were withdrawn are passed over, also where they would fill a request.
    for core in cores[4:7]:
        core.pending = None
    desk.answer({1: 0, 2: ErrorCode.NOT_CONTROLLER, 3: 0})
    desk.time.advance(RETRY_MS)
    assert desk.partitions() == [7, 8, 2]
    desk.answer({7: 0, 8: 0, 2: 0})
    assert len(desk.sent) == 3
    assert [index for index, _ in desk.outcomes] == [0, 1, 3, 7, 8, 2]


def test_lost_refused_and_unanswered_ones_are_sent_again_after_a_pause() -> None:
    desk = Desk()
    core = partition(0)
    submit(desk, core)
    desk.sent[-1][1].fail(ConnectionError("gone"))
    assert len(desk.sent) == 1
    desk.time.advance(RETRY_MS)
    desk.sent[-1][1].resolve(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    desk.time.advance(RETRY_MS)
    desk.answer({})
    desk.time.advance(RETRY_MS)
    desk.answer({0: ErrorCode.NOT_CONTROLLER})
    desk.time.advance(RETRY_MS)
    desk.answer({0: 9999})  # as from a newer controller
    desk.time.advance(RETRY_MS)
    assert len(desk.sent) == 6
    assert desk.outcomes == []
    desk.answer({0: 0})
    assert desk.outcomes == [(0, Altered.COMMITTED)]


def test_a_change_that_the_metadata_tells_before_the_answer_is_counted() -> None:
    desk = Desk()
    core, other = partition(0), partition(1)
    submit(desk, core, other)
    epoch = 3 * EPOCH + 1
    core.become(replace(partition_image(replicas=(1, 2), epoch=EPOCH), partition_epoch=epoch), 0)
    desk.answer({0: 0})
    assert desk.outcomes == [(0, Altered.OUTDATED)]
    assert desk.alters._changes.expands == 1
    # This one the controller has not made.
    image = partition_image(replicas=(1, 2), isr=(1,), epoch=EPOCH)
    other.become(replace(image, partition_epoch=epoch), 0)
    row = PartitionData(partition_index=1, leader_id=1, leader_epoch=EPOCH, isr=[1])
    desk.sent[-1][1].resolve(AlterPartitionResponse(topics=[TopicData(topic_id=TOPIC_ID, partitions=[row])]))
    assert desk.alters._changes.expands == 1


def test_what_the_metadata_decided_meanwhile_is_not_sent_again() -> None:
    desk = Desk()
    core = partition(0)
    submit(desk, core)
    core.become(partition_image(replicas=(1, 2), isr=(1, 2), leader=2, epoch=EPOCH + 1), 0)
    desk.sent[-1][1].fail(ConnectionError("gone"))
    desk.time.advance(RETRY_MS)
    assert len(desk.sent) == 1


def test_a_newer_proposal_takes_the_place_of_one_in_flight() -> None:
    desk = Desk()
    core = partition(0)
    submit(desk, core)
    core.become(partition_image(replicas=(1, 2), isr=(1,), epoch=EPOCH + 1), 0)
    core.update_follower_fetch_state(2, 0, 0, broker_epoch(2), 0)
    submit(desk, core)
    assert len(desk.sent) == 1
    desk.sent[-1][1].fail(ConnectionError("gone"))
    desk.time.advance(RETRY_MS)
    assert desk.sent[-1][0].topics[0].partitions[0].leader_epoch == EPOCH + 1
    assert len(desk.sent) == 2


def test_what_fails_unexpectedly_is_reported_and_sent_again(faults: Faults) -> None:
    desk = Desk()
    core = partition(0)
    submit(desk, core)
    bug = KeyError("of this node's own")
    desk.sent[-1][1].fail(bug)
    assert faults.take() == [bug]
    desk.time.advance(RETRY_MS)
    desk.answer({0: 0})
    assert core.isr == (1, 2)


def test_an_answer_that_cannot_be_applied_halts_the_node() -> None:
    """What other partitions of the request were told would be lost otherwise."""
    bug = KeyError("of this node's own")
    halted: list[BaseException] = []

    def altered(core: Partition, outcome: Altered) -> None:
        raise bug

    desk = Desk(halted.append, altered)
    submit(desk, partition(0), partition(1))
    desk.answer({0: 0})
    assert halted == [bug]


def test_nothing_is_sent_after_the_end() -> None:
    desk = Desk()
    submit(desk, partition(0))
    desk.alters.close()
    desk.sent[-1][1].fail(ConnectionError("gone"))
    desk.time.advance(RETRY_MS)
    submit(desk, partition(1))
    assert len(desk.sent) == 1
