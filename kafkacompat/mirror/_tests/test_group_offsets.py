"""Group offsets of a source that are committed here too: two real group coordinators, and a clock moved by the test."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from kafkacompat.api.list_groups import HANDLER as LIST
from kafkacompat.api.offset_commit import HANDLER as COMMIT
from kafkacompat.api.offset_fetch import HANDLER as FETCH
from kafkacompat.coordinator._tests.clients import commit, fetch, form_group
from kafkacompat.coordinator._tests.kit import LeadingCoordinator
from kafkacompat.deferred import Deferred
from kafkacompat.group._tests.streamers import Streamer, StreamsWorld, topology
from kafkacompat.ids import TopicPartition, uuid_to_text
from kafkacompat.mirror.group_offsets import COMPARED_A_STEP, ROUND_MS, GroupOffsets, groups_to_copy
from kafkacompat.mirror.source import SourceUnknown
from kafkacompat.net.failures import ConnectionLost
from kafkacompat.tasks import at_once
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.message import Struct
from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest
from kafkacompat.wire.messages.list_groups_response import ListedGroup, ListGroupsResponse
from kafkacompat.wire.messages.metadata_request import MetadataRequest
from kafkacompat.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kafkacompat.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkacompat.wire.messages.offset_fetch_request import OffsetFetchRequest
from kafkacompat.wire.messages.offset_fetch_response import OffsetFetchResponse

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
IDS = {"t": b"t" * 16, "u": b"u" * 16}
"""Of the source's topics."""
DAY_MS = 86_400_000


class World:
    """The source, the target, and the rounds between them. The target has 100 records of each partition."""

    def __init__(self) -> None:
        self.source = LeadingCoordinator()
        self.target = LeadingCoordinator()
        self.here = dict.fromkeys((T0, T1), 100)
        self.is_lost = self.are_fetches_lost = False
        self.are_fetches_stale = False
        """They fail with the credentials that were read before the next `renew`."""
        self.trouble: Exception | None = None
        self.others: list[ListedGroup] = []
        self.coordinated: set[str] | None = None
        self.closings = self.commits = 0
        self.asked: list[str] = []
        self.groups_asked: list[str] = []
        self.when_asked_for_ends = lambda: None
        self.offsets = GroupOffsets(self.target.tasks, self.target.time, self.connect, self)
        self.ids = dict(IDS)
        self.follow("t")

    def follow(self, topic: str, source: str = "first:1,second:1") -> None:
        self.offsets.follow(topic, source, uuid_to_text(IDS[topic]))

    # What the rounds ask.

    def connect(self, servers: str) -> Deferred[World]:
        made: Deferred[World] = Deferred()
        if self.trouble is not None:
            made.fail(self.trouble)
        else:
            made.resolve(self)
        return made

    def get(self, host: str, port: int, purpose: str) -> World:
        self.asked.append(host)
        return self

    def renew(self) -> Deferred[None]:
        self.are_fetches_stale = False
        return Deferred.of(None)

    def close_all(self) -> None:
        self.closings += 1

    def request(self, message: Any, timeout_ms: int, *, max_version: int | None = None) -> Deferred[Any]:
        reply: Deferred[Any] = Deferred()
        if self.is_lost or (
            isinstance(message, OffsetFetchRequest) and (self.are_fetches_lost or self.are_fetches_stale)
        ):
            reply.fail(ConnectionLost("the link is cut"))
        elif isinstance(message, MetadataRequest):
            brokers = [MetadataResponseBroker(node_id=1, host="broker", port=1)]
            topics = [
                MetadataResponseTopic(name=each.name, topic_id=self.ids[each.name])
                for each in message.topics
                if each.name in self.ids
            ]
            reply.resolve(MetadataResponse(brokers=brokers, topics=topics))
        elif isinstance(message, ListGroupsRequest):
            listed: ListGroupsResponse = self.source.call_to_the_end(LIST, message, 5)
            listed.groups += self.others
            reply.resolve(listed)
        else:
            assert max_version == 9
            self.groups_asked += [each.group_id for each in message.groups]
            answer = self.source.call_to_the_end(FETCH, message, max_version)
            # What that version lacks does not come here.
            reply.resolve(decode(OffsetFetchResponse, max_version, encode(answer, max_version)))
        return reply

    def coordinates(self, group: str) -> bool:
        return self.coordinated is None or group in self.coordinated

    def fetch(self, request: OffsetFetchRequest) -> Deferred[Any]:
        return Deferred.of(self.target.call(FETCH, request, 9))

    def commit(self, request: OffsetCommitRequest) -> Deferred[Any]:
        self.commits += 1
        return Deferred.of(self.target.call(COMMIT, request, 9))

    def ends(self, partitions: Collection[TopicPartition]) -> Deferred[Mapping[TopicPartition, int]]:
        self.when_asked_for_ends()
        return Deferred.of({each: self.here[each] for each in partitions if each in self.here})

    def retention_ms(self) -> int:
        return 7 * DAY_MS

    # What the tests do.

    def round(self) -> None:
        self.target.time.advance(ROUND_MS)
        self.target.time.advance(0)

    def copied(self, group: str = "g", topic: str = "t", partition: int = 0) -> int:
        return int(fetch(self.target, topic=topic, partition=partition, group=group).committed_offset)


def test_each_field_of_a_commit_is_copied() -> None:
    """Those that a client may commit and that OffsetFetch tells. Meanwhile they are in the records of both clusters."""
    world = World()
    values = {
        name: f"a {name}" if isinstance(default, str) else 5 + at
        for at, (name, default) in enumerate(fields_of(OffsetCommitRequestPartition()).items())
    }
    committed = OffsetCommitRequestPartition(**values | {"partition_index": 0})  # type: ignore[arg-type]
    topic = OffsetCommitRequestTopic(name="t", partitions=[committed])
    world.source.call(COMMIT, OffsetCommitRequest(group_id="g", topics=[topic]), 9)
    world.round()
    for cluster in (world.source, world.target):
        told = fields_of(fetch(cluster))
        del told["error_code"]
        assert sorted(map(str, told.values())) == sorted(map(str, fields_of(committed).values()))


def fields_of(struct: Struct) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.field_names()}


def test_offsets_are_copied_as_they_are_all_the_time() -> None:
    world = World()
    assert commit(world.source, 7, metadata="note") == 0
    world.round()
    found = fetch(world.target)
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (7, 0, "note")
    commit(world.source, 8)
    commit(world.source, 20, group="other", partition=1)
    world.round()
    assert (world.copied(), world.copied("other", partition=1)) == (8, 20)
    commit(world.source, 3)  # a reset
    world.round()
    assert world.copied() == 3


def test_what_has_not_changed_is_committed_again_only_before_it_expires() -> None:
    world = World()
    commit(world.source, 7)
    for _ in range(5):
        world.round()
    assert world.commits == 1
    world.target.time.advance(2 * DAY_MS)
    world.round()
    assert world.commits == 2


def test_a_trouble_that_stays_does_not_commit_the_others_in_each_round() -> None:
    world = World()
    commit(world.source, 7)
    commit(world.source, 7, group="other")
    world.round()
    refuse_group(world, "other")
    commits = world.commits
    world.target.time.advance(2 * DAY_MS)
    for _ in range(5):
        world.round()
    assert world.commits == commits + 1


def test_an_offset_whose_records_are_not_here_waits_for_them() -> None:
    world = World()
    commit(world.source, 100)
    commit(world.source, 101, partition=1)
    commit(world.source, 1, partition=2)  # a partition that is not known here
    world.round()
    assert [world.copied(partition=each) for each in range(3)] == [100, -1, -1]
    world.here[T1] = 101
    world.round()
    assert world.copied(partition=1) == 101


def test_a_group_with_members_here_keeps_its_offsets(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    (member,) = form_group(world.target)
    assert commit(world.target, 50, member_id=member, generation=1) == 0
    commit(world.source, 7)
    commit(world.source, 7, group="free")
    world.round()
    assert (world.copied(), world.copied("free")) == (50, 7)
    assert "Offsets of groups" not in caplog.text


def test_a_group_with_members_at_the_source_is_copied() -> None:
    world = World()
    (member,) = form_group(world.source)
    assert commit(world.source, 9, member_id=member, generation=1) == 0
    world.round()
    assert world.copied() == 9


@pytest.mark.parametrize(
    ("kind", "protocol", "is_asked"),
    [
        ("Classic", "consumer", True),
        ("Classic", "", True),
        ("", "consumer", True),  # ListGroups before version 5
        ("Consumer", "consumer", True),
        ("Streams", "streams", True),
        ("Classic", "connect", False),
        ("Share", "share", False),
        ("Unheard", "of", False),
    ],
)
def test_groups_of_kinds_that_commit_offsets_are_asked_for(kind: str, protocol: str, is_asked: bool) -> None:
    world = World()
    world.others = [ListedGroup(group_id="other", group_type=kind, protocol_type=protocol)]
    world.round()
    assert world.groups_asked == (["other"] if is_asked else [])


def test_a_streams_group_goes_on_where_it_was() -> None:
    world = World()
    world.target = StreamsWorld()
    world.offsets = GroupOffsets(world.target.tasks, world.target.time, world.connect, world)
    world.follow("t")
    commit(world.source, 7, group="app")
    world.round()
    assert Streamer(world.target, "m", topology("t")).join().error_code == 0
    commit(world.source, 8, group="app")
    world.round()
    assert world.copied("app") == 7


def test_only_topics_that_follow_are_copied() -> None:
    world = World()
    world.here[TopicPartition("u", 0)] = 100
    commit(world.source, 7)
    commit(world.source, 7, topic="u")
    world.round()
    assert (world.copied(), world.copied(topic="u")) == (7, -1)
    world.follow("u")
    world.round()
    assert world.copied(topic="u") == 7


def test_a_broker_copies_for_the_groups_that_it_coordinates() -> None:
    world = World()
    world.coordinated = {"mine"}
    for group in ("mine", "theirs"):
        commit(world.source, 7, group=group)
    world.round()
    assert (world.copied("mine"), world.copied("theirs")) == (7, -1)


def test_very_many_groups_are_looked_at_in_steps() -> None:
    listed = ListGroupsResponse(groups=[ListedGroup(group_id=str(each)) for each in range(10_000)])
    steps = groups_to_copy(listed, lambda group: group.endswith("7"))
    assert sum(1 for _ in steps) == 10_000 // COMPARED_A_STEP
    assert len(at_once(groups_to_copy(listed, lambda group: group.endswith("7")))) == 1_000


def test_nothing_is_copied_after_a_stop() -> None:
    world = World()
    world.follow("u")
    commit(world.source, 7)
    world.when_asked_for_ends = lambda: world.offsets.follow("t", None)
    world.round()
    assert world.copied() == -1
    world.offsets.follow("u", None)
    assert world.closings == 1
    world.asked.clear()
    world.target.time.advance(10 * ROUND_MS)
    assert world.asked == []


@pytest.mark.parametrize("made_again", [None, b"v" * 16])
def test_nothing_is_copied_of_a_topic_that_was_deleted_at_the_source(made_again: bytes | None) -> None:
    """Offsets in another topic of that name are of other records."""
    world = World()
    world.follow("u")
    world.here[TopicPartition("u", 0)] = 100
    commit(world.source, 50)
    world.round()
    del world.ids["t"]
    if made_again is not None:
        world.ids["t"] = made_again
    commit(world.source, 3)
    commit(world.source, 7, topic="u")
    world.round()
    assert (world.copied(), world.copied(topic="u")) == (50, 7)


def test_a_topic_may_follow_another_source() -> None:
    world = World()
    world.follow("t", "third:1")
    world.asked.clear()
    world.round()
    assert set(world.asked) == {"third", "broker"}


def test_a_source_that_is_away_is_told_once_and_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    commit(world.source, 7)
    world.is_lost = True
    for _ in range(4):
        world.round()
    assert {"first", "second"} <= set(world.asked)
    assert caplog.text.count("the link is cut") == 1
    world.is_lost, world.are_fetches_lost = False, True
    world.round()
    assert world.copied() == -1
    world.are_fetches_lost = False
    world.round()
    assert world.copied() == 7
    assert caplog.text.count("copied again") == 1


def test_properties_are_read_again_when_one_broker_refuses() -> None:
    """The broker that tells the others was connected with the earlier ones, and answers."""
    world = World()
    world.round()
    commit(world.source, 7)
    world.are_fetches_stale = True
    world.round()
    assert world.copied() == 7
    assert world.closings == 0


def test_properties_that_cannot_be_read_are_read_again(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    commit(world.source, 7)
    world.trouble = SourceUnknown("mirror.client.properties: no such file")
    world.round()
    assert "no such file" in caplog.text
    world.trouble = None
    world.round()
    assert world.copied() == 7


def refuse_group(world: World, group: str) -> None:
    """The source does not tell its offsets."""
    refused = world.source.call_to_the_end

    def refusing(handler: Any, request: Any, version: int) -> Any:
        answer = refused(handler, request, version)
        for each in answer.groups if handler is FETCH else ():
            if each.group_id == group:
                each.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return answer

    world.source.call_to_the_end = refusing  # type: ignore[method-assign]


def test_a_group_that_the_node_may_not_read_is_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    commit(world.source, 7)
    refuse_group(world, "g")
    world.round()
    assert "GROUP_AUTHORIZATION_FAILED for group g" in caplog.text
    assert world.copied() == -1


def test_servers_that_are_no_addresses_are_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.follow("t", "nowhere")
    world.round()
    assert "no server has the form HOST:PORT" in caplog.text


def test_a_stop_of_the_broker_ends_everything() -> None:
    world = World()
    world.round()
    world.offsets.close()
    world.asked.clear()
    world.target.time.advance(10 * ROUND_MS)
    assert world.asked == []
