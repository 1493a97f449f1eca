"""The settings of a group's dead letters, from the node's settings and the group's own (KIP-1191)."""

from __future__ import annotations

from collections.abc import Mapping

from kafkacompat.config import ServerConfig, group_values
from kafkacompat.share.dead_letters import DeadLetterPolicy


def dead_letter_policy(effective: ServerConfig, overrides: Mapping[str, str]) -> DeadLetterPolicy:
    """`overrides` are the group's own settings."""
    if "errors.deadletterqueue.topic.name" not in overrides:
        return DeadLetterPolicy()
    values = group_values(effective, overrides)
    return DeadLetterPolicy(
        str(values["errors.deadletterqueue.topic.name"]),
        values["errors.deadletterqueue.copy.record.enable"] is True,
        effective.get_string("errors.deadletterqueue.topic.name.prefix") or "",
        effective.get_boolean("errors.deadletterqueue.auto.create.topics.enable"),
    )
