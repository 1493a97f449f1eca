"""Consumer groups of very many members: what takes long is done in steps, and ends as if it had been done at once."""

from __future__ import annotations

import sys
from copy import copy
from typing import Any

import pytest

from kafkacompat.coordinator._tests.clients import join, leave, member_id_of, subscription
from kafkacompat.coordinator._tests.kit import AT_ONCE, LeadingCoordinator, topic_image
from kafkacompat.coordinator.core import CoordinatorResult
from kafkacompat.coordinator.shard import Shard, ShardState
from kafkacompat.group import consumer_protocol, target_assignment
from kafkacompat.group._tests.members import Member, described
from kafkacompat.group.classic.classic_group import (
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
    group_metadata_record,
)
from kafkacompat.group.consumer import conversion, target_assignment_builder
from kafkacompat.group.consumer.consumer_group import ConsumerGroup
from kafkacompat.group.consumer.conversion import CONVERTED_AT_ONCE
from kafkacompat.group.consumer_protocol import METADATA_BYTES_MAX, assignment_bytes
from kafkacompat.group.environment import ConsumerGroupSettings, GroupSettings
from kafkacompat.group.group_coordinator import CoordinatorSettings
from kafkacompat.group.group_metadata_manager import GroupMetadataManager, machine_of
from kafkacompat.ids import OFFSETS_TOPIC
from kafkacompat.records.batch import iterate_batches
from kafkacompat.wire.errors import ErrorCode as E

SIZE = CONVERTED_AT_ONCE + 20
PARTITIONS = SIZE + 10
GENERATION = 5
SESSION_MS = 45_000
REBALANCE_MS = 60_000
CALLS_A_MEMBER = 4
COSTS_MAX = 40
"""What one yield of a work may report: less than a hundredth of a turn."""


def new_world() -> LeadingCoordinator:
    world = LeadingCoordinator(GroupSettings(initial_rebalance_delay_ms=0), node=AT_ONCE)
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("t", PARTITIONS)])
    return world


@pytest.fixture
def world() -> LeadingCoordinator:
    return new_world()


def machine(world: LeadingCoordinator) -> GroupMetadataManager:
    shard = world.coordinator._shard("g")
    if shard.state is not ShardState.ACTIVE:
        shard.start()
    return machine_of(shard)


def group_of(world: LeadingCoordinator) -> Any:
    return machine(world).groups["g"]


def drive(world: LeadingCoordinator) -> int:
    """Until no work is left. Returns in how many turns of the loop."""
    turns = 0
    for _ in range(200):
        while world.time.step():
            turns += 1
        world.time.advance(0)
    return turns


def classic_group(
    world: LeadingCoordinator,
    user_data: bytes = b"",
    size: int = SIZE,
    has_static_members: bool = True,
    session_ms: int = SESSION_MS,
) -> list[str]:
    """A stable classic group in the log, as its last rebalance left it. Returns the members' ids."""
    group = ClassicGroup(
        "g",
        ClassicGroupState.STABLE,
        generation_id=GENERATION,
        protocol_type="consumer",
        current_state_timestamp_ms=1,
    )
    topic_id = world.image.topics["t"].id
    topics = machine(world).env.topics
    for index in range(size):
        assigned = assignment_bytes({topic_id: frozenset({index})}, topics, 1)
        if user_data:
            assigned = assigned[:-4] + len(user_data).to_bytes(4, "big") + user_data
        group.add(
            ClassicGroupMember(
                f"member-{index}",
                f"instance-{index}" if has_static_members and index % 3 == 0 else None,
                "client",
                "/127.0.0.1",
                REBALANCE_MS,
                session_ms,
                "consumer",
                (("range", subscription("t")),),
                assigned,
            )
        )
    group.protocol_name = group.select_protocol()
    assignments = {each.member_id: each.assignment for each in group.members.values()}
    record = group_metadata_record(group, assignments)
    world.coordinator._shard("g").write(lambda _: CoordinatorResult((record,), None))
    world.restart()
    drive(world)
    return list(group_of(world).members)


def state_of(group: ConsumerGroup) -> dict[str, Any]:
    """Everything that the log decides."""
    left_out = {"_subscribers", "_state_name", "refresh_deadline_ms", "refresh_epoch", "topic_names"}
    found = {name: copy(getattr(group, name)) for name in ConsumerGroup.__slots__ if name not in left_out}
    counts = {name: (count.by_name, count.by_regex) for name, count in group.topic_names.items()}
    return {**found, "topics": counts}


def test_a_group_whose_few_members_have_told_much_is_converted_in_steps(world: LeadingCoordinator) -> None:
    named = subscription(*[f"{number:05}" for number in range(7_000)])
    for _ in range(4):
        join(world, member_id_of(world), (("range", named),))
    world.time.advance(1)
    new = Member(world, "new", "t")
    assert new.join().error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert drive(world) > 1
    assert new.join().error_code == E.NONE
    assert len(group_of(world).members) == 5


def test_a_group_is_not_converted_if_a_member_has_told_more_than_is_read_at_once(
    world: LeadingCoordinator,
) -> None:
    join(world, member_id_of(world), (("range", subscription("t") + bytes(METADATA_BYTES_MAX)),))
    world.time.advance(1)
    new = Member(world, "new", "t")
    new.join()
    drive(world)
    assert new.join().error_code == E.UNKNOWN_SERVER_ERROR
    assert type(group_of(world)) is ClassicGroup


def test_a_group_is_not_converted_if_a_member_names_more_topics_than_are_read_at_once(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_protocol, "METADATA_NAMES_MAX", 2)
    join(world, member_id_of(world), (("range", subscription("t", "u", "v")),))
    world.time.advance(1)
    new = Member(world, "new", "t")
    new.join()
    drive(world)
    assert new.join().error_code == E.UNKNOWN_SERVER_ERROR
    assert type(group_of(world)) is ClassicGroup


def test_a_large_classic_group_is_converted_when_its_member_asks_again(world: LeadingCoordinator) -> None:
    members = classic_group(world)
    new = Member(world, "new", "t")
    end = world.log().log_end_offset
    assert new.join().error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert new.join().error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert (world.log().log_end_offset, type(group_of(world))) == (end, ClassicGroup)
    drive(world)
    batches = len(world.log().batches)
    joined = new.join()
    assert (joined.error_code, joined.member_epoch) == (E.NONE, GENERATION + 1)
    assert len(world.log().batches) == batches + 1  # all of it or nothing
    group = group_of(world)
    assert list(group.members) == [*members, "new"]
    assert group.static_members == {f"instance-{each}": f"member-{each}" for each in range(0, SIZE, 3)}
    assert machine(world).env.subscribers == {"t": {"g"}}
    drive(world)
    new.settle(2)
    before = state_of(group_of(world))
    world.restart()
    drive(world)
    assert state_of(group_of(world)) == before
    assert {"member-0", "member-1", "new"} <= {each.member_id for each in described(world)[0].members}


def test_members_of_a_large_group_have_sessions_after_its_conversion(world: LeadingCoordinator) -> None:
    classic_group(world)
    new = Member(world, "new", "t")
    new.join()
    drive(world)
    new.join()
    drive(world)
    for _ in range(4):
        world.time.advance(SESSION_MS // 3)
        drive(world)
        new.beat()
    assert list(group_of(world).members) == ["new"]


def test_a_large_group_that_was_converted_leaves_no_timers_of_the_classic_one(
    world: LeadingCoordinator,
) -> None:
    classic_group(world)
    new = Member(world, "new", "t")
    new.join()
    drive(world)
    new.join()
    drive(world)
    left = {key[0] for key in machine(world).env.timers._entries}  # type: ignore[attr-defined]
    assert left == {"session"}


def test_a_conversion_of_a_large_group_that_has_changed_is_prepared_anew(world: LeadingCoordinator) -> None:
    members = classic_group(world)
    new = Member(world, "new", "t")
    new.join()
    drive(world)
    leave(world, ("member-1", None))
    assert new.join().error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    drive(world)
    assert new.join().error_code == E.NONE
    assert list(group_of(world).members) == [each for each in members if each != "member-1"] + ["new"]


def test_a_large_group_that_cannot_be_converted_says_why(world: LeadingCoordinator) -> None:
    classic_group(world, user_data=b"own")
    new = Member(world, "new", "t")
    assert new.join().error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    drive(world)
    refused = new.join()
    assert refused.error_code == E.GROUP_ID_NOT_FOUND
    assert "an unsupported custom assignor is in use" in refused.error_message


def test_a_conversion_of_a_large_group_that_the_log_refuses_does_not_happen(
    world: LeadingCoordinator,
) -> None:
    members = classic_group(world)
    new = Member(world, "new", "t")
    new.join()
    drive(world)
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    assert new.join().error_code == E.COORDINATOR_NOT_AVAILABLE
    drive(world)
    assert type(group_of(world)) is ClassicGroup
    assert machine(world).env.subscribers == {}
    world.partitions.refusal = None
    assert new.join().error_code == E.NONE
    assert list(group_of(world).members) == [*members, "new"]


def converted(world: LeadingCoordinator, **of_classic_group: Any) -> Member:
    """A large consumer group with one member of the consumer protocol."""
    classic_group(world, **of_classic_group)
    new = Member(world, "new", "t")
    new.join()
    drive(world)
    new.join()
    drive(world)
    return new


def test_a_large_group_becomes_classic_after_its_last_new_member_has_gone(world: LeadingCoordinator) -> None:
    new = converted(world)
    members = [each for each in group_of(world).members if each != "new"]
    new.leave()
    assert type(group_of(world)) is ConsumerGroup
    epoch = group_of(world).group_epoch
    batches = len(world.log().batches)
    drive(world)
    group = group_of(world)
    assert (type(group), group.state) == (ClassicGroup, ClassicGroupState.PREPARING_REBALANCE)
    assert (list(group.members), group.generation_id) == (members, epoch)
    assert len(world.log().batches) == batches + 1
    assert machine(world).env.subscribers == {}
    left = [key for key in machine(world).env.timers._entries if key[0] in ("session", "rebalance")]  # type: ignore[attr-defined]
    assert left == []
    world.restart()
    drive(world)
    group = group_of(world)
    assert (type(group), group.state) == (ClassicGroup, ClassicGroupState.STABLE)
    assert list(group.members) == members


def test_a_large_group_stays_if_a_new_member_joins_in_time(world: LeadingCoordinator) -> None:
    new = converted(world)
    new.leave()
    assert Member(world, "newer", "t").join().error_code == E.NONE
    drive(world)
    assert type(group_of(world)) is ConsumerGroup


@pytest.mark.parametrize("steps", range(4))
def test_a_large_group_becomes_classic_also_if_a_new_member_comes_and_goes_meanwhile(
    world: LeadingCoordinator, steps: int
) -> None:
    new, newer = converted(world), Member(world, "newer", "t")
    new.leave()
    assert newer.join().error_code == E.NONE
    for _ in range(steps):
        world.time.step()
    newer.leave()
    drive(world)
    assert type(group_of(world)) is ClassicGroup


@pytest.mark.parametrize("part", ["classic_group_of", "encoded_run"])
def test_a_large_group_that_changes_meanwhile_becomes_classic_all_the_same(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    new = converted(world)
    original = getattr(conversion, part)
    left = []

    def leaving(*given: Any) -> Any:
        made = yield from original(*given)
        if not left:
            left.append(leave(world, ("member-1", None)))
        return made

    monkeypatch.setattr(conversion, part, leaving)
    new.leave()
    drive(world)
    group = group_of(world)
    assert type(group) is ClassicGroup
    assert "member-1" not in group.members
    assert len(group.members) == SIZE - 1


def test_a_downgrade_of_a_large_group_that_the_log_refuses_leaves_it(world: LeadingCoordinator) -> None:
    new = converted(world)
    new.leave()
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    drive(world)
    assert type(group_of(world)) is ConsumerGroup
    assert machine(world).env.subscribers == {"t": {"g"}}


def test_a_downgrade_of_a_large_group_that_the_log_refuses_is_tried_again(world: LeadingCoordinator) -> None:
    new = converted(world)
    members = [each for each in group_of(world).members if each != "new"]
    new.leave()
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    drive(world)
    world.time.advance(conversion.RETRY_MS)
    drive(world)
    assert type(group_of(world)) is ConsumerGroup
    world.partitions.refusal = None
    world.time.advance(2 * conversion.RETRY_MS)
    drive(world)
    assert (type(group_of(world)), list(group_of(world).members)) == (ClassicGroup, members)


def test_a_downgrade_that_the_log_always_refuses_is_tried_ever_more_rarely(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of a classic group may be larger than the log allows, although no record of the consumer group was."""
    prepared: list[Any] = []
    original = conversion.classic_group_of

    def preparing(*given: Any) -> Any:
        prepared.append(given)
        return original(*given)

    monkeypatch.setattr(conversion, "classic_group_of", preparing)
    monkeypatch.setattr(conversion, "DOUBLED_MAX", 3)
    new = converted(world, session_ms=10 * SESSION_MS)
    new.leave()
    world.partitions.refusal = E.MESSAGE_TOO_LARGE
    drive(world)
    for wait in (1, 2, 4, 8, 8):
        count = len(prepared)
        world.time.advance(wait * conversion.RETRY_MS - 1)
        drive(world)
        assert len(prepared) == count
        world.time.advance(1)
        drive(world)
        assert len(prepared) == count + 1


def test_the_next_coordinator_goes_on_with_a_downgrade_of_a_large_group(world: LeadingCoordinator) -> None:
    new = converted(world)
    members = [each for each in group_of(world).members if each != "new"]
    new.leave()
    assert type(group_of(world)) is ConsumerGroup
    world.restart()
    drive(world)
    group = group_of(world)
    assert (type(group), list(group.members)) == (ClassicGroup, members)
    assert machine(world).env.subscribers == {}
    world.restart()
    drive(world)
    assert (type(group_of(world)), list(group_of(world).members)) == (ClassicGroup, members)


def test_the_next_coordinator_leaves_a_large_group_with_a_new_member_as_it_is(
    world: LeadingCoordinator,
) -> None:
    converted(world)
    end = world.log().log_end_offset
    world.restart()
    drive(world)
    assert type(group_of(world)) is ConsumerGroup
    assert world.log().log_end_offset == end


def test_a_downgrade_that_the_policy_forbids_is_not_gone_on_with(world: LeadingCoordinator) -> None:
    new = converted(world)
    new.leave()
    policy = ConsumerGroupSettings(migration_policy="upgrade")
    world.settings = CoordinatorSettings(group=GroupSettings(consumer=policy))
    world.restart()
    drive(world)
    assert type(group_of(world)) is ConsumerGroup


def test_of_a_downgrade_that_the_log_refuses_no_rebalance_is_left(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would end with the record of an empty classic group, and the consumer group would be gone at the next load."""
    monkeypatch.setattr(conversion, "RETRY_MS", 2 * REBALANCE_MS)
    new = converted(world, has_static_members=False, session_ms=REBALANCE_MS + 1_000)
    members = [each for each in group_of(world).members if each != "new"]
    new.leave()
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    drive(world)
    world.partitions.refusal = None
    world.time.advance(REBALANCE_MS)
    drive(world)
    assert type(group_of(world)) is ConsumerGroup
    world.restart()
    drive(world)
    assert list(group_of(world).members) == members


def calls_of_longest_write(monkeypatch: pytest.MonkeyPatch, size: int) -> tuple[int, int]:
    """How many functions the request calls that upgrades a group of so many members, and the longest operation while it is
    downgraded. It tells the length of a step without a clock."""
    counts: list[int] = []
    write = Shard.write

    def counted(shard: Shard, operation: Any) -> Any:
        counts.append(0)

        def count(frame: Any, event: str, argument: Any) -> None:
            counts[-1] += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            return write(shard, operation)
        finally:
            sys.setprofile(None)

    world = new_world()
    classic_group(world, size=size)
    with monkeypatch.context() as patch:
        patch.setattr(Shard, "write", counted)
        new = Member(world, "new", "t")
        new.join()
        drive(world)
        new.join()
        assert type(group_of(world)) is ConsumerGroup
        upgrade = counts[-1]
        drive(world)
        counts.clear()
        new.leave()
        drive(world)
        assert type(group_of(world)) is ClassicGroup
    return upgrade, max(counts)


def test_an_operation_that_converts_a_large_group_does_little_for_each_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What has to happen at once is a look at each member, and one batch. All other work is done in steps."""
    monkeypatch.setattr(target_assignment_builder, "MEMBERS_AT_ONCE", 50)
    monkeypatch.setattr(target_assignment, "TARGETS_AT_ONCE", 50)
    few = calls_of_longest_write(monkeypatch, SIZE)
    many = calls_of_longest_write(monkeypatch, 4 * SIZE)
    assert (many[0] - few[0]) / (3 * SIZE) <= CALLS_A_MEMBER
    assert (many[1] - few[1]) / (3 * SIZE) <= CALLS_A_MEMBER


def test_members_topics_and_records_of_a_conversion_are_steps_of_their_own(world: LeadingCoordinator) -> None:
    classic_group(world)
    env = machine(world).env
    spent = list(conversion._prepared_upgrade(env, group_of(world)))
    members, topics, records = SIZE, 1, 1 + 3 * SIZE + 2
    assert len(spent) == members + topics + records
    assert max(spent) <= COSTS_MAX
    new = Member(world, "new", "t")
    new.join()
    drive(world)
    new.join()
    drive(world)
    group_of(world).remove_member("new")
    spent = list(conversion._prepared_downgrade(env, group_of(world), 1))
    assert len(spent) >= 2 * SIZE + 3 * SIZE
    assert max(spent) <= COSTS_MAX


# --- assignments


def test_the_first_assignment_of_many_members_is_made_and_written_in_parts(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_assignment_builder, "MEMBERS_AT_ONCE", 50)
    monkeypatch.setattr(target_assignment, "TARGETS_AT_ONCE", 50)
    monkeypatch.setattr(target_assignment_builder, "SPEC_NS", 1_000_000)
    members = [Member(world, f"m{index}", regex="t") for index in range(SIZE)]
    for member in members:
        member.join()
    drive(world)  # the expression is resolved
    batches = len(world.log().batches)
    members[0].beat()
    assert len(world.log().batches) == batches
    assert drive(world) >= SIZE // 4  # of 4 ms each
    written = world.log().batches[batches:]
    counts = [header.record_count for batch in written for header in iterate_batches(batch)]
    assert counts == [50, 50, SIZE - 100 + 1]
    for _ in range(3):
        for member in members:
            member.beat()
    assert sorted(place for member in members for place in member.partitions) == [
        ("t", index) for index in range(PARTITIONS)
    ]
    assert described(world)


def test_a_static_member_that_is_replaced_twice_while_targets_are_written_gets_its_part(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_assignment_builder, "MEMBERS_AT_ONCE", 50)
    monkeypatch.setattr(target_assignment, "TARGETS_AT_ONCE", 50)
    members = [Member(world, f"m{index}", regex="t") for index in range(SIZE)]
    members.append(Member(world, "last", regex="t", instance="i"))
    for member in members:
        member.join()
    drive(world)
    members[0].beat()
    for number in range(2):
        members[-1].leave(-2)
        members[-1] = Member(world, f"last{number}", regex="t", instance="i")
        members[-1].join()
        world.time.advance(0)
        world.time.advance(0)
    drive(world)
    for _ in range(3):
        for member in members:
            member.beat()
    assert len([place for member in members for place in member.partitions]) == PARTITIONS
    assert members[-1].partitions
