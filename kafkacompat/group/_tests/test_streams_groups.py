"""Streams groups (KIP-1071) through the coordinator, over real logs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from kafkacompat.api._tests.test_access import allow, authorizer, context
from kafkacompat.api.access import ASKED_A_STEP
from kafkacompat.api.delete_groups import HANDLER as DELETE_GROUPS
from kafkacompat.api.list_groups import HANDLER as LIST_GROUPS
from kafkacompat.api.long_requests import given
from kafkacompat.api.offset_commit import HANDLER as COMMIT
from kafkacompat.api.streams_group_describe import HANDLER as DESCRIBE
from kafkacompat.api.streams_group_heartbeat import (
    CLIENT_TAGS_MAX,
    LISTED_MAX,
    NAMES_MAX,
    TEXTS_MAX,
    TOPOLOGY_PARTS_MAX,
)
from kafkacompat.api.streams_group_heartbeat import HANDLER as HEARTBEAT
from kafkacompat.api.streams_group_topology_description_update import HANDLER as UPDATE_DESCRIPTION
from kafkacompat.coordinator._tests.clients import beat, join, leave
from kafkacompat.coordinator.shard import Shard
from kafkacompat.deferred import Deferred
from kafkacompat.group import image_topics, streams_groups
from kafkacompat.group._tests.streamers import (
    CHANGELOG,
    GROUP,
    Streamer,
    StreamsWorld,
    described,
    heartbeat,
    topology,
)
from kafkacompat.group.describe import describe_streams_group
from kafkacompat.group.environment import group_memory
from kafkacompat.group.group_metadata_manager import machine_of
from kafkacompat.group.streams import heartbeat as streams_heartbeat
from kafkacompat.group.streams.configured_topology import TASKS_MAX, StatusCode
from kafkacompat.group.streams.streams_group import StreamsGroup
from kafkacompat.group.streams.streams_topology import topology_of
from kafkacompat.group.streams_groups import NOT_STORED
from kafkacompat.security.acl import AclOperation, ResourceType
from kafkacompat.tasks import TURN_COST, at_once
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest
from kafkacompat.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkacompat.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from kafkacompat.wire.messages.streams_group_heartbeat_request import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from kafkacompat.wire.messages.streams_group_topology_description_update_request import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)

NOT_REQUESTED = 0


@pytest.fixture
def world() -> StreamsWorld:
    return StreamsWorld()


def codes(answer: Any) -> list[int]:
    return [status.status_code for status in answer.status]


def state(world: StreamsWorld) -> str:
    (group,) = described(world)
    return str(group.group_state)


# --- joining


def test_the_first_member_gets_all_tasks(world: StreamsWorld) -> None:
    a = Streamer(world, "a", topology("t"))
    answer = a.join()
    assert (answer.error_code, answer.member_epoch, codes(answer)) == (E.NONE, 2, [])
    assert answer.heartbeat_interval_ms == 5000
    assert answer.task_offset_interval_ms == 60_000
    assert answer.acceptable_recovery_lag == 10_000
    assert a.active == {("0", 0), ("0", 1), ("0", 2)}
    (group,) = described(world)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    assert group.assignor_name == "sticky"
    (member,) = group.members
    assert member.assignment == member.target_assignment
    assert (member.client_host, member.process_id, member.topology_epoch) == ("/127.0.0.1", "a", 0)


def test_members_are_told_how_often_to_tell_their_offsets_and_which_lag_is_acceptable() -> None:
    world = StreamsWorld(**{"task.offset.interval.ms": 20_000, "acceptable.recovery.lag": 7})
    answer = Streamer(world, "a", topology("t")).join()
    assert (answer.task_offset_interval_ms, answer.acceptable_recovery_lag) == (20_000, 7)


def test_the_first_members_wait_for_others() -> None:
    world = StreamsWorld(delay_ms=3000)
    a, b = (Streamer(world, each, topology("t")) for each in "ab")
    assert codes(a.join()) == [StatusCode.ASSIGNMENT_DELAYED]
    world.time.advance(2000)
    assert codes(b.join()) == [StatusCode.ASSIGNMENT_DELAYED]
    assert (a.active, b.active, state(world)) == (set(), set(), "Assigning")
    world.time.advance(1000)
    assert codes(a.beat()) == codes(b.beat()) == []
    assert len(a.active) in (1, 2)
    assert a.active | b.active == {("0", 0), ("0", 1), ("0", 2)}
    assert not a.active & b.active
    assert state(world) == "Stable"


def test_a_later_assignment_waits_for_the_interval() -> None:
    world = StreamsWorld(interval_ms=1000)
    a, b = (Streamer(world, each, topology("t")) for each in "ab")
    a.join()
    assert codes(b.join()) == [StatusCode.ASSIGNMENT_DELAYED]
    assert b.active == set()
    world.time.advance(1000)
    assert codes(b.beat()) == []


def test_a_member_without_the_tags_that_standbys_are_spread_by_is_told() -> None:
    world = StreamsWorld(**{"rack.aware.assignment.tags": ["zone", "rack"]})
    has_one, has_both, old = (Streamer(world, each, topology("t")) for each in "abc")
    zone, rack = (KeyValue(key=key, value="1") for key in ("zone", "rack"))
    answer = has_one.join(client_tags=[zone])
    assert codes(answer) == [StatusCode.MISSING_CLIENT_TAGS]
    assert "tags for rack-aware standby assignment: [rack]." in answer.status[0].status_detail
    assert codes(has_both.join(client_tags=[zone, rack])) == []
    told = {"topology": old.told, "rebalance_timeout_ms": 10_000, "process_id": "c"}
    assert codes(heartbeat(world, 0, member_id="c", member_epoch=0, client_tags=[zone], **told)) == []


def test_a_tag_has_one_value(world: StreamsWorld) -> None:
    tag = KeyValue(key="zone", value="a")
    assert (
        Streamer(world, "a", topology("t")).join(client_tags=[tag, tag]).error_code == E.UNKNOWN_SERVER_ERROR
    )
    assert described(world)[0].error_code == E.GROUP_ID_NOT_FOUND


def test_missing_source_topics_are_told_and_come_later(world: StreamsWorld) -> None:
    a = Streamer(world, "a", topology("t", "new"))
    answer = a.join()
    assert codes(answer) == [StatusCode.MISSING_SOURCE_TOPICS]
    assert answer.status[0].status_detail == "Source topics new are missing."
    assert (a.active, state(world)) == (set(), "NotReady")
    world.create(new=5)
    assert codes(a.beat()) == []
    assert len(a.active) == 5


def test_internal_topics_are_asked_for(world: StreamsWorld) -> None:
    a = Streamer(world, "a", topology("t", changelog=CHANGELOG))
    answer = a.join()
    assert codes(answer) == [StatusCode.MISSING_INTERNAL_TOPICS]
    wanted = world.auto_create.wanted  # type: ignore[attr-defined]
    assert {name: each.num_partitions for name, each in wanted.items()} == {CHANGELOG: 3}
    world.auto_create.errors[CHANGELOG] = "no room"  # type: ignore[attr-defined]
    assert a.beat().status[0].status_detail.endswith(f"; Creation failed: {CHANGELOG} (no room).")
    world.create(app_store_changelog=3)
    assert codes(a.beat()) == []
    assert len(a.active) == 3
    (group,) = described(world)
    assert [each.partitions for each in group.topology.subtopologies[0].state_changelog_topics] == [3]


def test_topics_that_may_not_be_used_are_refused(world: StreamsWorld) -> None:
    for name in ("__consumer_offsets", "a b"):
        answer = Streamer(world, "a", topology(name)).join()
        assert answer.error_code == E.STREAMS_INVALID_TOPOLOGY
    assert described(world)[0].error_code == E.GROUP_ID_NOT_FOUND


# --- tasks that move


def test_a_task_is_active_elsewhere_only_after_it_is_revoked(world: StreamsWorld) -> None:
    a, b = (Streamer(world, each, topology("t")) for each in "ab")
    a.join()
    b.join()
    assert b.active == set()
    before = set(a.active)
    has = [TaskIds(subtopology_id="0", partitions=[0, 1, 2])]
    a.beat(active_tasks=has)  # told to revoke, and still has everything
    assert b.beat().active_tasks is None
    assert state(world) == "Reconciling"
    a.beat()
    b.beat()
    assert len(b.active) == 1
    assert a.active == before - b.active
    a.settle()
    b.settle()
    assert state(world) == "Stable"


def test_a_member_that_does_not_revoke_in_time_is_fenced(world: StreamsWorld) -> None:
    a, b = (Streamer(world, each, topology("t")) for each in "ab")
    a.join()
    b.join()
    for _ in range(11):
        a.beat(active_tasks=None, standby_tasks=None, warmup_tasks=None)
        b.beat()
        world.time.advance(1000)
    assert a.beat().error_code == E.UNKNOWN_MEMBER_ID
    b.settle()
    assert len(b.active) == 3


def test_a_silent_member_loses_its_tasks(world: StreamsWorld) -> None:
    a, b = (Streamer(world, each, topology("t")) for each in "ab")
    for each in (a, b, a, b):
        each.beat() if each.epoch else each.join()
    for _ in range(50):
        world.time.advance(1000)
        a.beat()
    assert len(a.active) == 3
    assert b.beat().error_code == E.UNKNOWN_MEMBER_ID


def test_standbys_are_in_other_processes() -> None:
    world = StreamsWorld(**{"num.standby.replicas": 1})
    world.create(app_store_changelog=3)
    told = topology("t", changelog=CHANGELOG)
    members = [Streamer(world, each, told, process=each[0]) for each in ("a1", "a2", "b1")]
    for each in members:
        each.join()
    for _ in range(6):
        for each in members:
            each.beat()
    assert state(world) == "Stable"
    for process in "ab":
        mine = [each for each in members if each.process == process]
        active = set().union(*[each.active for each in mine])
        standby = set().union(*[each.standby for each in mine])
        assert not active & standby
    assert set().union(*[each.standby for each in members]) == {("0", 0), ("0", 1), ("0", 2)}


# --- epochs and instances


def test_a_wrong_epoch_is_fenced_and_a_lost_answer_is_not(world: StreamsWorld) -> None:
    a, b = (Streamer(world, each, topology("t")) for each in "ab")
    a.join()
    b.join()
    before = a.epoch
    a.beat()
    a.beat()
    assert a.epoch == before + 1
    assert heartbeat(world, member_id="a", member_epoch=a.epoch + 1).error_code == E.FENCED_MEMBER_EPOCH
    assert heartbeat(world, member_id="a", member_epoch=before).error_code == E.FENCED_MEMBER_EPOCH
    a.epoch = before
    assert a.beat().error_code == E.NONE


def test_tasks_whose_answer_was_lost_are_told_again(world: StreamsWorld) -> None:
    """The client repeats what it has after a request without an answer. Nothing else would ever tell it of these tasks."""
    a, b = (Streamer(world, each, topology("t")) for each in "ab")
    a.join()
    b.join()
    with b.loses_answers():
        a.beat()
        a.beat()
        b.beat()
    assert state(world) == "Stable"
    assert b.active == set()
    b.beat()
    assert len(b.active) == 1
    assert b.beat().active_tasks is None


def test_what_is_to_be_revoked_is_told_again_if_the_answer_was_lost(world: StreamsWorld) -> None:
    a, b = (Streamer(world, each, topology("t")) for each in "ab")
    a.join()
    b.join()
    with a.loses_answers():
        a.beat()
    assert len(a.active) == 3
    a.beat()
    assert len(a.active) == 2


def test_another_topology_is_refused_and_an_older_one_is_stale(world: StreamsWorld) -> None:
    Streamer(world, "a", topology("t", epoch=1)).join()
    answer = Streamer(world, "b", topology("u", epoch=1)).join()
    assert (answer.error_code, answer.error_message) == (
        E.INVALID_REQUEST,
        "Topology updates are not supported yet.",
    )
    answer = Streamer(world, "b", topology("u", epoch=0)).join()
    assert (answer.error_code, codes(answer)) == (E.NONE, [StatusCode.STALE_TOPOLOGY])


def test_a_static_member_keeps_its_tasks_while_it_is_away(world: StreamsWorld) -> None:
    a = Streamer(world, "a", topology("t"), process="p", instance="i")
    a.join()
    had = set(a.active)
    twin = Streamer(world, "b", topology("t"), process="p", instance="i")
    assert twin.join().error_code == E.UNRELEASED_INSTANCE_ID
    assert a.leave(-2).member_epoch == -2
    answer = twin.join()
    assert (answer.error_code, twin.active) == (E.NONE, had)
    assert a.beat().error_code == E.FENCED_INSTANCE_ID
    assert [each.member_id for each in described(world)[0].members] == ["b"]


def test_a_member_that_takes_another_instance_gives_up_its_former_one(world: StreamsWorld) -> None:
    a = Streamer(world, "a", topology("t"), instance="i")
    a.join()
    a.instance = "j"
    assert a.join().error_code == E.NONE
    assert Streamer(world, "b", topology("t"), instance="i").join().error_code == E.NONE


def test_everybody_is_told_to_shut_down(world: StreamsWorld) -> None:
    a, b = (Streamer(world, each, topology("t")) for each in "ab")
    a.join()
    b.join()
    a.beat(shutdown_application=True)
    answer = b.beat()
    assert codes(answer) == [StatusCode.SHUTDOWN_APPLICATION]
    assert "Streams group member a encountered" in answer.status[0].status_detail
    a.leave()
    b.leave()
    assert codes(a.join()) == []


def test_endpoints_are_told_until_the_member_knows_them(world: StreamsWorld) -> None:
    a, b = (Streamer(world, each, topology("t")) for each in "ab")
    a.join(user_endpoint=Endpoint(host="h", port=7), endpoint_information_epoch=-1)
    answer = b.join(endpoint_information_epoch=-1)
    assert [each.user_endpoint.host for each in answer.partitions_by_user_endpoint] == ["h"]
    told = answer.endpoint_information_epoch
    assert b.beat(endpoint_information_epoch=told).partitions_by_user_endpoint is None
    (found,) = a.beat(endpoint_information_epoch=-1).partitions_by_user_endpoint
    (of_topic,) = found.active_partitions
    assert of_topic.topic == "t"


def all_endpoints(streamer: Streamer) -> Any:
    return streamer.beat(endpoint_information_epoch=-1).partitions_by_user_endpoint


def with_endpoints(world: StreamsWorld, told: Topology) -> list[Streamer]:
    members = [Streamer(world, each, told) for each in "abc"]
    for port, each in enumerate(members[:2]):
        each.join(user_endpoint=Endpoint(host="h", port=port))
    members[2].join()
    for each in members * 3:
        each.beat()
    return members


def test_many_topics_of_endpoints_are_told_in_steps(
    world: StreamsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = with_endpoints(world, topology("t", "u"))
    at_once = all_endpoints(members[2])
    assert sum(len(each.active_partitions) for each in at_once) == 3
    monkeypatch.setattr(streams_heartbeat, "ENDPOINT_TOPICS_AT_ONCE", 3)
    monkeypatch.setattr(streams_heartbeat, "ENDPOINT_TOPIC_COST", TURN_COST)
    assert all_endpoints(members[2]) == at_once
    world.has.pop("u")
    world.create()
    assert members[2].beat(endpoint_information_epoch=-1).error_code == E.UNKNOWN_SERVER_ERROR


def test_a_topic_that_is_named_twice_is_told_once(world: StreamsWorld) -> None:
    told = topology("t", "u", "t")
    told.subtopologies[0].repartition_sink_topics = ["r", "r"]
    told.subtopologies.append(
        Subtopology(subtopology_id="1", source_topics=["r"], repartition_source_topics=[TopicInfo(name="r")])
    )
    world.create(r=3)
    a = Streamer(world, "a", told)
    a.join(user_endpoint=Endpoint(host="h", port=7))
    (found,) = all_endpoints(a)
    assert [each.topic for each in found.active_partitions] == ["t", "u", "r"]
    (first, second) = described(world)[0].topology.subtopologies
    assert (first.source_topics, first.repartition_sink_topics) == (["t", "u"], ["r"])
    assert second.source_topics == ["r"]


def test_the_memory_of_endpoints_is_counted(world: StreamsWorld) -> None:
    names = [f"topic-{number}" for number in range(100)]
    world.create(**{name.replace("-", "_"): 8 for name in names})
    members = with_endpoints(world, topology(*names))
    env = machine_of(world.coordinator._shards.shard_for(GROUP)).env
    group, memory = env.groups[GROUP], env.memory
    assert isinstance(group, StreamsGroup)
    group.described_endpoints.clear()
    used = memory.used
    tracemalloc.start()
    try:
        all_endpoints(members[2])
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 < taken <= memory.used - used
    for each in members[:2]:
        each.leave()
    assert memory.used < used


def test_the_memory_of_tasks_is_counted(world: StreamsWorld) -> None:
    """A client decides how many subtopologies read a topic."""
    elsewhere = StreamsWorld()
    elsewhere.create(t=1)
    Streamer(elsewhere, "a", topology("t")).join()  # which loads what all groups share
    world.create(big=500)
    subtopologies = [Subtopology(subtopology_id=str(number), source_topics=["big"]) for number in range(4)]
    a = Streamer(world, "a", Topology(subtopologies=subtopologies))
    memory = machine_of(world.coordinator._shards.shard_for(GROUP)).env.memory
    tracemalloc.start()
    try:
        a.join()
        a.has = {role: {} for role in a.has}
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    group: Any = machine_of(world.coordinator._shards.shard_for(GROUP)).groups[GROUP]
    assert len(group.targets["a"].active) == 4
    assert 200_000 < taken <= memory.used
    a.leave()
    assert memory.used < 50_000


def test_task_offsets_are_described(world: StreamsWorld) -> None:
    a = Streamer(world, "a", topology("t"))
    a.join()
    told = TaskOffset(subtopology_id="0", partition=1, offset=5)
    assert a.beat(task_offsets=[told, told]).error_code == E.INVALID_REQUEST
    a.beat(task_offsets=[told])
    (member,) = described(world)[0].members
    assert [(each.partition, each.offset) for each in member.task_offsets] == [(1, 5)]


def test_tasks_that_do_not_exist_are_refused(world: StreamsWorld) -> None:
    a = Streamer(world, "a", topology("t"))
    a.join()
    for owned in (TaskIds(subtopology_id="1", partitions=[0]), TaskIds(subtopology_id="0", partitions=[3])):
        assert a.beat(active_tasks=[owned]).error_code == E.INVALID_REQUEST


# --- the group as a whole


def test_a_new_coordinator_goes_on(world: StreamsWorld) -> None:
    a, b = (Streamer(world, each, topology("t")) for each in "ab")
    a.join()
    b.join()
    before = described(world)
    world.restart()
    after = described(world)
    assert after == before
    a.settle()
    b.settle()
    assert state(world) == "Stable"
    assert a.active | b.active == {("0", 0), ("0", 1), ("0", 2)}


def test_what_a_plug_in_of_another_broker_has_stored_is_kept(world: StreamsWorld) -> None:
    """Apache Kafka with a plug-in of descriptions asks for no stored one again, and has it deleted with the group."""

    def stored() -> StreamsGroup:
        group = machine_of(world.coordinator._shards.shard_for(GROUP)).groups[GROUP]
        assert isinstance(group, StreamsGroup)
        return group

    a, b = (Streamer(world, each, topology("t")) for each in "ab")
    a.join()
    before, epoch = stored(), stored().group_epoch
    before.stored_description_epoch, before.failed_description_epoch = 3, 2
    b.join()
    world.restart()
    after = stored()
    assert after is not before
    assert after.group_epoch > epoch
    assert (after.stored_description_epoch, after.failed_description_epoch) == (3, 2)


def test_a_group_is_listed_emptied_and_deleted(world: StreamsWorld) -> None:
    a = Streamer(world, "a", topology("new"))
    a.join()

    def listed(**filters: Any) -> list[tuple[str, str]]:
        answer = world.call_to_the_end(LIST_GROUPS, ListGroupsRequest(**filters), 5)
        return [(each.group_type, each.group_state) for each in answer.groups]

    assert listed(types_filter=["Streams"]) == [("streams", "NotReady")]
    assert listed(states_filter=["not_ready"]) == [("streams", "NotReady")]
    assert listed(types_filter=["consumer"]) == []
    delete = DeleteGroupsRequest(groups_names=[GROUP])
    assert world.call_to_the_end(DELETE_GROUPS, delete, 2).results[0].error_code == E.NON_EMPTY_GROUP
    a.leave()
    assert listed() == [("streams", "Empty")]
    assert world.call_to_the_end(DELETE_GROUPS, delete, 2).results[0].error_code == E.NONE
    assert listed() == []
    world.restart()
    assert listed() == []
    assert a.join().error_code == E.NONE


def test_an_empty_group_becomes_a_classic_one_and_a_streams_group_again(world: StreamsWorld) -> None:
    a = Streamer(world, "a", topology("t"))
    a.join()
    assert join(world, group=GROUP).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert beat(world, "a", a.epoch, group=GROUP) == E.UNKNOWN_MEMBER_ID
    a.leave()
    first = join(world, group=GROUP)
    assert first.error_code == E.MEMBER_ID_REQUIRED
    join(world, group=GROUP, member_id=first.member_id)
    world.time.advance(3000)
    assert a.join().error_code == E.GROUP_ID_NOT_FOUND
    leave(world, (first.member_id, None), group=GROUP)
    world.restart()
    assert a.join().error_code == E.NONE
    assert len(a.active) == 3
    world.restart()
    assert state(world) == "Stable"


def test_the_topics_of_a_group_that_becomes_a_classic_one_are_forgotten(world: StreamsWorld) -> None:
    a = Streamer(world, "a", topology("t"))
    a.join()
    a.leave()
    env = machine_of(world.coordinator._shards.shard_for(GROUP)).env
    world.partitions.refusal = E.NOT_ENOUGH_REPLICAS
    assert join(world, group=GROUP).error_code == E.COORDINATOR_NOT_AVAILABLE
    world.partitions.refusal = None
    assert state(world) == "Empty"
    assert env.subscribers == {"t": {GROUP}}
    assert join(world, group=GROUP).error_code == E.MEMBER_ID_REQUIRED
    assert env.subscribers == {}


def test_members_commit_the_offsets_of_their_tasks(world: StreamsWorld) -> None:
    a, b = (Streamer(world, each, topology("t")) for each in "ab")
    a.join()
    b.join()

    def commit(member: str, epoch: int, partition: int) -> int:
        each = OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id=member,
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[each])],
        )
        answer = world.call_to_the_end(COMMIT, request, 9)
        return int(answer.topics[0].partitions[0].error_code)

    old = a.epoch
    assert commit("a", old, 0) == E.NONE
    a.beat()
    a.beat()
    assert a.epoch > old
    (kept, *_), (given,) = sorted(a.active), sorted({("0", 0), ("0", 1), ("0", 2)} - a.active)
    assert commit("a", old, kept[1]) == E.NONE
    assert commit("a", old, given[1]) == E.STALE_MEMBER_EPOCH
    assert commit("a", a.epoch + 1, kept[1]) == E.STALE_MEMBER_EPOCH
    assert commit("x", 1, 0) == E.UNKNOWN_MEMBER_ID
    assert commit("", -1, 0) == E.UNKNOWN_MEMBER_ID


def test_a_description_is_refused_without_a_plug_in(world: StreamsWorld) -> None:
    answer = world.call(UPDATE_DESCRIPTION, StreamsGroupTopologyDescriptionUpdateRequest(), 0)
    assert answer.error_code == E.UNSUPPORTED_VERSION
    assert answer.error_message == "The broker has no streams group topology description plugin configured."


def test_who_asks_for_the_description_of_a_topology_is_told_that_none_is_stored(world: StreamsWorld) -> None:
    Streamer(world, "a", topology("t")).join()
    for is_asked, status in ((False, NOT_REQUESTED), (True, NOT_STORED)):
        request = StreamsGroupDescribeRequest(
            group_ids=[GROUP, "nobody"], include_topology_description=is_asked
        )
        group, missing = world.call_to_the_end(DESCRIBE, request, 1).groups
        assert (group.error_code, group.topology_description_status) == (E.NONE, status)
        assert (missing.error_code, missing.topology_description_status) == (
            E.GROUP_ID_NOT_FOUND,
            NOT_REQUESTED,
        )


# --- bounds


def parts(count: int) -> Topology:
    """A topology with that many parts: itself one subtopology with its topics."""
    names = [f"t{number}" for number in range(count - 1)]
    return Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=names)])


def test_a_topology_has_a_bound(world: StreamsWorld) -> None:
    answer = Streamer(world, "a", parts(TOPOLOGY_PARTS_MAX)).join()
    assert (answer.error_code, codes(answer)) == (E.NONE, [StatusCode.MISSING_SOURCE_TOPICS])
    answer = Streamer(world, "b", parts(TOPOLOGY_PARTS_MAX + 1)).join()
    assert answer.error_code == E.STREAMS_INVALID_TOPOLOGY
    assert answer.error_message == f"A topology may have at most {TOPOLOGY_PARTS_MAX} parts."


@pytest.mark.parametrize(
    "told",
    [
        Topology(subtopologies=[Subtopology(subtopology_id=str(n)) for n in range(TOPOLOGY_PARTS_MAX + 1)]),
        Topology(subtopologies=[Subtopology(repartition_sink_topics=["r"] * TOPOLOGY_PARTS_MAX)]),
        Topology(
            subtopologies=[
                Subtopology(
                    state_changelog_topics=[
                        TopicInfo(
                            name="c", topic_configs=[KeyValue(key="k", value="v")] * (TOPOLOGY_PARTS_MAX - 1)
                        )
                    ]
                )
            ]
        ),
        Topology(
            subtopologies=[
                Subtopology(
                    copartition_groups=[CopartitionGroup(source_topics=[0] * (TOPOLOGY_PARTS_MAX - 1))]
                )
            ]
        ),
    ],
)
def test_all_parts_of_a_topology_count(world: StreamsWorld, told: Topology) -> None:
    answer = Streamer(world, "a", told).join()
    assert answer.error_message == f"A topology may have at most {TOPOLOGY_PARTS_MAX} parts."


@pytest.mark.parametrize("is_id", [True, False])
def test_the_names_in_a_topology_have_a_bound(world: StreamsWorld, is_id: bool) -> None:
    """They are hashed in one step, and a client may send a hundred megabytes of them."""
    count = NAMES_MAX // 100

    def told(more: str) -> Topology:
        names = [f"{number:0100}" for number in range(count)]
        names[0] += more
        if not is_id:
            return Topology(subtopologies=[Subtopology(subtopology_id="", source_topics=names)])
        return Topology(subtopologies=[Subtopology(subtopology_id=name) for name in names])

    refused = Streamer(world, "a", told("x")).join()
    assert refused.error_code == E.STREAMS_INVALID_TOPOLOGY
    assert refused.error_message == f"The names in a topology may have at most {NAMES_MAX} characters."
    assert Streamer(world, "a", told("")).join().error_message != refused.error_message


def test_texts_that_fit_into_no_record_are_not_written(world: StreamsWorld, faults: Any) -> None:
    texts = [KeyValue(key=str(number), value="x" * (TEXTS_MAX // 100)) for number in range(100)]
    changelog = TopicInfo(name="c", topic_configs=texts)
    told = Topology(subtopologies=[Subtopology(source_topics=["t"], state_changelog_topics=[changelog])])
    for answer in (
        Streamer(world, "a", told).join(),
        Streamer(world, "a", topology("t")).join(client_tags=texts),
    ):
        assert answer.error_code == E.UNKNOWN_SERVER_ERROR
    assert not faults.take()
    assert described(world)[0].error_code == E.GROUP_ID_NOT_FOUND


def test_what_a_member_lists_has_a_bound(world: StreamsWorld) -> None:
    a = Streamer(world, "a", topology("t"))
    a.join()
    owned = [TaskIds(subtopology_id="0", partitions=[0] * (LISTED_MAX + 1))]
    offsets = [TaskOffset(subtopology_id="0", partition=each, offset=1) for each in range(LISTED_MAX // 2)]
    tags = [KeyValue(key=str(each), value="v") for each in range(CLIENT_TAGS_MAX)]
    assert a.beat(task_offsets=offsets, task_end_offsets=offsets, client_tags=tags).error_code == E.NONE
    for fields, message in (
        ({"active_tasks": owned}, f"A heartbeat may name at most {LISTED_MAX} tasks."),
        (
            {"task_offsets": offsets, "task_end_offsets": [*offsets, offsets[0]]},
            f"A heartbeat may have at most {LISTED_MAX} offsets of tasks.",
        ),
        (
            {"client_tags": [*tags, KeyValue(key="k", value="v")]},
            f"A member may have at most {CLIENT_TAGS_MAX} client tags.",
        ),
    ):
        answer = a.beat(**fields)
        assert (answer.error_code, answer.error_message) == (E.INVALID_REQUEST, message)


def test_a_topology_with_too_many_tasks_does_not_run(world: StreamsWorld) -> None:
    world.create(large=TASKS_MAX + 1)
    answer = Streamer(world, "a", topology("large")).join()
    assert (answer.error_code, codes(answer)) == (E.NONE, [StatusCode.INCORRECTLY_PARTITIONED_TOPICS])
    assert (
        answer.status[0].status_detail
        == f"The topology has {TASKS_MAX + 1} tasks. At most {TASKS_MAX} can run."
    )
    assert (answer.active_tasks, state(world)) == ([], "NotReady")


def test_the_memory_of_offsets_is_counted(world: StreamsWorld) -> None:
    """Whatever a client calls the subtopologies."""
    a = Streamer(world, "a", topology("t"))
    a.join()
    memory = machine_of(world.coordinator._shards.shard_for(GROUP)).env.memory
    used = memory.used
    names = [f"{number:010000}" for number in range(20)]
    a.beat(task_offsets=[TaskOffset(subtopology_id=name, partition=0, offset=1) for name in names])
    assert memory.used > used + 20 * 10_000
    a.leave()
    assert memory.used < used


def test_offsets_of_who_is_refused_are_forgotten(world: StreamsWorld) -> None:
    Streamer(world, "a", topology("gone")).join()
    machine = machine_of(world.coordinator._shards.shard_for(GROUP))
    used = machine.env.memory.used
    offsets = [TaskOffset(subtopology_id="0", partition=0, offset=1)]
    answer = Streamer(world, "b", topology("gone")).join(
        task_offsets=offsets, user_endpoint=Endpoint(host="h", port=1)
    )
    assert answer.error_code == E.UNKNOWN_SERVER_ERROR  # as Apache Kafka, which cannot describe its endpoint
    assert machine.env.memory.used == used


@pytest.fixture
def a(world: StreamsWorld) -> Streamer:
    """A member that has told as many offsets as it may."""
    a = Streamer(world, "a", topology("t"))
    a.join()
    offsets = [TaskOffset(subtopology_id="0", partition=each, offset=1) for each in range(LISTED_MAX)]
    assert a.beat(task_offsets=offsets, task_end_offsets=[]).error_code == E.NONE
    return a


def test_the_description_of_many_offsets_has_its_cost(world: StreamsWorld, a: Streamer) -> None:
    machine = machine_of(world.coordinator._shards.shard_for(GROUP))
    assert sum(describe_streams_group(machine, GROUP)) >= LISTED_MAX


def test_the_description_of_many_topics_has_its_cost(world: StreamsWorld) -> None:
    Streamer(world, "a", topology(*[f"topic-{number}" for number in range(1_000)])).join()
    machine = machine_of(world.coordinator._shards.shard_for(GROUP))
    assert sum(describe_streams_group(machine, GROUP)) >= 1_000


def test_members_with_many_offsets_are_assigned_beside_the_requests(world: StreamsWorld, a: Streamer) -> None:
    b = Streamer(world, "b", topology("t"))
    b.join()
    assert (b.epoch, b.active) == (a.epoch, set())
    for each in (a, b, a, b):
        each.beat()
    assert len(a.active) + len(b.active) == 3
    assert state(world) == "Stable"


def test_a_group_of_many_members_is_described_beside_the_requests(
    world: StreamsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c = members = [Streamer(world, each, topology("t"), instance=f"i{each}") for each in "abc"]
    for each in members:
        each.join()
    for each in members * 4:
        each.beat()
    monkeypatch.setattr(streams_heartbeat, "MEMBERS_AT_ONCE", 2)
    c.leave(-2)
    d = Streamer(world, "d", topology("t"), process="other", instance="ic")
    d.join()
    assert d.epoch == a.epoch
    for each in (a, b, d) * 4:
        each.beat()
    assert [len(each.active) for each in (a, b, d)] == [1, 1, 1]
    assert len(a.active | b.active | d.active) == 3
    assert (state(world), d.epoch > c.epoch) == ("Stable", True)


def test_topics_are_hashed_before_the_first_heartbeat_after_a_load(
    world: StreamsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = Streamer(world, "a", topology("t", "u"))
    a.join()
    world.restart()
    described(world)
    hashed: list[set[str]] = []
    hash_topics = image_topics.hash_topics

    def noted(env: Any, names: Any) -> Any:
        hashed.append(set(names))
        return hash_topics(env, names)

    monkeypatch.setattr(image_topics, "HASHED_AT_ONCE", 1)
    monkeypatch.setattr(image_topics, "hash_topics", noted)
    epoch = a.epoch
    assert [a.beat().error_code, a.beat().error_code, a.epoch] == [E.NONE, E.NONE, epoch]
    assert hashed == [{"t", "u"}]


def test_a_large_topology_is_read_before_the_step_that_writes_it(
    world: StreamsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured: list[bool] = []
    configure, write = streams_heartbeat.configure_topology, Shard.write
    is_writing = False

    def noted(told: Any, topics: Any) -> Any:
        configured.append(is_writing)
        return configure(told, topics)

    def watched(self: Shard, operation: Any) -> Any:
        nonlocal is_writing
        is_writing = True
        try:
            return write(self, operation)
        finally:
            is_writing = False

    monkeypatch.setattr(streams_heartbeat, "configure_topology", noted)
    monkeypatch.setattr(Shard, "write", watched)
    monkeypatch.setattr(streams_groups, "PREPARED_AT_ONCE", 1)
    a = Streamer(world, "a", topology("t", "u"))
    a.join()
    assert configured == [False]
    assert len(a.active) == 3


def test_a_topology_that_was_read_beside_other_topics_is_read_again(world: StreamsWorld) -> None:
    world.create()
    env = machine_of(world.coordinator._shards.shard_for(GROUP)).env
    told = topology("t")
    prepared = at_once(streams_heartbeat.prepare_topology(env, told))
    world.create(t=5)
    request = StreamsGroupHeartbeatRequest(
        group_id=GROUP, member_id="a", topology=told, rebalance_timeout_ms=1, active_tasks=[]
    )
    request.standby_tasks = request.warmup_tasks = []
    caller = streams_heartbeat.HeartbeatCaller("client", "/host", 1)
    result = streams_heartbeat.streams_group_heartbeat(env, request, caller, 1, prepared)
    (active,) = result.response.response.active_tasks or ()
    assert active.partitions == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("told", "error"),
    [
        (Topology(subtopologies=[Subtopology(subtopology_id="0")] * 2), E.UNKNOWN_SERVER_ERROR),
        (Topology(epoch=-1), E.UNKNOWN_SERVER_ERROR),
        (Topology(subtopologies=[Subtopology(subtopology_id="0")]), E.STREAMS_INVALID_TOPOLOGY),
    ],
)
def test_a_large_topology_is_refused_as_a_small_one(
    world: StreamsWorld, monkeypatch: pytest.MonkeyPatch, told: Topology, error: E
) -> None:
    monkeypatch.setattr(streams_groups, "PREPARED_AT_ONCE", -1)
    assert Streamer(world, "a", told).join().error_code == error
    assert Streamer(world, "a", topology("t")).join().error_code == E.NONE


def reading_many() -> Subtopology:
    return Subtopology(source_topics=[f"topic-{number}" for number in range(2_000)])


def with_many_changelogs() -> Subtopology:
    topics = [TopicInfo(name=f"changelog-{number}") for number in range(2_000)]
    return Subtopology(source_topics=["t"], state_changelog_topics=topics)


def with_many_settings() -> Subtopology:
    configs = [KeyValue(key=f"key-{number}", value=f"value-{number}") for number in range(2_000)]
    return Subtopology(
        source_topics=["t"], state_changelog_topics=[TopicInfo(name="c", topic_configs=configs)]
    )


@pytest.mark.parametrize("make", [reading_many, with_many_changelogs, with_many_settings])
def test_the_memory_of_a_topology_is_counted(make: Callable[[], Subtopology]) -> None:
    memory = group_memory(1 << 30)
    group = StreamsGroup(GROUP, {}, memory)
    tracemalloc.start()
    try:
        group.set_topology(topology_of(Topology(subtopologies=[make()])))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken <= memory.used


@pytest.mark.parametrize("unseen", [None, "topic-999"])
def test_the_right_to_many_topics_of_a_description_is_asked_for_in_steps(
    world: StreamsWorld, unseen: str | None
) -> None:
    names = [f"topic-{number}" for number in range(1_000)]
    Streamer(world, "a", topology(*names)).join()
    world.time.advance(0)
    node = world.node
    node.authorizer = authorizer(
        *[allow(ResourceType.TOPIC, AclOperation.DESCRIBE, name) for name in names if name != unseen]
    )
    request = StreamsGroupDescribeRequest(group_ids=[GROUP])
    answer = world.tasks.run(
        "a request", given(DESCRIBE.function(node, context(request.API_KEY, 1), request))
    )
    steps = 0
    while not answer.done:
        assert world.time.step()
        steps += 1
    assert steps >= len(names) // ASKED_A_STEP - 1
    (group,) = answer.result().groups
    assert group.error_code == (E.NONE if unseen is None else E.TOPIC_AUTHORIZATION_FAILED)


def test_many_internal_topics_are_asked_for_in_a_step_of_their_own(world: StreamsWorld) -> None:
    changelogs = [TopicInfo(name=f"changelog-{number}") for number in range(1_000)]
    told = Topology(
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=["t"], state_changelog_topics=changelogs)
        ]
    )
    a = Streamer(world, "a", told)
    a.join()
    world.time.advance(0)
    world.auto_create.wanted.clear()  # type: ignore[attr-defined]
    request = StreamsGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=a.epoch)
    answer = world.call(HEARTBEAT, request, 1)
    assert isinstance(answer, Deferred)
    assert not answer.done
    world.time.advance(0)
    assert codes(answer.result()) == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert len(world.auto_create.wanted) == 1_000  # type: ignore[attr-defined]


def test_the_right_to_create_many_topics_is_asked_for_in_steps(world: StreamsWorld) -> None:
    changelogs = [TopicInfo(name=f"changelog-{number}") for number in range(1_000)]
    names = ["t", *[each.name for each in changelogs]]
    told = Topology(
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=["t"], state_changelog_topics=changelogs)
        ]
    )
    a = Streamer(world, "a", told)
    a.join()
    world.time.advance(0)
    node = world.node
    node.authorizer = authorizer(
        *[allow(ResourceType.TOPIC, AclOperation.DESCRIBE, name) for name in names],
        *[allow(ResourceType.TOPIC, AclOperation.CREATE, name) for name in names[:-1]],
    )
    request = StreamsGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=a.epoch)
    answer = world.tasks.run(
        "a request", given(HEARTBEAT.function(node, context(request.API_KEY, 1), request))
    )
    steps = 0
    while not answer.done:
        assert world.time.step()
        steps += 1
    assert steps >= len(changelogs) // ASKED_A_STEP - 1
    (status,) = answer.result().status
    assert status.status_detail.endswith("; Unauthorized to CREATE on topics changelog-999.")


# --- the initial delay


def test_a_deleted_group_leaves_no_delay_behind() -> None:
    world = StreamsWorld(delay_ms=3000)
    a = Streamer(world, "a", topology("t"))
    a.join()
    a.leave()
    world.time.advance(2000)
    answer = world.call_to_the_end(DELETE_GROUPS, DeleteGroupsRequest(groups_names=[GROUP]), 2)
    assert answer.results[0].error_code == E.NONE
    assert codes(a.join()) == [StatusCode.ASSIGNMENT_DELAYED]
    world.time.advance(1000)
    assert codes(a.beat()) == [StatusCode.ASSIGNMENT_DELAYED]
    world.time.advance(2000)
    assert codes(a.beat()) == []
