"""AlterPartition: which senders may change the ISR, and the controller's response."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.controller._tests.clusters import (
    TOPIC_ID,
    after,
    broker,
    cluster,
    directory,
    partition,
    settings,
)
from kafkacompat.controller.controller_result import BrokerRefused, ControllerResult
from kafkacompat.controller.image import MetadataImage
from kafkacompat.controller.replication_control_manager import alter_partition
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)


def asked(*isr: int, index: int = 0, leader_epoch: int = 5, partition_epoch: int = 9, **fields: Any) -> Any:
    return PartitionData(
        partition_index=index,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=each, broker_epoch=100 + each) for each in isr],
        **fields,
    )


def alter(
    image: MetadataImage, *wanted: Any, sender: int = 1, **properties: str
) -> ControllerResult[Any, Any]:
    request = AlterPartitionRequest(
        broker_id=sender,
        broker_epoch=100 + sender,
        topics=[TopicData(topic_id=TOPIC_ID, partitions=list(wanted))],
    )
    return at_once(alter_partition(image, settings(**properties), request))


def code(result: ControllerResult[Any, Any]) -> int:
    (answer,) = result.response.topics[0].partitions
    found: int = answer.error_code
    return found


def test_a_change_is_made_and_answered_with_what_it_made() -> None:
    image = cluster(partition(1, 2, 3))
    result = alter(image, asked(1, 3))
    (answer,) = result.response.topics[0].partitions
    new = after(image, result).topics["t"].partitions[0]
    assert new.isr == (1, 3)
    assert (new.leader, new.leader_epoch, new.partition_epoch) == (1, 5, 10)
    assert (answer.error_code, answer.leader_id, answer.leader_epoch, answer.isr) == (0, 1, 5, [1, 3])
    assert (answer.partition_epoch, answer.leader_recovery_state) == (10, 0)
    assert result.response.topics[0].topic_id == TOPIC_ID


def test_version_2_states_no_broker_epochs() -> None:
    image = cluster(partition(1, 2, 3))
    wanted = PartitionData(partition_index=0, leader_epoch=5, partition_epoch=9, new_isr=[1, 2])
    assert after(image, alter(image, wanted)).topics["t"].partitions[0].isr == (1, 2)


def test_what_is_so_already_is_answered_and_not_written() -> None:
    result = alter(cluster(partition(1, 2, 3)), asked(1, 2, 3))
    (answer,) = result.response.topics[0].partitions
    assert (result.records, answer.error_code, answer.partition_epoch) == ((), 0, 9)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (asked(1, index=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (asked(1, leader_epoch=6), ErrorCode.NOT_CONTROLLER),
        (asked(1, partition_epoch=10), ErrorCode.NOT_CONTROLLER),
        (asked(1, leader_epoch=4, partition_epoch=10), ErrorCode.NOT_CONTROLLER),
        (asked(1, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (asked(1, leader_epoch=4, partition_epoch=8), ErrorCode.FENCED_LEADER_EPOCH),
        (asked(1, partition_epoch=8), ErrorCode.INVALID_UPDATE_VERSION),
        (asked(), ErrorCode.INVALID_REQUEST),
        (asked(2, 3), ErrorCode.INVALID_REQUEST),
        (asked(1, 4), ErrorCode.INVALID_REQUEST),
        (asked(1, 1), ErrorCode.INVALID_REQUEST),
        (asked(1, leader_recovery_state=1), ErrorCode.INVALID_REQUEST),
        (asked(1, 2, leader_recovery_state=1), ErrorCode.INVALID_REQUEST),
        (asked(1, leader_recovery_state=2), ErrorCode.INVALID_REQUEST),
    ],
)
def test_refusals_in_kafkas_order_i8(wanted: Any, expected: ErrorCode) -> None:
    result = alter(cluster(partition(1, 2, 3)), wanted)
    assert (code(result), result.records) == (expected, ())


def test_only_the_leader_may_ask() -> None:
    result = alter(cluster(partition(1, 2, 3)), asked(1, 2), sender=2)
    assert (code(result), result.records) == (ErrorCode.INVALID_REQUEST, ())


def test_an_unknown_topic_is_told_at_each_partition() -> None:
    request = AlterPartitionRequest(
        broker_id=1, broker_epoch=101, topics=[TopicData(topic_id=b"u" * 16, partitions=[asked(1)])]
    )
    result = at_once(alter_partition(cluster(partition(1, 2, 3)), settings(), request))
    assert (code(result), result.records) == (ErrorCode.UNKNOWN_TOPIC_ID, ())


def test_a_stale_broker_is_refused_whole() -> None:
    topics = [TopicData(topic_id=TOPIC_ID, partitions=[])]
    request = AlterPartitionRequest(broker_id=1, broker_epoch=99, topics=topics)
    with pytest.raises(BrokerRefused) as caught:
        at_once(alter_partition(cluster(partition(1, 2, 3)), settings(), request))
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_a_stale_broker_that_asks_for_nothing_is_not_refused() -> None:
    request = AlterPartitionRequest(broker_id=1, broker_epoch=99)
    result = at_once(alter_partition(cluster(partition(1, 2, 3)), settings(), request))
    assert (result.records, result.response.error_code, result.response.topics) == ((), 0, [])


@pytest.mark.parametrize(
    "third", [broker(3, fenced=True), broker(3, in_controlled_shutdown=True), broker(3, epoch=500), None]
)
def test_a_broker_that_is_away_leaving_or_restarted_may_not_join_the_isr(third: Any) -> None:
    brokers = [1, 2] if third is None else [1, 2, third]
    result = alter(cluster(partition(1, 2, 3, isr=(1, 2)), brokers=brokers), asked(1, 2, 3))
    assert (code(result), result.records) == (ErrorCode.INELIGIBLE_REPLICA, ())


def test_an_epoch_of_minus_one_is_not_checked() -> None:
    image = cluster(partition(1, 2, isr=(1,)))
    wanted = asked(1, 2)
    wanted.new_isr_with_epochs[1].broker_epoch = -1
    assert code(alter(image, wanted)) == 0


def test_the_change_that_completes_a_move_completes_it() -> None:
    moving = partition(1, 2, 3, isr=(1, 2), adding_replicas=(3,), removing_replicas=(2,))
    image = cluster(moving)
    result = alter(image, asked(1, 2, 3))
    new = after(image, result).topics["t"].partitions[0]
    assert (new.replicas, new.isr, new.adding_replicas, new.removing_replicas) == ((1, 3), (1, 3), (), ())
    assert (new.leader, new.leader_epoch) == (1, 6)
    assert new.directories == (directory(1), directory(3))
    (answer,) = result.response.topics[0].partitions
    assert (answer.error_code, answer.isr, answer.leader_epoch) == (0, [1, 3], 6)


def test_a_leader_that_its_own_change_removes_is_told_so() -> None:
    moving = partition(3, 2, 1, isr=(1, 2), leader=1, adding_replicas=(3,), removing_replicas=(1,))
    image = cluster(moving)
    result = alter(image, asked(1, 2, 3))
    new = after(image, result).topics["t"].partitions[0]
    assert code(result) == ErrorCode.NEW_LEADER_ELECTED
    assert (new.replicas, new.isr, new.leader, new.leader_epoch) == ((3, 2), (2, 3), 3, 6)


def test_a_recovering_leader_says_when_it_has_recovered() -> None:
    image = cluster(partition(1, 2, 3, isr=(1,), leader_recovering=True))
    still = alter(image, asked(1, leader_recovery_state=1))
    assert (code(still), still.records) == (0, ())
    result = alter(image, asked(1, 2, leader_recovery_state=0))
    new = after(image, result).topics["t"].partitions[0]
    assert (new.isr, new.leader_recovering) == ((1, 2), False)
    assert code(alter(image, asked(1, 2, leader_recovery_state=1))) == ErrorCode.INVALID_REQUEST


def test_below_min_insync_replicas_who_leaves_stays_eligible() -> None:
    image = cluster(partition(1, 2, 3), configs={(2, "t"): {"min.insync.replicas": "2"}})
    one = after(image, alter(image, asked(1, 2)))
    assert one.topics["t"].partitions[0].eligible_leader_replicas == ()
    two = after(one, alter(one, asked(1, partition_epoch=10)))
    assert two.topics["t"].partitions[0].eligible_leader_replicas == (2,)
    back = after(two, alter(two, asked(1, 3, partition_epoch=11)))
    assert back.topics["t"].partitions[0].eligible_leader_replicas == ()


def test_a_partition_named_twice_is_judged_by_what_the_first_made() -> None:
    image = cluster(partition(1, 2, 3))
    result = alter(image, asked(1, 2), asked(1, 3))
    assert [each.error_code for each in result.response.topics[0].partitions] == [
        0,
        ErrorCode.INVALID_UPDATE_VERSION,
    ]
    assert len(result.records) == 1


def test_the_shrink_of_old_metadata_versions_bumps_the_leader_epoch() -> None:
    image = cluster(partition(1, 2, 3), features={"metadata.version": 11})
    new = after(image, alter(image, asked(1, 2))).topics["t"].partitions[0]
    assert (new.leader, new.leader_epoch) == (1, 6)
