"""Commits that differ from an earlier one in numbers only are answered without being decoded. That must make no difference.

Two brokers get the same commits, bytes for bytes. One of them decodes each.
"""

from __future__ import annotations

import gc
import random
from typing import Any

import pytest

from kafkacompat.api.plain_commits import KEPT_MAX, PATIENCE, SIZE_MAX
from kafkacompat.controller.image import MetadataImage
from kafkacompat.coordinator._tests.clients import form_group
from kafkacompat.group._tests.test_repeated_heartbeats import Brokers, Life
from kafkacompat.group._tests.test_steady_heartbeats import Client
from kafkacompat.group.group_coordinator import GroupCoordinator
from kafkacompat.group.group_metadata_manager import machine_of
from kafkacompat.group.service import CommitShape, PlainCommit
from kafkacompat.memory import Memory
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.headers import parse_response_header, request_header_bytes
from kafkacompat.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkacompat.wire.messages.offset_commit_response import OffsetCommitResponse

COMMIT = 8
VERSIONS = range(OffsetCommitRequest.MIN_VERSION, OffsetCommitRequest.MAX_VERSION + 1)
SEEDS = 10
STEPS = 300
Places = dict[str, list[int]]
"""Topic -> partitions."""


class Committers(Brokers):
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_timed: bool) -> None:
        """Requests that are timed take another way."""
        super().__init__(monkeypatch)
        self.plain = 0
        for version in VERSIONS:
            assert self.sides[0].dispatcher._route(COMMIT, version).answer_frame is not None
            route = self.sides[1].dispatcher._route(COMMIT, version)
            route.parse_plain = route.answer_frame = None
            for side in self.sides:
                meter = side.dispatcher._route(COMMIT, version).meter
                assert meter is not None
                meter.mask = 0 if is_timed else -1
        original = GroupCoordinator.plain_commit

        def counted(coordinator: GroupCoordinator, commit: PlainCommit) -> Any:
            self.plain += 1
            return original(coordinator, commit)

        monkeypatch.setattr(GroupCoordinator, "plain_commit", counted)

    def request(
        self,
        offset: int,
        places: Places | None = None,
        member: str = "",
        generation: int = -1,
        version: int = 9,
        metadata: str | None = "",
        group: str = "g",
        instance: str | None = None,
    ) -> bytes:
        topics = []
        for name, partitions in ({"t": [0]} if places is None else places).items():
            known = self.sides[0].world.image.topics.get(name)
            by_id = version >= 10
            topics.append(
                OffsetCommitRequestTopic(
                    name="" if by_id else name,
                    topic_id=(b"?" * 16 if known is None else known.id) if by_id else bytes(16),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=each,
                            committed_offset=offset + each,
                            committed_leader_epoch=offset % 3 - 1 if version >= 6 else -1,
                            committed_metadata=metadata,
                        )
                        for each in partitions
                    ],
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance if version >= 7 else None,
            topics=topics,
        )
        return encode(request, version)

    def give(self, body: bytes, version: int = 9) -> list[E] | None:
        """The errors that both give, or None while the answer is pending on both."""
        self.number += 1
        frame = request_header_bytes(COMMIT, version, self.number, "client") + body
        replies = [side.dispatch(bytes(frame), "127.0.0.1") for side in self.sides]
        assert replies[0] == replies[1]
        if replies[0] is None:
            return None
        number, position = parse_response_header(replies[0][4:], COMMIT, version)
        assert number == self.number
        answer = decode(OffsetCommitResponse, version, replies[0][4:], position)
        return [E(each.error_code) for topic in answer.topics for each in topic.partitions]

    def commit(self, offset: int, places: Places | None = None, **options: Any) -> list[E] | None:
        return self.give(self.request(offset, places, **options), options.get("version", 9))

    @property
    def shapes(self) -> list[CommitShape]:
        kept = self.sides[0].world.coordinator.commit_shapes.values()
        return [each for each in kept if isinstance(each, CommitShape)]


@pytest.fixture(params=[False, True], ids=["", "timed"])
def brokers(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Committers:
    return Committers(monkeypatch, is_timed=request.param)


@pytest.mark.parametrize("places", [{"t": [0]}, {"t": [2, 0, 1], "u": [0]}, {"t": [0, 0]}])
@pytest.mark.parametrize("has_member", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_third_commit_of_the_same_partitions_is_plain(
    brokers: Committers, version: int, has_member: bool, places: Places
) -> None:
    member: dict[str, Any] = {}
    if has_member:
        (one,), _ = brokers.on_worlds(lambda world: form_group(world, 1))
        member = {"member": one, "generation": 1}
    for offset in (5, 6, 2**62, 0, 9):
        errors = brokers.commit(offset, places, version=version, **member)
        assert errors == [E.NONE] * sum(map(len, places.values()))
        brokers.compare()
    assert brokers.plain == (3 if version >= 8 else 0)


def test_a_plain_commit_keeps_the_session(brokers: Committers) -> None:
    (one,), _ = brokers.on_worlds(lambda world: form_group(world, 1))
    for offset in range(6):
        assert brokers.commit(offset, member=one, generation=1) == [E.NONE]
        brokers.advance(9_999)
    brokers.compare()
    assert brokers.plain == 4
    brokers.advance(1)
    assert brokers.commit(7, member=one, generation=1) == [E.UNKNOWN_MEMBER_ID]
    brokers.compare()


def learn(brokers: Committers, **options: Any) -> None:
    for offset in range(3):
        assert set(brokers.commit(offset, **options) or ()) == {E.NONE}
    assert brokers.plain == 1


def test_a_layout_keeps_no_image(brokers: Committers) -> None:
    """Each image may have maps of all topics of its own, and a layout stays when its member has gone."""
    learn(brokers)
    (shape,) = brokers.shapes
    assert not any(isinstance(each, MetadataImage) for each in gc.get_referents(shape))


@pytest.mark.parametrize("version", [9, 10])
def test_topics_that_change_are_looked_at(brokers: Committers, version: int) -> None:
    places = {"t": [0, 2], "u": [0]}
    learn(brokers, places=places, version=version)

    def publish(topics: dict[str, int]) -> None:
        for side in brokers.sides:
            side.topics = dict(topics)
            side.publish()

    publish({"t": 1, "u": 1})
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert sorted(brokers.commit(5, places, version=version) or ()) == [E.NONE, E.NONE, unknown]
    publish({"t": 3, "u": 2})
    assert brokers.commit(6, places, version=version) == [E.NONE] * 3
    assert brokers.plain == 2
    brokers.compare()


def test_an_answer_waits_for_the_replicas(brokers: Committers) -> None:
    learn(brokers)
    for error in (E.NONE, E.REQUEST_TIMED_OUT):
        brokers.each(lambda side: setattr(side.world.partitions, "held", True))
        assert brokers.commit(5) is None
        brokers.each(lambda side, error=error: side.world.partitions.release(error))  # type: ignore[misc]
        brokers.compare()
    assert brokers.plain == 3


def test_a_log_that_refuses_is_told_of(brokers: Committers) -> None:
    learn(brokers)
    brokers.each(lambda side: setattr(side.world.partitions, "refusal", E.NOT_LEADER_OR_FOLLOWER))
    assert brokers.commit(5) == [E.NOT_COORDINATOR]
    brokers.each(lambda side: setattr(side.world.partitions, "refusal", None))
    assert brokers.commit(6) == [E.NONE]
    brokers.compare()
    assert brokers.plain == 3


@pytest.mark.parametrize("codec", [0, 3])
@pytest.mark.parametrize("is_looked_at", [True, False])
def test_the_log_gets_the_same_in_each_of_its_ways(
    brokers: Committers, codec: int, is_looked_at: bool
) -> None:
    def set_up(side: Any) -> None:
        for shard in side.world.coordinator._shards.started():
            shard._log._compression = codec
        if is_looked_at:
            side.world.partitions.append_built = lambda *_: None

    brokers.each(set_up)
    for offset in range(5):
        assert brokers.commit(offset, {"t": [0, 2]}, metadata="m") == [E.NONE] * 2
        brokers.compare()
    assert brokers.plain == 3
    brokers.each(lambda side: side.world.restart())
    assert brokers.commit(5, {"t": [0, 2]}, metadata="m") == [E.NONE] * 2
    brokers.compare()


def test_the_records_tell_what_they_say(brokers: Committers) -> None:
    """What is put in place with the append is what a load finds."""
    for offset in range(4):
        brokers.commit(offset, {"t": [0, 1, 2], "u": [0]}, metadata="m", group="h")
    assert brokers.plain == 2

    def offsets() -> Any:
        (shard,) = brokers.sides[0].world.coordinator._shards
        return {
            topic: {partition: (value, value.record_offset) for partition, value in partitions.items()}
            for topic, partitions in machine_of(shard).offsets.of_group("h").items()
        }

    known = offsets()
    assert [value.offset for value, _ in known["t"].values()] == [3, 4, 5]
    brokers.each(lambda side: side.world.restart())
    assert offsets() == known


def test_a_node_without_room_refuses_what_is_new(
    brokers: Committers, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(brokers)
    learned = brokers.plain
    for offset in range(2):
        brokers.commit(offset, {"u": [0]}, group="h")
    monkeypatch.setattr(Memory, "has_room", lambda memory, size, *_: size <= 0)
    assert brokers.commit(5) == [E.NONE]
    assert brokers.plain == learned + 1
    brokers.each(lambda side: forget_offsets(side.world))
    assert brokers.commit(6) == brokers.commit(7, {"u": [0]}, group="h") != [E.NONE]
    assert brokers.plain == learned + 3
    brokers.compare()


def forget_offsets(world: Any) -> None:
    for shard in world.coordinator._shards:
        for _ in machine_of(shard).offsets.take_apart():
            pass


def test_a_failure_is_answered(brokers: Committers, monkeypatch: pytest.MonkeyPatch, faults: Any) -> None:
    learn(brokers)
    coordinator = type(brokers.sides[0].world.coordinator)
    monkeypatch.setattr(coordinator, "_shard", lambda *_, **__: 1 / 0)
    assert brokers.commit(5) == [E.UNKNOWN_SERVER_ERROR]
    brokers.compare()


def test_whose_rights_need_a_look_commits_in_the_usual_way(brokers: Committers) -> None:
    learn(brokers)
    frame = memoryview(brokers.request(7))
    node: Any = brokers.sides[0].node
    parse = brokers.sides[0].dispatcher._route(COMMIT, 9).parse_plain
    assert parse is not None
    assert parse(node, frame, 0, 9) is not None
    node.authorizer = object()
    assert parse(node, frame, 0, 9) is None


def test_a_request_that_differs_in_a_byte_is_answered_the_same(brokers: Committers) -> None:
    """Nobody knows the bytes in the middle of a number or of a name, and all others are looked at. Three times, because a layout is
    learned of the second one."""
    learn(brokers, places={"t": [0, 1]}, metadata="m")
    body = brokers.request(3, {"t": [0, 1]}, metadata="m")
    frame = request_header_bytes(COMMIT, 9, 1, "client") + body
    for at in range(4, len(frame)):
        for change in (1, 0x80, 0xFF, 1, 0x80, 0xFF, 1, 0x80, 0xFF):
            bent = bytearray(frame)
            bent[at] ^= change
            outcomes = []
            for side in brokers.sides:
                try:
                    outcomes.append(side.dispatch(bytes(bent), "127.0.0.1"))
                except Exception as error:
                    outcomes.append(type(error).__name__.encode())
            assert outcomes[0] == outcomes[1], (at, change)
        assert brokers.commit(at, {"t": [0, 1]}, metadata="m") == [E.NONE] * 2
    brokers.compare()
    for cut in range(len(body)):
        node: Any = brokers.sides[0].node
        parse: Any = brokers.sides[0].dispatcher._route(COMMIT, 9).parse_plain
        assert parse(node, memoryview(body[:cut]), 0, 9) is None


def test_who_commits_other_partitions_each_time_is_not_learned_each_time(brokers: Committers) -> None:
    for offset in range(3 * PATIENCE):
        assert brokers.commit(offset, {"t": [offset % 3]}) == [E.NONE]
    assert brokers.plain == 0
    for offset in range(PATIENCE + 3):
        assert brokers.commit(offset, {"t": [0]}) == [E.NONE]
    assert brokers.plain


def test_what_is_kept_is_bounded(brokers: Committers) -> None:
    metadata = "m" * (SIZE_MAX // 2)
    for offset in range(5):
        brokers.commit(offset, {"t": [0, 1, 2]}, metadata=metadata)
        brokers.commit(offset, metadata="m" * 100, group="h")
    assert len(brokers.shapes) == 1
    parse: Any = brokers.sides[0].dispatcher._route(COMMIT, 9).parse_plain
    for number in range(KEPT_MAX + 5):
        parse(brokers.sides[0].node, memoryview(brokers.request(1, group=f"{number}")), 0, 9)
    assert len(brokers.sides[0].world.coordinator.commit_shapes) < KEPT_MAX


def test_a_member_whose_layout_is_looked_at_again_costs_no_other_one_its_layout(brokers: Committers) -> None:
    parse: Any = brokers.sides[0].dispatcher._route(COMMIT, 9).parse_plain
    shapes = brokers.sides[0].world.coordinator.commit_shapes
    for number in range(KEPT_MAX):
        shapes[b"%d" % number] = PATIENCE
    shapes.popitem()
    for _ in range(2):
        parse(brokers.sides[0].node, memoryview(brokers.request(1, group="g")), 0, 9)
    assert len(shapes) == KEPT_MAX


def test_a_shape_whose_metadata_may_be_too_long_is_not_learned(brokers: Committers) -> None:
    limit = 40
    brokers.each(lambda side: setattr(side.world.coordinator, "commit_metadata_max", limit))
    for offset in range(5):
        assert brokers.commit(offset, metadata="m" * (limit // 2 + 1)) == [E.NONE]
    assert not brokers.plain


def test_a_member_of_a_consumer_group_commits_plainly(brokers: Committers) -> None:
    member = Client(brokers, "member-one", 1)
    for _ in range(6):
        member.beat()
        brokers.advance(1_000)
    for offset in range(4):
        assert brokers.commit(offset, member=member.member_id, generation=member.epoch) == [E.NONE]
    assert brokers.plain == 2
    for epoch in (member.epoch - 1, member.epoch + 1):
        for offset in range(4):
            brokers.commit(offset, member=member.member_id, generation=epoch)
    assert brokers.plain == 6
    brokers.compare()


class Consumers(Life):
    brokers: Committers

    def step(self) -> None:
        act = self.random.choices(
            ("commit", "simple", "join", "rejoin", "leave", "time", "leader", "log", "topics", "restart"),
            (60, 15, 3, 10, 1, 8, 2, 3, 3, 1),
        )[0]
        getattr(self, act)()
        if self.is_held and self.random.random() < 0.4:
            self.log()
        self.brokers.compare()

    def some(self) -> dict[str, Any]:
        return {
            "places": self.random.choice(
                [{"t": [0]}, {"t": [0]}, {"t": [0, 1, 2], "u": [0]}, {"u": [0], "v": [0]}]
            ),
            "version": self.random.choice((8, 9, 9, 9, 10)),
            "metadata": self.random.choice(("", "", "", None, "m", "\u00e9", "\U0001f600" * 3)),
        }

    def commit(self) -> None:
        some = self.some()
        for _ in range(self.random.choice((1, 4))):
            for each in self.ids:
                generation = self.generation() - (self.random.random() < 0.1)
                self.brokers.commit(
                    self.random.randrange(1 << 40), member=each, generation=generation, **some
                )

    def simple(self) -> None:
        some = self.some()
        for _ in range(self.random.choice((1, 4))):
            self.brokers.commit(self.random.randrange(1 << 40), group="simple", **some)

    def topics(self) -> None:
        sizes = self.random.choice([{"t": 3, "u": 1}, {"t": 1, "u": 1}, {"u": 1}, {"t": 3, "u": 1, "v": 1}])
        for side in self.brokers.sides:
            side.topics = dict(sizes)
            side.publish()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nobody_sees_a_difference(brokers: Committers, seed: int) -> None:
    life = Consumers(brokers, seed)
    life.random = random.Random(seed)
    for _ in range(STEPS):
        life.step()
    assert brokers.plain > 20
