"""Subscriptions by regular expression, resolved by the coordinator (KIP-848).

The expressions of a group are resolved together, beside the requests, so that an update causes one rebalance. An
expression must match a topic's whole name.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any

from kafkacompat import expressions
from kafkacompat.coordinator.core import CoordinatorResult, OperationRefused
from kafkacompat.expressions import ExpressionRefused
from kafkacompat.group.consumer.assignor import Meter
from kafkacompat.group.consumer.consumer_group import (
    ConsumerGroup,
    ResolvedRegularExpression,
    SubscribedTopics,
)
from kafkacompat.group.environment import METADATA_REFRESH_INTERVAL_MS, Environment, GroupResult, nothing
from kafkacompat.group.modern_group import hash_topics, metadata_hash
from kafkacompat.group.records import (
    consumer_epoch_record,
    regular_expression_record,
    regular_expression_tombstone,
)
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.group.consumer.consumer_group_member import ConsumerGroupMember
    from kafkacompat.group.records import GroupRecord

REFRESH_MIN_INTERVAL_MS = 10_000
EXPRESSIONS_MAX = 100
"""Different expressions of one group. Kafka has no limit, but clients of one group share one or two."""
NAMES_AT_ONCE = 5_000
"""Matched names in one write, if more than one expression has that many together."""
COMPILE_NS = 4_000_000
"""Mostly much less."""
ASKED_NS = 10_000
"""Whether the member may describe a matched topic."""
MATCH_NS = 1_500
"""One name, before its characters count."""
CHARACTER_NS = 15
"""One character, for each instruction of the compiled expression. Most expressions need much less."""
MayDescribe = Callable[[list[str]], "set[str]"]
"""Of these topics, those that the member may describe."""


class RegexUpdate(Enum):
    NO_CHANGE = 0
    UPDATED = 1
    UPDATED_AND_RESOLVED = 2


def compiled(regex: str) -> Any:
    """Raises OperationRefused INVALID_REGULAR_EXPRESSION."""
    try:
        return expressions.compiled(regex)
    except ExpressionRefused as refused:
        raise OperationRefused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {str(refused).partition(':')[0]}.",
        ) from None


def maybe_update_regular_expressions(
    env: Environment,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    may_describe: MayDescribe | None,
    records: list[GroupRecord],
    now_ms: int,
) -> RegexUpdate:
    """Drop an expression whose last subscriber goes, and have the group's expressions resolved when that is due. Raises
    OperationRefused INVALID_REGULAR_EXPRESSION."""
    update = RegexUpdate.NO_CHANGE
    is_new = False
    if old.subscribed_topic_regex != new.subscribed_topic_regex:
        update = RegexUpdate.UPDATED
        if old.regex is not None and group.regexes.get(old.regex) == 1:
            records.append(regular_expression_tombstone(group.group_id, old.regex))
        if new.regex is not None:
            if new.regex not in group.regexes:
                _throw_if_too_many(group, old)
                compiled(new.regex)
                is_new = True
            elif new.regex in group.resolved:
                update = RegexUpdate.UPDATED_AND_RESOLVED
        elif old.regex is not None:
            update = RegexUpdate.UPDATED_AND_RESOLVED
    if is_new or group.regexes:
        _maybe_resolve(env, group, old, new, may_describe, is_new, now_ms)
    return update


def _throw_if_too_many(group: ConsumerGroup, old: ConsumerGroupMember) -> None:
    """If there is no room for another expression, and the member's former one does not make room."""
    goes = old.regex is not None and group.regexes.get(old.regex) == 1
    if len(group.regexes) - goes >= EXPRESSIONS_MAX:
        raise OperationRefused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"The group has reached its maximum of {EXPRESSIONS_MAX} regular expressions.",
        )


def _maybe_resolve(
    env: Environment,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    may_describe: MayDescribe | None,
    is_new: bool,
    now_ms: int,
) -> None:
    key = ("regex", group.group_id)
    if env.tasks.is_scheduled(key):
        return
    last = next(iter(group.resolved.values()), None)
    # A time in the future is of a clock that was set back since then.
    if last is not None and last.timestamp_ms <= now_ms <= last.timestamp_ms + REFRESH_MIN_INTERVAL_MS:
        return
    subscribed = set(group.regexes)
    if old.regex is not None and old.regex != new.regex and group.regexes.get(old.regex) == 1:
        subscribed.discard(old.regex)
    if new.regex is not None:
        subscribed.add(new.regex)
    is_due = (
        is_new
        or len(subscribed) != len(group.resolved)
        or (0 if last is None else last.version) < env.new_topics_version
        or last is None
        or now_ms > last.timestamp_ms + env.settings.consumer.regex_refresh_interval_ms
    )
    if is_due and subscribed:
        _write_later(env, group.group_id, _resolve(env, sorted(subscribed), may_describe, now_ms))


def _write_later(
    env: Environment, group_id: str, work: Generator[int, None, dict[str, ResolvedRegularExpression]]
) -> None:
    env.tasks.schedule(
        "resolving regular expressions of a group",
        ("regex", group_id),
        work,
        lambda resolved, at_ms: _resolved(env, group_id, resolved, at_ms),
    )


def _resolve(
    env: Environment, regexes: Iterable[str], may_describe: MayDescribe | None, now_ms: int
) -> Generator[int, None, dict[str, ResolvedRegularExpression]]:
    """One expression after the other, because a compiled one may take much memory."""
    topics = env.topics
    names = list(topics.by_name)
    meter = Meter()
    asked_ns = 0 if may_describe is None else ASKED_NS
    resolved: dict[str, ResolvedRegularExpression] = {}
    for regex in regexes:
        found: list[str] = []
        try:
            pattern = compiled(regex)
        except OperationRefused:
            # Another broker has accepted it. It matches nothing here, as the group's description shows, and the others
            # are resolved all the same.
            pass
        else:
            character_ns = CHARACTER_NS * pattern.programsize
            some: list[str] = []
            for name in names:
                spent_ns = MATCH_NS + character_ns * len(name)
                if pattern.fullmatch(name):
                    some.append(name)
                    spent_ns += asked_ns
                if cost := meter.spend(spent_ns):
                    found += _visible(some, may_describe)
                    some = []
                    yield cost
            found += _visible(some, may_describe)
            yield from hash_topics(env, found)
        resolved[regex] = ResolvedRegularExpression(frozenset(found), topics.version, now_ms)
        if cost := meter.spend(COMPILE_NS):
            yield cost
    return resolved


def _visible(names: list[str], may_describe: MayDescribe | None) -> list[str]:
    if may_describe is None or not names:
        return names
    allowed = may_describe(names)
    return [name for name in names if name in allowed]


def _given(
    resolved: dict[str, ResolvedRegularExpression],
) -> Generator[int, None, dict[str, ResolvedRegularExpression]]:
    yield 0
    return resolved


def _cut(
    resolved: dict[str, ResolvedRegularExpression],
) -> tuple[dict[str, ResolvedRegularExpression], dict[str, ResolvedRegularExpression]]:
    """The first expressions with NAMES_AT_ONCE names together, but at least one of them, and the others."""
    first: dict[str, ResolvedRegularExpression] = {}
    room = NAMES_AT_ONCE
    for regex, each in resolved.items():
        room -= len(each.topics)
        if room < 0 and first:
            break
        first[regex] = each
    return first, {regex: each for regex, each in resolved.items() if regex not in first}


def _resolved(
    env: Environment, group_id: str, resolved: dict[str, ResolvedRegularExpression], now_ms: int
) -> GroupResult:
    """Write what was found, and begin a new group epoch if it differs from before. What is too much for one write follows
    in others."""
    group = env.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        return nothing()
    resolved, left = _cut(resolved)
    if left:
        _write_later(env, group_id, _given(left))
    records: list[GroupRecord] = []
    topics = SubscribedTopics(group)
    bump = False
    for regex, new in resolved.items():
        if regex not in group.regexes:
            continue
        old = group.resolved.get(regex)
        bump = bump or new.topics != (frozenset() if old is None else old.topics)
        topics.match(regex, new.topics)
        records.append(regular_expression_record(group_id, regex, new.topics, new.version, new.timestamp_ms))
    found_hash = metadata_hash(env, topics.counts())
    if bump or found_hash != group.metadata_hash:
        epoch = group.group_epoch + 1
        records.append(consumer_epoch_record(group_id, epoch, found_hash))
        env.meters.consumer_rebalanced()
        group.set_refresh_deadline(now_ms + METADATA_REFRESH_INTERVAL_MS, epoch)
    return CoordinatorResult(tuple(records), None)
