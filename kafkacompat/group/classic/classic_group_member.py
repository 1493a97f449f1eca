"""One member of a classic group.

It has the data of the member's requests, and its parked requests. Follows Kafka's classic rebalance protocol with
static members (KIP-345).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from kafkacompat.group.sizes import size_of_classic_member
from kafkacompat.memory import NO_CONNECTION

if TYPE_CHECKING:
    from kafkacompat.coordinator.core import Caller, Reply
    from kafkacompat.memory import Held
    from kafkacompat.wire.messages.sync_group_response import SyncGroupResponse

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) pairs in the member's order of preference."""

EMPTY_ASSIGNMENT = b""


class ClassicGroupMember:
    """`awaiting_join` and `awaiting_sync` are the parked requests, at most one of each.

    `is_new` is true from the first join to its answer. Such a member has a longer deadline, because it cannot send
    heartbeats before it knows its id. Timeouts in ms.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "connection_id",
        "group_instance_id",
        "held",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = EMPTY_ASSIGNMENT,
        connection_id: int = NO_CONNECTION,
    ) -> None:
        """`connection_id`: that of the member's last join. NO_CONNECTION if the member was loaded."""
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        """With the leading slash of Java's InetAddress, as in records and DescribeGroups."""
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Caller | None = None
        self.awaiting_sync: Caller | None = None
        self.is_new = False
        self.connection_id = connection_id
        self.held: Held | None = None
        """The memory that the group counts for the member."""

    def size(self) -> int:
        """The bytes of memory that the member takes."""
        names = (self.member_id, self.client_id, self.client_host, self.group_instance_id or "")
        return size_of_classic_member(names, self.protocols) + len(self.assignment)

    def metadata(self, protocol_name: str) -> bytes:
        """The member's metadata for this protocol. Raises KeyError if the member does not support it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise KeyError(protocol_name)

    def vote(self, candidates: Collection[str]) -> str:
        """The member's preferred protocol among the candidates. Raises KeyError if it supports none."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise KeyError(f"member {self.member_id} speaks none of {sorted(candidates)}")

    def answer_sync(self, message: SyncGroupResponse) -> Sequence[Reply]:
        """The reply to the parked SyncGroup, which then is no longer parked. None if there is none."""
        caller, self.awaiting_sync = self.awaiting_sync, None
        return () if caller is None else ((caller, message),)

    def has_satisfied_heartbeat(self) -> bool:
        """A parked request proves that the member is alive. Exception: a new member, whose client may have
        disconnected unnoticed."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)
