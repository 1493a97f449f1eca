"""OffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups, DescribeGroups, ListGroups, through the handlers."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.api.delete_groups import HANDLER as DELETE
from kafkacompat.api.describe_groups import HANDLER as DESCRIBE
from kafkacompat.api.list_groups import HANDLER as LIST
from kafkacompat.api.offset_commit import HANDLER as COMMIT
from kafkacompat.api.offset_delete import HANDLER as OFFSET_DELETE
from kafkacompat.api.offset_fetch import HANDLER as FETCH
from kafkacompat.api.pieces import COMMITTED_PIECE
from kafkacompat.coordinator._tests.clients import (
    beat,
    commit,
    fetch,
    form_group,
    join,
    leave,
    member_id_of,
    subscription,
    sync,
)
from kafkacompat.coordinator._tests.kit import LeadingCoordinator, context, topic_image
from kafkacompat.coordinator.core import CoordinatorResult
from kafkacompat.deferred import Deferred
from kafkacompat.group import offset_metadata_manager
from kafkacompat.group.environment import GroupSettings
from kafkacompat.group.records import OffsetAndMetadata, OffsetRecord
from kafkacompat.ids import OFFSETS_TOPIC, ZERO_UUID
from kafkacompat.records.batch import iterate_batches
from kafkacompat.tasks import TURN_COST
from kafkacompat.wire.codec import encode
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
from kafkacompat.wire.messages.describe_groups_request import DescribeGroupsRequest
from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest
from kafkacompat.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkacompat.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkacompat.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)


@pytest.mark.parametrize("version", range(2, 11))
def test_anybody_may_commit_to_an_empty_or_absent_group(version: int) -> None:
    world = LeadingCoordinator()
    assert commit(world, 7, version=version, metadata="note") == E.NONE
    assert commit(world, 8, version=version) == E.NONE
    assert (fetch(world).committed_offset, fetch(world).metadata) == (8, "")


def test_the_empty_group_id_is_allowed() -> None:
    world = LeadingCoordinator()
    assert commit(world, 7, group="") == E.NONE
    assert fetch(world, group="").committed_offset == 7
    assert [each.group_id for each in listed(world)] == [""]


def test_metadata_comes_back_as_it_was_also_after_a_restart() -> None:
    world = LeadingCoordinator()
    note = '{"bolt":"x","ümlaut":"\U0001f600"}'
    commit(world, 7, metadata=note)
    assert fetch(world).metadata == note
    world.restart()
    assert fetch(world).metadata == note
    commit(world, 8, metadata=None)
    assert fetch(world).metadata == ""


def test_metadata_too_large_is_counted_in_characters() -> None:
    world = LeadingCoordinator()
    assert commit(world, 7, metadata="ü" * 4096) == E.NONE
    assert commit(world, 8, metadata="x" * 4097) == E.OFFSET_METADATA_TOO_LARGE
    assert commit(world, 8, metadata="\U0001f600" * 2049) == E.OFFSET_METADATA_TOO_LARGE
    assert fetch(world).committed_offset == 7


@pytest.mark.parametrize(("version", "code"), [(8, E.ILLEGAL_GENERATION), (9, E.GROUP_ID_NOT_FOUND)])
def test_a_generation_in_an_absent_group(version: int, code: E) -> None:
    assert commit(LeadingCoordinator(), 7, generation=0, member_id="m", version=version) == code


def test_commits_to_a_group_with_members() -> None:
    world = LeadingCoordinator()
    first, second = member_id_of(world), member_id_of(world)
    waiting = [join(world, first), join(world, second)]
    world.time.advance(6_000)
    assert waiting[0].done
    assert commit(world, 1, member_id=first, generation=1) == E.REBALANCE_IN_PROGRESS
    assert commit(world, 1, member_id=first, generation=2) == E.ILLEGAL_GENERATION
    sync(world, second, 1)
    sync(world, first, 1, {})
    assert commit(world, 1, member_id=first, generation=1) == E.NONE
    assert commit(world, 1) == E.UNKNOWN_MEMBER_ID
    assert commit(world, 1, member_id="x", generation=1) == E.UNKNOWN_MEMBER_ID
    assert commit(world, 1, member_id=first, generation=1, instance="i") == E.UNKNOWN_MEMBER_ID
    join(world, first)
    assert commit(world, 2, member_id=second, generation=1) == E.NONE


def test_a_commit_keeps_the_session_alive() -> None:
    world = LeadingCoordinator()
    (first,) = form_group(world, session=6_000)
    for offset in range(5):
        world.time.advance(4_000)
        assert commit(world, offset, member_id=first, generation=1) == E.NONE


def test_unknown_topics_and_partitions_are_refused_beside_those_that_exist() -> None:
    world = LeadingCoordinator()
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=5)
                    for index in (0, 9)
                ],
            )
            for name in ("t", "absent")
        ],
    )
    answer = world.call(COMMIT, request, 9)
    errors = {
        (topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == {("t", 0): 0, ("t", 9): unknown, ("absent", 0): unknown, ("absent", 9): unknown}
    assert len(answer.topics) == 2
    assert fetch(world).committed_offset == 5
    assert commit(world, 5, topic="absent", version=10) == E.UNKNOWN_TOPIC_ID


def test_a_commit_that_cannot_be_written_changes_nothing() -> None:
    world = LeadingCoordinator()
    commit(world, 1)
    for refusal, told in (
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ):
        world.partitions.refusal = refusal
        assert commit(world, 2) == told
        assert fetch(world).committed_offset == 1


def test_of_commits_that_are_refused_alike_one_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """A full disk refuses each commit of each client, and the node's log may be on the same disk."""
    world = LeadingCoordinator()
    for refusal in (E.KAFKA_STORAGE_ERROR, None, E.KAFKA_STORAGE_ERROR):
        world.partitions.refusal = refusal
        for _ in range(5):
            commit(world, 2)
    told = [each.getMessage() for each in caplog.records if "could not be written" in each.getMessage()]
    assert len(told) == 2
    assert all("1 records could not be written: KAFKA_STORAGE_ERROR" in each for each in told)


def test_offsets_show_once_they_are_committed() -> None:
    world = LeadingCoordinator()
    commit(world, 1)
    world.partitions.held = True
    waiting = commit(world, 2)
    reading = fetch(world)
    assert not waiting.done
    assert not reading.done
    world.partitions.release()
    assert waiting.result().topics[0].partitions[0].error_code == 0
    assert reading.result().groups[0].topics[0].partitions[0].committed_offset == 2


def test_a_commit_that_is_not_replicated_in_time() -> None:
    world = LeadingCoordinator()
    world.partitions.held = True
    waiting = commit(world, 2)
    world.partitions.release(E.REQUEST_TIMED_OUT)
    assert waiting.result().topics[0].partitions[0].error_code == E.COORDINATOR_NOT_AVAILABLE


def test_no_offset_is_no_error() -> None:
    world = LeadingCoordinator()
    for group in ("absent", "g"):
        answer = fetch(world, group=group)
        assert (answer.error_code, answer.committed_offset, answer.committed_leader_epoch) == (0, -1, -1)
        assert answer.metadata == ""
        commit(world, 1, partition=1)


def fetch_old(world: LeadingCoordinator, version: int, topics: list[tuple[str, list[int]]] | None) -> Any:
    listed = None
    if topics is not None:
        listed = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics]
    return world.call(FETCH, OffsetFetchRequest(group_id="g", topics=listed), version)


@pytest.mark.parametrize("version", range(1, 8))
def test_one_group_a_request(version: int) -> None:
    world = LeadingCoordinator()
    commit(world, 5)
    answer = fetch_old(world, version, [("t", [0, 1]), ("absent", [0])])
    offsets = {
        (topic.name, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
    }
    assert offsets == {("t", 0): 5, ("t", 1): -1, ("absent", 0): -1}
    if version >= 2:
        everything = fetch_old(world, version, None)
        assert [
            (topic.name, [each.committed_offset for each in topic.partitions]) for topic in everything.topics
        ] == [("t", [5])]


@pytest.mark.parametrize("version", range(1, 11))
def test_a_groups_error_stands_where_the_version_has_it(version: int) -> None:
    world = LeadingCoordinator()
    world.publish([topic_image(OFFSETS_TOPIC, 1, leader=2), world.image.topics["t"]])
    if version < 8:
        answer = fetch_old(world, version, [("t", [0, 1])])
        if version < 2:
            assert answer.error_code == 0
            assert [each.error_code for each in answer.topics[0].partitions] == [E.NOT_COORDINATOR] * 2
            assert [each.committed_offset for each in answer.topics[0].partitions] == [-1, -1]
        else:
            assert (answer.error_code, answer.topics) == (E.NOT_COORDINATOR, [])
    else:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        assert world.call(FETCH, request, version).groups[0].error_code == E.NOT_COORDINATOR


def test_an_offset_of_an_earlier_topic_of_the_same_name_is_not_shown() -> None:
    """A coordinator that was not there when the topic was deleted finds it in its log."""
    world = LeadingCoordinator()
    world.publish([topic_image(OFFSETS_TOPIC, 1), topic_image("t", 1)])
    commit(world, 1)
    for topic_id, shown in ((b"?" * 16, -1), (world.image.topics["t"].id, 5), (ZERO_UUID, 5)):
        value = OffsetAndMetadata(offset=5, commit_timestamp=world.time.now_ms(), topic_id=topic_id)
        record = OffsetRecord("g", "t", 0, value)
        world.coordinator._shard("g").write(lambda _, record=record: CoordinatorResult((record,), None))  # type: ignore[misc]
        assert fetch(world).committed_offset == shown


@pytest.mark.parametrize("version", [8, 9])
def test_a_group_is_asked_for_the_topics_that_exist_when_its_turn_comes(version: int) -> None:
    """The group before it waits, and meanwhile a topic is made anew and committed."""
    world = LeadingCoordinator()
    commit(world, 1, group="waits")
    world.partitions.held = True
    commit(world, 2, group="waits")
    asked = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=group, topics=asked) for group in ("waits", "h")]
    node, request = world.node, OffsetFetchRequest(groups=groups)
    answer = world.tasks.run("a request", FETCH.function(node, context(request.API_KEY, version), request))
    assert not answer.done
    world.publish([world.image.topics[OFFSETS_TOPIC], topic_image("t", 1, b"n" * 16)])
    node.image = world.image
    commit(world, 7, group="h")
    world.partitions.release()
    _, later = answer.result().groups
    assert later.topics[0].partitions[0].committed_offset == 7


def test_topic_ids() -> None:
    world = LeadingCoordinator()
    commit(world, 5)
    commit(world, 6, topic="u")
    ids = {name: world.image.topics[name].id for name in ("t", "u")}
    asked = [
        OffsetFetchRequestTopics(topic_id=ids["t"], partition_indexes=[0]),
        OffsetFetchRequestTopics(topic_id=b"?" * 16, partition_indexes=[3]),
    ]
    # A group named twice is answered once, so the second question is a separate request.
    answers = [
        world.call(
            FETCH, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)]), 10
        )
        for topics in (asked, None)
    ]
    known, unknown = answers[0].groups[0].topics
    assert (known.topic_id, known.name, known.partitions[0].committed_offset) == (ids["t"], "", 5)
    assert (unknown.topic_id, unknown.partitions[0].error_code) == (b"?" * 16, E.UNKNOWN_TOPIC_ID)
    assert {each.topic_id: each.partitions[0].committed_offset for each in answers[1].groups[0].topics} == {
        ids["t"]: 5,
        ids["u"]: 6,
    }


def test_offsets_of_a_topic_that_was_made_anew_are_gone() -> None:
    world = LeadingCoordinator()
    commit(world, 5)
    commit(world, 6, topic="u")
    keep = [world.image.topics[OFFSETS_TOPIC], world.image.topics["u"]]
    world.publish([*keep, topic_image("t", 3, b"n" * 16)])
    assert fetch(world).committed_offset == -1
    commit(world, 9)
    world.publish(keep)
    assert fetch(world).committed_offset == -1
    world.restart()
    assert fetch(world).committed_offset == -1
    assert fetch(world, topic="u").committed_offset == 6


def delete_offsets(world: LeadingCoordinator, topic: str, group: str = "g", index: int = 0) -> Any:
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)]
            )
        ],
    )
    return world.call(OFFSET_DELETE, request, 0)


def test_offset_delete() -> None:
    world = LeadingCoordinator()
    assert delete_offsets(world, "t").error_code == E.GROUP_ID_NOT_FOUND
    assert delete_offsets(world, "t", group="").error_code == E.INVALID_GROUP_ID
    commit(world, 5)
    assert (
        delete_offsets(world, "t", index=9).topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    )
    for _ in range(2):
        assert delete_offsets(world, "t").topics[0].partitions[0].error_code == 0
    assert fetch(world).committed_offset == -1
    world.restart()
    assert fetch(world).committed_offset == -1


def test_offset_delete_answers_each_topic_once_with_all_its_partitions() -> None:
    """Partitions refused here and partitions answered by the coordinator are in the same topic of the answer."""
    world = LeadingCoordinator()
    (first,) = form_group(world)
    commit(world, 5, member_id=first, generation=1)
    commit(world, 6, topic="u", member_id=first, generation=1)
    named = [("t", [0, 9]), ("nope", [1, 2]), ("u", [8, 0]), ("gone", []), ("t", [7])]
    topics = [
        OffsetDeleteRequestTopic(
            name=name,
            partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
        )
        for name, indexes in named
    ]
    answer = world.call(OFFSET_DELETE, OffsetDeleteRequest(group_id="g", topics=topics), 0)
    told = [
        (topic.name, {each.partition_index: each.error_code for each in topic.partitions})
        for topic in answer.topics
    ]
    unknown, subscribed = E.UNKNOWN_TOPIC_OR_PARTITION, E.GROUP_SUBSCRIBED_TO_TOPIC
    assert answer.error_code == 0
    assert len(told) == 4
    assert dict(told) == {
        "t": {9: unknown, 7: unknown, 0: subscribed},
        "nope": {1: unknown, 2: unknown},
        "u": {8: unknown, 0: 0},
        "gone": {},
    }
    assert (fetch(world).committed_offset, fetch(world, topic="u").committed_offset) == (5, -1)


def test_offset_delete_spares_what_the_group_subscribes_to() -> None:
    world = LeadingCoordinator()
    (first,) = form_group(world)
    commit(world, 5, member_id=first, generation=1)
    commit(world, 6, topic="u", member_id=first, generation=1)
    subscribed = delete_offsets(world, "t").topics[0].partitions[0]
    assert subscribed.error_code == E.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offsets(world, "u").topics[0].partitions[0].error_code == 0
    assert (fetch(world).committed_offset, fetch(world, topic="u").committed_offset) == (5, -1)
    form_group(world, group="connect-g", kind="connect")
    assert delete_offsets(world, "t", group="connect-g").error_code == E.NON_EMPTY_GROUP


def test_delete_groups() -> None:
    world = LeadingCoordinator()
    (first,) = form_group(world)
    commit(world, 1, group="simple")
    answer = world.call(DELETE, DeleteGroupsRequest(groups_names=["g", "simple", "absent"]), 2)
    assert [(each.group_id, each.error_code) for each in answer.results] == [
        ("g", E.NON_EMPTY_GROUP),
        ("simple", 0),
        ("absent", E.GROUP_ID_NOT_FOUND),
    ]
    leave(world, (first, None))
    assert world.call(DELETE, DeleteGroupsRequest(groups_names=["g"]), 0).results[0].error_code == 0
    world.restart()
    assert listed(world) == []
    assert fetch(world, group="simple").committed_offset == -1


def listed(world: LeadingCoordinator, version: int = 5, **filters: list[str]) -> list[Any]:
    answer = world.call(LIST, ListGroupsRequest(**filters), version)  # type: ignore[arg-type]
    assert answer.error_code == 0
    return list(answer.groups)


def test_list_groups() -> None:
    world = LeadingCoordinator(count=5)
    form_group(world)
    for index in range(10):
        commit(world, 1, group=f"simple-{index}")
    groups = {each.group_id: each for each in listed(world)}
    assert len(listed(world)) == len(groups) == 11
    assert (groups["g"].protocol_type, groups["g"].group_state, groups["g"].group_type) == (
        "consumer",
        "Stable",
        "classic",
    )
    assert (groups["simple-1"].protocol_type, groups["simple-1"].group_state) == ("", "Empty")
    assert [each.group_id for each in listed(world, states_filter=["sTABLE"])] == ["g"]
    assert len(listed(world, types_filter=["Classic"])) == 11
    assert listed(world, types_filter=["consumer"]) == []
    assert listed(world, types_filter=["nonsense"]) == []
    assert len(listed(world, states_filter=["nonsense", "empty"])) == 10
    assert listed(world, states_filter=["nonsense"]) == []
    assert listed(world, states_filter=["Dead"]) == []
    assert [
        each.group_id for each in listed(world, states_filter=["STABLE"], types_filter=["x", "CLASSIC"])
    ] == ["g"]
    assert listed(world, states_filter=["Stable"], types_filter=["share"]) == []


def describe(
    world: LeadingCoordinator, *groups: str, version: int = 6, operations: bool = False
) -> list[Any]:
    request = DescribeGroupsRequest(groups=list(groups), include_authorized_operations=operations)
    return list(world.call(DESCRIBE, request, version).groups)


def test_describe_an_unknown_group() -> None:
    (old,) = describe(LeadingCoordinator(), "x", version=5)
    assert (old.group_state, old.error_code, old.error_message) == ("Dead", 0, None)
    (new,) = describe(LeadingCoordinator(), "x", version=6)
    assert (new.group_state, new.error_code, new.error_message) == (
        "Dead",
        E.GROUP_ID_NOT_FOUND,
        "Group x not found.",
    )


def test_describe_shows_members_whole_only_when_stable() -> None:
    world = LeadingCoordinator()
    first, second = form_group(world, 2)
    (group,) = describe(world, "g", operations=True)
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    assert group.authorized_operations == 3400
    members = {each.member_id: each for each in group.members}
    assert (members[first].client_host, members[first].client_id) == ("/127.0.0.1", "client")
    assert (members[second].member_metadata, members[second].member_assignment) == (subscription("t"), b"a1")
    join(world, first)
    (group,) = describe(world, "g")
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [each.member_metadata for each in group.members] == [b"", b""]
    assert group.authorized_operations == -(2**31)


@pytest.mark.parametrize("retention", [2**63 - 1, 2**62, -(2**63)])
def test_a_retention_of_any_length_is_written(retention: int) -> None:
    """However far in the future: the expiry in a record is limited."""
    world = LeadingCoordinator()
    assert commit(world, 5, group="simple", retention=retention, version=4) == E.NONE
    assert fetch(world, group="simple").committed_offset == 5


def test_offsets_expire_by_the_state_of_their_group() -> None:
    day = 86_400_000
    world = LeadingCoordinator(GroupSettings(offsets_retention_ms=7 * day))
    (first,) = form_group(world, session=1_800_000)
    commit(world, 1, member_id=first, generation=1)
    commit(world, 1, topic="u", member_id=first, generation=1)
    commit(world, 1, group="simple")
    commit(world, 1, group="short", retention=day, version=4)
    form_group(world, group="connect-g", kind="connect", session=1_800_000)

    def pass_days(days: int) -> None:
        for _ in range(days * 72):
            world.time.advance(1_200_000)
            assert beat(world, first, 1) == E.NONE
        world.time.advance(600_000)
        assert beat(world, first, 1) == E.NONE

    pass_days(1)
    assert (fetch(world, group="short").committed_offset, fetch(world, group="simple").committed_offset) == (
        -1,
        1,
    )
    commit(world, 2, group="simple")
    pass_days(6)
    assert (fetch(world).committed_offset, fetch(world, topic="u").committed_offset) == (1, -1)
    assert fetch(world, group="simple").committed_offset == 2
    pass_days(1)
    assert fetch(world, group="simple").committed_offset == -1
    assert "simple" not in {each.group_id for each in listed(world)}
    leave(world, (first, None))
    for _ in range(7):
        assert fetch(world).committed_offset == 1
        world.time.advance(day)
    world.time.advance(600_000)
    assert fetch(world).committed_offset == -1
    assert listed(world) == []
    world.restart()
    assert listed(world) == []


def many_offsets(count: int, metadata: str = "") -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata=metadata)
        for index in range(count)
    ]
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)],
    )


def test_many_offsets_are_committed_as_several_small_commits() -> None:
    world = LeadingCoordinator()
    world.publish([world.image.topics[OFFSETS_TOPIC], topic_image("t", 2_600), topic_image("u", 1)])
    asked = many_offsets(3_000)
    alone = [OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
    asked.topics += [OffsetCommitRequestTopic(name=name, partitions=list(alone)) for name in ("absent", "u")]
    answer = world.call_to_the_end(COMMIT, asked, 9)
    sizes = [header.record_count for batch in world.log().batches for header in iterate_batches(batch)]
    assert sum(sizes) == 2_601
    assert max(sizes) <= COMMITTED_PIECE
    codes = {
        (topic.name, one.partition_index): one.error_code
        for topic in answer.topics
        for one in topic.partitions
    }
    assert sorted(topic.name for topic in answer.topics) == ["absent", "t", "u"]
    assert {key for key, code in codes.items() if code == E.NONE} == {
        *(("t", index) for index in range(2_600)),
        ("u", 0),
    }
    assert set(codes.values()) == {E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION}
    assert fetch(world, partition=2_599).committed_offset == 5
    # The large request is refused for the same reasons as the small ones.
    asked = many_offsets(2_600)
    asked.generation_id_or_member_epoch = 3
    refused = world.call_to_the_end(COMMIT, asked, 9)
    assert {one.error_code for one in refused.topics[0].partitions} == {E.UNKNOWN_MEMBER_ID}


def test_many_offsets_are_deleted_as_several_small_requests() -> None:
    world = LeadingCoordinator()
    world.publish([world.image.topics[OFFSETS_TOPIC], topic_image("t", 2_000)])
    world.call(COMMIT, many_offsets(2_000), 9)
    named = [OffsetDeleteRequestPartition(partition_index=index) for index in range(2_100)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=named)]
    answer = world.call(OFFSET_DELETE, OffsetDeleteRequest(group_id="g", topics=topics), 0)
    while isinstance(answer, Deferred) and not answer.done:
        assert world.time.step()
    (topic,) = (answer.result() if isinstance(answer, Deferred) else answer).topics
    codes = {one.partition_index: one.error_code for one in topic.partitions}
    assert [codes[index] for index in (0, 1_999, 2_000, 2_099)] == [0, 0, 3, 3]
    assert len(codes) == 2_100
    assert fetch(world, partition=7).committed_offset == -1
    unknown = OffsetDeleteRequest(group_id="nobody", topics=topics)
    assert world.call(OFFSET_DELETE, unknown, 0).error_code == E.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", [7, 8, 10])
def test_offsets_of_all_topics_and_of_many_named_ones_are_answered_in_steps(version: int) -> None:
    world = LeadingCoordinator()
    world.publish([world.image.topics[OFFSETS_TOPIC], topic_image("t", 9_000)])
    world.call(COMMIT, many_offsets(9_000), 9)
    while world.time.step():
        pass
    indexes = list(range(9_000))
    named = OffsetFetchRequestTopics(
        name="t", topic_id=world.image.topics["t"].id, partition_indexes=indexes + indexes
    )
    single = OffsetFetchRequestTopic(name="t", partition_indexes=indexes + indexes)
    for of_all in (True, False):
        if version < 8:
            asked = OffsetFetchRequest(group_id="g", topics=None if of_all else [single])
        else:
            group = OffsetFetchRequestGroup(group_id="g", topics=None if of_all else [named])
            asked = OffsetFetchRequest(groups=[group])
        later = world.call(FETCH, asked, version)
        assert isinstance(later, Deferred)  # so that the answer is also encoded in steps
        while world.time.step():
            pass
        answer = later.result()
        (topic,) = answer.topics if version < 8 else answer.groups[0].topics
        assert [one.partition_index for one in topic.partitions] == indexes
        assert {one.committed_offset for one in topic.partitions} == {5}
        assert len(encode(answer, version)) > 9_000


def test_encoding_ends_where_the_batch_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    world = LeadingCoordinator()
    assert commit(world, 7) == E.NONE
    shard = next(iter(world.coordinator._shards.started()))
    encoded = []
    encode = type(shard.machine).encode

    def counted(machine: Any, record: Any) -> Any:
        encoded.append(1)
        return encode(machine, record)

    monkeypatch.setattr(type(shard.machine), "encode", counted)
    answer = world.coordinator.offset_commit(many_offsets(50_000), context(8)).result()
    assert answer.topics[0].partitions[0].error_code == E.UNKNOWN_SERVER_ERROR
    assert len(encoded) < 30_000


def test_offsets_of_many_partitions_are_told_in_steps_as_they_were_at_one_moment() -> None:
    world = LeadingCoordinator()
    world.coordinator.offset_commit(many_offsets(10_000), context(8)).result()
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=list(range(10_001)))]
    for asked in (topics, None):
        groups = [OffsetFetchRequestGroup(group_id="g", topics=asked)]
        turns = 1
        answer = world.coordinator.offset_fetch(OffsetFetchRequest(groups=groups), context(9))
        assert not answer.done
        assert commit(world, 77) == E.NONE
        while world.time.step():
            turns += 1
        (topic,) = answer.result().groups[0].topics
        told = [one.committed_offset for one in topic.partitions]
        first = 5 if asked is topics else 77
        assert told[:10_000] == [first] + [5] * 9_999
        assert told[10_000:] == ([-1] if asked is topics else [])
        assert turns >= 10_000 * offset_metadata_manager.TOLD_COST // TURN_COST


def test_many_topics_that_are_named_without_partitions_are_told_in_steps() -> None:
    world = LeadingCoordinator()
    topics = [OffsetFetchRequestTopics(name=f"t{each}", partition_indexes=[]) for each in range(10_000)]
    turns = 1
    group = OffsetFetchRequestGroup(group_id="g", topics=topics)
    answer = world.coordinator.offset_fetch(OffsetFetchRequest(groups=[group]), context(8))
    while world.time.step():
        turns += 1
    assert [topic.name for topic in answer.result().groups[0].topics] == [
        f"t{each}" for each in range(10_000)
    ]
    assert turns >= 10_000 * offset_metadata_manager.TOLD_COST // TURN_COST


def test_a_retention_that_the_commit_states_counts_from_the_commit() -> None:
    """As clients before 2.1 do."""
    world = LeadingCoordinator()
    assert commit(world, 5, retention=1_000_000, version=4) == E.NONE
    world.time.advance(600_000)
    assert fetch(world).committed_offset == 5
    world.time.advance(600_000)
    assert fetch(world).committed_offset == -1


def test_a_group_to_which_somebody_was_given_an_id_is_not_forgotten() -> None:
    """The member is about to return with the id, and would have to start again."""
    world = LeadingCoordinator()
    member_id = member_id_of(world, session=1_800_000)
    world.time.advance(1_200_000)
    answer = join(world, member_id, session=1_800_000)
    world.time.advance(6_000)
    assert answer.result().error_code == E.NONE


def test_offsets_are_counted() -> None:
    world = LeadingCoordinator(GroupSettings(offsets_retention_ms=1_000))
    meters = world.coordinator.meters
    commit(world, 7)
    commit(world, 8)
    commit(world, 8, group="h")
    assert meters.offset_commits.count == 3
    assert world.coordinator.offset_count() == 2
    named = [OffsetDeleteRequestPartition(partition_index=each) for each in (0, 5)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=named)]
    world.call(OFFSET_DELETE, OffsetDeleteRequest(group_id="h", topics=topics), 0)
    assert meters.offset_deletions.count == 1
    assert world.coordinator.offset_count() == 1
    assert meters.offset_expirations.count == 0
    world.time.advance(1_200_000)
    assert meters.offset_expirations.count == 1
    assert world.coordinator.offset_count() == 0
    world.restart()
    assert world.coordinator.meters.offset_commits.count == 0
