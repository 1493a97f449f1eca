"""A simulated group of both protocols: members of the consumer protocol (KIP-848), and members of the classic one with the
subscription of a consumer in it. As the former come and go, the coordinator converts the group to and fro.

They subscribe to several topics. One is always there and gets partitions. Another is created later. A third is deleted
and created again under the same name, so that its partitions are known by its id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.classic_group import Member
from kafkacompat.sim.clients import GROUP, Client, CoordinatorConnection, outcome_of
from kafkacompat.sim.cluster_options import MADE_ANEW, TOPIC
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.counters import ConsumerGroupCounters
from kafkacompat.sim.group_clients import (
    AWAY_MS,
    GROUP_SESSION_MS,
    HEARTBEAT_MS,
    IN_DOUBT,
    GroupClient,
    by_topic,
    commit_errors,
    commit_request,
    leads,
    read_offsets,
)
from kafkacompat.sim.group_oracles import Grant, GroupHistory, Owners
from kafkacompat.sim.links import Links
from kafkacompat.sim.machine import GROUP_PURPOSE, LATE_PURPOSE
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kafkacompat.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from kafkacompat.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.sim.chance import Chance


LASTING = (TOPIC, "t1")
"""Never deleted."""
OTHERS = ("t1", MADE_ANEW)
EXPRESSIONS = (TOPIC, "t[01]", f"t.|{MADE_ANEW}", ".*n")
"""The last one matches no topic other than the one that comes and goes."""


def drawn_topics(chance: Chance) -> list[str]:
    return [TOPIC, *(topic for topic in OTHERS if chance.happens(0.5))]


def matches(topic: str, names: Sequence[str], expression: str | None) -> bool:
    return topic in names or (expression is not None and re.fullmatch(expression, topic) is not None)


def partitions_of_topics(image: MetadataImage, topics: set[str]) -> list[Key]:
    return sorted(
        (topic.id, index)
        for name, topic in image.topics.items()
        if name in topics
        for index in topic.partitions
    )


REBALANCE_MS = 3 * GROUP_SESSION_MS
"""Longer than a member takes to learn what to give up, and to give it up."""
STEPS_TO_REVOKE = 3
LEAVES, LEAVES_FOR_A_WHILE = -1, -2
FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
"""After these errors a member has lost its partitions."""
UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
STALE = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION})
"""The member's epoch has changed in a heartbeat that was not answered."""


class ConsumerMember(GroupClient):
    """A member of the consumer protocol (KIP-848): heartbeats, commits, reads, leaves, and is silent."""

    def __init__(
        self,
        links: Links,
        client_id: int,
        ledger: GroupHistory,
        owners: Owners,
        counters: ConsumerGroupCounters,
        instance_id: str | None = None,
        *,
        is_twin: bool = False,
    ) -> None:
        super().__init__(links, client_id)
        self.ledger = ledger
        self.owners = owners
        self.counters = counters
        self._coordinator = CoordinatorConnection(self, GROUP, ledger.group_id, GROUP_PURPOSE)
        self._attempt = 0
        """Answers that belong to an earlier attempt are ignored."""
        self._lives = 0
        self.instance_id = instance_id
        self.is_twin = is_twin
        """It has the instance id of another member, and goes at the end."""
        self.is_alone = False
        """It is static, and nobody else has its instance id."""
        self.has_classic_twin = False
        """A member of the classic protocol may take its place at any time."""
        self.is_retired = False
        self._had: frozenset[Key] = frozenset()
        """What a static member had when it went for a while."""
        self.member_id = ""
        self.epoch = 0
        self.owned: set[Key] = set()
        self._to_revoke: set[Key] = set()
        """Those of `owned` that it was told to give up."""
        self._steps_to_revoke = 0
        self._tells_all = True
        """Whether the next heartbeat has every field."""
        self._told_owned: set[Key] | None = None
        """The partitions that the coordinator knows it to own. None if it does not know."""
        self.subscribed: list[str] = []
        self.expression: str | None = None
        self._assignor: str | None = None
        self.has_read_at_last = False
        """Whether it has fetched the offsets of its partitions since the faults ended."""

    @property
    def is_settled(self) -> bool:
        return self.epoch > 0 and not self._to_revoke and self._told_owned == self.owned

    def start(self) -> None:
        super().start()
        self._be_another()
        self.later(self._beat, HEARTBEAT_MS)

    def _be_another(self) -> None:
        """Get another id. The former may still be in the group."""
        self._lives += 1
        self.member_id = f"{self.id}-{self._lives}"
        self._lose_all()
        by_regex = self.chance.happens(0.25)
        self._assignor = (None, "range", "uniform")[self.chance.randrange(3)]
        self.expression = EXPRESSIONS[self.chance.randrange(len(EXPRESSIONS))] if by_regex else None
        self.subscribed = [] if by_regex and self.chance.happens(0.5) else drawn_topics(self.chance)

    def _lose_all(self) -> None:
        self._attempt += 1
        self.epoch, self._tells_all, self._told_owned = 0, True, None
        self.owned, self._to_revoke = set(), set()
        self.owners.gives_up(self.id)

    # Heartbeats.

    def _beat(self) -> None:
        if self.is_twin and self.env.is_over_for_producers:
            self._retire()
            return
        request = self._heartbeat_request()
        if self.epoch == 0 and self.instance_id is not None:
            self.owners.comes_back(self.instance_id)
        owned = set(self.owned)
        sent_us, asked_in, attempt = self.env.scheduler.now_us, self._leads(), self._attempt

        def answered(done: Deferred[Any]) -> None:
            error, answer = outcome_of(done)
            if (
                error is ErrorCode.NONE
                and asked_in == self._leads()
                and asked_in[0] == self._coordinator.node_id
            ):
                self._told_owned = owned
                self._confirmed(answer, sent_us)
            elif error is ErrorCode.NONE or error in IN_DOUBT:
                # A deposed coordinator's answer is worth nothing.
                self._coordinator.forget()
                self._tells_all, self._told_owned = True, None
                self.later(self._beat)
            else:
                self._refused(error)

        self._coordinator.send(request, lambda: self._attempt == attempt, answered)

    def _heartbeat_request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.ledger.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
        )
        if self._tells_all:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = self.subscribed
            # An empty one ends that of the former member of a static one.
            request.subscribed_topic_regex = self.expression or ""
            request.server_assignor = self._assignor
        if self._tells_all or self._told_owned != self.owned:
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in by_topic(self.owned).items()
            ]
        return request

    def _leads(self) -> tuple[int, int]:
        return leads(self, self.ledger.group_id)

    def _confirmed(self, answer: Any, sent_us: int) -> None:
        self._tells_all = False
        if self.epoch == 0 and self.instance_id is not None:
            self.counters.static_joins += 1
        self.epoch = answer.member_epoch
        has_new = False
        if answer.assignment is not None:
            told = {
                (topic.topic_id, index)
                for topic in answer.assignment.topic_partitions
                for index in topic.partitions
            }
            self._check_subscribed(told - self.owned)
            self.counters.returned += len(told & self._had)
            self._had = frozenset()
            has_new = bool(told - self.owned)
            if has_new:
                self.has_read_at_last = False
                self.env.counters.assignments += 1
                self.counters.assignments += 1
            self._to_revoke = self.owned - told
            self._steps_to_revoke = STEPS_TO_REVOKE
            self.owned |= told
        self.owners.heard(self.id, sent_us)
        grant = Grant(sent_us, self.env.scheduler.now_us)
        self.owners.told(self.id, self.owned, grant, is_asked_first=not self.has_classic_twin)
        if has_new and self.chance.happens(0.5):
            self._read()
        else:
            self._next()

    def _check_subscribed(self, told: set[Key]) -> None:
        """New partitions are those of topics that it subscribes to."""
        for topic_id, index in told:
            name = self.env.metadata.names.get(topic_id, "")
            self.counters.partitions_of_others += name != TOPIC
            if not matches(name, self.subscribed, self.expression):
                raise Breach(
                    "members get what they subscribe to",
                    f"{self.member_id} with {self.subscribed} and {self.expression} is told of {name}-{index}",
                )

    def _refused(self, error: ErrorCode) -> None:
        """The request was certainly not carried out."""
        if error in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID) and self.instance_id:
            self.counters.unreleased += error is ErrorCode.UNRELEASED_INSTANCE_ID
            self.counters.instances_fenced += error is ErrorCode.FENCED_INSTANCE_ID
            self._be_away()
            return
        if error in STALE:
            self._tells_all, self._told_owned = True, None
            self.later(self._beat)
            return
        if error not in FENCED:
            raise Breach("members are understood", f"{self.ledger.group_id} gets {error.name}")
        self.counters.fenced += self.epoch > 0
        self._lose_all()
        self.later(self._beat)

    # What a member does between two heartbeats.

    def _next(self) -> None:
        self.later(self._act, HEARTBEAT_MS)

    def _act(self) -> None:
        kind = self.chance.uniform()
        if self._to_revoke:
            self._step_to_revoke(kind)
        elif self.env.is_over_for_producers:
            if self.has_read_at_last or not self.owned:
                self._beat()
            else:
                self._read()
        elif self.epoch == 0 or not self.owned:
            (self._leave if kind > 0.98 else self._beat)()
        elif kind < 0.5:
            self._beat()
        elif kind < 0.82:
            self._commit()
        elif kind < 0.88:
            self._leave()
        elif kind < 0.92:
            self._vanish()
        elif kind < 0.95:
            self._fall_silent()
        else:
            self._read()

    def _step_to_revoke(self, kind: float) -> None:
        """Before it gives partitions up, a member may commit, and heartbeat once more."""
        self._steps_to_revoke -= 1
        if kind < 0.5 or not self._steps_to_revoke:
            self.counters.revocations += 1
            self.owners.gives_up(self.id, self._to_revoke)
            self.owned -= self._to_revoke
            self._to_revoke = set()
            self._beat()
        elif kind < 0.8:
            self._commit()
        else:
            self._beat()

    def _commit(self) -> None:
        numbers = {partition: self.ledger.issue(partition) for partition in sorted(self.owned)}
        sent_us, attempt = self.env.scheduler.now_us, self._attempt

        def answered(done: Deferred[Any]) -> None:
            errors = self._count_commits(numbers, done)
            taken = [partition for partition in numbers if errors.get(partition) is ErrorCode.NONE]
            self.owners.committed(self.id, taken, sent_us, self.env.scheduler.now_us)
            error = next(
                (
                    each
                    for key, each in errors.items()
                    if each is not ErrorCode.NONE and not self._is_gone(key, each)
                ),
                ErrorCode.NONE,
            )
            if error is ErrorCode.NONE:
                self._next()
            elif error in IN_DOUBT:
                self.counters.commits_in_doubt += 1
                self._coordinator.forget()
                self._be_another()
                self.later(self._beat)
            else:
                self._refused(error)

        self._coordinator.send(self._commit_request(numbers), lambda: self._attempt == attempt, answered)

    def _is_gone(self, key: Key, error: ErrorCode) -> bool:
        return error in UNKNOWN and self.env.metadata.is_deleted(key)

    def _commit_request(self, numbers: dict[Key, int]) -> Any:
        return commit_request(self.ledger.group_id, numbers, self.epoch, self.member_id, self.instance_id)

    def _count_commits(self, numbers: dict[Key, int], done: Deferred[Any]) -> dict[Key, ErrorCode]:
        """Return the error of each partition. An older epoch may commit some of its partitions and others not."""
        errors = commit_errors(done, numbers)
        for partition, error in errors.items():
            if error is ErrorCode.NONE:
                self.ledger.committed(partition, numbers[partition])
                self.env.counters.commits += 1
                self.counters.commits += 1
            self.counters.commits_refused += error in STALE | FENCED
        return errors

    def _read(self) -> None:
        attempt = self._attempt
        is_last = self.env.is_over_for_producers

        def done() -> None:
            self.has_read_at_last = is_last
            self.counters.offsets_read += 1
            self._next()

        def refused(error: ErrorCode) -> bool:
            if error in STALE | FENCED:
                self._refused(error)
            return error in STALE | FENCED

        read_offsets(
            self,
            self._coordinator,
            self.ledger,
            lambda: self.owned,
            lambda: self._attempt == attempt,
            done,
            (self.member_id, self.epoch),
            refused,
        )

    # Leaving the group.

    def _leave(self) -> None:
        """A static member mostly leaves for a while only, and its partitions stay with the instance."""
        epoch = LEAVES
        if self.instance_id is not None and self.chance.happens(0.75):
            epoch = LEAVES_FOR_A_WHILE
            self._had = frozenset(self.owned)
            self.counters.left_for_a_while += 1
            if self.is_alone:
                self.owners.leaves_for_a_while(self.id, self.instance_id)
        self._send_leave(epoch, self._be_away)

    def _send_leave(self, epoch: int, then: Callable[[], None]) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.ledger.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
        )
        if self.chance.happens(0.2):
            self._commit_late()
        self._lose_all()
        self.counters.left += 1
        attempt = self._attempt

        def answered(done: Deferred[Any]) -> None:
            error, _ = outcome_of(done)
            if error not in IN_DOUBT | FENCED | {ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID}:
                raise Breach("members are understood", f"{self.ledger.group_id} gets {error.name}")
            then()

        self._coordinator.send(request, lambda: self._attempt == attempt, answered)

    def _vanish(self) -> None:
        """Disappear without leaving, so that the session expires. A commit in flight may arrive much later."""
        self.counters.vanished += 1
        if self.chance.happens(0.5):
            self._commit_late()
        self._be_away()

    def _commit_late(self) -> None:
        numbers = {partition: self.ledger.issue(partition) for partition in sorted(self.owned)}
        if not numbers:
            return
        request = self._commit_request(numbers)
        late = CoordinatorConnection(self, GROUP, self.ledger.group_id, LATE_PURPOSE)
        self.call_after(
            self._long_ms(),
            lambda: late.send(
                request, lambda: True, lambda done: _ignore(self._count_commits(numbers, done))
            ),
        )

    def _retire(self) -> None:
        """The other member with this instance id stays."""
        self.is_retired = True
        self._send_leave(LEAVES, self._lose_all)

    def _be_away(self) -> None:
        self.env.counters.members_gone += 1
        self._be_another()
        self.call_after(1 + self.chance.randrange(AWAY_MS), self._beat)

    def _fall_silent(self) -> None:
        """Long enough to be fenced or not, and then go on as if nothing had happened."""
        self.counters.silences += 1
        then: Callable[[], None] = self._commit if self.chance.happens(0.5) else self._beat
        self.call_after(self._long_ms() // 2, then)

    def _long_ms(self) -> int:
        return GROUP_SESSION_MS + self.chance.randrange(AWAY_MS)


def _ignore(_: Iterable[Any]) -> None:
    """A late commit counts if it was taken. Nobody waits for it."""


VERSION = 3
VERSION_BYTES = VERSION.to_bytes(2, "big")


class EmbeddedMember(Member):
    """It has an eager assignor: it gives everything up before it joins again.

    It knows partitions by the names of their topics. Of a topic that is deleted and created again, it cannot tell which
    one it was given, so only partitions of the others are committed and checked.
    """

    protocol_type, protocol = "consumer", "range"

    def __init__(
        self,
        links: Links,
        client_id: int,
        ledger: GroupHistory,
        owners: Owners,
        counters: ConsumerGroupCounters,
        instance_id: str | None = None,
        *,
        is_twin: bool = False,
    ) -> None:
        super().__init__(links, client_id, ledger)
        self.owners = owners
        self.counters = counters
        self.instance_id = instance_id
        self.is_twin = is_twin
        """It has the instance id of another member, and goes at the end."""
        self.is_retired = False
        self.subscribed = drawn_topics(self.chance)
        self._sent_us = 0
        self._is_sure = False
        """Whether the coordinator still led the group's partition when its last answer arrived."""
        self._was_converted: bool | None = None
        """Whether the group was a consumer group when it last joined."""

    # What the members tell each other.

    def topics(self) -> Sequence[str]:
        return (TOPIC, *OTHERS)

    def metadata(self) -> bytes:
        return VERSION_BYTES + encode(ConsumerProtocolSubscription(topics=self.subscribed), VERSION)

    def divided(self, members: Sequence[tuple[str, bytes]]) -> dict[str, bytes]:
        named: dict[str, list[TopicPartition]] = {member_id: [] for member_id, _ in members}
        readers = {
            member_id: decode(ConsumerProtocolSubscription, VERSION, metadata[len(VERSION_BYTES) :]).topics
            for member_id, metadata in members
        }
        for topic, (_, count) in self._divided.items():
            of = [member_id for member_id, topics in readers.items() if topic in topics]
            for position, member_id in enumerate(of):
                share = list(range(position, count, len(of)))
                if share:
                    named[member_id].append(TopicPartition(topic=topic, partitions=share))
        return {
            member_id: VERSION_BYTES + encode(ConsumerProtocolAssignment(assigned_partitions=each), VERSION)
            for member_id, each in named.items()
        }

    def decoded(self, assignment: bytes) -> list[Key]:
        if not assignment:
            return []
        message = decode(ConsumerProtocolAssignment, VERSION, assignment[len(VERSION_BYTES) :])
        topics = self.env.metadata.newest.topics
        return [
            (topics[each.topic].id, index)
            for each in message.assigned_partitions
            if each.topic in topics
            for index in each.partitions
        ]

    def committable(self) -> list[Key]:
        topics = self.env.metadata.newest.topics
        lasting = {topics[name].id for name in LASTING if name in topics}
        return [key for key in self.owned or () if key[0] in lasting]

    # What it tells the oracles.

    def _ask(self, request: Any, then: Callable[[ErrorCode, Any], None]) -> None:
        asked_in = leads(self, self.ledger.group_id)
        self._sent_us = self.env.scheduler.now_us

        def answered(error: ErrorCode, answer: Any) -> None:
            now_in = leads(self, self.ledger.group_id)
            self._is_sure = asked_in == now_in and asked_in[0] == self._coordinator.node_id
            if error is ErrorCode.NONE and self._is_sure:
                self.owners.heard(self.id, self._sent_us)
            then(error, answer)

        super()._ask(request, answered)

    def _joined(self, error: ErrorCode, answer: Any) -> None:
        if error is ErrorCode.NONE:
            is_converted = answer.leader == ""
            if self._was_converted is not None and self._was_converted != is_converted:
                self.counters.upgrades += is_converted
                self.counters.downgrades += not is_converted
            self._was_converted = is_converted
        super()._joined(error, answer)

    def assigned(self, partitions: list[Key]) -> None:
        self.counters.embedded_assignments += bool(self._was_converted)
        if self._is_sure:
            grant = Grant(self._sent_us, self.env.scheduler.now_us)
            self.owners.told(self.id, self.committable(), grant, is_asked_first=False)

    def committed(self, partitions: Iterable[Key], sent_us: int) -> None:
        self.owners.committed(self.id, partitions, sent_us, self.env.scheduler.now_us)

    # Joining and leaving.

    def _join(self) -> None:
        self.owners.gives_up(self.id)
        if self.is_twin and self.env.is_over_for_producers:
            self.owned, self.is_retired = None, True
            return
        if self.instance_id is not None:
            self.owners.comes_back(self.instance_id)
        super()._join()

    def _join_again(self, error: ErrorCode) -> None:
        self.owners.gives_up(self.id)
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.counters.instances_fenced += 1
            self._vanish()
            return
        super()._join_again(error)

    def _act(self) -> None:
        if self.is_twin and self.env.is_over_for_producers:
            self._leave()
            return
        super()._act()

    def _vanish(self) -> None:
        super()._vanish()
        self.owners.gives_up(self.id)
        self.subscribed = drawn_topics(self.chance)

    def _leave(self) -> None:
        self.owners.gives_up(self.id)
        super()._leave()


SURE_SHARE = 0.9
"""The share of a session after which it has not expired by any node's clock."""


class ConsumerGroups:
    """The members of one group. The first of each protocol are static. A twin has the instance id of another member."""

    def __init__(self, links: Links, first_id: int) -> None:
        options = links.env.options
        self.counters = ConsumerGroupCounters()
        ledger = GroupHistory("consumers")
        owners = Owners(ledger.group_id, int(GROUP_SESSION_MS * 1000 * SURE_SHARE))
        instances = [f"consumer-{each}" for each in range(options.static_members)]
        embedded_instances = [f"embedded-{each}" for each in range(options.static_embedded_members)]
        ids = iter(range(first_id, first_id + 100))
        members: list[ConsumerMember] = []
        embedded: list[EmbeddedMember] = []

        def add(is_embedded: bool, instance_id: str | None, *, is_twin: bool = False) -> None:
            to: list[ConsumerMember] | list[EmbeddedMember] = embedded if is_embedded else members
            kind: type[ConsumerMember | EmbeddedMember] = EmbeddedMember if is_embedded else ConsumerMember
            member = kind(links, next(ids), ledger, owners, self.counters, instance_id, is_twin=is_twin)
            to.append(member)  # type: ignore[arg-type]  # both lists are of their own kind

        for number in range(options.consumer_members):
            add(False, instances[number] if number < len(instances) else None)
        for number in range(options.embedded_members):
            add(True, embedded_instances[number] if number < len(embedded_instances) else None)
        for is_embedded in options.twins:
            add(is_embedded, (instances or embedded_instances)[0], is_twin=True)
        self._members, self._embedded = members, embedded
        for each in members:
            if each.instance_id is not None:
                twins = [other for other in self._everyone if other.instance_id == each.instance_id]
                each.is_alone = len(twins) == 1
                each.has_classic_twin = any(isinstance(other, EmbeddedMember) for other in twins)

    @property
    def _everyone(self) -> list[ConsumerMember | EmbeddedMember]:
        return [*self._members, *self._embedded]

    @property
    def clients(self) -> list[Client]:
        return [*self._everyone]

    def missing(self, image: MetadataImage) -> str | None:
        """Return what a healed cluster has not done for them yet. None if everything is done."""
        if not self._members:
            return None
        if not all(each.is_retired for each in self._everyone if each.is_twin):
            return "not all twins have gone"
        members = [each for each in self._members if not each.is_twin]
        embedded = [each for each in self._embedded if not each.is_twin]
        everyone: list[ConsumerMember | EmbeddedMember] = [*members, *embedded]
        owned = {each.id: sorted(each.owned or ()) for each in everyone}
        if not all(each.is_settled for each in members) or any(each.owned is None for each in embedded):
            return f"not all members are settled, {owned} are owned"
        topics = {
            topic
            for topic in image.topics
            if any(matches(topic, each.subscribed, each.expression) for each in members)
            or any(topic in each.subscribed for each in embedded)
        }
        partitions = partitions_of_topics(image, topics)
        if sorted(key for each in owned.values() for key in each) != partitions:
            return f"of {partitions} the members own {owned}"
        if not all(each.has_read_at_last or not each.owned for each in everyone):
            return "members have not read what was committed"
        return None
