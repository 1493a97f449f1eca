"""Conversions of groups that are too large for one step of the loop.

What a conversion writes is prepared beside the requests, and is used if nothing has changed meanwhile. An upgrade takes
place when a member asks for it again: the first time it is told to come back. A downgrade follows after the last member
of the consumer protocol has gone. A coordinator that ends in between leaves a consumer group of classic members.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import CoordinatorResult, Refused
from kafkacompat.group.classic.rebalance import prepare_rebalance, reschedule_heartbeat
from kafkacompat.group.classic.records import group_metadata_record
from kafkacompat.group.consumer.conversion import (
    classic_group_of,
    consumer_group_of,
    tell_to_rejoin,
    upgrade_records,
)
from kafkacompat.group.consumer.records import group_tombstones
from kafkacompat.group.consumer.sessions import cancel_timers, schedule_session_timeout
from kafkacompat.group.environment import Environment, GroupResult, nothing
from kafkacompat.group.records import EncodedRecord, GroupRecord, encode_record
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from kafkacompat.group.classic.classic_group import ClassicGroup
    from kafkacompat.group.classic.classic_group_member import ClassicGroupMember, Protocols
    from kafkacompat.group.consumer.consumer_group import ConsumerGroup
    from kafkacompat.group.consumer.member import ClassicMemberMetadata

CONVERTED_AT_ONCE = 100
"""Members of a group that is converted within a request. Each takes about 100 us."""
RECORD_COST = 12
TIMER_COST = 6


def _encoded(group_id: str, records: Iterable[GroupRecord]) -> Generator[int, None, list[EncodedRecord]]:
    encoded = []
    for record in records:
        encoded.append(EncodedRecord(group_id, *encode_record(record)))
        yield RECORD_COST
    return encoded


# --- from classic to consumer

SeenMember = tuple["ClassicGroupMember", "Protocols", bytes, int, int]


@dataclass(frozen=True, slots=True)
class PreparedUpgrade:
    seen: tuple[int, str | None, list[SeenMember]]
    """The classic group at the beginning."""
    group: ConsumerGroup | None
    records: list[EncodedRecord]
    refusal: Refused | None

    def fits(self, classic: ClassicGroup) -> bool:
        return self.seen == _seen(classic)


def _seen(classic: ClassicGroup) -> tuple[int, str | None, list[SeenMember]]:
    members = [
        (each, each.protocols, each.assignment, each.session_timeout_ms, each.rebalance_timeout_ms)
        for each in classic.members.values()
    ]
    return classic.generation_id, classic.protocol_name, members


def upgraded_if_prepared(
    env: Environment, classic: ClassicGroup, records: list[GroupRecord]
) -> ConsumerGroup:
    """The group as it is after these records. Raises Refused: COORDINATOR_LOAD_IN_PROGRESS if the member has to come back,
    or why the group cannot be converted."""
    prepared: PreparedUpgrade | None = classic.prepared_upgrade
    if prepared is None or not prepared.fits(classic):
        _prepare_upgrade(env, classic)
        raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The group is being converted.")
    if prepared.refusal is not None:
        raise prepared.refusal
    group = prepared.group
    assert group is not None
    tell_to_rejoin(env, classic)

    def apply() -> None:
        env.groups[group.group_id] = group
        group.enter(env.subscribers)

    *first, last = prepared.records
    records += classic.tombstones()
    records += first
    records.append(replace(last, apply=apply))
    env.tasks.schedule(
        "taking up the members of a converted group",
        ("taking up", group.group_id),
        _take_up(env, group),
        lambda _, at_ms: nothing(),
    )
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
    except Refused as refusal:
        return PreparedUpgrade(seen, None, [], refusal)
    records = yield from _encoded(group.group_id, upgrade_records(group))
    return PreparedUpgrade(seen, group, records, None)


def _take_up(env: Environment, group: ConsumerGroup) -> Generator[int, None, None]:
    """Every classic member gets a full session."""
    for member_id in list(group.members):
        member = group.members.get(member_id)
        if env.groups.get(group.group_id) is group and member is not None and member.classic is not None:
            schedule_session_timeout(env, group.group_id, member_id, member.classic.session_timeout_ms)
        yield TIMER_COST


# --- from consumer to classic


@dataclass(frozen=True, slots=True)
class PreparedDowngrade:
    seen: tuple[int, int, dict[str, ClassicMemberMetadata | None]]
    """The consumer group at the beginning."""
    classic: ClassicGroup
    records: list[EncodedRecord]


def _seen_members(group: ConsumerGroup) -> tuple[int, int, dict[str, ClassicMemberMetadata | None]]:
    members = {member_id: each.classic for member_id, each in group.members.items()}
    return group.group_epoch, group.assignment_epoch, members


def downgrade_later(env: Environment, group: ConsumerGroup, now_ms: int) -> None:
    """Make it a classic group if it then has only classic members."""
    key = ("conversion", group.group_id)
    if env.tasks.is_scheduled(key):
        return
    env.tasks.schedule(
        "converting a consumer group",
        key,
        _prepared_downgrade(env, group, now_ms),
        lambda prepared, at_ms: _downgraded(env, group, prepared, at_ms),
    )


def _has_only_classic_members(env: Environment, group: ConsumerGroup) -> bool:
    return env.groups.get(group.group_id) is group and group.classic_count == len(group.members) > 0


def _prepared_downgrade(
    env: Environment, group: ConsumerGroup, now_ms: int
) -> Generator[int, None, PreparedDowngrade | None]:
    if not _has_only_classic_members(env, group):
        return None
    seen = _seen_members(group)
    try:
        classic = yield from classic_group_of(env, group, now_ms)
    except Refused:
        return None
    if seen != _seen_members(group):
        return PreparedDowngrade(seen, classic, [])
    assignments = {member.member_id: member.assignment for member in classic.members.values()}
    group_id = group.group_id
    removed = group_tombstones(group_id, list(group.members), list(group.resolved))
    restored = group_metadata_record(classic, assignments)
    written: Iterable[GroupRecord] = chain(removed, [restored])
    return PreparedDowngrade(seen, classic, (yield from _encoded(group_id, written)))


def _downgraded(
    env: Environment, group: ConsumerGroup, prepared: PreparedDowngrade | None, now_ms: int
) -> GroupResult:
    if prepared is None or not _has_only_classic_members(env, group):
        return nothing()
    if prepared.seen != _seen_members(group):
        downgrade_later(env, group, now_ms)
        return nothing()
    classic = prepared.classic
    env.groups[group.group_id] = classic
    group.forget()

    def refused() -> None:
        env.groups[group.group_id] = group
        group.remember()

    prepare_rebalance(env, classic, now_ms)
    env.tasks.schedule(
        "taking up the members of a converted group",
        ("taking up", group.group_id),
        _take_up_classic(env, classic),
        lambda _, at_ms: nothing(),
    )
    return CoordinatorResult(tuple(prepared.records), None, replay=False, refused=refused)


def _take_up_classic(env: Environment, classic: ClassicGroup) -> Generator[int, None, None]:
    """Every member gets a full session, and loses the timers that it had in the consumer group."""
    for member in list(classic.members.values()):
        if env.groups.get(classic.group_id) is classic:
            cancel_timers(env, classic.group_id, member.member_id)
            if classic.members.get(member.member_id) is member:
                reschedule_heartbeat(env, classic, member)
        yield TIMER_COST * 2
