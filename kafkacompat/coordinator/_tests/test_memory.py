"""What groups hold in memory for clients is bounded in bytes, for a connection and for the node, and is given back."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

from kafkacompat.api.txn_offset_commit import HANDLER as TXN_OFFSET_COMMIT
from kafkacompat.coordinator._tests.clients import (
    RANGE,
    beat,
    commit,
    fetch,
    form_group,
    join,
    leave,
    member_id_of,
    subscription,
)
from kafkacompat.coordinator._tests.kit import AT_ONCE, LeadingCoordinator, topic_image
from kafkacompat.deferred import Deferred
from kafkacompat.group import offset_metadata_manager
from kafkacompat.group._tests.members import Member
from kafkacompat.group._tests.sharers import Sharer, SharingCoordinator
from kafkacompat.group._tests.test_large_consumer_groups import (
    classic_group,
    drive,
    group_of,
    new_world,
)
from kafkacompat.group._tests.test_transactional_offsets import Verifier
from kafkacompat.group.classic.classic_group import ClassicGroup
from kafkacompat.group.consumer_protocol import DISTINCT_TOPICS_MAX
from kafkacompat.group.environment import (
    CONNECTION_BYTES_MAX,
    MEMBER_BYTES_MAX,
    GroupSettings,
)
from kafkacompat.group.group_metadata_manager import machine_of
from kafkacompat.group.modern_group import ModernGroup
from kafkacompat.group.offset_metadata_manager import size_of_offset
from kafkacompat.ids import OFFSETS_TOPIC
from kafkacompat.memory import Memory
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

LONG = "c" * 32_000


@pytest.fixture
def world() -> LeadingCoordinator:
    return LeadingCoordinator(GroupSettings(initial_rebalance_delay_ms=0), node=AT_ONCE)


def memory_of(world: LeadingCoordinator) -> Memory:
    return world.coordinator._memory


def classic_group_of(world: LeadingCoordinator, group_id: str) -> ClassicGroup:
    group = machine_of(world.coordinator._shards.shard_for(group_id)).groups[group_id]
    assert isinstance(group, ClassicGroup)
    return group


def held_by_groups(world: LeadingCoordinator) -> int:
    """The same as `used`, from the groups as they are."""
    total = 0
    for shard in world.coordinator._shards:
        for group in machine_of(shard).groups.values():
            held: list[Any] = [group.held]  # type: ignore[attr-defined]  # of both kinds
            if isinstance(group, ClassicGroup):
                held += [each.held for each in group.members.values()]
                held += group.pending_join.values()
                held += [] if group.held_topics is None else [group.held_topics]
                assert all(each.held and each.held.size == each.size() for each in group.members.values())
            else:
                assert isinstance(group, ModernGroup)
                assert group._held.keys() == group.members.keys()
                held += group._held.values()
            total += sum(each.size for each in held)
        offsets = machine_of(shard).offsets
        kept = [
            size_of_offset(value)
            for each in (offsets._committed, *offsets._pending.values())
            for topics in each.values()
            for partitions in topics.values()
            for value in partitions.values()
        ]
        assert offsets._held.size == sum(kept)
        total += sum(kept)
    return total


def test_ids_of_members_that_do_not_come_are_bounded_for_a_connection(world: LeadingCoordinator) -> None:
    tracemalloc.start()
    try:
        codes = [
            join(world, client_id=f"{LONG}{index}", session=1_800_000).error_code for index in range(2_000)
        ]
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert codes[0] == E.MEMBER_ID_REQUIRED
    assert codes[-1] == E.COORDINATOR_LOAD_IN_PROGRESS
    assert 400 < codes.count(E.MEMBER_ID_REQUIRED) < 600
    assert taken < CONNECTION_BYTES_MAX * 1.1
    assert memory_of(world).used == held_by_groups(world) <= CONNECTION_BYTES_MAX


def test_what_is_counted_is_what_is_taken(world: LeadingCoordinator) -> None:
    """Of short ids, whose objects take much more than their text."""
    member_id_of(world)
    tracemalloc.start()
    try:
        before = memory_of(world).used
        for index in range(2_000):
            member_id_of(world, client_id=f"c{index}")
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    counted = memory_of(world).used - before
    assert taken < counted < 2 * taken


def test_an_id_is_never_cut(world: LeadingCoordinator) -> None:
    member_id = member_id_of(world, client_id=LONG)
    assert member_id.startswith(f"{LONG}-")
    waiting = join(world, member_id, client_id=LONG)
    world.time.advance(10_000)
    assert waiting.result().members[0].member_id == member_id


def test_others_join_while_one_connection_may_not(world: LeadingCoordinator) -> None:
    while join(world, client_id=LONG, session=1_800_000).error_code == E.MEMBER_ID_REQUIRED:
        pass
    world.connection_id = 2
    form_group(world, 2, group="other")


def test_what_does_not_come_back_gives_way_to_what_has_just_asked(world: LeadingCoordinator) -> None:
    """Many connections together do not keep others out. Who comes back too late asks for another id, as Kafka's clients
    do after a session that has ended."""
    memory = memory_of(world)
    memory.most_brief = 1 << 20
    first = member_id_of(world, session=1_800_000)
    for number in range(100):
        world.connection_id = 10 + number
        assert join(world, client_id=LONG, session=1_800_000).error_code == E.MEMBER_ID_REQUIRED
        world.time.advance(0)
    assert memory.brief <= 1 << 20
    assert memory.used == held_by_groups(world) < 2 << 20
    assert join(world, first).error_code == E.UNKNOWN_MEMBER_ID
    newest = member_id_of(world)
    waiting = join(world, newest)
    world.time.advance(3_000)
    assert waiting.result().error_code == E.NONE


@pytest.mark.parametrize("end", ["expire", "leave", "join and leave", "unload"])
def test_memory_is_given_back_however_a_member_goes(world: LeadingCoordinator, end: str) -> None:
    memory = memory_of(world)
    ids = [member_id_of(world, client_id=LONG) for _ in range(5)]
    assert memory.used == held_by_groups(world) > 5 * len(LONG)
    if end == "expire":
        world.time.advance(10_001)
    elif end == "leave":
        leave(world, *[(each, None) for each in ids])
    elif end == "join and leave":
        for each in ids:
            join(world, each, client_id=LONG)
        assert memory.used == held_by_groups(world) > 10 * len(LONG)
        leave(world, *[(each, None) for each in ids])
    else:
        world.coordinator.stop()
        world.time.advance(1)
        assert memory.used == 0
        return
    assert memory.used == held_by_groups(world) < len(LONG)
    assert memory._of_connections.keys() <= {1}
    world.time.advance(1_300_000)  # the empty group expires
    assert memory.used == 0
    assert not memory._of_connections
    assert not memory._brief


def test_members_are_bounded_for_the_node_and_those_that_are_there_go_on(world: LeadingCoordinator) -> None:
    ids = form_group(world, 2)
    memory = memory_of(world)
    memory.most = memory.used + 1_000
    world.connection_id = 2
    for options in ({}, {"version": 3}, {"instance": "i"}):
        assert join(world, group="other", **options).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        assert join(world, **options).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    larger = (("range", RANGE[0][1] + bytes(2_000)),)
    assert join(world, ids[0], larger).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert beat(world, ids[0], 1) == E.NONE
    waiting = [join(world, each) for each in ids]
    assert [getattr(each, "error_code", E.NONE) for each in waiting] == [E.NONE, E.NONE]
    assert memory.used == held_by_groups(world)


def test_the_type_of_a_group_is_counted_also_when_its_members_have_left(world: LeadingCoordinator) -> None:
    """A group keeps it until the group goes."""
    memory = memory_of(world)

    def joined(kind: str) -> Any:
        waiting = join(world, kind=kind, version=3)
        world.time.advance(1)
        return waiting.result() if isinstance(waiting, Deferred) else waiting

    long = joined(LONG).member_id
    assert memory.used == held_by_groups(world) > 2 * len(LONG)
    leave(world, (long, None))
    assert memory.used == held_by_groups(world) > len(LONG)
    usual = joined("consumer").member_id
    assert memory.used == held_by_groups(world) < len(LONG)
    leave(world, (usual, None))
    memory.most = memory.used + len(LONG) + 3_000
    assert joined(LONG).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert join(world, kind=LONG, group="new", version=3).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    memory.most += len(LONG)
    assert joined(LONG).error_code == E.NONE
    assert memory.used == held_by_groups(world) <= memory.most


def test_the_topics_that_a_group_subscribes_to_are_counted(world: LeadingCoordinator) -> None:
    """Of short names, whose objects take far more than the metadata that name them."""
    names = [f"{number:05}" for number in range(DISTINCT_TOPICS_MAX)]
    protocols = (("range", subscription(*names)),)
    memory = memory_of(world)
    tracemalloc.start()
    try:
        for index in range(3):
            form_group(world, group=f"g{index}", protocols=protocols)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.9 * taken < memory.used < 2 * taken
    assert memory.used == held_by_groups(world)
    assert not classic_group_of(world, "g0").is_subscribed_to("other")
    memory.most = memory.used + 400_000
    form_group(world, group="without-room", protocols=protocols)
    assert classic_group_of(world, "without-room").is_subscribed_to("other")
    assert memory.used == held_by_groups(world) <= memory.most
    world.restart()
    assert memory_of(world).used == held_by_groups(world) > 0.9 * taken


def test_the_metadata_of_one_member_is_bounded(world: LeadingCoordinator) -> None:
    half = MEMBER_BYTES_MAX // 2
    answer = join(world, protocols=(("range", bytes(half)), ("other", bytes(half + 1))))
    assert answer.error_code == E.UNKNOWN_SERVER_ERROR


def test_a_commit_makes_no_group_without_room_and_groups_that_are_there_commit(
    world: LeadingCoordinator,
) -> None:
    assert commit(world, 1) == E.NONE
    memory = memory_of(world)
    assert memory.used == held_by_groups(world)
    memory.most = memory.used
    assert commit(world, 1, group=LONG) == E.COORDINATOR_LOAD_IN_PROGRESS
    assert commit(world, 2) == E.NONE


def test_new_offsets_and_longer_metadata_need_room_and_other_commits_go_on(world: LeadingCoordinator) -> None:
    assert commit(world, 1, metadata="m" * 100) == E.NONE
    memory = memory_of(world)
    memory.most = memory.used
    assert commit(world, 2, metadata="m" * 100) == E.NONE
    assert commit(world, 3, metadata="m" * 50) == E.NONE
    assert memory.used == held_by_groups(world) == memory.most - 50
    assert commit(world, 4, metadata="m" * 101) == E.COORDINATOR_LOAD_IN_PROGRESS
    assert commit(world, 4, partition=1) == E.COORDINATOR_LOAD_IN_PROGRESS
    assert fetch(world).committed_offset == 3
    memory.most = 1 << 30
    assert commit(world, 4, partition=1) == E.NONE
    assert memory.used == held_by_groups(world)
    world.restart()
    assert memory_of(world).used == held_by_groups(world) > 0
    world.time.advance(10_080 * 60_000 + 1_300_000)
    assert memory_of(world).used == held_by_groups(world) == 0


def commit_in_transaction(world: LeadingCoordinator, producer_id: int, partition: int = 0) -> int:
    one = TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=5, committed_metadata="m" * 100
    )
    asked = TxnOffsetCommitRequest(
        transactional_id=f"tx-{producer_id}",
        group_id="g",
        producer_id=producer_id,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[one])],
    )
    answer = world.call(TXN_OFFSET_COMMIT, asked, 5)
    return int(answer.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("compared", [0, 100], ids=["among many transactions", "among few transactions"])
def test_offsets_in_transactions_are_bounded_and_one_transaction_with_each_goes_on(
    world: LeadingCoordinator, compared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each of any number of producers could leave a copy of each offset in memory."""
    monkeypatch.setattr(offset_metadata_manager, "COMPARED_TRANSACTIONS", compared)
    world.verifier = Verifier()
    assert [commit(world, 1, partition=each, metadata="m" * 100) for each in range(2)] == [E.NONE] * 2
    memory = memory_of(world)
    memory.most = memory.used
    assert commit_in_transaction(world, 7) == E.NONE
    copied = memory.used - memory.most
    assert copied > 0
    assert commit_in_transaction(world, 7) == E.NONE
    assert [commit_in_transaction(world, each) for each in (8, 9)] == [E.COORDINATOR_LOAD_IN_PROGRESS] * 2
    assert memory.used == held_by_groups(world) == memory.most + copied
    told = commit_in_transaction(world, 8, partition=1)
    assert told == (E.NONE if compared else E.COORDINATOR_LOAD_IN_PROGRESS)
    assert commit(world, 2, metadata="m" * 100) == E.NONE


def test_members_of_consumer_groups_are_bounded_and_those_that_are_there_go_on(
    world: LeadingCoordinator,
) -> None:
    one, two = Member(world, "one", "t"), Member(world, "two", *[f"{number:0200}" for number in range(100)])
    assert one.join().error_code == E.NONE
    memory = memory_of(world)
    assert memory.used == held_by_groups(world)
    memory.most = memory.used + 10_000
    assert two.join().error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert one.beat().error_code == E.NONE
    assert one.join().error_code == E.NONE
    names = [f"{number:0200}" for number in range(100)]
    assert one.beat(subscribed_topic_names=names, rebalance_timeout_ms=1_000).error_code == (
        E.COORDINATOR_LOAD_IN_PROGRESS
    )
    memory.most = 1 << 30
    assert two.join().error_code == E.NONE
    assert memory.used == held_by_groups(world) > 20_000
    for each in (one, two):
        assert each.leave().error_code == E.NONE
    assert memory.used == held_by_groups(world) < 2_000
    world.restart()
    assert memory_of(world).used == held_by_groups(world)


@pytest.mark.parametrize("size", [3, 300])
def test_a_group_that_changes_its_protocol_is_counted_once(size: int) -> None:
    world = new_world()
    classic_group(world, size=size)
    counted = memory_of(world).used
    assert counted == held_by_groups(world)
    new = Member(world, "new", "t")
    for _ in range(2):
        new.join()
        drive(world)
    assert type(group_of(world)) is not ClassicGroup
    assert memory_of(world).used == held_by_groups(world) > counted
    new.leave()
    drive(world)
    assert type(group_of(world)) is ClassicGroup
    gc.collect()
    assert memory_of(world).used == held_by_groups(world)
    assert abs(memory_of(world).used - counted) < counted / 10


def test_a_group_is_not_converted_without_room_for_it() -> None:
    """The topics of its members are objects then, which take more than the metadata that name them."""
    world = new_world()
    protocols = (("range", subscription(*[f"{number:05}" for number in range(1_000)])),)
    join(world, member_id_of(world), protocols)
    world.time.advance(1)
    memory = memory_of(world)
    memory.most = memory.used + 100_000
    new = Member(world, "new", "t")
    assert new.join().error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert type(group_of(world)) is ClassicGroup
    gc.collect()
    assert memory.used == held_by_groups(world) <= memory.most
    memory.most = 1 << 30
    assert new.join().error_code == E.NONE
    assert memory.used == held_by_groups(world) > 300_000


def test_members_of_share_groups_are_bounded() -> None:
    world = SharingCoordinator()
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("t", 1)])
    assert Sharer(world, "one", "t").join().error_code == E.NONE
    memory = memory_of(world)
    assert memory.used == held_by_groups(world)
    memory.most = memory.used
    assert Sharer(world, "two", "t").join().error_code == E.COORDINATOR_LOAD_IN_PROGRESS


def test_a_member_that_was_loaded_is_counted(world: LeadingCoordinator) -> None:
    form_group(world, 2)
    used = memory_of(world).used
    world.restart()
    assert memory_of(world).used == held_by_groups(world) == used
