"""Groups that change between the classic and the consumer protocol while their members go on (KIP-848).

A classic group becomes a consumer group when its first member joins with the new protocol, and a classic group again
when the last such member goes. Both are one batch of records. group.consumer.migration.policy allows them.

A group may be too large for one step of the loop. What its conversion writes is prepared beside the requests, and is
used if nothing has changed meanwhile. An upgrade takes place when a member asks for it again: the first time it is
told to come back. A downgrade follows after the last member of the consumer protocol has gone. If the coordinator
ends in between, the next one finds a consumer group of classic members, and goes on with it. Kafka converts the group
in the batch that removes the last member.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import CoordinatorResult, OperationRefused, RecordRun, encoded_run
from kafkacompat.dataclass import dataclass
from kafkacompat.group.classic.classic_group import (
    EMPTY_ASSIGNMENT,
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
    group_metadata_record,
)
from kafkacompat.group.classic.rebalance import (
    cancel_heartbeat,
    cancel_rebalance_timers,
    prepare_rebalance,
    reschedule_heartbeat,
)
from kafkacompat.group.classic.rebalance import cancel_timers as cancel_classic_timers
from kafkacompat.group.consumer.consumer_group import (
    CONSUMER_PROTOCOL_TYPE,
    NO_PARTITIONS,
    ConsumerGroup,
    cancel_timers,
)
from kafkacompat.group.consumer.consumer_group_member import ClassicMemberMetadata, ConsumerGroupMember
from kafkacompat.group.consumer_protocol import (
    METADATA_BYTES_MAX,
    CustomAssignor,
    MalformedSubscription,
    are_too_many,
    assigned_partitions,
    assignment_bytes,
    subscription_of,
    version_of,
)
from kafkacompat.group.environment import Environment, GroupResult, nothing
from kafkacompat.group.modern_group import hash_topics, metadata_hash, schedule_session_timeout, take_up
from kafkacompat.group.records import (
    EncodedRecord,
    GroupRecord,
    consumer_current_assignment_record,
    consumer_epoch_record,
    consumer_group_tombstones,
    consumer_member_record,
    consumer_target_epoch_record,
    consumer_target_record,
    encode_record,
)
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode, WireError

if TYPE_CHECKING:
    from kafkacompat.group.classic.classic_group import Protocols
    from kafkacompat.group.consumer.assignor import Assignment


MEMBER_COST = 40
"""To convert one member, without its records."""
READ_AT_ONE_COST = 32
"""Bytes of a subscription."""

# --- from classic to consumer


def validate_online_upgrade(env: Environment, group: ClassicGroup) -> None:
    """Raises OperationRefused GROUP_ID_NOT_FOUND."""
    cannot = f"Cannot upgrade classic group {group.group_id} to consumer group because "
    if not env.settings.consumer.allows_upgrade:
        raise OperationRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"{cannot}online upgrade is disabled.")
    if not group.uses_consumer_protocol():
        raise OperationRefused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"{cannot}the group does not use the consumer embedded protocol."
        )
    if len(group.members) > env.settings.consumer.max_size:
        raise OperationRefused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"{cannot}the group size exceeds the consumer group maximum size."
        )


def upgraded(env: Environment, classic: ClassicGroup, records: list[GroupRecord]) -> ConsumerGroup:
    """The group as it is after these records, with every member still a classic one. Parked members have to rejoin.
    Raises OperationRefused if a member's metadata cannot be converted."""
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
        yield consumer_member_record(group_id, member)
    yield consumer_epoch_record(group_id, group.group_epoch, group.metadata_hash)
    for member_id, target in group.targets.items():
        yield consumer_target_record(group_id, member_id, target)
    yield consumer_target_epoch_record(group_id, group.assignment_epoch, group.assignment_timestamp_ms)
    for member in group.members.values():
        yield consumer_current_assignment_record(group_id, member)


def consumer_group_of(env: Environment, classic: ClassicGroup) -> Generator[int, None, ConsumerGroup]:
    """The group with all its members, made in steps beside the others. Raises OperationRefused."""
    generation = classic.generation_id
    group = ConsumerGroup(classic.group_id, {}, env.memory)
    group.set_assignment_epoch(generation, 0)
    cannot = f"Cannot upgrade classic group {classic.group_id} to consumer group because "
    try:
        for each in list(classic.members.values()):
            target = assigned_partitions(each.assignment, env.topics) if each.assignment else {}
            metadata = each.metadata(classic.protocol_name or "")
            if len(metadata) > METADATA_BYTES_MAX or are_too_many(metadata):
                raise OperationRefused(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"{cannot}a subscription is too large."
                )
            subscription = subscription_of(metadata)
            group.targets[each.member_id] = target
            member = ConsumerGroupMember(
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
                    topic_id: dict.fromkeys(partitions, generation) for topic_id, partitions in target.items()
                },
                classic=ClassicMemberMetadata(each.session_timeout_ms, each.protocols),
            )
            env.throw_if_no_room(group.growth(member))
            group.update_member(member)
            yield MEMBER_COST + len(metadata) // READ_AT_ONE_COST
    except CustomAssignor:
        raise OperationRefused(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"{cannot}an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade.",
        ) from None
    except (WireError, KeyError, MalformedSubscription):
        raise OperationRefused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"{cannot}the embedded consumer protocol is malformed."
        ) from None
    yield from hash_topics(env, group.topic_names)
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
    that come `before`. Raises OperationRefused if the members' metadata cannot be converted."""
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

    group.unsubscribe_from_all()
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
    """The group with all members but those that are gone, made in steps beside the others. Raises OperationRefused if the members'
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
        classic.update_subscribed_topics()
        for each in classic.members.values():
            target: Assignment = group.targets.get(former.get(each.member_id, each.member_id), NO_PARTITIONS)
            version = version_of(each.metadata(classic.protocol_name))
            classic.assign(each, assignment_bytes(target, env.topics, version))
            yield MEMBER_COST // 2
    except (WireError, KeyError):  # only the first protocol of a member was read when it joined
        raise OperationRefused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The embedded consumer protocol is malformed."
        ) from None
    return classic


CONVERTED_AT_ONCE = 100
"""Members of a group that is converted within a request. Each takes about 100 us."""
READ_AT_ONCE = 131_072
"""Bytes of the subscriptions of such a group. They may take 7 ms."""
TIMER_COST = 6
RETRY_MS = 10_000
"""A downgrade that the log refuses is tried again after this time, and then each time after twice as long, up to
DOUBLED_MAX times: it is prepared anew, which takes long, and the log may refuse it for ever as too large."""
DOUBLED_MAX = 6


# --- from classic to consumer

SeenMember = tuple["ClassicGroupMember", "Protocols", bytes, int, int]


@dataclass(frozen=True, slots=True)
class PreparedUpgrade:
    seen: tuple[int, str | None, list[SeenMember]]
    """The classic group at the beginning."""
    group: ConsumerGroup | None
    records: RecordRun | None
    refusal: OperationRefused | None

    def fits(self, classic: ClassicGroup) -> bool:
        generation_id, protocol_name, members = self.seen
        return (generation_id, protocol_name, len(members)) == (
            classic.generation_id,
            classic.protocol_name,
            len(classic.members),
        ) and all(map(_is_unchanged, members, classic.members.values()))


def _seen(classic: ClassicGroup) -> tuple[int, str | None, list[SeenMember]]:
    members = [
        (each, each.protocols, each.assignment, each.session_timeout_ms, each.rebalance_timeout_ms)
        for each in classic.members.values()
    ]
    return classic.generation_id, classic.protocol_name, members


def _is_unchanged(seen: SeenMember, present: ClassicGroupMember) -> bool:
    member, protocols, assignment, session_timeout_ms, rebalance_timeout_ms = seen
    return (
        member is present
        and protocols == present.protocols
        and assignment == present.assignment
        and session_timeout_ms == present.session_timeout_ms
        and rebalance_timeout_ms == present.rebalance_timeout_ms
    )


def is_upgraded_at_once(classic: ClassicGroup) -> bool:
    members = classic.members.values()
    return (
        len(members) <= CONVERTED_AT_ONCE
        and sum(len(metadata) for member in members for _, metadata in member.protocols) <= READ_AT_ONCE
    )


def upgraded_if_prepared(
    env: Environment, classic: ClassicGroup, records: list[GroupRecord], now_ms: int
) -> ConsumerGroup:
    """Like `upgraded`. Raises OperationRefused: COORDINATOR_LOAD_IN_PROGRESS if the member has to come back, or why the group
    cannot be converted."""
    prepared: PreparedUpgrade | None = classic.prepared_upgrade
    if prepared is None or not prepared.fits(classic):
        _prepare_upgrade(env, classic)
        raise OperationRefused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The group is being converted.")
    if prepared.refusal is not None:
        if prepared.refusal.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            classic.prepared_upgrade = None  # there may be room the next time
        raise prepared.refusal
    group, run = prepared.group, prepared.records
    assert group is not None
    assert run is not None

    def apply(_: int) -> None:
        env.groups[group.group_id] = group
        group.enter(env.subscribers)
        cancel_rebalance_timers(env, classic)
        classic.mark_dead(now_ms)
        env.tasks.schedule(
            "taking up the members of a converted group",
            ("taking up", group.group_id),
            _take_up(env, group, classic),
            lambda _, at_ms: nothing(),
        )

    records.append(replace(run, apply=apply))
    return group


def _prepare_upgrade(env: Environment, classic: ClassicGroup) -> None:
    key = ("conversion", classic.group_id)
    classic.prepared_upgrade = None
    if env.tasks.is_scheduled(key):
        return

    def prepared(upgrade: PreparedUpgrade, at_ms: int) -> GroupResult:
        classic.prepared_upgrade = upgrade
        return nothing()

    env.tasks.schedule("converting a classic group", key, _prepared_upgrade(env, classic), prepared)


def _prepared_upgrade(env: Environment, classic: ClassicGroup) -> Generator[int, None, PreparedUpgrade]:
    seen = _seen(classic)
    try:
        group = yield from consumer_group_of(env, classic)
    except OperationRefused as refusal:
        return PreparedUpgrade(seen, None, None, refusal)
    records = yield from encoded_run(map(encode_record, chain(classic.tombstones(), upgrade_records(group))))
    return PreparedUpgrade(seen, group, records, None)


def _take_up(env: Environment, group: ConsumerGroup, classic: ClassicGroup) -> Generator[int, None, None]:
    """Every classic member gets a full session, and loses the one that it had in the classic group. Its timer does nothing
    any more, because that group is dead."""
    for member_id in list(group.members):
        member = group.members.get(member_id)
        if env.groups.get(group.group_id) is group and member is not None and member.classic is not None:
            schedule_session_timeout(env, group.group_id, member_id, member.classic.session_timeout_ms)
        cancel_heartbeat(env, classic, member_id)
        classic.members.pop(member_id, None)
        yield TIMER_COST * 2


# --- from consumer to classic


@dataclass(frozen=True, slots=True)
class PreparedDowngrade:
    seen: tuple[int, int, dict[str, ClassicMemberMetadata | None]]
    """The consumer group at the beginning."""
    classic: ClassicGroup | None = None
    records: tuple[RecordRun, EncodedRecord] | None = None
    """Both are only there if the group can be converted as it was seen."""


def _seen_members(group: ConsumerGroup) -> tuple[int, int, dict[str, ClassicMemberMetadata | None]]:
    members = {member_id: each.classic for member_id, each in group.members.items()}
    return group.group_epoch, group.assignment_epoch, members


def downgrade_later(env: Environment, group: ConsumerGroup, now_ms: int, refusals: int = 0) -> None:
    """Make it a classic group if it then has only classic members. `refusals`: how often the log has refused that."""
    key = ("conversion", group.group_id)
    if env.tasks.is_scheduled(key):
        return
    env.tasks.schedule(
        "converting a consumer group",
        key,
        _prepared_downgrade(env, group, now_ms),
        lambda prepared, at_ms: _downgraded(env, group, prepared, refusals, at_ms),
    )


def resume_downgrade(env: Environment, group: ConsumerGroup, now_ms: int, refusals: int = 0) -> None:
    """Go on with a downgrade that has not come to its end."""
    if len(group.members) > CONVERTED_AT_ONCE and may_downgrade_without(env, group, ()):
        downgrade_later(env, group, now_ms, refusals)


def _has_only_classic_members(env: Environment, group: ConsumerGroup) -> bool:
    return env.groups.get(group.group_id) is group and group.classic_count == len(group.members) > 0


def _prepared_downgrade(
    env: Environment, group: ConsumerGroup, now_ms: int
) -> Generator[int, None, PreparedDowngrade | None]:
    seen = _seen_members(group)
    if not _has_only_classic_members(env, group):
        return PreparedDowngrade(seen)
    try:
        classic = yield from classic_group_of(env, group, now_ms)
    except OperationRefused:
        return None
    if seen != _seen_members(group):
        return PreparedDowngrade(seen)
    assignments = {member.member_id: member.assignment for member in classic.members.values()}
    group_id = group.group_id
    removed = consumer_group_tombstones(group_id, list(group.members), list(group.resolved))
    run = yield from encoded_run(map(encode_record, removed))
    restored = encode_record(group_metadata_record(classic, assignments))
    return PreparedDowngrade(seen, classic, (run, EncodedRecord(group_id, *restored)))


def _downgraded(
    env: Environment, group: ConsumerGroup, prepared: PreparedDowngrade | None, refusals: int, now_ms: int
) -> GroupResult:
    if prepared is None or not _has_only_classic_members(env, group):
        return nothing()
    if prepared.seen != _seen_members(group):
        downgrade_later(env, group, now_ms, refusals)
        return nothing()
    classic, records = prepared.classic, prepared.records
    assert classic is not None
    assert records is not None
    env.groups[group.group_id] = classic
    group.unsubscribe_from_all()

    def refused() -> None:
        cancel_rebalance_timers(env, classic)
        env.groups[group.group_id] = group
        group.remember()
        env.timers.schedule(("downgrade", group), RETRY_MS << min(refusals, DOUBLED_MAX), again)

    def again(at_ms: int) -> GroupResult:
        if env.groups.get(group.group_id) is group:
            resume_downgrade(env, group, at_ms, refusals + 1)
        return nothing()

    prepare_rebalance(env, classic, now_ms)  # nobody has joined it, so it answers nobody
    env.tasks.schedule(
        "taking up the members of a converted group",
        ("taking up", group.group_id),
        _take_up_classic(env, classic),
        lambda _, at_ms: nothing(),
    )
    return CoordinatorResult(records, None, replay=False, refused=refused)


def _take_up_classic(env: Environment, classic: ClassicGroup) -> Generator[int, None, None]:
    """Every member gets a full session, and loses the timers that it had in the consumer group. One that has joined since then
    keeps the time that it has until its first answer."""
    for member in list(classic.members.values()):
        if env.groups.get(classic.group_id) is classic:
            cancel_timers(env, classic.group_id, member.member_id)
            if classic.members.get(member.member_id) is member and not member.is_new:
                reschedule_heartbeat(env, classic, member)
        yield TIMER_COST * 2
