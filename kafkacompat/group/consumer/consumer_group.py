"""A consumer group (KIP-848): its members, epochs, target assignment and resolved regular expressions, and the timers of
its members.

It is changed by the replay of records only. Counts derived from the members keep each check cheap: names, and the
owners of partitions. Each join of a member sets the timers of its id anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import OperationRefused
from kafkacompat.dataclass import dataclass
from kafkacompat.faults import report
from kafkacompat.group.consumer.assignor import Assignment
from kafkacompat.group.consumer.consumer_group_member import (
    ClassicMemberMetadata,
    ConsumerGroupMember,
    MemberState,
)
from kafkacompat.group.environment import Environment
from kafkacompat.group.modern_group import (
    LEAVE_GROUP_MEMBER_EPOCH,
    ModernGroup,
    Subscribers,
    assignment_replay,
    cancel_fencing,
    is_fencing_scheduled,
    member_replay,
    replay_group_metadata,
    replay_modern_record,
    replay_target_metadata,
    schedule_fencing,
    throw_if_commit_without_epoch,
)
from kafkacompat.group.records import (
    ConsumerGroupRecord,
    GroupKind,
    consumer_group_tombstones,
    owned_partitions,
    shared_names,
    state_of,
)
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkacompat.group.group import CommitPartitionValidator, Group
    from kafkacompat.group.records import GroupRecord
    from kafkacompat.ids import Uuid
    from kafkacompat.memory import Memory


class SubscriptionCount:
    """How many members name a topic, and how many regular expressions match it."""

    __slots__ = ("by_name", "by_regex")

    def __init__(self, by_name: int = 0, by_regex: int = 0) -> None:
        self.by_name = by_name
        self.by_regex = by_regex


def add(counts: dict[str, int], name: str, step: int) -> None:
    """A count of 0 has no entry."""
    count = counts.get(name, 0) + step
    if count > 0:
        counts[name] = count
    else:
        counts.pop(name, None)


def move(counts: dict[str, int], old: str | None, new: str | None) -> None:
    """One of those that are counted has another name now."""
    if old == new:
        return
    if old is not None:
        add(counts, old, -1)
    if new is not None:
        add(counts, new, 1)


PartitionEpochs = dict["Uuid", dict[int, int]]
"""Topic id -> partition -> epoch of the member that owns it, or still has to revoke it."""


def take(epochs: PartitionEpochs, member: ConsumerGroupMember) -> int:
    """Count the member as owner. Returns the number of partitions that have another owner of its epoch or a later one."""
    epoch, doubled = member.member_epoch, 0
    for owned in (member.assigned, member.pending_revocation):
        for topic_id, partitions in owned.items():
            of_topic = epochs.setdefault(topic_id, {})
            for partition in partitions:
                if of_topic.get(partition, -1) >= epoch >= 0:
                    doubled += 1
                else:
                    of_topic[partition] = epoch
    return doubled


def release(epochs: PartitionEpochs, member: ConsumerGroupMember) -> None:
    """The opposite of `take`, for a member as it was then."""
    for owned in (member.assigned, member.pending_revocation):
        for topic_id, partitions in owned.items():
            of_topic = epochs.get(topic_id)
            if of_topic is None:
                continue
            for partition in partitions:
                if of_topic.get(partition) == member.member_epoch:  # otherwise another member has it by now
                    del of_topic[partition]
            if not of_topic:
                del epochs[topic_id]


CONSUMER_PROTOCOL_TYPE = "consumer"
NO_PARTITIONS: Assignment = {}
JOIN = "consumer-join"
SYNC = "consumer-sync"
"""Kinds of timers."""


@dataclass(frozen=True, slots=True)
class ResolvedRegularExpression:
    topics: frozenset[str]
    version: int
    """The metadata offset at which it was resolved."""
    timestamp_ms: int


class ConsumerGroup(ModernGroup[ConsumerGroupMember, Assignment]):
    __slots__ = (
        "assignors",
        "classic_count",
        "classic_protocols",
        "has_subscription_metadata_record",
        "partition_epochs",
        "regexes",
        "resolved",
        "topic_names",
    )

    kind = GroupKind.CONSUMER
    session_timeout = "consumer.session.timeout.ms"
    assignment_interval = "consumer.assignment.interval.ms"
    listed_protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str, subscribers: Subscribers, memory: Memory | None = None) -> None:
        super().__init__(group_id, subscribers, memory)
        self.partition_epochs: PartitionEpochs = {}
        self.topic_names: dict[str, SubscriptionCount] = {}
        self.assignors: dict[str, int] = {}
        """Server-side assignor -> members that prefer it."""
        self.regexes: dict[str, int] = {}
        """Regular expression -> members that subscribe by it."""
        self.resolved: dict[str, ResolvedRegularExpression] = {}
        self.classic_count = 0
        self.classic_protocols: dict[str, int] = {}
        """Classic protocol -> classic members that support it."""
        self.has_subscription_metadata_record = False
        """Whether a record of Kafka 4.0 is to be removed."""

    # --- members

    def _count(self, old: ConsumerGroupMember | None, new: ConsumerGroupMember | None) -> None:
        old_names = frozenset() if old is None else old.subscribed_topic_names
        new_names = frozenset() if new is None else new.subscribed_topic_names
        if old_names is not new_names and old_names != new_names:
            for name in old_names - new_names:
                self._add_to_topic(name, -1, 0)
            for name in new_names - old_names:
                self._add_to_topic(name, 1, 0)
        move(
            self.assignors,
            None if old is None else old.server_assignor,
            None if new is None else new.server_assignor,
        )
        move(self.regexes, None if old is None else old.regex, None if new is None else new.regex)
        old_classic = None if old is None else old.classic
        new_classic = None if new is None else new.classic
        if old_classic is not new_classic:
            self.classic_count += (new_classic is not None) - (old_classic is not None)
            for classic, step in ((old_classic, -1), (new_classic, 1)):
                for name, _ in () if classic is None else classic.protocols:
                    add(self.classic_protocols, name, step)
        if old is not None and new is not None and old.member_epoch == new.member_epoch:
            is_same = old.assigned is new.assigned and old.pending_revocation is new.pending_revocation
            if is_same:
                return
        if old is not None:
            release(self.partition_epochs, old)
        if new is not None and (doubled := take(self.partition_epochs, new)):
            report(
                f"group {self.group_id[:64]}",
                AssertionError(
                    f"{doubled} partitions have another owner of epoch {new.member_epoch} or later"
                ),
            )

    def partition_epoch(self, topic_id: Uuid, partition: int) -> int:
        """-1 if nobody owns the partition."""
        epochs = self.partition_epochs.get(topic_id)
        return -1 if epochs is None else epochs.get(partition, -1)

    # --- subscriptions

    def _add_to_topic(self, name: str, by_name: int, by_regex: int) -> None:
        count = self.topic_names.get(name)
        if count is None:
            count = self.topic_names[name] = SubscriptionCount()
            self._subscribe(name)
        count.by_name += by_name
        count.by_regex += by_regex
        if count.by_name <= 0 and count.by_regex <= 0:
            del self.topic_names[name]
            self._unsubscribe(name)

    def enter(self, subscribers: Subscribers) -> None:
        """The group was made beside the others, and becomes one of them."""
        self._subscribers = subscribers
        self.remember()

    def set_resolved(self, regex: str, resolved: ResolvedRegularExpression | None) -> None:
        old = self.resolved.pop(regex, None)
        if resolved is not None:
            self.resolved[regex] = resolved
            for name in resolved.topics:
                self._add_to_topic(name, 0, 1)
        if old is not None:
            for name in old.topics:
                self._add_to_topic(name, 0, -1)

    def topic_names_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """Named and matched topics. A regular expression that is not resolved matches nothing yet."""
        resolved = None if member.regex is None else self.resolved.get(member.regex)
        if resolved is None:
            return member.subscribed_topic_names
        if not member.subscribed_topic_names:
            return resolved.topics
        return member.subscribed_topic_names | resolved.topics

    # --- target assignment

    def preferred_assignor(
        self, old: ConsumerGroupMember | None = None, new: ConsumerGroupMember | None = None
    ) -> str | None:
        """The assignor that most members name, with this change of one member. In a tie it is uniform, or the one that is named
        now and was not before, as in Kafka. None if nobody names one."""
        counts = dict(self.assignors)
        move(counts, None if old is None else old.server_assignor, None)
        named = None if new is None else new.server_assignor
        first = None if named in counts else named
        move(counts, None, named)
        return max(counts, key=lambda name: (counts[name], name == first, name)) if counts else None

    # --- classic members

    def supports_classic_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        return protocol_type == CONSUMER_PROTOCOL_TYPE and any(
            self.classic_protocols.get(name, 0) == self.classic_count for name in names
        )

    def waits_for_unreleased_partition(self, member: ConsumerGroupMember) -> bool:
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, ())
            and self.partition_epoch(topic_id, partition) != -1
            for topic_id, partitions in self.targets.get(member.member_id, NO_PARTITIONS).items()
            for partition in partitions
        )

    # --- offsets

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        member_epoch: int,
        is_transactional: bool,
        api_version: int,
    ) -> CommitPartitionValidator | None:
        member = self.committing_member(member_id, group_instance_id, member_epoch, is_transactional)
        if member is None:
            return None
        if not is_transactional and not member.uses_classic_protocol:
            throw_if_commit_without_epoch(api_version, "consumer")
        if member_epoch == member.member_epoch:
            return None
        stale = ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
        if member_epoch > member.member_epoch:
            raise OperationRefused(stale)

        def validate(topic: str, topic_id: Uuid, partition: int) -> None:
            """A commit with an older epoch counts for what the member has had since then."""
            assigned_at = member.assignment_epoch(topic_id, partition)
            if assigned_at is None or member_epoch < assigned_at:
                raise OperationRefused(stale)

        return validate

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.member_epoch:
            raise OperationRefused(
                ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
            )

    def tombstones(self, renamed: Mapping[str, str] | None = None) -> list[GroupRecord]:
        """`renamed`: members whose records are already replaced by those of another id."""
        ids = [
            member_id if renamed is None else renamed.get(member_id, member_id) for member_id in self.members
        ]
        return list(consumer_group_tombstones(self.group_id, ids, self.resolved))


class SubscribedTopics:
    """A copy of the group's counts. Each change of a member or of an expression is counted here before it is written."""

    __slots__ = ("_counts", "_group")

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self._counts = {name: [count.by_name, count.by_regex] for name, count in group.topic_names.items()}

    def rename(self, old: frozenset[str], new: frozenset[str]) -> None:
        """A member named the old topics, and names the new ones."""
        if old is not new:
            self._add(old - new, 0, -1)
            self._add(new - old, 0, 1)

    def match(self, regex: str, topics: frozenset[str] = frozenset()) -> None:
        """The expression matches these topics now, or has no subscriber any more."""
        resolved = self._group.resolved.get(regex)
        old = frozenset() if resolved is None else resolved.topics
        self._add(old - topics, 1, -1)
        self._add(topics - old, 1, 1)

    def _add(self, names: Iterable[str], index: int, step: int) -> None:
        for name in names:
            self._counts.setdefault(name, [0, 0])[index] += step

    def counts(self) -> dict[str, list[int]]:
        """Topic -> [members that name it, regular expressions that match it]."""
        return {name: count for name, count in self._counts.items() if count[0] > 0 or count[1] > 0}


# --- replay


GROUP_METADATA = 3


def replay_consumer_record(
    groups: dict[str, Group],
    subscribers: Subscribers,
    record: ConsumerGroupRecord,
    memory: Memory | None = None,
) -> None:
    """Raises LoadFailure for a record that does not fit those before it. A tombstone of nothing is ignored."""
    replay_modern_record(groups, subscribers, record, ConsumerGroup, _REPLAYS, GROUP_METADATA, memory)


def _partition_metadata(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.has_subscription_metadata_record = value is not None


def _told(group: ConsumerGroup, member: ConsumerGroupMember, value: Any) -> ConsumerGroupMember:
    classic = value.classic_member_metadata
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=shared_names(group.members, member, frozenset(value.subscribed_topic_names)),
        subscribed_topic_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicMemberMetadata(
            classic.session_timeout_ms,
            tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
        ),
    )


def _target_member(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = {
            topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
        }


def _assigned(member: ConsumerGroupMember, value: Any) -> ConsumerGroupMember:
    return replace(
        member,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=state_of(value),
        assigned=owned_partitions(value.assigned_partitions, value.member_epoch),
        pending_revocation=owned_partitions(value.partitions_pending_revocation, value.member_epoch),
    )


def _left(member: ConsumerGroupMember) -> ConsumerGroupMember:
    return replace(
        member,
        member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
        previous_member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
        assigned={},
        pending_revocation={},
    )


def _regular_expression(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.set_resolved(
        key.regular_expression,
        None
        if value is None
        else ResolvedRegularExpression(frozenset(value.topics), value.version, value.timestamp),
    )


_REPLAYS: dict[int, Callable[[ConsumerGroup, Any, Any], None]] = {
    GROUP_METADATA: replay_group_metadata,
    4: _partition_metadata,
    5: member_replay(ConsumerGroupMember, _told),
    6: replay_target_metadata,
    7: _target_member,
    8: assignment_replay(ConsumerGroupMember, _assigned, _left),
    16: _regular_expression,
}


# --- timers of members that use the classic protocol


def schedule_join_timeout_if_absent(env: Environment, group_id: str, member: ConsumerGroupMember) -> None:
    """The member was told to join again."""
    if not is_fencing_scheduled(env, JOIN, group_id, member.member_id):
        schedule_fencing(env, JOIN, group_id, member.member_id, member.rebalance_timeout_ms)


def cancel_join_timeout(env: Environment, group_id: str, member_id: str) -> None:
    cancel_fencing(env, JOIN, group_id, member_id)


def schedule_sync_timeout(env: Environment, group_id: str, member_id: str, timeout_ms: int) -> None:
    """The member has joined, and must ask for its assignment."""
    schedule_fencing(env, SYNC, group_id, member_id, timeout_ms)


def cancel_sync_timeout(env: Environment, group_id: str, member_id: str) -> None:
    cancel_fencing(env, SYNC, group_id, member_id)


def cancel_timers(env: Environment, group_id: str, member_id: str) -> None:
    """All timers of the member, of either protocol."""
    for kind in ("session", "rebalance", JOIN, SYNC):
        cancel_fencing(env, kind, group_id, member_id)
