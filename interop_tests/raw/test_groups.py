"""Classic groups and their offsets by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interop_tests.harness.groups import (
    Member,
    begin_together,
    coordinator,
    join_together,
    settle,
    subscription,
)
from interop_tests.harness.raw_kafka import ErrorCode
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

MakeMember = Callable[..., Member]


@pytest.fixture
def group(connection: Connection, unique: Any) -> str:
    """A new group whose coordinator serves."""
    name = unique("group")
    coordinator(connection, name)
    return name


@pytest.fixture
def make_member(bootstrap: str, group: str) -> Iterator[MakeMember]:
    """make_member(...) creates a hand-written group member. Connections are closed when the test ends."""
    made: list[Member] = []

    def make(**options: Any) -> Member:
        made.append(Member(bootstrap, **({"group": group} | options)))
        return made[-1]

    yield make
    for member in made:
        member.close()


def describe(connection: Connection, group: str, version: int = 5) -> dict[str, Any]:
    (found,) = connection.call("DescribeGroups", version, {"Groups": [group]})["Groups"]
    return found


def fetch_offset(connection: Connection, group: str, topic: str, version: int = 7) -> dict[str, Any]:
    """The committed offset of partition 0 from OffsetFetch in one version."""
    asked = [{"Name": topic, "PartitionIndexes": [0]}]
    if version < 8:
        reply = connection.call("OffsetFetch", version, {"GroupId": group, "Topics": asked})
        return reply["Topics"][0]["Partitions"][0]
    reply = connection.call("OffsetFetch", version, {"Groups": [{"GroupId": group, "Topics": asked}]})
    (of_group,) = reply["Groups"]
    assert of_group["ErrorCode"] == 0
    return of_group["Topics"][0]["Partitions"][0]


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(version: int, connection: Connection, group: str) -> None:
    """The error message of success is "NONE" in v1-v3, empty from v4."""
    if version < 4:
        found = connection.call("FindCoordinator", version, {"Key": group, "KeyType": 0})
    else:
        reply = connection.call("FindCoordinator", version, {"KeyType": 0, "CoordinatorKeys": [group]})
        (found,) = reply["Coordinators"]
        assert found["Key"] == group
    assert found["ErrorCode"] == 0
    if version >= 1:
        assert found["ErrorMessage"] == ("NONE" if version < 4 else "")
    nodes = {each["NodeId"]: each for each in connection.call("Metadata", 1, {"Topics": []})["Brokers"]}
    assert (found["Host"], found["Port"]) == (nodes[found["NodeId"]]["Host"], nodes[found["NodeId"]]["Port"])


@pytest.mark.parametrize("version", range(4, 10))
def test_the_member_id_handshake(version: int, make_member: MakeMember) -> None:
    member = make_member(client_id="reader")
    reply = member.join(version)
    assert reply["ErrorCode"] == ErrorCode.MEMBER_ID_REQUIRED
    assert reply["MemberId"].startswith("reader-")
    assert len(reply["MemberId"]) == len("reader-") + 36
    reply = member.join(version)
    assert reply["ErrorCode"] == 0
    assert reply["GenerationId"] == 1
    assert reply["Leader"] == reply["MemberId"] == member.member_id


@pytest.mark.parametrize("version", range(4))
def test_old_versions_join_at_once(version: int, make_member: MakeMember) -> None:
    """Versions 0 and 1, which old librdkafka, Sarama and kafka-python send."""
    member = make_member()
    reply = member.join(version)
    assert reply["ErrorCode"] == 0
    assert [each["MemberId"] for each in reply["Members"]] == [member.member_id]
    assert reply["ProtocolName"] == "range"
    assert member.sync({member.member_id: b"plan"}, version=0)["Assignment"] == b"plan"
    assert member.heartbeat(version=0) == 0


def test_a_static_member_replaces_itself_and_fences_the_old(make_member: MakeMember, topic: str) -> None:
    first = make_member(instance="box")
    assert first.join()["ErrorCode"] == 0, "no member-id handshake"
    assert first.member_id.startswith("box-")
    first.sync({first.member_id: b"plan"})
    second = make_member(instance="box")
    assert second.join()["ErrorCode"] == 0
    assert second.member_id != first.member_id
    assert first.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert first.commit(topic, 1) == ErrorCode.FENCED_INSTANCE_ID
    assert first.sync()["ErrorCode"] == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_rejoin_of_the_leader_does_not_rebalance(make_member: MakeMember) -> None:
    leader = make_member(instance="leader")
    other = make_member(instance="other")
    settle([leader, other])
    if other.is_leader:
        leader, other = other, leader
    generation = leader.generation
    again = make_member(instance=leader.instance)
    reply = again.join(9)
    assert (reply["ErrorCode"], reply["GenerationId"]) == (0, generation)
    assert reply["SkipAssignment"] is True
    assert len(reply["Members"]) == 2
    assert again.sync()["Assignment"].startswith(b"plan")
    assert other.heartbeat() == 0
    old = make_member(instance=leader.instance)
    reply = old.join(8)
    assert (reply["GenerationId"], reply["Members"]) == (generation, [])
    assert reply["Leader"] == again.member_id, "the member before it is named, so that nobody assigns"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"session_timeout_ms": 5999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
    ids=["short-session", "long-session", "no-group", "no-protocols"],
)
def test_joins_that_are_refused(options: dict[str, Any], error: int, make_member: MakeMember) -> None:
    reply = make_member(**options).join()
    assert reply["ErrorCode"] == error
    assert reply["ProtocolName"] is None, "errors of v7 and later have no protocol name"
    assert reply["Members"] == []


def test_joins_that_do_not_fit_the_group(make_member: MakeMember) -> None:
    settle([make_member()])
    stranger = make_member()
    stranger.member_id = "nobody-knows-me"
    assert stranger.join()["ErrorCode"] == ErrorCode.UNKNOWN_MEMBER_ID
    other = make_member(protocols={"roundrobin": b""})
    assert other.join()["ErrorCode"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    connector = make_member()
    connector.protocol_type = "connect"
    reply = connector.join(6)
    assert (reply["ErrorCode"], reply["ProtocolName"]) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")


def test_the_first_join_waits_for_others(make_member: MakeMember) -> None:
    """group.initial.rebalance.delay.ms puts members that join at the same time into one generation."""
    members = [make_member(), make_member()]
    numbers = begin_together(members)
    replies = [member.receive_join(number) for member, number in zip(members, numbers, strict=True)]
    assert {reply["GenerationId"] for reply in replies} == {1}


def test_a_member_that_waits_in_a_join_outlives_its_session(make_member: MakeMember) -> None:
    """The session starts with the response to the join. A member cannot heartbeat before that."""
    silent = make_member(session_timeout_ms=30_000, rebalance_timeout_ms=7500)
    settle([silent])
    newcomer = make_member(session_timeout_ms=6000)
    number = newcomer.begin()
    assert newcomer.connection.is_silent(6.5), "it waits for the silent one"
    assert newcomer.receive_join(number)["ErrorCode"] == 0
    assert newcomer.heartbeat() == 0
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_only_the_leader_sees_the_members(make_member: MakeMember) -> None:
    members = [make_member(protocols={"range": subscription(user_data=b"%d" % each)}) for each in range(3)]
    settle(members)
    leaders = [member for member in members if member.is_leader]
    assert len(leaders) == 1
    for member in members:
        if member is leaders[0]:
            got = {each["MemberId"]: each["Metadata"] for each in member.members}
            assert got == {each.member_id: each.protocols["range"] for each in members}
        else:
            assert member.members == []


def test_rejoins(make_member: MakeMember) -> None:
    member = make_member()
    member.receive_join(member.begin())
    assert member.generation == 1
    assert member.join()["GenerationId"] == 1, "the same answer again while it has not synced"
    member.sync({member.member_id: b"plan"})
    assert member.join()["GenerationId"] == 2, "a rejoin of the leader is a rebalance"


def test_a_follower_rejoining_unchanged_disturbs_nobody(make_member: MakeMember) -> None:
    members = [make_member(), make_member()]
    settle(members)
    (follower,) = [member for member in members if not member.is_leader]
    (leader,) = [member for member in members if member.is_leader]
    generation = follower.generation
    assert follower.join()["GenerationId"] == generation
    assert leader.heartbeat() == 0
    follower.protocols = {"range": subscription(user_data=b"changed")}
    number = follower.send_join()
    wait_until(lambda: leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "the leader is told")
    joining = leader.send_join()
    reply = leader.receive_join(joining)
    assert reply["GenerationId"] == generation + 1, reply
    assert follower.receive_join(number)["GenerationId"] == generation + 1


def test_the_protocol_is_common_to_all_and_has_most_votes(make_member: MakeMember) -> None:
    mine = subscription()
    members = [
        make_member(protocols={"only-a": mine, "range": mine, "roundrobin": mine}),
        make_member(protocols={"roundrobin": mine, "range": mine}),
        make_member(protocols={"roundrobin": mine, "range": mine, "only-c": mine}),
    ]
    replies = join_together(members)
    assert {reply["ProtocolName"] for reply in replies} == {"roundrobin"}
    assert {reply["ProtocolType"] for reply in replies} == {"consumer"}


@pytest.mark.parametrize("version", range(6))
def test_assignments_reach_their_members_whole(version: int, make_member: MakeMember) -> None:
    members = [make_member(), make_member()]
    plans = {0: bytes(range(256)) * 200, 1: b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"}
    assert settle(members, plans) == [plans[0], plans[1]]
    for member, plan in zip(members, plans.values(), strict=True):
        reply = member.sync(version=version)
        assert (reply["ErrorCode"], reply["Assignment"]) == (0, plan), "in a stable group it is told again"
        if version >= 5:
            assert (reply["ProtocolType"], reply["ProtocolName"]) == ("consumer", "range")


def test_syncs_that_are_refused(make_member: MakeMember) -> None:
    members = [make_member(), make_member()]
    settle(members)
    member = members[0]
    assert member.sync(GenerationId=99)["ErrorCode"] == ErrorCode.ILLEGAL_GENERATION
    assert member.sync(MemberId="nobody")["ErrorCode"] == ErrorCode.UNKNOWN_MEMBER_ID
    for change in ({"ProtocolType": "connect"}, {"ProtocolName": "roundrobin"}):
        assert member.sync(**change)["ErrorCode"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    newcomer = make_member()
    newcomer.begin()
    wait_until(lambda: members[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance begins")
    assert member.sync()["ErrorCode"] == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_is_not_in_the_plan_gets_empty_bytes(make_member: MakeMember) -> None:
    member = make_member()
    member.receive_join(member.begin())
    assert member.sync({"stranger": b"not yours"})["Assignment"] == b""


def test_followers_wait_for_the_leader(make_member: MakeMember) -> None:
    members = [make_member(), make_member()]
    settle(members)
    numbers = [members[0].send_join()]
    if not members[0].is_leader:
        numbers = [members[1].send_join()]
        members.reverse()
    wait_until(lambda: members[1].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance begins")
    numbers.append(members[1].send_join())
    for member, number in zip(members, numbers, strict=True):
        assert member.receive_join(number)["ErrorCode"] == 0
    (leader,) = [member for member in members if member.is_leader]
    (follower,) = [member for member in members if not member.is_leader]
    waiting = follower.send_sync()
    assert follower.connection.is_silent(0.3)
    leader.sync({follower.member_id: b"at last"})
    assert follower.receive_sync(waiting)["Assignment"] == b"at last"


def test_members_that_join_and_never_sync_are_put_out(
    make_member: MakeMember, connection: Connection
) -> None:
    lazy = make_member(rebalance_timeout_ms=1000)
    eager = make_member(rebalance_timeout_ms=1000)
    numbers = begin_together([lazy, eager])
    for member, number in zip((lazy, eager), numbers, strict=True):
        assert member.receive_join(number)["ErrorCode"] == 0
    waiting = eager.send_sync({eager.member_id: b"x"} if eager.is_leader else None)
    reply = eager.receive_sync(waiting, timeout_s=15)
    if reply["ErrorCode"] == 0:
        assert eager.is_leader
        wait_until(lambda: eager.heartbeat() != 0, "the lazy one is put out")
        reply = {"ErrorCode": eager.heartbeat()}
    assert reply["ErrorCode"] == ErrorCode.REBALANCE_IN_PROGRESS
    wait_until(lambda: len(describe(connection, eager.group)["Members"]) == 1, "one member is left")


def test_heartbeats(make_member: MakeMember) -> None:
    member = make_member()
    assert member.heartbeat(MemberId="x", GenerationId=1) == ErrorCode.UNKNOWN_MEMBER_ID
    member.receive_join(member.begin())
    assert member.heartbeat() == 0, "while it is to sync"
    member.sync({member.member_id: b""})
    for version in range(5):
        assert member.heartbeat(version) == 0
    assert member.heartbeat(GenerationId=7) == ErrorCode.ILLEGAL_GENERATION
    assert member.heartbeat(MemberId="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.heartbeat(GroupInstanceId="unknown-box") == ErrorCode.UNKNOWN_MEMBER_ID
    make_member().begin()
    wait_until(lambda: member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance begins")
    member.leave()
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_put_out_after_its_session(
    make_member: MakeMember, connection: Connection
) -> None:
    member = make_member(session_timeout_ms=6000)
    settle([member])
    started = time.monotonic()
    wait_until(lambda: describe(connection, member.group)["GroupState"] == "Empty", "the session is over")
    assert time.monotonic() - started > 4
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_leaving(version: int, make_member: MakeMember, connection: Connection) -> None:
    member = make_member()
    settle([member])
    reply = member.leave(version)
    assert reply["ErrorCode"] == 0
    if version >= 3:
        assert [(each["MemberId"], each["ErrorCode"]) for each in reply["Members"]] == [(member.member_id, 0)]
    assert describe(connection, member.group)["GroupState"] == "Empty"
    reply = member.leave(version)
    if version >= 3:
        assert reply["ErrorCode"] == 0
        assert [each["ErrorCode"] for each in reply["Members"]] == [ErrorCode.UNKNOWN_MEMBER_ID]
    else:
        assert reply["ErrorCode"] == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_is_removed_by_its_name(make_member: MakeMember, connection: Connection) -> None:
    member = make_member(instance="box")
    settle([member])
    members = [{"MemberId": "", "GroupInstanceId": name, "Reason": None} for name in ("box", "no-such-box")]
    reply = connection.call("LeaveGroup", 5, {"GroupId": member.group, "Members": members})
    assert reply["ErrorCode"] == 0
    assert {each["GroupInstanceId"]: each["ErrorCode"] for each in reply["Members"]} == {
        "box": 0,
        "no-such-box": ErrorCode.UNKNOWN_MEMBER_ID,
    }
    assert describe(connection, member.group)["GroupState"] == "Empty"


def test_a_pending_member_may_leave(make_member: MakeMember) -> None:
    member = make_member()
    assert member.join()["ErrorCode"] == ErrorCode.MEMBER_ID_REQUIRED
    assert member.leave()["Members"][0]["ErrorCode"] == 0


def test_commits_without_membership(make_member: MakeMember, connection: Connection, topic: str) -> None:
    simple = make_member()
    assert simple.commit(topic, 5) == 0
    assert fetch_offset(connection, simple.group, topic)["CommittedOffset"] == 5
    member = make_member()
    settle([member])
    assert simple.commit(topic, 6) == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.commit(topic, 7) == 0
    member.leave()
    assert simple.commit(topic, 8) == 0, "the group is empty again"


def test_the_empty_group_id_may_commit(make_member: MakeMember, connection: Connection, topic: str) -> None:
    coordinator(connection, "")
    assert make_member(group="").commit(topic, 3) == 0
    assert fetch_offset(connection, "", topic)["CommittedOffset"] == 3
    assert "" in [each["GroupId"] for each in connection.call("ListGroups", 4, {})["Groups"]]


def test_commits_while_the_group_rebalances(make_member: MakeMember, topic: str) -> None:
    member = make_member()
    member.receive_join(member.begin())
    assert member.commit(topic, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert member.commit(topic, 1, GenerationIdOrMemberEpoch=9) == ErrorCode.ILLEGAL_GENERATION
    member.sync({member.member_id: b""})
    assert member.commit(topic, 1) == 0
    assert member.commit(topic, 1, GenerationIdOrMemberEpoch=9) == ErrorCode.ILLEGAL_GENERATION
    make_member().begin()
    wait_until(lambda: member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance begins")
    assert member.commit(topic, 2) == 0, "the old generation may still commit before it rejoins"


@pytest.mark.parametrize("version", range(2, 10))
def test_commits_and_their_metadata(
    version: int, make_member: MakeMember, connection: Connection, topic: str, unique: Any
) -> None:
    member = make_member()
    text = '{"state": "Ω"}'
    assert member.commit(topic, 4, text, version) == 0
    found = fetch_offset(connection, member.group, topic)
    assert (found["CommittedOffset"], found["Metadata"], found["ErrorCode"]) == (4, text, 0)
    assert member.commit(topic, 5, "x" * 4096, version) == 0
    assert member.commit(topic, 6, "x" * 4097, version) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert fetch_offset(connection, member.group, topic)["CommittedOffset"] == 5
    assert member.commit(topic, 7, None, version) == 0
    assert fetch_offset(connection, member.group, topic)["Metadata"] == ""
    assert member.commit(unique("nowhere"), 1, "", version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_commit_and_fetch_by_topic_id(make_member: MakeMember, connection: Connection, topic: str) -> None:
    from uuid import uuid4

    from interop_tests.harness.raw_kafka import topic_id

    group = make_member().group
    wanted = topic_id(connection, topic)

    def commit(number: Any) -> int:
        partition = {"PartitionIndex": 0, "CommittedOffset": 9, "CommittedMetadata": ""}
        body = {
            "GroupId": group,
            "GenerationIdOrMemberEpoch": -1,
            "MemberId": "",
            "Topics": [{"TopicId": number, "Partitions": [partition]}],
        }
        return connection.call("OffsetCommit", 10, body)["Topics"][0]["Partitions"][0]["ErrorCode"]

    assert commit(wanted) == 0
    assert commit(uuid4()) == ErrorCode.UNKNOWN_TOPIC_ID
    asked = [{"TopicId": wanted, "PartitionIndexes": [0]}]
    reply = connection.call("OffsetFetch", 10, {"Groups": [{"GroupId": group, "Topics": asked}]})
    (of_topic,) = reply["Groups"][0]["Topics"]
    assert (of_topic["TopicId"], of_topic["Partitions"][0]["CommittedOffset"]) == (wanted, 9)


@pytest.mark.parametrize("version", range(1, 10))
def test_no_offset_is_not_an_error(
    version: int, make_member: MakeMember, connection: Connection, topic: str
) -> None:
    group = make_member().group
    found = fetch_offset(connection, group, topic, version)
    assert (found["CommittedOffset"], found["Metadata"], found["ErrorCode"]) == (-1, "", 0)
    if version >= 5:
        assert found["CommittedLeaderEpoch"] == -1


@pytest.mark.parametrize("version", range(2, 10))
def test_all_topics_of_a_group(
    version: int, make_member: MakeMember, connection: Connection, make_topic: Any
) -> None:
    member, topics = make_member(), sorted([make_topic(), make_topic()])
    for topic in topics:
        assert member.commit(topic, 3) == 0
    if version < 8:
        found = connection.call("OffsetFetch", version, {"GroupId": member.group, "Topics": None})["Topics"]
    else:
        body = {"Groups": [{"GroupId": member.group, "Topics": None}, {"GroupId": "other", "Topics": None}]}
        groups = {each["GroupId"]: each for each in connection.call("OffsetFetch", version, body)["Groups"]}
        found = groups[member.group]["Topics"]
        assert (groups["other"]["Topics"], groups["other"]["ErrorCode"]) == ([], 0)
    assert sorted(each["Name"] for each in found) == topics


@pytest.mark.parametrize("version", range(7))
def test_an_unknown_group_is_dead(version: int, connection: Connection, group: str) -> None:
    found = describe(connection, group, version)
    assert found["GroupState"] == "Dead"
    assert found["ErrorCode"] == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    if version >= 6:
        assert found["ErrorMessage"]


def test_describe_groups_shows_members_and_their_assignment(
    make_member: MakeMember, connection: Connection
) -> None:
    mine = subscription(user_data=b"mine")
    protocols = {"range": mine, "roundrobin": subscription()}
    member = make_member(protocols=protocols, client_id="shown", instance="box")
    member.receive_join(member.begin())
    found = describe(connection, member.group)
    assert (found["GroupState"], found["ProtocolType"], found["ProtocolData"]) == (
        "CompletingRebalance",
        "consumer",
        "",
    )
    assert [(each["MemberMetadata"], each["MemberAssignment"]) for each in found["Members"]] == [(b"", b"")]
    member.sync({member.member_id: b"plan"})
    found = describe(connection, member.group)
    assert (found["GroupState"], found["ProtocolData"]) == ("Stable", "range")
    (shown,) = found["Members"]
    assert (shown["MemberMetadata"], shown["MemberAssignment"]) == (mine, b"plan")
    assert (shown["ClientId"], shown["ClientHost"], shown["GroupInstanceId"]) == (
        "shown",
        "/127.0.0.1",
        "box",
    )


def test_listing_groups(make_member: MakeMember, connection: Connection, topic: str) -> None:
    member = make_member()

    def listed(version: int, **filters: Any) -> list[dict[str, Any]]:
        reply = connection.call("ListGroups", version, filters)
        assert reply["ErrorCode"] == 0
        return [each for each in reply["Groups"] if each["GroupId"] == member.group]

    settle([member])
    for version in range(6):
        (found,) = listed(version)
        assert found["ProtocolType"] == "consumer"
        if version >= 4:
            assert found["GroupState"] == "Stable"
        if version >= 5:
            assert found["GroupType"] == "classic"
    assert listed(4, StatesFilter=["Stable", "Dead"])
    assert not listed(4, StatesFilter=["Empty"])
    assert listed(5, TypesFilter=["classic"])
    assert not listed(5, TypesFilter=["consumer"])
    member.leave()
    assert listed(4, StatesFilter=["Empty"])
    assert not listed(4, StatesFilter=["Stable"])


@pytest.mark.parametrize("version", range(3))
def test_deleting_groups(
    version: int, make_member: MakeMember, connection: Connection, topic: str, unique: Any
) -> None:
    member, missing = make_member(), unique("missing")
    settle([member])
    member.commit(topic, 3)

    def delete() -> dict[str, int]:
        reply = connection.call("DeleteGroups", version, {"GroupsNames": [member.group, missing]})
        return {each["GroupId"]: each["ErrorCode"] for each in reply["Results"]}

    assert delete() == {member.group: ErrorCode.NON_EMPTY_GROUP, missing: ErrorCode.GROUP_ID_NOT_FOUND}
    member.leave()
    assert delete() == {member.group: 0, missing: ErrorCode.GROUP_ID_NOT_FOUND}
    assert describe(connection, member.group)["GroupState"] == "Dead"
    assert fetch_offset(connection, member.group, topic)["CommittedOffset"] == -1


def test_deleting_offsets(
    make_member: MakeMember, connection: Connection, make_topic: Any, unique: Any
) -> None:
    topic, other = make_topic(), make_topic()
    member = make_member(protocols={"range": subscription(topic)})
    settle([member])
    for each in (topic, other):
        assert member.commit(each, 3) == 0

    def delete(group: str) -> Any:
        topics = [{"Name": each, "Partitions": [{"PartitionIndex": 0}]} for each in (topic, other)]
        reply = connection.call("OffsetDelete", 0, {"GroupId": group, "Topics": topics})
        return reply["ErrorCode"], {
            each["Name"]: each["Partitions"][0]["ErrorCode"] for each in reply["Topics"]
        }

    assert delete(member.group) == (0, {topic: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, other: 0})
    assert fetch_offset(connection, member.group, other)["CommittedOffset"] == -1
    assert fetch_offset(connection, member.group, topic)["CommittedOffset"] == 3
    member.leave()
    assert delete(member.group)[1][topic] == 0
    assert delete(unique("missing"))[0] == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_second_member_joins_while_the_first_is_stable(make_member: MakeMember) -> None:
    first = make_member()
    settle([first])
    second = make_member()
    number = second.begin()
    wait_until(lambda: first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "the first is told")
    rejoining = first.send_join()
    replies = [first.receive_join(rejoining), second.receive_join(number)]
    assert {(reply["ErrorCode"], reply["GenerationId"]) for reply in replies} == {(0, 2)}
    assert first.is_leader, "the leader stays"
    plan = {first.member_id: b"one", second.member_id: b"two"}
    waiting = second.send_sync()
    assert first.sync(plan)["Assignment"] == b"one"
    assert second.receive_sync(waiting)["Assignment"] == b"two"


def test_a_member_that_does_not_rejoin_in_time_is_removed(make_member: MakeMember) -> None:
    """The rebalance waits for known members up to the longest rebalance timeout, and then continues without them."""
    first = make_member(rebalance_timeout_ms=1000)
    silent = make_member(rebalance_timeout_ms=1500)
    settle([first, silent])
    started = time.monotonic()
    newcomer = make_member(rebalance_timeout_ms=1000)
    number = newcomer.begin()
    wait_until(lambda: first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance begins")
    rejoining = first.send_join()
    replies = [first.receive_join(rejoining), newcomer.receive_join(number)]
    assert {reply["ErrorCode"] for reply in replies} == {0}
    assert time.monotonic() - started > 1.0
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
