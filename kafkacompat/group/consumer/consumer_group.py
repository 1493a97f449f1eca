"""A consumer group (KIP-848): its members, epochs, target assignment and resolved regular expressions.

It is changed by the replay of records only. Counts derived from the members keep each check cheap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import Refused
from kafkacompat.faults import report
from kafkacompat.group.consumer.assignor import Assignment
from kafkacompat.group.consumer.counts import (
    PartitionEpochs,
    SubscriptionCount,
    add,
    move,
    release,
    take,
)
from kafkacompat.group.consumer.member import ConsumerGroupMember, MemberState
from kafkacompat.group.consumer.records import group_tombstones
from kafkacompat.group.kinds import DEAD, GroupKind
from kafkacompat.group.modern_group import ModernGroup, Subscribers
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkacompat.group.group import CommitPartitionValidator
    from kafkacompat.group.records import GroupRecord, OffsetAndMetadata
    from kafkacompat.ids import Uuid
    from kafkacompat.memory import Memory

CONSUMER_PROTOCOL_TYPE = "consumer"
FIRST_COMMIT_VERSION_WITH_EPOCHS = 9
NO_PARTITIONS: Assignment = {}


@dataclass(frozen=True, slots=True)
class ResolvedRegularExpression:
    topics: frozenset[str]
    version: int
    """The metadata offset at which it was resolved."""
    timestamp_ms: int


class ConsumerGroup(ModernGroup[ConsumerGroupMember, Assignment]):
    __slots__ = (
        "_state_name",
        "assignors",
        "classic_count",
        "classic_protocols",
        "has_subscription_metadata_record",
        "partition_epochs",
        "regexes",
        "resolved",
        "static_members",
        "topic_names",
    )

    kind = GroupKind.CONSUMER
    listed_protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str, subscribers: Subscribers, memory: Memory | None = None) -> None:
        super().__init__(group_id, subscribers, memory)
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
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
        self._state_name: str | None = None

    # --- state

    @property
    def state_name(self) -> str:
        if self._state_name is None:
            self._state_name = self._derived_state()
        return self._state_name

    def _derived_state(self) -> str:
        if self._is_dead:
            return DEAD
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        epoch = self.assignment_epoch
        return (
            "Stable" if all(each.is_reconciled_to(epoch) for each in self.members.values()) else "Reconciling"
        )

    def _state_may_change(self) -> None:
        self._state_name = None

    # --- members

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def update_member(self, new: ConsumerGroupMember) -> None:
        old = self.members.get(new.member_id)
        self.members[new.member_id] = new
        self._hold(old, new)
        self._count(old, new)
        if new.instance_id is not None:
            self.static_members[new.instance_id] = new.member_id

    def remove_member(self, member_id: str) -> None:
        old = self.members.pop(member_id, None)
        if old is None:
            return
        self._held.pop(member_id, None)
        self._count(old, None)
        if old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
            del self.static_members[old.instance_id]

    def _count(self, old: ConsumerGroupMember | None, new: ConsumerGroupMember | None) -> None:
        self._state_name = None
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

    def remember(self) -> None:
        """The group is there again."""
        for name in self.topic_names:
            self._subscribe(name)

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

    def target_of(self, member_id: str, instance_id: str | None) -> Assignment:
        """A static member that is being replaced hands its target on."""
        if instance_id is not None:
            former = self.static_members.get(instance_id)
            if former is None:
                return NO_PARTITIONS
            member_id = former
        return self.targets.get(member_id, NO_PARTITIONS)

    def preferred_assignor(
        self, old: ConsumerGroupMember | None = None, new: ConsumerGroupMember | None = None
    ) -> str | None:
        """The assignor that most members name, with this change of one member. In a tie it is uniform, as in Kafka. None
        if nobody names one."""
        counts = dict(self.assignors)
        move(
            counts, None if old is None else old.server_assignor, None if new is None else new.server_assignor
        )
        return max(counts, key=lambda name: (counts[name], name)) if counts else None

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
        if self._is_dead:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if member_epoch < 0 and not self.members:
            return None
        if is_transactional and member_epoch == -1 and member_id == "" and group_instance_id is None:
            return None
        member = self.member(member_id)
        if (
            not is_transactional
            and not member.uses_classic_protocol
            and api_version < FIRST_COMMIT_VERSION_WITH_EPOCHS
        ):
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if member_epoch == member.member_epoch:
            return None
        stale = ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
        if member_epoch > member.member_epoch:
            raise Refused(stale)

        def validate(topic: str, topic_id: Uuid, partition: int) -> None:
            """A commit with an older epoch counts for what the member has had since then."""
            assigned_at = member.assignment_epoch(topic_id, partition)
            if assigned_at is None or member_epoch < assigned_at:
                raise Refused(stale)

        return validate

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.member_epoch:
            raise Refused(
                ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
            )

    def validate_offset_delete(self) -> None:
        if self._is_dead:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} not found.")

    def expires_since_ms(self, stored: OffsetAndMetadata) -> int | None:
        return stored.commit_timestamp_ms

    def tombstones(self, renamed: Mapping[str, str] | None = None) -> list[GroupRecord]:
        """`renamed`: members whose records are already replaced by those of another id."""
        ids = [
            member_id if renamed is None else renamed.get(member_id, member_id) for member_id in self.members
        ]
        return list(group_tombstones(self.group_id, ids, self.resolved))
