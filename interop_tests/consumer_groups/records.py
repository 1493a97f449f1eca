"""The records of coordinators that a broker has written since the last look, in a form that can be compared."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from interop_tests.consumer_groups.names import Names
from interop_tests.harness.raw_kafka import fetch
from interop_tests.harness.records import Record, decode_batches
from interop_tests.harness.wire import Connection
from kafkacompat.wire.apis import group_record_classes
from kafkacompat.wire.codec import decode
from kafkacompat.wire.message import Message

OFFSETS_TOPIC = "__consumer_offsets"
ReadRecord = tuple[str, Any, Any]


class WrittenRecords:
    """Reads the single partition of a coordinator's topic from one position to the next."""

    def __init__(
        self,
        connection: Connection,
        names: Names,
        topic: str = OFFSETS_TOPIC,
        classes_of: Callable[[int], tuple[type[Message], type[Message]]] = group_record_classes,
    ) -> None:
        """`classes_of` gives the classes of key and value for a type of record."""
        self._connection = connection
        self._names = names
        self._topic = topic
        self._classes_of = classes_of
        self._position = 0

    def new(self) -> list[Any]:
        """The new batches, each with its records: name of the key, key, and value (None for a tombstone).

        Neighbours are sorted as `in_one_order` says.
        """
        found = []
        while True:
            result = fetch(self._connection, self._topic, self._position, MaxWaitMs=0)
            assert result["ErrorCode"] == 0, result
            batches = decode_batches(result["Records"])
            if not batches:
                return found
            for batch in batches:
                self._position = batch.last_offset + 1
                found.append(in_one_order([self._read(record) for record in batch.records]))

    def _read(self, record: Record) -> ReadRecord:
        assert record.key is not None, record
        record_type = int.from_bytes(record.key[:2], "big")
        key_class, value_class = self._classes_of(record_type)
        key = self._names.canonical(decode(key_class, 0, record.key, 2))
        if record.value is None:
            return key_class.__name__, key, None
        version = int.from_bytes(record.value[:2], "big")
        value = self._names.canonical(decode(value_class, version, record.value, 2))
        if len(value.get("members", ())) > 1 and value["leader"]:
            # Which of several members becomes the leader is the order of a hash table.
            ids = [each["member_id"] for each in value["members"]]
            value["leader"] = "a member" if value["leader"] in ids else value["leader"]
        return key_class.__name__, key, {"value version": version} | value


MEMBER_LEAVES = (
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupMemberMetadataKey",
)


def in_one_order(records: list[ReadRecord]) -> list[ReadRecord]:
    """Neighbours of one type are sorted, and members that leave one after the other.

    A coordinator takes members and partitions out of hash tables. The order of types is part of the format.
    """
    units: list[list[ReadRecord]] = []
    position = 0
    while position < len(records):
        three = records[position : position + 3]
        leaves = tuple(each[0] for each in three) == MEMBER_LEAVES and not any(each[2] for each in three)
        units.append(three if leaves and three[0][1] == three[2][1] else three[:1])
        position += len(units[-1])
    runs = itertools.groupby(units, key=lambda unit: [each[0] for each in unit])
    return [each for _, run in runs for unit in sorted(run, key=repr) for each in unit]
