"""Heartbeats of members to whom nothing happens are answered again without being decoded. That must make no difference.

Two brokers get the same requests, bytes for bytes. One of them answers each request in the usual way.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest

from kafkacompat.api._tests.kit import pauseless
from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.api.meters import RequestMeters
from kafkacompat.api.route import Repeat
from kafkacompat.config.keys import DynamicScope, as_int, broker_keys, group_keys
from kafkacompat.coordinator._tests.kit import NODE_ID, LeadingCoordinator, NodeSettings, topic_image
from kafkacompat.group._tests.members import Owned, topic_partitions
from kafkacompat.group.consumer.consumer_group import ConsumerGroup
from kafkacompat.group.group_metadata_manager import machine_of
from kafkacompat.ids import OFFSETS_TOPIC
from kafkacompat.ports.dispatcher import ConnectionInfo, Pending
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.headers import request_header_bytes
from kafkacompat.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkacompat.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

HEARTBEAT = 68
SESSION_MS = 45_000
VERSIONS = tuple(
    range(ConsumerGroupHeartbeatRequest.MIN_VERSION, ConsumerGroupHeartbeatRequest.MAX_VERSION + 1)
)
BODY_AT = 4 + 4 + 1
"""Size, correlation id, and the header's tags."""
SEEDS = 16
STEPS = 500


class LiveNode:
    """The node of a world. Its coordinator is another one after a restart."""

    def __init__(self, world: LeadingCoordinator) -> None:
        self._world = world
        self.quotas = SimpleNamespace(is_active=False)
        self.opening = self.coordinators = None
        self.authorizer: Any = None
        self.features: dict[str, int] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.node, name)


class Side:
    """A broker as its connections see it."""

    def __init__(self, *, repeats: bool) -> None:
        self.world = LeadingCoordinator()
        self.node = LiveNode(self.world)
        self.meters = RequestMeters()
        self.dispatcher = ApiDispatcher(self.node, pauseless(self.world.time), meters=self.meters)  # type: ignore[arg-type]
        for version in VERSIONS:
            route = self.dispatcher._route(HEARTBEAT, version)
            if not repeats:
                route.repeats = None
        self.pending: list[tuple[int, Pending]] = []
        self.configs: dict[str, str] = {}
        self.topics = {"t": 3, "u": 1}
        self.leader = NODE_ID
        self.offsets_partitions = 1

    def dispatch(self, frame: bytes, host: str) -> bytes | None:
        """The reply, or None while it is pending."""
        connection = ConnectionInfo(1, "PLAINTEXT", host, 5555)
        answer = self.dispatcher.dispatch(connection, memoryview(bytearray(frame)))
        if connection.timings is not None:
            connection.timings.sent(0)
        if isinstance(answer, Pending) and not answer.reply.done:
            self.pending.append((int.from_bytes(frame[4:8], "big"), answer))
            return None
        reply = answer.reply.result() if isinstance(answer, Pending) else answer
        return joined(reply)

    def released(self) -> list[tuple[int, bytes]]:
        done = [(number, joined(each.reply.result())) for number, each in self.pending if each.reply.done]
        self.pending = [(number, each) for number, each in self.pending if not each.reply.done]
        return done

    def publish(self) -> None:
        topics = [topic_image(name, size) for name, size in self.topics.items()]
        offsets = topic_image(OFFSETS_TOPIC, self.offsets_partitions, leader=self.leader)
        self.world.publish([offsets, *topics])
        configured = replace(self.world.image, configs={(ConfigResourceType.GROUP, "g"): dict(self.configs)})
        self.world.coordinator.on_image(self.world.image, configured)
        self.world.image = configured

    def seen(self) -> dict[str, Any]:
        """Everything that others see of it, or that happens later."""
        logs = {name: log.batches for name, log in self.world.partitions.logs.items()}
        counts = {
            (kind.name, version): meter.requests
            for kind in self.meters.kinds.values()
            for version, meter in kind.versions.items()
        }
        times = {kind.name: len(kind.recent) for kind in self.meters.kinds.values()}
        return {
            "logs": logs,
            "timers": self.world.time.waiting,
            "counts": counts,
            "times": times,
            "errors": self.meters.errors,
        }


def joined(reply: Any) -> bytes:
    return b"".join(bytes(part) for part in reply)


class Both:
    """The two brokers, and the requests answered again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sides = (Side(repeats=True), Side(repeats=False))
        self.number = 0
        self.repeated = 0
        original = Repeat.reply

        def reply(repeat: Repeat, correlation_id: memoryview) -> Any:
            self.repeated += 1
            return original(repeat, correlation_id)

        monkeypatch.setattr(Repeat, "reply", reply)

    def send(
        self, version: int = 1, client: str = "client", host: str = "127.0.0.1", **fields: Any
    ) -> ConsumerGroupHeartbeatResponse | None:
        """The answer that both give, or None while it is pending on both."""
        self.number += 1
        request = ConsumerGroupHeartbeatRequest(**{"group_id": "g", "topic_partitions": None, **fields})
        frame = bytes(
            request_header_bytes(HEARTBEAT, version, self.number, client) + encode(request, version)
        )
        replies = [side.dispatch(frame, host) for side in self.sides]
        assert replies[0] == replies[1]
        return None if replies[0] is None else self.decoded(self.number, replies[0], version)

    def decoded(self, number: int, reply: bytes, version: int) -> ConsumerGroupHeartbeatResponse:
        assert int.from_bytes(reply[:4], "big") == len(reply) - 4
        assert int.from_bytes(reply[4:8], "big") == number
        return decode(ConsumerGroupHeartbeatResponse, version, reply, BODY_AT)

    def each(self, act: Any) -> None:
        for side in self.sides:
            act(side)
        released = [side.released() for side in self.sides]
        assert released[0] == released[1]

    def compare(self) -> None:
        with_repeats, without = (side.seen() for side in self.sides)
        for what, seen in with_repeats.items():
            assert seen == without[what], what

    def advance(self, by_ms: int) -> None:
        self.each(lambda side: side.world.time.advance(by_ms))


class Client:
    """A member as a client keeps it: it tells what it owns once, and after that nothing."""

    def __init__(self, both: Both, member_id: str, version: int, **told: Any) -> None:
        self.both = both
        self.member_id = member_id
        self.version = version
        self.instance_id = told.pop("instance_id", None)
        self.told = {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": 60_000, **told}
        if version == 0:
            self.told.pop("subscribed_topic_regex", None)
        self.epoch = 0
        self.owned: Owned = {}
        self.is_owned_told = True

    def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse | None:
        if not self.epoch:
            fields = {**self.told, "topic_partitions": [], **fields}
        elif not self.is_owned_told:
            fields = {"topic_partitions": topic_partitions(self.owned), **fields}
        answer = self.both.send(
            self.version,
            **{
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "instance_id": self.instance_id,
                **fields,
            },
        )
        self.is_owned_told = True
        if answer is None:
            return None
        if answer.error_code == E.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                told = answer.assignment.topic_partitions
                self.owned = {each.topic_id: set(each.partitions) for each in told}
                self.is_owned_told = False
        elif answer.error_code not in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR):
            self.epoch, self.owned = 0, {}
        return answer

    def leave(self, epoch: int = -1) -> None:
        self.both.send(
            self.version, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        self.epoch, self.owned = 0, {}


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Both:
    return Both(monkeypatch)


def group_of(side: Side) -> ConsumerGroup:
    (shard,) = side.world.coordinator._shards
    group = machine_of(shard).groups["g"]
    assert isinstance(group, ConsumerGroup)
    return group


def settled(both: Both, *clients: Client) -> None:
    for _ in range(6):
        both.advance(1_000)
        for client in clients:
            client.beat()
    both.repeated = 0


def test_a_steady_heartbeat_is_answered_again(both: Both) -> None:
    one = Client(both, "one", 1)
    settled(both, one)
    epoch = one.epoch
    for _ in range(5):
        answer = one.beat()
        assert answer is not None
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (E.NONE, epoch, None)
        assert (answer.member_id, answer.heartbeat_interval_ms) == ("one", 5_000)
    assert both.repeated == 5
    both.compare()


def test_a_repeated_heartbeat_keeps_the_session(both: Both) -> None:
    one, two = Client(both, "one", 1), Client(both, "two", 1)
    settled(both, one, two)
    for _ in range(4):
        both.advance(SESSION_MS - 1)
        answer = one.beat()
        assert answer is not None
        assert answer.error_code == E.NONE
    both.compare()
    both.advance(SESSION_MS)
    answer = one.beat()
    assert answer is not None
    assert answer.error_code == E.UNKNOWN_MEMBER_ID


def test_a_member_that_has_left_is_not_kept(both: Both) -> None:
    one = Client(both, "one", 1)
    settled(both, one)
    one.beat()
    assert both.repeated == 1
    members = [ref(group_of(side).members["one"]) for side in both.sides]
    one.leave()
    assert [member() for member in members] == [None, None]


def test_a_member_that_is_not_at_the_targets_epoch_is_not_steady(both: Both) -> None:
    one, two = Client(both, "one", 1), Client(both, "two", 1)
    settled(both, one)
    two.beat()
    before = both.repeated
    both.advance(1_000)
    one.beat()
    answer = one.beat()
    assert answer is not None
    assert both.repeated == before
    both.compare()


@pytest.mark.parametrize(
    "change",
    [
        {"client": "other"},
        {"host": "127.0.0.2"},
        {"rack_id": "r"},
        {"rebalance_timeout_ms": 1_000},
        {"subscribed_topic_names": ["u"]},
        {"server_assignor": "range"},
        {"group_id": "h"},
        {"member_id": "two"},
        {"member_epoch": 1},
        {"version": 0},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_request_that_differs_is_another_one(both: Both, change: dict[str, Any]) -> None:
    one = Client(both, "one", 1)
    settled(both, one)
    one.beat()
    usual = {"member_id": "one", "member_epoch": one.epoch}
    both.send(**{**usual, **change})
    both.compare()
    both.send(**usual)
    both.send(**{**usual, **change})
    both.send(**usual)
    both.compare()


def changed_config(side: Side) -> None:
    side.configs["consumer.heartbeat.interval.ms"] = "7000"
    side.publish()


def shorter_session(side: Side) -> None:
    side.configs["consumer.session.timeout.ms"] = "46000"
    side.publish()


def other_defaults(side: Side) -> None:
    """The settings of all groups that can be changed while nodes run."""
    keys = [broker_keys()[each.broker] for each in group_keys().values() if each.broker]
    changeable = [
        each for each in keys if each.dynamic is not DynamicScope.NONE and isinstance(each.default, int)
    ]
    assert changeable
    side.world.node_settings = NodeSettings({each.name: as_int(each.default) + 1_000 for each in changeable})


def grown_topic(side: Side) -> None:
    side.topics["t"] += 1
    side.publish()


def other_leader(side: Side) -> None:
    side.leader = NODE_ID + 1
    side.publish()


def more_offsets_partitions(side: Side) -> None:
    side.offsets_partitions = 50
    side.publish()


def restarted(side: Side) -> None:
    side.world.restart()


def stopped(side: Side) -> None:
    side.world.coordinator.stop()


def without_consumer_groups(side: Side) -> None:
    side.world.image = replace(side.world.image, features={"group.version": 0})


@pytest.mark.parametrize(
    "happens",
    [
        changed_config,
        shorter_session,
        other_defaults,
        grown_topic,
        other_leader,
        more_offsets_partitions,
        restarted,
        stopped,
        without_consumer_groups,
    ],
)
def test_what_happens_meanwhile_is_noticed(both: Both, happens: Any) -> None:
    one = Client(both, "one", 1)
    settled(both, one)
    one.beat()
    both.each(happens)
    for _ in range(3):
        one.beat()
    both.compare()
    both.advance(SESSION_MS)
    one.beat()
    both.compare()


def test_an_answer_waits_for_what_is_not_committed(both: Both) -> None:
    one, two = Client(both, "one", 1), Client(both, "two", 1)
    settled(both, one)
    both.each(lambda side: setattr(side.world.partitions, "held", True))
    assert two.beat() is None
    assert one.beat() is None
    both.each(lambda side: side.world.partitions.release())
    both.compare()


def test_a_twin_takes_the_place_of_a_static_member(both: Both) -> None:
    one = Client(both, "one", 1, instance_id="i")
    settled(both, one)
    one.beat()
    assert both.repeated
    steady = {"member_id": "one", "member_epoch": one.epoch, "instance_id": "i"}
    one.leave(-2)
    Client(both, "twin", 1, instance_id="i").beat()
    answer = both.send(**steady)
    assert answer is not None
    assert answer.error_code == E.FENCED_INSTANCE_ID
    both.compare()


def test_a_static_member_is_looked_for_by_its_instance(both: Both) -> None:
    one = Client(both, "one", 1, instance_id="i")
    settled(both, one)
    one.beat()
    assert both.repeated

    def replace_instance(side: Side) -> None:
        group_of(side).static_members["i"] = "another"

    both.each(replace_instance)
    answer = one.beat()
    assert answer is not None
    assert answer.error_code == E.UNKNOWN_MEMBER_ID


def test_expressions_are_resolved_when_that_is_due(both: Both) -> None:
    one = Client(both, "one", 1, subscribed_topic_names=None, subscribed_topic_regex="[tv]")
    settled(both, one)
    for _ in range(4):
        both.advance(SESSION_MS // 3)
        one.beat()
    assert both.repeated

    def new_topic(side: Side) -> None:
        side.topics["v"] = 2
        side.publish()

    both.each(new_topic)
    for _ in range(4):
        both.advance(SESSION_MS // 3)
        one.beat()
        both.compare()
    assert sum(map(len, one.owned.values())) == 5


def test_where_rights_count_each_request_takes_the_usual_way(both: Both) -> None:
    one = Client(both, "one", 1)
    settled(both, one)
    one.beat()
    side = both.sides[0]
    usual = {"member_id": "one", "member_epoch": one.epoch}
    before = both.repeated
    side.dispatcher._node.authorizer = SimpleNamespace(allows=lambda *_, **__: False)  # type: ignore[assignment]
    frame = request_header_bytes(HEARTBEAT, 1, 1, "client") + encode(
        ConsumerGroupHeartbeatRequest(group_id="g", topic_partitions=None, **usual), 1
    )
    reply = side.dispatch(bytes(frame), "127.0.0.1")
    assert reply is not None
    answer = decode(ConsumerGroupHeartbeatResponse, 1, reply, BODY_AT)
    assert answer.error_code == E.GROUP_AUTHORIZATION_FAILED
    assert both.repeated == before


class Life:
    def __init__(self, both: Both, seed: int) -> None:
        self.both = both
        self.random = random.Random(seed)
        self.clients: list[Client] = []
        self.made = 0
        self.acts: Counter[str] = Counter()
        self.is_held = False

    def step(self) -> None:
        act = self.random.choices(
            ("beat", "odd", "join", "leave", "twin", "time", "image", "log", "restart"),
            (60, 6, 5, 3, 2, 16, 3, 3, 1),
        )[0]
        self.acts[act] += 1
        getattr(self, act)()
        if self.is_held and self.random.random() < 0.4:
            self.log()
        self.both.compare()

    def beat(self) -> None:
        for client in self.random.sample(self.clients, min(3, len(self.clients))):
            client.beat()

    def odd(self) -> None:
        if self.clients:
            self.random.choice(self.clients).beat(
                **self.random.choice(
                    (
                        {"member_epoch": self.random.randint(-3, 6)},
                        {"rack_id": self.random.choice("ab")},
                        {"rebalance_timeout_ms": 30_000},
                        {"subscribed_topic_names": self.random.choice((["t"], ["t", "u"], ["w"]))},
                        {"instance_id": self.random.choice(("i", "j"))},
                        {"member_id": "nobody"},
                        {"server_assignor": self.random.choice(("uniform", "range", "none"))},
                        {"topic_partitions": []},
                    )
                ),
                **self.random.choice(({}, {}, {"client": "other"}, {"host": "127.0.0.9"})),
            )

    def join(self) -> None:
        self.made += 1
        told: dict[str, Any] = {
            "subscribed_topic_names": self.random.choice((["t"], ["u"], ["t", "u"])),
            "instance_id": self.random.choice((None, None, "i", "j")),
        }
        if self.random.random() < 0.2:
            told["subscribed_topic_regex"] = "[tuv]"
        client = Client(self.both, f"m{self.made}", self.random.choice(VERSIONS), **told)
        client.beat()
        self.clients = [*self.clients[-4:], client]

    def leave(self) -> None:
        if self.clients:
            self.clients.pop(self.random.randrange(len(self.clients))).leave(self.random.choice((-1, -1, -2)))

    def twin(self) -> None:
        static = [client for client in self.clients if client.instance_id is not None]
        if static:
            former = self.random.choice(static)
            former.leave(-2)
            self.made += 1
            Client(self.both, f"m{self.made}", 1, instance_id=former.instance_id).beat()

    def time(self) -> None:
        if self.random.random() < 0.1:
            shift_ms = self.random.choice((-3_600_000, 3_600_000))
            self.both.each(lambda side: setattr(side.world.time, "wall_shift_ms", shift_ms))
        self.both.advance(self.random.choice((0, 300, 1_000, 1_000, 1_000, 5_000, 11_000, SESSION_MS // 2)))

    def image(self) -> None:
        change = self.random.choice(("grow", "new", "config", "leader", "offsets"))

        def publish(side: Side) -> None:
            if change == "grow":
                side.topics["t"] += 1
            elif change == "new":
                side.topics[f"v{len(side.topics)}" if "v" in side.topics else "v"] = 1
            elif change == "config":
                side.configs["consumer.session.timeout.ms"] = str(45_000 + 1_000 * len(self.acts) + self.made)
            elif change == "leader":
                side.leader = NODE_ID + 1
                side.publish()
                side.leader = NODE_ID
            else:
                side.offsets_partitions += 1
            side.publish()

        self.both.each(publish)

    def log(self) -> None:
        self.is_held = not self.is_held
        if self.is_held:
            self.both.each(lambda side: setattr(side.world.partitions, "held", True))
        else:
            error = self.random.choice((E.NONE, E.NONE, E.REQUEST_TIMED_OUT))
            self.both.each(lambda side: side.world.partitions.release(error))

    def restart(self) -> None:
        self.both.each(restarted)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nobody_sees_a_difference(both: Both, seed: int) -> None:
    life = Life(both, seed)
    for _ in range(STEPS):
        life.step()
    assert both.repeated > 20, life.acts
