"""Heartbeats of members of classic groups are answered again without being decoded. That must make no difference.

Two brokers get the same heartbeats, bytes for bytes. One of them answers each in the usual way.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kafkacompat.coordinator._tests.clients import commit, form_group, join, leave, member_id_of, sync
from kafkacompat.coordinator._tests.kit import NODE_ID, LeadingCoordinator
from kafkacompat.group._tests.test_steady_heartbeats import Both, Side
from kafkacompat.group.group_metadata_manager import machine_of
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.headers import parse_response_header, request_header_bytes
from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
from kafkacompat.wire.messages.heartbeat_response import HeartbeatResponse

HEARTBEAT = 12
VERSIONS = range(HeartbeatRequest.MIN_VERSION, HeartbeatRequest.MAX_VERSION + 1)
SESSION_MS = 10_000
SEEDS = 12
STEPS = 300


class Brokers(Both):
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        for version in VERSIONS:
            assert self.sides[0].dispatcher._route(HEARTBEAT, version).repeats is not None
            self.sides[1].dispatcher._route(HEARTBEAT, version).repeats = None

    def beat(
        self, member_id: str, generation: int, version: int = 4, instance: str | None = None
    ) -> E | None:
        """The error that both give, or None while the answer is pending on both."""
        self.number += 1
        request = HeartbeatRequest(
            group_id="g", generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        frame = request_header_bytes(HEARTBEAT, version, self.number, "client") + encode(request, version)
        replies = [side.dispatch(bytes(frame), "127.0.0.1") for side in self.sides]
        assert replies[0] == replies[1]
        if replies[0] is None:
            return None
        number, position = parse_response_header(replies[0][4:], HEARTBEAT, version)
        assert number == self.number
        return E(decode(HeartbeatResponse, version, replies[0][4:], position).error_code)

    def on_worlds(self, act: Callable[[LeadingCoordinator], Any]) -> list[Any]:
        found: list[Any] = []
        self.each(lambda side: found.append(act(side.world)))
        return found


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    return Brokers(monkeypatch)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_heartbeat_is_answered_again_and_keeps_the_session(brokers: Brokers, version: int) -> None:
    (one,), _ = brokers.on_worlds(lambda world: form_group(world, 1))
    for _ in range(4):
        assert brokers.beat(one, 1, version) is E.NONE
        brokers.advance(SESSION_MS - 1)
        brokers.compare()
    assert brokers.repeated == 3
    brokers.advance(SESSION_MS)
    assert brokers.beat(one, 1, version) is E.UNKNOWN_MEMBER_ID


def test_a_rebalance_is_told_of(brokers: Brokers) -> None:
    (one,), _ = brokers.on_worlds(lambda world: form_group(world, 1))
    assert [brokers.beat(one, 1) for _ in range(2)] == [E.NONE] * 2
    two, _ = brokers.on_worlds(member_id_of)
    brokers.on_worlds(lambda world: join(world, two))
    assert [brokers.beat(one, 1) for _ in range(2)] == [E.REBALANCE_IN_PROGRESS] * 2
    assert brokers.repeated == 1
    brokers.compare()
    brokers.on_worlds(lambda world: join(world, one))
    assert brokers.beat(one, 1) is E.ILLEGAL_GENERATION


def test_an_answer_waits_for_what_is_not_committed(brokers: Brokers) -> None:
    (one,), _ = brokers.on_worlds(lambda world: form_group(world, 1))
    assert [brokers.beat(one, 1) for _ in range(2)] == [E.NONE] * 2
    brokers.each(lambda side: setattr(side.world.partitions, "held", True))
    brokers.on_worlds(lambda world: commit(world, 5, member_id=one, generation=1))
    assert brokers.beat(one, 1) is None
    brokers.each(lambda side: side.world.partitions.release(E.NONE))
    assert brokers.beat(one, 1) is E.NONE
    brokers.compare()


def group_of(side: Side) -> Any:
    shards = [machine_of(shard).groups.get("g") for shard in side.world.coordinator._shards]
    return next((group for group in shards if group is not None), None)


class Life:
    def __init__(self, brokers: Brokers, seed: int) -> None:
        self.brokers = brokers
        self.random = random.Random(seed)
        self.ids: list[str] = []
        self.is_held = False

    def step(self) -> None:
        act = self.random.choices(
            ("beat", "odd", "join", "rejoin", "leave", "time", "leader", "log", "restart"),
            (60, 5, 3, 14, 2, 12, 2, 3, 1),
        )[0]
        getattr(self, act)()
        if self.is_held and self.random.random() < 0.4:
            self.log()
        self.brokers.compare()

    def generation(self) -> int:
        group = group_of(self.brokers.sides[0])
        return 0 if group is None else int(group.generation_id)

    def beat(self) -> None:
        for each in self.random.sample(self.ids, min(2, len(self.ids))):
            self.brokers.beat(each, self.generation(), self.random.choice((3, 4, 4)))

    def odd(self) -> None:
        each = self.random.choice([*self.ids, "nobody", ""])
        generation = self.generation() + self.random.choice((-1, 0, 1))
        self.brokers.beat(each, generation, instance=self.random.choice((None, "i")))

    def join(self) -> None:
        made = self.brokers.on_worlds(lambda world: join(world, session=SESSION_MS, rebalance=5_000))
        if getattr(made[0], "error_code", None) == E.MEMBER_ID_REQUIRED:
            self.ids = [*self.ids[-3:], made[0].member_id]
            self.rejoin()

    def rejoin(self) -> None:
        """All join, and the leader hands its plan out."""
        for each in self.ids:
            self.brokers.on_worlds(
                lambda world, each=each: join(world, each, session=SESSION_MS, rebalance=5_000)  # type: ignore[misc]
            )
        if self.random.random() < 0.8:
            self.brokers.advance(3_000)
            generation, plan = self.generation(), dict.fromkeys(self.ids, b"x")
            for each in self.ids:
                self.brokers.on_worlds(lambda world, each=each: sync(world, each, generation, plan))  # type: ignore[misc]

    def leave(self) -> None:
        if self.ids:
            each = self.ids.pop(self.random.randrange(len(self.ids)))
            self.brokers.on_worlds(lambda world: leave(world, (each, None)))

    def time(self) -> None:
        self.brokers.advance(self.random.choice((0, 300, 1_000, 1_000, 3_000, 6_000, SESSION_MS)))

    def leader(self) -> None:
        def moves(side: Side) -> None:
            side.leader = NODE_ID + 1
            side.publish()
            side.leader = NODE_ID
            side.publish()

        self.brokers.each(moves)

    def log(self) -> None:
        self.is_held = not self.is_held
        if self.is_held:
            self.brokers.each(lambda side: setattr(side.world.partitions, "held", True))
        else:
            error = self.random.choice((E.NONE, E.NONE, E.REQUEST_TIMED_OUT))
            self.brokers.each(lambda side: side.world.partitions.release(error))

    def restart(self) -> None:
        self.brokers.each(lambda side: side.world.restart())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nobody_sees_a_difference(brokers: Brokers, seed: int) -> None:
    life = Life(brokers, seed)
    for _ in range(STEPS):
        life.step()
    assert brokers.repeated > 5
