"""What a ShareGroupHeartbeat must have before its group is looked for. Follows Kafka's GroupCoordinatorService."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import Refused
from kafkacompat.group.consumer.validation import is_blank
from kafkacompat.group.modern_group import LEAVE_GROUP_MEMBER_EPOCH
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest


def validate_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Raises Refused INVALID_REQUEST."""
    _refuse_if(is_blank(request.member_id), "MemberId can't be empty.")
    _refuse_if(is_blank(request.group_id), "GroupId can't be empty.")
    _refuse_if(is_blank(request.rack_id), "RackId can't be empty.")
    if request.member_epoch == 0:
        _refuse_if(not request.subscribed_topic_names, "SubscribedTopicNames must be set in first request.")
    else:
        _refuse_if(request.member_epoch < LEAVE_GROUP_MEMBER_EPOCH, "MemberEpoch is invalid.")


def _refuse_if(is_bad: bool, message: str) -> None:
    if is_bad:
        raise Refused(ErrorCode.INVALID_REQUEST, message)
