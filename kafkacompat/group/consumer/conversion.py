"""Groups that change between the classic and the consumer protocol while their members go on (KIP-848).

A classic group becomes a consumer group when its first member joins with the new protocol, and a classic group again
when the last such member goes. Both are one batch of records. group.consumer.migration.policy allows them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import CoordinatorResult, Refused
from kafkacompat.group.classic.classic_group import ClassicGroup, ClassicGroupState
from kafkacompat.group.classic.classic_group_member import EMPTY_ASSIGNMENT, ClassicGroupMember
from kafkacompat.group.classic.rebalance import (
    cancel_timers as cancel_classic_timers,
)
from kafkacompat.group.classic.rebalance import (
    prepare_rebalance,
    reschedule_heartbeat,
)
from kafkacompat.group.classic.records import group_metadata_record
from kafkacompat.group.classic.subscription import MalformedSubscription
from kafkacompat.group.consumer.consumer_group import CONSUMER_PROTOCOL_TYPE, NO_PARTITIONS, ConsumerGroup
from kafkacompat.group.consumer.embedded_protocol import (
    CustomAssignor,
    assigned_partitions,
    assignment_bytes,
    subscription_of,
    version_of,
)
from kafkacompat.group.consumer.member import ClassicMemberMetadata, ConsumerGroupMember
from kafkacompat.group.consumer.records import (
    current_assignment_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from kafkacompat.group.consumer.sessions import cancel_timers, schedule_session_timeout, take_up
from kafkacompat.group.environment import Environment, GroupResult
from kafkacompat.group.metadata_hash import metadata_hash
from kafkacompat.group.records import GroupRecord
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode, WireError

if TYPE_CHECKING:
    from kafkacompat.group.consumer.assignor import Assignment

MEMBER_COST = 40
"""To convert one member, without its records."""

# --- from classic to consumer


def validate_online_upgrade(env: Environment, group: ClassicGroup) -> None:
    """Raises Refused GROUP_ID_NOT_FOUND."""
    cannot = f"Cannot upgrade classic group {group.group_id} to consumer group because "
    if not env.settings.consumer.allows_upgrade:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"{cannot}online upgrade is disabled.")
    if not group.uses_consumer_protocol():
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"{cannot}the group does not use the consumer embedded protocol."
        )
    if len(group.members) > env.settings.consumer.max_size:
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"{cannot}the group size exceeds the consumer group maximum size."
        )


def upgraded(env: Environment, classic: ClassicGroup, records: list[GroupRecord]) -> ConsumerGroup:
    """The group as it is after these records, with every member still a classic one. Parked members have to rejoin.
    Raises Refused if a member's metadata cannot be converted."""
    group = at_once(consumer_group_of(env, classic))
    records += classic.tombstones()
    records += upgrade_records(group)
    for converted in group.members.values():
        assert converted.classic is not None
        timeout_ms = converted.classic.session_timeout_ms
        schedule_session_timeout(env, group.group_id, converted.member_id, timeout_ms)
    return group


def upgrade_records(group: ConsumerGroup) -> Iterator[GroupRecord]:
    """The records of the whole group, which follow the tombstone of the classic one."""
    group_id = group.group_id
    for member in group.members.values():
        yield member_record(group_id, member)
    yield epoch_record(group_id, group.group_epoch, group.metadata_hash)
    for member_id, target in group.targets.items():
        yield target_record(group_id, member_id, target)
    yield target_epoch_record(group_id, group.assignment_epoch, group.assignment_timestamp_ms)
    for member in group.members.values():
        yield current_assignment_record(group_id, member)


def consumer_group_of(env: Environment, classic: ClassicGroup) -> Generator[int, None, ConsumerGroup]:
    """The group with all its members, made in steps beside the others. Raises Refused."""
    generation = classic.generation_id
    group = ConsumerGroup(classic.group_id, {}, env.memory)
    group.set_assignment_epoch(generation, 0)
    cannot = f"Cannot upgrade classic group {classic.group_id} to consumer group because "
    try:
        for each in list(classic.members.values()):
            target = assigned_partitions(each.assignment, env.topics) if each.assignment else {}
            subscription = subscription_of(each.metadata(classic.protocol_name or ""))
            group.targets[each.member_id] = target
            group.update_member(
                ConsumerGroupMember(
                    each.member_id,
                    member_epoch=generation,
                    previous_member_epoch=generation,
                    instance_id=each.group_instance_id,
                    rack_id=subscription.rack_id,
                    rebalance_timeout_ms=each.rebalance_timeout_ms,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    subscribed_topic_names=frozenset(subscription.topics),
                    assigned={
                        topic_id: dict.fromkeys(partitions, generation)
                        for topic_id, partitions in target.items()
                    },
                    classic=ClassicMemberMetadata(each.session_timeout_ms, each.protocols),
                )
            )
            yield MEMBER_COST
    except CustomAssignor:
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"{cannot}an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade.",
        ) from None
    except (WireError, KeyError, MalformedSubscription):
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"{cannot}the embedded consumer protocol is malformed."
        ) from None
    group.set_group_epoch(generation, metadata_hash(env, group.topic_names))
    return group


# --- from consumer to classic


def may_downgrade_without(
    env: Environment, group: ConsumerGroup, leaving: Sequence[ConsumerGroupMember]
) -> bool:
    remaining = len(group.members) - len(leaving)
    classic = group.classic_count - sum(member.uses_classic_protocol for member in leaving)
    return classic == remaining > 0 and _allows_downgrade(env, remaining)


def may_downgrade_replacing(env: Environment, group: ConsumerGroup, replaced: ConsumerGroupMember) -> bool:
    """Whether the group has only classic members once a classic one takes the place of this static member."""
    return (
        group.classic_count == len(group.members) - 1
        and not replaced.uses_classic_protocol
        and _allows_downgrade(env, len(group.members))
    )


def _allows_downgrade(env: Environment, size: int) -> bool:
    return env.settings.consumer.allows_downgrade and size <= env.settings.max_size


def downgraded(
    env: Environment,
    group: ConsumerGroup,
    leaving: Iterable[str],
    now_ms: int,
    joining: ConsumerGroupMember | None = None,
    before: Sequence[GroupRecord] = (),
    rebalance: bool = True,
) -> GroupResult:
    """The classic group of the remaining members takes the group's place. `joining` replaces a static member by records
    that come `before`. Raises Refused if the members' metadata cannot be converted."""
    gone = set(leaving)
    renamed: dict[str, str] = {}
    if joining is not None:
        replaced = group.static_member(joining.instance_id)
        assert replaced is not None
        renamed[replaced.member_id] = joining.member_id
        gone.add(replaced.member_id)
    classic = at_once(classic_group_of(env, group, now_ms, gone, joining, renamed))
    assignments = {member.member_id: member.assignment for member in classic.members.values()}
    records = (*before, *group.tombstones(renamed), group_metadata_record(classic, assignments))
    group_id = group.group_id
    env.groups[group_id] = classic
    for member in classic.members.values():
        reschedule_heartbeat(env, classic, member)

    group.forget()
    for member_id in group.members:
        cancel_timers(env, group_id, member_id)

    def refused() -> None:
        cancel_classic_timers(env, classic)
        env.groups[group_id] = group
        group.remember()
        take_up(env, group)

    if rebalance:
        prepare_rebalance(env, classic, now_ms)  # nobody has joined it, so it answers nobody
    return CoordinatorResult(records, None, replay=False, refused=refused)


def classic_group_of(
    env: Environment,
    group: ConsumerGroup,
    now_ms: int,
    gone: AbstractSet[str] = frozenset(),
    joining: ConsumerGroupMember | None = None,
    renamed: Mapping[str, str] | None = None,
) -> Generator[int, None, ClassicGroup]:
    """The group with all members but those that are gone, made in steps beside the others. Raises Refused if the members'
    metadata cannot be converted."""
    classic = ClassicGroup(
        group.group_id,
        ClassicGroupState.STABLE,
        generation_id=group.group_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        current_state_timestamp_ms=now_ms,
        memory=env.memory,
    )
    members = [member for member in group.members.values() if member.member_id not in gone]
    if joining is not None:
        members.append(joining)
    former = {} if renamed is None else {new: old for old, new in renamed.items()}
    for member in members:
        assert member.classic is not None
        classic.add(
            ClassicGroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                CONSUMER_PROTOCOL_TYPE,
                member.classic.protocols,
                EMPTY_ASSIGNMENT,
            )
        )
        yield MEMBER_COST // 4
    try:
        classic.protocol_name = classic.select_protocol()
        classic.subscribed_topics = classic.compute_subscribed_topics()
        for each in classic.members.values():
            target: Assignment = group.targets.get(former.get(each.member_id, each.member_id), NO_PARTITIONS)
            version = version_of(each.metadata(classic.protocol_name))
            classic.assign(each, assignment_bytes(target, env.topics, version))
            yield MEMBER_COST // 2
    except (WireError, KeyError):  # only the first protocol of a member was read when it joined
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The embedded consumer protocol is malformed."
        ) from None
    return classic
