"""One broker's side of requests that two brokers are sent alike, and what its answers say beside ids, clocks and addresses.

Ids are told by the order in which they were first seen, lists without their order where Kafka's comes from a hash table, records by
their headers.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Sequence
from typing import Any

from interop_tests.harness.groups import coordinator
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed, Silence, frame
from kafkacompat._tests.fuzz.author import Author, Request
from kafkacompat._tests.fuzz.choices import Choices, SeededChoices
from kafkacompat._tests.fuzz.judge import read_answer
from kafkacompat._tests.fuzz.values import GROUPS, TOPICS, TRANSACTIONAL_IDS, WITNESSED_TOPIC
from kafkacompat.api.registry import Entry
from kafkacompat.wire.message import Struct

CONNECTIONS = 3
SILENT_S = 0.4
"""A request that both leave waiting for so long waits for another client, and is given up."""
LATE_S = 10.0
"""Where one has answered the other may take so long."""
CLOSED, WAITS = "closed", "waits"
MEMBER_ID = re.compile(r".*-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIMES = ("timestamp", "log_append_time_ms", "transaction_start_time_ms", "last_timestamp")
TEXTS = ("error_message", "message", "documentation")
ADDRESSES = ("host", "port", "cluster_id", "rack")
BARRIER = "barrier"
LOADING = (14, 15, 16)
BEING_ENDED = ("PrepareCommit", "PrepareAbort")
CHANGES_METADATA = {
    "CreateTopics",
    "DeleteTopics",
    "CreatePartitions",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "AlterPartitionReassignments",
    "ElectLeaders",
    "UpdateFeatures",
}
ENDS_TRANSACTIONS = {"EndTxn", "InitProducerId", "WriteTxnMarkers"}
PATIENT_MS = 120_000
"""No member is thrown out while the test runs: two clocks do not do so between the same two requests."""


AVOIDED: dict[str, tuple[tuple[int, ...], int]] = {
    "isolation_level": ((0, 1), 0),
    "config_operation": ((0, 1, 2, 3), 0),
}
"""Fields by what Kafka has a name for, and what is said in place of all else. Kafka answers those as its code happens to fail, some
partitions of a request being looked at by then; ours refuses the request, or the resource."""


class PatientAuthor(Author):
    """Writes requests whose answers do not depend on when they are answered."""

    def __init__(self, choices: Choices, entries: Sequence[Entry]) -> None:
        super().__init__(choices, entries)
        self.mangled_in_256 = 0

    def _adjust(self, entry: Entry, message: Any) -> None:
        super()._adjust(entry, message)
        if entry.name == "JoinGroup":
            if 6_000 <= message.session_timeout_ms <= 1_800_000:
                message.session_timeout_ms = PATIENT_MS
            message.rebalance_timeout_ms = PATIENT_MS
        elif entry.name == "Fetch":
            message.max_wait_ms = 0
        elif entry.name == "InitProducerId" and 0 < message.transaction_timeout_ms <= 900_000:
            message.transaction_timeout_ms = PATIENT_MS
        elif hasattr(message, "timeout_ms"):
            message.timeout_ms = 10_000
        tame(message)


def tame(struct: Struct) -> None:
    for name in struct.__slots__:
        value = getattr(struct, name)
        if name in AVOIDED and value not in AVOIDED[name][0]:
            setattr(struct, name, AVOIDED[name][1])
        for each in value if type(value) is list else [value]:
            if isinstance(each, Struct):
                tame(each)


class Names:
    """Of one broker's ids, in the order in which they were first seen."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[Any, int]] = {}

    def canonical(self, response: Any) -> Any:
        """Without what differs between any two clusters. Brings the response's lists into the order of what they say."""
        return response if isinstance(response, str) else self._struct(response)

    def _struct(self, item: Struct) -> tuple[Any, ...]:
        found = []
        for name in item.__slots__:
            value = getattr(item, name)
            if type(value) is list:
                # Before their ids are named, by all else.
                # A request may hold the very same list in several places.
                value[:] = sorted(value, key=lambda each, name=name: repr(Unnamed().value(name, each)))  # type: ignore[misc]
                # Whoever is named twice is answered once by ours, in places.
                found.append((name, list(dict.fromkeys(repr(self.value(name, each)) for each in value))))
            else:
                found.append((name, self.value(name, value)))
        return type(item).__name__, *found

    def value(self, name: str, value: Any) -> Any:
        if isinstance(value, Struct):
            return self._struct(value)
        if name in TEXTS or name in ADDRESSES:
            return None
        if name in TIMES:
            return value > 0
        if name == "records":
            return None if value is None else headers_of(bytes(value))
        if isinstance(value, memoryview):
            value = bytes(value)
        if isinstance(value, bytes) and len(value) == 16 and any(value):
            return self._order("id", value)
        if name == "session_id" and value:
            return self._order("session", value)
        if name in ("producer_id", "base_producer_id") and value >= 0:
            return self._order("producer", value)
        if isinstance(value, str) and MEMBER_ID.fullmatch(value):
            return self._order("member", value)
        return value

    def _order(self, kind: str, value: Any) -> str:
        seen = self._seen.setdefault(kind, {})
        return f"{kind} {seen.setdefault(value, len(seen))}"


class Unnamed(Names):
    """Where every id is like every other."""

    def _order(self, kind: str, value: Any) -> str:
        return kind


class Side:
    """One broker: connections, an author with what this broker taught it, and the names of its ids."""

    def __init__(self, kind: str, bootstrap: str, seed: int, entries: Sequence[Entry]) -> None:
        self.kind = kind
        self._bootstrap = bootstrap
        self.author = PatientAuthor(SeededChoices(f"{seed}/side by side"), entries)
        self._connections: dict[int, Connection] = {}
        self._own = Connection(bootstrap)
        self.names = Names()
        self._barriers = 0
        for topic in (WITNESSED_TOPIC, *TOPICS[:3], BARRIER):
            policy = {"cleanup.policy": "compact"} if topic == "compacted" else {}
            create_topic(bootstrap, topic, 2, policy)
        for group in filter(None, GROUPS):
            coordinator(self._own, group)
        for name in TRANSACTIONAL_IDS:
            wait_until(lambda name=name: self._has_coordinator(name), f"{kind} takes transactions", 30)  # type: ignore[misc]

    def _has_coordinator(self, transactional_id: str) -> bool:
        found = self._own.call("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": [transactional_id]})
        if found["Coordinators"][0]["ErrorCode"]:
            return False
        reply = self._own.call("DescribeTransactions", 0, {"TransactionalIds": [transactional_id]})
        return reply["TransactionStates"][0]["ErrorCode"] not in LOADING

    def close(self) -> None:
        for connection in (self._own, *self._connections.values()):
            connection.close()

    def send(self, number: int, request: Request) -> None:
        connection = self._connections.get(number)
        if connection is None:
            connection = self._connections[number] = Connection(self._bootstrap)
        # A connection that was closed meanwhile shows when the answer is read.
        with contextlib.suppress(ConnectionClosed):
            connection.send_bytes(frame(request.frame))

    def receive(self, number: int, request: Request, timeout_s: float) -> Any:
        """The response, CLOSED or WAITS."""
        try:
            return read_answer(request, self._connections[number].receive_frame(timeout_s))
        except ConnectionClosed:
            return CLOSED
        except Silence:
            return WAITS

    def hang_up(self, number: int) -> None:
        self._connections.pop(number).close()

    # What must be over before the next request.

    def settle(self, api: str) -> None:
        """Until the broker acts by what it has answered."""
        if api in CHANGES_METADATA:
            self._pass_barrier()
        if api in ENDS_TRANSACTIONS:
            wait_until(self._has_ended, f"{self.kind} has ended its transactions", 20, 0.005)

    def _pass_barrier(self) -> None:
        """What the controller is told later is known later."""
        self._barriers += 1
        wanted = str(10**9 + self._barriers)
        config = {"Name": "retention.ms", "ConfigOperation": 0, "Value": wanted}
        resource = {"ResourceType": 2, "ResourceName": BARRIER, "Configs": [config]}
        reply = self._own.call("IncrementalAlterConfigs", 1, {"Resources": [resource]})
        assert reply["Responses"][0]["ErrorCode"] == 0, reply
        asked = {"ResourceType": 2, "ResourceName": BARRIER, "ConfigurationKeys": ["retention.ms"]}

        def is_known() -> bool:
            (result,) = self._own.call("DescribeConfigs", 4, {"Resources": [asked]})["Results"]
            return bool(result["Configs"][0]["Value"] == wanted)

        wait_until(is_known, f"{self.kind} knows of the change", 20, 0.002)

    def _has_ended(self) -> bool:
        reply = self._own.call("DescribeTransactions", 0, {"TransactionalIds": list(TRANSACTIONAL_IDS)})
        return all(each["TransactionState"] not in BEING_ENDED for each in reply["TransactionStates"])


def headers_of(records: bytes) -> list[tuple[int, ...]]:
    """Base offset, attributes, last delta, epoch, base sequence and count of each batch."""
    found = []
    position = 0
    while position + 61 <= len(records):
        base, length, leader_epoch, _, _, attributes, delta = struct.unpack_from(
            ">qiibIhi", records, position
        )
        epoch, sequence, count = struct.unpack_from(">hii", records, position + 51)
        found.append((base, leader_epoch, attributes, delta, epoch, sequence, count))
        if length < 0:
            break  # as only a request has it
        position += 12 + length
    return found


def answers_of(sides: Sequence[Side], number: int, requests: Sequence[Request]) -> list[Any]:
    """What each side's request is answered; one that waits where the other does not is waited for."""
    for side, request in zip(sides, requests, strict=True):
        side.send(number, request)
    answers: list[Any] = [
        side.receive(number, request, SILENT_S) for side, request in zip(sides, requests, strict=True)
    ]
    if answers.count(WAITS) == 1:
        late = answers.index(WAITS)
        answers[late] = sides[late].receive(number, requests[late], LATE_S)
    return answers
