"""What a ConsumerGroupHeartbeat must have before its group is looked for. Follows Kafka's GroupCoordinatorService."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import Refused
from kafkacompat.group.consumer.member import LEAVE_GROUP_STATIC_MEMBER_EPOCH
from kafkacompat.group.modern_group import LEAVE_GROUP_MEMBER_EPOCH
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest

CLIENT_MEMBER_IDS_SINCE = 1
"""From this version on the clients make the member ids."""
JAVA_BLANKS = "".join(map(chr, range(33)))
"""What Java's trim removes."""


def validate_heartbeat(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]
) -> None:
    """Raises Refused INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if api_version >= CLIENT_MEMBER_IDS_SINCE or epoch > 0 or epoch == LEAVE_GROUP_MEMBER_EPOCH:
        _refuse_if(is_blank(request.member_id), "MemberId can't be empty.")
    _refuse_if(is_blank(request.group_id), "GroupId can't be empty.")
    _refuse_if(is_blank(request.instance_id), "InstanceId can't be empty.")
    _refuse_if(is_blank(request.rack_id), "RackId can't be empty.")
    if epoch == 0:
        _refuse_if(
            request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request."
        )
        _refuse_if(request.topic_partitions != [], "TopicPartitions must be empty when (re-)joining.")
        subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        _refuse_if(
            not subscribes,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        _refuse_if(request.instance_id is None, "InstanceId can't be null.")
    else:
        _refuse_if(epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def is_blank(text: str | None) -> bool:
    return text is not None and not text.strip(JAVA_BLANKS)


def _refuse_if(is_so: bool, message: str) -> None:
    if is_so:
        raise Refused(ErrorCode.INVALID_REQUEST, message)
