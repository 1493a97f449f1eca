"""Consumer groups of KIP-848 when requests, logs and times meet in unlucky ways: nothing is lost and nothing hangs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat.api import subscribed_names
from kafkacompat.coordinator import core
from kafkacompat.coordinator._tests.clients import join, subscription
from kafkacompat.coordinator._tests.kit import AT_ONCE, LeadingCoordinator, topic_image
from kafkacompat.coordinator.core import CoordinatorResult, LoadFailure
from kafkacompat.coordinator.shard import ShardTimers
from kafkacompat.group import consumer_protocol
from kafkacompat.group import records as group_records
from kafkacompat.group._tests.members import Member, described, member_of
from kafkacompat.group.consumer import classic_members, membership, regular_expressions
from kafkacompat.group.consumer.consumer_group import ConsumerGroup
from kafkacompat.group.consumer.consumer_group_member import ConsumerGroupMember
from kafkacompat.group.environment import GroupSettings
from kafkacompat.group.group_metadata_manager import machine_of as group_machine
from kafkacompat.group.records import (
    consumer_current_assignment_record,
    consumer_member_record,
    consumer_target_record,
)
from kafkacompat.ids import OFFSETS_TOPIC
from kafkacompat.wire.errors import ErrorCode as E


@pytest.fixture
def world() -> LeadingCoordinator:
    return LeadingCoordinator(GroupSettings(initial_rebalance_delay_ms=0), node=AT_ONCE)


def publish(world: LeadingCoordinator, **counts: int) -> None:
    """Topics with this many partitions, beside the offsets topic."""
    world.publish(
        [topic_image(OFFSETS_TOPIC, 1), *(topic_image(name, count) for name, count in counts.items())]
    )


def write(world: LeadingCoordinator, *records: Any) -> None:
    """Records as another coordinator might have written them."""
    world.coordinator._shard("g").write(lambda _: CoordinatorResult(records, None))


def test_a_static_member_that_is_replaced_during_an_assignment_gets_its_part(
    world: LeadingCoordinator,
) -> None:
    publish(world, t=3_000)
    one, two = Member(world, "one", "t", instance="i"), Member(world, "two", "t")
    one.join()
    two.join()
    assert described(world)[0].group_state == "Assigning"
    one.leave(-2)
    again = Member(world, "again", "t", instance="i")
    assert again.join().error_code == E.NONE
    world.time.advance(0)
    again.settle(3)
    two.settle(3)
    assert not member_of(world, "again").target & member_of(world, "two").target
    assert (len(again.partitions), len(two.partitions)) == (1_500, 1_500)
    assert described(world)[0].group_state == "Stable"


def test_a_member_is_fenced_although_the_rest_cannot_become_a_classic_group(
    world: LeadingCoordinator,
) -> None:
    one = Member(world, "one", "t")
    one.join()
    good, bad = ("range", subscription("t")), ("other", b"")
    assert join(world, protocols=(good, bad), version=3).error_code == E.NONE
    for instance in ("i", "j"):  # their votes are for the protocol that the first one fills with nothing
        protocols = (("other", subscription("t")), good)
        assert join(world, protocols=protocols, instance=instance).error_code == E.NONE
    assert one.leave().error_code == E.NONE
    assert "one" not in [each.member_id for each in described(world)[0].members]


def test_a_static_member_stays_if_the_rest_cannot_become_a_classic_group(world: LeadingCoordinator) -> None:
    one = Member(world, "one", "t", instance="i")
    one.join()
    good, bad = ("range", subscription("t")), ("other", b"")
    assert join(world, protocols=(good, bad), version=3).error_code == E.NONE
    for instance in ("j", "k"):
        protocols = (("other", subscription("t")), good)
        assert join(world, protocols=protocols, instance=instance).error_code == E.NONE
    refused = join(world, protocols=protocols, instance="i")
    assert refused.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert one.beat().error_code == E.NONE


def test_an_expression_that_cannot_be_compiled_does_not_hold_up_the_others(world: LeadingCoordinator) -> None:
    one = Member(world, "one", regex="t")
    one.join()
    bad = ConsumerGroupMember("bad", subscribed_topic_regex="(")
    write(world, consumer_member_record("g", bad), consumer_current_assignment_record("g", bad))
    world.restart()
    one.settle(2)
    world.time.advance(0)
    one.beat()
    assert {name for name, _ in one.partitions} == {"t"}


def test_expressions_are_compiled_and_matched_in_short_steps(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    class Slow:
        programsize = 50_000

        def fullmatch(self, name: str) -> bool:
            done.append(name)
            return False

    def compiled(regex: str) -> Any:
        done.append(regex)
        return Slow()

    publish(world, **{f"topic{index}": 1 for index in range(100)})
    env = world.coordinator._shard("g").machine.env  # type: ignore[attr-defined]
    monkeypatch.setattr(regular_expressions, "compiled", compiled)
    steps = [0]
    for _ in regular_expressions._resolve(env, [f"regex{index}" for index in range(10)], None, 0):
        steps.append(len(done))
    assert len(done) == 10 * 102  # with the offsets topic
    assert max(after - before for before, after in pairwise(steps)) <= 4


def test_a_step_asks_for_rights_to_few_topics(world: LeadingCoordinator) -> None:
    """A question to the authorizer takes much longer than to match a short name."""
    publish(world, **{f"topic{index}": 1 for index in range(2_000)})
    env = world.coordinator._shard("g").machine.env  # type: ignore[attr-defined]
    asked: list[int] = []

    def may_describe(names: list[str]) -> set[str]:
        asked.append(len(names))
        return set(names)

    assert len(list(regular_expressions._resolve(env, ["topic.*"], may_describe, 0))) > 1
    assert sum(asked) == 2_000
    assert max(asked) * regular_expressions.ASKED_NS <= 2_000_000


def test_a_group_has_room_for_so_many_expressions(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regular_expressions, "EXPRESSIONS_MAX", 2)
    one, two, more = (Member(world, name, regex=f"[t{name}]") for name in ("one", "two", "more"))
    one.join()
    two.join()
    refused = more.join()
    assert (refused.error_code, refused.error_message) == (
        E.INVALID_REGULAR_EXPRESSION,
        "The group has reached its maximum of 2 regular expressions.",
    )
    assert Member(world, "same", regex="[tone]").join().error_code == E.NONE
    assert two.beat(subscribed_topic_regex="[u]").error_code == E.NONE  # in the place of its former one
    assert one.beat(subscribed_topic_regex="[v]").error_code == E.INVALID_REGULAR_EXPRESSION
    assert two.leave().error_code == E.NONE
    assert more.join().error_code == E.NONE


def test_topics_of_an_expression_without_subscribers_count_no_more(world: LeadingCoordinator) -> None:
    """Otherwise the next coordinator would find other topics than the record tells, and rebalance the group."""
    one, two = Member(world, "one", "t"), Member(world, "two", regex="[u]")
    one.join()
    two.join()
    world.time.advance(0)
    two.leave()
    one.settle(2)
    epoch = described(world)[0].group_epoch
    world.restart()
    one.beat()
    assert described(world)[0].group_epoch == epoch


def test_expressions_are_resolved_later_if_there_was_no_memory_for_the_end_of_that(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch, faults: Any
) -> None:
    one = Member(world, "one", regex="[tu]")
    one.join()
    schedule = ShardTimers.schedule
    lacking: list[Any] = []

    def lacks(timers: ShardTimers, key: Any, *rest: Any) -> None:
        if key[0] == "task" and not lacking:
            lacking.append(key)
            raise MemoryError
        schedule(timers, key, *rest)

    monkeypatch.setattr(ShardTimers, "schedule", lacks)
    world.time.advance(0)
    assert [type(error) for error in faults.take()] == [MemoryError]
    one.beat()
    world.time.advance(0)
    one.beat()
    assert {name for name, _ in one.partitions} == {"t", "u"}


def test_what_many_expressions_match_is_written_in_parts(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regular_expressions, "NAMES_AT_ONCE", 3)
    publish(world, **{f"topic{index}": 1 for index in range(4)})
    members = [Member(world, f"m{index}", regex=f"topic[0-9]|{index}") for index in range(3)]
    for member in members:
        member.join()
    members.append(Member(world, "last", regex="topic[01]"))
    members[-1].join()
    world.time.advance(10_001)
    members[0].beat()
    before = len(world.log().batches)
    for _ in range(4):
        world.time.advance(0)
    assert len(world.log().batches) - before == 4
    group = group_machine(world.coordinator._shards.shard_for("g")).groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert {regex: len(each.topics) for regex, each in group.resolved.items()} == {
        "topic[0-9]|0": 4,
        "topic[0-9]|1": 4,
        "topic[0-9]|2": 4,
        "topic[01]": 2,
    }
    for _ in range(6):
        for member in members:
            member.beat()
    owned = [place for member in members for place in member.partitions]
    assert sorted(owned) == [(f"topic{index}", 0) for index in range(4)]


def test_a_classic_member_whose_join_is_not_committed_in_time_expires(world: LeadingCoordinator) -> None:
    one = Member(world, "one", "t")
    one.join()
    world.partitions.held = True
    parked = join(world, version=3, session=10_000)
    world.partitions.release(E.REQUEST_TIMED_OUT)
    assert parked.result().error_code == E.COORDINATOR_NOT_AVAILABLE
    world.partitions.release()
    assert len(described(world)[0].members) == 2
    for _ in range(3):
        world.time.advance(5_000)
        one.beat()
    assert [each.member_id for each in described(world)[0].members] == ["one"]
    assert one.partitions == {("t", 0), ("t", 1), ("t", 2)}


def without_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next member that is removed cannot be: the rest of its group's topics cannot be hashed."""
    hashed = membership.metadata_hash

    def fail(env: Any, names: Any) -> int:
        monkeypatch.setattr(membership, "metadata_hash", hashed)
        raise MemoryError

    monkeypatch.setattr(membership, "metadata_hash", fail)


def test_a_member_whose_session_ends_while_there_is_no_memory_goes_later(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, dead = Member(world, "one", "t"), Member(world, "dead", "t")
    one.join()
    dead.join()
    without_memory_once(monkeypatch)
    world.time.advance(30_000)
    one.beat()
    with pytest.raises(MemoryError):
        world.time.advance(15_000)
    world.time.advance(1_000)
    assert [each.member_id for each in described(world)[0].members] == ["one"]


def test_a_member_that_cannot_leave_for_want_of_memory_goes_when_its_session_ends(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, dead = Member(world, "one", "t"), Member(world, "dead", "t")
    one.join()
    dead.join()
    without_memory_once(monkeypatch)
    with pytest.raises(MemoryError):
        dead.leave()
    world.time.advance(30_000)
    one.beat()
    world.time.advance(15_000)
    assert [each.member_id for each in described(world)[0].members] == ["one"]


def test_dead_members_go_although_memory_lacks_when_a_load_sets_their_sessions(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, dead, other = (Member(world, name, "t") for name in ("one", "dead", "other"))
    for each in (one, dead, other):
        each.join()
    schedule = ShardTimers.schedule

    def lacks(timers: ShardTimers, *rest: Any) -> None:
        monkeypatch.setattr(ShardTimers, "schedule", schedule)
        raise MemoryError

    monkeypatch.setattr(world, "_check_timers", lambda before: None)
    monkeypatch.setattr(ShardTimers, "schedule", lacks)
    world.restart()
    for _ in range(12):
        world.time.advance(5_000)
        one.beat()
    assert [each.member_id for each in described(world)[0].members] == ["one"]


def test_the_members_of_a_loaded_group_are_taken_up_in_short_steps(world: LeadingCoordinator) -> None:
    for index in range(20):
        Member(world, f"m{index}", "t").join()
    machine = world.coordinator._shard("g").machine
    scheduled: list[Any] = []
    machine.env.timers = SimpleNamespace(  # type: ignore[attr-defined]
        schedule=lambda key, delay_ms, operation: scheduled.append(key), is_scheduled=lambda key: False
    )
    counts = [0]
    for _ in machine.on_loaded(0):
        counts.append(len(scheduled))
    assert len(scheduled) == 20
    assert max(after - before for before, after in pairwise(counts)) == 1


def test_a_shard_does_not_look_at_thousands_of_topics_that_its_groups_do_not_name(
    world: LeadingCoordinator,
) -> None:
    looked: list[int] = []

    class Name(str):
        def __hash__(self) -> int:
            looked.append(1)
            return super().__hash__()

    Member(world, "one", "t").join()
    machine = world.coordinator._shard("g").machine
    changed: set[str] = {Name(f"topic{index}") for index in range(1_000)}
    del looked[:]
    machine.on_topics(machine.env.topics, changed, has_new=True)  # type: ignore[attr-defined]
    assert len(looked) < 10


def test_a_member_of_very_many_partitions_is_decoded_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    target = {index.to_bytes(16, "big"): frozenset({0}) for index in range(20_000)}
    written = consumer_target_record("g", "one", target)
    key, value = group_records.encode_record(written)
    assert value is not None
    told: list[Any] = []

    def decoded() -> Iterator[int]:
        told.append((yield from group_records.decode_large(key, value)))

    assert len(list(decoded())) > 1
    assert told == [written]
    monkeypatch.setattr(core, "LOADED_ELEMENTS_MAX", 19_999)
    with pytest.raises(LoadFailure, match="cannot be read"):
        list(group_records.decode_large(key, value))


def test_an_assignment_for_a_member_that_the_log_refused_is_not_written(world: LeadingCoordinator) -> None:
    publish(world, t=3_000)
    one, two = Member(world, "one", "t"), Member(world, "two", "t")
    one.join()
    two.join()
    for _ in range(3):
        world.time.advance(0)
        one.beat()
        two.beat()
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    assert Member(world, "never", "t").join().error_code == E.COORDINATOR_NOT_AVAILABLE
    world.partitions.refusal = None
    two.leave()
    for _ in range(3):
        world.time.advance(0)
        one.beat()
    assert len(one.partitions) == 3_000


def test_equal_subscriptions_by_name_and_expression_are_joined_once(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [Member(world, f"m{index}", "u", regex="t") for index in range(20)]
    for each in members:
        each.join()
        world.time.advance(0)
    asked: list[str] = []
    original = ConsumerGroup.topic_names_of

    def counted(group: ConsumerGroup, member: ConsumerGroupMember) -> frozenset[str]:
        asked.append(member.member_id)
        return original(group, member)

    monkeypatch.setattr(ConsumerGroup, "topic_names_of", counted)
    members[0].leave()
    members[1].beat()
    assert 0 < len(asked) < 5
    settled = [each for each in members[1:] for _ in range(3) if each.beat()]
    assert set().union(*(each.partitions for each in settled)) == {("t", 0), ("t", 1), ("t", 2), ("u", 0)}


def test_a_step_towards_the_target_does_not_look_at_all_subscribed_topics(world: LeadingCoordinator) -> None:
    publish(world, **{f"topic{index}": 1 for index in range(200)})
    one, two = Member(world, "one", regex="topic.*"), Member(world, "two", regex="topic.*")
    one.join()
    world.time.advance(0)
    one.beat()
    two.join()
    one.beat()
    one.beat()
    assert len(one.partitions) == 100
    looked: list[str] = []

    class Names(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            looked.append(name)
            return super().get(name, default)

    env = world.coordinator._shard("g").machine.env  # type: ignore[attr-defined]
    known = env.topics
    env.topics = SimpleNamespace(
        version=known.version, by_name=Names(known.by_name), by_id=known.by_id, racks=known.racks
    )
    two.beat()
    assert (len(two.partitions), looked) == (100, [])


# --- requests that would hold all others up


@pytest.mark.parametrize(
    "part", ["\\pL", "\\PN", "x{0,1000}", "x{1000,}", "(?:ab){999}", "x{1,99999999999999999999}"]
)
def test_an_expression_that_takes_long_to_read_is_not_compiled(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    publish(world, t=1)
    import re2

    def compile(*_: Any, **__: Any) -> None:
        raise AssertionError("it takes up to a second")

    monkeypatch.setattr(re2, "compile", compile)
    answer = Member(world, "one", regex=part * 2_000).join()
    assert answer.error_code == E.INVALID_REGULAR_EXPRESSION
    assert answer.error_message.endswith(
        "is not a valid regular expression: pattern too large - compile failed."
    )


def test_usual_classes_and_repeats_are_compiled(world: LeadingCoordinator) -> None:
    publish(world, t=1)
    usual = "(?:\\p{Lu}|\\pN|\\PL)+-[a-z]{3}-v[0-9]{1,3}"
    assert Member(world, "one", regex=usual).join().error_code == E.NONE


def test_a_member_names_so_many_topics_and_no_more(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(world, t=1)
    monkeypatch.setattr(subscribed_names, "NAMES_MAX", 3)
    monkeypatch.setattr(subscribed_names, "NAMES_LENGTH_MAX", 10)
    one = Member(world, "one", "t", "u", "x" * 8)
    assert one.join().error_code == E.NONE
    for names in (["t", "u", "x" * 9], ["t"] * 4):
        assert one.beat(subscribed_topic_names=names).error_code == E.UNKNOWN_SERVER_ERROR
    assert one.beat().error_code == E.NONE


def test_a_classic_member_tells_so_much_of_its_subscription_and_no_more(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(world, t=1)
    Member(world, "one", "t").join()
    metadata = subscription("t")
    monkeypatch.setattr(classic_members, "METADATA_BYTES_MAX", 2 * len(metadata))
    protocols = (("range", metadata), ("more", metadata), ("most", metadata))
    assert join(world, "two", protocols, session=30_000).error_code == E.UNKNOWN_SERVER_ERROR
    assert join(world, "two", protocols[:2], session=30_000).error_code == E.NONE


def test_a_classic_member_names_so_many_topics_and_no_more(
    world: LeadingCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short names are many within the bytes that it may tell."""
    publish(world, t=1)
    Member(world, "one", "t").join()
    monkeypatch.setattr(consumer_protocol, "METADATA_NAMES_MAX", 2)
    for names, code in ((("t", "u", "v"), E.UNKNOWN_SERVER_ERROR), (("t", "u"), E.NONE)):
        answer = join(world, "two", (("range", subscription(*names)),), session=30_000)
        assert answer.error_code == code
