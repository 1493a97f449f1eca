"""What members of groups with heartbeats say, where the definition of a request cannot tell it."""

from __future__ import annotations

from typing import Any

from .choices import Choices, one_of
from .values import SHARE_MEMBERS, TOPICS


def join_or_stay(choices: Choices, heartbeat: Any) -> None:
    """As a client would: whoever joins tells everything, whoever stays repeats nothing."""
    if heartbeat.member_epoch > 0:
        for name in ("instance_id", "rack_id", "subscribed_topic_regex", "topic_partitions"):
            if hasattr(heartbeat, name):
                setattr(heartbeat, name, None)
        return
    heartbeat.member_epoch = 0
    heartbeat.member_id = heartbeat.member_id or one_of(choices, SHARE_MEMBERS)
    heartbeat.subscribed_topic_names = heartbeat.subscribed_topic_names or [one_of(choices, TOPICS)]
    if hasattr(heartbeat, "rebalance_timeout_ms"):
        heartbeat.rebalance_timeout_ms = 5_000
        heartbeat.topic_partitions = []
        heartbeat.server_assignor = None


def begin_session(message: Any) -> None:
    """Nothing is acknowledged before anything is acquired."""
    for topic in message.topics:
        for partition in topic.partitions:
            partition.acknowledgement_batches = []
