"""Groups of kinds that are not supported yet. Their records are kept, so that a broker that supports them finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import Refused
from kafkacompat.group.kinds import DEAD, GroupKind
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.group.records import GroupRecord, OffsetAndMetadata


class CarriedGroup:
    """A streams group written by Kafka. It exists as long as one of its records does."""

    __slots__ = ("group_id", "kind", "live_keys", "member_count")

    listed_protocol_type = ""
    state_name = DEAD

    def __init__(self, group_id: str, kind: GroupKind) -> None:
        self.group_id = group_id
        self.kind = kind
        self.live_keys: set[bytes] = set()
        self.member_count = 0

    def is_empty(self) -> bool:
        return self.member_count == 0

    def is_dead(self) -> bool:
        return False

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        member_epoch: int,
        is_transactional: bool,
        api_version: int,
    ) -> None:
        """No member of it can be valid here."""
        names_nobody = member_epoch < 0 and member_id == "" and group_instance_id is None
        if (is_transactional and names_nobody) or (member_epoch < 0 and self.is_empty()):
            return
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        pass

    def validate_offset_delete(self) -> None:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} not found.")

    def is_subscribed_to(self, topic: str) -> bool:
        return True

    def expires_since_ms(self, stored: OffsetAndMetadata) -> None:
        return None

    def shut(self, now_ms: int) -> None:
        raise NotImplementedError

    def open_again(self) -> None:
        raise NotImplementedError

    def tombstones(self) -> list[GroupRecord]:
        raise NotImplementedError
