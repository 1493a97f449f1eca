"""A form of answers and records in which those of two brokers are equal if the brokers decide the same.

Ids that a broker makes get the names that the test gives them. Times and ports are only present or absent. Lists are sorted,
because the order of most of them comes from a hash table.
"""

from __future__ import annotations

import base64
import contextlib
import re
import uuid
from typing import Any

from kafkacompat.wire.codec import decode
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.message import Struct
from kafkacompat.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment

TIMES = {
    "commit_timestamp",
    "current_state_timestamp",
    "assignment_timestamp",
    "timestamp",
    "create_timestamp",
    "write_timestamp",
}
PORTS = {"Port"}
OFFSETS_OF_METADATA = {"version"}
"""The version of a resolved regular expression is an offset of the metadata log."""
ASSIGNMENTS = {"assignment", "Assignment", "MemberAssignment"}

MADE_ID = re.compile(r"(.+)-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
"""A member id that a classic group makes, of the client's id or the instance's."""


class Names:
    """The ids of one broker, and the names that the test gives them."""

    def __init__(self) -> None:
        self._of_text: dict[str, str] = {}
        self._of_id: dict[uuid.UUID, str] = {}
        self._hashes: dict[int, int] = {}
        self._unseen: dict[str, int] = {}

    def learn(self, value: str | uuid.UUID, name: str) -> None:
        if isinstance(value, uuid.UUID):
            self._of_id[value] = name
            value = base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
        if value and value != name:
            self._of_text.setdefault(value, name)

    def of_topic_id(self, value: uuid.UUID) -> str:
        return self._of_id.get(value, "no id" if value.int == 0 else "an unknown id")

    def canonical(self, value: Any, field: str = "") -> Any:
        """A dict, list, message or value without what differs between any two clusters."""
        if isinstance(value, dict):
            return {name: self.canonical(each, name) for name, each in value.items()}
        if isinstance(value, Struct):
            return {name: self.canonical(getattr(value, name), name) for name in value.__slots__}
        if isinstance(value, list):
            return sorted((self.canonical(each, field) for each in value), key=repr)
        if isinstance(value, uuid.UUID):
            return self.of_topic_id(value)
        if isinstance(value, memoryview):
            value = bytes(value)
        if isinstance(value, bytes):
            return self._bytes(value, field)
        if isinstance(value, str):
            return self.text(value)
        if field in TIMES or field in PORTS:
            return value > 0
        if field in OFFSETS_OF_METADATA:
            return None
        if field == "metadata_hash" and value:
            return f"hash {self._hashes.setdefault(value, len(self._hashes))}"
        return value

    def _bytes(self, value: bytes, field: str) -> Any:
        if field == "topic_id":
            return self.of_topic_id(uuid.UUID(bytes=value))
        if field in ASSIGNMENTS and len(value) >= 2:
            version = int.from_bytes(value[:2], "big")
            # A leader may have written anything.
            with contextlib.suppress(WireError, ValueError):
                assigned = decode(ConsumerProtocolAssignment, version, value, 2)
                return {"version": version, "assigned": self.canonical(assigned)}
        return value

    def text(self, value: str) -> str:
        if value in self._of_text:
            return self._of_text[value]
        made = MADE_ID.fullmatch(value)
        if made:
            # Its owner's JoinGroup still waits for the answer.
            count = self._unseen[made[1]] = self._unseen.get(made[1], 0) + 1
            self._of_text[value] = f"{made[1]} unseen {count}"
            return self._of_text[value]
        for known, name in self._of_text.items():
            if known in value:
                value = value.replace(known, name)
        return value
