"""Striped placement over brokers and racks, and several brokers' registrations in one cluster."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat._tests.doubles import CountingRandom
from kafkacompat.controller._tests.harness import DIRECTORY_ID, HEARD_ON, Harness, context, registration
from kafkacompat.controller.image import BrokerRegistration
from kafkacompat.controller.striped_replica_placer import (
    PlacementRefused,
    StripedReplicaPlacer,
    place_partitions,
)
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest


def broker(broker_id: int, rack: str | None = None, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(broker_id, 0, bytes(16), {}, {}, rack, fenced, False, ())


def test_brokers_take_turns_and_racks_alternate() -> None:
    brokers = [broker(i * 10 + j, rack) for i, rack in enumerate("abc") for j in range(3)]
    placed = list(place_partitions(brokers, 3, 3, CountingRandom()))
    assert placed == [(0, 10, 20), (11, 21, 1), (22, 2, 12)]


@given(st.integers(1, 6), st.integers(1, 20), st.data())
def test_replicas_are_distinct_leaders_unfenced_and_evenly_spread(
    count: int, partitions: int, data: st.DataObject
) -> None:
    racks = data.draw(st.lists(st.sampled_from([None, "a", "b"]), min_size=count, max_size=count))
    fenced = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    factor = data.draw(st.integers(1, count))
    random = CountingRandom()
    random.choices = data.draw(st.lists(st.integers(0, 99), max_size=30))
    brokers = [broker(i, rack, fence) for i, (rack, fence) in enumerate(zip(racks, fenced, strict=True))]
    if all(fenced):
        with pytest.raises(PlacementRefused, match="All brokers are currently fenced"):
            StripedReplicaPlacer(brokers, random).place(factor)
        return
    placed = list(place_partitions(brokers, partitions, factor, random))
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert not fenced[replicas[0]]
    leaders = Counter(replicas[0] for replicas in placed)
    if len(set(racks)) == 1 and not any(fenced) and partitions % count == 0:
        assert set(leaders.values()) == {partitions // count}


def three_brokers() -> Harness:
    node = Harness().start()
    for broker_id, rack in ((1, "a"), (2, "b"), (3, "c")):
        request = registration(
            broker_id=broker_id,
            incarnation=broker_id,
            directories=[bytes([9] * 15) + bytes([broker_id])],
            rack=rack,
        )
        answer = node.call(node.controller.broker_registration, request)
        node.beat(answer.broker_epoch, broker_id)
    return node


def test_leadership_leaves_a_broker_that_shuts_down_and_its_isr() -> None:
    node = three_brokers()
    request = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=3, replication_factor=3)])
    assert node.call(node.controller.create_topics, request).topics[0].error_code == 0
    before = node.image.topics["t"].partitions
    assert sorted(each.leader for each in before.values()) == [1, 2, 3]
    epoch = node.image.brokers[2].epoch
    assert not node.beat(epoch, 2, want_shut_down=True).should_shut_down
    for broker_id in (1, 3):  # they have read that it leads nothing any more
        node.beat(node.image.brokers[broker_id].epoch, broker_id)
    assert node.beat(epoch, 2, want_shut_down=True).should_shut_down
    assert node.image.brokers[2].fenced
    for index, each in node.image.topics["t"].partitions.items():
        assert each.leader not in (-1, 2)
        assert 2 not in each.isr
        assert each.eligible_leader_replicas == ()
        assert (each.leader_epoch > before[index].leader_epoch) == (before[index].leader == 2)
    answer = node.call(
        node.controller.create_topics,
        CreateTopicsRequest(topics=[CreatableTopic(name="u", num_partitions=6, replication_factor=3)]),
    )
    assert answer.topics[0].error_code == 0
    assert all(each.leader != 2 and 2 not in each.isr for each in node.image.topics["u"].partitions.values())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [bytes(16)]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [b"\x01" * 16] * 2}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [DIRECTORY_ID], "broker_id": 2}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_registrations_are_refused_with_kafkas_codes(changes: dict[str, object], code: ErrorCode) -> None:
    node = Harness().start()
    node.serve()
    request = registration(incarnation=7)
    for name, value in changes.items():
        setattr(request, name, value)
    assert node.call(node.controller.broker_registration, request).error_code == code
    assert node.image.brokers[1].incarnation_id == (1).to_bytes(16, "big")


def test_a_broker_lacking_a_finalized_feature_is_refused() -> None:
    node = Harness().start()
    request = registration()
    request.features = [each for each in request.features if each.name != "share.version"]
    answer = node.call(node.controller.broker_registration, request)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_the_same_incarnation_keeps_its_epoch_and_another_gets_the_next_offset() -> None:
    node = Harness().start()
    epoch = node.serve(incarnation=1)
    again = node.call(node.controller.broker_registration, registration(incarnation=1))
    assert again.broker_epoch == epoch
    assert not node.image.brokers[1].fenced
    end = node.log.log_end_offset
    other = node.call(node.controller.broker_registration, registration(incarnation=2))
    assert other.broker_epoch == end
    assert node.image.brokers[1].fenced
    assert node.beat(epoch).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_another_process_does_not_take_the_place_of_the_controllers_own_broker() -> None:
    """Only its own process may register it again during its session. A request over a connection is from another
    process."""
    node = Harness().start()
    node.serve(incarnation=1)
    stranger = node.controller.broker_registration(
        registration(incarnation=2), context(connection_id=HEARD_ON)
    )
    assert stranger.result().error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert node.image.brokers[1].incarnation_id == (1).to_bytes(16, "big")
    assert not node.image.brokers[1].fenced
