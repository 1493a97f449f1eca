"""What a consumer group counts, so that no check has to look at all members: names, and the owners of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.group.consumer.member import ConsumerGroupMember
    from kafkacompat.ids import Uuid


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
