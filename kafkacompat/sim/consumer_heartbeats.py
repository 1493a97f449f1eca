"""The heartbeats of members of a simulated group that use the consumer protocol (KIP-848), and what they own by them."""

from __future__ import annotations

from typing import Any

from kafkacompat.deferred import Deferred
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.coordinated import GROUP, Coordinated, outcome_of
from kafkacompat.sim.counters import ConsumerGroupCounters
from kafkacompat.sim.group_commits import (
    GROUP_SESSION_MS,
    HEARTBEAT_MS,
    TOPIC,
    GroupClient,
    by_topic,
)
from kafkacompat.sim.group_offsets import IN_DOUBT, leads
from kafkacompat.sim.group_oracles import Grant, GroupLedger, Owners
from kafkacompat.sim.links import Links
from kafkacompat.sim.machine import GROUP_PURPOSE
from kafkacompat.sim.subscriptions import EXPRESSIONS, drawn_topics, matches
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
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


class HeartbeatingMember(GroupClient):
    """The part that heartbeats. What a member does besides is in consumer_members.py."""

    def __init__(
        self,
        links: Links,
        client_id: int,
        ledger: GroupLedger,
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
        self._coordinator = Coordinated(self, GROUP, ledger.group_id, GROUP_PURPOSE)
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
        raise NotImplementedError

    def _read(self) -> None:
        """What others have committed of its partitions."""
        raise NotImplementedError

    def _be_away(self) -> None:
        raise NotImplementedError

    def _retire(self) -> None:
        raise NotImplementedError
