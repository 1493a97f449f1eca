"""Conversions of groups that are too large for one step of the loop.

What a conversion writes is prepared beside the requests, and is used if nothing has changed meanwhile. An upgrade takes
place when a member asks for it again: the first time it is told to come back. A downgrade follows after the last member
of the consumer protocol has gone. If the coordinator ends in between, the next one finds a consumer group of classic
members, and goes on with it. Kafka converts the group in the batch that removes the last member.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import CoordinatorResult, RecordRun, Refused, encoded_run
from kafkacompat.group.classic.rebalance import (
    cancel_heartbeat,
    cancel_rebalance_timers,
    prepare_rebalance,
    reschedule_heartbeat,
)
from kafkacompat.group.classic.records import group_metadata_record
from kafkacompat.group.consumer.conversion import (
    classic_group_of,
    consumer_group_of,
    may_downgrade_without,
    upgrade_records,
)
from kafkacompat.group.consumer.records import group_tombstones
from kafkacompat.group.consumer.sessions import cancel_timers, schedule_session_timeout
from kafkacompat.group.environment import Environment, GroupResult, nothing
from kafkacompat.group.records import EncodedRecord, GroupRecord, encode_record
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafkacompat.group.classic.classic_group import ClassicGroup
    from kafkacompat.group.classic.classic_group_member import ClassicGroupMember, Protocols
    from kafkacompat.group.consumer.consumer_group import ConsumerGroup
    from kafkacompat.group.consumer.member import ClassicMemberMetadata

CONVERTED_AT_ONCE = 100
"""Members of a group that is converted within a request. Each takes about 100 us."""
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
    refusal: Refused | None

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


def upgraded_if_prepared(
    env: Environment, classic: ClassicGroup, records: list[GroupRecord], now_ms: int
) -> ConsumerGroup:
    """Like `upgraded`. Raises Refused: COORDINATOR_LOAD_IN_PROGRESS if the member has to come back, or why the group cannot
    be converted."""
    prepared: PreparedUpgrade | None = classic.prepared_upgrade
    if prepared is None or not prepared.fits(classic):
        _prepare_upgrade(env, classic)
        raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The group is being converted.")
    if prepared.refusal is not None:
        raise prepared.refusal
    group, run = prepared.group, prepared.records
    assert group is not None
    assert run is not None

    def apply() -> None:
        env.groups[group.group_id] = group
        group.enter(env.subscribers)
        cancel_rebalance_timers(env, classic)
        classic.shut(now_ms)
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
    except Refused as refusal:
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
    except Refused:
        return None
    if seen != _seen_members(group):
        return PreparedDowngrade(seen)
    assignments = {member.member_id: member.assignment for member in classic.members.values()}
    group_id = group.group_id
    removed = group_tombstones(group_id, list(group.members), list(group.resolved))
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
    group.forget()

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
    """Every member gets a full session, and loses the timers that it had in the consumer group."""
    for member in list(classic.members.values()):
        if env.groups.get(classic.group_id) is classic:
            cancel_timers(env, classic.group_id, member.member_id)
            if classic.members.get(member.member_id) is member:
                reschedule_heartbeat(env, classic, member)
        yield TIMER_COST * 2
