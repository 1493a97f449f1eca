"""Settings with the same meaning.

The tables tell which broker settings mean the same, and which broker setting gives a topic's or a group's default.
Follows Kafka 4.3: the first name of a family has precedence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

_FAMILIES = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_FAMILY_OF = {name: family for family in _FAMILIES for name in family}
_FAMILY_OF["log.flush.interval.ms"] = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")

LISTENER_PREFIX = "listener.name."
_LISTENER_SETTING = re.compile(r"listener\.name\.[^.]*\.(.*)")
_MECHANISM_SETTINGS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
_OF_TOKENS = "oauthbearer."
"""The mechanism prefix of sasl.oauthbearer.*, which only this mechanism reads."""

TOPIC_TO_BROKER: Mapping[str, str] = MappingProxyType(
    {
        "cleanup.policy": "log.cleanup.policy",
        "compression.gzip.level": "compression.gzip.level",
        "compression.lz4.level": "compression.lz4.level",
        "compression.type": "compression.type",
        "compression.zstd.level": "compression.zstd.level",
        "delete.retention.ms": "log.cleaner.delete.retention.ms",
        "file.delete.delay.ms": "log.segment.delete.delay.ms",
        "flush.messages": "log.flush.interval.messages",
        "flush.ms": "log.flush.interval.ms",
        "index.interval.bytes": "log.index.interval.bytes",
        "local.retention.bytes": "log.local.retention.bytes",
        "local.retention.ms": "log.local.retention.ms",
        "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
        "max.message.bytes": "message.max.bytes",
        "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
        "message.timestamp.type": "log.message.timestamp.type",
        "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
        "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
        "min.insync.replicas": "min.insync.replicas",
        "preallocate": "log.preallocate",
        "retention.bytes": "log.retention.bytes",
        "retention.ms": "log.retention.ms",
        "segment.bytes": "log.segment.bytes",
        "segment.index.bytes": "log.index.size.max.bytes",
        "segment.jitter.ms": "log.roll.jitter.ms",
        "segment.ms": "log.roll.ms",
        "unclean.leader.election.enable": "unclean.leader.election.enable",
    }
)
"""Topic settings without an entry have no broker default."""

_GROUP_ONLY = frozenset(
    {
        "errors.deadletterqueue.copy.record.enable",
        "errors.deadletterqueue.topic.name",
        "share.auto.offset.reset",
        "share.isolation.level",
        "share.renew.acknowledge.enable",
    }
)


def group_to_broker(name: str) -> str | None:
    """The broker setting with a group setting's default. None if there is none."""
    return None if name in _GROUP_ONLY else f"group.{name}"


def listener_prefix(listener: str, mechanism: str = "") -> str:
    """The prefix of a setting for one listener, or for one SASL mechanism of it."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    return f"{prefix}{mechanism.lower()}." if mechanism else prefix


def listener_base(name: str) -> str | None:
    """The plain name in `listener.name.X.[mechanism.]name`. None for any other name."""
    matched = _LISTENER_SETTING.fullmatch(name)
    if matched is None:
        return None
    base = matched[1]
    plain = (setting for setting in _MECHANISM_SETTINGS if base.endswith(setting))
    return next(plain, base.removeprefix(_OF_TOKENS))


def broker_synonyms(name: str, *, with_listener_base: bool = True) -> tuple[str, ...]:
    """All names that can give `name` its value, in order of precedence."""
    family = _FAMILY_OF.get(name)
    if family is not None:
        return family
    base = listener_base(name) if with_listener_base else None
    return (name,) if base is None else (name, base)
