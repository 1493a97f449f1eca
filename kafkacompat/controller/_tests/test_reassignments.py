"""Reassignments over several brokers: start, completion by the ISR, cancellation, refusals (KIP-455, KIP-860)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.controller._tests.clusters import (
    after,
    broker,
    cluster,
    directory,
    isr_change,
    partition,
    settings,
)
from kafkacompat.controller.controller_result import ControllerResult
from kafkacompat.controller.image import MetadataImage, PartitionRegistration
from kafkacompat.controller.partition_change_builder import Election, partition_change
from kafkacompat.controller.replication_control_manager import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from kafkacompat.tasks import at_once
from kafkacompat.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkacompat.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)


def alter(
    image: MetadataImage,
    *wanted: tuple[int, list[int] | None],
    topic: str = "t",
    factor_may_change: bool = True,
    **properties: str,
) -> tuple[ControllerResult[Any, Any], list[tuple[int, str | None]]]:
    partitions = [ReassignablePartition(partition_index=index, replicas=each) for index, each in wanted]
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=factor_may_change,
        topics=[ReassignableTopic(name=topic, partitions=partitions)],
    )
    result = at_once(alter_partition_reassignments(image, settings(**properties), request))
    assert result.response.error_code == 0
    return result, [(each.error_code, each.error_message) for each in result.response.responses[0].partitions]


def moved(image: MetadataImage, target: list[int] | None, **properties: str) -> MetadataImage:
    result, answer = alter(image, (0, target), **properties)
    assert answer == [(0, None)]
    return after(image, result)


def of(image: MetadataImage, index: int = 0) -> PartitionRegistration:
    return image.topics["t"].partitions[index]


def in_sync(image: MetadataImage, *isr: int) -> MetadataImage:
    """The leader reports a new ISR."""
    record = isr_change(image, *isr)
    return after(image, ControllerResult(() if record is None else (record,), None))


def listed(image: MetadataImage, topics: list[tuple[str, list[int]]] | None = None) -> Any:
    named = (
        None
        if topics is None
        else [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in topics
        ]
    )
    response = at_once(
        list_partition_reassignments(image, ListPartitionReassignmentsRequest(topics=named))
    ).response
    return [
        (topic.name, each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in response.topics
        for each in topic.partitions
    ]


def test_a_move_keeps_the_old_replicas_until_the_new_ones_are_in_sync() -> None:
    image = moved(cluster(partition(1, 2)), [3, 4])
    started = of(image)
    assert started.replicas == (3, 4, 1, 2)
    assert (started.adding_replicas, started.removing_replicas) == ((3, 4), (1, 2))
    assert (started.leader, started.leader_epoch, started.partition_epoch, started.isr) == (1, 5, 10, (1, 2))
    assert started.directories == tuple(map(directory, (3, 4, 1, 2)))
    assert listed(image) == [("t", 0, [3, 4, 1, 2], [3, 4], [1, 2])]

    image = in_sync(image, 1, 2, 3)
    assert of(image).adding_replicas == (3, 4), "one of two is not enough"
    image = in_sync(image, 1, 2, 3, 4)
    done = of(image)
    assert (done.replicas, done.isr) == ((3, 4), (3, 4))
    assert (done.adding_replicas, done.removing_replicas) == ((), ())
    assert done.directories == (directory(3), directory(4))
    assert (done.leader, done.leader_epoch) == (3, 6), "the leader has left"
    assert listed(image) == []


def test_a_leader_that_stays_gets_a_new_epoch_when_a_replica_leaves() -> None:
    image = in_sync(moved(cluster(partition(1, 2)), [1, 3]), 1, 2, 3)
    assert (of(image).replicas, of(image).leader, of(image).leader_epoch) == ((1, 3), 1, 6)


def test_a_new_order_and_fewer_replicas_need_no_wait() -> None:
    image = moved(cluster(partition(1, 2, 3)), [3, 1, 2])
    assert (of(image).replicas, of(image).leader_epoch, listed(image)) == ((3, 1, 2), 5, [])
    assert of(image).directories == tuple(map(directory, (3, 1, 2)))
    image = moved(image, [2])
    assert (of(image).replicas, of(image).isr, of(image).leader, of(image).leader_epoch) == ((2,), (2,), 2, 6)


def test_fewer_replicas_wait_until_those_that_stay_are_in_sync() -> None:
    image = moved(cluster(partition(1, 2, 3, isr=(1, 2))), [2, 3])
    assert of(image).removing_replicas == (1,)
    image = in_sync(image, 1, 2, 3)
    assert (of(image).replicas, of(image).isr, of(image).leader) == ((2, 3), (2, 3), 2)


def test_as_many_that_come_as_go_wait_only_for_those_that_come() -> None:
    image = moved(cluster(partition(1, 2, 3, isr=(1,))), [2, 3, 4])
    image = in_sync(image, 1, 4)
    assert (of(image).replicas, of(image).isr, of(image).leader) == ((2, 3, 4), (4,), 4)


def test_a_replica_that_is_moved_away_is_not_eligible_any_more() -> None:
    """Kafka 4.3.0 keeps it eligible. Moved back, it would lead with an empty log, and until then no last known leader
    is elected."""
    image = cluster(
        partition(1, 2, 3, isr=(1,), leader=1, eligible_leader_replicas=(2,)),
        configs={(2, "t"): {"min.insync.replicas": "2"}},
    )
    arrived = in_sync(moved(image, [3, 4, 2]), 4)
    assert (of(arrived).replicas, of(arrived).isr) == ((3, 4, 2), (4,))
    assert of(arrived).eligible_leader_replicas == (2,)


def test_staying_where_it_is_writes_nothing() -> None:
    result, answer = alter(cluster(partition(1, 2)), (0, [1, 2]))
    assert (answer, result.records) == ([(0, None)], ())


@pytest.mark.parametrize("isr", [(1, 2), (1, 2, 3), (3, 1)], ids=str)
def test_cancelling_goes_back_to_what_was_there(isr: tuple[int, ...]) -> None:
    image = in_sync(moved(cluster(partition(1, 2)), [3, 4]), *isr)
    image = moved(image, None)
    back = of(image)
    assert (back.replicas, back.adding_replicas, back.removing_replicas) == ((1, 2), (), ())
    assert set(back.isr) == set(isr) - {3}
    assert back.leader == 1
    assert back.leader_epoch == 6, "those that were coming are fenced off"
    assert alter(image, (0, None))[1] == [(85, None)]


def only_the_comers_in_sync() -> MetadataImage:
    moving = partition(3, 1, 2, isr=(3,), adding_replicas=(3, 4), removing_replicas=(1, 2), leader_epoch=5)
    return cluster(moving)


def test_cancelling_that_would_lose_records_needs_unclean_election() -> None:
    image = only_the_comers_in_sync()
    result, answer = alter(image, (0, None))
    assert result.records == ()
    assert answer == [
        (
            39,
            "Unable to revert partition assignment for t:0 because it would require an unclean leader election.",
        )
    ]
    image = moved(image, None, unclean_leader_election_enable="true")
    assert (of(image).replicas, of(image).isr, of(image).leader) == ((1, 2), (1,), 1)


def test_refusals_and_their_order() -> None:
    image = cluster(partition(1, 2), brokers=(1, 2, broker(3, fenced=True)))
    start = "The manual partition assignment includes"
    assert alter(
        image, (0, [1, 9]), (0, [1, 1]), (0, []), (5, [1]), (5, None), (0, [9]), factor_may_change=False
    )[1] == [
        (39, f"{start} broker 9, but no such broker is registered."),
        (39, f"{start} the broker 1 more than once."),
        (39, f"{start} an empty replica list."),
        (3, "Unable to find partition t:5."),
        (3, "Unable to find partition t:5."),
        (39, f"{start} broker 9, but no such broker is registered."),
    ]
    assert alter(image, (0, [1]), topic="nope")[1] == [(3, "Unable to find a topic named nope.")]
    assert alter(image, (0, [1, 3]))[1] == [(0, None)], "a fenced broker may come back"


def test_a_broker_without_an_uncordoned_directory_is_no_target() -> None:
    cordoned = broker(3, cordoned_directories=(directory(3),))
    image = cluster(partition(1, 2), brokers=(1, 2, cordoned))
    text = "The manual partition assignment includes broker 3, but all its log directories are cordoned."
    assert alter(image, (0, [1, 3]))[1] == [(39, text)]


def test_the_number_of_replicas_may_be_held() -> None:
    image = cluster(partition(1, 2))
    assert alter(image, (0, [3]), factor_may_change=False)[1] == [
        (38, "The replication factor is changed from 2 to 1")
    ]
    image = moved(image, [3, 4])
    refused = alter(image, (0, [2, 3, 4]), factor_may_change=False)[1]
    assert refused == [(38, "The replication factor is changed from 2 to 3")]
    assert alter(image, (0, [2, 3]), factor_may_change=False)[1] == [(0, None)]


def test_lists_name_only_what_moves() -> None:
    image = cluster(partition(1), partition(2), partition(3))
    result, _ = alter(image, (0, [2]), (2, [3, 4]))
    image = after(image, result)
    assert [each[:2] for each in listed(image)] == [("t", 0), ("t", 2)]
    assert [each[:2] for each in listed(image, [("t", [2, 1, 9]), ("nope", [0])])] == [("t", 2)]
    assert listed(image, [("t", [1])]) == []
    assert listed(image, []) == []


def test_more_moves_than_one_operation_may_write_are_refused_one_by_one() -> None:
    image = cluster(*[partition(1)] * 10_001)
    result, answer = alter(image, *((index, [2]) for index in range(10_001)))
    assert len(result.records) == 10_000
    assert [code for code, _ in answer].count(44) == 1


BROKERS = st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True)


@given(BROKERS, BROKERS, st.booleans(), st.data())
def test_any_move_ends_at_its_target_or_back_where_it_began(
    old: list[int], target: list[int], cancel: bool, data: st.DataObject
) -> None:
    isr = data.draw(st.lists(st.sampled_from(old), min_size=1, unique=True))
    image = cluster(partition(*old, isr=tuple(isr)), brokers=range(1, 7))
    before = of(image)
    result, answer = alter(image, (0, target))
    assert answer == [(0, None)]
    image = after(image, result)
    if of(image).adding_replicas or of(image).removing_replicas:
        assert set(of(image).replicas) == {*old, *target}
        assert of(image).isr == before.isr
        image = moved(image, None) if cancel else in_sync(image, *of(image).replicas)
        expected = set(old) if cancel else set(target)
    else:
        expected = set(target)
    end = of(image)
    assert set(end.replicas) == expected
    assert (end.adding_replicas, end.removing_replicas) == ((), ())
    assert end.isr
    assert set(end.isr) <= set(end.replicas)
    assert end.leader in end.isr
    assert len(end.directories) == len(end.replicas)
    if not cancel:
        assert list(end.replicas) == target
    if set(old) - expected:
        assert end.leader_epoch > before.leader_epoch


def stated(record: Any) -> dict[str, Any]:
    """The fields of a PartitionChangeRecord, except its key."""
    fields = {
        "isr": record.isr,
        "leader": None if record.leader == -2 else record.leader,
        "replicas": record.replicas,
        "removing": record.removing_replicas,
        "adding": record.adding_replicas,
        "eligible": record.eligible_leader_replicas,
        "last_known": record.last_known_elr,
        "directories": None if record.directories is None else [each[0] for each in record.directories],
    }
    return {name: value for name, value in fields.items() if value is not None}


def test_the_records_of_moves_are_those_that_apache_kafka_wrote() -> None:
    """A Kafka 4.3.0 controller with three brokers got the same requests; min.insync.replicas 1, eligible leader
    replicas on."""
    image = cluster(partition(1), brokers=(1, 2, 3))

    def asked(target: list[int] | None) -> dict[str, Any]:
        nonlocal image
        result, answer = alter(image, (0, target))
        assert answer == [(0, None)]
        image = after(image, result)
        (record,) = result.records
        return stated(record.message)

    def reported(*isr: int) -> dict[str, Any]:
        nonlocal image
        record = isr_change(image, *isr)
        assert record is not None
        image = after(image, ControllerResult((record,), None))
        return stated(record.message)

    assert asked([1, 2]) == {"replicas": [1, 2], "adding": [2], "directories": [1, 2]}
    assert asked(None) == {"leader": 1, "replicas": [1], "adding": [], "directories": [1]}
    assert asked([2]) == {"replicas": [2, 1], "removing": [1], "adding": [2], "directories": [2, 1]}
    assert asked([3]) == {
        "replicas": [3, 1, 2],
        "removing": [1, 2],
        "adding": [3],
        "directories": [3, 1, 2],
    }
    assert asked(None) == {
        "leader": 1,
        "replicas": [1, 2],
        "removing": [],
        "adding": [],
        "directories": [1, 2],
    }
    assert asked([2, 3]) == {
        "replicas": [2, 3, 1],
        "removing": [1],
        "adding": [3],
        "directories": [2, 3, 1],
    }
    assert reported(1, 2) == {"isr": [1, 2]}
    assert reported(1, 2, 3) == {
        "isr": [2, 3],
        "leader": 2,
        "replicas": [2, 3],
        "removing": [],
        "adding": [],
        "directories": [2, 3],
    }
    assert asked([3, 2]) == {"replicas": [3, 2], "directories": [3, 2]}
    election = partition_change(image, settings(), image.topics["t"], 0)
    election.election = Election.PREFERRED
    elected = election.build()
    assert elected is not None
    assert stated(elected.message) == {"leader": 3}
    image = after(image, ControllerResult((elected,), None))
    assert asked([2]) == {"isr": [2], "leader": 2, "replicas": [2], "directories": [2]}


def test_a_partition_without_a_leader_moves_but_does_not_come_back() -> None:
    """As in a Kafka 4.3.0 controller after the only replica's session had expired."""
    gone = partition(2, isr=(), leader=-1, eligible_leader_replicas=(2,), last_known_elr=(2,))
    image = cluster(gone, brokers=(1, broker(2, fenced=True)))
    result, _ = alter(image, (0, [1]))
    (record,) = result.records
    assert stated(record.message) == {
        "replicas": [1, 2],
        "removing": [2],
        "adding": [1],
        "directories": [1, 2],
    }
    assert alter(after(image, result), (0, None))[1][0][0] == 39
