"""ShareGroupHeartbeatRequest, versions 1 to 1.

Written by `python -m kafkacompat.wire.generate` from definitions/wire/ShareGroupHeartbeatRequest.json."""

from __future__ import annotations

from typing import ClassVar

from kafkacompat.wire.message import Message


class ShareGroupHeartbeatRequest(Message):
    __slots__ = ("group_id", "member_id", "member_epoch", "rack_id", "subscribed_topic_names")
    API_KEY: ClassVar[int | None] = 76
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_MIN: ClassVar[int] = 0
    DEFINITION: ClassVar[str] = "wire/ShareGroupHeartbeatRequest.json"

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        rack_id: str | None = None,
        subscribed_topic_names: list[str] | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.rack_id = rack_id
        self.subscribed_topic_names = subscribed_topic_names
